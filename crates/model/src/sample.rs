//! Samples completion times by simulating the protocol with random losses.

use std::collections::VecDeque;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::blocks::{Layout, Part};
use crate::loss::Loss;
use crate::scheme::{Code, Scheme};
use crate::setting::{Checked, Variant};
use crate::terms::{decoding, serial_injection};

/// Draws completion times of one setting.
#[derive(Debug)]
pub(crate) struct Sampler<'a> {
    setting: &'a Checked,
    channel: Channel,
}

impl<'a> Sampler<'a> {
    pub(crate) fn new(setting: &'a Checked, seed: u64) -> Self {
        Self {
            setting,
            channel: Channel::new(setting, seed),
        }
    }

    /// One completion time in seconds.
    pub(crate) fn draw_s(&mut self) -> f64 {
        self.draw() * self.setting.slot_s
    }

    /// One completion time in slots.
    fn draw(&mut self) -> f64 {
        let late = self.setting.late_end;
        let is_late = late.share > 0.0 && self.channel.uniform() < late.share;
        self.draw_on_time() + if is_late { late.slots } else { 0.0 }
    }

    fn draw_on_time(&mut self) -> f64 {
        self.channel.rest();
        let setting = self.setting;
        if let Some(layout) = Layout::of(setting) {
            return self.blocks(&layout) + setting.rtt;
        }
        match setting.scheme {
            Scheme::SrRto | Scheme::SrNack => self.selective_repeat(setting.chunks) + setting.rtt,
            Scheme::GoBackN => self.go_back_n() + setting.rtt,
            Scheme::Ec { code, k, m } => self.erasure(code, k, m) + setting.rtt,
        }
    }

    /// Slots until the last of `chunks` chunks is delivered.
    fn selective_repeat(&mut self, chunks: f64) -> f64 {
        if self.setting.variant == Variant::Paper && self.channel.is_iid() {
            return self.independent_chunks(chunks);
        }
        let period = self.setting.period;
        let (mut now, mut sent, mut last) = (0.0, 0.0, 0.0f64);
        let mut due: VecDeque<f64> = VecDeque::new();
        loop {
            let new_at = match self.setting.variant {
                Variant::Paper => sent + 1.0,
                Variant::Serial | Variant::Protocol => now + 1.0,
            };
            match due.front() {
                Some(&at) if sent >= chunks || at <= new_at => {
                    due.pop_front();
                    now = at;
                }
                _ if sent < chunks => {
                    sent += 1.0;
                    now = new_at;
                }
                _ => return last,
            }
            if self.channel.loses(now) {
                due.push_back(now + period);
            } else {
                last = last.max(now);
            }
        }
    }

    /// As in the paper, the losses of a chunk delay only this chunk. Visits only lost chunks.
    fn independent_chunks(&mut self, chunks: f64) -> f64 {
        let (mut at, mut last) = (0.0, chunks);
        while let Some(lost) = self.channel.next_loss(at + 1.0, chunks) {
            at = lost;
            let mut through = lost + self.setting.period;
            while self.channel.loses(through) {
                through += self.setting.period;
            }
            last = last.max(through);
        }
        last
    }

    /// Slots until all chunks are delivered in sequence.
    fn go_back_n(&mut self) -> f64 {
        let (mut now, mut left) = (0.0, self.setting.chunks);
        while let Some(lost) = self.channel.next_loss(now + 1.0, now + left) {
            left -= lost - now - 1.0;
            now = lost + self.setting.period - 1.0;
        }
        now + left
    }

    /// Slots until data and parity are sufficient, or the fallback is complete.
    fn erasure(&mut self, code: Code, k: u32, m: u32) -> f64 {
        let setting = self.setting;
        let (data, parity) = (f64::from(k), f64::from(m));
        let groups = (setting.chunks / data).ceil();
        let full = groups - 1.0;
        let (short, injection) = match setting.variant {
            Variant::Paper => (
                data,
                setting.chunks + (setting.chunks * parity / data).ceil(),
            ),
            Variant::Serial | Variant::Protocol => (
                setting.chunks - full * data,
                serial_injection(setting, groups, data, parity),
            ),
        };
        let sent = full * (data + parity) + short + parity;
        let mut group = GroupLosses::new(code, m);
        let (mut again, mut number, mut at) = (0.0, 0.0, 0.0);
        while let Some(lost) = self.channel.next_loss(at + 1.0, sent) {
            at = lost;
            let now = ((lost - 1.0) / (data + parity)).floor();
            if now > number {
                again += if group.failed() { data } else { 0.0 };
                group.clear();
                number = now;
            }
            let size = if now < full { data } else { short };
            group.lose(lost - 1.0 - now * (data + parity), size);
        }
        let size = if number < full { data } else { short };
        again += if group.failed() { size } else { 0.0 };
        if again > 0.0 {
            self.channel.rest();
            let late = (1.0 + setting.beta) * setting.rtt;
            return injection + late + self.selective_repeat(again);
        }
        let (clean, repaired) = decoding(setting, full, short, data, parity);
        let damaged = number >= full && group.lost_data;
        injection + if damaged { repaired } else { clean }
    }

    /// Slots until the last block is complete, for receivers that ask for what they miss.
    fn blocks(&mut self, layout: &Layout) -> f64 {
        let (mut number, mut last, mut is_damaged) = (0.0, 0.0f64, false);
        while number < layout.blocks {
            let block = layout.block(number);
            let mut failed = Vec::new();
            for part in block.parts {
                let mut group = 0.0;
                while group < part.groups {
                    let state = self.first_round(layout.code, part);
                    is_damaged = state.data.contains(&true);
                    if state.failed() {
                        failed.push(state);
                    }
                    group += 1.0;
                }
            }
            let mut round = 0.0;
            while !failed.is_empty() {
                round += 1.0;
                // The report may be lost.
                if self.channel.loses(0.0) {
                    continue;
                }
                failed.iter_mut().for_each(|group| self.repair(group));
                failed.retain(Repaired::failed);
            }
            last = last.max(block.end + layout.wait(round));
            if number + 1.0 == layout.blocks {
                last = last.max(block.end + layout.decode(is_damaged));
            }
            number += 1.0;
        }
        last
    }

    fn first_round(&mut self, code: Code, part: Part) -> Repaired {
        let mut lose = |count| (0..count).map(|_| self.channel.loses(0.0)).collect();
        Repaired {
            code,
            data: lose(part.data),
            parity: lose(part.parity),
        }
    }

    /// Sends the missing data chunks again.
    fn repair(&mut self, group: &mut Repaired) {
        for missing in group.data.iter_mut().filter(|missing| **missing) {
            *missing = self.channel.loses(0.0);
        }
    }
}

/// The chunks of a group that are missing.
#[derive(Debug)]
struct Repaired {
    code: Code,
    data: Vec<bool>,
    parity: Vec<bool>,
}

impl Repaired {
    fn failed(&self) -> bool {
        let count = |chunks: &[bool]| chunks.iter().filter(|missing| **missing).count();
        let parity = self.parity.len();
        match self.code {
            Code::Mds => count(&self.data) > parity - count(&self.parity),
            Code::Xor => (0..parity).any(|sub| {
                let data = self.data.iter().skip(sub).step_by(parity);
                let missing = data.filter(|missing| **missing).count();
                missing + usize::from(self.parity[sub]) > 1 && missing > 0
            }),
        }
    }
}

/// The losses of a group.
#[derive(Debug)]
struct GroupLosses {
    code: Code,
    parity: u32,
    lost: Vec<u32>,
    lost_data: bool,
}

impl GroupLosses {
    fn new(code: Code, parity: u32) -> Self {
        let counts = match code {
            Code::Mds => 1,
            Code::Xor => parity as usize,
        };
        Self {
            code,
            parity,
            lost: vec![0; counts],
            lost_data: false,
        }
    }

    fn clear(&mut self) {
        self.lost.fill(0);
        self.lost_data = false;
    }

    /// Records the loss of the chunk at `position`. The first `data` chunks are data, the others
    /// parity.
    fn lose(&mut self, position: f64, data: f64) {
        self.lost_data |= position < data;
        let of_kind = if position < data {
            position
        } else {
            position - data
        };
        let counter = match self.code {
            Code::Mds => 0,
            Code::Xor => crate::excess::index(of_kind) % self.lost.len(),
        };
        self.lost[counter] += 1;
    }

    fn failed(&self) -> bool {
        let most = match self.code {
            Code::Mds => self.parity,
            Code::Xor => 1,
        };
        self.lost.iter().any(|&lost| lost > most)
    }
}

/// The channel: draws which transmissions are lost.
#[derive(Debug)]
struct Channel {
    rng: ChaCha8Rng,
    loss: Loss,
    /// `ln(1 - loss_chunk)` for i.i.d. loss.
    log_kept: f64,
    /// The state of Markov loss, and the slot for which it holds.
    bad: bool,
    slot: f64,
}

impl Channel {
    fn new(setting: &Checked, seed: u64) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            loss: setting.loss,
            log_kept: (-setting.loss_chunk).ln_1p(),
            bad: false,
            slot: 0.0,
        }
    }

    fn is_iid(&self) -> bool {
        matches!(self.loss, Loss::Iid { .. })
    }

    /// A pause so long that the chain forgets its state. Slots restart at 0.
    fn rest(&mut self) {
        self.slot = f64::NEG_INFINITY;
    }

    /// Whether the chunk sent in this slot is lost. Slots must not decrease.
    fn loses(&mut self, slot: f64) -> bool {
        match self.loss {
            Loss::Iid { loss_chunk } => self.uniform() < loss_chunk,
            Loss::Markov {
                p_good_to_bad,
                p_bad_to_good,
                loss_good,
                loss_bad,
                packets_per_chunk,
            } => {
                let packets = f64::from(packets_per_chunk);
                let share = p_good_to_bad / (p_good_to_bad + p_bad_to_good);
                let memory = (1.0 - p_good_to_bad - p_bad_to_good).abs();
                let pause = (slot - self.slot).round().max(0.0);
                if pause > 0.0 {
                    // With negative correlation, the sign alternates: it is negative for an odd
                    // number of packets.
                    let odd = p_good_to_bad + p_bad_to_good > 1.0 && pause * packets % 2.0 == 1.0;
                    let left = memory.powf(pause * packets) * if odd { -1.0 } else { 1.0 };
                    let was = if self.bad { 1.0 } else { 0.0 };
                    let left = if pause.is_finite() { left } else { 0.0 };
                    self.bad = self.uniform() < share + (was - share) * left;
                }
                let mut lost = false;
                for _ in 0..packets_per_chunk {
                    let (loss, leave) = if self.bad {
                        (loss_bad, p_bad_to_good)
                    } else {
                        (loss_good, p_good_to_bad)
                    };
                    lost |= self.uniform() < loss;
                    self.bad ^= self.uniform() < leave;
                }
                self.slot = slot + 1.0;
                lost
            }
        }
    }

    /// The first loss in the slots `from..=to`, with one transmission in each.
    fn next_loss(&mut self, from: f64, to: f64) -> Option<f64> {
        if self.is_iid() {
            if self.log_kept == 0.0 {
                return None;
            }
            let kept = ((1.0 - self.uniform()).ln() / self.log_kept).floor();
            return Some(from + kept).filter(|&lost| lost <= to);
        }
        let mut slot = from;
        while slot <= to {
            if self.loses(slot) {
                return Some(slot);
            }
            slot += 1.0;
        }
        None
    }

    /// Uniform over `[0, 1)`, in steps of 2^-53.
    fn uniform(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1u64 << 53) as f64;
        #[expect(clippy::cast_precision_loss, reason = "53 bits are what an f64 holds")]
        let whole = (self.rng.next_u64() >> 11) as f64;
        whole * STEP
    }
}
