//! Bytes arrive in order, whatever the path does and however they are written and read.

use std::time::Duration;

use farwrite_link::{LinkConfig, Loss, Reorder};
use farwrite_stream::{SchemeSetting, StreamOptions};
use proptest::prelude::*;

use crate::world::{Ends, MS, SECOND, World, bytes, drain, feed, path, small};

/// A path that loses, doubles and reorders packets.
fn bad_path() -> LinkConfig {
    LinkConfig {
        loss: Loss::Iid { loss_packet: 0.02 },
        duplicate: 0.01,
        reorder: Reorder {
            probability: 0.05,
            extra_delay: Duration::from_millis(8),
        },
        ..path()
    }
}

#[test]
fn both_directions_arrive_in_order_over_a_bad_path() {
    for (seed, scheme) in (1..).zip(["sr-nack", "sr-rto", "gbn", "ec-mds:32,8", "auto"]) {
        let scheme: SchemeSetting = scheme.parse().expect("a scheme");
        let options = StreamOptions { scheme, ..small() };
        let mut world = World::new(seed, bad_path(), &options, 1);
        let (there, back) = (bytes(1, 400_000), bytes(2, 250_001));
        let (mut sent, mut heard) = ([0; 2], [Vec::new(), Vec::new()]);
        let mut ended = [false; 2];
        let all = world.run(60 * SECOND, |world| {
            let stream = &mut world.streams[0];
            feed(&mut stream.a, &there, &mut sent[0]);
            feed(&mut stream.b, &back, &mut sent[1]);
            ended[0] = drain(&mut stream.b, &mut heard[0]);
            ended[1] = drain(&mut stream.a, &mut heard[1]);
            ended == [true; 2] && stream.a.is_over() && stream.b.is_over()
        });
        assert!(all, "{scheme}: {} of {}", heard[0].len(), there.len());
        assert!(heard == [there, back], "{scheme}");
    }
}

/// A stream that nobody reads takes its own memory and nothing else.
#[test]
fn a_stream_that_nobody_reads_does_not_stop_others() {
    const STREAMS: usize = 6;
    let options = small();
    let mut world = World::new(3, bad_path(), &options, STREAMS);
    let data: Vec<_> = (0..STREAMS).map(|n| bytes(n as u64, 300_000)).collect();
    let mut sent = [0; STREAMS];
    let mut heard = vec![Vec::new(); STREAMS];
    let mut run = |world: &mut World, sent: &mut [usize; STREAMS], read_from: usize| {
        world.run(60 * SECOND, |world| {
            let streams = world.streams.iter_mut().enumerate();
            let ended = streams.map(|(n, stream)| {
                feed(&mut stream.a, &data[n], &mut sent[n]);
                n < read_from || drain(&mut stream.b, &mut heard[n])
            });
            // All of them, not only those before the first that has not ended.
            ended.fold(true, |all, ended| all & ended)
        })
    };
    assert!(run(&mut world, &mut sent, 1), "the others have arrived");
    world.run_for(10 * SECOND);
    let blocked = &world.streams[0];
    let held = blocked.b.receiver.unread_bytes();
    let accepted = sent[0] as u64;
    assert!(
        held > options.window_bytes() / 2 && held <= options.window_bytes(),
        "{held}"
    );
    assert!(
        accepted <= 2 * options.window_bytes(),
        "{accepted} bytes were taken"
    );
    assert!(
        run(&mut world, &mut sent, 0),
        "the blocked one goes on when it is read"
    );
    assert!(heard == data);
}

/// While a path is down, the reader posts buffers, and the notice of them is lost.
#[test]
fn a_blocked_stream_goes_on_after_a_long_outage() {
    let options = small();
    let mut world = World::new(4, path(), &options, 1);
    let data = bytes(9, 400_000);
    let (mut sent, mut heard) = (0, Vec::new());
    world.run(SECOND, |world| {
        feed(&mut world.streams[0].a, &data, &mut sent);
        false
    });
    world.set_down(true);
    world.run(60 * SECOND, |world| {
        drain(&mut world.streams[0].b, &mut heard)
    });
    world.set_down(false);
    let all = world.run(10 * SECOND, |world| {
        feed(&mut world.streams[0].a, &data, &mut sent);
        drain(&mut world.streams[0].b, &mut heard)
    });
    assert!(all && heard == data);
}

#[test]
fn small_writes_leave_at_once_and_are_gathered_behind_others() {
    let mut world = World::new(5, path(), &StreamOptions::default(), 1);
    // The clearances arrive.
    world.run_for(SECOND);
    let start_ns = world.network.now_ns();
    assert_eq!(world.streams[0].a.sender.write(b"first").expect("open"), 5);
    let mut heard = Vec::new();
    assert!(world.run(SECOND, |world| {
        drain(&mut world.streams[0].b, &mut heard);
        heard == b"first"
    }));
    let took_ns = world.network.now_ns() - start_ns;
    assert!(took_ns < 11 * MS, "{took_ns} ns, with 10 ms on the path");

    // Small writes for a round trip, faster than the peer posts buffers.
    heard.clear();
    for _ in 0..2000 {
        let written = world.streams[0].a.sender.write(&[7; 100]);
        assert_eq!(written.expect("open"), 100);
        world.run_for(MS / 100);
    }
    assert!(world.run(SECOND, |world| {
        drain(&mut world.streams[0].b, &mut heard);
        heard.len() == 200_000
    }));
    let qa = world.streams[0].qa;
    let packets = world.a.qp_stats(qa).expect("its own").sender.sent_chunks;
    // 49 if all bytes went together, 2000 if each write went alone.
    assert!(packets < 120, "{packets} packets");
}

/// How long records of 100 bytes are under way, at a steady rate over 50 ms: percentiles 95, 99 and 100, in ms.
fn steady_records(a_second: u64, loss_packet: f64) -> [f64; 3] {
    let runs = (1..=10).flat_map(|seed| records(seed, a_second, loss_packet));
    let mut times: Vec<_> = runs.collect();
    times.sort_by(f64::total_cmp);
    [95, 99, 100].map(|percent| times[(times.len() - 1) * percent / 100])
}

fn records(seed: u64, a_second: u64, loss_packet: f64) -> Vec<f64> {
    let link = LinkConfig {
        delay: Duration::from_millis(25),
        loss: Loss::Iid { loss_packet },
        ..path()
    };
    let options = StreamOptions::default();
    let mut world = World::new(seed, link, &options, 1);
    world.run_for(SECOND);
    let count = 2 * a_second;
    let (mut written, mut times) = (0, Vec::new());
    let start_ns = world.network.now_ns();
    let mut heard = Vec::new();
    while (times.len() as u64) < count {
        let due_ns = start_ns + (written + 1) * SECOND / a_second;
        let span_ns = due_ns.saturating_sub(world.network.now_ns()).max(MS / 100);
        world.run(span_ns, |world| {
            drain(&mut world.streams[0].b, &mut heard);
            let now_ns = world.network.now_ns();
            while heard.len() / 100 > times.len() {
                let sent_ns = start_ns + (times.len() as u64 + 1) * SECOND / a_second;
                times.push((now_ns - sent_ns) as f64 / MS as f64);
            }
            false
        });
        if written < count {
            let taken = world.streams[0].a.sender.write(&[7; 100]);
            assert_eq!(taken.expect("open"), 100, "there is room");
            written += 1;
        }
    }
    times
}

/// Small messages leave evenly, so that no record waits long for others to be acknowledged.
#[test]
fn records_at_a_steady_rate_arrive_after_the_path() {
    for a_second in [200, 1000] {
        let [_, p99, longest] = steady_records(a_second, 0.0);
        assert!(p99 < 30.0 && longest < 37.0, "{p99} ms, {longest} ms");
        // A lost record waits for its repeat, and later ones wait for it. About 1 % wait for a repeat that was lost too,
        // but their number depends much on the seeds.
        let [p95, ..] = steady_records(a_second, 0.01);
        assert!(p95 < 25.0 + 60.0, "{p95} ms");
    }
}

/// Packets of 100 requests and their answers, each `answer_ns` after what it answers.
fn packets_of_requests(answer_ns: u64) -> u64 {
    let link = LinkConfig {
        delay: Duration::from_micros(20),
        ..path()
    };
    let mut world = World::new(8, link, &StreamOptions::default(), 1);
    world.run_for(SECOND);
    let exchange = |world: &mut World| {
        for (from_a, bytes) in [(true, 100), (false, 1000)] {
            let Ends { a, b, .. } = &mut world.streams[0];
            let (from, endpoint) = match from_a {
                true => (a, &mut world.a),
                false => (b, &mut world.b),
            };
            assert_eq!(from.sender.write(&vec![1; bytes]).expect("open"), bytes);
            from.progress(endpoint);
            let mut heard = Vec::new();
            assert!(world.run(SECOND, |world| {
                let Ends { a, b, .. } = &mut world.streams[0];
                drain(if from_a { b } else { a }, &mut heard);
                heard.len() == bytes
            }));
            world.run_for(answer_ns);
        }
    };
    (0..50).for_each(|_| exchange(&mut world));
    let sent = |world: &World| [&world.a, &world.b].map(|end| end.counters().sent_packets);
    let before: u64 = sent(&world).iter().sum();
    (0..100).for_each(|_| exchange(&mut world));
    sent(&world).iter().sum::<u64>() - before
}

/// Control messages leave beside data, also if the program takes a while to answer: each direction has one packet of
/// each.
///
/// An answer that comes later than `min_repeat` / 8 takes six packets or more: the ACK has left alone by then (P5.0.5), and
/// repeats of feedback (P4.10) and of ends (P3.8) leave alone as well. When feedback waited for such answers too, they took
/// six packets after 130 us instead of eight, but nine after 200 us instead of seven.
#[test]
fn a_request_and_its_answer_take_four_packets() {
    for answer_us in [0, 20, 50, 80, 110] {
        let packets = packets_of_requests(1000 * answer_us);
        assert!(
            packets <= 410,
            "{packets} packets of 100 requests and answers after {answer_us} us"
        );
    }
}

/// What an end does at one time.
#[derive(Clone, Debug)]
enum Act {
    Write(usize),
    Read(usize),
    Wait(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        (0_usize..60_000).prop_map(Act::Write),
        (0_usize..40_000).prop_map(Act::Read),
        (0_u64..40).prop_map(Act::Wait),
    ];
    prop::collection::vec(act, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any sizes of writes and reads give the same bytes.
    #[test]
    fn any_writes_and_reads_give_the_same_bytes(acts in acts(), seed in 0_u64..1000) {
        let mut world = World::new(seed, bad_path(), &small(), 1);
        let (mut sent, mut heard) = (Vec::new(), Vec::new());
        for act in acts {
            let stream = &mut world.streams[0];
            match act {
                Act::Write(length) => {
                    let more = bytes(sent.len() as u64, length);
                    let taken = stream.a.sender.write(&more).expect("open");
                    sent.extend_from_slice(&more[..taken]);
                    stream.a.progress(&mut world.a);
                }
                Act::Read(length) => {
                    let mut piece = vec![0; length];
                    let copied = stream.b.receiver.read(&mut piece).expect("open");
                    heard.extend_from_slice(&piece[..copied.unwrap_or(0)]);
                    stream.b.progress(&mut world.b);
                }
                Act::Wait(ms) => world.run_for(ms * MS),
            }
        }
        world.streams[0].a.sender.finish();
        let ended = world.run(60 * SECOND, |world| drain(&mut world.streams[0].b, &mut heard));
        prop_assert!(ended, "{} of {}", heard.len(), sent.len());
        prop_assert!(heard == sent);
    }
}
