//! Parity messages (P3.11): their memory, their packets, and the chunks rebuilt from them.

use farwrite_sdr::{Arrival, Event, Place, QpConfig, SdrError, SdrQp, SendSpec};
use farwrite_wire::control::{Ack, Control, MessageId, Outcome};

use crate::world::RTT_NS;
use crate::{arrive, connected, offer, post, small, tell};

fn parity_of(message: u64) -> MessageId {
    MessageId::new(message).parity()
}

fn with_parity() -> QpConfig {
    QpConfig {
        parity: true,
        ..small()
    }
}

fn pair() -> (SdrQp, SdrQp) {
    (connected(with_parity()), connected(with_parity()))
}

fn spec(length: u64, parity_bytes: u64) -> SendSpec {
    SendSpec {
        length: Some(length),
        parity_bytes,
        ..SendSpec::default()
    }
}

/// Returns an ACK without new information.
fn ack(message: u64) -> Ack {
    Ack {
        message,
        cumulative: 0,
        seen: 0,
        window_start: 0,
        bits: Vec::new(),
    }
}

fn events(qp: &mut SdrQp) -> Vec<Event> {
    std::iter::from_fn(|| qp.poll_event()).collect()
}

/// Posts memory for the parity of `message`.
fn post_parity(qp: &mut SdrQp, message: u64, length: u64) {
    let place = qp.parity_place(message).unwrap();
    assert_eq!(place.message, parity_of(message));
    let target = Place {
        rkey: place.generation.into(),
        base: qp.geometry().slot_base(place.slot),
        length,
    };
    qp.post_parity(message, target).unwrap();
}

#[test]
fn parity_has_the_slot_behind_all_slots_of_messages() {
    let qp = connected(with_parity());
    for message in 0..20 {
        let geometry = qp.geometry();
        let parity = parity_of(message);
        assert_eq!(geometry.slot(parity), geometry.slot(message) + 4);
        assert_eq!(geometry.generation(parity), geometry.generation(message));
    }
    assert_eq!(qp.geometry().table_slots(), 8);
}

#[test]
fn memory_posted_with_the_receive_clears_both_at_once() {
    let (mut sender, mut receiver) = pair();
    post(&mut receiver, 1000);
    post_parity(&mut receiver, 0, 256);
    tell(0, &mut receiver, &mut sender);
    let message = sender.start_send(spec(1000, 256)).unwrap();
    let clear = |message: MessageId| Event::ClearToSend { message };
    assert_eq!(
        events(&mut sender),
        [clear(message.into()), clear(parity_of(message))]
    );
    let writes: Vec<_> = sender.writes(parity_of(message), 0..9).collect();
    assert_eq!(writes.len(), 4);
    for (packet, write) in (0..).zip(writes) {
        let base = sender.geometry().slot_base(4);
        assert_eq!((write.bytes, write.offset), (64, 64 * packet));
        assert_eq!(write.remote_addr, base + 64 * packet);
        let arrival = receiver
            .table()
            .handle_packet(write.generation, write.imm, write.bytes);
        let parity = parity_of(message);
        assert!(matches!(arrival, Arrival::New { message, .. } if message == parity));
    }
    let mut seen = Vec::new();
    receiver
        .received()
        .drain_arrivals(|message| seen.push(message));
    assert_eq!(seen, [parity_of(message)]);
    assert_eq!(receiver.received().count(parity_of(message)), 1);
    assert_eq!(receiver.received().count(message), 0);
}

#[test]
fn too_little_memory_clears_the_message_alone() {
    let (mut sender, mut receiver) = pair();
    post(&mut receiver, 1000);
    post_parity(&mut receiver, 0, 255);
    tell(0, &mut receiver, &mut sender);
    let message = sender.start_send(spec(1000, 256)).unwrap();
    assert_eq!(
        events(&mut sender),
        [Event::ClearToSend {
            message: message.into()
        }]
    );
    assert!(!sender.is_clear(parity_of(message)));
    assert_eq!(sender.writes(parity_of(message), 0..9).count(), 0);
    tell(1, &mut sender, &mut receiver);
    assert_eq!(
        receiver.expect_parity(message, 256),
        Err(SdrError::TooLong {
            length: 256,
            max: 255
        })
    );
}

/// Returns the number of offers in ten seconds, if the peer answers each of them.
fn offers_in_ten_seconds(sender: &mut SdrQp, receiver: &mut SdrQp) -> usize {
    let mut offers = 0;
    for now_ns in (0..10_000_000_000).step_by(1_000_000) {
        while let Some(control) = sender.poll_control(now_ns, RTT_NS) {
            offers += usize::from(matches!(control, Control::Offer(_)));
            receiver.handle_control(now_ns, &control).unwrap();
        }
        events(receiver);
        tell(now_ns, receiver, sender);
        // The receiver reports on the message.
        sender
            .handle_control(now_ns, &Control::Ack(ack(0)))
            .unwrap();
    }
    offers
}

#[test]
fn a_sender_whose_parity_is_refused_asks_no_more() {
    for posted_bytes in [0, 255] {
        let (mut sender, mut receiver) = pair();
        post(&mut receiver, 1000);
        if posted_bytes > 0 {
            post_parity(&mut receiver, 0, posted_bytes);
        }
        tell(0, &mut receiver, &mut sender);
        let message = sender.start_send(spec(1000, 256)).unwrap();
        let offers = offers_in_ten_seconds(&mut sender, &mut receiver);
        assert!(offers <= 2, "{offers} offers");
        assert!(!sender.is_clear(parity_of(message)));
    }
}

#[test]
fn a_clearance_from_before_the_offer_refuses_nothing() {
    let (mut sender, mut receiver) = pair();
    post(&mut receiver, 1000);
    let mut early = Vec::new();
    while let Some(control) = receiver.poll_control(0, RTT_NS) {
        early.push(control);
    }
    let message = sender.start_send(spec(1000, 256)).unwrap();
    tell(0, &mut sender, &mut receiver);
    post_parity(&mut receiver, message, 256);
    let mut late = Vec::new();
    while let Some(control) = receiver.poll_control(RTT_NS, RTT_NS) {
        late.push(control);
    }
    // The control messages may arrive in any order.
    for control in early.iter().chain(&late).chain(&early) {
        sender.handle_control(RTT_NS, control).unwrap();
    }
    assert!(sender.is_clear(parity_of(message)));
}

#[test]
fn memory_for_parity_is_posted_once() {
    let (mut sender, mut receiver) = pair();
    post(&mut receiver, 1000);
    post_parity(&mut receiver, 0, 256);
    tell(0, &mut receiver, &mut sender);
    let message = sender.start_send(spec(1000, 256)).unwrap();
    tell(1, &mut sender, &mut receiver);
    let parity = parity_of(message);
    let arrival = arrive(&receiver, parity, 0, 64);
    assert!(matches!(arrival, Arrival::New { .. }), "{arrival:?}");
    let place = receiver.parity_place(message).unwrap();
    let more = Place {
        rkey: place.generation.into(),
        base: receiver.geometry().slot_base(place.slot),
        length: 512,
    };
    assert_eq!(
        receiver.post_parity(message, more),
        Err(SdrError::ParityPosted(message))
    );
    // The packets that have arrived are not forgotten.
    let again = arrive(&receiver, parity, 0, 64);
    assert_eq!(again, Arrival::Duplicate { message: parity });
}

#[test]
fn parity_memory_that_comes_with_the_offer_clears_the_parity_then() {
    let (mut sender, mut receiver) = pair();
    post(&mut receiver, 1000);
    tell(0, &mut receiver, &mut sender);
    let message = sender.start_send(spec(1000, 256)).unwrap();
    assert_eq!(
        events(&mut sender),
        [Event::ClearToSend {
            message: message.into()
        }]
    );
    tell(1, &mut sender, &mut receiver);
    post_parity(&mut receiver, message, 256);
    receiver.expect_parity(message, 256).unwrap();
    tell(2, &mut receiver, &mut sender);
    let parity = parity_of(message);
    assert_eq!(
        events(&mut sender),
        [Event::ClearToSend { message: parity }]
    );
    assert!(sender.is_clear(parity));
}

#[test]
fn a_clearance_of_parity_that_was_lost_is_told_again() {
    for lost in 1..6 {
        let (mut sender, mut receiver) = pair();
        post(&mut receiver, 1000);
        tell(0, &mut receiver, &mut sender);
        let message = sender.start_send(spec(1000, 256)).unwrap();
        tell(1, &mut sender, &mut receiver);
        events(&mut receiver);
        post_parity(&mut receiver, message, 256);
        let (mut now_ns, mut left) = (2, lost);
        while !sender.is_clear(parity_of(message)) {
            while let Some(control) = receiver.poll_control(now_ns, RTT_NS) {
                if left > 0 {
                    left -= 1;
                } else {
                    sender.handle_control(now_ns, &control).unwrap();
                }
            }
            tell(now_ns, &mut sender, &mut receiver);
            now_ns += RTT_NS;
            assert!(now_ns < 200 * RTT_NS, "never cleared");
        }
        assert_eq!(left, 0);
    }
}

#[test]
fn a_late_packet_of_parity_makes_the_end_of_its_message_be_told_again() {
    let (mut sender, mut receiver) = pair();
    post(&mut receiver, 1000);
    post_parity(&mut receiver, 0, 256);
    receiver
        .handle_control(0, &Control::Offer(offer(0, 1000)))
        .unwrap();
    receiver.complete_recv(0, Outcome::Whole).unwrap();
    tell(0, &mut receiver, &mut sender);
    let later_ns = 100 * RTT_NS;
    while receiver.poll_control(later_ns, RTT_NS).is_some() {}
    let arrival = arrive(&receiver, parity_of(0), 0, 64);
    assert_eq!(arrival, Arrival::Late { message: 0 });
    receiver.handle_late(0);
    let end = Control::ReceiveComplete {
        message: 0,
        outcome: Outcome::Whole,
    };
    assert_eq!(receiver.poll_control(2 * later_ns, RTT_NS), Some(end));
}

#[test]
fn a_rebuilt_chunk_counts_as_arrived_once() {
    let mut receiver = connected(with_parity());
    let bitmap = post(&mut receiver, 1000);
    // The length is not known yet, so no chunk can have been rebuilt.
    receiver.received().handle_rebuilt(0, 1);
    assert_eq!(bitmap.count(), 0);
    receiver
        .handle_control(0, &Control::Offer(offer(0, 1000)))
        .unwrap();
    arrive(&receiver, 0, 4, 64);
    for _ in 0..2 {
        receiver.received().handle_rebuilt(0, 1);
        receiver.received().handle_rebuilt(0, 3);
        receiver.received().handle_rebuilt(0, 4);
        receiver.received().handle_rebuilt(1, 0);
    }
    assert_eq!((bitmap.word(0), bitmap.count()), (0b1010, 2));
    assert_eq!(bitmap.bytes(), 256 + (1000 - 3 * 256));
    let duplicate = Arrival::Duplicate { message: 0.into() };
    assert_eq!(arrive(&receiver, 0, 5, 64), duplicate);
    for packet in (0..4).chain(8..12) {
        arrive(&receiver, 0, packet, 64);
    }
    assert!(bitmap.is_complete());
    receiver.complete_recv(0, Outcome::Whole).unwrap();
    receiver.received().handle_rebuilt(0, 2);
    assert_eq!(bitmap.bytes(), 1000);
}

#[test]
fn an_immediate_is_completed_by_duplicates_of_rebuilt_chunks() {
    let (mut sender, mut receiver) = pair();
    post(&mut receiver, 2048);
    tell(0, &mut receiver, &mut sender);
    let immediate = Some(0x1234_5678);
    let message = sender
        .start_send(SendSpec {
            immediate,
            ..spec(2048, 0)
        })
        .unwrap();
    tell(0, &mut sender, &mut receiver);
    for chunk in 0..8 {
        receiver.received().handle_rebuilt(message, chunk);
    }
    assert!(receiver.recv_immediate(message).is_err());
    for write in sender.writes(message, 0..2) {
        let table = receiver.table();
        let arrival = table.handle_packet(write.generation, write.imm, write.bytes);
        assert_eq!(
            arrival,
            Arrival::Duplicate {
                message: message.into()
            }
        );
    }
    assert_eq!(receiver.recv_immediate(message).ok(), immediate);
}

#[test]
fn without_parity_in_the_configuration_there_is_none() {
    let mut qp = connected(small());
    post(&mut qp, 1000);
    assert_eq!(qp.parity_place(0), Err(SdrError::ParityOff));
    assert_eq!(qp.start_send(spec(1000, 64)), Err(SdrError::ParityOff));
    assert_eq!(arrive(&qp, parity_of(0), 0, 64), Arrival::Invalid);
    let max = small().max_message_bytes;
    let mut qp = connected(with_parity());
    let too_long = SdrError::TooLong {
        length: max + 1,
        max,
    };
    assert_eq!(qp.start_send(spec(1000, max + 1)), Err(too_long));
}
