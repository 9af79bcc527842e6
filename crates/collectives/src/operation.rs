//! The operations, and the memory that each one needs.

use std::fmt;

use crate::element::{ElementType, Reduction};

/// An operation that the ranks of a group run together. Collective operations must be started in
/// the same order at all ranks. `Send` and `Receive` are between two ranks and are not part of that
/// order. Sizes are in bytes, `n` is the number of ranks, and "input" and "output" are those of
/// [`Buffers`](crate::Buffers).
///
/// If an operation works in place, it reads the output too. An input with the same meaning may be
/// given in addition: then the operation copies it first, and does not change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Every rank gets the reduction of the values of all ranks. In place: an output with the same
    /// length at every rank, and either no input or one of the same length.
    AllReduce {
        /// The type of the values.
        element: ElementType,
        /// How the values are combined.
        reduction: Reduction,
    },
    /// Rank r gets the reduction of part r of the inputs of all ranks. An output, and an input that
    /// is n times as long.
    ReduceScatter {
        /// The type of the values.
        element: ElementType,
        /// How the values are combined.
        reduction: Reduction,
    },
    /// Every rank gets the data of all ranks, in the order of ranks. An output, and an input of one
    /// n-th of its length. In place, there is no input: then the own part of rank r is part r of
    /// its output.
    AllGather,
    /// Rank r gets part r of the inputs of all ranks, in the order of ranks. An input and an
    /// output.
    AllToAll {
        /// The number of bytes for each rank. The parts follow one another in the input. If it is
        /// empty, all parts have the same length.
        send_bytes: Vec<u64>,
        /// The number of bytes from each rank. The parts follow one another in the output. If it is
        /// empty, all parts have the same length.
        receive_bytes: Vec<u64>,
    },
    /// Every rank gets the data of the root. In place: an output, and optionally an input at the
    /// root.
    Broadcast {
        /// The rank that has the data.
        root: usize,
    },
    /// The root gets the reduction of the values of all ranks. At the root, the buffers are as for
    /// [`Operation::AllReduce`]; at other ranks, an input.
    Reduce {
        /// The rank that gets the result.
        root: usize,
        /// The type of the values.
        element: ElementType,
        /// How the values are combined.
        reduction: Reduction,
    },
    /// The root gets the data of all ranks, in the order of ranks. At the root, the buffers are as
    /// for [`Operation::AllGather`]; at other ranks, an input.
    Gather {
        /// The rank that gets the result.
        root: usize,
    },
    /// Rank r gets part r of the input of the root. An output, and at the root an input that is n
    /// times as long.
    Scatter {
        /// The rank that has the data.
        root: usize,
    },
    /// Every rank waits until all ranks have started it. No memory.
    Barrier,
    /// Another rank gets the data of this rank. An input. A send is ordered only relative to sends
    /// with the same tag to the same rank: the first one is received first.
    Send {
        /// The rank that gets the data.
        to: usize,
        /// The tag of the receive that matches it.
        tag: u32,
    },
    /// This rank gets the data of another rank. An output with the length of the input of the send.
    /// A receive of 0 bytes completes at once.
    Receive {
        /// The rank that has the data.
        from: usize,
        /// The tag of the send that matches it.
        tag: u32,
    },
    /// As `Receive`, from the rank whose send is known here first. [`Report::source`](crate::Report::source)
    /// names it. The sends of other ranks wait for other receives.
    ReceiveAny {
        /// The tag of the send that matches it.
        tag: u32,
    },
}

impl Operation {
    /// The name, as in error messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        name(self.code())
    }

    /// The number that represents the operation in messages.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::AllReduce { .. } => 1,
            Self::ReduceScatter { .. } => 2,
            Self::AllGather => 3,
            Self::AllToAll { .. } => 4,
            Self::Broadcast { .. } => 5,
            Self::Reduce { .. } => 6,
            Self::Gather { .. } => 7,
            Self::Scatter { .. } => 8,
            Self::Barrier => 9,
            // These are the two halves of one operation.
            Self::Send { .. } | Self::Receive { .. } | Self::ReceiveAny { .. } => 10,
        }
    }

    /// Whether all ranks of the group run it together.
    pub(crate) fn is_collective(&self) -> bool {
        self.point_end(0).is_none()
    }

    pub(crate) fn root(&self) -> Option<usize> {
        match self {
            Self::Broadcast { root }
            | Self::Reduce { root, .. }
            | Self::Gather { root }
            | Self::Scatter { root } => Some(*root),
            _ => None,
        }
    }

    pub(crate) fn element(&self) -> Option<(ElementType, Reduction)> {
        match self {
            Self::AllReduce { element, reduction }
            | Self::ReduceScatter { element, reduction }
            | Self::Reduce {
                element, reduction, ..
            } => Some((*element, *reduction)),
            _ => None,
        }
    }

    /// The end of this rank in a send and receive of `bytes` bytes; `None` for collective
    /// operations.
    pub(crate) fn point_end(&self, bytes: u64) -> Option<PointEnd> {
        let (peer, tag, is_send) = match self {
            Self::Send { to, tag } => (Some(*to), *tag, true),
            Self::Receive { from, tag } => (Some(*from), *tag, false),
            Self::ReceiveAny { tag } => (None, *tag, false),
            _ => return None,
        };
        Some(PointEnd {
            peer,
            tag,
            is_send,
            bytes,
        })
    }
}

/// One end of a send and receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PointEnd {
    /// The other rank. `None`: any rank may send, and none is chosen yet.
    pub(crate) peer: Option<usize>,
    pub(crate) tag: u32,
    pub(crate) is_send: bool,
    pub(crate) bytes: u64,
}

/// The name of the operation that a number represents.
pub(crate) fn name(code: u8) -> &'static str {
    match code {
        1 => "all-reduce",
        2 => "reduce-scatter",
        3 => "all-gather",
        4 => "all-to-all",
        5 => "broadcast",
        6 => "reduce",
        7 => "gather",
        8 => "scatter",
        9 => "barrier",
        10 => "send and receive",
        _ => "an unknown operation",
    }
}

/// The communication pattern between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Selects the algorithm that fits the operation and its size: see [`docs/collectives.md`].
    ///
    /// [`docs/collectives.md`]: https://github.com/farwrite/farwrite/blob/main/docs/collectives.md
    #[default]
    Auto,
    /// Every rank sends to the next one: the fewest bytes on each link.
    Ring,
    /// Every rank sends to all others at once: the fewest rounds.
    Direct,
    /// Along a binomial tree.
    Tree,
    /// Pairs of ranks exchange halves of decreasing size, then of increasing size: the fewest
    /// rounds with the fewest bytes.
    HalvingDoubling,
    /// Within sites first, then between them ([`GroupOptions::sites`](crate::GroupOptions::sites)):
    /// the fewest bytes between sites.
    Hierarchical,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 6] = [
        Self::Auto,
        Self::Ring,
        Self::Direct,
        Self::Tree,
        Self::HalvingDoubling,
        Self::Hierarchical,
    ];

    /// The number that represents the algorithm in messages.
    pub(crate) const fn code(self) -> u8 {
        self as u8 + 1
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Ring => "ring",
            Self::Direct => "direct",
            Self::Tree => "tree",
            Self::HalvingDoubling => "halving-doubling",
            Self::Hierarchical => "hierarchical",
        })
    }
}

/// Whether an operation waits for all data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// The operation waits for all data: the result is complete.
    #[default]
    Exact,
    /// The operation leaves out contributions that have not arrived after some time: see
    /// [`BoundedOptions`](crate::BoundedOptions). [`Report::missing`](crate::Report::missing) names them.
    /// It is available for `AllReduce` and `ReduceScatter` of floats, and for `AllGather` and `AllToAll` of
    /// equal parts, whose values should also be floats.
    ///
    /// Each value is the reduction of the contributions of exactly those ranks that the report does
    /// not name. A mean divides by their number. With
    /// [`BoundedOptions::hadamard`](crate::BoundedOptions::hadamard), values are inexact instead: the
    /// packets of a block that arrived are scaled up for those that did not. If nothing is reduced, missing
    /// bytes are 0. The result of an all-reduce is the same at all ranks, except with
    /// [`BoundedOptions::parts`](crate::BoundedOptions::parts).
    ///
    /// The first operation of a kind and size class is a warm-up: it waits for everything that the path
    /// does not drop, to measure how long that takes. Operations of that kind and size class that begin
    /// before the first one ends do the same.
    Bounded,
}
