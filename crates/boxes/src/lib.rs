//! Boxes in the path that repair losses for unmodified RDMA NICs. Each box connects two links and
//! is transparent to the NICs.
//!
//! [`lowar`] adds repair packets at one end of a long path and recovers losses at the other.
//! [`netrt`] keeps copies of packets beside the sender, and repeats the packets that the box beside
//! the receiver requests. Both implement [`Middlebox`]: its inputs are frames and the time, its
//! outputs are frames. [`BoxDevice`] makes a box a device of [`farwrite_net`].
#![no_std]

extern crate alloc;

use alloc::vec::Vec;

mod backpressure;
mod bytes;
mod device;
mod frame;
pub mod lowar;
mod lru;
mod message;
pub mod netrt;
mod packets;
mod port_queue;
mod psn;
mod reorder;
mod shares;
mod shim;
mod streams;
mod timers;

pub use backpressure::Backpressure;
pub use device::BoxDevice;
pub use farwrite_wire::Secret;
pub use port_queue::PortQueue;
pub use shim::{ReceiveTimes, ShimDevice};

/// A side of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The side of the NICs that the box protects.
    Near,
    /// The side of the path to the other box.
    Far,
}

/// What a frame that a box sends is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A frame of a NIC or of other traffic, or a message that the other box needs to follow the
    /// frames.
    Data,
    /// A frame that the box adds to repair losses: a repair packet of LoWAR, or a packet that NetRT
    /// repeats. Without it, the path is no worse than without boxes, so a full queue drops it before
    /// data ([`PortQueue`]).
    Repair,
}

/// A frame that a box sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoxFrame {
    /// The side to which the frame goes.
    pub to: Side,
    /// What the frame is for.
    pub class: Class,
    /// Whether the frame leaves before frames that wait, except for those that are `ahead` too.
    /// NetRT sends repeats, requests and notices so, with a code point that the network prefers.
    pub ahead: bool,
    /// The Ethernet frame.
    pub bytes: Vec<u8>,
}

impl BoxFrame {
    fn data(to: Side, bytes: Vec<u8>) -> Self {
        Self {
            to,
            class: Class::Data,
            ahead: false,
            bytes,
        }
    }
}

/// A box between two sides, without clock or I/O. Its inputs and outputs are Ethernet frames
/// without the frame check sequence.
///
/// Frames that the box does not protect pass unchanged and in order: other protocols, fragments,
/// packets with IP options, box messages sealed with another key, and RoCEv2 packets outside of its
/// settings.
pub trait Middlebox {
    /// The settings of the box.
    type Config;
    /// What the box counts.
    type Counters;

    /// A box. `boot` must be higher at each start of the box, for instance nanoseconds since 1970. After a
    /// start with a lower number, the other box ignores this one for `idle_ns`.
    fn new(config: &Self::Config, boot: u64) -> Self;

    /// Processes a frame that came from side `from`.
    fn handle(&mut self, now_ns: u64, from: Side, frame: Vec<u8>);

    /// The next frame to send. The frames of a side must leave in this order, also repairs: LoWAR's
    /// receiving half gives up a block when data of the next one arrives before its repairs. Only
    /// frames that are `ahead` overtake others.
    fn poll(&mut self) -> Option<BoxFrame>;

    /// When to call [`handle_timeout`](Self::handle_timeout); `None` for never.
    fn next_ns(&self) -> Option<u64>;

    /// Does what is due at `now_ns`.
    fn handle_timeout(&mut self, now_ns: u64);

    /// Bitmap of the priorities that the near side must not send now.
    fn stops(&self) -> u8 {
        0
    }

    /// Frames held back now.
    fn held(&self) -> usize;

    /// What the box has done since it started.
    fn counters(&self) -> Self::Counters;
}
