//! Whole endpoints over the virtual-time fabric: what a user's message goes through.

mod choked;
mod parcel;
mod seeds;
mod traffic;
mod world;

mod control_loss;
mod delivery;
mod hostile;
mod outage;
mod review;
