//! Losses, copies and corruption: their frequencies, and the sums of the counters.
//!
//! Seeds are constant, so all runs are equal. Bounds are at least 6.5 standard deviations wide: a
//! correct link fails for fewer than one of 10^9 seeds.

use std::time::Duration;

use crate::common::{datagram, link, number};
use farwrite_link::{LinkConfig, Loss, Passage, Policer, Ramp, Reorder, Spread, Variation, Wire};
use proptest::prelude::*;

pub(crate) const COUNT: u32 = 400_000;

/// Returns which of [`COUNT`] datagrams a link loses.
fn lost(loss: Loss, seed: u64) -> Vec<bool> {
    let mut link = link(
        LinkConfig {
            loss,
            ..LinkConfig::default()
        },
        seed,
    );
    (0..COUNT)
        .map(|i| {
            link.send(u64::from(i), datagram(i, 32));
            link.poll(u64::from(i)).is_none()
        })
        .collect()
}

pub(crate) fn share(of: usize, among: usize) -> f64 {
    of as f64 / among as f64
}

pub(crate) fn assert_near(what: &str, got: f64, want: f64, tolerance: f64) {
    assert!(
        (got - want).abs() < tolerance,
        "{what} = {got}, want {want} within {tolerance}"
    );
}

#[test]
fn iid_loss_has_its_mean_and_no_memory() {
    for (seed, loss_packet) in [(1, 1e-3), (2, 0.1), (3, 0.5), (4, 0.9)] {
        let lost = lost(Loss::Iid { loss_packet }, seed);
        let count = lost.iter().filter(|lost| **lost).count();
        let sigma = (loss_packet * (1.0 - loss_packet) / f64::from(COUNT)).sqrt();
        assert_near("loss", share(count, lost.len()), loss_packet, 6.5 * sigma);

        // Datagrams after a loss are lost as often as all others.
        let followers: Vec<_> = lost.windows(2).filter(|pair| pair[0]).collect();
        let again = followers.iter().filter(|pair| pair[1]).count();
        let sigma = (loss_packet * (1.0 - loss_packet) / followers.len() as f64).sqrt();
        // With about 400 followers at 1e-3, the count has a Poisson distribution with mean 0.4, so
        // 12 are too many.
        let tolerance = (6.5 * sigma).max(12.0 / followers.len() as f64);
        assert_near(
            "loss after loss",
            share(again, followers.len()),
            loss_packet,
            tolerance,
        );
    }
}

#[test]
fn loss_of_0_and_1_is_exact() {
    assert!(lost(Loss::None, 1).iter().all(|lost| !lost));
    assert!(
        lost(Loss::Iid { loss_packet: 0.0 }, 1)
            .iter()
            .all(|lost| !lost)
    );
    assert!(
        lost(Loss::Iid { loss_packet: 1.0 }, 1)
            .iter()
            .all(|lost| *lost)
    );
}

#[test]
fn bit_errors_lose_long_datagrams_more_often() {
    let bit_error_rate = 1e-6;
    for payload_bytes in [4_u32, 1_000, 9_000] {
        let mut wire = Wire::new(
            LinkConfig {
                loss: Loss::BitErrors { bit_error_rate },
                ..LinkConfig::default()
            },
            u64::from(payload_bytes),
        )
        .expect("a valid configuration");
        let ip_bytes = u64::from(payload_bytes) + 28;
        let count = (0..COUNT)
            .filter(|_| wire.carry(0, ip_bytes, payload_bytes as usize) == Passage::Lost)
            .count();
        let bits = 8.0 * f64::from(payload_bytes + 28);
        let want = 1.0 - (1.0 - bit_error_rate).powf(bits);
        let sigma = (want * (1.0 - want) / f64::from(COUNT)).sqrt();
        assert_near("loss", share(count, COUNT as usize), want, 6.5 * sigma);
    }
}

#[test]
fn bit_error_rates_of_0_and_1_are_exact() {
    let none = lost(
        Loss::BitErrors {
            bit_error_rate: 0.0,
        },
        1,
    );
    assert!(none.iter().all(|lost| !lost));
    let all = lost(
        Loss::BitErrors {
            bit_error_rate: 1.0,
        },
        1,
    );
    assert!(all.iter().all(|lost| *lost));
}

#[test]
fn markov_loss_has_its_mean_and_its_bursts() {
    // Every datagram in the bad state is lost, so a burst of losses is a stay in this state.
    let (p_good_to_bad, p_bad_to_good) = (0.01, 0.2);
    let lost = lost(
        Loss::Markov {
            p_good_to_bad,
            p_bad_to_good,
            loss_good: 0.0,
            loss_bad: 1.0,
        },
        5,
    );
    let count = lost.iter().filter(|lost| **lost).count();
    let bursts: Vec<_> = lost
        .chunk_by(|a, b| a == b)
        .filter(|run| run[0])
        .map(<[bool]>::len)
        .collect();

    let bad = p_good_to_bad / (p_good_to_bad + p_bad_to_good);
    // Successes of a two-state chain: the variance of independent ones, times (1 + r) / (1 - r)
    // with r = 1 - p_good_to_bad - p_bad_to_good.
    let memory = 1.0 - p_good_to_bad - p_bad_to_good;
    let sigma = (bad * (1.0 - bad) / f64::from(COUNT) * (1.0 + memory) / (1.0 - memory)).sqrt();
    assert_near("loss", share(count, lost.len()), bad, 6.5 * sigma);

    // Geometric: mean 1 / p, variance (1 - p) / p^2.
    let sigma = (1.0 - p_bad_to_good).sqrt() / p_bad_to_good / (bursts.len() as f64).sqrt();
    let mean = share(bursts.iter().sum(), bursts.len());
    assert_near("burst length", mean, 1.0 / p_bad_to_good, 6.5 * sigma);
}

#[test]
fn markov_states_each_have_their_loss() {
    // The state changes after each datagram: datagrams 0, 2, 4.. are in the good state, 1, 3, 5..
    // in the bad state.
    let lost = lost(
        Loss::Markov {
            p_good_to_bad: 1.0,
            p_bad_to_good: 1.0,
            loss_good: 0.05,
            loss_bad: 0.6,
        },
        6,
    );
    for (first, want) in [(0, 0.05), (1, 0.6)] {
        let state: Vec<_> = lost.iter().skip(first).step_by(2).collect();
        let count = state.iter().filter(|lost| ***lost).count();
        let sigma = f64::sqrt(want * (1.0 - want) / state.len() as f64);
        assert_near("loss", share(count, state.len()), want, 6.5 * sigma);
    }
}

#[test]
fn a_seed_loses_the_same_datagrams_whatever_the_other_faults() {
    let survivors = |config| {
        let mut link = link(config, 9);
        (0..10_000)
            .filter_map(|i| {
                link.send(u64::from(i), datagram(i, 40));
                let first = link.poll(u64::from(i));
                while link.poll(u64::from(i)).is_some() {}
                first
            })
            .map(|datagram| number(&datagram))
            .collect::<Vec<_>>()
    };
    let plain = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.3 },
        ..LinkConfig::default()
    };
    let faulty = LinkConfig {
        duplicate: 0.2,
        reorder: Reorder {
            probability: 0.2,
            extra_delay: Duration::ZERO,
        },
        ..plain
    };
    assert_eq!(survivors(plain), survivors(faulty));
}

#[test]
fn copies_follow_their_originals_unchanged() {
    let mut link = link(
        LinkConfig {
            duplicate: 0.1,
            ..LinkConfig::default()
        },
        7,
    );
    let mut copies = 0u32;
    for i in 0..COUNT {
        link.send(0, datagram(i, 40));
        assert_eq!(link.poll(0), Some(datagram(i, 40)));
        if let Some(copy) = link.poll(0) {
            assert_eq!(copy, datagram(i, 40));
            copies += 1;
        }
        assert_eq!(link.poll(0), None);
    }
    assert_eq!(link.counters().duplicated, u64::from(copies));
    let sigma = f64::sqrt(0.1 * 0.9 / f64::from(COUNT));
    assert_near(
        "copies",
        f64::from(copies) / f64::from(COUNT),
        0.1,
        6.5 * sigma,
    );
}

#[test]
fn corruption_flips_one_bit_anywhere_in_the_payload() {
    let mut link = link(
        LinkConfig {
            corrupt: 0.25,
            ..LinkConfig::default()
        },
        8,
    );
    let sent = datagram(0, 28 + 16);
    let mut flips = [0u32; 16 * 8];
    for _ in 0..COUNT {
        link.send(0, sent.clone());
        let got = link.poll(0).unwrap();
        let wrong: Vec<_> = (0..flips.len())
            .filter(|bit| (got.payload[bit / 8] ^ sent.payload[bit / 8]) >> (bit % 8) & 1 == 1)
            .collect();
        assert!(wrong.len() <= 1 && got.payload.len() == 16);
        wrong.iter().for_each(|bit| flips[*bit] += 1);
    }
    let total: u32 = flips.iter().sum();
    assert_eq!(link.counters().corrupted, u64::from(total));
    let sigma = f64::sqrt(0.25 * 0.75 / f64::from(COUNT));
    assert_near(
        "corruption",
        f64::from(total) / f64::from(COUNT),
        0.25,
        6.5 * sigma,
    );
    // Each of 128 bits has the same share. The bound is 7.5 standard deviations because 128 bits
    // are checked.
    let mean = f64::from(total) / 128.0;
    for (bit, count) in flips.iter().enumerate() {
        assert_near(
            &format!("flips of bit {bit}"),
            f64::from(*count),
            mean,
            7.5 * mean.sqrt(),
        );
    }

    let mut empty = sent;
    empty.payload.clear();
    for _ in 0..100 {
        link.send(0, empty.clone());
        assert_eq!(link.poll(0).as_ref(), Some(&empty));
    }
}

/// Generates any configuration, with faults that are likely enough to happen.
fn configs() -> impl Strategy<Value = LinkConfig> {
    let probability = || prop_oneof![Just(0.0), 0.0..=0.5, Just(1.0)];
    let loss = prop_oneof![
        Just(Loss::None),
        probability().prop_map(|loss_packet| Loss::Iid { loss_packet }),
        probability().prop_map(|bit_error_rate| Loss::BitErrors { bit_error_rate }),
        (probability(), probability(), probability(), probability()).prop_map(|(a, b, c, d)| {
            Loss::Markov {
                p_good_to_bad: a,
                p_bad_to_good: b,
                loss_good: c,
                loss_bad: d,
            }
        }),
        (1..20_000u64, 1..20_000u64, probability(), probability()).prop_map(|(a, b, c, d)| {
            Loss::MarkovInTime {
                mean_good: Duration::from_nanos(a),
                mean_bad: Duration::from_nanos(b),
                loss_good: c,
                loss_bad: d,
            }
        }),
    ];
    let faults = (probability(), 0..5_000u64, probability(), probability());
    let path = (
        0..10_000u64,
        prop::option::of(1_000_000_000..100_000_000_000u64),
        prop::option::of(0..20_000u64),
        prop::option::of(0..20u64),
        prop::option::of(0..20_000u64),
        prop::option::of((0..10_000u64, 0..10_000u64, probability())),
    );
    let policer = prop::option::of((1_000_000..10_000_000_000u64, 0..20_000u64).prop_map(
        |(rate_bps, burst_bytes)| Policer {
            rate_bps,
            burst_bytes,
        },
    ));
    (path, loss, faults, variations(), policer).prop_map(
        |(path, loss, faults, variation, policer)| {
            let (delay_ns, rate_bps, queue_bytes, queue_packets, queue_ns, ecn) = path;
            LinkConfig {
                delay: Duration::from_nanos(delay_ns),
                rate_bps,
                queue_bytes,
                queue_packets,
                queue_time: queue_ns.map(Duration::from_nanos),
                ecn: ecn.map(|(low_bytes, more, most)| Ramp {
                    low_bytes,
                    high_bytes: low_bytes + more,
                    most,
                }),
                policer,
                loss,
                variation,
                reorder: Reorder {
                    probability: faults.0,
                    extra_delay: Duration::from_nanos(faults.1),
                },
                duplicate: faults.2,
                corrupt: faults.3,
            }
        },
    )
}

fn variations() -> impl Strategy<Value = Variation> {
    let most = || (0..5_000u64).prop_map(Duration::from_nanos);
    let spread = prop_oneof![
        Just(Spread::None),
        most().prop_map(|most| Spread::Uniform { most }),
        (1..5_000u64, most()).prop_map(|(deviation, most)| Spread::Normal {
            deviation: Duration::from_nanos(deviation),
            most,
        }),
        (0.0..=1.0, most()).prop_map(|(share, most)| Spread::Spikes { share, most }),
    ];
    (spread, 0..10_000u64, any::<bool>()).prop_map(|(spread, every_ns, overtakes)| Variation {
        spread,
        every: Duration::from_nanos(every_ns),
        overtakes,
    })
}

/// An action: after some time, send bytes (`Some`) or poll (`None`); or take the link down or up.
#[derive(Clone, Debug)]
enum Action {
    Send { after_ns: u64, ip_bytes: usize },
    Poll { after_ns: u64 },
    SetDown(bool),
}

fn steps() -> impl Strategy<Value = Vec<Action>> {
    let step = prop_oneof![
        30 => (0..2_000u64, 32..2_000usize)
            .prop_map(|(after_ns, ip_bytes)| Action::Send { after_ns, ip_bytes }),
        30 => (0..4_000u64).prop_map(|after_ns| Action::Poll { after_ns }),
        1 => any::<bool>().prop_map(Action::SetDown),
    ];
    prop::collection::vec(step, 0..200)
}

/// Runs the actions. Returns the datagrams that arrived with their times, and the link.
fn play(
    config: LinkConfig,
    seed: u64,
    steps: &[Action],
) -> (Vec<(u64, farwrite_link::Datagram)>, farwrite_link::Link) {
    let mut link = link(config, seed);
    let (mut now_ns, mut arrived) = (0, Vec::new());
    for (i, step) in (0..).zip(steps) {
        match *step {
            Action::Send { after_ns, ip_bytes } => {
                now_ns += after_ns;
                link.send(now_ns, datagram(i, ip_bytes));
            }
            Action::Poll { after_ns } => {
                now_ns += after_ns;
                while let Some(due_ns) = link.next_ns().filter(|due_ns| *due_ns <= now_ns) {
                    arrived.push((due_ns, link.poll(now_ns).expect("one is due")));
                }
                assert_eq!(link.poll(now_ns), None);
            }
            Action::SetDown(down) => link.set_down(down),
        }
    }
    (arrived, link)
}

proptest! {
    #[test]
    fn the_books_balance(config in configs(), seed: u64, steps in steps()) {
        let (arrived, link) = play(config, seed, &steps);
        let counters = link.counters();
        prop_assert_eq!(
            counters.offered + counters.duplicated,
            counters.delivered
                + counters.lost
                + counters.queue_dropped
                + counters.policed
                + link.in_flight()
        );
        let offered = steps.iter().filter(|step| matches!(step, Action::Send { .. })).count();
        prop_assert_eq!(counters.offered, offered as u64);
        prop_assert_eq!(counters.delivered, arrived.len() as u64);
        let bytes: u64 = arrived.iter().map(|(_, datagram)| datagram.ip_bytes()).sum();
        prop_assert_eq!(counters.delivered_bytes, bytes);
    }

    #[test]
    fn without_reordering_order_is_kept(config in configs(), seed: u64, steps in steps()) {
        let variation = Variation { overtakes: false, ..config.variation };
        let reorder = Reorder::default();
        let config = LinkConfig { variation, reorder, corrupt: 0.0, ..config };
        let (arrived, _) = play(config, seed, &steps);
        prop_assert!(arrived.is_sorted_by_key(|(_, datagram)| number(datagram)));
        prop_assert!(arrived.is_sorted_by_key(|(due_ns, _)| *due_ns));
    }

    #[test]
    fn the_same_seed_and_calls_give_the_same(config in configs(), seed: u64, steps in steps()) {
        let (first, link_a) = play(config, seed, &steps);
        let (second, link_b) = play(config, seed, &steps);
        prop_assert_eq!(first, second);
        prop_assert_eq!(link_a.counters(), link_b.counters());
    }
}

/// A printed seed must give the same case in all versions, so the streams must not change.
#[test]
fn a_seed_means_the_same_in_every_version() {
    let lost = lost(Loss::Iid { loss_packet: 0.01 }, 42);
    let first: Vec<_> = (0..)
        .zip(lost)
        .filter(|(_, lost)| *lost)
        .map(|(i, _)| i)
        .take(6)
        .collect();
    assert_eq!(first, [4, 52, 181, 200, 223, 252]);
}
