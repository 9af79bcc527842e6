//! Groups in virtual time: every operation over paths that lose packets, and ranks that fail.

mod any_rank;
mod auto;
mod bounded;
mod bounded_parts;
mod bounded_ring;
mod deaths;
mod exact;
mod faults;
mod hadamard;
mod in_flight;
mod late_ranks;
mod leaving;
mod loss_targets;
mod pipeline;
mod random;
mod replay;
mod rounds;
mod world;
