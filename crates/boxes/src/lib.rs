//! Boxes in the path, between two wires, that repair losses for RDMA NICs which do not know of
//! them.
//!
//! [`lowar`] adds repair packets at one end of a long path and recovers losses at the other. A box
//! is sans-IO: it takes Ethernet frames and the time, and gives frames. [`LowarDevice`] is one as a
//! device of [`farwrite_net`].
#![no_std]

extern crate alloc;

mod backpressure;
mod bytes;
mod device;
mod frame;
pub mod lowar;
mod psn;

pub use backpressure::Backpressure;
pub use device::LowarDevice;

/// A side of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Where the NICs are that the box protects.
    Near,
    /// Where the long path is.
    Far,
}
