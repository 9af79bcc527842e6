//! Whole endpoints over the virtual-time fabric: what a user's message goes through.

mod choked;
mod parcel;
mod seeds;
mod shapes;
mod streams;
mod traffic;
mod world;
mod wraparound;

mod control_loss;
mod delivery;
mod endings;
mod hostile;
mod mixes;
mod outage;
mod review;
