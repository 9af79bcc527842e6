//! Erasure coding: parity chunks repair losses without a round trip, and selective repeat repairs
//! the others (paper sections 4.1.2 and 4.2.3; P5.4).

mod block;
mod coded_recv;
mod coded_send;
mod fallback;
mod receiver;
mod repairs;
mod response_timer;
mod rows;
mod sender;
mod shape;

use core::num::NonZeroU8;

use alloc::boxed::Box;
use farwrite_codes::{Code, Kind};
use farwrite_wire::control::SchemeTag;

use crate::best_effort::{RepairReceiver, RepairSender};
use crate::order::WireOrder;
use crate::scheme::{Layout, Message, Receiver, Scheme, Sender};
use crate::timing::Alpha;

/// Erasure coding with either code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErasureCoding {
    /// The code, and the number of data and parity chunks in a group.
    pub code: Code,
    /// Most groups that are interleaved on the wire. A burst hits the groups of a superblock in
    /// turn, so few chunks of each (P5.4.3).
    pub depth: NonZeroU8,
    /// The time that timeouts add to the round trip. The fallback timeout adds half of it.
    pub alpha: Alpha,
}

impl ErasureCoding {
    /// Id in the [`SchemeTag`] of erasure coding by XOR (P5.4).
    pub const XOR_ID: u8 = 4;
    /// Id in the [`SchemeTag`] of erasure coding by a maximum distance separable code (P5.4).
    pub const MDS_ID: u8 = 5;
    /// 1, which gives a fallback timeout of half a round trip beyond the injection (paper section
    /// 4.2.3 with beta = 0.5).
    pub const ALPHA: Alpha = Alpha::from_256ths(256);
    /// Default number of interleaved groups. A higher number tolerates longer bursts
    /// (`tests/schemes/depths.txt`). But all groups of a superblock become decodable within the
    /// time that its parity takes on the wire, so the receiver must then rebuild faster, by the
    /// ratio of data to parity.
    pub const DEPTH: NonZeroU8 = NonZeroU8::new(32).unwrap();

    /// Creates it with the default interleaving.
    pub const fn new(code: Code, alpha: Alpha) -> Self {
        Self {
            code,
            depth: Self::DEPTH,
            alpha,
        }
    }

    pub(crate) fn repair_sender(&self) -> Box<dyn RepairSender + Send> {
        Box::new(sender::ErasureSender::new(*self))
    }

    pub(crate) fn repair_receiver(&self) -> Box<dyn RepairReceiver + Send> {
        Box::new(receiver::ErasureReceiver::new(*self))
    }

    /// The scheme that a tag selects. `None` if the tag is not one of these, if its parameters are
    /// not a valid code, or if they contain more than this version knows.
    pub fn from_tag(tag: SchemeTag) -> Option<Self> {
        let kind = match tag.id {
            Self::XOR_ID => Kind::Xor,
            Self::MDS_ID => Kind::Mds,
            _ => return None,
        };
        let [k, m, alpha_high, alpha_low, depth, 0] = tag.params else {
            return None;
        };
        Some(Self {
            code: Code::new(kind, k.into(), m.into()).ok()?,
            depth: NonZeroU8::new(depth)?,
            alpha: Alpha::from_256ths(u16::from_be_bytes([alpha_high, alpha_low])),
        })
    }
}

impl Scheme for ErasureCoding {
    fn tag(&self) -> SchemeTag {
        let id = match self.code.kind() {
            Kind::Xor => Self::XOR_ID,
            Kind::Mds => Self::MDS_ID,
        };
        let [alpha_high, alpha_low] = self.alpha.as_256ths().to_be_bytes();
        let [k, m] = [self.code.k(), self.code.m()].map(|n| u8::try_from(n).unwrap_or(u8::MAX));
        let depth = self.depth.get();
        SchemeTag {
            id,
            params: [k, m, alpha_high, alpha_low, depth, 0],
        }
    }

    fn sender(&self) -> Box<dyn Sender + Send> {
        Box::new(sender::ErasureSender::new(*self))
    }

    fn receiver(&self) -> Box<dyn Receiver + Send> {
        Box::new(receiver::ErasureReceiver::new(*self))
    }

    /// Also `None` if the number of data and parity chunks together does not fit in 32 bits.
    fn layout(&self, message: &Message) -> Option<Layout> {
        let bytes = usize::try_from(message.bytes).ok()?;
        let chunk_bytes = usize::try_from(message.chunk_bytes).ok()?;
        let layout = Layout::new(self.code, bytes, chunk_bytes).ok()?;
        let data_chunks = u32::try_from(layout.data_chunks()).ok()?;
        let parity_chunks = u32::try_from(layout.parity_chunks()).ok()?;
        let countable = message.chunks.checked_add(parity_chunks).is_some();
        (countable && data_chunks <= message.chunks).then_some(layout)
    }

    fn order(&self, message: &Message) -> Box<dyn WireOrder + Send> {
        Box::new(shape::Shape::new(self, message))
    }
}
