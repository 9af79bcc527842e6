//! Whole endpoints over the virtual-time fabric: what a user's message goes through.

mod choked;
mod coding;
mod connecting;
mod control_loss;
mod delivery;
mod endings;
mod hostile;
mod losses;
mod mixes;
mod outage;
mod parcel;
mod review;
mod seeds;
mod shapes;
mod streams;
mod sweep;
mod traffic;
mod turncoat;
mod world;
mod wraparound;
