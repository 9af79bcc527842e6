//! Tests of the planner.

use farwrite_model::plan::{Input, Objective, Question};
use farwrite_model::{Loss, ModelError, Scheme};

fn parsed(scheme: &str) -> Scheme {
    scheme.parse().unwrap()
}

/// A question about a path of 400 Gbit/s and 25 ms, between ends with the 8 cores of Fig. 11.
fn with_cores(message_bytes: f64, loss_chunk: f64) -> Question {
    let mut question = Question::new(message_bytes, 400e9, 25e-3, loss_chunk);
    question.coding.cores = 8.0;
    question
}

#[test]
fn answers_are_those_of_the_paper() {
    // Fig. 9 at 400 Gbit/s and 25 ms: erasure coding wins in the middle, selective repeat
    // elsewhere.
    for (message_bytes, loss_chunk, coded) in [
        (134_217_728.0, 1e-4, true),
        (134_217_728.0, 1e-2, true),
        (134_217_728.0, 1e-9, false),
        (1e12, 1e-5, false),
        (131_072.0, 1e-8, false),
    ] {
        let plan = with_cores(message_bytes, loss_chunk).plan().unwrap();
        let is_coded = matches!(plan.best().scheme, Scheme::Ec { .. });
        assert_eq!(
            is_coded,
            coded,
            "{message_bytes} {loss_chunk}: {:?}",
            plan.best()
        );
    }
}

#[test]
fn alternatives_are_in_order_and_within_the_budgets() {
    let mut question = with_cores(1e8, 1e-3);
    question.objective = "p99.9".parse().unwrap();
    question.max_parity_overhead = 0.125;
    let plan = question.plan().unwrap();
    let all = plan.alternatives();
    assert!(all.len() > 10);
    let is_beyond = |(_, error): &(_, ModelError)| matches!(error, ModelError::ParityBudget(..));
    assert!(plan.left_out().iter().all(is_beyond));
    for pair in all.windows(2) {
        assert!(pair[0].objective_s <= pair[1].objective_s);
    }
    for at in all {
        // The last group is not full.
        let of_full = at.scheme.parity_overhead();
        assert!(of_full <= 0.125, "{at:?}");
        assert!(
            (of_full..1.01 * of_full + f64::EPSILON).contains(&at.parity_overhead),
            "{at:?}"
        );
        assert_eq!(at.objective_s, at.p999_s);
        assert!(at.p99_s <= at.p999_s && at.slowdown >= 1.0 - 1e-9, "{at:?}");
    }
    assert!(plan.best().objective_s <= 1.01 * all[0].objective_s);
    assert_eq!(plan.relative_cost(plan.best().scheme), Some(1.0));
    assert!(plan.relative_cost(Scheme::SrRto).unwrap() > 2.0);
    assert_eq!(plan.relative_cost(parsed("ec-mds:4,1")), None);

    question.coding.cores = 0.0;
    let plan = question.plan().unwrap();
    assert_eq!(
        (plan.best().scheme, plan.alternatives().len()),
        (Scheme::SrNack, 3)
    );
}

#[test]
fn few_cores_rule_out_what_they_cannot_compute() {
    let mut question = with_cores(1e10, 1e-4);
    question.candidates = vec![
        parsed("sr-rto"),
        parsed("ec-mds:32,8"),
        parsed("ec-xor:32,8"),
    ];
    let cost = |question: &Question| {
        let plan = question.plan().unwrap();
        plan.relative_cost(parsed("ec-mds:32,8")).unwrap()
            / plan.relative_cost(parsed("ec-xor:32,8")).unwrap()
    };
    // The cores of Fig. 11: 8 are enough for both codes, 4 only for XOR.
    assert!(cost(&question) < 1.01);
    question.coding.cores = 4.0;
    assert!(cost(&question) > 1.5);
    let plan = question.plan().unwrap();
    let mds = plan
        .alternatives()
        .iter()
        .find(|at| at.scheme == parsed("ec-mds:32,8"))
        .unwrap();
    assert!((mds.cores - 6.4).abs() < 1e-9, "{}", mds.cores);
}

#[test]
fn borders_are_where_the_answer_changes() {
    let question = with_cores(1e10, 1e-6);
    let plan = question.plan().unwrap();
    let sensitivity = plan.sensitivity().unwrap();
    assert_eq!(sensitivity.len(), 4);
    let loss = &sensitivity[0];
    assert_eq!(
        (loss.input, loss.name, loss.value),
        (Input::Loss, "loss_chunk", 1e-6)
    );
    let border = loss.above.unwrap();
    for (factor, holds) in [(0.95, true), (1.02, false)] {
        let mut other = question.clone();
        other.loss = Loss::iid(border.value * factor);
        let cost = other.plan().unwrap();
        let least = cost.alternatives()[0].objective_s;
        let answer = cost
            .alternatives()
            .iter()
            .find(|at| at.scheme == plan.best().scheme)
            .unwrap();
        assert_eq!(
            answer.objective_s <= 1.01 * least,
            holds,
            "{factor} {border:?}"
        );
    }
    for one in &sensitivity {
        assert_eq!(one.stakes.len(), 4);
        assert!(one.stakes.iter().all(|stake| stake.cost >= 1.0));
    }
}

#[test]
fn bursts_are_planned_for_too() {
    let mut question = Question::new(1e7, 100e9, 10e-3, 0.0);
    question.loss = Loss::Markov {
        p_good_to_bad: 1e-4,
        p_bad_to_good: 0.1,
        loss_good: 0.0,
        loss_bad: 0.5,
        packets_per_chunk: 1,
    };
    question.candidates = ["sr-nack", "ec-xor:128,32", "ec-mds:32,8"]
        .map(parsed)
        .to_vec();
    let plan = question.plan().unwrap();
    assert_eq!((plan.left_out().len(), plan.alternatives().len()), (0, 3));
    assert_eq!(plan.sensitivity().unwrap()[0].name, "p_good_to_bad");
}

/// A path of 25 ms that loses chunks in bursts of this mean length.
fn in_bursts(bytes: f64, bandwidth_bps: f64, loss: f64, mean_burst: f64) -> Question {
    let mut question = Question::new(bytes, bandwidth_bps, 25e-3, 0.0);
    question.coding.cores = 8.0;
    question.loss = Loss::Markov {
        p_good_to_bad: loss / mean_burst / (1.0 - loss),
        p_bad_to_good: 1.0 / mean_burst,
        loss_good: 0.0,
        loss_bad: 1.0,
        packets_per_chunk: 1,
    };
    question
}

/// The groups of an erasure code are interleaved 32 chunks deep. So bursts are like single losses
/// for it as long as each group loses few chunks of a burst, and for selective repeat they are fewer
/// losses.
#[test]
fn bursts_shorter_than_a_row_do_not_matter_to_interleaved_groups() {
    let mean_s = |scheme: &str, loss: f64, mean_burst: f64| {
        let mut question = in_bursts(128e6, 400e9, loss, mean_burst);
        if mean_burst == 1.0 {
            question.loss = Loss::iid(loss);
        }
        question.candidates = vec![parsed(scheme)];
        let plan = question.plan().unwrap();
        assert_eq!(plan.best().drawn.is_some(), mean_burst > 1.0);
        plan.best().mean_s
    };
    let coded = |loss, burst| mean_s("ec-mds:32,8", loss, burst);
    for burst in [4.0, 50.0] {
        let change = coded(1e-3, burst) / coded(1e-3, 1.0) - 1.0;
        assert!(change.abs() < 0.01, "{burst}: {change}");
    }
    // A burst of 500 takes 16 chunks of each group.
    assert!(coded(1e-2, 500.0) > 1.1 * coded(1e-2, 1.0));
    let repeated = |burst| mean_s("sr-nack", 1e-3, burst);
    assert!(repeated(4.0) < 0.99 * repeated(1.0));
}

/// Without interleaving, a burst of 20 would take more chunks of a group than any of these codes
/// repairs, and `sr-nack` would be best.
#[test]
fn codes_are_best_against_bursts_that_interleaving_spreads() {
    let mut question = in_bursts(64e6, 100e9, 1e-2, 20.0);
    question.candidates = ["sr-nack", "ec-mds:32,8", "ec-xor:32,8", "gbn"]
        .map(parsed)
        .to_vec();
    let plan = question.plan().unwrap();
    let best = plan.best();
    assert_eq!(best.scheme, parsed("ec-mds:32,8"));
    let drawn = best.drawn.unwrap();
    let (low_s, high_s) = (drawn.objective.low_s, drawn.objective.high_s.unwrap());
    assert!(low_s < best.mean_s && best.mean_s < high_s, "{best:?}");
    assert!(high_s < 1.03 * low_s, "{best:?}");
    assert_eq!(question.plan().unwrap().best(), best, "the same seed");
    let of = |scheme| {
        let found = plan
            .alternatives()
            .iter()
            .find(|at| at.scheme == parsed(scheme));
        found.unwrap().clone()
    };
    assert!(of("sr-nack").mean_s > 1.5 * best.mean_s);
    assert_eq!(of("gbn").drawn, None);
    // What is clearly not the best is drawn less often.
    assert!(of("sr-nack").drawn.unwrap().draws <= drawn.draws);
}

#[test]
fn schemes_that_cannot_be_used_are_named_with_the_reason() {
    let mut question = with_cores(1e8, 1e-3);
    question.candidates = ["sr-nack", "ec-mds:200,55", "ec-mds:250,10"]
        .map(parsed)
        .to_vec();
    let reasons = |question: &Question| {
        let plan = question.plan().unwrap();
        let reason = |(scheme, error): &(Scheme, ModelError)| format!("{scheme}: {error}");
        plan.left_out().iter().map(reason).collect::<Vec<_>>()
    };
    assert_eq!(
        reasons(&question),
        [
            "ec-mds:200,55: parity = 0.275 of the data: must be at most the parity budget, 0.25",
            "ec-mds:250,10: k + m with variant = \"protocol\" = 260: take at most 255, as the \
             protocol does (P5.4)",
        ]
    );
    question.max_parity_overhead = 0.3;
    assert_eq!(reasons(&question).len(), 1);
    question.coding.cores = 0.0;
    assert!(reasons(&question)[0].contains("cores = 0"));
    question.candidates.remove(0);
    let refused = question.plan().unwrap_err().to_string();
    let [wide, long] = ["ec-mds:200,55 (cores = 0: ", "ec-mds:250,10 (cores = 0: "];
    assert!(
        refused.contains(wide) && refused.contains(long),
        "{refused}"
    );
}

/// The budget is about full groups, and the answer about the message.
#[test]
fn the_parity_of_a_short_message_is_told() {
    let question = with_cores(4096.0, 0.2);
    let plan = question.plan().unwrap();
    let parity = |name| {
        let mut all = plan.alternatives().iter();
        let found = all.find(|at| at.scheme == parsed(name)).unwrap();
        found.parity_overhead
    };
    assert_eq!((parity("ec-mds:16,4"), parity("ec-mds:128,8")), (4.0, 8.0));
    assert_eq!(parity("sr-nack"), 0.0);
}

#[test]
fn bad_questions_are_refused() {
    let good = with_cores(1e8, 1e-3);
    let spoil: [fn(&mut Question); 6] = [
        |q| q.message_bytes = -1.0,
        |q| q.max_parity_overhead = f64::NAN,
        |q| q.coding.cores = -1.0,
        |q| q.close = 2.0,
        |q| q.candidates.clear(),
        |q| q.objective = Objective::Quantile(1.0),
    ];
    for spoil in spoil {
        let mut bad = good.clone();
        spoil(&mut bad);
        assert!(bad.plan().is_err(), "{bad:?}");
    }
    assert_eq!("p99".parse(), Ok(Objective::Quantile(0.99)));
    for text in ["p99.9", "p99.9999999999999"] {
        assert_eq!(text.parse::<Objective>().unwrap().to_string(), text);
    }
    assert_eq!("mean".parse::<Objective>().unwrap().to_string(), "mean");
    for text in ["p100", "p", "99", "median", "p-1", "pNaN"] {
        assert!(text.parse::<Objective>().is_err(), "{text}");
    }
}
