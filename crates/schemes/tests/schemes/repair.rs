//! When a lost chunk is retransmitted, and that no other chunk is.

use std::collections::BTreeSet;

use farwrite_schemes::registry::SchemeName;
use farwrite_schemes::scheme::MessageId;
use farwrite_schemes::selective_repeat::SelectiveRepeat;
use farwrite_schemes::timing::Alpha;
use proptest::prelude::*;

use crate::harness::{Channel, DATA, MS, World, send_one};

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_is_merely_late_is_never_sent_again(
        name in prop::sample::select(&[SchemeName::SrRto, SchemeName::SrNack][..]),
        seed in any::<u64>(),
        rtt_ns in 2 * MS..60 * MS,
        late_percent in 0u64..50,
        duplicate in 0.0..0.1,
        (max_run, pace_percent) in (1u32..20, prop_oneof![Just(0), 0u64..45]),
        chunks in prop::collection::vec(1u32..600, 1..5),
        apart_ns in 0..20 * MS,
    ) {
        let late_ns = rtt_ns * late_percent / 100;
        // From full rate to a little more than two runs per round trip.
        let chunk_ns = 1_000 + rtt_ns * pace_percent / 100 / u64::from(max_run);
        let channel = Channel {
            seed, rtt_ns, late_ns, duplicate, chunk_ns, max_run,
            reordering_window_ns: late_ns,
            ..Channel::default()
        };
        let mut world = World::new(&*name.scheme(), channel);
        for (number, chunks) in (0..).zip(chunks) {
            world.start(number * apart_ns, number, chunks);
        }
        let story = world.run(600_000 * MS);
        prop_assert_eq!(story.counters.retransmitted_chunks, 0);
    }

    #[test]
    fn a_lost_chunk_is_sent_again_when_its_timeout_ends(
        alpha in 0u16..1024,
        rtt_ns in MS..60 * MS,
        lost in prop::collection::btree_set(0u32..2_000, 1..20),
    ) {
        let scheme = SelectiveRepeat::with_timeouts(Alpha::from_256ths(alpha));
        let channel = Channel {
            rtt_ns,
            lose_first: lost.iter().map(|chunk| (DATA, *chunk)).collect(),
            ..Channel::default()
        };
        let queues_ns = rtt_ns * u64::from(alpha) / 256;
        let rto_ns = rtt_ns + queues_ns.max(10 * MS).max(rtt_ns / 4);
        let run_ns = u64::from(channel.max_run) * channel.chunk_ns;
        let story = send_one(&scheme, channel, 2_000);
        prop_assert_eq!(story.counters.retransmitted_chunks, lost.len() as u64);
        for chunk in lost {
            let times = &story.handed_out[&(DATA, chunk)];
            let waited_ns = times[1] - times[0];
            prop_assert!(waited_ns >= rto_ns, "{} after {}", chunk, waited_ns);
            // The chunk departed with its run. It also waits for the run that is on the wire, and
            // for other retransmissions.
            prop_assert!(waited_ns <= rto_ns + 4 * run_ns, "{} after {}", chunk, waited_ns);
        }
    }

    #[test]
    fn a_hole_is_filled_a_round_trip_and_a_window_later(
        rtt_ns in 5 * MS..60 * MS,
        reordering_window_ns in 0..4 * MS,
        lost in prop::collection::btree_set(0u32..1_900, 1..20),
    ) {
        let channel = Channel {
            rtt_ns,
            reordering_window_ns,
            lose_first: lost.iter().map(|chunk| (DATA, *chunk)).collect(),
            ..Channel::default()
        };
        let run_ns = u64::from(channel.max_run) * channel.chunk_ns;
        let story = send_one(&*SchemeName::SrNack.scheme(), channel, 2_000);
        prop_assert_eq!(story.counters.retransmitted_chunks, lost.len() as u64);
        prop_assert_eq!(story.counters.timeouts, 0);
        let bound_ns = rtt_ns + reordering_window_ns * 9 / 8 + 5 * run_ns;
        for chunk in lost {
            let times = &story.handed_out[&(DATA, chunk)];
            prop_assert!(times[1] - times[0] <= bound_ns, "{} {:?}", chunk, times);
        }
    }
}

#[test]
fn a_lost_tail_is_asked_for_before_the_timeout() {
    let channel = Channel {
        lose_first: (900..1_000).map(|chunk| (DATA, chunk)).collect(),
        ..Channel::default()
    };
    let rtt_ns = channel.rtt_ns;
    let story = send_one(&*SchemeName::SrNack.scheme(), channel, 1_000);
    assert_eq!(story.counters.timeouts, 0);
    assert_eq!(story.counters.retransmitted_chunks, 100);
    let (took_ns, _) = story.outcomes[&0];
    assert!(took_ns < 10 * MS + 2 * rtt_ns + rtt_ns / 2, "{took_ns}");
}

#[test]
fn a_lost_message_is_asked_for_when_a_newer_one_begins() {
    for name in [SchemeName::SrNack, SchemeName::Gbn] {
        let lose_first = BTreeSet::from([(MessageId::new(1), 0)]);
        let channel = Channel {
            lose_first,
            ..Channel::default()
        };
        let bound_ns = 2 * channel.rtt_ns + channel.reordering_window_ns + MS;
        let mut world = World::new(&*name.scheme(), channel);
        for number in 0..3 {
            world.start(0, number, 1);
        }
        let story = world.run(60_000 * MS);
        assert_eq!(story.counters.timeouts, 0, "{name}");
        assert!(story.ended_ns < bound_ns, "{name} {}", story.ended_ns);
    }
}

#[test]
fn going_back_costs_about_what_the_path_holds() {
    let lost = [5_000, 15_000, 25_000];
    let channel = Channel {
        lose_first: lost.iter().map(|chunk| (DATA, *chunk)).collect(),
        ..Channel::default()
    };
    let path_chunks = channel.rtt_ns / channel.chunk_ns;
    let story = send_one(&*SchemeName::Gbn.scheme(), channel, 40_000);
    let per_loss = story.counters.retransmitted_chunks / 3;
    assert_eq!(story.counters.timeouts, 0);
    assert!(per_loss >= path_chunks, "{per_loss}");
    // The upper limit includes the chunks that leave until the end of the ACK period.
    assert!(per_loss <= path_chunks * 9 / 8 + 150, "{per_loss}");
}

#[test]
fn a_second_loss_within_what_is_repeated_costs_no_second_time() {
    let channel = Channel {
        lose_first: BTreeSet::from([(DATA, 5_000), (DATA, 6_000), (DATA, 6_001)]),
        ..Channel::default()
    };
    let path_chunks = channel.rtt_ns / channel.chunk_ns;
    let story = send_one(&*SchemeName::Gbn.scheme(), channel, 20_000);
    assert!(story.counters.retransmitted_chunks <= path_chunks * 9 / 8 + 150);
}

#[test]
fn a_window_of_many_acks_wastes_nothing() {
    // 400 Gbit/s over 25 ms with chunks of one packet: the whole message is in flight. Its
    // description takes 24 ACKs, which is more than the limit for one round.
    for name in [SchemeName::SrRto, SchemeName::SrNack] {
        let channel = Channel {
            chunk_ns: 80,
            loss_chunk: 1e-3,
            max_run: 64,
            max_report_bytes: 1_400,
            ..Channel::default()
        };
        let story = send_one(&*name.scheme(), channel, 262_144);
        assert_eq!(
            story.counters.retransmitted_chunks, story.lost_chunks,
            "{name}"
        );
    }
}
