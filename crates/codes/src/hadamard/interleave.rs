//! Assigns coefficients to packets.

use core::ops::Range;

use super::TransformError;

/// Elements of the largest block.
pub(super) const MAX_BLOCK: usize = 1 << 25;
/// Elements of the largest packet: 64 KiB of 16-bit values.
pub(super) const MAX_PACKET: usize = 1 << 15;

/// How a segment is cut into blocks, and how their coefficients are dealt out to packets: the
/// stride-based interleaving of `OptiNIC`, section 3.2 (b). Element `e` of an encoded segment
/// travels in packet `e / packet` of the segment. The [module](super) has a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interleave {
    block: usize,
    packet: usize,
    stride: usize,
}

impl Interleave {
    /// Blocks of `block` elements in packets of `packet` elements, of which each carries
    /// coefficients of `stride` blocks. [`Self::packet_elements`] works out `packet`.
    ///
    /// # Errors
    /// One of them is no power of two or out of its range: `block` from 1 to 2^25, `packet` from 1
    /// to 2^15, `stride` from 1 to `packet`.
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

    /// The largest power of two of elements of `element_bytes` that fits a payload. None if not
    /// even one does, or if an element has no bytes.
    pub const fn packet_elements(payload_bytes: usize, element_bytes: usize) -> Option<usize> {
        match payload_bytes.checked_div(element_bytes) {
            None | Some(0) => None,
            Some(elements) if elements >= MAX_PACKET => Some(MAX_PACKET),
            Some(elements) => Some(1 << elements.ilog2()),
        }
    }

    /// Elements of a block.
    pub const fn block(&self) -> usize {
        self.block
    }

    /// Elements of a packet.
    pub const fn packet(&self) -> usize {
        self.packet
    }

    /// Blocks that share a packet.
    pub const fn stride(&self) -> usize {
        self.stride
    }

    /// Elements of a group: the blocks that share packets with one another and with no others.
    /// Groups are whole packets, but for the last of a segment.
    pub const fn group(&self) -> usize {
        let blocks = self.stride.saturating_mul(self.block);
        if blocks > self.packet {
            blocks
        } else {
            self.packet
        }
    }

    /// Where coefficient `index` lies in an encoded segment of `elements` elements, if `index`
    /// counts coefficients block by block.
    ///
    /// # Panics
    /// If the segment has no such element.
    pub fn position(&self, elements: usize, index: usize) -> usize {
        assert!(index < elements, "element {index} of {elements}");
        let part = self
            .parts(elements)
            .find(|part| part.range.contains(&index));
        part.map_or(index, |part| part.position(index))
    }

    /// A segment in parts of equal blocks, in order and without gaps: whole blocks first, then
    /// blocks of descending powers of two for what is less than a block.
    pub(super) fn parts(&self, elements: usize) -> impl Iterator<Item = Part> + use<> {
        let Self { block, .. } = *self;
        let whole = elements - elements % block;
        let run = block.min(self.packet / self.stride);
        // Whole blocks of which no packet carries only a part are one part, however many they are.
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

/// Blocks of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Its elements in the segment.
    pub(super) range: Range<usize>,
    /// Elements of a block.
    pub(super) block: usize,
    /// Elements of a block that stay together. Whole blocks stay in place. Otherwise all blocks of
    /// the part are interleaved run by run.
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
                let row = at / self.run * blocks + block;
                self.range.start + row * self.run + at % self.run
            }
        }
    }
}
