//! Tests of the planner.

use farwrite_model::plan::{Input, Objective, Question};
use farwrite_model::{Loss, ModelError, Scheme};

fn parsed(scheme: &str) -> Scheme {
    scheme.parse().unwrap()
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
        let plan = Question::new(message_bytes, 400e9, 25e-3, loss_chunk)
            .plan()
            .unwrap();
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
    let mut question = Question::new(1e8, 400e9, 25e-3, 1e-3);
    question.objective = "p99.9".parse().unwrap();
    question.max_parity_overhead = 0.125;
    let plan = question.plan().unwrap();
    let all = plan.alternatives();
    assert!(all.len() > 10 && plan.left_out().is_empty());
    for pair in all.windows(2) {
        assert!(pair[0].objective_s <= pair[1].objective_s);
    }
    for at in all {
        assert!(at.parity_overhead <= 0.125, "{at:?}");
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
    let mut question = Question::new(1e10, 400e9, 25e-3, 1e-4);
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
    let question = Question::new(1e10, 400e9, 25e-3, 1e-6);
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
        other.loss = Loss::Iid {
            loss_chunk: border.value * factor,
        };
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
    // The number of sets of XOR sub-groups is too large under Markov loss.
    assert!(matches!(
        plan.left_out(),
        [(_, ModelError::Unsupported { .. })]
    ));
    assert_eq!(plan.alternatives().len(), 2);
    assert_eq!(plan.sensitivity().unwrap()[0].name, "p_good_to_bad");
}

/// The groups of an erasure code are interleaved 32 chunks deep. So short bursts are like single losses
/// for it, and not for selective repeat.
#[test]
fn short_bursts_do_not_matter_to_interleaved_groups() {
    let mean_s = |scheme: &str, mean_burst: Option<f64>| {
        let mut question = Question::new(128e6, 400e9, 25e-3, 1e-3);
        if let Some(burst) = mean_burst {
            question.loss = Loss::Markov {
                p_good_to_bad: 1e-3 / burst / (1.0 - 1e-3),
                p_bad_to_good: 1.0 / burst,
                loss_good: 0.0,
                loss_bad: 1.0,
                packets_per_chunk: 1,
            };
        }
        question.candidates = vec![parsed(scheme)];
        question.plan().unwrap().best().mean_s
    };
    let coded = |burst| mean_s("ec-mds:32,8", burst);
    assert!((coded(Some(4.0)) / coded(None) - 1.0).abs() < 1e-9);
    assert!(coded(Some(50.0)) > 1.1 * coded(None));
    let repeated = |burst| mean_s("sr-nack", burst);
    assert!(repeated(Some(4.0)) < 0.99 * repeated(None));
}

#[test]
fn bad_questions_are_refused() {
    let good = Question::new(1e8, 400e9, 25e-3, 1e-3);
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
    assert_eq!("p99.9".parse::<Objective>().unwrap().to_string(), "p99.9");
    assert_eq!("mean".parse::<Objective>().unwrap().to_string(), "mean");
    for text in ["p100", "p", "99", "median", "p-1", "pNaN"] {
        assert!(text.parse::<Objective>().is_err(), "{text}");
    }
}
