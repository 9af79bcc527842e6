//! The schemes against a channel with every fault, in virtual time.
// A NACK often names one range.
#![allow(clippy::single_range_in_vec_init)]

mod best_effort;
mod completion;
mod depths;
mod erasure;
mod events;
mod foreign;
mod harness;
mod hostile;
mod losses;
mod repair;
mod reports;
mod restless;
mod sweep;
