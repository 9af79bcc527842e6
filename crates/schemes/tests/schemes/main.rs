//! Tests of the schemes in virtual time, over a channel with every fault.
// A NACK often names one range.
#![allow(clippy::single_range_in_vec_init)]

mod best_effort;
mod completion;
mod critical;
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
