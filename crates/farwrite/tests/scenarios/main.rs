//! Whole endpoints over the virtual-time fabric: what a user's message goes through.

mod adaptive;
mod breaking;
mod coding;
mod connecting;
mod control_loss;
mod datacenter;
mod deadline_faults;
mod deadlines;
mod delivery;
mod departures;
mod drops;
mod endings;
mod fairness;
mod feedback;
mod flows;
mod hostile;
mod losses;
mod mixes;
mod no_memory;
mod outage;
mod parcel;
mod review;
mod round_trip;
mod seeds;
mod shapes;
#[path = "../support/slow_fabric.rs"]
mod slow_fabric;
mod slow_world;
mod streams;
mod sweep;
mod terms;
mod traffic;
mod turncoat;
mod windows;
mod world;
mod wraparound;
