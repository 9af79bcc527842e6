//! The completion times of a run beside those of another simulator.

use farwrite_units::show::real;
use serde::Serialize;

use super::{FlowMatching, OtherFlow, match_flows, planned_ns};
use crate::{Flow, Ideal, Outcome};

/// A flow of a run, a flow of the other simulator, or one that both have. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedFlow {
    /// Number of the run.
    pub run: usize,
    /// Index of the flow in the workload; `None`: the workload lacks it.
    pub flow: Option<usize>,
    /// Line of the other simulator's file; `None`: it lacks the flow.
    pub line: Option<usize>,
    /// Index of the sender among the hosts.
    pub src: usize,
    /// Index of the receiver among the hosts.
    pub dst: usize,
    /// Size of the flow; `None`: only the other simulator has it, and its file has no sizes.
    pub bytes: Option<u64>,
    /// The start in the input; `None`: a trigger starts the flow.
    pub planned_us: Option<f64>,
    /// The start in the other simulator's results, if they have it.
    pub their_start_us: Option<f64>,
    /// The completion time of the run.
    pub ours_us: Option<f64>,
    /// The completion time of the other simulator.
    pub theirs_us: Option<f64>,
    /// Which simulator has a time.
    pub found: Found,
}

/// Which simulator has a time for a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// Both.
    Both,
    /// The other simulator's file lacks the flow.
    OnlyOurs,
    /// The workload lacks the flow.
    OnlyTheirs,
    /// The flow did not end in this run.
    NotDone,
    /// The other simulator's file has the end of the flow, and neither its start nor an input with
    /// a start.
    NoStart,
}

impl Found {
    /// The name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::OnlyOurs => "only_ours",
            Self::OnlyTheirs => "only_theirs",
            Self::NotDone => "not_done",
            Self::NoStart => "no_start",
        }
    }
}

/// A time of another simulator that the cables do not allow. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TooFast {
    /// Line of the other simulator's file.
    pub line: usize,
    /// The completion time there.
    pub theirs_ns: f64,
    /// How long the cables of our topology take at least.
    pub least_ns: f64,
}

/// The flows of another simulator that end sooner than the cables of `ideal` allow.
pub fn too_fast(
    flows: &[Flow],
    theirs: &[OtherFlow],
    matching: &FlowMatching,
    ideal: &mut Ideal,
) -> Vec<TooFast> {
    /// Some simulators cut times to nanoseconds.
    const ROUNDING_NS: f64 = 2.0;
    let pairs = matching.pairs.iter();
    let found = pairs.filter_map(|&(number, peer)| {
        let (flow, peer) = (&flows[number], &theirs[peer]);
        if flow.is_endless() {
            return None;
        }
        let theirs_ns = peer.time_ns(planned_ns(flow))?;
        let least_ns = ideal.least_ns(flow.src, flow.dst, flow.bytes)?;
        (theirs_ns < least_ns - ROUNDING_NS).then_some(TooFast {
            line: peer.line,
            theirs_ns,
            least_ns,
        })
    });
    found.collect()
}

/// Compares the run of `flows` that has this number with the flows of another simulator: all flows of the run, then those
/// that only the other simulator has. `ids` is as in [`match_flows`].
#[must_use]
pub fn compare_flows(
    run: usize,
    flows: &[Flow],
    ids: &[Option<u64>],
    outcome: &Outcome,
    theirs: &[OtherFlow],
) -> Vec<ComparedFlow> {
    let matching = match_flows(flows, ids, theirs);
    let mut peers: Vec<Option<&OtherFlow>> = vec![None; flows.len()];
    for (flow, number) in matching.pairs {
        peers[flow] = Some(&theirs[number]);
    }
    let ours = peers.into_iter().enumerate();
    let ours = ours.map(|(number, peer)| compared(run, flows, outcome, number, peer));
    let only_theirs = matching.only_theirs.into_iter().map(|number| {
        let peer = &theirs[number];
        ComparedFlow {
            run,
            flow: None,
            line: Some(peer.line),
            src: peer.src,
            dst: peer.dst,
            bytes: peer.bytes,
            planned_us: None,
            their_start_us: us(peer.start_ns),
            ours_us: None,
            theirs_us: us(peer.time_ns(None)),
            found: Found::OnlyTheirs,
        }
    });
    ours.chain(only_theirs).collect()
}

fn compared(
    run: usize,
    flows: &[Flow],
    outcome: &Outcome,
    number: usize,
    peer: Option<&OtherFlow>,
) -> ComparedFlow {
    let flow = &flows[number];
    let ours_ns = outcome.flows[number].time_ns().map(real);
    let theirs_ns = peer.and_then(|peer| peer.time_ns(planned_ns(flow)));
    let found = match (peer, ours_ns, theirs_ns) {
        (None, ..) => Found::OnlyOurs,
        (_, None, _) => Found::NotDone,
        (_, _, None) => Found::NoStart,
        (_, Some(_), Some(_)) => Found::Both,
    };
    ComparedFlow {
        run,
        flow: Some(number),
        line: peer.map(|peer| peer.line),
        src: flow.src,
        dst: flow.dst,
        bytes: Some(flow.bytes),
        planned_us: us(planned_ns(flow)),
        their_start_us: us(peer.and_then(|peer| peer.start_ns)),
        ours_us: us(ours_ns),
        theirs_us: us(theirs_ns),
        found,
    }
}

fn us(ns: Option<f64>) -> Option<f64> {
    ns.map(|ns| ns / 1e3)
}
