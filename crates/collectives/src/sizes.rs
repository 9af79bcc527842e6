//! How long the memory of an operation must be at a rank.

use std::ops::Range;

use crate::buffer::{Buffer, Buffers};
use crate::error::CollectiveError;
use crate::operation::Operation;
use crate::plan::point_end;
use crate::schedule;

/// Who plans.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    pub(crate) packet_bytes: u32,
    pub(crate) packets_per_segment: u32,
    /// The site of each rank; empty: all are near each other.
    pub(crate) sites: Vec<u32>,
}

impl Place {
    /// An argument that will not do.
    pub(crate) fn wrong(
        &self,
        argument: &'static str,
        value: impl ToString,
        expected: impl Into<String>,
    ) -> CollectiveError {
        CollectiveError::Argument {
            rank: self.rank,
            argument,
            value: value.to_string(),
            expected: expected.into(),
        }
    }
}

/// Lengths of the memory of an operation.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    pub(crate) input: Option<u64>,
    pub(crate) output: Option<u64>,
    /// Of the operation; all ranks must have the same. 0 for an all-to-all of given sizes.
    pub(crate) total: u64,
    /// Of all-to-all: the parts of the input and of the output.
    pub(crate) sends: Vec<Range<u64>>,
    pub(crate) receives: Vec<Range<u64>>,
}

impl Sizes {
    /// Checks which buffers there are, and their lengths.
    ///
    /// # Errors
    /// [`CollectiveError::Argument`].
    pub(crate) fn of(
        place: &Place,
        operation: &Operation,
        buffers: &Buffers,
    ) -> Result<Self, CollectiveError> {
        let Place { rank, ranks, .. } = *place;
        if let Some(root) = operation.root().filter(|&root| root >= ranks) {
            return Err(place.wrong("root", root, format!("there are {ranks} ranks")));
        }
        if let Some(end) = point_end(operation, 0)
            && (end.peer >= ranks || end.peer == rank)
        {
            let expected = format!("another one of {ranks} ranks");
            return Err(place.wrong("peer", end.peer, expected));
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
            Operation::AllReduce { .. } => sizes.in_place(place, 1)?,
            Operation::AllGather => sizes.in_place(place, factor)?,
            Operation::Broadcast { .. } if is_root => sizes.in_place(place, 1)?,
            Operation::Broadcast { .. } => sizes.output_only(place)?,
            Operation::Reduce { .. } if is_root => sizes.in_place(place, 1)?,
            Operation::Gather { .. } if is_root => sizes.in_place(place, factor)?,
            Operation::Reduce { .. } => sizes.input_only(place)?,
            Operation::Gather { .. } => sizes.times(place, sizes.input_only(place)?)?,
            Operation::ReduceScatter { .. } => sizes.divided(place)?,
            Operation::Scatter { .. } if is_root => sizes.divided(place)?,
            Operation::Scatter { .. } => sizes.times(place, sizes.output_only(place)?)?,
            Operation::AllToAll {
                send_bytes,
                receive_bytes,
            } => {
                let (input, output) = sizes.both(place)?;
                sizes.sends = split(place, "send_bytes", send_bytes, input)?;
                sizes.receives = split(place, "receive_bytes", receive_bytes, output)?;
                let own = [&sizes.sends[rank], &sizes.receives[rank]];
                let [sent, received] = own.map(|range| range.end - range.start);
                if sent != received {
                    let expected = format!("as many as the {sent} bytes for itself");
                    return Err(place.wrong("receive_bytes of itself", received, expected));
                }
                // Given sizes may differ between ranks: each step is compared by its own.
                if send_bytes.is_empty() && receive_bytes.is_empty() {
                    input
                } else {
                    0
                }
            }
            Operation::Barrier => {
                sizes.none(place)?;
                1
            }
            Operation::Send { .. } => sizes.input_only(place)?,
            Operation::Receive { .. } => sizes.output_only(place)?,
        };
        Ok(sizes)
    }

    /// An output, and possibly an input of a `factor`-th of its length.
    fn in_place(&self, place: &Place, factor: u64) -> Result<u64, CollectiveError> {
        let output = self.need_output(place)?;
        let bad_input = self
            .input
            .filter(|input| Some(output) != input.checked_mul(factor));
        if let Some(input) = bad_input {
            let expected = format!("{factor} times as long as the input, which has {input}");
            return Err(place.wrong("bytes of the output", output, expected));
        }
        if !output.is_multiple_of(factor) {
            let expected = format!("a multiple of the {factor} ranks");
            return Err(place.wrong("bytes of the output", output, expected));
        }
        Ok(output)
    }

    /// An output, and an input that is longer by the number of ranks.
    fn divided(&self, place: &Place) -> Result<u64, CollectiveError> {
        let (input, output) = self.both(place)?;
        if output.checked_mul(place.ranks as u64) != Some(input) {
            let expected = format!(
                "{} times as long as the output, which has {output}",
                place.ranks
            );
            return Err(place.wrong("bytes of the input", input, expected));
        }
        Ok(input)
    }

    fn both(&self, place: &Place) -> Result<(u64, u64), CollectiveError> {
        Ok((self.need_input(place)?, self.need_output(place)?))
    }

    fn input_only(&self, place: &Place) -> Result<u64, CollectiveError> {
        match self.output {
            Some(bytes) => Err(place.wrong("output", bytes, "this rank has no output here")),
            None => self.need_input(place),
        }
    }

    fn output_only(&self, place: &Place) -> Result<u64, CollectiveError> {
        match self.input {
            Some(bytes) => Err(place.wrong("input", bytes, "this rank has no input here")),
            None => self.need_output(place),
        }
    }

    fn none(&self, place: &Place) -> Result<(), CollectiveError> {
        match self.input.or(self.output) {
            Some(bytes) => Err(place.wrong("buffer", bytes, "a barrier takes no memory")),
            None => Ok(()),
        }
    }

    fn times(&self, place: &Place, bytes: u64) -> Result<u64, CollectiveError> {
        let total = bytes.checked_mul(place.ranks as u64);
        total.ok_or_else(|| place.wrong("bytes", bytes, "the bytes of all ranks exceed 2^64"))
    }

    fn need_input(&self, place: &Place) -> Result<u64, CollectiveError> {
        let missing = || place.wrong("input", "none", "the operation reads an input");
        self.input.ok_or_else(missing)
    }

    fn need_output(&self, place: &Place) -> Result<u64, CollectiveError> {
        let missing = || place.wrong("output", "none", "the operation writes an output");
        self.output.ok_or_else(missing)
    }
}

/// The parts of a buffer of `length` bytes.
fn split(
    place: &Place,
    argument: &'static str,
    sizes: &[u64],
    length: u64,
) -> Result<Vec<Range<u64>>, CollectiveError> {
    let ranks = place.ranks;
    if sizes.is_empty() {
        if !length.is_multiple_of(ranks as u64) {
            let expected = format!("equal parts for {ranks} ranks, or {argument}");
            return Err(place.wrong("bytes", length, expected));
        }
        return Ok(schedule::cut(length, 1, ranks));
    }
    if sizes.len() != ranks {
        let expected = format!("one size for each of {ranks} ranks");
        return Err(place.wrong(argument, format!("{sizes:?}"), expected));
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
        return Err(place.wrong(argument, format!("{sizes:?}"), expected));
    }
    Ok(parts)
}
