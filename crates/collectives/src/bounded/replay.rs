//! Computes the result of a bounded operation again, from what it lacked.

use std::ops::Range;

use super::contribution::Contribution;
use super::missing_ranges::MissingRanges;
use super::plan::BoundedPlan;
use super::ring::RingPlan;
use crate::buffer::Buffers;
use crate::error::CollectiveError;
use crate::index::{to_range, to_usize};
use crate::kernel;
use crate::operation::Operation;
use crate::options::GroupOptions;
use crate::plan::check_values;
use crate::report::Missing;
use crate::scratch::Scratch;
use crate::sizes::Sizes;

/// Computes the result of a bounded operation at a rank again, bit for bit. A log of
/// [`Report::missing`](crate::Report::missing) and the inputs of all ranks thus replay a run.
///
/// `inputs` has the contribution of each rank: its input, or for an operation in place its output
/// before the operation. `missing` is what the report of `rank` lists.
///
/// # Errors
/// [`CollectiveError::Argument`]: an option is invalid, the operation is always exact, `rank` is not in the group, inputs
/// have different or wrong lengths, a missing range or rank is outside of the result or the group, or the
/// operation is an all-reduce of transformed contributions with bounded parts.
pub fn replay(
    options: &GroupOptions,
    rank: usize,
    operation: &Operation,
    inputs: &[&[u8]],
    missing: &[Missing],
) -> Result<Vec<u8>, CollectiveError> {
    let replay = Replay {
        ranks: inputs.len(),
        options,
        operation,
        inputs,
        missing,
    };
    replay.check(rank)?;
    let begun = (0..replay.ranks).map(|rank| replay.begin(rank));
    let begun: Result<Vec<_>, _> = begun.collect();
    let (plans, mut memory): (Vec<_>, Vec<_>) = begun?.into_iter().unzip();
    let plan = &plans[rank];
    if plan.shares.is_some() && plan.exchange.encoding.is_some() {
        let expected = "exact parts with bounded.hadamard in a replay: a rank cannot tell which packets \
                        of contributions are part of reduced packets that it did not get";
        let view = options.view(rank, replay.ranks);
        return Err(view.wrong("bounded.parts", "bounded", expected));
    }
    let mut output = std::mem::take(&mut memory[rank]);
    if let Some(ring) = &plan.ring {
        replay.around_ring(&plans, ring, &mut output);
        output.truncate(to_usize(plan.result_bytes));
        return Ok(output);
    }
    match plan.parts() {
        // Each owner reduces its part, and all ranks get all parts.
        Some(parts) => {
            replay.reduce(&plans, rank, &mut output);
            for (owner, part) in parts.iter().enumerate().filter(|(owner, _)| *owner != rank) {
                replay.reduce(&plans, owner, &mut memory[owner]);
                output[to_range(part)].copy_from_slice(&memory[owner][to_range(part)]);
            }
            // Where the part of an owner has not arrived, the rank has its own contribution.
            for (owner, part) in parts.iter().enumerate().filter(|(owner, _)| *owner != rank) {
                for Missing { range, .. } in missing.iter().filter(|m| m.ranks.contains(&owner)) {
                    let range = range.start.max(part.start)..range.end.min(part.end);
                    if !range.is_empty() {
                        output[to_range(&range)].copy_from_slice(&inputs[rank][to_range(&range)]);
                    }
                }
            }
        }
        None if plan.exchange.reduction.is_some() => replay.reduce(&plans, rank, &mut output),
        None => replay.gather(&plans, rank, &mut output),
    }
    output.truncate(to_usize(plan.result_bytes));
    Ok(output)
}

struct Replay<'a> {
    ranks: usize,
    options: &'a GroupOptions,
    operation: &'a Operation,
    inputs: &'a [&'a [u8]],
    missing: &'a [Missing],
}

impl Replay<'_> {
    fn check(&self, rank: usize) -> Result<(), CollectiveError> {
        let view = self.options.view(rank, self.ranks);
        if let Some((name, value, expected)) = self.options.problem_of(self.ranks) {
            return Err(view.wrong(name, value, expected));
        }
        if rank >= self.ranks {
            return Err(view.wrong("rank", rank, format!("there are {} inputs", self.ranks)));
        }
        let length = self.inputs[rank].len();
        if let Some(other) = self.inputs.iter().find(|input| input.len() != length) {
            let expected = format!("{length} bytes, as from rank {rank}");
            return Err(view.wrong("input", format!("{} bytes", other.len()), expected));
        }
        let result = self.result_bytes(length);
        for Missing { range, ranks } in self.missing {
            if range.start > range.end || range.end > result {
                let value = format!("{} to {}", range.start, range.end);
                return Err(view.wrong("missing range", value, format!("in 0 to {result}")));
            }
            if let Some(other) = ranks.iter().find(|&&other| other >= self.ranks) {
                let expected = format!("there are {} inputs", self.ranks);
                return Err(view.wrong("missing rank", other, expected));
            }
        }
        Ok(())
    }

    fn result_bytes(&self, input: usize) -> u64 {
        let (input, ranks) = (input as u64, self.ranks as u64);
        match self.operation {
            Operation::ReduceScatter { .. } => input / ranks,
            Operation::AllGather => input * ranks,
            _ => input,
        }
    }

    /// The plan of a rank, and its working memory, which has the contribution to its own result.
    fn begin(&self, rank: usize) -> Result<(BoundedPlan, Vec<u8>), CollectiveError> {
        let view = self.options.view(rank, self.ranks);
        let input = self.inputs[rank];
        let output = vec![0; to_usize(self.result_bytes(input.len()))];
        let sizes = Sizes::of(&view, self.operation, &Buffers::new(input.to_vec(), output))?;
        check_values(&view, self.operation, &sizes)?;
        let mut plan = BoundedPlan::new(&view, self.operation, self.operation.element(), &sizes)?;
        let work = plan.prepare(input, &mut Scratch::default());
        Ok((plan, work))
    }

    /// Reduces the part of a rank in its working memory.
    fn reduce(&self, plans: &[BoundedPlan], owner: usize, work: &mut [u8]) {
        let exchange = &plans[owner].exchange;
        let part = &exchange.receives[exchange.rank];
        let mut contributions = Vec::new();
        for (rank, theirs) in plans.iter().enumerate() {
            let scratch = &mut Scratch::default();
            let mut contribution = Contribution::new(exchange, rank, scratch);
            if rank != exchange.rank {
                let source = theirs.encoded.as_deref().unwrap_or(self.inputs[rank]);
                let bytes = &source[to_range(&theirs.exchange.sends[exchange.rank])];
                contribution.staged.copy_from_slice(bytes);
                let packets = 0..contribution.arrived.len() as u64;
                let packets = packets.map(|packet| {
                    let start = part.start + packet * exchange.packet_bytes;
                    let end = part.end.min(start + exchange.packet_bytes);
                    !self.lacks(rank, self.first_reduced(owner, &(start..end)))
                });
                contribution.arrived = packets.collect();
            }
            contributions.push(contribution);
        }
        exchange.reduce(&mut contributions.iter_mut().collect::<Vec<_>>(), work);
        exchange.decode(work);
    }

    /// Sums up all parts around a ring.
    fn around_ring(&self, plans: &[BoundedPlan], ring: &RingPlan, work: &mut [u8]) {
        let source = |rank: usize| plans[rank].encoded.as_deref().unwrap_or(self.inputs[rank]);
        let (element, reduction) = ring.values;
        for owner in 0..self.ranks {
            let packets = 0..ring.packets(owner);
            let count = |packet| {
                let at = ring.place(owner, packet).start as u64;
                let there = (0..self.ranks)
                    .filter(|&rank| !self.lacks(rank, at))
                    .count();
                let there = if self.lacks(owner, at) { 0 } else { there };
                u16::try_from(there).unwrap_or(u16::MAX)
            };
            let counts: Vec<u16> = packets.clone().map(count).collect();
            for (packet, count) in packets.zip(&counts) {
                let place = ring.place(owner, packet);
                let mut partial = Vec::new();
                // The sum begins at the rank that is farthest from the owner.
                for distance in (0..usize::from(*count)).rev() {
                    let rank = (owner + self.ranks - distance) % self.ranks;
                    let mut sum = source(rank)[place.clone()].to_vec();
                    if !partial.is_empty() {
                        kernel::reduce(element, reduction, &mut sum, &partial);
                    }
                    partial = sum;
                }
                work[place][..partial.len()].copy_from_slice(&partial);
            }
            let memory = (source(ring.rank), &mut *work);
            ring.settle(owner, &counts, memory, &mut MissingRanges::default());
        }
    }

    /// Places the data of all ranks, and zeros where it is missing.
    fn gather(&self, plans: &[BoundedPlan], reader: usize, work: &mut [u8]) {
        for (rank, place) in plans[reader].exchange.receives.iter().enumerate() {
            let source = &plans[rank].exchange.sends[reader];
            work[to_range(place)].copy_from_slice(&self.inputs[rank][to_range(source)]);
        }
        for Missing { range, .. } in self.missing {
            work[to_range(range)].fill(0);
        }
    }

    /// The first byte of a packet that the owner has reduced. If there is none, any byte.
    fn first_reduced(&self, owner: usize, packet: &Range<u64>) -> u64 {
        let ends = self.missing.iter().map(|missing| missing.range.end);
        let places = std::iter::once(packet.start).chain(ends.filter(|end| packet.contains(end)));
        let mut reduced = places.filter(|&at| !self.lacks(owner, at));
        reduced.next().unwrap_or(packet.start)
    }

    /// Whether the packet at this byte of the result lacks the contribution of a rank.
    fn lacks(&self, rank: usize, at: u64) -> bool {
        let covers = |range: &Range<u64>| range.contains(&at);
        let mut missing = self.missing.iter();
        missing.any(|missing| covers(&missing.range) && missing.ranks.contains(&rank))
    }
}
