//! The required sizes of the memory of an operation at a rank.

use std::ops::Range;

use crate::buffer::{Buffer, Buffers};
use crate::error::CollectiveError;
use crate::group_view::GroupView;
use crate::operation::Operation;
use crate::schedule;

/// The sizes of the memory of an operation.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    pub(crate) input: Option<u64>,
    pub(crate) output: Option<u64>,
    /// The size of the operation, which must be equal at all ranks. 0 for an all-to-all with given
    /// sizes.
    pub(crate) total: u64,
    /// For an all-to-all: the parts of the input and of the output.
    pub(crate) sends: Vec<Range<u64>>,
    pub(crate) receives: Vec<Range<u64>>,
}

impl Sizes {
    /// Checks which buffers are present, and their lengths.
    ///
    /// # Errors
    /// [`CollectiveError::Argument`].
    pub(crate) fn of(
        view: &GroupView,
        operation: &Operation,
        buffers: &Buffers,
    ) -> Result<Self, CollectiveError> {
        let GroupView { rank, ranks, .. } = *view;
        if let Some(root) = operation.root().filter(|&root| root >= ranks) {
            return Err(view.wrong("root", root, format!("there are {ranks} ranks")));
        }
        if let Some(end) = operation.point_end(0) {
            let is_other = |peer: usize| peer < ranks && peer != rank;
            if !end.peer.map_or(ranks > 1, is_other) {
                let expected = format!("another one of {ranks} ranks");
                let peer = end.peer.map_or("any".into(), |peer| peer.to_string());
                return Err(view.wrong("peer", peer, expected));
            }
        }
        let length = |buffer: &Option<Buffer>| buffer.as_ref().map(|buffer| buffer.len() as u64);
        let (input, output) = (length(&buffers.input), length(&buffers.output));
        let mut sizes = Self {
            input,
            output,
            ..Self::default()
        };
        let is_root = operation.root() == Some(rank);
        let factor = ranks as u64;
        sizes.total = match operation {
            Operation::AllReduce { .. } => sizes.in_place(view, 1)?,
            Operation::AllGather => sizes.in_place(view, factor)?,
            Operation::Broadcast { .. } if is_root => sizes.in_place(view, 1)?,
            Operation::Broadcast { .. } => sizes.output_only(view)?,
            Operation::Reduce { .. } if is_root => sizes.in_place(view, 1)?,
            Operation::Gather { .. } if is_root => sizes.in_place(view, factor)?,
            Operation::Reduce { .. } => sizes.input_only(view)?,
            Operation::Gather { .. } => sizes.times(view, sizes.input_only(view)?)?,
            Operation::ReduceScatter { .. } => sizes.divided(view)?,
            Operation::Scatter { .. } if is_root => sizes.divided(view)?,
            Operation::Scatter { .. } => sizes.times(view, sizes.output_only(view)?)?,
            Operation::AllToAll {
                send_bytes,
                receive_bytes,
            } => {
                let (input, output) = sizes.both(view)?;
                sizes.sends = split(view, "send_bytes", send_bytes, input)?;
                sizes.receives = split(view, "receive_bytes", receive_bytes, output)?;
                let own = [&sizes.sends[rank], &sizes.receives[rank]];
                let [sent, received] = own.map(|range| range.end - range.start);
                if sent != received {
                    let expected = format!("as many as the {sent} bytes for itself");
                    return Err(view.wrong("receive_bytes of itself", received, expected));
                }
                // Given sizes may differ between ranks: each step is compared by its own size.
                if send_bytes.is_empty() && receive_bytes.is_empty() {
                    input
                } else {
                    0
                }
            }
            Operation::Barrier => {
                sizes.none(view)?;
                1
            }
            Operation::Send { .. } => sizes.input_only(view)?,
            Operation::Receive { .. } | Operation::ReceiveAny { .. } => sizes.output_only(view)?,
        };
        Ok(sizes)
    }

    /// Checks an output, and an optional input of one `factor`-th of its length.
    fn in_place(&self, view: &GroupView, factor: u64) -> Result<u64, CollectiveError> {
        let output = self.need_output(view)?;
        let bad_input = self
            .input
            .filter(|input| Some(output) != input.checked_mul(factor));
        if let Some(input) = bad_input {
            let expected = format!("{factor} times as long as the input, which has {input}");
            return Err(view.wrong("bytes of the output", output, expected));
        }
        if !output.is_multiple_of(factor) {
            let expected = format!("a multiple of the {factor} ranks");
            return Err(view.wrong("bytes of the output", output, expected));
        }
        Ok(output)
    }

    /// Checks an output, and an input whose length is that of the output times the number of ranks.
    fn divided(&self, view: &GroupView) -> Result<u64, CollectiveError> {
        let (input, output) = self.both(view)?;
        if output.checked_mul(view.ranks as u64) != Some(input) {
            let expected = format!(
                "{} times as long as the output, which has {output}",
                view.ranks
            );
            return Err(view.wrong("bytes of the input", input, expected));
        }
        Ok(input)
    }

    fn both(&self, view: &GroupView) -> Result<(u64, u64), CollectiveError> {
        Ok((self.need_input(view)?, self.need_output(view)?))
    }

    fn input_only(&self, view: &GroupView) -> Result<u64, CollectiveError> {
        match self.output {
            Some(bytes) => Err(view.wrong("output", bytes, "this rank has no output here")),
            None => self.need_input(view),
        }
    }

    fn output_only(&self, view: &GroupView) -> Result<u64, CollectiveError> {
        match self.input {
            Some(bytes) => Err(view.wrong("input", bytes, "this rank has no input here")),
            None => self.need_output(view),
        }
    }

    fn none(&self, view: &GroupView) -> Result<(), CollectiveError> {
        match self.input.or(self.output) {
            Some(bytes) => Err(view.wrong("buffer", bytes, "a barrier takes no memory")),
            None => Ok(()),
        }
    }

    fn times(&self, view: &GroupView, bytes: u64) -> Result<u64, CollectiveError> {
        let total = bytes.checked_mul(view.ranks as u64);
        total.ok_or_else(|| view.wrong("bytes", bytes, "the bytes of all ranks exceed 2^64"))
    }

    fn need_input(&self, view: &GroupView) -> Result<u64, CollectiveError> {
        let missing = || view.wrong("input", "none", "the operation reads an input");
        self.input.ok_or_else(missing)
    }

    fn need_output(&self, view: &GroupView) -> Result<u64, CollectiveError> {
        let missing = || view.wrong("output", "none", "the operation writes an output");
        self.output.ok_or_else(missing)
    }
}

/// The parts of a buffer of `length` bytes.
fn split(
    view: &GroupView,
    argument: &'static str,
    sizes: &[u64],
    length: u64,
) -> Result<Vec<Range<u64>>, CollectiveError> {
    let ranks = view.ranks;
    if sizes.is_empty() {
        if !length.is_multiple_of(ranks as u64) {
            let expected = format!("equal parts for {ranks} ranks, or {argument}");
            return Err(view.wrong("bytes", length, expected));
        }
        return Ok(schedule::cut(length, 1, ranks));
    }
    if sizes.len() != ranks {
        let expected = format!("one size for each of {ranks} ranks");
        return Err(view.wrong(argument, format!("{sizes:?}"), expected));
    }
    let mut end = 0_u64;
    let mut parts = Vec::with_capacity(ranks);
    for size in sizes {
        let start = end;
        end = end.saturating_add(*size);
        parts.push(start..end);
    }
    if end != length {
        let expected = format!("a sum of {length}, the bytes of the buffer");
        return Err(view.wrong(argument, format!("{sizes:?}"), expected));
    }
    Ok(parts)
}
