//! On paths in virtual time with known faults, a responder counts exactly these faults.

use farwrite_link::{Datagram, Link, LinkConfig, Loss, Reorder};
use farwrite_probe::estimate::{Bin, Bursts, RoundTrips, Share, Spread};
use farwrite_probe::message::{Trial, TrialCounts};
use farwrite_probe::trial_arrivals::{Arrival, TrialArrivals};
use proptest::prelude::*;
use std::time::Duration;

/// Interval between packets.
const GAP_NS: u64 = 10_000;

/// Returns the counts of a trial that crosses a path.
fn cross(config: LinkConfig, packets: u32, flows: u16, seed: u64) -> TrialCounts {
    let mut link = Link::new(config, seed).expect("a link that can be");
    let mut arrivals = TrialArrivals::new(Trial {
        id: 1,
        packets,
        flows,
    });
    let mut deliver = |link: &mut Link, now_ns: u64| {
        while let Some(due_ns) = link.next_ns().filter(|due_ns| *due_ns <= now_ns) {
            let datagram = link.poll(due_ns).expect("due");
            let sequence = datagram.payload[..4].try_into().expect("four bytes");
            arrivals.note(Arrival {
                sequence: u32::from_be_bytes(sequence),
                at_ns: due_ns,
                ecn_bits: 2,
            });
        }
    };
    for sequence in 0..packets {
        let now_ns = u64::from(sequence) * GAP_NS;
        deliver(&mut link, now_ns);
        let payload = [&sequence.to_be_bytes()[..], &[0; 96]].concat();
        link.send(
            now_ns,
            Datagram {
                src: ([192, 0, 2, 1], 1).into(),
                dst: ([192, 0, 2, 2], 2).into(),
                tos: 2,
                id: 0,
                payload,
            },
        );
    }
    deliver(&mut link, u64::MAX);
    arrivals.counts()
}

fn bursts(counts: &TrialCounts, packets: u32) -> Bursts {
    let lost = u64::from(packets - counts.received);
    let (bursts, longest) = (counts.bursts.into(), counts.longest_burst.into());
    Bursts::of(packets.into(), lost, bursts, longest).expect("losses")
}

#[test]
fn independent_losses_are_within_their_interval() {
    let mut outside = 0;
    for seed in 0..40 {
        let loss = Loss::Iid { loss_packet: 0.01 };
        let config = LinkConfig {
            loss,
            ..LinkConfig::default()
        };
        let counts = cross(config, 20_000, 16, seed);
        let lost = u64::from(20_000 - counts.received);
        let share = Share::of(lost, 20_000).expect("packets");
        outside += u32::from(!(share.low..=share.high).contains(&0.01));
        let mean = bursts(&counts, 20_000).mean_packets;
        assert!((1.0..1.06).contains(&mean), "{mean}");
        assert_eq!(counts.reordered, 0);
        assert_eq!(counts.ecn, [0, 0, counts.received, 0]);
        assert_eq!(counts.flows.iter().sum::<u32>(), counts.received);
    }
    // One in twenty is expected to be outside.
    assert!(outside <= 6, "{outside} of 40");
}

#[test]
fn the_chain_of_bursts_is_recovered() {
    for (to_bad, to_good) in [(0.002, 0.25), (0.01, 0.5), (0.001, 0.05)] {
        let loss = Loss::Markov {
            p_good_to_bad: to_bad,
            p_bad_to_good: to_good,
            loss_good: 0.0,
            loss_bad: 1.0,
        };
        let config = LinkConfig {
            loss,
            ..LinkConfig::default()
        };
        let packets = 400_000;
        let counts = cross(config, packets, 16, 3);
        let found = bursts(&counts, packets);
        let near = |found: f64, want: f64| (found / want - 1.0).abs() < 0.2;
        assert!(near(found.p_good_to_bad, to_bad), "{found:?}");
        assert!(near(found.p_bad_to_good, to_good), "{found:?}");
        assert!(near(found.mean_packets, 1.0 / to_good), "{found:?}");
        assert!(f64::from(counts.longest_burst) > found.mean_packets);
    }
}

#[test]
fn the_extent_of_reordering_is_that_of_the_path() {
    for (flows, extra_us) in [(1, 200), (4, 1000)] {
        let config = LinkConfig {
            reorder: Reorder {
                probability: 0.01,
                extra_delay: Duration::from_micros(extra_us),
            },
            ..LinkConfig::default()
        };
        let counts = cross(config, 50_000, flows, 5);
        assert_eq!(counts.received, 50_000);
        // The limit is the number of packets that a flow sent in this time, plus a few that were
        // delayed before.
        let overtaking = u32::try_from(extra_us * 1000 / GAP_NS / u64::from(flows)).expect("few");
        assert!(
            (overtaking - 1..=overtaking + 4).contains(&counts.extent_packets),
            "{counts:?}"
        );
        let next_of_flow_ns = GAP_NS * u64::from(flows);
        let most_ns = extra_us * 1000 - next_of_flow_ns;
        assert_eq!(counts.extent_ns, most_ns, "{counts:?}");
        assert!((350..650).contains(&counts.reordered), "{counts:?}");
    }
}

proptest! {
    #[test]
    fn counts_are_those_of_the_definitions(
        order in prop::collection::vec(0u32..60, 0..90),
        flows in 1u16..5,
    ) {
        let packets = 50;
        let mut arrivals = TrialArrivals::new(Trial { id: 0, packets, flows });
        // The arrivals of each flow, without duplicates.
        let mut seen: Vec<(u32, u64)> = Vec::new();
        let (mut duplicates, mut reordered, mut extent) = (0, 0, (0, 0));
        for (&sequence, at_ns) in order.iter().zip(100..) {
            let is_new = arrivals.note(Arrival { sequence, at_ns, ecn_bits: 3 });
            let is_known = seen.iter().any(|(known, _)| *known == sequence);
            prop_assert_eq!(is_new, sequence < packets && !is_known);
            duplicates += u32::from(sequence < packets && is_known);
            if !is_new {
                continue;
            }
            let flow = sequence % u32::from(flows);
            let of_flow = || seen.iter().filter(|(other, _)| other % u32::from(flows) == flow);
            let place = of_flow().count();
            // RFC 4737: compare with the earliest arrival that has a higher number.
            if let Some(first) = of_flow().position(|(other, _)| *other > sequence) {
                let first_ns = of_flow().nth(first).expect("found").1;
                reordered += 1;
                extent.0 = extent.0.max(place - first);
                extent.1 = extent.1.max(at_ns - first_ns);
            }
            seen.push((sequence, at_ns));
        }
        let counts = arrivals.counts();
        prop_assert_eq!(counts.received as usize, seen.len());
        prop_assert_eq!(counts.duplicates, duplicates);
        prop_assert_eq!(counts.reordered, reordered);
        prop_assert_eq!((counts.extent_packets as usize, counts.extent_ns), extent);
        let lost: Vec<bool> = (0..packets)
            .map(|sequence| seen.iter().all(|(known, _)| *known != sequence))
            .collect();
        let runs: Vec<_> = lost.chunk_by(|a, b| a == b).filter(|run| run[0]).collect();
        prop_assert_eq!(counts.bursts as usize, runs.len());
        let longest = runs.iter().map(|run| run.len()).max().unwrap_or(0);
        prop_assert_eq!(counts.longest_burst as usize, longest);
    }

    #[test]
    fn a_share_lies_in_its_interval(all in 1u64..1_000_000, part in 0u64..1_000_000) {
        let part = part.min(all);
        let share = Share::of(part, all).expect("something");
        prop_assert!(0.0 <= share.low && share.high <= 1.0);
        prop_assert!(share.low <= share.share + 1e-12 && share.share <= share.high + 1e-12);
    }
}

#[test]
fn a_histogram_has_the_times_above_the_shortest() {
    let us = Duration::from_micros;
    let ns = Duration::from_nanos;
    // 40 ms is the shortest. The others are 999 ns, 1 us, 3 us and 9 us above.
    let times = vec![
        us(40_003),
        us(40_000) + ns(999),
        us(40_000),
        us(40_009),
        us(40_001),
    ];
    let bin = |from, to, samples| Bin {
        from: us(from),
        to: us(to),
        samples,
    };
    let expected = [
        bin(0, 1, 2),
        bin(1, 2, 1),
        bin(2, 4, 1),
        bin(4, 8, 0),
        bin(8, 16, 1),
    ];
    assert_eq!(RoundTrips::new(times).histogram(), expected);
    assert_eq!(RoundTrips::new(Vec::new()).histogram(), []);
}

proptest! {
    #[test]
    fn a_histogram_has_each_sample_once(times in prop::collection::vec(0..u64::MAX / 4, 1..50)) {
        let trips = RoundTrips::new(times.iter().copied().map(Duration::from_nanos).collect());
        let bins = trips.histogram();
        let shortest = trips.percentile(0).expect("samples");
        for bin in &bins {
            let is_in = |time: &&u64| {
                (bin.from..bin.to).contains(&(Duration::from_nanos(**time) - shortest))
            };
            prop_assert_eq!(times.iter().filter(is_in).count(), bin.samples);
        }
        prop_assert_eq!(bins.iter().map(|bin| bin.samples).sum::<usize>(), times.len());
        prop_assert!(bins.last().expect("samples").samples > 0);
    }
}

#[test]
fn percentiles_are_samples() {
    let ms = Duration::from_millis;
    let trips = RoundTrips::new((1..=200).rev().map(ms).collect());
    let at = |hundredths| trips.percentile(hundredths).expect("samples");
    assert_eq!([at(0), at(50), at(99), at(100)], [1, 100, 198, 200].map(ms));
    assert_eq!(RoundTrips::default().percentile(50), None);
}

#[test]
fn a_train_shows_the_rate_of_the_path() {
    let spread = |arrived_bps, received| Spread {
        offered_bps: 100.0,
        arrived_bps,
        received,
    };
    assert!(spread(95.0, 1.0).is_carried());
    // Losses of the path do not reduce the rate of a train.
    assert!(spread(99.0, 0.9).is_carried());
    let limited = spread(25.0, 1.0);
    assert!(!limited.is_carried() && limited.carried_bps() == 25.0);
    // A short queue dropped most packets, and the rest arrived at the rate of the queue.
    let dropped = spread(99.0, 0.25);
    assert!(!dropped.is_carried() && dropped.carried_bps() == 24.75);
}

#[test]
fn nothing_lost_has_an_upper_bound() {
    let none = Share::of(0, 3000).expect("packets");
    assert_eq!((none.share, none.low), (0.0, 0.0));
    // The bound is approximately that of the rule of three.
    assert!((0.8e-3..1.5e-3).contains(&none.high), "{none:?}");
    assert_eq!(Share::of(0, 0), None);
    assert_eq!(Bursts::of(10, 0, 0, 0), None);
}
