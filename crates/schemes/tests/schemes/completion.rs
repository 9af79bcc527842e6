//! All messages complete, for any behaviour of the channel.

use farwrite_schemes::registry::SchemeName;
use farwrite_schemes::timing::Alpha;
use farwrite_wire::control::Outcome;
use proptest::prelude::*;

use crate::harness::{Channel, MS, World, parity_chunks, send_one};

fn names() -> impl Strategy<Value = SchemeName> {
    prop::sample::select(&SchemeName::EXACT[..])
}

#[test]
fn one_message_without_loss_takes_injection_and_a_round_trip() {
    for name in SchemeName::EXACT {
        for chunks in [1, 7, 64, 65, 5_000] {
            let channel = Channel::default();
            let ideal_ns = u64::from(chunks) * channel.chunk_ns + channel.rtt_ns;
            let parity = parity_chunks(&*name.scheme(), chunks);
            let parity_ns = u64::from(parity) * channel.chunk_ns;
            let story = send_one(&*name.scheme(), channel, chunks);
            let (took_ns, outcome) = story.outcomes[&0];
            assert_eq!(outcome, Outcome::Whole);
            assert!(
                took_ns >= ideal_ns && took_ns <= ideal_ns + parity_ns + MS / 10,
                "{name} {chunks}: {took_ns}"
            );
            assert_eq!(story.counters.retransmitted_chunks, 0, "{name} {chunks}");
            assert_eq!(story.counters.sent_chunks, u64::from(chunks + parity));
        }
    }
}

#[test]
fn three_hundred_messages_at_once_all_complete() {
    for name in SchemeName::EXACT {
        let channel = Channel {
            loss_chunk: 0.02,
            loss_report: 0.02,
            ..Channel::default()
        };
        let mut world = World::new(&*name.scheme(), channel);
        for number in 0..300 {
            world.start(0, number, 1 + u32::try_from(number).unwrap() % 9);
        }
        let story = world.run(60_000 * MS);
        assert!(
            story
                .outcomes
                .values()
                .all(|(_, outcome)| *outcome == Outcome::Whole)
        );
    }
}

#[test]
fn a_dead_link_is_probed_and_recovers_within_a_probe_interval() {
    for name in SchemeName::EXACT {
        let dead_ns = 20 * MS..5_020 * MS;
        let channel = Channel {
            dead_ns: dead_ns.clone(),
            ..Channel::default()
        };
        let rtt_ns = channel.rtt_ns;
        let chunks = 20_000;
        let scheme = name.with_alpha(Alpha::DEFAULT);
        let story = send_one(&*scheme, channel.clone(), chunks);
        let during = |at_ns: u64| (320 * MS..5_020 * MS).contains(&at_ns);
        let probes: usize = story
            .runs
            .iter()
            .filter(|run| during(run.0))
            .map(|run| run.1.range.len())
            .sum();
        // Probes have up to four chunks. At first there is one per RTO, later 16 while the silence
        // grows by a factor of e.
        assert!(probes <= 160, "{name}: {probes} chunks into a dead link");
        let (took_ns, _) = story.outcomes[&0];
        let left = chunks + parity_chunks(&*name.scheme(), chunks);
        let left_ns = u64::from(left) * channel.chunk_ns;
        let bound_ns = dead_ns.end + 320 * MS + 3 * rtt_ns + left_ns;
        assert!(took_ns < bound_ns, "{name}: {} ms", took_ns / MS);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn every_channel_is_survived(
        name in names(),
        seed in any::<u64>(),
        (loss_chunk, loss_report, duplicate) in (0.0..0.2, 0.0..0.2, 0.0..0.1),
        burst_chunks in prop::sample::select(vec![1.0, 1.0, 4.0, 30.0]),
        (late_ns, late_report_ns, reordering_window_ns) in (0..5 * MS, 0..5 * MS, 0..5 * MS),
        rtt_ns in 10_000..60 * MS,
        max_run in 1u32..40,
        max_report_bytes in 64usize..600,
        chunks in prop::collection::vec(1u32..800, 1..6),
        apart_ns in 0..20 * MS,
    ) {
        let channel = Channel {
            seed, rtt_ns, loss_chunk, burst_chunks, loss_report, duplicate, late_ns, late_report_ns,
            reordering_window_ns, max_run, max_report_bytes,
            ..Channel::default()
        };
        let mut world = World::new(&*name.scheme(), channel);
        for (number, chunks) in (0..).zip(chunks) {
            world.start(number * apart_ns, number, chunks);
        }
        let story = world.run(600_000 * MS);
        prop_assert!(story.outcomes.values().all(|(_, outcome)| *outcome == Outcome::Whole));
    }
}
