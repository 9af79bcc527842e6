//! The operations, and the memory that each takes.

use std::fmt;

use crate::element::{ElementType, Reduction};

/// What the ranks of a group do together. Collective operations must be started in the same order at
/// all ranks; `Send` and `Receive` are between two ranks, and apart from that order. Sizes are in
/// bytes, `n` is the number of ranks, and "input" and "output" are those of
/// [`Buffers`](crate::Buffers).
///
/// Where an operation works in place, the output is read too, and an input of the same meaning may
/// be given instead: then it is copied first, and stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Every rank gets the reduction of what all ranks have. In place: an output, as long on every
    /// rank, and no input or one as long as the output.
    AllReduce {
        /// The type of the values.
        element: ElementType,
        /// How they are joined.
        reduction: Reduction,
    },
    /// Rank r gets the reduction of part r of every rank's input. An output, and an input that is n
    /// times as long.
    ReduceScatter {
        /// The type of the values.
        element: ElementType,
        /// How they are joined.
        reduction: Reduction,
    },
    /// Every rank gets what all ranks have, in the order of ranks. An output, and an input of an
    /// n-th of its length; or, in place, no input: then rank r's own part is part r of its output.
    AllGather,
    /// Rank r gets part r of every rank's input, in the order of ranks. An input and an output.
    AllToAll {
        /// Bytes for each rank, one after the other in the input; empty: all the same.
        send_bytes: Vec<u64>,
        /// Bytes from each rank, one after the other in the output; empty: all the same.
        receive_bytes: Vec<u64>,
    },
    /// Every rank gets what the root has. In place: an output, and at the root possibly an input.
    Broadcast {
        /// Who has it.
        root: usize,
    },
    /// The root gets the reduction of what all ranks have. At the root as with
    /// [`Operation::AllReduce`]; elsewhere an input.
    Reduce {
        /// Who gets it.
        root: usize,
        /// The type of the values.
        element: ElementType,
        /// How they are joined.
        reduction: Reduction,
    },
    /// The root gets what all ranks have, in the order of ranks. At the root as with
    /// [`Operation::AllGather`]; elsewhere an input.
    Gather {
        /// Who gets it.
        root: usize,
    },
    /// Rank r gets part r of the root's input. An output, and at the root an input that is n times
    /// as long.
    Scatter {
        /// Who has it.
        root: usize,
    },
    /// Every rank waits until all ranks have started it. No memory.
    Barrier,
    /// Another rank gets what this one has. An input. It takes part in no order but that of equal
    /// tags: of the sends to one rank with one tag, the first is received first.
    Send {
        /// Who gets it.
        to: usize,
        /// Which of its receives takes it.
        tag: u32,
    },
    /// This rank gets what another one has. An output, as long as the send's input. Of 0 bytes it
    /// is done at once.
    Receive {
        /// Who has it.
        from: usize,
        /// Which of its sends it takes.
        tag: u32,
    },
}

impl Operation {
    /// Its name, as in error messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        name(self.code())
    }

    /// The number that stands for it in messages.
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
            // Two halves of one operation.
            Self::Send { .. } | Self::Receive { .. } => 10,
        }
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
}

/// The name of the operation that a number stands for.
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

/// Which ranks talk to which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// The one that fits the operation and its size: see [`docs/collectives.md`].
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
    /// Pairs of ranks exchange ever smaller halves, then ever larger ones: the fewest rounds with
    /// the fewest bytes.
    HalvingDoubling,
    /// Within sites first, then between them ([`GroupOptions::sites`](crate::GroupOptions::sites)):
    /// the fewest bytes between sites.
    Hierarchical,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Auto,
        Self::Ring,
        Self::Direct,
        Self::Tree,
        Self::HalvingDoubling,
        Self::Hierarchical,
    ];

    /// The number that stands for it in messages.
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
