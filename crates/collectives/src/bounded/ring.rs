//! An all-reduce around a ring: what its packets contain, and what their contents mean.
//!
//! A part of the tensor is reduced along the ring and ends at its owner. Each rank adds its own
//! contribution to the partial sum that it receives, and sends the result to the next rank. In
//! place of a packet that has not arrived by the deadline of a step, it sends its own contribution alone. So
//! the contributions in a packet are always those of the last ranks before the owner, in the order
//! of the ring, and their number names them. Each packet begins with this number:
//!
//! ```text
//! 0      u16         the number of contributions in the packet; 0: the packet has no values
//! 2      6 x u8      zeros
//! 8      bytes       of the part
//! ```
//!
//! Numbers are big-endian. A mean is divided, and transformed values are scaled and transformed
//! back, where the values are used: [`RingPlan::settle`].

use std::ops::Range;

use super::hadamard::Encoding;
use super::missing_ranges::MissingRanges;
use crate::element::{ElementType, Reduction};
use crate::index::{to_range, to_usize};
use crate::kernel;

const HEADER_BYTES: u64 = 8;

/// The parts of an all-reduce around a ring, and how they are sent.
#[derive(Clone, Debug)]
pub(crate) struct RingPlan {
    /// By rank: the part that it owns.
    pub(crate) parts: Vec<Range<u64>>,
    pub(crate) rank: usize,
    pub(crate) values: (ElementType, Reduction),
    pub(crate) encoding: Option<Encoding>,
    pub(crate) packet_bytes: u64,
    pub(crate) segment_bytes: u64,
    /// Whether reduced parts travel around the ring too, instead of exactly.
    pub(crate) has_shares: bool,
}

/// The contributions to a group of values that are scaled together.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// The sum over all bytes of the number of contributions.
    sum: u64,
    /// The highest number of contributions to a byte.
    most: u16,
}

/// Bytes of one packet that belong to one group.
struct Stretch {
    range: Range<u64>,
    packet: usize,
    group: usize,
}

impl RingPlan {
    pub(crate) fn ranks(&self) -> usize {
        self.parts.len()
    }

    /// The number of steps. In each one, every rank sends a part to the next rank.
    pub(crate) fn steps(&self) -> usize {
        let once = self.ranks() - 1;
        if self.has_shares { 2 * once } else { once }
    }

    /// Whether the values that arrive in a step are added to those of this rank. In later steps, they replace
    /// them.
    pub(crate) fn reduces_in(&self, step: usize) -> bool {
        step < self.ranks() - 1
    }

    /// The part that this rank sends in a step. It has received it in the step before.
    pub(crate) fn sent(&self, step: usize) -> usize {
        (self.rank + 2 * self.ranks() - 1 - step) % self.ranks()
    }

    pub(crate) fn received(&self, step: usize) -> usize {
        self.sent(step + 1)
    }

    pub(crate) fn next(&self) -> usize {
        (self.rank + 1) % self.ranks()
    }

    pub(crate) fn before(&self) -> usize {
        (self.rank + self.ranks() - 1) % self.ranks()
    }

    fn length(&self, part: usize) -> u64 {
        self.parts[part].end - self.parts[part].start
    }

    /// The number of bytes of a part in a packet.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.packet_bytes - HEADER_BYTES
    }

    pub(crate) fn packets(&self, part: usize) -> usize {
        to_usize(self.length(part).div_ceil(self.data_bytes()))
    }

    fn packets_of_segment(&self) -> usize {
        to_usize(self.segment_bytes / self.packet_bytes)
    }

    /// The number of messages that carry a part.
    pub(crate) fn segments(&self, part: usize) -> usize {
        self.packets(part).div_ceil(self.packets_of_segment())
    }

    /// The packets of a part that a message carries.
    pub(crate) fn packets_in(&self, part: usize, segment: usize) -> Range<usize> {
        let start = segment * self.packets_of_segment();
        start..self.packets(part).min(start + self.packets_of_segment())
    }

    /// The bytes of a packet, counted from the start of the part.
    fn bytes_of(&self, part: usize, packet: usize) -> Range<u64> {
        let start = packet as u64 * self.data_bytes();
        start..self.length(part).min(start + self.data_bytes())
    }

    /// The place of a packet in the memory of all parts.
    pub(crate) fn place(&self, part: usize, packet: usize) -> Range<usize> {
        let start = self.parts[part].start;
        let Range { start: from, end } = self.bytes_of(part, packet);
        to_range(&(start + from..start + end))
    }

    /// Whether a packet with this number of contributions has that of a rank. The ranks before the
    /// owner contribute first to what comes last.
    pub(crate) fn contributes(&self, owner: usize, rank: usize, count: u16) -> bool {
        let distance = (owner + self.ranks() - rank) % self.ranks();
        distance < usize::from(count)
    }

    /// Writes the packets of a message; `counts` has the number of contributions of each packet of
    /// the part. Returns the size of the message.
    pub(crate) fn write(
        &self,
        part: usize,
        segment: usize,
        counts: &[u16],
        work: &[u8],
        out: &mut [u8],
    ) -> usize {
        let mut end = 0;
        for packet in self.packets_in(part, segment) {
            let data = &work[self.place(part, packet)];
            let (header, rest) = out[end..].split_at_mut(to_usize(HEADER_BYTES));
            header.fill(0);
            header[..2].copy_from_slice(&counts[packet].to_be_bytes());
            rest[..data.len()].copy_from_slice(data);
            end += to_usize(HEADER_BYTES) + data.len();
        }
        end
    }

    /// The size of a packet of a part.
    pub(crate) fn framed_bytes(&self, part: usize, packet: usize) -> u64 {
        let Range { start, end } = self.bytes_of(part, packet);
        HEADER_BYTES + end - start
    }

    /// Uses a packet that arrived in a step: adds it to the values in `work`, or replaces them.
    /// Returns the number of contributions that the values have now; `None` if the packet has no
    /// values that can be used.
    pub(crate) fn read(
        &self,
        step: usize,
        packet: usize,
        framed: &[u8],
        work: &mut [u8],
    ) -> Option<u16> {
        let (header, data) = framed.split_at(to_usize(HEADER_BYTES));
        let count = u16::from_be_bytes([header[0], header[1]]);
        let most = self.ranks().min(step + 1);
        if !(1..=most).contains(&usize::from(count)) {
            return None;
        }
        let target = &mut work[self.place(self.received(step), packet)];
        if self.reduces_in(step) {
            let (element, reduction) = self.values;
            kernel::reduce(element, reduction, target, data);
            return Some(count + 1);
        }
        target.copy_from_slice(data);
        Some(count)
    }

    /// Makes the result of a part from the values that travelled: `counts` has the number of
    /// contributions of each packet, and 0 for a packet that is not there. In its place, the result
    /// has the contribution of this rank from `source`, as it was sent. Adds what the result lacks.
    ///
    /// Transformed values are scaled group by group: by the number of contributions to all bytes if
    /// each had the highest number of the group, divided by the number that is there. So a packet
    /// that is not there is used as zeros, if another packet of its group is there.
    pub(super) fn settle(
        &self,
        owner: usize,
        counts: &[u16],
        (source, work): (&[u8], &mut [u8]),
        lacks: &mut MissingRanges,
    ) {
        let groups = self.groups(owner, counts);
        let part = &self.parts[owner];
        for Stretch {
            range,
            packet,
            group,
        } in self.stretches(owner)
        {
            let range = part.start + range.start..part.start + range.end;
            let count = counts[packet];
            let absent = |rank: &usize| !self.contributes(owner, *rank, count);
            let bytes = to_range(&range);
            if groups[group].most == 0 {
                work[bytes.clone()].copy_from_slice(&source[bytes]);
                let others = (0..self.ranks()).filter(|&rank| rank != self.rank);
                lacks.add(range, others.collect());
                continue;
            }
            if count == 0 {
                work[bytes].fill(0);
            }
            lacks.add(range, (0..self.ranks()).filter(absent).collect());
        }
        let part = &mut work[to_range(part)];
        let (element, reduction) = self.values;
        let in_groups = part.chunks_mut(to_usize(self.group_bytes()));
        for (bytes, Group { sum, most }) in in_groups.zip(groups).filter(|(_, g)| g.most > 0) {
            let full = bytes.len() as u64 * u64::from(most);
            if let Some(encoding) = self.encoding.filter(|_| sum < full) {
                #[expect(clippy::cast_precision_loss, reason = "a factor needs no more digits")]
                encoding.scale(bytes, full as f32 / sum as f32);
            }
            if reduction == Reduction::Mean {
                kernel::divide(element, bytes, most.into());
            }
        }
        if let Some(encoding) = self.encoding {
            encoding.decode(part);
        }
    }

    /// The number of bytes that are scaled together: those of a packet, if nothing is transformed.
    fn group_bytes(&self) -> u64 {
        let transformed = self.encoding.map(|encoding| encoding.group_bytes());
        transformed.unwrap_or(self.data_bytes())
    }

    fn groups(&self, owner: usize, counts: &[u16]) -> Vec<Group> {
        let groups = self.length(owner).div_ceil(self.group_bytes());
        let mut groups = vec![Group::default(); to_usize(groups)];
        for stretch in self.stretches(owner) {
            let (group, count) = (&mut groups[stretch.group], counts[stretch.packet]);
            group.sum += (stretch.range.end - stretch.range.start) * u64::from(count);
            group.most = group.most.max(count);
        }
        groups
    }

    /// All bytes of a part, in order, counted from its start.
    fn stretches(&self, owner: usize) -> impl Iterator<Item = Stretch> + use<> {
        let (length, group_bytes, data_bytes) =
            (self.length(owner), self.group_bytes(), self.data_bytes());
        let mut start = 0;
        std::iter::from_fn(move || {
            let (packet, group) = (start / data_bytes, start / group_bytes);
            let ends = [(packet + 1) * data_bytes, (group + 1) * group_bytes, length];
            let end = ends.into_iter().min().filter(|end| *end > start)?;
            let range = start..end;
            start = end;
            Some(Stretch {
                range,
                packet: to_usize(packet),
                group: to_usize(group),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(encoding: Option<Encoding>) -> RingPlan {
        RingPlan {
            parts: vec![0..64, 64..124, 124..184],
            rank: 1,
            values: (ElementType::F32, Reduction::Sum),
            encoding,
            packet_bytes: 32,
            segment_bytes: 64,
            has_shares: true,
        }
    }

    #[test]
    fn a_part_passes_all_ranks_to_its_owner_and_all_others_back() {
        let plan = plan(None);
        assert_eq!(plan.steps(), 4);
        assert_eq!([0, 1, 2, 3].map(|step| plan.sent(step)), [0, 2, 1, 0]);
        assert_eq!([0, 1, 2, 3].map(|step| plan.received(step)), [2, 1, 0, 2]);
        assert_eq!(plan.segments(0), 2);
        assert_eq!(plan.packets_in(0, 1), 2..3);
        assert_eq!(plan.place(0, 2), 48..64);
        let contributors = [0, 1, 2].map(|rank| plan.contributes(1, rank, 2));
        assert_eq!(contributors, [true, true, false]);
    }

    #[test]
    fn a_packet_with_an_impossible_number_of_contributions_is_not_used() {
        let plan = plan(None);
        let mut work = vec![0; 184];
        for (step, count, expected) in [
            (0, 0, None),
            (0, 1, Some(2)),
            (0, 2, None),
            (1, 2, Some(3)),
            (2, 3, Some(3)),
            (2, 4, None),
            (3, u16::MAX, None),
        ] {
            let mut framed = [0; 32];
            framed[..2].copy_from_slice(&count.to_be_bytes());
            assert_eq!(plan.read(step, 1, &framed, &mut work), expected);
        }
    }

    #[test]
    fn a_message_comes_back() {
        let plan = plan(None);
        let work: Vec<u8> = (0..184).collect();
        let mut out = vec![0xff; 64];
        // The last message of the first part has one packet, of 16 bytes.
        let length = plan.write(0, 1, &[1, 1, 2], &work, &mut out);
        assert_eq!(length as u64, plan.framed_bytes(0, 2));
        let mut expected = vec![0, 2, 0, 0, 0, 0, 0, 0];
        expected.extend(48..64);
        assert_eq!(out[..length], expected);
    }
}
