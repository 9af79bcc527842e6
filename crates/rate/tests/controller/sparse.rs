//! Senders that have little to send.

use farwrite_rate::{Adaptive, Feedback, Newest, RateControl, Sent};

use super::{MS, options};

const RECORD_BYTES: u64 = 200;
const RTT_NS: u64 = 50 * MS;

fn send(controller: &mut Adaptive, now_ns: u64, in_flight_bytes: u64) {
    controller.on_sent(&Sent {
        now_ns,
        bytes: RECORD_BYTES,
        in_flight_bytes,
        app_limited: true,
    });
}

/// Reports that the first `records` records arrived, the last of which left at `departed_ns`.
fn report(controller: &mut Adaptive, departed_ns: u64, records: u64) {
    controller.on_feedback(&Feedback {
        now_ns: departed_ns + RTT_NS,
        newest: Some(Newest {
            sent_bytes: records * RECORD_BYTES,
            departed_ns: Some(departed_ns),
            hold_ns: 0,
        }),
        received_bytes: records * RECORD_BYTES,
        received_packets: records,
        ..Feedback::default()
    });
}

#[test]
fn records_at_a_steady_rate_never_wait_for_the_end_of_a_train() {
    let mut controller = Adaptive::new(options());
    for number in 0..2_000 {
        let now_ns = number * 5 * MS;
        let in_flight = RTT_NS / (5 * MS);
        if let Some(reported) = number.checked_sub(in_flight) {
            report(&mut controller, reported * 5 * MS, reported + 1);
        }
        let in_flight_bytes = number.min(in_flight) * RECORD_BYTES;
        let window_bytes = controller.limits().window_bytes;
        assert!(
            window_bytes >= in_flight_bytes + RECORD_BYTES,
            "record {number}: {in_flight_bytes} bytes in flight, window {window_bytes}"
        );
        send(&mut controller, now_ns, in_flight_bytes + RECORD_BYTES);
    }
}

#[test]
fn records_without_reports_have_one_train_in_flight() {
    let mut controller = Adaptive::new(options());
    let train_bytes = controller.limits().window_bytes;
    for number in 1..=train_bytes / RECORD_BYTES {
        let in_flight_bytes = number * RECORD_BYTES;
        send(&mut controller, number * MS / 10, in_flight_bytes);
        assert!(controller.limits().window_bytes <= train_bytes);
    }
}
