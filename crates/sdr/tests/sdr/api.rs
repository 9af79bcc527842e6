//! Tests of calls in the wrong order or with wrong numbers, and of the events for each user.

use farwrite_sdr::{
    ConnectError, Event, Offered, Place, QpConfig, Refusal, SdrError, SdrQp, SendSpec, Terms,
    Timing, Withdrawal,
};
use farwrite_wire::control::{Control, CriticalChunks, Outcome, SchemeTag};

use crate::world::RTT_NS;
use crate::{arrive, connected, info, offer, post, small, tell};

pub(crate) fn spec(length: u64) -> SendSpec {
    SendSpec {
        length: Some(length),
        ..SendSpec::default()
    }
}

pub(crate) fn pair() -> (SdrQp, SdrQp) {
    (connected(small()), connected(small()))
}

pub(crate) fn events(qp: &mut SdrQp) -> Vec<Event> {
    std::iter::from_fn(|| qp.poll_event()).collect()
}

#[test]
fn queue_pairs_of_different_shape_do_not_connect() {
    type Change = fn(&mut QpConfig);
    let changes: [(&str, Change); 8] = [
        ("mtu", |c| c.mtu = 128),
        ("packets_per_chunk", |c| c.packets_per_chunk = 1),
        ("split.id_bits", |c| c.split = crate::without_user_bits()),
        ("slots", |c| c.slots = 8),
        ("parity", |c| c.parity = true),
        ("max_message_bytes", |c| c.max_message_bytes = 4095),
        ("generations", |c| c.generations = 2),
        ("channels", |c| c.channels = 1),
    ];
    for (name, change) in changes {
        let mut config = small();
        change(&mut config);
        let error = SdrQp::new(small(), Timing::wide_area())
            .unwrap()
            .connect(&info(config))
            .unwrap_err();
        assert!(
            matches!(error, ConnectError::Mismatch { field, .. } if field == name),
            "{error}"
        );
    }
    assert_eq!(
        connected(small()).connect(&info(small())),
        Err(ConnectError::Connected)
    );
}

#[test]
fn another_timing_at_the_peer_is_refused_by_its_name() {
    let mut qp = SdrQp::new(small(), Timing::wide_area()).unwrap();
    let mut peer = info(small());
    for timing in [
        Timing::datacenter(),
        Timing {
            min_ping_ns: 5_000_001,
            ..Timing::wide_area()
        },
    ] {
        peer.timing = timing;
        let text = qp.connect(&peer).unwrap_err().to_string();
        let want = format!("timing is {timing} at the peer and wide_area here");
        assert!(text.starts_with(&want), "{text}");
    }
    peer.timing = Timing::wide_area();
    assert_eq!(qp.connect(&peer), Ok(()));
}

#[test]
fn offers_are_repeated_as_the_timing_says() {
    for (timing, rtt_ns, want_ns) in [
        // An eighth, and the time of an answer, which may wait for data.
        (Timing::wide_area(), 10_000, [260_000, 1_000_000, 2_000_000]),
        (Timing::datacenter(), 10_000, [625, 5_000, 10_000]),
        (Timing::datacenter(), 80_000, [2_500, 20_000, 40_000]),
    ] {
        let mut qp = SdrQp::new(small(), timing).unwrap();
        let mut peer = info(small());
        peer.timing = timing;
        qp.connect(&peer).unwrap();
        qp.start_send(spec(1)).unwrap();
        let mut now_ns = 0;
        let mut waits_ns = Vec::new();
        while now_ns < 2_000_000_000 {
            assert!(matches!(
                qp.poll_control(now_ns, rtt_ns),
                Some(Control::Offer(_))
            ));
            let next_ns = qp.next_timeout().unwrap();
            waits_ns.push(next_ns - now_ns);
            now_ns = next_ns;
        }
        assert_eq!(waits_ns[..3], want_ns);
        assert_eq!(waits_ns.last(), Some(&timing.max_repeat_ns));
    }
}

#[test]
fn nothing_is_sent_before_connecting() {
    let mut qp = SdrQp::new(small(), Timing::wide_area()).unwrap();
    assert_eq!(qp.start_send(spec(1)), Err(SdrError::NotConnected));
    post(&mut qp, 1);
    assert_eq!((qp.next_timeout(), qp.poll_control(0, 0)), (None, None));
    qp.connect(&info(small())).unwrap();
    assert!(matches!(
        qp.poll_control(0, 0),
        Some(Control::ClearToSend(_))
    ));
}

#[test]
fn every_slot_takes_one_message_at_a_time() {
    let (mut sender, mut receiver) = pair();
    for message in 0..4 {
        assert_eq!(sender.start_send(spec(1)), Ok(message));
        post(&mut receiver, 1);
    }
    assert!(matches!(
        sender.start_send(spec(1)),
        Err(SdrError::Retry(_))
    ));
    assert!(matches!(receiver.next_recv(), Err(SdrError::Retry(_))));
    // The end of a receive in the middle does not free a number, because numbers increase by one.
    receiver.complete_recv(1, Outcome::Failed).unwrap();
    assert!(matches!(receiver.next_recv(), Err(SdrError::Retry(_))));
    receiver.complete_recv(0, Outcome::Failed).unwrap();
    // A slot whose message may still be in flight is not free either.
    assert!(matches!(receiver.next_recv(), Err(SdrError::Retry(_))));
    tell(0, &mut sender, &mut receiver);
    assert_eq!(receiver.next_recv().unwrap().message, 4);
    tell(0, &mut receiver, &mut sender);
    assert_eq!(sender.start_send(spec(1)), Ok(4));
    assert_eq!(sender.start_send(spec(1)), Ok(5));
    assert!(matches!(
        sender.start_send(spec(1)),
        Err(SdrError::Retry(_))
    ));
}

/// A packet of a later message proves as much as an offer (P3.6).
#[test]
fn a_packet_of_a_later_message_frees_the_slots_before_it() {
    let mut receiver = connected(small());
    for _ in 0..4 {
        post(&mut receiver, 1);
    }
    receiver.complete_recv(0, Outcome::Failed).unwrap();
    assert!(matches!(receiver.next_recv(), Err(SdrError::Retry(_))));
    arrive(&receiver, 2, 0, 1);
    assert_eq!(receiver.next_recv().unwrap().message, 4);
}

#[test]
fn receives_are_checked() {
    let mut qp = connected(small());
    let place = qp.next_recv().unwrap();
    let target = Place {
        rkey: 1,
        base: 0,
        length: 4097,
    };
    let too_long = SdrError::TooLong {
        length: 4097,
        max: 4096,
    };
    assert_eq!(
        qp.post_recv(place, target, Terms::default()).unwrap_err(),
        too_long
    );
    let target = Place {
        rkey: 1,
        base: u64::MAX - 3,
        length: 4,
    };
    let bad = SdrError::BadTarget {
        base: u64::MAX - 3,
        length: 4,
    };
    assert_eq!(
        qp.post_recv(place, target, Terms::default()).unwrap_err(),
        bad
    );
    let target = Place {
        rkey: 1,
        base: 0,
        length: 4,
    };
    qp.post_recv(place, target, Terms::default()).unwrap();
    let stale = SdrError::StalePlace { place: 0, next: 1 };
    assert_eq!(
        qp.post_recv(place, target, Terms::default()).unwrap_err(),
        stale
    );
    assert_eq!(
        qp.complete_recv(1, Outcome::Whole),
        Err(SdrError::UnknownMessage(1))
    );
    assert_eq!(qp.complete_recv(0, Outcome::Whole), Ok(place));
    assert_eq!(
        qp.complete_recv(0, Outcome::Whole),
        Err(SdrError::UnknownMessage(0))
    );
}

#[test]
fn sends_are_checked() {
    let mut qp = connected(QpConfig {
        split: crate::without_user_bits(),
        ..small()
    });
    let too_long = SdrError::TooLong {
        length: 4097,
        max: 4096,
    };
    assert_eq!(qp.start_send(spec(4097)), Err(too_long.clone()));
    let with_immediate = SendSpec {
        immediate: Some(1),
        ..spec(1)
    };
    assert_eq!(qp.start_send(with_immediate), Err(SdrError::ImmediatesOff));
    assert_eq!(qp.recv_immediate(0), Err(SdrError::ImmediatesOff));
    assert_eq!(qp.end_send(0, 1), Err(SdrError::UnknownMessage(0)));
    qp.start_send(SendSpec::default()).unwrap();
    assert_eq!(qp.end_send(0, 4097), Err(too_long));
    assert_eq!(qp.end_send(0, 5), Ok(()));
    assert_eq!(qp.end_send(0, 5), Ok(()));
    assert_eq!(
        qp.end_send(0, 6),
        Err(SdrError::LengthSet {
            message: 0,
            length: 5
        })
    );
}

#[test]
fn a_send_writes_only_once_it_is_clear_and_only_its_packets() {
    let (mut sender, mut receiver) = pair();
    let message = sender.start_send(spec(300)).unwrap();
    assert!(!sender.is_clear(message));
    assert_eq!(sender.writes(message, 0..9).count(), 0);
    post(&mut receiver, 300);
    tell(0, &mut receiver, &mut sender);
    assert_eq!(
        events(&mut sender),
        [Event::ClearToSend {
            message: message.into()
        }]
    );
    assert!(sender.is_clear(message));
    assert_eq!(sender.writes(message, 0..u32::MAX).len(), 5);
    assert_eq!(
        sender
            .writes(message, 1..2)
            .map(|w| w.bytes)
            .collect::<Vec<_>>(),
        [44]
    );
    assert_eq!(sender.writes(message, 2..9).count(), 0);
    assert_eq!(sender.writes(message + 1, 0..1).count(), 0);
    let last = sender.writes(message, 1..2).next().unwrap();
    assert_eq!((last.offset, last.remote_addr, last.chunk), (256, 256, 1));
    sender.close_send(message, Outcome::Whole);
    assert_eq!(sender.writes(message, 0..1).count(), 0);
}

#[test]
fn a_message_longer_than_its_buffer_fails_at_both_ends() {
    let (mut sender, mut receiver) = pair();
    let message = sender.start_send(spec(101)).unwrap();
    post(&mut receiver, 100);
    tell(0, &mut sender, &mut receiver);
    tell(0, &mut receiver, &mut sender);
    let refusal = Refusal::TooLong {
        length: 101,
        capacity: 100,
    };
    let refused = Event::SendRefused { message, refusal };
    assert_eq!(events(&mut sender), [refused]);
    assert!(!sender.is_clear(message));
    assert_eq!(sender.writes(message, 0..9).count(), 0);
    assert_eq!(events(&mut receiver), [Event::Refused { message, refusal }]);
}

/// The offer arrives before the receive is posted, so that the receiver finds first that the message does not fit. It says
/// why whenever it says that the message is over.
#[test]
fn the_sender_learns_why_a_receive_that_was_posted_late_has_failed() {
    let (mut sender, mut receiver) = pair();
    let message = sender.start_send(spec(101)).unwrap();
    tell(0, &mut sender, &mut receiver);
    post(&mut receiver, 100);
    let refusal = Refusal::TooLong {
        length: 101,
        capacity: 100,
    };
    assert_eq!(events(&mut receiver), [Event::Refused { message, refusal }]);
    receiver.complete_recv(message, Outcome::Failed).unwrap();
    // What it says is lost.
    while receiver.poll_control(0, RTT_NS).is_some() {}
    assert_eq!(events(&mut sender), []);
    let later_ns = 10 * RTT_NS;
    tell(later_ns, &mut sender, &mut receiver);
    tell(later_ns, &mut receiver, &mut sender);
    let refused = Event::SendRefused { message, refusal };
    assert_eq!(events(&mut sender), [refused]);
    sender.close_send(message, Outcome::Failed);
    let again = tell(2 * later_ns, &mut sender, &mut receiver);
    assert_eq!(again, 0, "the message is over");
}

#[test]
fn a_stream_gets_its_length_later() {
    let (mut sender, mut receiver) = pair();
    let stream = SendSpec {
        length: None,
        scheme: SchemeTag {
            id: 3,
            params: [1; 6],
        },
        ..SendSpec::default()
    };
    let message = sender.start_send(stream).unwrap();
    let bitmap = post(&mut receiver, 1000);
    tell(0, &mut sender, &mut receiver);
    tell(0, &mut receiver, &mut sender);
    let offered = Event::Offered(Offered {
        message,
        length: None,
        scheme: stream.scheme,
        critical: CriticalChunks::NONE,
        has_immediate: false,
    });
    assert_eq!(events(&mut receiver), [offered]);
    // Without a length, writes may go up to the end of the buffer.
    assert_eq!(sender.writes(message, 0..9).len(), 16);
    let too_long = SdrError::TooLong {
        length: 1001,
        max: 1000,
    };
    assert_eq!(sender.end_send(message, 1001), Err(too_long));
    sender.end_send(message, 70).unwrap();
    assert_eq!(sender.writes(message, 0..9).len(), 2);
    tell(0, &mut sender, &mut receiver);
    assert_eq!(
        events(&mut receiver),
        [Event::LengthKnown {
            message,
            length: 70
        }]
    );
    arrive(&receiver, message, 0, 64);
    arrive(&receiver, message, 1, 6);
    assert!(bitmap.is_complete());
}

#[test]
fn a_run_has_the_packets_of_the_bytes_that_are_there() {
    let (mut sender, mut receiver) = pair();
    let stream = SendSpec {
        length: None,
        immediate: Some(7),
        ..SendSpec::default()
    };
    let message = sender.start_send(stream).unwrap();
    post(&mut receiver, 1000);
    tell(0, &mut sender, &mut receiver);
    tell(0, &mut receiver, &mut sender);
    // 200 bytes lie in the first of two chunks of 256 bytes.
    assert_eq!(sender.writes(message, 0..2).up_to(200).len(), 4);
    sender.end_send(message, 200).unwrap();
    // Packets after the last byte carry the rest of the immediate.
    assert_eq!(sender.writes(message, 0..2).up_to(200).len(), 8);
    let rest = sender.writes(message, 0..2).up_to(0);
    assert_eq!(rest.map(|write| write.bytes).collect::<Vec<_>>(), [0; 4]);
    let mut writes = sender.writes(message, 0..2);
    writes.skip_packets(3);
    assert_eq!((writes.next_packet(), writes.len()), (3, 5));
    writes.skip_packets(9);
    assert_eq!((writes.next_packet(), writes.len()), (8, 0));
}

#[test]
fn an_offer_waits_for_its_receive() {
    let (mut sender, mut receiver) = pair();
    let message = sender.start_send(spec(5)).unwrap();
    tell(0, &mut sender, &mut receiver);
    assert_eq!(events(&mut receiver), []);
    assert_eq!(receiver.recv_immediate(0), Err(SdrError::UnknownMessage(0)));
    post(&mut receiver, 5);
    let scheme = SchemeTag::default();
    let offered = Event::Offered(Offered {
        message,
        length: Some(5),
        scheme,
        critical: CriticalChunks::NONE,
        has_immediate: false,
    });
    assert_eq!(events(&mut receiver), [offered]);
    assert_eq!(receiver.recv_immediate(0), Err(SdrError::NoImmediate(0)));
}

#[test]
fn a_withdrawn_send_holds_its_slot_until_the_receiver_knows() {
    let (mut sender, mut receiver) = pair();
    let message = sender.start_send(spec(5)).unwrap();
    sender.close_send(message, Outcome::Failed);
    tell(0, &mut sender, &mut receiver);
    post(&mut receiver, 5);
    assert_eq!(
        events(&mut receiver),
        [Event::Withdrawn {
            message,
            withdrawal: Withdrawal::GivenUp
        }]
    );
    for _ in 1..4 {
        sender.start_send(spec(5)).unwrap();
    }
    assert!(matches!(
        sender.start_send(spec(5)),
        Err(SdrError::Retry(_))
    ));
    receiver.complete_recv(message, Outcome::Failed).unwrap();
    tell(0, &mut receiver, &mut sender);
    assert_eq!(sender.start_send(spec(5)), Ok(4));
    assert_eq!(events(&mut sender), []);
}

#[test]
fn nothing_is_told_of_what_was_ended_here_meanwhile() {
    let (mut sender, mut receiver) = pair();
    let message = sender.start_send(spec(101)).unwrap();
    post(&mut receiver, 100);
    tell(0, &mut sender, &mut receiver);
    tell(0, &mut receiver, &mut sender);
    sender.close_send(message, Outcome::Failed);
    receiver.complete_recv(message, Outcome::Failed).unwrap();
    assert_eq!(
        (events(&mut sender), events(&mut receiver)),
        (vec![], vec![])
    );
}

#[test]
fn messages_match_in_the_order_of_posting() {
    let mut receiver = connected(small());
    let buffers = [post(&mut receiver, 10), post(&mut receiver, 20)];
    for (message, bitmap) in (0..).zip(&buffers) {
        receiver
            .handle_control(0, &Control::Offer(offer(message, 7)))
            .unwrap();
        assert_eq!(bitmap.message(), message);
    }
    arrive(&receiver, 1, 0, 7);
    assert_eq!(buffers.map(|bitmap| bitmap.is_complete()), [false, true]);
}

#[test]
fn a_send_that_is_done_frees_its_slot_when_its_length_is_known() {
    let (mut sender, mut receiver) = pair();
    for message in 0..4 {
        post(&mut receiver, 1);
        assert_eq!(sender.start_send(spec(1)), Ok(message));
    }
    tell(0, &mut receiver, &mut sender);
    sender.close_send(0, Outcome::Whole);
    assert!(matches!(
        sender.start_send(spec(1)),
        Err(SdrError::Retry(_))
    ));
    tell(0, &mut sender, &mut receiver);
    // After a short wait, one answer covers all offers.
    tell(RTT_NS / 4, &mut receiver, &mut sender);
    assert_eq!(sender.start_send(spec(1)), Ok(4));
}

#[test]
fn a_send_without_length_or_clearance_cannot_be_whole() {
    let (mut sender, mut receiver) = pair();
    sender.start_send(spec(1)).unwrap();
    sender.start_send(SendSpec::default()).unwrap();
    sender.close_send(0, Outcome::Whole);
    for _ in 0..2 {
        post(&mut receiver, 1);
    }
    tell(0, &mut receiver, &mut sender);
    sender.close_send(1, Outcome::Whole);
    tell(0, &mut sender, &mut receiver);
    let withdrawn = [0, 1].map(|message| Event::Withdrawn {
        message,
        withdrawal: Withdrawal::GivenUp,
    });
    assert_eq!(events(&mut receiver), withdrawn);
}

#[test]
fn packets_past_the_end_wait_for_the_end() {
    let (mut sender, mut receiver) = pair();
    let stream = SendSpec {
        immediate: Some(9),
        ..SendSpec::default()
    };
    let message = sender.start_send(stream).unwrap();
    post(&mut receiver, 10);
    tell(0, &mut receiver, &mut sender);
    assert_eq!(sender.writes(message, 0..9).len(), 1);
    sender.end_send(message, 10).unwrap();
    assert_eq!(sender.writes(message, 0..9).len(), 8);
}
