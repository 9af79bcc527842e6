//! Pacing and congestion control.
#![no_std]

#[cfg(test)]
extern crate std;

mod adaptive;
mod bucket;
mod control;
mod fixed;
mod math;
mod receiver;

pub use adaptive::{Adaptive, AdaptiveOptions, Phase};
pub use bucket::TokenBucket;
pub use control::{Feedback, Limits, Newest, RateControl, Sent, Start};
pub use fixed::Fixed;
