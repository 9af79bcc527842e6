//! Erasure coding: which losses parity repairs, which it does not, and that no other chunk is
//! retransmitted.

use std::collections::BTreeSet;

use farwrite_codes::{Code, Kind};
use farwrite_rng::SplitMix;
use farwrite_schemes::erasure::ErasureCoding;
use farwrite_schemes::scheme::{CriticalChunks, MessageId, Scheme};
use farwrite_schemes::timing::Alpha;
use farwrite_wire::control::Outcome;
use proptest::prelude::*;

use crate::harness::{Channel, DATA, MS, PARITY, Story, World, parity_chunks, send_one};

fn ec(code: &str) -> ErasureCoding {
    ErasureCoding::new(code.parse().unwrap(), Alpha::DEFAULT)
}

/// Returns the maximum time of a message that needs no retransmission: all data and parity, and a
/// round trip.
fn one_pass_ns(scheme: &dyn Scheme, channel: &Channel, chunks: u32) -> u64 {
    let on_wire = u64::from(chunks + parity_chunks(scheme, chunks));
    on_wire * channel.chunk_ns + channel.rtt_ns + MS / 10
}

/// Draws the lost chunks of each group, among data and parity. A group of `d` data chunks loses
/// `most(d)` chunks.
fn lose_in_each_group(
    code: Code,
    chunks: u32,
    rng: &mut SplitMix,
    most: impl Fn(u32) -> u32,
) -> BTreeSet<(MessageId, u32)> {
    let (k, m) = (
        u32::try_from(code.k()).unwrap(),
        u32::try_from(code.m()).unwrap(),
    );
    let mut lost = BTreeSet::new();
    for group in 0..chunks.div_ceil(k) {
        let data = (chunks - group * k).min(k);
        let parity = u32::try_from(code.parity_chunks(data as usize)).unwrap();
        let mut of_group: Vec<(MessageId, u32)> =
            (0..data).map(|i| (DATA, group * k + i)).collect();
        of_group.extend((0..parity).map(|i| (PARITY, group * m + i)));
        for _ in 0..most(data) {
            let at = usize::try_from(rng.below(of_group.len() as u64)).unwrap();
            lost.insert(of_group.swap_remove(at));
        }
    }
    lost
}

fn data_sent_again(story: &Story) -> BTreeSet<u32> {
    let again = story
        .handed_out
        .iter()
        .filter(|(_, copies)| copies.len() > 1);
    again.map(|((_, chunk), _)| *chunk).collect()
}

#[test]
fn groups_that_are_just_decodable_cost_no_round_trip() {
    for (code, chunks) in [
        ("ec-mds:32,8", 5_000),
        ("ec-mds:32,8", 700),
        ("ec-mds:5,3", 1_003),
    ] {
        let scheme = ec(code);
        let m = u32::try_from(scheme.code.m()).unwrap();
        for seed in 1..6 {
            let lose_first =
                lose_in_each_group(scheme.code, chunks, &mut SplitMix::new(seed), |_| m);
            let channel = Channel {
                lose_first,
                ..Channel::default()
            };
            let bound_ns = one_pass_ns(&scheme, &channel, chunks);
            let story = send_one(&scheme, channel, chunks);
            assert_eq!(story.counters.retransmitted_chunks, 0, "{code} {seed}");
            assert_eq!(story.rebuilt_chunks, story.lost_chunks, "{code} {seed}");
            assert!(
                story.ended_ns <= bound_ns,
                "{code} {seed}: {}",
                story.ended_ns
            );
        }
    }
}

#[test]
fn one_loss_among_the_chunks_of_each_parity_chunk_costs_xor_no_round_trip() {
    let scheme = ec("ec-xor:32,8");
    let channel = Channel {
        // Chunks 0 to 7 of each group are lost: one for each parity chunk.
        lose_first: (0..1_000)
            .filter(|c| c % 32 < 8)
            .map(|c| (DATA, c))
            .collect(),
        ..Channel::default()
    };
    let bound_ns = one_pass_ns(&scheme, &channel, 1_000);
    let story = send_one(&scheme, channel, 1_000);
    assert_eq!(story.counters.retransmitted_chunks, 0);
    assert_eq!(story.rebuilt_chunks, 250 + 6);
    assert!(story.ended_ns <= bound_ns);
}

#[test]
fn of_groups_that_are_just_not_decodable_what_was_lost_is_sent_once_more() {
    let scheme = ec("ec-mds:32,8");
    for seed in 1..6 {
        let lose_first = lose_in_each_group(scheme.code, 3_200, &mut SplitMix::new(seed), |_| 9);
        let lost: BTreeSet<u32> = lose_first
            .iter()
            .filter(|(n, _)| *n == 0)
            .map(|(_, c)| *c)
            .collect();
        let channel = Channel {
            lose_first,
            ..Channel::default()
        };
        let bound_ns = one_pass_ns(&scheme, &channel, 3_200);
        let bound_ns = bound_ns + 2 * channel.rtt_ns + 4 * channel.reordering_window_ns;
        let story = send_one(&scheme, channel, 3_200);
        assert_eq!(data_sent_again(&story), lost, "{seed}");
        assert_eq!(
            story.counters.retransmitted_chunks,
            lost.len() as u64,
            "{seed}"
        );
        assert_eq!(story.counters.timeouts, 0);
        assert!(story.ended_ns <= bound_ns, "{seed}: {}", story.ended_ns);
    }
}

#[test]
fn only_the_chunks_of_groups_that_failed_are_sent_again() {
    let scheme = ec("ec-mds:32,8");
    for seed in 1..6 {
        // Group 3 of every 10 groups loses 9 chunks, the others lose 8.
        let mut lose_first =
            lose_in_each_group(scheme.code, 3_200, &mut SplitMix::new(seed), |_| 8);
        let is_of = |failed: bool| {
            move |&(n, c): &(MessageId, u32)| (c / if n == 0 { 32 } else { 8 } % 10 == 3) == failed
        };
        lose_first.retain(is_of(false));
        let more = lose_in_each_group(scheme.code, 3_200, &mut SplitMix::new(seed), |_| 9);
        let more: Vec<(MessageId, u32)> = more.into_iter().filter(is_of(true)).collect();
        let failed: BTreeSet<u32> = more
            .iter()
            .filter(|(n, _)| *n == 0)
            .map(|(_, c)| *c)
            .collect();
        lose_first.extend(more);
        let channel = Channel {
            lose_first,
            ..Channel::default()
        };
        let story = send_one(&scheme, channel, 3_200);
        assert_eq!(data_sent_again(&story), failed, "{seed}");
        // Failed groups in the middle of the message were repaired while the rest of it was still
        // being sent.
        let early = story
            .runs
            .iter()
            .find(|(_, run)| run.message == 0 && failed.contains(&run.range.start));
        assert!(early.is_some());
    }
}

#[test]
fn a_burst_that_fits_the_interleaving_costs_no_round_trip() {
    let scheme = ec("ec-mds:32,8");
    let order = scheme.order(&farwrite_schemes::scheme::Message {
        number: 0,
        bytes: 4096 * 5_120,
        chunks: 5_120,
        chunk_bytes: 4096,
        critical: CriticalChunks::NONE,
    });
    for start in [0, 100, 1_200, 1_279, 3_000] {
        // The message has five superblocks of 32 groups. The burst takes 8 chunks of each group of
        // one superblock.
        let burst = start..start + 8 * 32;
        let channel = Channel {
            lose_first: burst.filter_map(|position| order.at(position)).collect(),
            ..Channel::default()
        };
        let bound_ns = one_pass_ns(&scheme, &channel, 5_120);
        let story = send_one(&scheme, channel, 5_120);
        assert_eq!(story.counters.retransmitted_chunks, 0, "{start}");
        assert!(story.ended_ns <= bound_ns, "{start}");
    }
}

#[test]
fn what_is_lost_as_a_whole_comes_a_fallback_timeout_and_a_round_trip_later() {
    let scheme = ec("ec-mds:32,8");
    let chunks = 1_000;
    let parity = parity_chunks(&scheme, chunks);
    let data: BTreeSet<(MessageId, u32)> = (0..chunks).map(|c| (DATA, c)).collect();
    let all_parity: BTreeSet<(MessageId, u32)> = (0..parity).map(|c| (PARITY, c)).collect();
    let some_data = [5, 6, 700].map(|c| (DATA, c));
    let table = [
        // Parity rebuilds the last group, which has 8 chunks. The other chunks are retransmitted.
        ("data", data.clone(), 992),
        ("parity", all_parity.clone(), 0),
        (
            "parity, and some data",
            all_parity.iter().copied().chain(some_data).collect(),
            3,
        ),
    ];
    for (what, lose_first, again) in table {
        let channel = Channel {
            lose_first,
            ..Channel::default()
        };
        let (rtt_ns, window_ns) = (channel.rtt_ns, channel.reordering_window_ns);
        let once_ns = one_pass_ns(&scheme, &channel, chunks);
        let again_ns = u64::from(chunks) * channel.chunk_ns;
        let story = send_one(&scheme, channel, chunks);
        assert_eq!(story.counters.retransmitted_chunks, again, "{what}");
        let bound_ns = once_ns + again_ns + 3 * rtt_ns + 2 * window_ns;
        assert!(story.ended_ns <= bound_ns, "{what}: {}", story.ended_ns);
    }
}

#[test]
fn a_message_of_which_nothing_came_is_asked_for() {
    let scheme = ec("ec-mds:32,8");
    let channel = Channel {
        dead_ns: 0..13 * MS,
        ..Channel::default()
    };
    let (rtt_ns, chunks) = (channel.rtt_ns, 1_000);
    let once_ns = one_pass_ns(&scheme, &channel, chunks);
    let story = send_one(&scheme, channel, chunks);
    assert!(
        story.ended_ns <= 2 * once_ns + 3 * rtt_ns,
        "{}",
        story.ended_ns
    );
    // The receiver does not know the pace, and may request repairs again that are already in
    // flight.
    let again = story.counters.retransmitted_chunks;
    assert!((1_000..1_300).contains(&again), "{again}");
}

#[test]
fn shapes_at_the_edges_complete_with_nothing_lost_and_with_everything_lost_once() {
    for code in [
        "ec-mds:1,1",
        "ec-xor:1,1",
        "ec-mds:1,9",
        "ec-mds:254,1",
        "ec-xor:32,8",
        "ec-mds:7,3",
    ] {
        for chunks in [1, 2, 7, 31, 32, 33, 255, 515] {
            for (empty_chunks, immediate) in
                [(0, false), (0, true), (1, false), (3, true), (600, true)]
            {
                let base = Channel {
                    empty_chunks,
                    // If there are fewer chunks than fragments, an endpoint adds chunks without
                    // bytes. This test leaves out the immediate.
                    immediate: immediate && chunks >= 8,
                    ..Channel::default()
                };
                let story = send_one(&ec(code), base.clone(), chunks);
                assert_eq!(
                    story.counters.retransmitted_chunks, 0,
                    "{code} {chunks} {empty_chunks}"
                );
                let lossy = Channel {
                    dead_ns: 0..10 * MS,
                    ..base
                };
                let story = send_one(&ec(code), lossy, chunks);
                assert_eq!(story.outcomes[&0].1, Outcome::Whole);
                assert!(
                    story.ended_ns < 150 * MS,
                    "{code} {chunks} {empty_chunks}: {}",
                    story.ended_ns
                );
            }
        }
    }
}

#[test]
fn a_fragment_of_the_immediate_that_was_rebuilt_away_is_asked_for() {
    let scheme = ec("ec-mds:32,8");
    let channel = Channel {
        immediate: true,
        lose_first: BTreeSet::from([(DATA, 5)]),
        ..Channel::default()
    };
    let bound_ns =
        one_pass_ns(&scheme, &channel, 8) + channel.rtt_ns + 2 * channel.reordering_window_ns;
    let story = send_one(&scheme, channel, 8);
    assert_eq!(
        (story.rebuilt_chunks, story.counters.retransmitted_chunks),
        (1, 8)
    );
    assert!(story.ended_ns <= bound_ns, "{}", story.ended_ns);
}

#[test]
fn parity_without_room_is_not_waited_for_for_ever() {
    let scheme = ec("ec-mds:32,8");
    for clear_parity_ns in [None, Some(20 * MS), Some(90 * MS)] {
        let channel = Channel {
            clear_parity_ns,
            loss_chunk: 0.01,
            ..Channel::default()
        };
        let story = send_one(&scheme, channel, 5_000);
        assert!(
            story.ended_ns < 200 * MS,
            "{clear_parity_ns:?}: {}",
            story.ended_ns
        );
        let parity = story.handed_out.keys().filter(|(number, _)| *number != 0);
        assert_eq!(parity.count() > 0, clear_parity_ns.is_some());
    }
}

#[test]
fn data_do_not_wait_for_parity_that_is_not_ready() {
    let scheme = ec("ec-mds:32,8");
    let channel = Channel {
        // Encoding has a third of the rate of the wire.
        encode_ns: 32 * 30_000,
        loss_chunk: 0.01,
        ..Channel::default()
    };
    let data_ns = 5_000 * channel.chunk_ns;
    let story = send_one(&scheme, channel, 5_000);
    let last_ns = story.handed_out[&(DATA, 4_999)][0];
    assert!(last_ns <= data_ns * 5 / 4, "{last_ns}");
}

#[test]
fn the_end_is_told_again_when_it_was_lost() {
    let scheme = ec("ec-mds:32,8");
    let channel = Channel {
        // The channel is dead from the arrival of the last chunk until all final reports have been
        // sent.
        dead_ns: 5 * MS..50 * MS,
        ..Channel::default()
    };
    let story = send_one(&scheme, channel, 100);
    assert!(story.counters.timeouts >= 1);
    let probes = story.counters.retransmitted_chunks;
    assert!((1..=4).contains(&probes), "{probes}");
    assert!(story.ended_ns < 150 * MS, "{}", story.ended_ns);
}

fn codes() -> impl Strategy<Value = Code> {
    let usual = prop::sample::select(vec![(32, 8), (1, 1), (4, 2), (10, 1), (2, 5), (200, 20)]);
    let shape = prop_oneof![usual, (1usize..40, 1usize..12)];
    (shape, any::<bool>()).prop_map(|((k, m), xor)| {
        let kind = if xor && m <= k { Kind::Xor } else { Kind::Mds };
        Code::new(kind, k, m).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_shape_survives_every_channel_with_bounded_sends(
        (code, depth) in (codes(), 1u8..40),
        seed in any::<u64>(),
        loss_chunk in prop_oneof![Just(0.0), 0.0..0.02, 0.0..0.5],
        (loss_report, duplicate) in (0.0..0.2, 0.0..0.1),
        burst_chunks in prop::sample::select(vec![1.0, 1.0, 4.0, 30.0]),
        (late_ns, late_report_ns, reordering_window_ns) in (0..5 * MS, 0..5 * MS, 0..5 * MS),
        rtt_ns in 10_000..60 * MS,
        (max_run, max_report_bytes) in (1u32..40, 64usize..600),
        chunks in prop::collection::vec(1u32..800, 1..5),
        apart_ns in 0..20 * MS,
        clear_parity_ns in prop_oneof![5 => (0..60 * MS).prop_map(Some), 1 => Just(None)],
        encode_ns in prop_oneof![Just(0), 0..3 * MS],
        (empty_chunks, immediate) in (0u32..10, any::<bool>()),
    ) {
        let scheme = ErasureCoding {
            depth: depth.try_into().unwrap(),
            ..ErasureCoding::new(code, Alpha::DEFAULT)
        };
        let channel = Channel {
            seed, rtt_ns, loss_chunk, burst_chunks, loss_report, duplicate, late_ns, late_report_ns,
            reordering_window_ns, max_run, max_report_bytes, clear_parity_ns, encode_ns, empty_chunks,
            immediate: immediate && chunks.iter().all(|chunks| *chunks >= 8),
            ..Channel::default()
        };
        let mut world = World::new(&scheme, channel);
        for (number, chunks) in (0..).zip(&chunks) {
            world.start(number * apart_ns, number, *chunks);
        }
        let story = world.run(600_000 * MS);
        prop_assert!(story.outcomes.values().all(|(_, outcome)| *outcome == Outcome::Whole));
        let all: u32 = chunks.iter().sum();
        let again = story.counters.retransmitted_chunks;
        prop_assert!(again <= 60 + 12 * u64::from(all), "{} of {}", again, all);
    }

    #[test]
    fn nothing_is_sent_again_when_nothing_is_lost(
        (code, depth) in (codes(), 1u8..40),
        seed in any::<u64>(),
        rtt_ns in 2 * MS..60 * MS,
        late_percent in 0u64..50,
        duplicate in 0.0..0.1,
        (max_run, pace_percent) in (1u32..20, prop_oneof![Just(0), 0u64..45]),
        chunks in prop::collection::vec(1u32..600, 1..5),
        (apart_ns, encode_percent) in (0..20 * MS, 0u64..12),
    ) {
        let late_ns = rtt_ns * late_percent / 100;
        // From full rate to a little more than two runs per round trip.
        let chunk_ns = 1_000 + rtt_ns * pace_percent / 100 / u64::from(max_run);
        let channel = Channel {
            seed, rtt_ns, late_ns, duplicate, chunk_ns, max_run,
            reordering_window_ns: late_ns,
            // Parity is late, but the delay does not grow without bound.
            encode_ns: (rtt_ns * encode_percent / 100).min(chunk_ns * code.k() as u64 / 2),
            ..Channel::default()
        };
        let scheme = ErasureCoding {
            depth: depth.try_into().unwrap(),
            ..ErasureCoding::new(code, Alpha::DEFAULT)
        };
        let mut world = World::new(&scheme, channel);
        for (number, chunks) in (0..).zip(chunks) {
            world.start(number * apart_ns, number, chunks);
        }
        let story = world.run(600_000 * MS);
        prop_assert_eq!(story.counters.retransmitted_chunks, 0);
    }
}
