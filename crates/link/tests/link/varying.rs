//! Delay that varies.

use std::time::Duration;

use crate::common::{datagram, link, number};
use farwrite_link::{ConfigError, Link, LinkConfig, Loss, Spread, Step, Variation};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A link of 20 ms with a variation.
fn varying(variation: Variation) -> LinkConfig {
    LinkConfig {
        delay: ms(20),
        variation,
        ..LinkConfig::default()
    }
}

fn uniform(most: Duration, every: Duration) -> Variation {
    Variation {
        spread: Spread::Uniform { most },
        every,
        overtakes: false,
    }
}

/// Sends a datagram every `gap_ns`. Returns the number and the delay of each, in the order of
/// arrival.
fn delays(link: &mut Link, gap_ns: u64, count: u32) -> Vec<(u32, u64)> {
    let mut arrived = Vec::new();
    for i in 0..count {
        link.send(u64::from(i) * gap_ns, datagram(i, 100));
    }
    while let Some(due_ns) = link.next_ns() {
        let number = number(&link.poll(due_ns).expect("due"));
        arrived.push((number, due_ns - u64::from(number) * gap_ns));
    }
    arrived
}

fn extra_ns(link: &mut Link, gap_ns: u64, count: u32) -> Vec<u64> {
    let mut delays = delays(link, gap_ns, count);
    delays.sort_unstable();
    let extra = delays.into_iter().map(|(_, delay_ns)| delay_ns - 20 * MS);
    extra.collect()
}

/// The share of values that lie below a limit.
fn share_below(values: &[u64], limit_ns: u64) -> f64 {
    let below = values.iter().filter(|value| **value < limit_ns).count();
    below as f64 / values.len() as f64
}

#[test]
fn datagrams_of_a_slot_share_its_delay() {
    let slot = varying(Variation {
        overtakes: true,
        ..uniform(ms(10), ms(30))
    });
    let extra = extra_ns(&mut link(slot, 3), MS, 3000);
    let slots: Vec<_> = extra.chunks(30).collect();
    assert!(slots.iter().all(|slot| slot.iter().all(|d| *d == slot[0])));
    let heads: Vec<_> = slots.iter().map(|slot| slot[0]).collect();
    assert!(heads.iter().all(|extra| *extra <= 10 * MS));
    let half = share_below(&heads, 5 * MS);
    assert!((0.35..0.65).contains(&half), "{half}");
}

/// A sender that sends less often meets the same delays. This is what makes two senders comparable.
#[test]
fn the_delay_of_a_slot_does_not_depend_on_what_is_sent() {
    for spread in [
        Spread::Uniform { most: ms(10) },
        Spread::Normal {
            deviation: ms(4),
            most: ms(9),
        },
        Spread::Spikes {
            share: 0.3,
            most: ms(20),
        },
    ] {
        let config = varying(Variation {
            spread,
            every: ms(10),
            overtakes: true,
        });
        let often = extra_ns(&mut link(config, 5), MS, 1000);
        let seldom = extra_ns(&mut link(config, 5), 50 * MS, 20);
        for (i, extra) in seldom.iter().enumerate() {
            assert_eq!(*extra, often[50 * i], "{spread:?}");
        }
        let other = extra_ns(&mut link(config, 6), MS, 1000);
        assert_ne!(often, other, "another seed");
    }
}

#[test]
fn each_datagram_has_its_own_delay_without_slots() {
    let config = varying(Variation {
        spread: Spread::Normal {
            deviation: ms(4),
            most: ms(10),
        },
        every: Duration::ZERO,
        overtakes: true,
    });
    let extra = extra_ns(&mut link(config, 1), 100, 20_000);
    assert!(extra.iter().all(|extra| *extra <= 10 * MS));
    // The normal distribution between 0 and 2.5 deviations: erf(x / sqrt 2) / erf(2.5 / sqrt 2).
    for (limit_ms, want) in [(2, 0.3877), (4, 0.6913), (8, 0.9664)] {
        let share = share_below(&extra, limit_ms * MS);
        assert!((share - want).abs() < 0.012, "{limit_ms} ms: {share}");
    }
}

#[test]
fn spikes_take_their_share_of_slots() {
    let config = varying(Variation {
        spread: Spread::Spikes {
            share: 0.05,
            most: ms(20),
        },
        every: ms(10),
        overtakes: true,
    });
    let extra = extra_ns(&mut link(config, 1), 10 * MS, 20_000);
    let spikes: Vec<_> = extra.iter().filter(|extra| **extra > 0).collect();
    let share = spikes.len() as f64 / extra.len() as f64;
    assert!((0.045..0.055).contains(&share), "{share}");
    assert!(spikes.iter().any(|extra| **extra > 18 * MS));
    assert!(spikes.iter().all(|extra| **extra <= 20 * MS));
}

#[test]
fn a_step_changes_the_variation() {
    let steps = [
        Step {
            at: ms(100),
            variation: Some(uniform(ms(10), ms(1))),
            ..Step::default()
        },
        Step {
            at: ms(200),
            variation: Some(Variation::default()),
            ..Step::default()
        },
    ];
    let config = varying(Variation::default());
    let mut link = Link::with_steps(config, &steps, 1).expect("valid");
    let extra = extra_ns(&mut link, MS, 300);
    // What comes at the end of the variation waits for those before it.
    assert!(extra[..100].iter().chain(&extra[210..]).all(|e| *e == 0));
    assert!(extra.windows(2).all(|pair| pair[1] + MS >= pair[0]));
    assert!(extra[100..200].iter().filter(|e| **e > MS).count() > 50);
}

/// An unused variation draws nothing, and a used one does not move the losses.
#[test]
fn losses_are_those_of_a_constant_delay() {
    let lossy = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.2 },
        ..varying(Variation::default())
    };
    let numbers = |config| {
        let arrived = delays(&mut link(config, 9), 1000, 1000);
        let mut numbers: Vec<_> = arrived.into_iter().map(|(number, _)| number).collect();
        numbers.sort_unstable();
        numbers
    };
    let constant = numbers(lossy);
    for every in [Duration::ZERO, ms(1)] {
        let variation = uniform(ms(3), every);
        assert_eq!(numbers(LinkConfig { variation, ..lossy }), constant);
    }
}

#[test]
fn values_out_of_range_are_refused() {
    let spikes = Spread::Spikes {
        share: 1.5,
        most: ms(1),
    };
    let normal = Spread::Normal {
        deviation: Duration::ZERO,
        most: ms(1),
    };
    let day = ms(86_400_001);
    for (variation, want) in [
        (uniform(day, ms(1)), "variation.most"),
        (uniform(ms(1), day), "variation.every"),
        (
            Variation {
                spread: spikes,
                ..Variation::default()
            },
            "variation.share = 1.5",
        ),
        (
            Variation {
                spread: normal,
                ..Variation::default()
            },
            "variation.deviation = 0s",
        ),
    ] {
        let config: Result<Link, ConfigError> = Link::new(varying(variation), 0);
        let text = config.expect_err(want).to_string();
        assert!(text.contains(want), "{text:?} lacks {want:?}");
    }
}

proptest! {
    /// In order, no datagram arrives before the one that was sent before it, and none earlier than
    /// its own delay.
    #[test]
    fn without_overtaking_the_order_stays(
        seed in any::<u64>(),
        most_ms in 1..50u64,
        every_ms in 0..20u64,
        gap_ns in 1..3 * MS,
    ) {
        let in_order = uniform(ms(most_ms), ms(every_ms));
        let free = Variation { overtakes: true, ..in_order };
        let arrived = delays(&mut link(varying(in_order), seed), gap_ns, 200);
        let own = extra_ns(&mut link(varying(free), seed), gap_ns, 200);
        let mut last_ns = 0;
        for (i, (number, delay_ns)) in (0..).zip(&arrived) {
            prop_assert_eq!(*number, i);
            let sent_ns = u64::from(i) * gap_ns;
            let own_ns = sent_ns + 20 * MS + own[i as usize];
            last_ns = own_ns.max(last_ns);
            prop_assert_eq!(sent_ns + delay_ns, last_ns);
        }
    }
}
