//! Simulates shipped receivers that ask for what they miss, where losses come in bursts
//! (`docs/model.md` section 6.4).
//!
//! Chunks are sent in the order of the shipped scheme, which interleaves the groups of a code. One
//! chain of losses runs through the whole time: the chunks, the repairs, and the pauses between
//! them. A second chain loses reports.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use farwrite_schemes::order::WireOrder;
use farwrite_schemes::registry::SchemeName;
use farwrite_schemes::scheme::{CriticalChunks, Message};

use farwrite_codes::Kind;

use crate::blocks::{FIRST_RTTS, LATER_RTTS, TOGETHER_RTTS};
use crate::channel::Channel;
use crate::error::{ModelError, Unsupported};
use crate::excess::index;
use crate::loss::Loss;
use crate::scheme::Scheme;
use crate::setting::{Checked, QUIET_RTTS, REPEAT_RTTS, Variant};
use crate::terms::{decoding, serial_injection};

/// Mean number of lost chunks that one draw simulates at most. Of longer messages, it simulates the
/// end.
const MOST_LOST: f64 = (1u64 << 17) as f64;
/// As `MOST_LOST`, for packets.
const MOST_LOST_PACKETS: f64 = (1u64 << 20) as f64;
/// Most chunks of a message that one draw simulates. Their positions must fit in 32 bits.
const MOST_CHUNKS: f64 = (1u64 << 31) as f64;
/// How much longer a receiver of erasure coding waits for parity that does not come, in round trips:
/// the fallback timeout has half a round trip beyond a reordering window (P5.4.10).
const NO_PARITY_RTTS: f64 = 0.5;
/// Longest wait of a receiver whose reports bring nothing, in seconds (`max_probe`, P5.8).
const MAX_PROBE_S: f64 = 1.0;

/// The chunks of a message in the order of their first transmission.
struct Order(Box<dyn WireOrder + Send>);

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Order of {} chunks", self.0.len())
    }
}

/// The simulated message, in slots.
#[derive(Debug)]
pub(crate) struct Shipped {
    order: Order,
    code: Kind,
    /// Data and parity chunks of a group. A scheme without parity has groups of one chunk.
    data: u32,
    parity: u32,
    /// The last group, which may be short, and its parity chunks.
    last: u32,
    last_parity: usize,
    rtt: f64,
    loss: f64,
    /// How much later than others the losses at the end of the message are noticed.
    unnoticed: f64,
    /// Longest wait for the next repair.
    max_wait: f64,
    /// Whether each round that brings nothing doubles the wait for the next.
    doubles: bool,
    /// Chunks of the message that leave before the simulated part.
    skipped: f64,
    /// Slots from the begin of the simulated part until encoding lets its last chunk leave.
    encoded: f64,
    /// Slots of decoding, if the last group lost no data, and if it did.
    decode: [f64; 2],
    forward: Channel,
    reverse: Channel,
    /// Chunks and repairs of all draws.
    sent: f64,
    repairs: f64,
}

/// The missing chunks of a group, by their index in the group.
#[derive(Debug, Default)]
struct Missing {
    group: u32,
    /// With the number of missing packets.
    data: Vec<(u32, f64)>,
    parity: Vec<u32>,
}

/// Groups that the receiver reports together.
#[derive(Debug, Default)]
struct Batch {
    groups: Vec<Missing>,
    /// Reports since something arrived.
    fruitless: i32,
}

/// The state of one draw.
#[derive(Debug, Default)]
struct Draw {
    /// Slots that are over, and when the last repaired group was complete.
    now: f64,
    complete: f64,
    /// Groups with losses, and the positions at whose arrival the receiver judges them.
    open: BTreeMap<u32, Missing>,
    judged: BTreeSet<(u32, u32)>,
    /// By the slot in which the repairs leave, as ordered bits of a positive number.
    due: BTreeMap<u64, Batch>,
    is_damaged: bool,
}

impl Shipped {
    /// `None`: this setting has an exact evaluation, or another simulation.
    pub(crate) fn of(setting: &Checked, seed: u64) -> Result<Option<Self>, ModelError> {
        let (
            Variant::Protocol,
            Loss::Markov {
                p_good_to_bad,
                p_bad_to_good,
                loss_good,
                loss_bad,
                packets_per_chunk,
            },
        ) = (setting.variant, setting.loss)
        else {
            return Ok(None);
        };
        let (code, data, parity) = match setting.scheme {
            Scheme::SrNack => (Kind::Mds, 1, 0),
            Scheme::Ec { code, k, m } => (code, k, m),
            Scheme::SrRto | Scheme::GoBackN => return Ok(None),
        };
        let (k, m) = (f64::from(data), f64::from(parity));
        let lost_packets = f64::from(packets_per_chunk) * setting.loss_packet;
        let most = (MOST_LOST / setting.loss_chunk).min(MOST_LOST_PACKETS / lost_packets);
        let most = most.min(MOST_CHUNKS / (1.0 + m / k));
        let groups = (setting.chunks / k).ceil();
        let skipped_groups = ((setting.chunks - most) / k)
            .ceil()
            .clamp(0.0, groups - 1.0);
        let chunks = setting.chunks - skipped_groups * k;
        let short = chunks - (groups - skipped_groups - 1.0) * k;
        let skipped = skipped_groups * (k + m);
        let is_coded = parity > 0;
        let reports = Loss::Markov {
            p_good_to_bad,
            p_bad_to_good,
            loss_good,
            loss_bad,
            packets_per_chunk: 1,
        };
        let (clean, repaired) = match is_coded {
            true => decoding(setting, groups - 1.0, short, k, m),
            false => (0.0, 0.0),
        };
        let last_parity = match code {
            Kind::Mds => m,
            Kind::Xor => m.min(short),
        };
        Ok(Some(Self {
            order: Order(order(setting.scheme, chunks)?),
            code,
            data,
            parity,
            last: whole(groups - skipped_groups - 1.0),
            last_parity: index(last_parity),
            rtt: setting.rtt,
            loss: setting.loss_chunk,
            unnoticed: setting.rtt
                * match is_coded {
                    true => NO_PARITY_RTTS,
                    false => QUIET_RTTS,
                },
            max_wait: (MAX_PROBE_S / setting.slot_s).max(LATER_RTTS * setting.rtt),
            doubles: is_coded,
            skipped,
            encoded: serial_injection(setting, groups, k, m) - skipped,
            decode: [clean, repaired],
            forward: Channel::keeping_packets(&setting.loss, seed),
            // Any other seed.
            reverse: Channel::new(&reports, !seed),
            sent: 0.0,
            repairs: 0.0,
        }))
    }

    /// The random numbers and losses of a draw, in the mean.
    pub(crate) fn expected_work(&self) -> f64 {
        f64::from(self.order.0.len()) * self.loss
    }

    /// Random numbers and losses so far.
    pub(crate) fn work(&self) -> u64 {
        self.forward.work() + self.reverse.work()
    }

    /// One completion time.
    pub(crate) fn draw(&mut self) -> f64 {
        self.forward.rest();
        self.reverse.rest();
        let mut draw = Draw::default();
        // The scheme of the receiver begins with the offer.
        if self.forward.loses_packet(0.0) {
            draw.complete = REPEAT_RTTS * self.rtt - self.skipped;
        }
        let all = self.order.0.len();
        let mut position = 0;
        loop {
            let next = draw.due.first_key_value();
            let due = next.map_or(f64::INFINITY, |(bits, _)| f64::from_bits(*bits));
            if position < all && due > draw.now {
                position = self.send(&mut draw, position, due);
                if position == all {
                    self.end(&mut draw);
                }
            } else if let Some((_, batch)) = draw.due.pop_first() {
                self.repair(&mut draw, batch, due);
            } else {
                break;
            }
        }
        self.sent += f64::from(all);
        let before = self.skipped * (1.0 + self.repairs / self.sent);
        before + draw.complete + self.rtt + self.late_end()
    }

    /// Sends chunks until repairs are due, or one is lost. Returns the next position.
    fn send(&mut self, draw: &mut Draw, position: u32, due: f64) -> u32 {
        let left = f64::from(self.order.0.len() - position);
        let until = left.min((due - draw.now).ceil());
        let lost = self.forward.next_loss(draw.now + 1.0, draw.now + until);
        let arrived = lost.map_or(until, |slot| slot - draw.now - 1.0);
        let next = position + whole(arrived);
        self.arrive(draw, position, next);
        draw.now += arrived;
        if lost.is_none() {
            return next;
        }
        draw.now += 1.0;
        self.lose(draw, next);
        next + 1
    }

    /// The chunks from one position up to another one have arrived. The first of them was sent in
    /// the slot after `now`.
    fn arrive(&self, draw: &mut Draw, from: u32, to: u32) {
        while from < to
            && let Some(&(at, group)) = draw.judged.first()
            && at < to
        {
            draw.judged.pop_first();
            if at < from {
                // The chunk was lost. A later one shows that it has been sent.
                let end = self.order.0.group_end(from).unwrap_or(from);
                draw.judged.insert((end, group));
            } else if let Some(missing) = draw.open.remove(&group) {
                let slot = draw.now + 1.0 + f64::from(at - from);
                self.judge(draw, missing, slot);
            }
        }
    }

    /// The chunk at a position is lost.
    fn lose(&self, draw: &mut Draw, position: u32) {
        let Some((message, chunk)) = self.order.0.at(position) else {
            return;
        };
        let is_parity = message.is_parity();
        let per_group = if is_parity { self.parity } else { self.data };
        let (group, at) = (chunk / per_group, chunk % per_group);
        let missing = draw.open.entry(group).or_insert_with(|| {
            let end = self.order.0.group_end(position).unwrap_or(position);
            draw.judged.insert((end, group));
            Missing {
                group,
                ..Missing::default()
            }
        });
        match is_parity {
            true => missing.parity.push(at),
            false => missing.data.push((at, self.forward.missing())),
        }
        draw.is_damaged |= !is_parity && group == self.last;
    }

    /// In this slot, the receiver is shown that no more chunks of a group come.
    fn judge(&self, draw: &mut Draw, missing: Missing, slot: f64) {
        if self.is_incomplete(&missing) {
            let together = self.rtt * TOGETHER_RTTS;
            let reported = (slot / together).ceil() * together;
            let due = reported.max(slot) + self.rtt * FIRST_RTTS;
            let batch = draw.due.entry(due.to_bits()).or_default();
            batch.groups.push(missing);
        }
    }

    /// All chunks have been sent once.
    fn end(&self, draw: &mut Draw) {
        draw.now = draw.now.max(self.encoded);
        let decode = self.decode[usize::from(draw.is_damaged)];
        draw.complete = draw.complete.max(draw.now + decode);
        draw.judged.clear();
        let slot = draw.now + self.unnoticed;
        for (_, missing) in core::mem::take(&mut draw.open) {
            self.judge(draw, missing, slot);
        }
    }

    /// Repairs are due, unless the report that asks for them was lost.
    fn repair(&mut self, draw: &mut Draw, mut batch: Batch, due: f64) {
        draw.now = draw.now.max(due.floor());
        let mut arrived = false;
        if !self.reverse.loses(due.floor()) {
            for missing in &mut batch.groups {
                missing.data.retain_mut(|(_, packets)| {
                    draw.now += 1.0;
                    self.repairs += 1.0;
                    *packets = self.forward.repeat(draw.now, *packets);
                    let is_lost = *packets > 0.0;
                    arrived |= !is_lost;
                    is_lost
                });
            }
            batch.groups.retain(|missing| self.is_incomplete(missing));
            if batch.groups.is_empty() {
                draw.complete = draw.complete.max(draw.now);
                return;
            }
        }
        batch.fruitless = if arrived { 0 } else { batch.fruitless };
        let mut wait = self.rtt * LATER_RTTS;
        if self.doubles {
            wait = (wait * 2f64.powi(batch.fruitless)).min(self.max_wait);
        }
        batch.fruitless += 1;
        let next = draw.due.entry((draw.now + wait).to_bits()).or_default();
        next.groups.append(&mut batch.groups);
        next.fruitless = batch.fruitless;
    }

    /// The last packet of a message may be lost, and is repeated (P3.8).
    fn late_end(&mut self) -> f64 {
        self.reverse.rest();
        match self.reverse.loses(0.0) {
            true => REPEAT_RTTS * self.rtt,
            false => 0.0,
        }
    }

    /// Whether a group can neither be read nor decoded.
    fn is_incomplete(&self, missing: &Missing) -> bool {
        let (data, parity) = (&missing.data, &missing.parity);
        let spare = match missing.group == self.last {
            true => self.last_parity,
            false => self.parity as usize,
        };
        match self.code {
            Kind::Mds => !data.is_empty() && data.len() + parity.len() > spare,
            Kind::Xor => data.iter().any(|(at, _)| {
                let sub = |at: &u32| *at as usize % spare;
                let alike = data
                    .iter()
                    .filter(|(other, _)| sub(other) == sub(at))
                    .count();
                alike > 1 || parity.iter().any(|parity| sub(parity) == sub(at))
            }),
        }
    }
}

/// The order in which the shipped scheme sends a message.
fn order(scheme: Scheme, chunks: f64) -> Result<Box<dyn WireOrder + Send>, ModelError> {
    // Both crates know a scheme by the same name.
    let shipped = SchemeName::parse_exact(&scheme.to_string());
    let shipped = shipped.map_err(|_| unshipped(scheme))?;
    Ok(shipped.scheme().order(&Message {
        number: 0,
        bytes: u64::from(whole(chunks)),
        chunks: whole(chunks),
        chunk_bytes: 1,
        critical: CriticalChunks::NONE,
    }))
}

fn unshipped(scheme: Scheme) -> ModelError {
    let chunks = match scheme {
        Scheme::Ec { k, m, .. } => k + m,
        _ => 0,
    };
    ModelError::Unsupported(Unsupported::ProtocolGroup(chunks))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "0 to MOST_CHUNKS"
)]
fn whole(count: f64) -> u32 {
    count as u32
}
