//! Samples completion times by simulating the protocol with random losses.

use std::collections::VecDeque;

use farwrite_codes::Kind;

use crate::blocks::{Layout, Part};
use crate::channel::Channel;
use crate::error::ModelError;
use crate::loss::Loss;
use crate::scheme::Scheme;
use crate::setting::{Checked, Setting, Variant};
use crate::shipped::Shipped;
use crate::terms::{decoding, serial_injection};

/// Draws completion times of one setting.
#[derive(Debug)]
pub(crate) struct Sampler {
    setting: Checked,
    channel: Channel,
    /// In place of the channel, for shipped receivers under losses in bursts.
    shipped: Option<Shipped>,
}

impl Setting {
    /// `n` completion times in seconds, from simulations of the protocol with losses drawn from
    /// `seed`. This also works where [`Self::completion_time`] has no exact evaluation: for bursts
    /// that last as long as a timeout, and for `sr-nack` and erasure coding under losses in bursts
    /// with [`Variant::Protocol`]. The latter interleaves groups as the shipped schemes do.
    ///
    /// # Errors
    ///
    /// An argument is out of range.
    pub fn sample(&self, n: usize, seed: u64) -> Result<Vec<f64>, ModelError> {
        let setting = Checked::new(self)?;
        let mut sampler = Sampler::new(&setting, seed)?;
        Ok((0..n).map(|_| sampler.draw_s()).collect())
    }
}

impl Sampler {
    pub(crate) fn new(setting: &Checked, seed: u64) -> Result<Self, ModelError> {
        Ok(Self {
            shipped: Shipped::of(setting, seed)?,
            ..Self::of_exact(setting, seed)
        })
    }

    /// For a setting that has an exact evaluation.
    pub(crate) fn of_exact(setting: &Checked, seed: u64) -> Self {
        Self {
            setting: setting.clone(),
            channel: match (setting.variant, setting.loss) {
                (Variant::Protocol, Loss::Iid { .. }) => {
                    Channel::keeping_packets(&setting.loss, seed)
                }
                _ => Channel::new(&setting.loss, seed),
            },
            shipped: None,
        }
    }

    /// Random numbers and losses so far, as a measure of time.
    pub(crate) fn work(&self) -> u64 {
        let shipped = self.shipped.as_ref().map_or(0, Shipped::work);
        self.channel.work() + shipped
    }

    /// The random numbers and losses of a draw, in the mean.
    pub(crate) fn expected_work(&self) -> f64 {
        match &self.shipped {
            Some(shipped) => shipped.expected_work(),
            None => self.setting.chunks * self.setting.attempts.repeats(),
        }
    }

    /// One completion time in seconds.
    pub(crate) fn draw_s(&mut self) -> f64 {
        self.draw() * self.setting.slot_s
    }

    /// One completion time in slots.
    fn draw(&mut self) -> f64 {
        if let Some(shipped) = &mut self.shipped {
            return shipped.draw();
        }
        let delays = self.setting.late.delays;
        let mut slots = 0.0;
        if delays.iter().any(|(share, _)| *share > 0.0) {
            let mut left = self.channel.uniform();
            for (share, delay) in delays {
                if (0.0..share).contains(&left) {
                    slots = delay;
                }
                left -= share;
            }
        }
        self.draw_on_time() + slots
    }

    fn draw_on_time(&mut self) -> f64 {
        self.channel.rest();
        let Checked {
            scheme,
            chunks,
            rtt,
            ..
        } = self.setting;
        if let Some(layout) = Layout::of(&self.setting) {
            return self.blocks(&layout) + rtt;
        }
        rtt + match scheme {
            Scheme::SrRto | Scheme::SrNack => self.selective_repeat(chunks),
            Scheme::GoBackN => self.go_back_n(),
            Scheme::Ec { code, k, m } => self.erasure(code, k, m),
        }
    }

    /// Slots until the last of `chunks` chunks is delivered.
    fn selective_repeat(&mut self, chunks: f64) -> f64 {
        let period = self.setting.period;
        match (self.setting.variant, self.setting.loss) {
            (Variant::Paper, Loss::Iid { .. }) => return self.independent_chunks(chunks),
            (Variant::Paper, Loss::Markov { .. }) => {}
            _ => return self.one_chunk_a_slot(chunks),
        }
        let (mut sent, mut last) = (0.0, 0.0f64);
        let mut due: VecDeque<f64> = VecDeque::new();
        loop {
            let new_at = sent + 1.0;
            let now = match due.front() {
                Some(&at) if sent >= chunks || at <= new_at => {
                    due.pop_front();
                    at
                }
                _ if sent < chunks => {
                    sent += 1.0;
                    new_at
                }
                _ => return last,
            };
            if self.channel.loses(now) {
                due.push_back(now + period);
            } else {
                last = last.max(now);
            }
        }
    }

    /// Slots until the last of `chunks` chunks is delivered, where a timeout that has ended comes
    /// before a new chunk.
    fn one_chunk_a_slot(&mut self, chunks: f64) -> f64 {
        let period = self.setting.period;
        let (mut now, mut left, mut last) = (0.0f64, chunks, 0.0f64);
        // With the packets that are missing.
        let mut due: VecDeque<(f64, f64)> = VecDeque::new();
        loop {
            let next = due.front().map(|(at, _)| *at);
            if left > 0.0 && next.is_none_or(|at| at > now + 1.0) {
                let count = next.map_or(left, |at| left.min(at - now - 1.0));
                let lost = self.channel.next_loss(now + 1.0, now + count);
                let sent = lost.map_or(count, |at| at - now);
                due.extend(lost.map(|at| (at + period, self.channel.missing())));
                left -= sent;
                now += sent;
                last = match (lost.is_some(), sent > 1.0) {
                    (false, _) => now,
                    (true, true) => now - 1.0,
                    (true, false) => last,
                };
            } else if let Some((at, missing)) = due.pop_front() {
                now = at;
                let missing = self.channel.repeat(now, missing);
                match missing > 0.0 {
                    true => due.push_back((now + period, missing)),
                    false => last = last.max(now),
                }
            } else {
                return last;
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
            left -= lost - now;
            now = lost + self.setting.period;
            let mut missing = self.channel.repeat(now, self.channel.missing());
            while missing > 0.0 {
                now += self.setting.period;
                missing = self.channel.repeat(now, missing);
            }
        }
        now + left
    }

    /// Slots until data and parity are sufficient, or the fallback is complete.
    fn erasure(&mut self, code: Kind, k: u32, m: u32) -> f64 {
        let setting = &self.setting;
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
            let late = (1.0 + self.setting.beta) * self.setting.rtt;
            return injection + late + self.selective_repeat(again);
        }
        let (clean, repaired) = decoding(&self.setting, full, short, data, parity);
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
                    is_damaged = state.data.iter().any(|missing| *missing > 0.0);
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
                if self.channel.loses_packet(0.0) {
                    continue;
                }
                failed.iter_mut().for_each(|group| self.repair(group));
                failed.retain(Repaired::failed);
            }
            let noticed = if round > 0.0 { block.unnoticed } else { 0.0 };
            last = last.max(block.end + noticed + layout.wait(round));
            if number + 1.0 == layout.blocks {
                last = last.max(block.end + layout.decode(is_damaged));
            }
            number += 1.0;
        }
        last
    }

    fn first_round(&mut self, code: Kind, part: Part) -> Repaired {
        let mut missing = || match self.channel.loses(0.0) {
            true => self.channel.missing(),
            false => 0.0,
        };
        Repaired {
            code,
            data: (0..part.data).map(|_| missing()).collect(),
            parity: (0..part.parity).map(|_| missing() > 0.0).collect(),
        }
    }

    /// Sends the missing data chunks again.
    fn repair(&mut self, group: &mut Repaired) {
        for missing in group.data.iter_mut().filter(|missing| **missing > 0.0) {
            *missing = self.channel.repeat(0.0, *missing);
        }
    }
}

/// The chunks of a group that are missing; of a data chunk, the number of packets.
#[derive(Debug)]
struct Repaired {
    code: Kind,
    data: Vec<f64>,
    parity: Vec<bool>,
}

impl Repaired {
    fn failed(&self) -> bool {
        let parity = self.parity.len();
        match self.code {
            Kind::Mds => {
                let data = self.data.iter().filter(|missing| **missing > 0.0).count();
                let lost = self.parity.iter().filter(|missing| **missing).count();
                data > parity - lost
            }
            Kind::Xor => (0..parity).any(|sub| {
                let data = self.data.iter().skip(sub).step_by(parity);
                let missing = data.filter(|missing| **missing > 0.0).count();
                missing + usize::from(self.parity[sub]) > 1 && missing > 0
            }),
        }
    }
}

#[derive(Debug)]
struct GroupLosses {
    code: Kind,
    parity: u32,
    lost: Vec<u32>,
    lost_data: bool,
}

impl GroupLosses {
    fn new(code: Kind, parity: u32) -> Self {
        let counts = match code {
            Kind::Mds => 1,
            Kind::Xor => parity as usize,
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
            Kind::Mds => 0,
            Kind::Xor => crate::excess::index(of_kind) % self.lost.len(),
        };
        self.lost[counter] += 1;
    }

    fn failed(&self) -> bool {
        let most = match self.code {
            Kind::Mds => self.parity,
            Kind::Xor => 1,
        };
        self.lost.iter().any(|&lost| lost > most)
    }
}
