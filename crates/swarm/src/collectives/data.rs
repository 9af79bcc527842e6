//! What ranks contribute, and what each result must be: the documented orders of reducing, written
//! here once more.

use std::ops::Range;

use farwrite_collectives::{
    Algorithm, Buffers, ElementType, GroupOptions, Missing, Operation, Reduction, kernel,
};
use farwrite_rng::SplitMix;

use super::plan::Step;

/// The largest all-reduce that is *direct* if the algorithm is not chosen, in bytes.
const DIRECT_BYTES: usize = 64 << 10;

/// The number of parts of the contribution of a rank.
fn parts_of(step: &Step, rank: usize, ranks: usize) -> usize {
    match step.operation {
        Operation::ReduceScatter { .. } | Operation::AllToAll { .. } => ranks,
        Operation::Scatter { root } if rank == root => ranks,
        _ => 1,
    }
}

pub(super) fn contribution(step: &Step, number: usize, rank: usize, ranks: usize) -> Vec<u8> {
    let element = step.element();
    let rng = &mut SplitMix::new((number * 64 + rank) as u64);
    let parts = parts_of(step, rank, ranks);
    let values = (0..parts * step.count).map(|_| value(rng, element));
    values.flatten().collect()
}

/// A value whose sums depend on their order.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the low bits are random too"
)]
fn value(rng: &mut SplitMix, element: ElementType) -> Vec<u8> {
    let bits = rng.next();
    let (sign, mantissa) = (bits >> 63, bits >> 20);
    match element {
        ElementType::F64 => ((rng.unit() - 0.5) * 1e3).to_ne_bytes().to_vec(),
        ElementType::F32 => (((rng.unit() - 0.5) * 1e3) as f32).to_ne_bytes().to_vec(),
        ElementType::F16 => {
            let bits = sign << 15 | (12 + bits % 6) << 10 | mantissa & 0x3ff;
            (bits as u16).to_ne_bytes().to_vec()
        }
        ElementType::Bf16 => {
            let bits = sign << 15 | (124 + bits % 6) << 7 | mantissa & 0x7f;
            (bits as u16).to_ne_bytes().to_vec()
        }
        ElementType::I64 => bits.to_ne_bytes().to_vec(),
        ElementType::I32 => (bits as u32).to_ne_bytes().to_vec(),
        ElementType::U8 | ElementType::I8 => vec![bits as u8],
        ElementType::Bool => vec![bits as u8 & 1],
    }
}

/// The buffers with which a rank starts a step; `more` is added to its count.
pub(super) fn buffers(
    step: &Step,
    number: usize,
    (rank, ranks): (usize, usize),
    more: usize,
) -> Buffers {
    let step = &Step {
        count: step.count + more,
        ..step.clone()
    };
    let own = contribution(step, number, rank, ranks);
    let output = |parts: usize| vec![0; parts * step.bytes()];
    match step.operation {
        Operation::AllReduce { .. } | Operation::Broadcast { .. } => Buffers::in_place(own),
        Operation::ReduceScatter { .. } => Buffers::new(own, output(1)),
        Operation::AllGather => Buffers::new(own, output(ranks)),
        Operation::AllToAll { .. } => Buffers::new(own, output(ranks)),
        Operation::Reduce { root, .. } if rank == root => Buffers::in_place(own),
        Operation::Gather { root } if rank == root => Buffers::new(own, output(ranks)),
        Operation::Scatter { root } if rank == root => Buffers::new(own, output(1)),
        Operation::Scatter { .. } => Buffers::in_place(output(1)),
        Operation::Send { to, .. } if rank == to => Buffers::in_place(output(1)),
        Operation::Barrier => Buffers::default(),
        _ => Buffers::input(own),
    }
}

/// The output of a rank, if the contributions that `missing` names are left out.
pub(super) fn expected(
    step: &Step,
    number: usize,
    (rank, ranks): (usize, usize),
    options: &GroupOptions,
    missing: &[Missing],
) -> Vec<u8> {
    let all: Vec<Vec<u8>> = (0..ranks)
        .map(|rank| contribution(step, number, rank, ranks))
        .collect();
    let bytes = step.bytes();
    let part = |from: usize, of: usize| all[from][of * bytes..][..bytes].to_vec();
    let mut output = match step.operation {
        Operation::AllReduce { .. } => return all_reduce(step, &all, options, missing),
        Operation::ReduceScatter { .. } => {
            let column: Vec<_> = (0..ranks).map(|from| part(from, rank)).collect();
            let first = rank + usize::from(is_ring(step, bytes * ranks));
            let mut output = vec![0; bytes];
            reduce_part(step, &column, &(0..bytes), first, missing, &mut output);
            return output;
        }
        Operation::AllGather => all.concat(),
        Operation::AllToAll { .. } => (0..ranks).flat_map(|from| part(from, rank)).collect(),
        Operation::Broadcast { root } => all[root].clone(),
        Operation::Reduce { root, .. } if rank == root => {
            let from_root: Vec<_> = (0..ranks).map(|d| &all[(root + d) % ranks]).collect();
            divided(step, tree(step, &from_root, 0), ranks)
        }
        Operation::Gather { root } if rank == root => all.concat(),
        Operation::Scatter { root } => part(root, rank),
        Operation::Send { to, .. } if rank == to => all[step.sender].clone(),
        _ => Vec::new(),
    };
    for Missing { range, .. } in missing {
        output[to_usize(range)].fill(0);
    }
    output
}

fn is_ring(step: &Step, bytes: usize) -> bool {
    match step.options.algorithm {
        _ if step.is_bounded() => false,
        Algorithm::Auto => bytes > DIRECT_BYTES,
        algorithm => algorithm == Algorithm::Ring,
    }
}

fn all_reduce(
    step: &Step,
    all: &[Vec<u8>],
    options: &GroupOptions,
    missing: &[Missing],
) -> Vec<u8> {
    let ranks = all.len();
    let refs: Vec<_> = all.iter().collect();
    match step.options.algorithm {
        Algorithm::Tree => return divided(step, tree(step, &refs, 0), ranks),
        Algorithm::HalvingDoubling => return divided(step, halving(step, all), ranks),
        Algorithm::Hierarchical => {
            return divided(step, hierarchical(step, all, &options.sites), ranks);
        }
        _ => {}
    }
    let mut output = vec![0; step.bytes()];
    let is_ring = match step.is_bounded() {
        true => options.bounded.algorithm == Algorithm::Ring,
        false => is_ring(step, step.bytes()),
    };
    for part in 0..ranks {
        let range = part_of(step, step.bytes(), ranks, part);
        let first = part + usize::from(is_ring);
        reduce_part(step, all, &range, first, missing, &mut output);
    }
    output
}

/// The bytes of one of the equal parts of memory. The first parts have an element more if needed.
fn part_of(step: &Step, bytes: usize, parts: usize, part: usize) -> Range<usize> {
    let element = usize::try_from(step.element().bytes()).expect("few bytes");
    let count = bytes / element;
    let begin = |part: usize| (part * (count / parts) + part.min(count % parts)) * element;
    begin(part)..begin(part + 1)
}

/// Memory of each rank that is the part `number` of the given memory.
fn cut(step: &Step, all: &[Vec<u8>], parts: usize, number: usize) -> Vec<Vec<u8>> {
    let range = part_of(step, all[0].len(), parts, number);
    all.iter()
        .map(|bytes| bytes[range.clone()].to_vec())
        .collect()
}

/// Ranks form pairs if there are more than a power of two. Then the distance of two ranks that are
/// added halves with each round.
fn halving(step: &Step, all: &[Vec<u8>]) -> Vec<u8> {
    let parts = 1 << all.len().ilog2();
    let (paired, single) = all.split_at(2 * (all.len() - parts));
    let joined = |a: &Vec<u8>, b: &[u8]| {
        let mut sum = a.clone();
        reduce(step, &mut sum, b);
        sum
    };
    let pairs = paired.chunks(2).map(|pair| joined(&pair[1], &pair[0]));
    let values: Vec<_> = pairs.chain(single.iter().cloned()).collect();
    let sum = |number: usize| {
        let mut sums = cut(step, &values, parts, number);
        let mut distance = parts / 2;
        while distance > 0 {
            sums = (0..parts)
                .map(|v| joined(&sums[v], &sums[v ^ distance]))
                .collect();
            distance /= 2;
        }
        sums.swap_remove(number)
    };
    (0..parts).flat_map(sum).collect()
}

/// Each part is reduced from the next rank on.
fn ring(step: &Step, all: &[Vec<u8>]) -> Vec<u8> {
    let ranks = all.len();
    let mut output = vec![0; all[0].len()];
    for part in 0..ranks {
        let mut sums = cut(step, all, ranks, part);
        sums.rotate_left((part + 1) % ranks);
        let (sum, others) = sums.split_at_mut(1);
        others
            .iter()
            .for_each(|other| reduce(step, &mut sum[0], other));
        output[part_of(step, all[0].len(), ranks, part)].copy_from_slice(&sum[0]);
    }
    output
}

/// Within sites, then between them.
fn hierarchical(step: &Step, all: &[Vec<u8>], sites: &[u32]) -> Vec<u8> {
    let site_of = |rank: usize| sites.get(rank).copied().unwrap_or(0);
    let mut members: Vec<(u32, Vec<Vec<u8>>)> = Vec::new();
    for (rank, values) in all.iter().enumerate() {
        match members.iter_mut().find(|(site, _)| *site == site_of(rank)) {
            Some((_, ranks)) => ranks.push(values.clone()),
            None => members.push((site_of(rank), vec![values.clone()])),
        }
    }
    let members: Vec<_> = members.into_iter().map(|(_, ranks)| ranks).collect();
    let ranks = members[0].len();
    if members.iter().any(|site| site.len() != ranks) {
        let trees = members.iter().map(|site| {
            let site: Vec<_> = site.iter().collect();
            tree(step, &site, 0)
        });
        return ring(step, &trees.collect::<Vec<_>>());
    }
    let sums: Vec<_> = members.iter().map(|site| ring(step, site)).collect();
    (0..ranks)
        .flat_map(|part| ring(step, &cut(step, &sums, ranks, part)))
        .collect()
}

/// Reduces a range of the contributions in the order of ranks from `first` on, each without those
/// that are missing.
fn reduce_part(
    step: &Step,
    all: &[Vec<u8>],
    part: &Range<usize>,
    first: usize,
    missing: &[Missing],
    output: &mut [u8],
) {
    let ranks = all.len();
    let bounds = missing.iter().map(|missing| to_usize(&missing.range));
    let bounds = bounds.flat_map(|range| [range.start, range.end]);
    let mut bounds: Vec<usize> = bounds.filter(|at| part.contains(at)).collect();
    bounds.extend([part.start, part.end]);
    bounds.sort_unstable();
    for bound in bounds.windows(2).filter(|bound| bound[0] < bound[1]) {
        let range = bound[0]..bound[1];
        let lacks = missing
            .iter()
            .find(|missing| to_usize(&missing.range).contains(&range.start));
        let lacks = lacks.map_or(&[][..], |missing| &missing.ranks);
        let order = (0..ranks).map(|distance| (first + distance) % ranks);
        let order: Vec<usize> = order.filter(|rank| !lacks.contains(rank)).collect();
        let mut sum: Option<Vec<u8>> = None;
        for &rank in &order {
            let bytes = &all[rank][range.clone()];
            match &mut sum {
                None => sum = Some(bytes.to_vec()),
                Some(sum) => reduce(step, sum, bytes),
            }
        }
        let sum = sum.map_or(vec![0; range.len()], |sum| divided(step, sum, order.len()));
        output[range].copy_from_slice(&sum);
    }
}

/// What a rank of a binomial tree with root 0 sends to its parent.
fn tree(step: &Step, all: &[&Vec<u8>], rank: usize) -> Vec<u8> {
    let mut sum = all[rank].clone();
    let mut bit = 1;
    while rank & bit == 0 && rank + bit < all.len() {
        reduce(step, &mut sum, &tree(step, all, rank + bit));
        bit <<= 1;
    }
    sum
}

fn reduce(step: &Step, sum: &mut [u8], bytes: &[u8]) {
    let (element, reduction) = step.values().expect("it reduces");
    kernel::reduce(element, reduction, sum, bytes);
}

fn divided(step: &Step, mut sum: Vec<u8>, ranks: usize) -> Vec<u8> {
    let (element, reduction) = step.values().expect("it reduces");
    if reduction == Reduction::Mean && ranks > 1 {
        kernel::divide(element, &mut sum, u32::try_from(ranks).expect("few ranks"));
    }
    sum
}

pub(super) fn to_usize(range: &Range<u64>) -> Range<usize> {
    let at = |at| usize::try_from(at).expect("it fits memory");
    at(range.start)..at(range.end)
}
