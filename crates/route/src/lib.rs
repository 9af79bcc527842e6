//! Finds and keeps the route between two UDP sockets (P6.2).
//!
//! Address translation (NAT) between two ends changes the addresses and ports of packets. The ICRC
//! of a data packet covers them, so a sender must know the addresses that the receiving socket
//! sees. The ends learn these addresses from *route packets*, an authenticated exchange beside the
//! data. The same exchange measures the round trip, finds the size of the largest packets that the
//! path carries, keeps mappings alive, and validates a new address of the peer before data is sent
//! there.
//!
//! ```text
//!   initiator                                        responder
//!   probe, in several sizes   ---------------->      a new address: not accepted yet
//!                             <----------------      reply: "I saw you as X"; probe to X
//!   reply                     ---------------->      X answers: it is accepted
//!   probe                     ---------------->
//!                             <----------------      reply: "I saw you as X, and accept X"
//!   packets sealed for X      ================>
//! ```
//!
//! [`Route`] is the state of one pair of sockets at one end. This crate has no clock, no randomness
//! and no I/O: times are nanoseconds of one clock of the caller, and [`Route::poll_transmit`]
//! returns the packets to send. [`RouteUsers`] is what a route has to do with the queue pairs on it.

#![no_std]

extern crate alloc;

mod new_address;
mod packet;
mod route;
mod size_search;
mod terms;
mod users;

pub use packet::{MIN_BYTES, PacketError, PacketType, RoutePacket, TRAILER_BYTES, stated_index};
pub use route::{PROBE_BYTES, Route};
pub use size_search::SizeSearch;
pub use terms::{Addresses, Config, Refused, Role, Transmit};
pub use users::{LEAST_WAIT_NS, LOOK_NS, RouteUsers};
