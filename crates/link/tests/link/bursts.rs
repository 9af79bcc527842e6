//! Losses in bursts of a mean duration.
//!
//! Bounds are at least 6.5 standard deviations wide, as in `faults.rs`.

use std::time::Duration;

use crate::common::{datagram, link};
use crate::faults::{COUNT, assert_near, share};
use farwrite_link::{Link, LinkConfig, Loss};

const BURST: Duration = Duration::from_millis(1);

/// A link that loses datagrams at once or delivers them at once.
fn lossy(loss: Loss, seed: u64) -> Link {
    link(
        LinkConfig {
            loss,
            ..LinkConfig::default()
        },
        seed,
    )
}

/// Whether the link loses a datagram at this time.
fn loses(link: &mut Link, now_ns: u64) -> bool {
    link.send(now_ns, datagram(0, 32));
    link.poll(now_ns).is_none()
}

/// Seen every `step`, the chain is one that steps with each datagram: from bad to good with
/// `(1 - p) (1 - m)`, from good to bad with `p (1 - m)`, and `m = exp(-step / (burst (1 - p)))`.
#[test]
fn the_loss_and_the_bursts_are_as_asked_at_any_rate_of_datagrams() {
    let p = 0.1;
    // 20 datagrams in a burst; 2; one in about five bursts; one in 50 bursts.
    for (seed, step_us) in [(1, 50), (2, 500), (3, 5_000), (4, 50_000)] {
        let mut link = lossy(Loss::in_timed_bursts(p, BURST), seed);
        let step_ns = step_us * 1000;
        let lost: Vec<_> = (0..u64::from(COUNT))
            .map(|i| loses(&mut link, 7_000_000_000 + i * step_ns))
            .collect();
        let memory = (-(step_us as f64) / (1000.0 * (1.0 - p))).exp();

        let count = lost.iter().filter(|lost| **lost).count();
        let sigma = (p * (1.0 - p) / f64::from(COUNT) * (1.0 + memory) / (1.0 - memory)).sqrt();
        assert_near("loss", share(count, lost.len()), p, 6.5 * sigma);

        let runs: Vec<_> = lost
            .chunk_by(|a, b| a == b)
            .filter(|run| run[0])
            .map(<[bool]>::len)
            .collect();
        let leave = (1.0 - p) * (1.0 - memory);
        let sigma = (1.0 - leave).sqrt() / leave / (runs.len() as f64).sqrt();
        let mean = share(runs.iter().sum(), runs.len());
        assert_near("run of losses", mean, 1.0 / leave, 6.5 * sigma);
    }
}

/// Both states lose a share of the datagrams.
#[test]
fn each_state_has_its_loss_and_its_mean_time() {
    let loss = Loss::MarkovInTime {
        mean_good: Duration::from_micros(300),
        mean_bad: Duration::from_micros(100),
        loss_good: 0.1,
        loss_bad: 0.9,
    };
    let mut link = lossy(loss, 5);
    let count = (0..u64::from(COUNT))
        .filter(|i| loses(&mut link, i * 20_000))
        .count();
    // A quarter of the time is bad: variance of the states plus that of the draws.
    let memory = (-20.0_f64 * (1.0 / 300.0 + 1.0 / 100.0)).exp();
    let states = 0.64 * 0.1875 * (1.0 + memory) / (1.0 - memory);
    let sigma = ((states + 0.09) / f64::from(COUNT)).sqrt();
    assert_near("loss", share(count, COUNT as usize), 0.3, 6.5 * sigma);
}

#[test]
fn an_idle_path_recovers() {
    /// Share of the datagrams that are lost if they are sent 20 bursts after a lost one.
    fn lost_later(loss: Loss) -> f64 {
        let (mut link, mut now_ns, mut lost) = (lossy(loss, 6), 0, 0);
        for _ in 0..2_000 {
            while !loses(&mut link, now_ns) {
                now_ns += 100_000;
            }
            now_ns += 20_000_000;
            lost += usize::from(loses(&mut link, now_ns));
        }
        share(lost, 2_000)
    }
    let p = 0.02;
    let sigma = (p * (1.0 - p) / 2_000.0_f64).sqrt();
    assert_near(
        "loss",
        lost_later(Loss::in_timed_bursts(p, BURST)),
        p,
        6.5 * sigma,
    );
    // A chain that steps with datagrams stays where it was.
    assert_near("loss", lost_later(Loss::in_bursts(p, 10.0)), 0.9, 0.05);
}

#[test]
fn the_first_datagram_meets_the_mean_loss() {
    let first = (0..u64::from(COUNT) / 10)
        .filter(|seed| loses(&mut lossy(Loss::in_timed_bursts(0.2, BURST), *seed), 12_345))
        .count();
    let sigma = (0.16 / f64::from(COUNT / 10)).sqrt();
    assert_near("loss", share(first, COUNT as usize / 10), 0.2, 6.5 * sigma);
}

#[test]
fn extremes_of_time_and_loss_have_their_loss() {
    let count = |loss, times: &[u64]| {
        let mut link = lossy(loss, 7);
        times.iter().filter(|at| loses(&mut link, **at)).count()
    };
    let times = [0, 1, 1 << 40, 1 << 63, u64::MAX];
    assert_eq!(count(Loss::in_timed_bursts(0.0, BURST), &times), 0);
    let day = Duration::from_secs(86_400);
    // A burst of a day, with good times of 10^-15 of it, ends for less than a nanosecond.
    let always = Loss::MarkovInTime {
        mean_good: Duration::from_nanos(1),
        mean_bad: day,
        loss_good: 0.0,
        loss_bad: 1.0,
    };
    assert_eq!(count(always, &times), times.len());
    assert_eq!(count(Loss::in_timed_bursts(1e-12, day), &times), 0);
}

/// A printed seed must give the same case in all versions, so the draws must not change.
#[test]
fn a_seed_means_the_same_in_every_version() {
    let mut link = lossy(Loss::in_timed_bursts(0.01, BURST), 42);
    let lost: Vec<_> = (0..10_000u64)
        .filter(|i| loses(&mut link, i * 100_000))
        .collect();
    let starts: Vec<_> = lost
        .chunk_by(|a, b| a + 1 == *b)
        .map(|run| (run[0], run.len()))
        .collect();
    assert_eq!(starts[..4], [(452, 20), (953, 4), (1578, 1), (1839, 8)]);
}
