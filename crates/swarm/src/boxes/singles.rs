//! Messages of one packet on an unreliable connection, as SDR sends them (P2). No box may hold or
//! drop one of them.

use std::collections::{HashSet, VecDeque};

use farwrite_net::header::{Header, Roce};
use farwrite_net::{Ecn, Frame, NodeId, Payload};
use farwrite_wire::header::{Bth, Reth};
use farwrite_wire::opcode::{Class, UC_WRITE_ONLY_WITH_IMM, lookup};

use super::device::identity;
use farwrite_rng::SplitMix;

/// A queue pair that neither NIC has.
const QPN: u32 = 0x5D0;
const US: u64 = 1_000;

/// The messages of one packet that a NIC sends.
#[derive(Clone, Copy, Debug)]
pub struct SinglesPlan {
    /// How many.
    pub packets: u32,
    /// The time from one to the next.
    pub gap_ns: u64,
    /// The PSN of the first one.
    pub first_psn: u32,
}

impl SinglesPlan {
    pub(crate) fn draw(rng: &mut SplitMix) -> Option<Self> {
        let plan = Self {
            packets: rng.pick(&[3, 40, 300]),
            gap_ns: rng.pick(&[0, US, 20 * US, 300 * US]),
            first_psn: rng.pick(&[0, 0xFF_FFF0]),
        };
        rng.chance(0.5).then_some(plan)
    }

    /// The packets, with the times at which they are sent.
    pub(crate) fn packets(self, [src, dst]: [NodeId; 2], mtu_bytes: u32) -> Singles {
        let packet = |number: u32| {
            let bytes = number * 97 % mtu_bytes + 1;
            let content = (0..bytes).map(|at| at.wrapping_mul(7).wrapping_add(number));
            // Each byte is the lowest one of its number.
            let content: Vec<_> = content.map(|sum| sum.to_le_bytes()[0]).collect();
            let psn = (self.first_psn + number) & 0xFF_FFFF;
            let header = Roce {
                reth: Some(Reth {
                    remote_addr: u64::from(number) << 12,
                    rkey: 1,
                    dma_bytes: bytes,
                }),
                imm: Some(number),
                ..Roce::new(Bth::new(UC_WRITE_ONLY_WITH_IMM, QPN, psn))
            };
            let frame = Frame {
                priority: 3,
                ecn: Ecn::Capable0,
                header: Header::Roce(header),
                ..Frame::new(src, dst, 49_200, header.bth, Payload::Bytes(content.into()))
            };
            (u64::from(number) * self.gap_ns, frame)
        };
        Singles {
            waiting: (0..self.packets).map(packet).collect(),
            arrived: HashSet::new(),
        }
    }
}

/// Whether a frame is a message of one packet on an unreliable connection.
pub(crate) fn is_single(frame: &Frame) -> bool {
    match &frame.header {
        Header::Roce(header) => {
            lookup(header.bth.opcode).is_some_and(|opcode| opcode.class == Class::Uc)
        }
        Header::Other(_) => false,
    }
}

/// What a NIC sends and gets of these messages.
#[derive(Debug, Default)]
pub(crate) struct Singles {
    waiting: VecDeque<(u64, Frame)>,
    pub(crate) arrived: HashSet<Vec<u8>>,
}

impl Singles {
    /// Takes a frame that arrived, if it is such a message.
    pub(crate) fn take(&mut self, frame: &Frame) -> bool {
        let is_single = is_single(frame);
        if is_single {
            self.arrived.insert(identity(frame));
        }
        is_single
    }

    pub(crate) fn poll(&mut self, now_ns: u64) -> Option<Frame> {
        self.next_ns().filter(|at_ns| *at_ns <= now_ns)?;
        self.waiting.pop_front().map(|(_, frame)| frame)
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.waiting.front().map(|(at_ns, _)| *at_ns)
    }
}
