//! The completion time of shipped receivers that ask for what they miss (`docs/model.md` section
//! 5.3).
//!
//! A message is a sequence of blocks. The losses of a block are reported together: a block is a
//! superblock of erasure coding, or the chunks whose holes go into one NACK of `sr-nack`. Each
//! report asks for all chunks that are still missing. A report can be lost like any packet. So a
//! block is complete after some number of *rounds*, independent of the other blocks, and the
//! message ends with the last block.

use crate::error::{ModelError, Unsupported};
use crate::excess::{float, index};
use crate::group;
use crate::scheme::{Code, Scheme};
use crate::setting::{Checked, Variant};

/// Reordering window in round trips (protocol P5.0.3).
const WINDOW_RTTS: f64 = 0.125;
/// How much longer than its first repair a receiver waits for each later one, in round trips
/// (P5.2.3).
const PATIENCE_RTTS: f64 = 0.125;
/// Holes whose ages differ by less are reported in one NACK, in round trips: an eighth of the
/// reordering window (P5.2.1).
const TOGETHER_RTTS: f64 = WINDOW_RTTS / 8.0;
/// Groups of a superblock (P5.4, depth).
const DEPTH: f64 = 32.0;
/// Probability mass that may be neglected.
const NEGLIGIBLE: f64 = 1e-18;
/// Highest loss. Above it, the number of rounds grows beyond what is useful.
const MAX_LOSS: f64 = 0.5;
/// The log of a probability of zero. Unlike infinity, differences of it are numbers.
const IMPOSSIBLE: f64 = -1e4;
/// More rounds than a block ever needs.
const MANY_ROUNDS: f64 = 1e6;
/// Limit of the number of blocks that may end the message.
const MAX_BLOCKS: usize = 1 << 18;

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
    pub(crate) parts: [Part; 2],
}

/// What both the exact evaluation and the sampler need to know of a message.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) code: Code,
    pub(crate) blocks: f64,
    groups: f64,
    /// Data and parity chunks of a full group.
    data: u32,
    parity: u32,
    /// Data and parity chunks of the last group.
    short: [u32; 2],
    /// Slots that the injection loses to repairs for each slot, after the first repair.
    stretch: f64,
    rtt: f64,
}

impl Layout {
    /// `None`: the setting has no rounds.
    pub(crate) fn of(setting: &Checked) -> Option<Self> {
        if setting.variant != Variant::Protocol {
            return None;
        }
        let (chunks, loss, rtt) = (setting.chunks, setting.loss_chunk, setting.rtt);
        match setting.scheme {
            Scheme::SrRto | Scheme::GoBackN => None,
            Scheme::SrNack => {
                let together = (rtt * TOGETHER_RTTS).floor().max(1.0);
                Some(Self {
                    code: Code::Mds,
                    blocks: (chunks / together).ceil(),
                    groups: chunks,
                    data: 1,
                    parity: 0,
                    short: [1, 0],
                    stretch: loss / (1.0 - loss),
                    rtt,
                })
            }
            Scheme::Ec { code, k, m } => {
                let groups = (chunks / f64::from(k)).ceil();
                let short = small(chunks - (groups - 1.0) * f64::from(k));
                let last = match code {
                    Code::Mds => m,
                    Code::Xor => m.min(short),
                };
                let repairs = group::lost_data_of_failures(code, k, m, loss) / (1.0 - loss);
                Some(Self {
                    code,
                    blocks: (groups / DEPTH).ceil(),
                    groups,
                    data: k,
                    parity: m,
                    short: [short, last],
                    stretch: repairs / f64::from(k + m),
                    rtt,
                })
            }
        }
    }

    pub(crate) fn block(&self, number: f64) -> Block {
        let first = (number * self.groups / self.blocks).floor();
        let next = ((number + 1.0) * self.groups / self.blocks).floor();
        let part = |groups, data, parity| Part {
            groups,
            data,
            parity,
        };
        let is_last = number + 1.0 >= self.blocks;
        let short = f64::from(u8::from(is_last));
        let [data, parity] = self.short;
        let full = next - short;
        let per_group = f64::from(self.data + self.parity);
        let sent = full * per_group + short * f64::from(data + parity);
        // Repairs take slots from the first report on.
        let repaired = (sent - self.wait(1.0)).max(0.0);
        Block {
            end: sent + self.stretch * repaired,
            parts: [
                part(full - first, self.data, self.parity),
                part(short, data, parity),
            ],
        }
    }

    /// Slots from the end of a block until the repairs of this round have left.
    pub(crate) fn wait(&self, round: f64) -> f64 {
        if round < 1.0 {
            return 0.0;
        }
        let first = 1.0 + WINDOW_RTTS;
        (first + (round - 1.0) * (first + PATIENCE_RTTS)) * self.rtt
    }

    /// The number of the last round that ends within `slots` after the end of a block.
    fn rounds_within(&self, slots: f64) -> usize {
        let waits = slots / self.rtt - 1.0 - WINDOW_RTTS;
        let rounds = waits / (1.0 + WINDOW_RTTS + PATIENCE_RTTS) + 1.0;
        let guess = index(rounds.min(MANY_ROUNDS));
        // Rounding may put the estimate off by one.
        let near = [guess + 1, guess, guess.saturating_sub(1)];
        let is_over = |round: &usize| self.wait(float(*round)) <= slots;
        near.into_iter().find(is_over).unwrap_or(0)
    }
}

/// The distribution of the completion time, in slots.
#[derive(Clone, Debug)]
pub(crate) struct Rounds {
    layout: Layout,
    /// The end of each block that may matter, and the index of its kind in `kinds`.
    blocks: Vec<(f64, usize)>,
    /// `kinds[i][r]`: the log of the probability that a block is complete after `r` rounds.
    kinds: Vec<Vec<f64>>,
    /// The time without a repair.
    pub(crate) least: f64,
}

impl Rounds {
    pub(crate) fn of(setting: &Checked) -> Result<Option<Self>, ModelError> {
        let Some(layout) = Layout::of(setting) else {
            return Ok(None);
        };
        if setting.loss.chain()?.is_some() {
            return Err(ModelError::Unsupported(Unsupported::ProtocolBursts));
        }
        let loss = setting.loss_chunk;
        if loss > MAX_LOSS {
            return Err(ModelError::Unsupported(Unsupported::ProtocolLoss(loss)));
        }
        let last_end = layout.block(layout.blocks - 1.0).end;
        let mut shapes: Vec<[Part; 2]> = Vec::new();
        let mut kinds: Vec<Vec<f64>> = Vec::new();
        let mut blocks = Vec::new();
        let mut number = layout.blocks;
        while number > 0.0 {
            number -= 1.0;
            let block = layout.block(number);
            let kind = shapes.iter().position(|shape| *shape == block.parts);
            let kind = kind.unwrap_or_else(|| {
                shapes.push(block.parts);
                kinds.push(logs(&layout, &block.parts, loss));
                kinds.len() - 1
            });
            // All rounds of this block, and of all before it, are over when the last block ends.
            let rounds = float(kinds[kind].len());
            if block.end + layout.wait(rounds) <= last_end && number + 2.0 < layout.blocks {
                break;
            }
            if blocks.len() == MAX_BLOCKS {
                let blocks = ModelError::Unsupported(Unsupported::ProtocolBlocks(layout.blocks));
                return Err(blocks);
            }
            blocks.push((block.end, kind));
        }
        Ok(Some(Self {
            least: last_end + setting.rtt,
            layout,
            blocks,
            kinds,
        }))
    }

    /// Probability that the message takes more than `slots`.
    pub(crate) fn survival(&self, slots: f64) -> f64 {
        if slots < self.least {
            return 1.0;
        }
        let log = |&(end, kind): &(f64, usize)| {
            let rounds = self.layout.rounds_within(slots - self.layout.rtt - end);
            self.kinds[kind].get(rounds).copied().unwrap_or(0.0)
        };
        let log: f64 = self.blocks.iter().map(log).sum();
        -log.exp_m1()
    }

    /// The mean beyond `least`: the integral of the survival function, which is constant between
    /// the ends of rounds.
    pub(crate) fn mean_excess(&self) -> f64 {
        let mut steps = Vec::new();
        for &(end, kind) in &self.blocks {
            let logs = &self.kinds[kind];
            for (round, &before) in (1..).zip(logs) {
                let after = logs.get(round).copied().unwrap_or(0.0);
                let at = end + self.layout.rtt + self.layout.wait(float(round));
                if at > self.least {
                    steps.push((at, after - before));
                }
            }
        }
        steps.sort_unstable_by(|x, y| y.0.total_cmp(&x.0));
        // From the last step backwards, small probabilities keep their precision.
        let (mut log, mut sum) = (0.0f64, 0.0);
        for (place, &(at, step)) in steps.iter().enumerate() {
            log -= step;
            let from = steps.get(place + 1).map_or(self.least, |next| next.0);
            sum -= (at - from) * log.exp_m1();
        }
        sum
    }
}

/// The log of the probability that a block is complete after each number of rounds, up to
/// negligible values.
///
/// If `arrived` of the reports arrived, each data chunk has been sent `1 + arrived` times, and is
/// missing with probability `p^(1 + arrived)`. More repairs never make a group incomplete, so a
/// group that needed no repair may be counted as if it had been repaired too.
fn logs(layout: &Layout, parts: &[Part; 2], loss: f64) -> Vec<f64> {
    let mut logs = Vec::new();
    let mut incomplete = Vec::new();
    loop {
        let missing = loss.powi(i32::try_from(logs.len() + 1).unwrap_or(i32::MAX));
        let ok_log = |part: &Part| {
            let fail =
                group::failure_of_repaired(layout.code, part.data, part.parity, missing, loss);
            part.groups * (-fail).ln_1p()
        };
        let ok_log: f64 = parts
            .iter()
            .filter(|part| part.groups > 0.0)
            .map(ok_log)
            .sum();
        incomplete.push(-ok_log.exp_m1());
        let fail = after_reports(&incomplete, loss);
        if fail * layout.blocks <= NEGLIGIBLE * loss {
            return logs;
        }
        logs.push((-fail).ln_1p().max(IMPOSSIBLE));
    }
}

/// The mean of `incomplete[arrived]`, where `arrived` of the reports of all rounds arrive.
fn after_reports(incomplete: &[f64], loss: f64) -> f64 {
    let rounds = incomplete.len() - 1;
    let mut weight = (1.0 - loss).powi(i32::try_from(rounds).unwrap_or(i32::MAX));
    let mut fail = 0.0;
    for lost in 0..=rounds {
        fail += weight * incomplete[rounds - lost];
        weight *= float(rounds - lost) / float(lost + 1) * loss / (1.0 - loss);
    }
    fail
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "1 to 4096"
)]
fn small(count: f64) -> u32 {
    count as u32
}
