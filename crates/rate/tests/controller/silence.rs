//! Times without reports.

use farwrite_rate::{Adaptive, Feedback, Newest, Phase, RateControl, Sent};

use super::{MS, TRAIN_PACKETS, known, options, report, send};

#[test]
fn silence_halves_the_train_and_waits_longer_each_time() {
    let mut controller = known();
    let mut now_ns = 0;
    let mut paces = Vec::new();
    let mut waits = Vec::new();
    for _ in 0..4 {
        controller.on_sent(&Sent {
            now_ns,
            bytes: 4_096,
            in_flight_bytes: 4_096,
            app_limited: false,
        });
        let deadline_ns = controller.next_timeout().unwrap();
        controller.on_timeout(deadline_ns - 1);
        waits.push(deadline_ns - now_ns);
        paces.push(controller.limits().pace_bps);
        controller.on_timeout(deadline_ns);
        assert!(controller.limits().window_bytes >= 4_096);
        now_ns = deadline_ns;
    }
    assert_eq!(paces[3], paces[0] / 8);
    assert!(
        waits.windows(2).all(|pair| pair[1] == 2 * pair[0]),
        "{waits:?}"
    );
}

#[test]
fn a_long_silence_on_a_known_path_is_tested_every_second_or_two() {
    let mut controller = known();
    send(&mut controller, 0, TRAIN_PACKETS, false);
    report(&mut controller, 0, TRAIN_PACKETS, 0);
    let mut now_ns = 60 * MS;
    let mut longest_ns = 0;
    for _ in 0..40 {
        send(&mut controller, now_ns, 1, false);
        let deadline_ns = controller.next_timeout().unwrap();
        longest_ns = longest_ns.max(deadline_ns - now_ns);
        controller.on_timeout(deadline_ns);
        now_ns = deadline_ns;
    }
    // Four first waits, of which each has three round trips of 25 ms and two packets of the slowest train.
    assert!(
        (1_000 * MS..1_600 * MS).contains(&longest_ns),
        "{longest_ns}"
    );
}

#[test]
fn the_first_report_after_silence_brings_back_what_was_known() {
    let mut controller = known();
    send(&mut controller, 0, TRAIN_PACKETS, false);
    report(&mut controller, 0, TRAIN_PACKETS, 0);
    let learned = controller.learned().expect("a round trip was measured");
    for _ in 0..4 {
        let now_ns = controller.next_timeout().unwrap_or(60 * MS);
        controller.on_timeout(now_ns);
        send(&mut controller, now_ns, 1, false);
    }
    assert!(controller.limits().pace_bps <= learned.rate_bps / 4);
    // The last packet waited 5 s in the socket of the receiver.
    let sent_bytes = (TRAIN_PACKETS + 4) * 4_096;
    let departed_ns = 1_000 * MS;
    controller.on_feedback(&Feedback {
        now_ns: departed_ns + 5_000 * MS,
        newest: Some(Newest {
            sent_bytes,
            departed_ns: Some(departed_ns),
            hold_ns: 0,
        }),
        received_bytes: sent_bytes,
        received_packets: TRAIN_PACKETS + 4,
        // Packets dropped because its socket was full.
        dropped_packets: 1_000,
        ..Feedback::default()
    });
    assert_eq!(controller.phase(), Phase::Probe);
    assert_eq!(controller.learned(), Some(learned));
    assert_eq!(controller.limits().pace_bps, learned.rate_bps);
    assert_eq!(controller.ceiling_bps(), options().max_rate_bps);
}

#[test]
fn a_long_silence_before_the_first_report_does_not_leave_a_slow_pace() {
    let mut controller = Adaptive::new(options());
    let first_bps = controller.limits().pace_bps;
    let sent = |now_ns| Sent {
        now_ns,
        bytes: 4_096,
        in_flight_bytes: 4_096,
        app_limited: true,
    };
    let mut now_ns = 0;
    for _ in 0..40 {
        controller.on_sent(&sent(now_ns));
        now_ns = controller.next_timeout().unwrap();
        controller.on_timeout(now_ns);
    }
    let slow_bps = controller.limits().pace_bps;
    assert_eq!(slow_bps, 8 * 4_096 * 8, "8 packets a second");
    // The reports of single packets are back.
    controller.on_sent(&sent(now_ns));
    controller.on_feedback(&Feedback {
        now_ns: now_ns + 25 * MS,
        newest: Some(Newest {
            sent_bytes: 41 * 4_096,
            departed_ns: Some(now_ns),
            hold_ns: 0,
        }),
        received_bytes: 4_096,
        received_packets: 1,
        ..Feedback::default()
    });
    assert_eq!(controller.limits().pace_bps, first_bps);
}
