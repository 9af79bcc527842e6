//! Errors in a shape or in the arguments of a transform.

use super::interleave::{MAX_BLOCK, MAX_PACKET};

/// An invalid shape, or invalid arguments of a transform. A transform that returns an error has
/// written nothing.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TransformError {
    /// The block is not a power of two, or it is too large.
    #[error("a block of {given} elements: choose a power of two from 1 to {MAX_BLOCK}")]
    Block {
        /// Elements of a block.
        given: usize,
    },
    /// The packet is not a power of two, or it is too large.
    #[error(
        "a packet of {given} elements: choose a power of two from 1 to {MAX_PACKET}, at most the \
         packet's payload"
    )]
    Packet {
        /// Elements of a packet.
        given: usize,
    },
    /// The stride does not divide a packet.
    #[error("stride {given}: choose a power of two from 1 to the packet's {packet} elements")]
    Stride {
        /// The stride.
        given: usize,
        /// Elements of a packet.
        packet: usize,
    },
    /// Input and output have different lengths.
    #[error("an output of {output} elements for an input of {input}: both have one length")]
    Lengths {
        /// Elements of the input.
        input: usize,
        /// Elements of the output.
        output: usize,
    },
    /// A segment ends before it begins or after the end of the tensor, or the last segment does not
    /// end at the end of the tensor.
    #[error(
        "segment {segment} ends at element {end}: ends do not decrease, and the last is the \
         tensor's length of {elements}"
    )]
    Segment {
        /// Index of the segment, or the number of segments if the last segment ends too early.
        segment: usize,
        /// The element at which it ends.
        end: usize,
        /// Elements of the tensor.
        elements: usize,
    },
    /// The share of arriving packets is not above 0 and at most 1.
    #[error("a share of {given} of packets arrives: it is above 0 and at most 1")]
    Share {
        /// The share.
        given: f32,
    },
}
