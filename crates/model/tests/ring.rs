//! Tests of the planner for rings of sites.

use farwrite_model::plan::{Objective, Question, Ring, RingLink, RingPlan};
use farwrite_model::{Collective, ModelError, Setting, Variant};

const CLOSE: f64 = 0.01;

/// A step of 1 MB at 1 Gbit/s, with selective repeat.
fn link(rtt_s: f64, loss: f64) -> RingLink {
    let mut question = Question::new(1_024_000.0, 1e9, rtt_s, loss);
    question.candidates = vec!["sr-nack".parse().unwrap()];
    RingLink::new(&question).unwrap()
}

fn plan(links: &[Vec<Option<&RingLink>>], steps: usize) -> Result<RingPlan, ModelError> {
    Ring::new(links.to_vec(), steps, Objective::Mean, CLOSE)?.plan()
}

#[test]
fn without_losses_the_time_is_that_of_the_slowest_way_around() {
    let links = [0.01, 0.02, 0.03, 0.04].map(|rtt_s| link(rtt_s, 0.0));
    let [a, b, c, d] = links.each_ref();
    // Sites 0 and 2 are far apart, and 1 and 3.
    let far = link(0.5, 0.0);
    let links = [
        vec![None, Some(a), Some(&far), Some(d)],
        vec![Some(a), None, Some(b), Some(&far)],
        vec![Some(&far), Some(b), None, Some(c)],
        vec![Some(d), Some(&far), Some(c), None],
    ];
    let times = plan(&links, 6).unwrap();
    assert_eq!((times.orders, &times.best), (3, &times.given));
    // Six steps: all four paths once, and the two longest ones again, which follow each other.
    let (injected_s, trips_s) = (6.0 * 8.192e-3, 0.1 + 0.03 + 0.04);
    assert!(
        (times.best.mean_s - injected_s - trips_s).abs() < 1e-9,
        "{times:?}"
    );
    assert_eq!(times.best.drawn, None);

    // The same sites in an order that takes both long paths.
    let order = [0, 2, 1, 3];
    let moved = |from: usize| {
        order
            .iter()
            .map(|to: &usize| links[order[from]][*to])
            .collect()
    };
    let moved: Vec<Vec<_>> = (0..4).map(moved).collect();
    let found = plan(&moved, 6).unwrap();
    assert_eq!(found.best.order, [0, 2, 1, 3]);
    assert!((found.best.mean_s - times.best.mean_s).abs() < 1e-9);
    assert!(found.given.mean_s > 1.0, "{found:?}");
}

/// From a site to the next is near, and back is far.
#[test]
fn the_direction_counts_if_paths_differ_by_it() {
    let (near, far) = (link(0.01, 0.0), link(0.1, 0.0));
    let at = |from: usize, to: usize| match (to + 5 - from) % 5 {
        0 => None,
        4 => Some(&near),
        _ => Some(&far),
    };
    let links: Vec<Vec<_>> = (0..5)
        .map(|from| (0..5).map(|to| at(from, to)).collect())
        .collect();
    let found = plan(&links, 4).unwrap();
    assert_eq!((found.orders, found.best.order), (24, vec![0, 4, 3, 2, 1]));
}

/// A path that is ten times as slow has one step after the other.
#[test]
fn steps_over_a_path_leave_one_after_the_other() {
    let fast = link(0.001, 0.0);
    let mut question = Question::new(1_024_000.0, 1e8, 0.001, 0.0);
    question.candidates = vec!["sr-nack".parse().unwrap()];
    let slow = RingLink::new(&question).unwrap();
    let links = [
        vec![None, Some(&slow), Some(&fast)],
        vec![Some(&fast), None, Some(&fast)],
        vec![Some(&fast), Some(&fast), None],
    ];
    let found = plan(&links, 4).unwrap();
    // Four parts cross the slow path.
    assert!(found.given.mean_s >= 4.0 * 81.92e-3, "{found:?}");
    // The other direction avoids it.
    assert_eq!(found.best.order, [0, 2, 1]);
    assert!(found.best.mean_s < 0.04, "{found:?}");
}

/// With equal paths, the mean lies between the bounds of the model of equal transfers.
#[test]
fn equal_paths_are_within_the_bounds_of_a_collective() {
    let lossy = link(0.02, 2e-3);
    let at = |from: usize, to: usize| (from != to).then_some(&lossy);
    let links: Vec<Vec<_>> = (0..6)
        .map(|from| (0..6).map(|to| at(from, to)).collect())
        .collect();
    let found = plan(&links, 10).unwrap();
    // No order is better than the given one by more than chance.
    assert_eq!(found.best, found.given);
    let mut setting = Setting::new(
        "sr-nack".parse().unwrap(),
        6.0 * 1_024_000.0,
        1e9,
        0.02,
        2e-3,
    );
    setting.variant = Variant::Protocol;
    let bounds = Collective::Ring.completion_time(6, &setting).unwrap();
    let mean_s = found.given.mean_s;
    assert!(
        bounds.path().mean() < mean_s,
        "{mean_s} {}",
        bounds.path().mean()
    );
    assert!(
        mean_s < bounds.barrier().mean(),
        "{mean_s} {}",
        bounds.barrier().mean()
    );
    let drawn = found.given.drawn.unwrap();
    assert!(drawn.mean.low_s < mean_s && Some(mean_s) < drawn.mean.high_s);
    assert!(mean_s < found.given.p99_s && found.given.p99_s <= found.given.p999_s);
}

#[test]
fn what_a_ring_needs_is_told() {
    let some = link(0.01, 0.0);
    let refused = plan(&[vec![None]], 0).unwrap_err().to_string();
    assert_eq!(refused, "sites = 1 sites: must be 2 to 64");
    let refused = plan(&[vec![None, Some(&some)], vec![None, None]], 2).unwrap_err();
    assert_eq!(refused, ModelError::NoPath(1, 0));
}
