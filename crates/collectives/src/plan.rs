//! From an operation and its memory to the steps of this rank.

use std::ops::Range;

use crate::buffer::{Buffer, Buffers};
use crate::element::{ElementType, Reduction};
use crate::error::CollectiveError;
use crate::operation::{Algorithm, Operation};
use crate::point::PointEnd;
use crate::schedule::{self, Action, Step};
use crate::segment::Descriptor;

/// All-reduces and reduce-scatters up to this size go directly: rounds cost more than bytes.
const DIRECT_BYTES: u64 = 64 << 10;

/// What one rank does for an operation.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) descriptor: Descriptor,
    pub(crate) values: Option<(ElementType, Reduction)>,
    pub(crate) steps: Vec<Step>,
    /// Whether each message is checked against the length of its step rather than that of the
    /// operation.
    pub(crate) per_step: bool,
    /// Whether the steps work on a copy of the input instead of the output; zeros where there is no
    /// input.
    pub(crate) on_copy: bool,
    /// Bytes of the input that are copied to an offset of the output before the steps.
    pub(crate) before: Option<(Range<u64>, u64)>,
    /// Bytes of the working copy that are copied to the start of the output after the steps.
    pub(crate) after: Option<Range<u64>>,
    /// Bytes of the result at this rank.
    pub(crate) bytes: u64,
    /// Of a point-to-point operation.
    pub(crate) point: Option<PointEnd>,
}

/// Who plans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
}

impl Place {
    fn wrong(
        self,
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

/// Plans an operation.
///
/// # Errors
/// [`CollectiveError::Argument`].
pub(crate) fn plan(
    place: Place,
    operation: &Operation,
    algorithm: Algorithm,
    buffers: &Buffers,
) -> Result<Plan, CollectiveError> {
    let sizes = Sizes::of(place, operation, buffers)?;
    let algorithm = choose(place, operation, algorithm, &sizes)?;
    let values = match operation {
        // A byte that is reduced and sent back.
        Operation::Barrier => Some((ElementType::U8, Reduction::Max)),
        _ => operation.element(),
    };
    if let Some((element, reduction)) = values {
        check_values(place, element, reduction, sizes.total)?;
    }
    let descriptor = Descriptor {
        bytes: sizes.total,
        root: match operation {
            Operation::Send { tag, .. } | Operation::Receive { tag, .. } => *tag,
            _ => to_u32(operation.root().unwrap_or(0)),
        },
        operation: operation.code(),
        element: values.map_or(0, |(element, _)| element.code()),
        reduction: values.map_or(0, |(_, reduction)| reduction.code()),
        algorithm: algorithm.code(),
    };
    let mut plan = Plan {
        descriptor,
        values,
        steps: Vec::new(),
        per_step: false,
        on_copy: false,
        before: None,
        after: None,
        bytes: sizes.output.unwrap_or(0),
        point: point_end(operation, sizes.total),
    };
    fill(&mut plan, place, operation, algorithm, &sizes);
    plan.steps.retain(|step| !step.range.is_empty());
    Ok(plan)
}

/// Writes the steps and copies of a plan.
fn fill(plan: &mut Plan, place: Place, operation: &Operation, algorithm: Algorithm, sizes: &Sizes) {
    let Place { rank, ranks } = place;
    let whole = 0..sizes.total;
    let element_bytes = plan.values.map_or(1, |(element, _)| element.bytes());
    let equal = || schedule::cut(sizes.total / element_bytes, element_bytes, ranks);
    let own_input = || sizes.input.map(|input| 0..input);
    match operation {
        Operation::AllReduce { .. } | Operation::Barrier => {
            plan.on_copy = *operation == Operation::Barrier;
            plan.before = own_input().map(|input| (input, 0));
            plan.steps = all_reduce(place, algorithm, &equal(), &whole);
        }
        Operation::ReduceScatter { .. } => reduce_scatter(plan, rank, algorithm, &equal()),
        Operation::AllGather => {
            let parts = equal();
            plan.before = own_input().map(|input| (input, parts[rank].start));
            plan.steps = match algorithm {
                Algorithm::Direct => schedule::direct_gather(rank, &parts),
                _ => schedule::ring_all_gather(rank, &parts),
            };
        }
        Operation::AllToAll { .. } => {
            let (sends, receives) = (&sizes.sends, &sizes.receives);
            plan.per_step = true;
            plan.before = Some((sends[rank].clone(), receives[rank].start));
            plan.steps = schedule::all_to_all(rank, sends, receives);
        }
        Operation::Broadcast { root } => {
            plan.before = own_input().map(|input| (input, 0));
            plan.steps = schedule::tree_broadcast(rank, ranks, *root, &whole);
        }
        Operation::Reduce { root, .. } => {
            plan.steps = schedule::tree_reduce(rank, ranks, *root, &whole);
            plan.on_copy = sizes.output.is_none();
            plan.before = own_input()
                .filter(|_| !plan.on_copy)
                .map(|input| (input, 0));
        }
        Operation::Gather { root } => {
            let parts = equal();
            let is_root = rank == *root;
            let own = own_input().filter(|_| is_root);
            plan.before = own.map(|input| (input, parts[rank].start));
            plan.steps = schedule::gather(rank, *root, &parts);
        }
        Operation::Scatter { root } => {
            let parts = equal();
            plan.before = own_input().map(|_| (parts[rank].clone(), 0));
            plan.steps = schedule::scatter(rank, *root, &parts);
        }
        Operation::Send { to, .. } => {
            plan.steps = vec![Step::new(*to, Action::SendInput, &whole)];
        }
        Operation::Receive { from, .. } => {
            plan.steps = vec![Step::new(*from, Action::Copy, &whole)];
        }
    }
}

fn point_end(operation: &Operation, bytes: u64) -> Option<PointEnd> {
    let (peer, tag, is_send) = match operation {
        Operation::Send { to, tag } => (*to, *tag, true),
        Operation::Receive { from, tag } => (*from, *tag, false),
        _ => return None,
    };
    Some(PointEnd {
        peer,
        tag,
        is_send,
        bytes,
    })
}

fn all_reduce(
    place: Place,
    algorithm: Algorithm,
    parts: &[Range<u64>],
    whole: &Range<u64>,
) -> Vec<Step> {
    let Place { rank, ranks } = place;
    let [mut first, second] = match algorithm {
        Algorithm::Direct => [
            schedule::direct_reduce_scatter(rank, parts),
            schedule::direct_gather(rank, parts),
        ],
        Algorithm::Tree => [
            schedule::tree_reduce(rank, ranks, 0, whole),
            schedule::tree_broadcast(rank, ranks, 0, whole),
        ],
        Algorithm::Auto | Algorithm::Ring => [
            schedule::ring_reduce_scatter(rank, parts),
            schedule::ring_all_gather(rank, parts),
        ],
    };
    first.extend(second);
    first
}

fn reduce_scatter(plan: &mut Plan, rank: usize, algorithm: Algorithm, parts: &[Range<u64>]) {
    let own = parts[rank].clone();
    if algorithm != Algorithm::Direct {
        plan.on_copy = true;
        plan.after = Some(own);
        plan.steps = schedule::ring_reduce_scatter(rank, parts);
        return;
    }
    // Parts go from the input as they are, and the own one is reduced in the output.
    plan.steps = schedule::direct_reduce_scatter(rank, parts);
    for step in &mut plan.steps {
        match step.action.is_send() {
            true => step.action = Action::SendInput,
            false => step.range = 0..own.end - own.start,
        }
    }
    plan.before = Some((own, 0));
}

/// The algorithm that runs.
fn choose(
    place: Place,
    operation: &Operation,
    wanted: Algorithm,
    sizes: &Sizes,
) -> Result<Algorithm, CollectiveError> {
    use Algorithm::{Auto, Direct, Ring, Tree};
    let small = sizes.total <= DIRECT_BYTES;
    let (known, chosen): (&[Algorithm], _) = match operation {
        Operation::AllReduce { .. } => (&[Ring, Direct, Tree], if small { Direct } else { Ring }),
        Operation::ReduceScatter { .. } | Operation::AllGather => {
            (&[Ring, Direct], if small { Direct } else { Ring })
        }
        Operation::Broadcast { .. } | Operation::Reduce { .. } => (&[Tree], Tree),
        Operation::Barrier => (&[Tree, Direct], Direct),
        _ => (&[Direct], Direct),
    };
    match wanted {
        Auto => Ok(chosen),
        wanted if known.contains(&wanted) => Ok(wanted),
        wanted => {
            let known: Vec<String> = known.iter().map(ToString::to_string).collect();
            let expected = format!("{} knows {}", operation.name(), known.join(", "));
            Err(place.wrong("algorithm", wanted, expected))
        }
    }
}

fn check_values(
    place: Place,
    element: ElementType,
    reduction: Reduction,
    bytes: u64,
) -> Result<(), CollectiveError> {
    if !reduction.supports(element) {
        let expected = format!("values of type {element} have no {reduction}");
        return Err(place.wrong("reduction", reduction, expected));
    }
    if !bytes.is_multiple_of(element.bytes()) {
        let expected = format!("a multiple of the {} bytes of {element}", element.bytes());
        return Err(place.wrong("bytes", bytes, expected));
    }
    Ok(())
}

/// How long what is.
#[derive(Debug, Default)]
struct Sizes {
    input: Option<u64>,
    output: Option<u64>,
    /// Of the operation; all ranks must have the same.
    total: u64,
    /// Of all-to-all: the parts of the input and of the output.
    sends: Vec<Range<u64>>,
    receives: Vec<Range<u64>>,
}

impl Sizes {
    /// Checks which buffers there are, and their lengths.
    fn of(place: Place, operation: &Operation, buffers: &Buffers) -> Result<Self, CollectiveError> {
        let Place { rank, ranks } = place;
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
                0
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
    fn in_place(&self, place: Place, factor: u64) -> Result<u64, CollectiveError> {
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
    fn divided(&self, place: Place) -> Result<u64, CollectiveError> {
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

    fn both(&self, place: Place) -> Result<(u64, u64), CollectiveError> {
        Ok((self.need_input(place)?, self.need_output(place)?))
    }

    fn input_only(&self, place: Place) -> Result<u64, CollectiveError> {
        match self.output {
            Some(bytes) => Err(place.wrong("output", bytes, "this rank has no output here")),
            None => self.need_input(place),
        }
    }

    fn output_only(&self, place: Place) -> Result<u64, CollectiveError> {
        match self.input {
            Some(bytes) => Err(place.wrong("input", bytes, "this rank has no input here")),
            None => self.need_output(place),
        }
    }

    fn none(&self, place: Place) -> Result<(), CollectiveError> {
        match self.input.or(self.output) {
            Some(bytes) => Err(place.wrong("buffer", bytes, "a barrier takes no memory")),
            None => Ok(()),
        }
    }

    fn times(&self, place: Place, bytes: u64) -> Result<u64, CollectiveError> {
        let total = bytes.checked_mul(place.ranks as u64);
        total.ok_or_else(|| place.wrong("bytes", bytes, "the bytes of all ranks exceed 2^64"))
    }

    fn need_input(&self, place: Place) -> Result<u64, CollectiveError> {
        let missing = || place.wrong("input", "none", "the operation reads an input");
        self.input.ok_or_else(missing)
    }

    fn need_output(&self, place: Place) -> Result<u64, CollectiveError> {
        let missing = || place.wrong("output", "none", "the operation writes an output");
        self.output.ok_or_else(missing)
    }
}

/// The parts of a buffer of `length` bytes.
fn split(
    place: Place,
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

/// Ranks are counted with 16 bits in the information of a member.
fn to_u32(rank: usize) -> u32 {
    u32::try_from(rank).unwrap_or(u32::MAX)
}
