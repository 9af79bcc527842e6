//! The completion time of shipped receivers that ask for what they miss (`docs/model.md` section
//! 5.3).
//!
//! A message is a sequence of blocks. The losses of a block are reported together: a block is a
//! sequence of superblocks of erasure coding, or the chunks whose holes go into one NACK. Each
//! report asks for all chunks that are still missing. A report can be lost like any packet. So a
//! block is complete after some number of *rounds*, independent of the other blocks, and the
//! message ends with the last block.

use crate::attempts::Attempts;
use crate::blocks::{Block, Layout, Part};
use crate::error::{ModelError, Unsupported};
use crate::excess::float;
use crate::group;
use crate::setting::{Checked, MAX_PROTOCOL_LOSS};

/// Probability mass that may be neglected.
const NEGLIGIBLE: f64 = 1e-18;
/// The log of a probability of zero. Unlike infinity, differences of it are numbers.
const IMPOSSIBLE: f64 = -1e4;
/// Limit of the number of blocks that are evaluated one by one. If more may end the message,
/// neighbours are merged.
const MAX_BLOCKS: f64 = 1024.0;

/// Blocks of the same shape.
#[derive(Clone, Debug)]
struct Row {
    /// Index in [`Rounds::kinds`].
    kind: usize,
    /// Number of blocks that are merged into one.
    count: f64,
    /// When the blocks end, or their losses are noticed if that is later; in descending order.
    ends: Vec<f64>,
}

impl Row {
    /// Number of ends after a slot.
    fn after(&self, slots: f64) -> usize {
        self.ends.partition_point(|end| *end > slots)
    }
}

/// The distribution of the completion time, in slots.
#[derive(Clone, Debug)]
pub(crate) struct Rounds {
    layout: Layout,
    /// The blocks that may matter. The first row is the last block alone.
    rows: Vec<Row>,
    shapes: Vec<[Part; 2]>,
    /// `kinds[i][r]`: the log of the probability that a block of shape `i` is complete after `r`
    /// rounds.
    kinds: Vec<Vec<f64>>,
    /// The log of the probability that the last group has all its data without a repair.
    clean_log: f64,
    /// As `kinds`, for the last block without its last group: that group has all its data.
    others: Vec<f64>,
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
        let loss = setting.loss_packet;
        if loss > MAX_PROTOCOL_LOSS {
            return Err(ModelError::Unsupported(Unsupported::ProtocolLoss(loss)));
        }
        Ok(Some(Self::at_loss(layout, setting.attempts, MAX_BLOCKS)))
    }

    fn at_loss(layout: Layout, attempts: Attempts, max_blocks: f64) -> Self {
        let last = layout.block(layout.blocks - 1.0);
        let last_end = last.end;
        let mut others = last.parts;
        others[1].groups = 0.0;
        let mut rounds = Self {
            rows: Vec::new(),
            shapes: Vec::new(),
            kinds: Vec::new(),
            clean_log: f64::from(layout.short[0]) * (-attempts.missing(1)).ln_1p(),
            others: logs(&layout, &others, attempts),
            least: last_end + layout.rtt,
            layout,
        };
        // The last blocks may have other groups.
        let mut number = rounds.layout.blocks;
        while number > 0.0 && number + 2.0 > rounds.layout.blocks {
            number -= 1.0;
            let block = rounds.layout.block(number);
            rounds.push(block, 1.0, attempts);
        }
        let first = rounds.first_open(number, last_end, attempts);
        let merged = ((number - first) / max_blocks).ceil();
        while number > first {
            let count = merged.min(number);
            let mut block = rounds.layout.block(number - (count / 2.0).ceil());
            if count > 1.0 {
                block.parts = rounds.layout.average();
            }
            rounds.push(block, count, attempts);
            number -= count;
        }
        rounds
    }

    /// The first of `number` blocks that may end the message. All rounds of those before it are over
    /// when the last block ends.
    fn first_open(&mut self, number: f64, last_end: f64, attempts: Attempts) -> f64 {
        let kind = self.kind(self.layout.average(), attempts);
        let all_rounds = self.layout.wait(float(self.kinds[kind].len()));
        let is_open = |number: f64| self.layout.block(number).end + all_rounds > last_end;
        let (mut over, mut open) = (-1.0, number);
        while open - over > 1.0 {
            let middle = ((over + open) / 2.0).floor();
            match is_open(middle) {
                true => open = middle,
                false => over = middle,
            }
        }
        open
    }

    fn push(&mut self, block: Block, count: f64, attempts: Attempts) {
        let kind = self.kind(block.parts, attempts);
        let end = block.end + block.unnoticed;
        let is_like = |row: &Row| row.kind == kind && row.count == count;
        match self.rows.iter_mut().find(|row| is_like(row)) {
            Some(row) => row.ends.push(end),
            None => self.rows.push(Row {
                kind,
                count,
                ends: vec![end],
            }),
        }
    }

    fn kind(&mut self, shape: [Part; 2], attempts: Attempts) -> usize {
        let known = self.shapes.iter().position(|known| *known == shape);
        known.unwrap_or_else(|| {
            self.shapes.push(shape);
            self.kinds.push(logs(&self.layout, &shape, attempts));
            self.kinds.len() - 1
        })
    }

    /// Probability that the message takes more than `slots`.
    pub(crate) fn survival(&self, slots: f64) -> f64 {
        if slots < self.least {
            return 1.0;
        }
        let left = slots - self.layout.rtt;
        let mut log = 0.0;
        for (place, row) in self.rows.iter().enumerate() {
            // Blocks whose first rounds are over, and not the next one.
            let mut fewer = 0;
            for (round, complete) in (0..).zip(self.logs_at(place, slots)) {
                let open = row.after(left - self.layout.wait(float(round + 1)));
                log += row.count * float(open - fewer) * complete;
                fewer = open;
            }
        }
        let decoding = self.decoding().into_iter();
        let decoding: f64 = decoding
            .filter(|(at, _)| slots < *at)
            .map(|(_, step)| step)
            .sum();
        -(log - decoding).exp_m1()
    }

    /// When decoding ends if the last group was damaged.
    fn damaged_at(&self) -> f64 {
        self.least + self.layout.decode(true)
    }

    /// The logs of a row at a time. Until a damaged last group is decoded, a message is complete only
    /// if this group was not damaged. Then the other groups of the last block count.
    fn logs_at(&self, place: usize, slots: f64) -> &[f64] {
        match place == 0 && slots < self.damaged_at() {
            true => &self.others,
            false => &self.kinds[self.rows[place].kind],
        }
    }

    /// The times at which decoding may end, and what each adds to the log of the probability that
    /// the message is complete.
    fn decoding(&self) -> [(f64, f64); 2] {
        let clean_at = self.least + self.layout.decode(false);
        [
            (clean_at, self.clean_log - IMPOSSIBLE),
            (self.damaged_at(), -self.clean_log),
        ]
    }

    /// The times beyond `least` at which the blocks of a row may be complete, and what each adds to
    /// the log of the probability that they are.
    fn steps(&self, place: usize, row: &Row) -> Vec<(f64, f64)> {
        let mut steps = Vec::new();
        let all = &self.kinds[row.kind];
        let rounds = all.len().max(self.logs_at(place, self.least).len());
        for round in 1..=rounds {
            let wait = self.layout.rtt + self.layout.wait(float(round));
            let late = row.ends.iter().map(|end| end + wait);
            for at in late.take_while(|at| *at > self.least) {
                let logs = self.logs_at(place, at);
                let step = after_rounds(logs, round) - after_rounds(logs, round - 1);
                steps.push((at, row.count * step));
            }
        }
        let damaged_at = self.damaged_at();
        if place == 0 && damaged_at > self.least {
            let over_at = |round: &usize| {
                let wait = self.layout.rtt + self.layout.wait(float(*round));
                row.ends[0] + wait
            };
            let is_over = |round: &usize| over_at(round) < damaged_at;
            let round = (1..=rounds).take_while(is_over).count();
            let step = after_rounds(all, round) - after_rounds(&self.others, round);
            steps.push((damaged_at, step));
        }
        steps
    }

    /// The mean beyond `least`: the integral of the survival function, which is constant between
    /// the ends of rounds.
    pub(crate) fn mean_excess(&self) -> f64 {
        let decoding = self.decoding().into_iter();
        let mut steps: Vec<_> = decoding.filter(|(at, _)| *at > self.least).collect();
        for (place, row) in self.rows.iter().enumerate() {
            steps.extend(self.steps(place, row));
        }
        // A stable sort makes use of the order within each round.
        steps.sort_by(|x, y| y.0.total_cmp(&x.0));
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

/// The value of a list of logs after a number of rounds. Beyond the list, it is negligible.
fn after_rounds(logs: &[f64], round: usize) -> f64 {
    logs.get(round).copied().unwrap_or(0.0)
}

/// The log of the probability that a block is complete after each number of rounds, up to
/// negligible values.
///
/// If `arrived` of the reports arrived, each data chunk has been sent `1 + arrived` times. More
/// repairs never make a group incomplete, so a group that needed no repair may be counted as if it
/// had been repaired too.
fn logs(layout: &Layout, parts: &[Part; 2], attempts: Attempts) -> Vec<f64> {
    let loss = attempts.missing(1);
    let mut logs = Vec::new();
    let mut incomplete = Vec::new();
    loop {
        let missing = attempts.missing(logs.len() + 1);
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
        let fail = after_reports(&incomplete, layout.loss_report);
        if fail * layout.blocks <= NEGLIGIBLE * loss {
            return logs;
        }
        logs.push((-fail).ln_1p().max(IMPOSSIBLE));
    }
}

/// The mean of `incomplete[arrived]`, where `arrived` of the reports of all rounds arrive. `loss` is that of a report.
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

#[cfg(test)]
mod tests {
    use crate::setting::{Setting, Variant};

    use super::*;

    #[test]
    fn merging_blocks_changes_little() {
        for scheme in ["ec-xor:32,8", "ec-mds:4,1", "sr-nack"] {
            for loss in [1e-3, 1e-2, 0.2] {
                let scheme = scheme.parse().unwrap();
                let mut setting = Setting::new(scheme, 8e9, 400e9, 25e-3, loss);
                setting.variant = Variant::Protocol;
                let checked = Checked::new(&setting).unwrap();
                let rounds = |max_blocks| {
                    let layout = Layout::of(&checked).unwrap();
                    Rounds::at_loss(layout, checked.attempts, max_blocks)
                };
                let (exact, merged) = (rounds(f64::MAX), rounds(200.0));
                let blocks = |rounds: &Rounds| -> usize {
                    rounds.rows.iter().map(|row| row.ends.len()).sum()
                };
                assert!(blocks(&merged) < blocks(&exact));
                let mean = |rounds: &Rounds| rounds.least + rounds.mean_excess();
                let change = mean(&merged) / mean(&exact) - 1.0;
                assert!(change.abs() < 1e-3, "{scheme} {loss}: {change}");
            }
        }
    }
}
