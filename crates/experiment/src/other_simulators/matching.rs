//! Which flow of a workload is which flow in the results of another simulator.

use std::collections::BTreeMap;

use farwrite_units::show::real;

use super::{OtherFlow, OtherTime};
use crate::{Flow, Start};

/// Largest difference of two starts of one flow. ns-3 cuts times to nanoseconds where the reader of
/// its flows rounds them.
const START_TOLERANCE_NS: f64 = 1000.0;

/// The flows of a workload beside those of another simulator. All numbers are indices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowMatching {
    /// Each flow of the workload with the same flow of the peer, in the order of the workload.
    pub pairs: Vec<(usize, usize)>,
    /// Flows of the workload that the peer's results lack.
    pub only_ours: Vec<usize>,
    /// Flows in the peer's results that the workload lacks.
    pub only_theirs: Vec<usize>,
}

/// Matches flows. `ids` has the `id` of each flow in a connection matrix, or is empty.
///
/// Flows of ns-3 match if hosts and size are the same and their starts differ by at most a
/// microsecond. Flows of htsim match by `id` and hosts. Without an `id`, the flows between two hosts
/// match in the order of the matrix, if the peer completed as many and its log has their order.
#[must_use]
pub fn match_flows(ours: &[Flow], ids: &[Option<u64>], theirs: &[OtherFlow]) -> FlowMatching {
    let mut matching = FlowMatching::default();
    let mut is_matched = vec![false; ours.len()];
    let by_id: BTreeMap<u64, usize> = ids
        .iter()
        .enumerate()
        .filter_map(|(flow, id)| Some(((*id)?, flow)))
        .collect();
    let mut groups: BTreeMap<_, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    for (number, peer) in theirs.iter().enumerate() {
        let known = peer.id.and_then(|id| by_id.get(&id).copied());
        let known = known.filter(|flow| {
            let flow = (ours[*flow].src, ours[*flow].dst, is_matched[*flow]);
            flow == (peer.src, peer.dst, false)
        });
        if let Some(flow) = known {
            is_matched[flow] = true;
            matching.pairs.push((flow, number));
        } else {
            let group = groups.entry((peer.src, peer.dst, peer.bytes));
            group.or_default().1.push(number);
        }
    }
    let has_bytes = theirs.iter().any(|peer| peer.bytes.is_some());
    for (number, flow) in ours.iter().enumerate() {
        if !is_matched[number] {
            let group = groups.entry((flow.src, flow.dst, has_bytes.then_some(flow.bytes)));
            group.or_default().0.push(number);
        }
    }
    for group in groups.into_values() {
        matching.add(ours, theirs, group);
    }
    matching.pairs.sort_unstable();
    matching.only_ours.sort_unstable();
    matching.only_theirs.sort_unstable();
    matching
}

/// The time at which a flow starts in its input; `None` if a trigger starts it.
#[must_use]
pub fn planned_ns(flow: &Flow) -> Option<f64> {
    match flow.start {
        Start::At(ns) => Some(real(ns)),
        Start::On(_) => None,
    }
}

impl FlowMatching {
    /// Matches the flows between two hosts, of one size if the peer has sizes.
    fn add(
        &mut self,
        ours: &[Flow],
        theirs: &[OtherFlow],
        (mut of_ours, mut of_theirs): (Vec<usize>, Vec<usize>),
    ) {
        let ours_ns = |number: usize| planned_ns(&ours[number]);
        let theirs_ns = |number: usize| theirs[number].start_ns;
        let is_ns3 = |at: &usize| matches!(theirs[*at].time, OtherTime::Duration(_));
        of_theirs.sort_by_key(|at| theirs[*at].order);
        if !of_theirs.iter().all(is_ns3) {
            let has_order = of_theirs.iter().all(|at| theirs[*at].order.is_some());
            if of_ours.len() == of_theirs.len() && (has_order || of_ours.len() == 1) {
                self.pairs.extend(of_ours.into_iter().zip(of_theirs));
            } else {
                self.only_ours.extend(of_ours);
                self.only_theirs.extend(of_theirs);
            }
            return;
        }
        let start = |at: Option<f64>| at.unwrap_or(f64::INFINITY);
        // Both sorts keep the order of flows with equal starts.
        of_ours.sort_by(|a, b| start(ours_ns(*a)).total_cmp(&start(ours_ns(*b))));
        of_theirs.sort_by(|a, b| start(theirs_ns(*a)).total_cmp(&start(theirs_ns(*b))));
        let (mut ours_left, mut theirs_left) = (
            of_ours.into_iter().peekable(),
            of_theirs.into_iter().peekable(),
        );
        while let (Some(&one), Some(&other)) = (ours_left.peek(), theirs_left.peek()) {
            let apart_ns = start(ours_ns(one)) - start(theirs_ns(other));
            if apart_ns.abs() <= START_TOLERANCE_NS {
                self.pairs.push((one, other));
            } else if apart_ns < 0.0 {
                self.only_ours.push(one);
            } else {
                self.only_theirs.push(other);
            }
            if apart_ns <= START_TOLERANCE_NS {
                ours_left.next();
            }
            if apart_ns >= -START_TOLERANCE_NS {
                theirs_left.next();
            }
        }
        self.only_ours.extend(ours_left);
        self.only_theirs.extend(theirs_left);
    }
}
