//! Assigns coefficients to packets.

use core::ops::Range;

use super::TransformError;

/// Elements of the largest block.
pub(super) const MAX_BLOCK: usize = 1 << 25;
/// Elements of the largest packet: 64 KiB of 16-bit values.
pub(super) const MAX_PACKET: usize = 1 << 15;

/// The assignment of coefficients to packets: how a segment is cut into blocks, and in which packet
/// each coefficient travels. This is the stride-based interleaving of `OptiNIC`, section 3.2 (b).
/// Element `e` of an encoded segment travels in packet `e / packet` of the segment. The
/// [module](super) shows an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interleave {
    block: usize,
    packet: usize,
    stride: usize,
}

impl Interleave {
    /// Makes an interleaving of blocks of `block` elements in packets of `packet` elements. Each
    /// packet carries coefficients of `stride` blocks. [`Self::packet_elements`] computes `packet`
    /// from a payload size.
    ///
    /// # Errors
    /// If one of them is not a power of two or out of range: `block` from 1 to 2^25, `packet` from
    /// 1 to 2^15, `stride` from 1 to `packet`.
    pub const fn new(block: usize, packet: usize, stride: usize) -> Result<Self, TransformError> {
        if !block.is_power_of_two() || block > MAX_BLOCK {
            return Err(TransformError::Block { given: block });
        }
        if !packet.is_power_of_two() || packet > MAX_PACKET {
            return Err(TransformError::Packet { given: packet });
        }
        if !stride.is_power_of_two() || stride > packet {
            return Err(TransformError::Stride {
                given: stride,
                packet,
            });
        }
        Ok(Self {
            block,
            packet,
            stride,
        })
    }

    /// Returns the largest power of two of elements of `element_bytes` bytes that fits in a
    /// payload, at most 2^15. Returns `None` if no element fits, or if an element has 0 bytes.
    pub const fn packet_elements(payload_bytes: usize, element_bytes: usize) -> Option<usize> {
        match payload_bytes.checked_div(element_bytes) {
            None | Some(0) => None,
            Some(elements) if elements >= MAX_PACKET => Some(MAX_PACKET),
            Some(elements) => Some(1 << elements.ilog2()),
        }
    }

    /// Returns the number of elements of a block.
    pub const fn block(&self) -> usize {
        self.block
    }

    /// Returns the number of elements of a packet.
    pub const fn packet(&self) -> usize {
        self.packet
    }

    /// Returns the number of blocks that share a packet.
    pub const fn stride(&self) -> usize {
        self.stride
    }

    /// Returns the number of elements of a group. The blocks of a group share packets with one
    /// another and with no other block. A group is a whole number of packets, except for the last
    /// group of a segment.
    pub const fn group(&self) -> usize {
        let blocks = self.stride.saturating_mul(self.block);
        if blocks > self.packet {
            blocks
        } else {
            self.packet
        }
    }

    /// Returns the position of coefficient `index` in an encoded segment of `elements` elements.
    /// `index` counts coefficients block by block.
    ///
    /// # Panics
    /// If `index` is not less than `elements`.
    pub fn position(&self, elements: usize, index: usize) -> usize {
        assert!(index < elements, "element {index} of {elements}");
        let part = self
            .parts(elements)
            .find(|part| part.range.contains(&index));
        part.map_or(index, |part| part.position(index))
    }

    /// Returns the parts of a segment, in order and without gaps. All blocks of a part have the
    /// same size. Parts of whole blocks come first; blocks of descending powers of two for the
    /// remaining elements follow.
    pub(super) fn parts(&self, elements: usize) -> impl Iterator<Item = Part> + use<> {
        let Self { block, .. } = *self;
        let whole = elements - elements % block;
        let run = block.min(self.packet / self.stride);
        // Blocks that are not interleaved form a single part, independent of their number.
        let still = self.stride == 1 || run == block;
        let step = if still { whole.max(1) } else { self.group() };
        let groups = (0..whole).step_by(step).map(move |start| {
            let range = start..whole.min(start.saturating_add(step));
            let plain = still || range.len() == block;
            Part {
                run: if plain { block } else { run },
                range,
                block,
            }
        });
        let mut start = whole;
        let rest = core::iter::from_fn(move || {
            let block = 1 << (elements - start).checked_ilog2()?;
            let range = start..start + block;
            start = range.end;
            Some(Part {
                range,
                block,
                run: block,
            })
        });
        groups.chain(rest)
    }
}

/// Consecutive blocks of the same size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The elements of the part in the segment.
    pub(super) range: Range<usize>,
    /// Elements of a block.
    pub(super) block: usize,
    /// Length of the runs in which the blocks of the part are interleaved. If it equals `block`,
    /// the blocks are not interleaved.
    pub(super) run: usize,
}

impl Part {
    /// Returns the position of coefficient `index` of the segment.
    fn position(&self, index: usize) -> usize {
        let (block, at) = {
            let index = index - self.range.start;
            (index / self.block, index % self.block)
        };
        let blocks = self.range.len() / self.block;
        match self.run == self.block {
            true => index,
            false => {
                // The runs of a part are ordered by column first, then by block.
                let row = at / self.run * blocks + block;
                self.range.start + row * self.run + at % self.run
            }
        }
    }
}
