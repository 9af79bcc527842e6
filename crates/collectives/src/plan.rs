//! Computes the steps of this rank from an operation and its memory.

use std::ops::Range;

use crate::bounded::plan::BoundedPlan;
use crate::buffer::Buffers;
use crate::element::{ElementType, Reduction};
use crate::error::CollectiveError;
use crate::group_view::GroupView;
use crate::operation::{Algorithm, Delivery, Operation, PointEnd};
use crate::options::OperationOptions;
use crate::schedule::{self, Action, Step};
use crate::segment::Descriptor;
use crate::sizes::Sizes;

/// All-reduces and reduce-scatters up to this size use the direct algorithm: for them, rounds cost
/// more than bytes.
const DIRECT_BYTES: u64 = 64 << 10;

/// The work of one rank for an operation.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) descriptor: Descriptor,
    pub(crate) values: Option<(ElementType, Reduction)>,
    pub(crate) steps: Vec<Step>,
    /// Whether each message is checked against the length of its step instead of the length of the
    /// operation.
    pub(crate) per_step: bool,
    /// Whether the steps work on a copy of the input instead of the output. The copy is zero if
    /// there is no input.
    pub(crate) on_copy: bool,
    /// The bytes of the input that are copied to an offset of the output before the steps.
    pub(crate) before: Option<(Range<u64>, u64)>,
    /// The bytes of the working copy that are copied to the start of the output after the steps.
    pub(crate) after: Option<Range<u64>>,
    /// The size of the result at this rank in bytes.
    pub(crate) bytes: u64,
    /// For a point-to-point operation: the end of this rank.
    pub(crate) point: Option<PointEnd>,
    /// For a bounded operation. Then `steps` are those of its second phase.
    pub(crate) bounded: Option<Box<BoundedPlan>>,
}

/// Plans an operation.
///
/// # Errors
/// [`CollectiveError::Argument`].
pub(crate) fn plan(
    view: &GroupView,
    operation: &Operation,
    options: OperationOptions,
    buffers: &Buffers,
) -> Result<Plan, CollectiveError> {
    let sizes = Sizes::of(view, operation, buffers)?;
    let algorithm = choose(view, operation, options, &sizes)?;
    let values = match operation {
        // A barrier reduces one byte and sends the result back.
        Operation::Barrier => Some((ElementType::U8, Reduction::Max)),
        _ => operation.element(),
    };
    check_values(view, operation, &sizes)?;
    let descriptor = Descriptor {
        bytes: sizes.total,
        root: match operation {
            Operation::Send { tag, .. }
            | Operation::Receive { tag, .. }
            | Operation::ReceiveAny { tag } => *tag,
            _ => to_u32(operation.root().unwrap_or(0)),
        },
        operation: operation.code(),
        element: values.map_or(0, |(element, _)| element.code()),
        reduction: values.map_or(0, |(_, reduction)| reduction.code()),
        algorithm: algorithm.code(),
        is_bounded: options.delivery == Delivery::Bounded,
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
        point: operation.point_end(sizes.total),
        bounded: None,
    };
    match options.delivery {
        Delivery::Exact => fill(&mut plan, view, operation, algorithm, &sizes),
        Delivery::Bounded => {
            let bounded = BoundedPlan::new(view, operation, plan.values, &sizes)?;
            plan.steps = bounded.steps(algorithm);
            plan.on_copy = true;
            plan.after = Some(0..bounded.result_bytes);
            plan.bounded = Some(Box::new(bounded));
        }
    }
    compare_or_drop_empty(&mut plan, view, operation, sizes.total);
    Ok(plan)
}

/// Drops steps without bytes, except where they carry the header that ranks compare. In an
/// all-to-all, the sizes of each pair of ranks are compared. Ranks that differ in the root, or of
/// which some have no bytes, might have no step in common: all pairs of ranks exchange a header.
fn compare_or_drop_empty(plan: &mut Plan, view: &GroupView, operation: &Operation, total: u64) {
    let is_exact = plan.bounded.is_none();
    if is_exact && matches!(operation, Operation::AllToAll { .. }) {
        return;
    }
    plan.steps.retain(|step| !step.range.is_empty());
    let is_empty = total == 0 && operation.is_collective();
    if is_exact && (operation.root().is_some() || is_empty) {
        let others = (0..view.ranks).filter(|&peer| peer != view.rank);
        let exchanged = others.flat_map(|peer| {
            [Action::SendInput, Action::Copy].map(|action| Step::new(peer, action, &(0..0)))
        });
        plan.steps.splice(0..0, exchanged);
    }
}

/// Fills in the steps and copies of a plan.
fn fill(
    plan: &mut Plan,
    view: &GroupView,
    operation: &Operation,
    algorithm: Algorithm,
    sizes: &Sizes,
) {
    let GroupView { rank, ranks, .. } = *view;
    let whole = 0..sizes.total;
    let element_bytes = plan.values.map_or(1, |(element, _)| element.bytes());
    let equal = || schedule::cut(sizes.total / element_bytes, element_bytes, ranks);
    let own_input = || sizes.input.map(|input| 0..input);
    match operation {
        Operation::AllReduce { .. } | Operation::Barrier => {
            plan.on_copy = *operation == Operation::Barrier;
            plan.before = own_input().map(|input| (input, 0));
            plan.steps = all_reduce(view, algorithm, sizes.total, element_bytes);
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
        // Its step follows when the sender is chosen.
        Operation::ReceiveAny { .. } => {}
    }
}

fn all_reduce(view: &GroupView, algorithm: Algorithm, bytes: u64, element_bytes: u64) -> Vec<Step> {
    let GroupView { rank, ranks, .. } = *view;
    let (count, whole) = (bytes / element_bytes, 0..bytes);
    let parts = |parts| schedule::cut(count, element_bytes, parts);
    let [mut first, second] = match algorithm {
        Algorithm::Direct => {
            let parts = parts(ranks);
            let reduced = schedule::direct_reduce_scatter(rank, &parts);
            [reduced, schedule::direct_gather(rank, &parts)]
        }
        Algorithm::Tree => [
            schedule::tree_reduce(rank, ranks, 0, &whole),
            schedule::tree_broadcast(rank, ranks, 0, &whole),
        ],
        Algorithm::HalvingDoubling => {
            let parts = parts(schedule::halving_parts(ranks));
            return schedule::halving_all_reduce(rank, ranks, &parts);
        }
        Algorithm::Hierarchical => {
            let one_site = vec![0; ranks];
            let sites = if view.sites.is_empty() {
                &one_site
            } else {
                &view.sites
            };
            return schedule::site_all_reduce(rank, sites, count, element_bytes);
        }
        Algorithm::Auto | Algorithm::Ring => {
            let parts = parts(ranks);
            let reduced = schedule::ring_reduce_scatter(rank, &parts);
            [reduced, schedule::ring_all_gather(rank, &parts)]
        }
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
    // The parts of the input are sent unchanged, and the own part is reduced in the output.
    plan.steps = schedule::direct_reduce_scatter(rank, parts);
    for step in &mut plan.steps {
        match step.action.is_send() {
            true => step.action = Action::SendInput,
            false => step.range = 0..own.end - own.start,
        }
    }
    plan.before = Some((own, 0));
}

/// Selects the algorithm.
fn choose(
    view: &GroupView,
    operation: &Operation,
    options: OperationOptions,
    sizes: &Sizes,
) -> Result<Algorithm, CollectiveError> {
    use Algorithm::{Auto, Direct, HalvingDoubling, Hierarchical, Ring, Tree};
    let small = sizes.total <= DIRECT_BYTES;
    let is_bounded = options.delivery == Delivery::Bounded;
    let has_sites = !view.sites.is_empty();
    let (known, chosen): (&[Algorithm], _) = match operation {
        // The second phase of a bounded all-reduce is a gather.
        Operation::AllReduce { .. } if is_bounded => {
            (&[Ring, Direct], if small { Direct } else { Ring })
        }
        Operation::AllReduce { .. } => (
            &[Ring, Direct, Tree, HalvingDoubling, Hierarchical],
            match small {
                true => Direct,
                false if has_sites => Hierarchical,
                false => Ring,
            },
        ),
        Operation::ReduceScatter { .. } | Operation::AllGather => {
            (&[Ring, Direct], if small { Direct } else { Ring })
        }
        Operation::Broadcast { .. } | Operation::Reduce { .. } => (&[Tree], Tree),
        Operation::Barrier => (&[Tree, Direct], Direct),
        _ => (&[Direct], Direct),
    };
    match options.algorithm {
        Auto => Ok(chosen),
        wanted if known.contains(&wanted) => Ok(wanted),
        wanted => {
            let known: Vec<String> = known.iter().map(ToString::to_string).collect();
            let expected = format!("{} knows {}", operation.name(), known.join(", "));
            Err(view.wrong("algorithm", wanted, expected))
        }
    }
}

/// Checks the values of an operation that reduces.
///
/// # Errors
/// [`CollectiveError::Argument`].
pub(crate) fn check_values(
    view: &GroupView,
    operation: &Operation,
    sizes: &Sizes,
) -> Result<(), CollectiveError> {
    let Some((element, reduction)) = operation.element() else {
        return Ok(());
    };
    // A part of a reduce-scatter also consists of elements.
    let bytes = match operation {
        Operation::ReduceScatter { .. } => sizes.output.unwrap_or(sizes.total),
        _ => sizes.total,
    };
    if !reduction.supports(element) {
        let expected = format!("values of type {element} have no {reduction}");
        return Err(view.wrong("reduction", reduction, expected));
    }
    if !bytes.is_multiple_of(element.bytes()) {
        let expected = format!("a multiple of the {} bytes of {element}", element.bytes());
        return Err(view.wrong("bytes", bytes, expected));
    }
    Ok(())
}

/// The information of a member stores ranks with 16 bits.
fn to_u32(rank: usize) -> u32 {
    u32::try_from(rank).unwrap_or(u32::MAX)
}
