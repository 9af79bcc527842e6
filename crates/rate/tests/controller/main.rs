//! The adaptive controller, call by call.

use std::collections::VecDeque;

use farwrite_rate::{Adaptive, AdaptiveOptions, Feedback, Newest, Phase, RateControl, Sent, Start};
use proptest::prelude::*;

mod silence;
mod sparse;

const MS: u64 = 1_000_000;

fn options() -> AdaptiveOptions {
    AdaptiveOptions {
        packet_bytes: 4_096,
        max_rate_bps: 100_000_000_000,
        jitter_ns: 0,
        recovery_ns: 1_000 * MS,
        start: None,
    }
}

/// Returns a controller on a path known to carry 1 Gbit/s at 25 ms.
fn known() -> Adaptive {
    Adaptive::new(AdaptiveOptions {
        start: Some(Start {
            rate_bps: 1_000_000_000,
            rtt_ns: 25 * MS,
        }),
        ..options()
    })
}

/// Sends packets of 4096 bytes at 1 Gbit/s.
fn send(controller: &mut Adaptive, from_ns: u64, packets: u64, app_limited: bool) {
    for i in 0..packets {
        controller.on_sent(&Sent {
            now_ns: from_ns + i * 32_768,
            bytes: 4_096,
            in_flight_bytes: (i + 1) * 4_096,
            app_limited: app_limited && i + 1 == packets,
        });
    }
}

/// Reports that all of `packets` arrived. They left at 1 Gbit/s from `from_ns` on. The receiver
/// held the report for 1 ms, and the round trip without this is 25 ms.
fn report(controller: &mut Adaptive, from_ns: u64, packets: u64, dropped: u64) {
    let departed_ns = from_ns + (packets - 1) * 32_768;
    controller.on_feedback(&Feedback {
        now_ns: departed_ns + 26 * MS,
        newest: Some(Newest {
            sent_bytes: packets * 4_096,
            departed_ns: Some(departed_ns),
            hold_ns: MS,
        }),
        received_bytes: packets * 4_096,
        received_packets: packets,
        dropped_packets: dropped,
        drain_bps: 400_000_000,
        ..Feedback::default()
    });
}

/// Packets of a sixteenth of the known path, rounded up.
const TRAIN_PACKETS: u64 = 48;

#[test]
fn a_train_that_arrives_as_it_left_opens_the_window() {
    let mut controller = known();
    assert_eq!(controller.phase(), Phase::Probe);
    assert_eq!(controller.limits().pace_bps, 1_000_000_000);
    assert!(controller.limits().window_bytes <= TRAIN_PACKETS * 4_096);
    send(&mut controller, 0, TRAIN_PACKETS, false);
    assert_eq!(controller.limits().window_bytes, 195_312);
    report(&mut controller, 0, TRAIN_PACKETS, 0);
    assert_eq!(controller.phase(), Phase::Grow);
    let limits = controller.limits();
    assert!(
        (3_100_000..3_400_000).contains(&limits.window_bytes),
        "{limits:?}"
    );
    let learned = controller.learned().unwrap();
    assert_eq!((learned.rate_bps, learned.rtt_ns), (1_000_000_000, 25 * MS));
}

#[test]
fn a_train_whose_first_packets_gave_no_sample_is_not_followed_by_a_faster_one() {
    let mut controller = Adaptive::new(options());
    let first_bps = controller.limits().pace_bps;
    send(&mut controller, 0, 16, false);
    // The only report is about the last packet, so a queue before it is part of every sample.
    report(&mut controller, 0, 16, 0);
    assert_eq!(controller.phase(), Phase::Probe);
    assert_eq!(controller.limits().pace_bps, first_bps / 2);
    // A full train of a sixteenth of the round trip, so that noise does not decide the result.
    send(&mut controller, 30 * MS, 1, false);
    let window_bytes = controller.limits().window_bytes;
    assert!(window_bytes > 10 * 4_096, "{window_bytes}");
}

#[test]
fn a_train_without_samples_is_followed_by_another() {
    let mut controller = known();
    send(&mut controller, 0, TRAIN_PACKETS, false);
    controller.on_feedback(&Feedback {
        now_ns: 30 * MS,
        newest: Some(Newest {
            sent_bytes: TRAIN_PACKETS * 4_096,
            departed_ns: None,
            hold_ns: 0,
        }),
        received_bytes: TRAIN_PACKETS * 4_096,
        received_packets: TRAIN_PACKETS,
        ..Feedback::default()
    });
    assert_eq!(controller.phase(), Phase::Probe);
    assert_eq!(controller.learned(), None);
    assert_eq!(controller.limits().window_bytes, 195_312);
}

#[test]
fn a_train_of_which_the_sender_could_not_fill_half_is_no_measure() {
    let mut controller = known();
    let packets = TRAIN_PACKETS / 4;
    send(&mut controller, 0, packets, true);
    report(&mut controller, 0, packets, 0);
    assert_eq!(controller.phase(), Phase::Probe);
    // The next train is whole, after nothing was in flight.
    send(&mut controller, 40 * MS, 1, false);
    let window = controller.limits().window_bytes;
    assert!(window >= 100_000, "the next train may leave: {window}");
}

#[test]
fn a_train_of_which_the_sender_could_fill_more_is_a_measure() {
    let mut controller = known();
    let packets = TRAIN_PACKETS * 3 / 4;
    send(&mut controller, 0, packets, true);
    report(&mut controller, 0, packets, 0);
    assert_eq!(controller.phase(), Phase::Grow);
}

#[test]
fn a_message_shorter_than_a_train_measures_no_rate() {
    let mut controller = Adaptive::new(options());
    let first_bps = controller.limits().pace_bps;
    send(&mut controller, 0, 4, true);
    report(&mut controller, 0, 4, 0);
    assert_eq!(controller.base_rtt_ns(), Some(25 * MS));
    assert_eq!(controller.learned(), None);
    // The next message, after a pause, begins the train again.
    let again_ns = 1_000 * MS;
    send(&mut controller, again_ns, 16, false);
    assert_eq!(controller.limits().pace_bps, first_bps);
    for packets in [4 + 8, 4 + 16] {
        report(&mut controller, again_ns - 4 * 32_768, packets, 0);
    }
    assert_eq!(controller.limits().pace_bps, 4 * first_bps);
    assert_eq!(controller.learned(), None, "a faster train follows");
}

#[test]
fn drops_at_the_receiver_bound_the_pace() {
    let mut controller = known();
    send(&mut controller, 0, TRAIN_PACKETS, false);
    report(&mut controller, 0, TRAIN_PACKETS, 3);
    assert!(controller.limits().pace_bps <= 500_000_000);
}

#[test]
fn known_drops_and_marks_are_congestion() {
    for (marked, dropped) in [(0, 3), (40, 0)] {
        let mut controller = known();
        send(&mut controller, 0, TRAIN_PACKETS, false);
        report(&mut controller, 0, TRAIN_PACKETS, 0);
        assert_eq!(controller.phase(), Phase::Grow);
        send(&mut controller, 30 * MS, 200, false);
        for packets in [100, 200] {
            let departed_ns = 30 * MS + (packets - 1) * 32_768;
            controller.on_feedback(&Feedback {
                now_ns: departed_ns + 25 * MS,
                newest: Some(Newest {
                    sent_bytes: (TRAIN_PACKETS + packets) * 4_096,
                    departed_ns: Some(departed_ns),
                    hold_ns: 0,
                }),
                received_bytes: (TRAIN_PACKETS + packets) * 4_096,
                received_packets: TRAIN_PACKETS + packets,
                marked_packets: marked * (packets / 200),
                dropped_packets: dropped * (packets / 200),
                drain_bps: 1_000_000_000,
            });
        }
        assert_eq!(controller.phase(), Phase::Drain, "{marked} {dropped}");
    }
}

/// The report of `packets` packets that follow the train of [`known`] and left at 1 Gbit/s from 30 ms
/// on. The last of them has this round trip.
fn after_train(packets: u64, rtt_ns: u64) -> Feedback {
    let sent = TRAIN_PACKETS + packets;
    let departed_ns = 30 * MS + (packets - 1) * 32_768;
    Feedback {
        now_ns: departed_ns + rtt_ns,
        newest: Some(Newest {
            sent_bytes: sent * 4_096,
            departed_ns: Some(departed_ns),
            hold_ns: 0,
        }),
        received_bytes: sent * 4_096,
        received_packets: sent,
        drain_bps: 1_000_000_000,
        ..Feedback::default()
    }
}

/// Marks on the first packets of a message, caused by other flows.
#[test]
fn a_flow_with_little_in_flight_keeps_its_share() {
    let mut controller = known();
    send(&mut controller, 0, TRAIN_PACKETS, false);
    report(&mut controller, 0, TRAIN_PACKETS, 0);
    let before_bps = controller.learned().unwrap().rate_bps;
    send(&mut controller, 30 * MS, 20, true);
    let marked = Feedback {
        marked_packets: 20,
        ..after_train(20, 26 * MS)
    };
    controller.on_feedback(&marked);
    assert_eq!(controller.phase(), Phase::Drain);
    let after_bps = controller.learned().unwrap().rate_bps;
    assert!(
        after_bps > before_bps / 10 * 9,
        "{after_bps} of {before_bps}"
    );
}

/// A queue of others during the first packets of a message.
#[test]
fn a_queue_is_not_that_of_a_flow_with_little_in_flight() {
    for (packets, phase) in [(20, Phase::Grow), (150, Phase::Drain), (400, Phase::Drain)] {
        let mut controller = known();
        send(&mut controller, 0, TRAIN_PACKETS, false);
        report(&mut controller, 0, TRAIN_PACKETS, 0);
        let before_bps = controller.learned().unwrap().rate_bps;
        send(&mut controller, 30 * MS, packets, true);
        // Several reports, because the delay of a single packet is no queue.
        for tenths in 1..=10 {
            controller.on_feedback(&after_train(packets / 10 * tenths, 37 * MS));
        }
        assert_eq!(controller.phase(), phase, "{packets}");
        // A cut follows the delay. The window of a message that has ended was not full.
        let after_bps = controller.learned().unwrap().rate_bps;
        let least_bps = if phase == Phase::Grow {
            before_bps
        } else {
            before_bps / 37 * 25
        };
        assert!(
            (least_bps / 100 * 99..=before_bps).contains(&after_bps),
            "{packets}: {after_bps} of {before_bps}"
        );
    }
}

/// The share that a train after a pause leaves, in percent, if these packets of the train are reported
/// with these round trips.
fn percent_after_pause(reports: &[(u64, u64)]) -> u64 {
    let mut controller = known();
    send(&mut controller, 0, TRAIN_PACKETS, true);
    report(&mut controller, 0, TRAIN_PACKETS, 0);
    let before_bps = controller.learned().unwrap().rate_bps;
    let second_ns = 2_000 * MS;
    send(&mut controller, second_ns, TRAIN_PACKETS, false);
    assert_eq!(controller.phase(), Phase::Probe);
    for &(packets, rtt_ns) in reports {
        let departed_ns = second_ns + (packets - 1) * 32_768;
        let packets = TRAIN_PACKETS + packets;
        controller.on_feedback(&Feedback {
            now_ns: departed_ns + rtt_ns,
            newest: Some(Newest {
                sent_bytes: packets * 4_096,
                departed_ns: Some(departed_ns),
                hold_ns: 0,
            }),
            received_bytes: packets * 4_096,
            received_packets: packets,
            ..Feedback::default()
        });
    }
    assert_eq!(controller.phase(), Phase::Grow);
    controller.learned().unwrap().rate_bps * 100 / before_bps
}

/// The delay is twice the length of the train.
#[test]
fn a_train_after_a_pause_leaves_half_of_the_share() {
    let percent = percent_after_pause(&[(1, 25 * MS), (TRAIN_PACKETS, 29 * MS)]);
    assert!((50..63).contains(&percent), "{percent}");
    let percent = percent_after_pause(&[(TRAIN_PACKETS, 29 * MS)]);
    assert!((50..63).contains(&percent), "{percent}");
}

#[test]
fn a_queue_that_a_train_after_a_pause_finds_leaves_the_share() {
    let percent = percent_after_pause(&[(1, 29 * MS), (TRAIN_PACKETS, 29 * MS)]);
    assert!(percent >= 99, "{percent}");
    // What the train adds to the queue is its own.
    let percent = percent_after_pause(&[(1, 29 * MS), (TRAIN_PACKETS, 29 * MS + MS / 4 * 3)]);
    assert!((60..75).contains(&percent), "{percent}");
}

/// The receiver waits 12 ms for a processor while the first packets of growth arrive.
#[test]
fn a_pause_of_the_receiver_early_in_growth_leaves_a_third_of_the_share() {
    let mut controller = known();
    send(&mut controller, 0, TRAIN_PACKETS, false);
    report(&mut controller, 0, TRAIN_PACKETS, 0);
    let before_bps = controller.learned().unwrap().rate_bps;
    send(&mut controller, 30 * MS, 150, false);
    // Several reports, because the delay of a single packet is no queue.
    for packets in (30..=150).step_by(15) {
        controller.on_feedback(&after_train(packets, 37 * MS));
    }
    assert_eq!(controller.phase(), Phase::Drain);
    let after_bps = controller.learned().unwrap().rate_bps;
    assert!(after_bps > before_bps / 3, "{after_bps} of {before_bps}");
}

/// A path whose delay does not depend on the controller.
struct GivenPath {
    /// The round trip of packets that leave at a time.
    rtt_ns: fn(u64) -> u64,
    now_ns: u64,
    sent_bytes: u64,
    /// The departure, the bytes sent by then, and the time of the report of packets in flight.
    in_flight: VecDeque<(u64, u64, u64)>,
    reported_bytes: u64,
    /// Bytes that the pace allows now.
    paced_bytes: u64,
}

/// A round trip of 25 ms, and a queue of 20 to 30 ms that other flows keep.
fn filled_ns(now_ns: u64) -> u64 {
    45 * MS + now_ns / MS % 11 * MS
}

impl GivenPath {
    /// The path after the first train of [`known`].
    fn after_train(rtt_ns: fn(u64) -> u64) -> Self {
        Self {
            rtt_ns,
            now_ns: TRAIN_PACKETS * 32_768 + 26 * MS,
            sent_bytes: TRAIN_PACKETS * 4_096,
            in_flight: VecDeque::new(),
            reported_bytes: TRAIN_PACKETS * 4_096,
            paced_bytes: 0,
        }
    }

    /// Sends for a millisecond, as much as the controller allows, and passes the reports to it.
    fn step(&mut self, controller: &mut Adaptive) {
        self.wait(controller, MS);
        let limits = controller.limits();
        let room_bytes = limits
            .window_bytes
            .saturating_sub(self.sent_bytes - self.reported_bytes);
        self.paced_bytes = (self.paced_bytes + limits.pace_bps / 8_000).min(1 << 20);
        let packets = room_bytes.min(self.paced_bytes) / 4_096;
        if packets > 0 {
            self.paced_bytes -= packets * 4_096;
            self.send(controller, packets, false);
        }
    }

    /// Passes the reports of a time without sending to the controller.
    fn wait(&mut self, controller: &mut Adaptive, ns: u64) {
        self.now_ns += ns;
        while let Some(&(departed_ns, bytes, _)) =
            self.in_flight.front().filter(|(.., at)| *at <= self.now_ns)
        {
            self.in_flight.pop_front();
            self.reported_bytes = bytes;
            controller.on_feedback(&Feedback {
                now_ns: self.now_ns,
                newest: Some(Newest {
                    sent_bytes: bytes,
                    departed_ns: Some(departed_ns),
                    hold_ns: 0,
                }),
                received_bytes: bytes,
                received_packets: bytes / 4_096,
                ..Feedback::default()
            });
        }
    }

    fn send(&mut self, controller: &mut Adaptive, packets: u64, app_limited: bool) {
        self.sent_bytes += packets * 4_096;
        controller.on_sent(&Sent {
            now_ns: self.now_ns,
            bytes: packets * 4_096,
            in_flight_bytes: self.sent_bytes - self.reported_bytes,
            app_limited,
        });
        let at_ns = self.now_ns + (self.rtt_ns)(self.now_ns);
        let at_ns = self
            .in_flight
            .back()
            .map_or(at_ns, |last| last.2.max(at_ns));
        self.in_flight
            .push_back((self.now_ns, self.sent_bytes, at_ns));
    }
}

#[test]
fn a_short_pause_beside_flows_that_fill_the_queue_does_not_end_the_competition() {
    let mut controller = known();
    send(&mut controller, 0, TRAIN_PACKETS, false);
    report(&mut controller, 0, TRAIN_PACKETS, 0);
    let mut path = GivenPath::after_train(filled_ns);
    for _ in 0..5_000 {
        path.step(&mut controller);
        if controller.phase() == Phase::Compete {
            break;
        }
    }
    assert_eq!(controller.phase(), Phase::Compete);
    for (pause_ns, phase) in [(2_000 * MS, Phase::Compete), (6_000 * MS, Phase::Probe)] {
        // All packets arrive, and the next message begins after a pause.
        path.reported_bytes = path.sent_bytes;
        path.in_flight.clear();
        path.now_ns += pause_ns;
        path.send(&mut controller, 1, false);
        assert_eq!(controller.phase(), phase, "{pause_ns}");
    }
}

/// Messages of 250 ms that end before a queue forms, and pauses of a second between them.
#[test]
fn a_message_starts_with_what_the_last_one_grew_to() {
    let mut controller = known();
    send(&mut controller, 0, TRAIN_PACKETS, false);
    report(&mut controller, 0, TRAIN_PACKETS, 0);
    let mut path = GivenPath::after_train(|_| 25 * MS);
    let mut trains_bps = Vec::new();
    for _ in 0..3 {
        for _ in 0..250 {
            path.step(&mut controller);
        }
        path.send(&mut controller, 1, true);
        path.wait(&mut controller, 1_000 * MS);
        path.send(&mut controller, 1, false);
        assert_eq!(controller.phase(), Phase::Probe);
        trains_bps.push(controller.limits().pace_bps);
    }
    for pair in [1_000_000_000].iter().chain(&trains_bps).zip(&trains_bps) {
        let (before_bps, after_bps) = pair;
        let grown = before_bps + before_bps / 20..=2 * before_bps;
        assert!(grown.contains(after_bps), "{trains_bps:?}");
    }
}

/// Bytes that the path of [`known`] holds.
const PATH_BYTES: u64 = 3_125_000;

/// A flow whose receiver reports nothing for a second, although packets are in flight.
fn unreported() -> (Adaptive, GivenPath) {
    let mut controller = known();
    send(&mut controller, 0, TRAIN_PACKETS, false);
    report(&mut controller, 0, TRAIN_PACKETS, 0);
    let mut path = GivenPath::after_train(|_| 25 * MS);
    path.now_ns += 1_000 * MS;
    // Not all of it is in flight, so this is no pause.
    path.reported_bytes -= 2 * 4_096;
    path.send(&mut controller, 1, false);
    (controller, path)
}

/// What a flow sends while nothing is reported shows nothing about the path.
#[test]
fn a_window_grows_to_twice_what_arrived() {
    let (mut controller, mut path) = unreported();
    assert_eq!(controller.phase(), Phase::Grow);
    let window_bytes = controller.limits().window_bytes;
    let grown = PATH_BYTES * 3 / 2..PATH_BYTES * 9 / 4;
    assert!(grown.contains(&window_bytes), "{window_bytes}");
    // After a pause, the share is what the window grew to, and nothing has arrived at that rate.
    path.reported_bytes = path.sent_bytes;
    path.now_ns += 5_000 * MS;
    path.send(&mut controller, 1, false);
    assert_eq!(controller.phase(), Phase::Probe);
    let learned_bps = controller.learned().unwrap().rate_bps;
    assert_eq!(learned_bps, 1_000_000_000);
}

/// Packets that were sent twice are reported, and the receiver has dropped some.
#[test]
fn a_cut_without_a_round_trip_leaves_what_arrived() {
    let (mut controller, path) = unreported();
    controller.on_feedback(&Feedback {
        now_ns: path.now_ns + 25 * MS,
        newest: Some(Newest {
            sent_bytes: path.sent_bytes,
            departed_ns: None,
            hold_ns: 0,
        }),
        received_bytes: path.sent_bytes,
        received_packets: path.sent_bytes / 4_096,
        dropped_packets: 3,
        drain_bps: 100_000_000_000,
        ..Feedback::default()
    });
    assert_eq!(controller.phase(), Phase::Drain);
    let window_bytes = controller.limits().window_bytes;
    assert!(window_bytes <= PATH_BYTES, "{window_bytes}");
}

/// Between hosts with 50 ms of noise, a train of four times that is longer than twice the round trip and this noise.
#[test]
fn a_train_has_at_most_twice_the_bytes_that_a_round_trip_delivered() {
    let noisy = AdaptiveOptions {
        jitter_ns: 50 * MS,
        ..options()
    };
    let mut controller = Adaptive::new(AdaptiveOptions {
        start: Some(Start {
            rate_bps: 1_000_000_000,
            rtt_ns: 25 * MS,
        }),
        ..noisy
    });
    let packets = 200 * MS / 32_768 + 1;
    send(&mut controller, 0, packets, false);
    assert_eq!(controller.limits().window_bytes, 25_000_000);
    report(&mut controller, 0, packets, 0);
    send(&mut controller, 5_000 * MS, 1, false);
    assert_eq!(controller.phase(), Phase::Probe);
    let train_bytes = controller.limits().window_bytes;
    // The round trip of a path that is short for its hosts has their noise in it.
    assert!(train_bytes <= 2 * 125 * 75_000, "{train_bytes}");
}

#[test]
fn an_old_report_changes_nothing() {
    let mut controller = known();
    send(&mut controller, 0, TRAIN_PACKETS, false);
    report(&mut controller, 0, TRAIN_PACKETS, 0);
    let before = (controller.phase(), controller.limits());
    report(&mut controller, 0, 1, 1);
    assert_eq!((controller.phase(), controller.limits()), before);
}

fn extreme() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        0..1_000_000u64,
        0..100_000_000_000u64,
        any::<u64>()
    ]
}

fn start() -> impl Strategy<Value = Option<Start>> {
    prop::option::of(
        (extreme(), extreme()).prop_map(|(rate_bps, rtt_ns)| Start { rate_bps, rtt_ns }),
    )
}

proptest! {
    #[test]
    fn whatever_is_reported_something_may_leave(
        packet_bytes in extreme(),
        max_rate_bps in extreme(),
        jitter_ns in extreme(),
        recovery_ns in extreme(),
        start in start(),
        calls in prop::collection::vec(
            (0..4u8, [extreme(), extreme(), extreme(), extreme(), extreme()], any::<bool>()),
            1..60,
        ),
    ) {
        let mut controller = Adaptive::new(AdaptiveOptions {
            packet_bytes, max_rate_bps, jitter_ns, recovery_ns, start,
        });
        for (kind, [a, b, c, d, e], flag) in calls {
            match kind {
                0 => controller.on_sent(&Sent {
                    now_ns: a, bytes: b, in_flight_bytes: c, app_limited: flag,
                }),
                1 => _ = controller.on_timeout(a),
                _ => controller.on_feedback(&Feedback {
                    now_ns: a,
                    newest: Some(Newest {
                        sent_bytes: b, departed_ns: flag.then_some(c), hold_ns: d,
                    }),
                    received_bytes: e,
                    received_packets: d,
                    marked_packets: c,
                    dropped_packets: b,
                    drain_bps: a,
                }),
            }
            let limits = controller.limits();
            prop_assert!(limits.pace_bps >= 1);
            prop_assert!(limits.window_bytes >= 1);
            prop_assert!(limits.pace_bps <= max_rate_bps.clamp(1, 1 << 50));
        }
    }

    #[test]
    fn a_window_grows_with_time_alone(steps in prop::collection::vec(0..5 * MS, 1..100)) {
        let mut controller = known();
        send(&mut controller, 0, TRAIN_PACKETS, false);
        report(&mut controller, 0, TRAIN_PACKETS, 0);
        let mut now_ns = 30 * MS;
        let mut window_bytes = 0;
        for (i, step_ns) in steps.into_iter().enumerate() {
            now_ns += step_ns;
            controller.on_sent(&Sent {
                now_ns,
                bytes: 4_096,
                in_flight_bytes: (i as u64 + 1) * 4_096,
                app_limited: false,
            });
            let limits = controller.limits();
            prop_assert!(limits.window_bytes >= window_bytes);
            window_bytes = limits.window_bytes;
        }
    }
}

/// A queue of others, until a time. Each failed attempt to drain it costs a part of the share.
#[test]
fn after_four_failed_attempts_a_train_tests_what_is_free() {
    for (end_ms, next) in [
        (200, None),
        (320, Some(Phase::Probe)),
        (600, Some(Phase::Compete)),
    ] {
        let mut controller = known();
        send(&mut controller, 0, TRAIN_PACKETS, false);
        report(&mut controller, 0, TRAIN_PACKETS, 0);
        let mut path = GivenPath::after_train(|now_ns| 32 * MS + now_ns / MS % 11 * MS / 2);
        let mut drains = 0;
        let mut before = controller.phase();
        let other = (0..700).find_map(|ms| {
            if ms == end_ms {
                path.rtt_ns = |_| 25 * MS;
            }
            path.step(&mut controller);
            let phase = controller.phase();
            drains += u32::from(phase == Phase::Drain && before != Phase::Drain);
            before = phase;
            (!matches!(phase, Phase::Grow | Phase::Drain)).then_some(phase)
        });
        assert_eq!(other, next, "{end_ms}: {drains} attempts");
        assert_eq!(drains >= 4, next.is_some(), "{end_ms}: {drains} attempts");
    }
}

/// Who asks for the shortest round trip, for instance to tell a late packet from its repeat, gets it.
#[test]
fn a_variation_does_not_lengthen_the_shortest_round_trip() {
    let mut controller = known();
    send(&mut controller, 0, TRAIN_PACKETS, false);
    report(&mut controller, 0, TRAIN_PACKETS, 0);
    let mut path = GivenPath::after_train(|now_ns| 25 * MS + now_ns / (20 * MS) % 2 * 8 * MS);
    for _ in 0..2_000 {
        path.step(&mut controller);
    }
    assert_eq!(controller.base_rtt_ns(), Some(25 * MS));
    let window_bytes = controller.limits().window_bytes;
    assert!(window_bytes > TRAIN_PACKETS * 4_096, "{window_bytes}");
}
