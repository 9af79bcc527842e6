//! The terms of a receive: what it demands of a message and what it permits (P3.12). Also, how a
//! sender ends a message early (P3.9).

use farwrite_sdr::{
    Arrival, Event, MessageId, Offered, Refusal, SdrError, SendSpec, Terms, Withdrawal,
};
use farwrite_wire::control::{Control, CriticalChunks, Outcome, SchemeTag};

use crate::api::{events, pair, spec};
use crate::{arrive, connected, post, post_with, small, tell};

const SCHEME: SchemeTag = SchemeTag {
    id: 2,
    params: [2, 0, 0, 0, 0, 0],
};

/// Terms that demand the length of the buffer, no immediate, and `SCHEME`.
const EXACT: Terms = Terms {
    exact_length: true,
    immediate: false,
    scheme: Some(SCHEME),
    accepts_partial: false,
    answers_read: false,
};

#[test]
fn the_length_is_known_from_posting_on() {
    let (_, mut receiver) = pair();
    let bitmap = post_with(&mut receiver, 600, EXACT);
    // There are 10 packets, 4 per chunk, and the last packet has 24 bytes.
    assert_eq!(bitmap.len(), 3);
    assert_eq!(arrive(&receiver, 0, 9, 64), Arrival::Invalid);
    for packet in 0..9 {
        arrive(&receiver, 0, packet, 64);
    }
    assert!(!bitmap.is_complete());
    let last = Arrival::New {
        message: MessageId::new(0),
        chunk_completed: Some(2),
    };
    assert_eq!(arrive(&receiver, 0, 9, 24), last);
    assert!(bitmap.is_complete() && receiver.received().immediate_is_whole(0));
}

#[test]
fn packets_without_bytes_still_wait_for_the_offer() {
    let (mut sender, mut receiver) = pair();
    let bitmap = post_with(&mut receiver, 0, EXACT);
    assert_eq!(arrive(&receiver, 0, 0, 0), Arrival::Invalid);
    assert!(!bitmap.is_complete());
    let scheme = SCHEME;
    sender.start_send(SendSpec { scheme, ..spec(0) }).unwrap();
    tell(0, &mut sender, &mut receiver);
    assert!(matches!(arrive(&receiver, 0, 0, 0), Arrival::New { .. }));
    assert!(bitmap.is_complete());
}

/// A message with critical chunks is written only to a receiver that cannot mistake it for another.
#[test]
fn a_send_waits_until_the_receiver_knows_its_scheme() {
    for terms in [Terms::default(), EXACT] {
        let (mut sender, mut receiver) = pair();
        post_with(&mut receiver, 600, terms);
        tell(0, &mut receiver, &mut sender);
        let critical = CriticalChunks::new([0..1, 2..3]).unwrap();
        let start = |sender: &mut farwrite_sdr::SdrQp, critical| {
            sender.start_send(SendSpec {
                scheme: SCHEME,
                critical,
                needs_offer: true,
                ..spec(600)
            })
        };
        let beyond = CriticalChunks::new(std::iter::once(0..4)).unwrap();
        let (end, chunks) = (4, 3);
        let out_of_range = SdrError::CriticalOutOfRange { end, chunks };
        assert_eq!(start(&mut sender, beyond), Err(out_of_range));
        start(&mut sender, critical).unwrap();
        let clear = [Event::ClearToSend { message: 0.into() }];
        let (at_once, later) = match terms.scheme {
            Some(_) => (&clear[..], &[][..]),
            None => (&[][..], &clear[..]),
        };
        assert_eq!(events(&mut sender), at_once);
        tell(0, &mut sender, &mut receiver);
        let [Event::Offered(Offered { critical: got, .. })] = events(&mut receiver)[..] else {
            panic!("no offer");
        };
        assert_eq!(got, critical);
        tell(crate::world::RTT_NS, &mut receiver, &mut sender);
        assert_eq!(events(&mut sender), later);
        // A report shows that the receiver has the offer, and does not clear the message again.
        let nack = Control::Nack(farwrite_wire::control::Nack {
            message: 0,
            lost: Vec::new(),
        });
        sender.handle_control(0, &nack).unwrap();
        assert_eq!(events(&mut sender), []);
    }
}

#[test]
fn an_offer_that_agrees_confirms() {
    let (mut sender, mut receiver) = pair();
    post_with(&mut receiver, 600, EXACT);
    let scheme = SCHEME;
    let message = sender.start_send(SendSpec {
        scheme,
        ..spec(600)
    });
    tell(0, &mut sender, &mut receiver);
    tell(0, &mut receiver, &mut sender);
    assert_eq!(message, Ok(0));
    assert_eq!(
        events(&mut sender),
        [Event::ClearToSend { message: 0.into() }]
    );
    let offered = Event::Offered(Offered {
        message: 0,
        length: Some(600),
        scheme: SCHEME,
        critical: CriticalChunks::NONE,
        has_immediate: false,
    });
    assert_eq!(events(&mut receiver), [offered]);
}

#[test]
fn both_ends_name_what_disagrees_and_nothing_is_written() {
    let fits = SendSpec {
        scheme: SCHEME,
        ..spec(600)
    };
    let other = SchemeTag { id: 3, ..SCHEME };
    for (spec, refusal) in [
        (
            SendSpec {
                length: Some(599),
                ..fits
            },
            Refusal::Length {
                offered: 599,
                expected: 600,
            },
        ),
        (
            SendSpec {
                length: Some(601),
                ..fits
            },
            Refusal::Length {
                offered: 601,
                expected: 600,
            },
        ),
        (
            SendSpec {
                scheme: other,
                ..fits
            },
            Refusal::Scheme {
                offered: other,
                expected: SCHEME,
            },
        ),
        (
            SendSpec {
                immediate: Some(7),
                ..fits
            },
            Refusal::Immediate { offered: true },
        ),
    ] {
        let (mut sender, mut receiver) = pair();
        post_with(&mut receiver, 600, EXACT);
        sender.start_send(spec).unwrap();
        tell(0, &mut sender, &mut receiver);
        tell(0, &mut receiver, &mut sender);
        let message = 0;
        let refused = Event::SendRefused { message, refusal };
        assert_eq!(events(&mut sender), [refused]);
        assert_eq!(sender.writes(message, 0..9).count(), 0);
        assert_eq!(events(&mut receiver), [Event::Refused { message, refusal }]);
        // A receiver that gets only the withdrawal reports the same reason.
        let (_, mut receiver) = pair();
        post_with(&mut receiver, 600, EXACT);
        sender.close_send(message, Outcome::Failed);
        tell(0, &mut sender, &mut receiver);
        assert_eq!(events(&mut receiver), [Event::Refused { message, refusal }]);
    }
}

#[test]
fn a_streams_length_is_compared_once_it_is_known() {
    let terms = Terms {
        scheme: None,
        ..EXACT
    };
    let (mut sender, mut receiver) = pair();
    post_with(&mut receiver, 600, terms);
    let message = sender.start_send(SendSpec::default()).unwrap();
    tell(0, &mut sender, &mut receiver);
    tell(0, &mut receiver, &mut sender);
    assert_eq!(
        events(&mut sender),
        [Event::ClearToSend {
            message: message.into()
        }]
    );
    assert!(matches!(events(&mut receiver)[..], [Event::Offered(_)]));
    sender.end_send(message, 599).unwrap();
    tell(0, &mut sender, &mut receiver);
    let refusal = Refusal::Length {
        offered: 599,
        expected: 600,
    };
    assert_eq!(events(&mut receiver), [Event::Refused { message, refusal }]);
}

#[test]
fn terms_must_be_possible() {
    let mut config = small();
    config.split = crate::without_user_bits();
    let mut qp = connected(config);
    let place = qp.next_recv().unwrap();
    let target = farwrite_sdr::Place {
        rkey: 1,
        base: 0,
        length: 100,
    };
    let terms = Terms {
        immediate: true,
        ..EXACT
    };
    assert_eq!(
        qp.post_recv(place, target, terms).unwrap_err(),
        SdrError::ImmediatesOff
    );
    assert_eq!(qp.next_recv(), Ok(place));
}

#[test]
fn a_send_ends_as_partial_where_the_receiver_accepts_it() {
    for (accepts_partial, withdrawal) in [(true, Withdrawal::Expired), (false, Withdrawal::GivenUp)]
    {
        for stream in [false, true] {
            let (mut sender, mut receiver) = pair();
            let terms = Terms {
                accepts_partial,
                ..Terms::default()
            };
            post_with(&mut receiver, 600, terms);
            let length = (!stream).then_some(600);
            let send = SendSpec { length, ..spec(0) };
            let message = sender.start_send(send).unwrap();
            assert!(!sender.accepts_partial(message), "not known yet");
            tell(0, &mut sender, &mut receiver);
            tell(0, &mut receiver, &mut sender);
            assert_eq!(sender.accepts_partial(message), accepts_partial);
            events(&mut receiver);
            sender.close_send(message, Outcome::Partial);
            tell(0, &mut sender, &mut receiver);
            let withdrawn = Event::Withdrawn {
                message,
                withdrawal,
            };
            assert_eq!(events(&mut receiver), [withdrawn]);
        }
    }
}

#[test]
fn a_bounded_send_ends_as_partial_and_its_only_offer_brings_its_length() {
    for is_bounded in [false, true] {
        let (mut sender, mut receiver) = pair();
        // The clearance arrives before the send starts, and the first offer of the send is lost.
        post(&mut receiver, 600);
        tell(0, &mut receiver, &mut sender);
        let spec = SendSpec {
            is_bounded,
            ..spec(500)
        };
        let message = sender.start_send(spec).unwrap();
        assert_eq!(sender.accepts_partial(message), is_bounded);
        sender.close_send(message, Outcome::Partial);
        tell(0, &mut sender, &mut receiver);
        let offered = is_bounded.then_some(Event::Offered(Offered {
            message,
            length: Some(500),
            scheme: SchemeTag::default(),
            critical: CriticalChunks::NONE,
            has_immediate: false,
        }));
        let withdrawal = match is_bounded {
            true => Withdrawal::Expired,
            false => Withdrawal::GivenUp,
        };
        let withdrawn = Event::Withdrawn {
            message,
            withdrawal,
        };
        let expected: Vec<Event> = offered.into_iter().chain([withdrawn]).collect();
        assert_eq!(events(&mut receiver), expected);
    }
}

#[test]
fn a_send_that_was_never_cleared_does_not_end_as_partial() {
    let (mut sender, mut receiver) = pair();
    let message = sender.start_send(spec(600)).unwrap();
    sender.close_send(message, Outcome::Partial);
    tell(0, &mut sender, &mut receiver);
    post(&mut receiver, 600);
    let withdrawal = Withdrawal::GivenUp;
    let withdrawn = Event::Withdrawn {
        message,
        withdrawal,
    };
    assert_eq!(events(&mut receiver), [withdrawn]);
}

#[test]
fn a_packet_shows_as_an_offer_does_that_the_slot_may_be_posted_again() {
    let (_, mut receiver) = pair();
    for message in 0..4 {
        post_with(&mut receiver, 64, EXACT);
        if message == 0 {
            arrive(&receiver, 0, 0, 64);
        }
    }
    for message in 0..2 {
        receiver.complete_recv(message, Outcome::Partial).unwrap();
    }
    assert_eq!(receiver.next_recv().unwrap().message, 4);
    post(&mut receiver, 64);
    assert!(matches!(receiver.next_recv(), Err(SdrError::Retry(_))));
}

#[test]
fn a_lost_withdrawal_is_told_until_the_end_is_heard() {
    let (mut sender, mut receiver) = pair();
    let terms = Terms {
        accepts_partial: true,
        ..Terms::default()
    };
    post_with(&mut receiver, 600, terms);
    let message = sender.start_send(spec(600)).unwrap();
    tell(0, &mut sender, &mut receiver);
    tell(0, &mut receiver, &mut sender);
    sender.close_send(message, Outcome::Partial);
    let mut now_ns = 0;
    for _ in 0..10 {
        let said = sender.poll_control(now_ns, 0);
        let is_withdrawal = |control: &Control| matches!(control, Control::Offer(o) if o.withdrawn == Some(Withdrawal::Expired));
        assert!(said.as_ref().is_some_and(is_withdrawal), "{said:?}");
        now_ns = sender.next_timeout().unwrap();
    }
    tell(now_ns, &mut sender, &mut receiver);
    receiver.complete_recv(message, Outcome::Partial).unwrap();
    tell(now_ns, &mut receiver, &mut sender);
    assert_eq!(sender.next_timeout(), None);
}
