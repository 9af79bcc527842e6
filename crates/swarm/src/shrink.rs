//! Shrinks a plan: searches smaller plans that break the same rule.

use farwrite::CriticalRanges;
use farwrite_link::{LinkConfig, Loss, Reorder};
use farwrite_wire::control::Terms;

use crate::case::Case;
use crate::plan::{Ending, Fault, MessagePlan, Plan, Repair};

/// Highest number of runs to shrink one plan.
const MAX_RUNS: usize = 3_000;

/// The smallest plan found that breaks the same rule as `plan`. Returns `plan` itself if it breaks
/// no rule.
#[must_use]
pub fn shrink(plan: &Plan) -> Plan {
    let Some(violation) = plan.run().violation else {
        return plan.clone();
    };
    let mut runs = 0;
    shrink_while(plan, |candidate| {
        runs += 1;
        let report = (runs < MAX_RUNS).then(|| candidate.run());
        let violation_there = report.and_then(|report| report.violation);
        violation_there.is_some_and(|there| there.rule == violation.rule)
    })
}

/// The smallest plan found for which `breaks` is true. It must be true for `plan`.
fn shrink_while(plan: &Plan, mut breaks: impl FnMut(&Plan) -> bool) -> Plan {
    let mut best = plan.clone();
    while let Some(smaller) = step(&best, &mut breaks) {
        best = smaller;
    }
    best
}

/// A smaller plan; `None` if none breaks the rule.
fn step(plan: &Plan, breaks: &mut impl FnMut(&Plan) -> bool) -> Option<Plan> {
    let dropped = drop_messages(plan, breaks);
    if dropped.is_some() {
        return dropped;
    }
    candidates(plan).into_iter().find(breaks)
}

/// Removes messages, first many at a time.
fn drop_messages(plan: &Plan, breaks: &mut impl FnMut(&Plan) -> bool) -> Option<Plan> {
    let mut best = plan.clone();
    let mut run = plan.messages.len();
    while run > 0 {
        let mut at = 0;
        while at < best.messages.len() {
            let mut candidate = best.clone();
            let end = (at + run).min(candidate.messages.len());
            candidate.messages.drain(at..end);
            if breaks(&candidate) {
                best = candidate;
            } else {
                at += run;
            }
        }
        run /= 2;
    }
    (best.messages.len() < plan.messages.len()).then_some(best)
}

/// Plans that are simpler in one aspect.
fn candidates(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Plan)| {
        let mut candidate = plan.clone();
        change(&mut candidate);
        candidate.fit_reads();
        // Skip candidates equal to the plan, which would repeat forever.
        if format!("{candidate:?}") != format!("{plan:?}") {
            all.push(candidate);
        }
    };
    for fault in 0..plan.faults.len() {
        add(&|plan| {
            plan.faults.remove(fault);
        });
    }
    for pair in (0..plan.pairs.len()).rev() {
        add(&|plan| drop_pair(plan, pair));
    }
    for path in 0..plan.paths.len() {
        for link in 0..2 {
            for calm in CALMERS {
                add(&|plan| calm(&mut plan.paths[path].links[link]));
            }
        }
    }
    for pair in 0..plan.pairs.len() {
        add(&|plan| plan.pairs[pair].lag_ns = 0);
        add(&|plan| plan.pairs[pair].reads = [false; 2]);
        add(&|plan| plan.pairs[pair].options.sdr.channels = 1);
        add(&|plan| plan.pairs[pair].options.sdr.packets_per_chunk = 1);
        add(&|plan| plan.pairs[pair].options.reordering_window = None);
    }
    for message in 0..plan.messages.len() {
        for simplify in SIMPLIFIERS {
            add(&|plan| simplify(&mut plan.messages[message]));
        }
    }
    all
}

const CALMERS: [fn(&mut LinkConfig); 6] = [
    |link| link.loss = Loss::None,
    |link| link.reorder = Reorder::default(),
    |link| link.duplicate = 0.0,
    |link| link.corrupt = 0.0,
    |link| link.queue_bytes = None,
    |link| link.rate_bps = None,
];

const SIMPLIFIERS: [fn(&mut MessagePlan); 16] = [
    |message| message.send_limit_ns = None,
    |message| message.recv_limit_ns = None,
    |message| message.write_limits_ns.clear(),
    |message| {
        message.write_limits_ns.truncate(1);
    },
    |message| message.terms = Terms::default(),
    |message| message.terms.scheme = None,
    |message| message.terms.exact_length = false,
    |message| message.terms.accepts_partial = false,
    |message| message.critical = CriticalRanges::NONE,
    |message| {
        let first = message.critical.ranges().take(1);
        message.critical = CriticalRanges::new(first).expect("it was valid");
    },
    |message| {
        message.immediate = None;
        message.terms.immediate = false;
    },
    |message| {
        if matches!(message.scheme, Repair::Scheme(_)) {
            message.ending = Ending::Natural;
        }
    },
    |message| message.recv_ns = message.recv_ns.min(message.send_ns),
    |message| message.send_ns = message.send_ns.min(message.recv_ns),
    |message| message.capacity = message.capacity.min(message.bytes),
    |message| {
        if message.capacity >= message.bytes && message.scheme != Repair::Stream {
            // A message with the exact length of its receive keeps this property.
            let is_exact = message.terms.exact_length && message.capacity == message.bytes;
            message.bytes /= 2;
            message.critical = cut(&message.critical, message.bytes as u64);
            if is_exact {
                message.capacity = message.bytes;
            }
        }
    },
];

/// The parts of critical ranges that a message of `bytes` bytes has.
fn cut(critical: &CriticalRanges, bytes: u64) -> CriticalRanges {
    let parts = critical
        .ranges()
        .map(|range| range.start..range.end.min(bytes));
    let parts = parts.filter(|range| !range.is_empty());
    CriticalRanges::new(parts).expect("not more than there were")
}

/// Removes a queue pair, with its messages and its faults.
fn drop_pair(plan: &mut Plan, pair: usize) {
    plan.pairs.remove(pair);
    plan.messages.retain(|message| message.pair != pair);
    plan.faults.retain(|fault| {
        !matches!(
            fault,
            Fault::Late { pair: p, .. }
                | Fault::Replay { pair: p, .. }
                | Fault::Forgery { pair: p, .. }
                | Fault::Close { pair: p, .. }
            if *p == pair
        )
    });
    let renumber = |p: &mut usize| *p -= usize::from(*p > pair);
    plan.messages
        .iter_mut()
        .for_each(|message| renumber(&mut message.pair));
    for fault in &mut plan.faults {
        if let Fault::Late { pair, .. }
        | Fault::Replay { pair, .. }
        | Fault::Forgery { pair, .. }
        | Fault::Close { pair, .. } = fault
        {
            renumber(pair);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failure_needs_is_left_and_nothing_else() {
        let needs = |plan: &Plan| {
            let long = plan.messages.iter().any(|message| message.bytes >= 100);
            let cut = |fault: &Fault| matches!(fault, Fault::Cut { .. });
            long && plan.faults.iter().any(cut) && plan.paths[0].links[0].loss != Loss::None
        };
        let plan = (0..).map(Plan::draw).find(needs).expect("some seed");
        let small = shrink_while(&plan, needs);
        assert!(needs(&small));
        let counts = (small.pairs.len(), small.messages.len(), small.faults.len());
        assert_eq!(counts, (1, 1, 1));
        let message = &small.messages[0];
        assert!(message.bytes < 200, "{message}");
        assert_eq!((message.capacity, message.immediate), (message.bytes, None));
        assert_eq!(small.paths[0].links[1].loss, Loss::None);
    }

    #[test]
    fn a_deadline_and_a_demand_are_left_alone() {
        let needs = |plan: &Plan| {
            plan.messages.iter().any(|message| {
                let is_exact = message.terms.exact_length && message.bytes == message.capacity;
                // A stream is not shortened.
                message.scheme != Repair::Stream
                    && is_exact
                    && message.bytes >= 100
                    && message.recv_limit_ns.is_some()
            })
        };
        let has_more = |plan: &Plan| {
            plan.messages.iter().any(|message| {
                let terms = &message.terms;
                message.send_limit_ns.is_some() && terms.scheme.is_some() && terms.accepts_partial
            })
        };
        let mut plans = (0..).map(Plan::draw);
        let plan = plans.find(|plan| needs(plan) && has_more(plan));
        let small = shrink_while(&plan.expect("some seed"), needs);
        assert_eq!(small.messages.len(), 1);
        let message = &small.messages[0];
        assert!(message.bytes < 200, "{message}");
        let terms = Terms {
            exact_length: true,
            ..Terms::default()
        };
        assert_eq!((message.terms, message.send_limit_ns), (terms, None));
    }
}
