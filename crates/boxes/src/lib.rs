//! Boxes in the path, between two wires, that repair losses for RDMA NICs which do not know of
//! them.
//!
//! [`lowar`] adds repair packets at one end of a long path and recovers losses at the other.
//! [`netrt`] keeps copies beside a sender, and repeats what the box beside the receiver requests.
//! Each is a [`PathBox`], which takes frames and the time, and gives frames. [`BoxDevice`] is one as
//! a device of [`farwrite_net`].
#![no_std]

extern crate alloc;

use alloc::vec::Vec;

mod backpressure;
mod bytes;
mod device;
mod frame;
pub mod lowar;
mod message;
pub mod netrt;
mod packets;
mod psn;
mod reorder;
mod streams;
mod timers;

pub use backpressure::Backpressure;
pub use device::BoxDevice;
pub use message::KEY_BYTES;

/// A side of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Where the NICs are that the box protects.
    Near,
    /// Where the path to the other box is.
    Far,
}

/// A box between two sides, without clock or I/O. It takes Ethernet frames, without their check
/// sequence, and gives frames.
///
/// Frames that it does not know pass as they are, in their order: other protocols, fragments,
/// packets with IP options, box messages of another key, and RoCEv2 packets that it does not
/// protect.
pub trait PathBox {
    /// Its settings.
    type Config;
    /// What it has done.
    type Counters;

    /// A box. `boot` is higher at each start of the box, for instance nanoseconds since 1970.
    fn new(config: &Self::Config, boot: u64) -> Self;

    /// Takes in a frame that came from one side.
    fn handle(&mut self, now_ns: u64, from: Side, frame: Vec<u8>);

    /// The next frame to send, and to which side.
    fn poll(&mut self) -> Option<(Side, Vec<u8>)>;

    /// When to call [`handle_timeout`](Self::handle_timeout); `None` for never.
    fn next_ns(&self) -> Option<u64>;

    /// Does what is due at `now_ns`.
    fn handle_timeout(&mut self, now_ns: u64);

    /// Traffic classes (the upper three bits of the DSCP), a bit each, that the near side has to
    /// stop sending now.
    fn stops(&self) -> u8 {
        0
    }

    /// Frames held back now.
    fn held(&self) -> usize;

    /// What the box has done since it started.
    fn counters(&self) -> Self::Counters;
}
