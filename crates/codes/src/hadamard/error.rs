//! Errors in a shape or in the arguments of a transform.

use super::interleave::{MAX_BLOCK, MAX_PACKET};

/// Why a shape does not exist, or a transform did nothing. Nothing has been written where one is
/// returned.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TransformError {
    /// A block that no Hadamard matrix of this family fits.
    #[error("a block of {given} elements: choose a power of two from 1 to {MAX_BLOCK}")]
    Block {
        /// Elements of a block.
        given: usize,
    },
    /// A packet that blocks cannot be dealt out to.
    #[error(
        "a packet of {given} elements: choose a power of two from 1 to {MAX_PACKET}, at most the \
         packet's payload"
    )]
    Packet {
        /// Elements of a packet.
        given: usize,
    },
    /// A stride that does not divide a packet.
    #[error("stride {given}: choose a power of two from 1 to the packet's {packet} elements")]
    Stride {
        /// The stride.
        given: usize,
        /// Elements of a packet.
        packet: usize,
    },
    /// Input and output differ in length.
    #[error("an output of {output} elements for an input of {input}: both have one length")]
    Lengths {
        /// Elements of the input.
        input: usize,
        /// Elements of the output.
        output: usize,
    },
    /// Segments that run backwards or past the end.
    #[error(
        "segment {segment} ends at element {end}: ends do not decrease, and the last is the \
         tensor's length of {elements}"
    )]
    Segment {
        /// Index of the segment. It is the number of segments if the last ends too early.
        segment: usize,
        /// Where it ends.
        end: usize,
        /// Elements of the tensor.
        elements: usize,
    },
    /// An impossible share of arriving packets.
    #[error("a share of {given} of packets arrives: it is above 0 and at most 1")]
    Share {
        /// The share.
        given: f32,
    },
}
