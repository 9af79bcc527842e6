//! Messages with critical ranges (P5.9.6 to P5.9.8).

use farwrite::fabric::sim::Verdict;
use farwrite::{CriticalError, CriticalRanges, Error, RecvOptions, SendOptions};
use farwrite_wire::control::Control;

use crate::best_effort::{lose_packets, post_ahead, run_to_received};
use crate::deadlines::{FAILED, PACKET, PARTIAL, WHOLE, end, order, settle};
use crate::parcel::{Order, Parcel};
use crate::world::{MS, RTT, SECOND, World, long_haul, options, tag};

/// Packets 10 to 13 and 200 to 203 of 256 are critical, and go first.
fn marked(scheme: &str) -> Order {
    let bytes = |packets: std::ops::Range<usize>| {
        (packets.start * PACKET) as u64..(packets.end * PACKET) as u64
    };
    Order {
        critical: CriticalRanges::new([bytes(10..14), bytes(200..204)]).unwrap(),
        ..order(256 * PACKET, scheme)
    }
}

fn demanding(scheme: &str) -> RecvOptions {
    RecvOptions {
        scheme: Some(tag(scheme)),
        ..RecvOptions::default()
    }
}

/// The packets that arrived, of a partial receive.
fn arrived(parcel: &Parcel) -> Vec<u32> {
    let partial = parcel.inn.recv.partial().expect("it is partial");
    let chunks = 0..partial.chunks();
    chunks.filter(|chunk| partial.has_chunk(*chunk)).collect()
}

#[test]
fn critical_ranges_leave_first() {
    for scheme in ["best-effort+first", "best-effort+exact"] {
        let mut world = World::new(1, long_haul(), &options());
        let parcel = post_ahead(&mut world, marked(scheme), demanding(scheme));
        // Of all packets, only the first eight and the last arrive.
        lose_packets(&world, |packet| (8..255).contains(&packet));
        run_to_received(&mut world, &parcel);
        let expected = (10..14).chain(200..204).chain(255..256);
        assert_eq!(arrived(&parcel), expected.collect::<Vec<_>>(), "{scheme}");
        assert_eq!(settle(&mut world, &parcel), [PARTIAL, PARTIAL], "{scheme}");
        end(world, vec![parcel]);
    }
}

#[test]
fn exact_ranges_are_repeated_and_the_others_are_not() {
    let scheme = "best-effort+exact";
    for terms in [demanding(scheme), RecvOptions::default()] {
        let mut world = World::new(1, long_haul(), &options());
        let parcel = post_ahead(&mut world, marked(scheme), terms);
        // Three critical packets and three others are lost.
        lose_packets(&world, |packet| [1, 5, 7, 20, 21, 200].contains(&packet));
        let took_ns = run_to_received(&mut world, &parcel);
        assert!(
            took_ns > 3 * RTT / 2,
            "repeats take a round trip: {took_ns}"
        );
        assert_eq!(arrived(&parcel).len(), 253);
        assert!((200..204).all(|packet| arrived(&parcel).contains(&packet)));
        assert_eq!(settle(&mut world, &parcel), [PARTIAL, PARTIAL]);
        end(world, vec![parcel]);
    }
}

#[test]
fn a_message_without_its_exact_ranges_fails_at_the_deadline() {
    let scheme = "best-effort+exact";
    let mut world = World::new(1, long_haul(), &options());
    let terms = RecvOptions {
        deadline_ns: Some(SECOND),
        ..demanding(scheme)
    };
    let order = Order {
        deadline_ns: Some(SECOND),
        ..marked(scheme)
    };
    let parcel = post_ahead(&mut world, order, terms);
    lose_packets(&world, |packet| packet == 3 || packet > 255);
    assert_eq!(settle(&mut world, &parcel), [FAILED, FAILED]);
    world.traffic.filter(|_| Verdict::Pass);
    end(world, vec![parcel]);
}

#[test]
fn ranges_that_the_message_cannot_have_are_refused() {
    let mut world = World::new(1, long_haul(), &options());
    let end = world.sender(crate::world::Way::Forth);
    let source = end.endpoint.register(vec![0; 100]).unwrap();
    let mut post = |scheme: &str, critical| {
        let options = SendOptions {
            scheme: tag(scheme),
            critical,
            ..SendOptions::default()
        };
        end.endpoint.post_send(end.qp, source.whole(), options)
    };
    let ranges = |end| CriticalRanges::new(std::iter::once(50..end)).unwrap();
    let why = post("best-effort", ranges(60)).unwrap_err();
    assert!(
        matches!(why, Error::Critical(CriticalError::Scheme { scheme: 6 })),
        "{why}"
    );
    let why = post("best-effort+exact", ranges(101)).unwrap_err();
    assert!(
        why.to_string()
            .contains("50..101 leaves the message of 100 bytes"),
        "{why}"
    );
}

/// The receive ends before its offer comes, and the sender misses that end. The answer to the offer of
/// the next message must not let it write: the message would end as partial without its exact ranges.
#[test]
fn a_receive_that_ended_before_the_offer_fails_the_send() {
    let scheme = "best-effort+exact";
    let mut world = World::new(1, long_haul(), &options());
    let start_ns = world.now_ns();
    world.traffic.filter(move |seen| {
        let is_end = seen.says(|control| matches!(control, Control::ReceiveComplete { .. }));
        match is_end && seen.now_ns < start_ns + 2 * RTT {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }
    });
    // The offers leave a round trip after the posts, and take half of one.
    let deadlines = [Some(start_ns + 3 * RTT / 2 - MS), None];
    let inns = deadlines.map(|deadline_ns| {
        let terms = RecvOptions {
            deadline_ns,
            ..RecvOptions::default()
        };
        let order = marked(scheme);
        let inn = world.post_recv_with(order.way, order.bytes.len(), terms);
        inn.expect("a free slot")
    });
    world.run_for(RTT);
    let parcels = inns.map(|inn| {
        let order = marked(scheme);
        let out = world.post_send(&order).expect("a free slot");
        Parcel { order, out, inn }
    });
    assert_eq!(settle(&mut world, &parcels[0]), [FAILED, PARTIAL]);
    assert_eq!(settle(&mut world, &parcels[1])[1], WHOLE);
    assert_eq!(world.traffic.tally().data, 256, "only the second is sent");
    end(world, parcels.into());
}
