//! The blocks of a message whose losses shipped receivers report together (`docs/model.md` section
//! 5.3): when they end, and how long each round of repair takes.

use farwrite_codes::Kind;

use crate::group;
use crate::scheme::Scheme;
use crate::setting::{Checked, QUIET_RTTS, Variant};
use crate::terms;

/// Reordering window in round trips (protocol P5.0.3).
const WINDOW_RTTS: f64 = 0.125;
/// How much longer than its first repair a receiver waits for each later one, in round trips
/// (P5.2.3).
const PATIENCE_RTTS: f64 = 0.125;
/// Holes whose ages differ by less are reported in one NACK, in round trips: an eighth of the
/// reordering window (P5.2.1). Erasure coding reports the superblocks that end within this time
/// together.
pub(crate) const TOGETHER_RTTS: f64 = WINDOW_RTTS / 8.0;
/// Round trips from the end of a block to its first repair, and from each repair to the next.
pub(crate) const FIRST_RTTS: f64 = 1.0 + WINDOW_RTTS;
pub(crate) const LATER_RTTS: f64 = FIRST_RTTS + PATIENCE_RTTS;
/// Groups of a superblock (P5.4, depth).
const DEPTH: f64 = 32.0;

/// Groups of one size: how many a block has, and how many chunks each has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) groups: f64,
    pub(crate) data: u32,
    pub(crate) parity: u32,
}

/// A block: when its last chunk has left, in slots, and its groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) end: f64,
    /// How much later than in other blocks its losses are noticed, in slots.
    pub(crate) unnoticed: f64,
    pub(crate) parts: [Part; 2],
}

/// What both the exact evaluation and the sampler need to know of a message.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) code: Kind,
    pub(crate) blocks: f64,
    groups: f64,
    /// Whether the last group is a block of its own: 1 if it is, else 0.
    apart: f64,
    /// How much later the losses of the last block are noticed, in slots.
    unnoticed: f64,
    /// Probability that a report is lost.
    pub(crate) loss_report: f64,
    /// Data and parity chunks of a full group.
    data: u32,
    parity: u32,
    /// Data and parity chunks of the last group.
    pub(crate) short: [u32; 2],
    /// Slots that the injection loses to repairs for each slot, after the first repair.
    stretch: f64,
    pub(crate) rtt: f64,
    /// Slots to encode a chunk.
    encode: f64,
    decode: Decode,
}

/// Slots of decoding after the last arrival, if the last group lost no data, and if it did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Decode {
    pub(crate) clean: f64,
    pub(crate) repaired: f64,
}

impl Layout {
    /// `None`: the setting has no rounds.
    pub(crate) fn of(setting: &Checked) -> Option<Self> {
        if setting.variant != Variant::Protocol {
            return None;
        }
        let (chunks, rtt) = (setting.chunks, setting.rtt);
        let together = rtt * TOGETHER_RTTS;
        match setting.scheme {
            Scheme::SrRto | Scheme::GoBackN => None,
            Scheme::SrNack => {
                let together = together.floor().max(1.0);
                Some(Self {
                    code: Kind::Mds,
                    // No packet follows the last chunk.
                    blocks: ((chunks - 1.0) / together).ceil() + 1.0,
                    groups: chunks,
                    apart: 1.0,
                    unnoticed: QUIET_RTTS * rtt,
                    loss_report: setting.loss_packet,
                    data: 1,
                    parity: 0,
                    short: [1, 0],
                    stretch: setting.attempts.repeats(),
                    rtt,
                    encode: 0.0,
                    decode: Decode::default(),
                })
            }
            Scheme::Ec { code, k, m } => {
                let groups = (chunks / f64::from(k)).ceil();
                let short = small(chunks - (groups - 1.0) * f64::from(k));
                let last = match code {
                    Kind::Mds => m,
                    Kind::Xor => m.min(short),
                };
                let (data, parity) = (f64::from(k), f64::from(m));
                let superblocks = (together / (DEPTH * (data + parity))).round().max(1.0);
                let (clean, repaired) =
                    terms::decoding(setting, groups - 1.0, f64::from(short), data, parity);
                let lost = group::lost_data_of_failures(code, k, m, setting.loss_chunk);
                let repairs = lost * setting.attempts.repeats_of_lost();
                Some(Self {
                    code,
                    blocks: (groups / (DEPTH * superblocks)).ceil(),
                    groups,
                    apart: 0.0,
                    unnoticed: 0.0,
                    loss_report: setting.loss_packet,
                    data: k,
                    parity: m,
                    short: [short, last],
                    stretch: repairs / (data + parity),
                    rtt,
                    encode: setting.encode,
                    decode: Decode { clean, repaired },
                })
            }
        }
    }

    pub(crate) fn block(&self, number: f64) -> Block {
        let (first, next) = (self.before(number), self.before(number + 1.0));
        let part = |groups, data, parity| Part {
            groups,
            data,
            parity,
        };
        let is_last = number + 1.0 >= self.blocks;
        let short = f64::from(u8::from(is_last));
        let full = next - short;
        let [data, parity] = self.short.map(|count| short * f64::from(count));
        let data = full * f64::from(self.data) + data;
        let parity = full * f64::from(self.parity) + parity;
        // Repairs take slots from the first report on.
        let sent = data + parity;
        let repaired = (sent - self.wait(1.0)).max(0.0);
        let encoded = self.encoded(data, parity, is_last);
        let [short_data, short_parity] = self.short;
        Block {
            end: (sent + self.stretch * repaired).max(encoded),
            unnoticed: if is_last { self.unnoticed } else { 0.0 },
            parts: [
                part(full - first, self.data, self.parity),
                part(short, short_data, short_parity),
            ],
        }
    }

    /// The groups of the blocks before a block.
    fn before(&self, number: f64) -> f64 {
        if number >= self.blocks {
            return self.groups;
        }
        let (groups, blocks) = (self.groups - self.apart, self.blocks - self.apart);
        (number * groups / blocks.max(1.0)).floor()
    }

    /// The groups of a block between the first and the last, on average.
    pub(crate) fn average(&self) -> [Part; 2] {
        let part = |groups| Part {
            groups,
            data: self.data,
            parity: self.parity,
        };
        let (groups, blocks) = (self.groups - self.apart, self.blocks - self.apart);
        [part(groups / blocks.max(1.0)), part(0.0)]
    }

    /// The slot until which encoding delays the end of a block, after this number of data and parity
    /// chunks of the message. Other chunks leave while the parity of a group is not ready, unless
    /// there are none.
    fn encoded(&self, data: f64, parity: f64, is_last: bool) -> f64 {
        let last = self.encode * data + f64::from(self.parity);
        let first = self.encode * data.min(f64::from(self.data)) + parity;
        match (self.parity, is_last) {
            (0, _) => 0.0,
            (_, true) => last.max(first),
            (_, false) => last,
        }
    }

    /// The delay by decoding, for a message whose last group has lost data or not.
    pub(crate) fn decode(&self, is_damaged: bool) -> f64 {
        match is_damaged {
            true => self.decode.repaired,
            false => self.decode.clean,
        }
    }

    /// Slots from the end of a block until the repairs of this round have left.
    pub(crate) fn wait(&self, round: f64) -> f64 {
        if round < 1.0 {
            return 0.0;
        }
        (FIRST_RTTS + (round - 1.0) * LATER_RTTS) * self.rtt
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "1 to 4096"
)]
fn small(count: f64) -> u32 {
    count as u32
}
