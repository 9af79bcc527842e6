//! The effect of packets on the bitmaps (paper section 3.2, P3.7).

use std::collections::BTreeSet;

use farwrite_sdr::{Arrival, Event, MessageId, QpConfig, Refusal, SdrQp};
use farwrite_wire::control::{Control, Offer, Outcome};
use proptest::prelude::*;

use crate::release::release;
use crate::{arrive, connected, offer, post, small};

const NEW: Arrival = Arrival::New {
    message: MessageId::new(0),
    chunk_completed: None,
};

fn completes(chunk: u32) -> Arrival {
    Arrival::New {
        message: MessageId::new(0),
        chunk_completed: Some(chunk),
    }
}

fn take(qp: &mut SdrQp, offer: Offer) {
    qp.handle_control(0, &Control::Offer(offer)).unwrap();
}

#[test]
fn a_chunk_is_told_once_when_its_last_packet_comes() {
    let mut qp = connected(small());
    let bitmap = post(&mut qp, 1000);
    take(&mut qp, offer(0, 600));
    assert_eq!(bitmap.len(), 3);
    for packet in [5, 4, 7] {
        assert_eq!(arrive(&qp, 0, packet, 64), NEW);
    }
    assert_eq!(
        arrive(&qp, 0, 7, 64),
        Arrival::Duplicate { message: 0.into() }
    );
    assert_eq!((bitmap.packets(1), bitmap.get(1)), (0b1011, false));
    assert_eq!(arrive(&qp, 0, 6, 64), completes(1));
    assert_eq!(
        arrive(&qp, 0, 6, 64),
        Arrival::Duplicate { message: 0.into() }
    );
    assert_eq!(
        (bitmap.word(0), bitmap.count(), bitmap.bytes()),
        (0b010, 1, 256)
    );
    assert_eq!(arrive(&qp, 0, 9, 24), NEW);
    assert_eq!(arrive(&qp, 0, 8, 64), completes(2));
    assert_eq!((bitmap.to_bytes(), bitmap.packets(2)), (vec![0b110], 0b11));
    assert_eq!(qp.received().seen(0), 3);
    assert!(!bitmap.is_complete());
}

#[test]
fn once_the_length_is_known_every_packet_has_its_share() {
    let mut qp = connected(small());
    post(&mut qp, 1000);
    take(&mut qp, offer(0, 600));
    for (packet, bytes) in [
        (0, 63),
        (0, 65),
        (0, 0),
        (9, 25),
        (9, 64),
        (10, 64),
        (10, 0),
    ] {
        assert_eq!(
            arrive(&qp, 0, packet, bytes),
            Arrival::Invalid,
            "{packet}: {bytes} bytes"
        );
    }
    assert_eq!(qp.received().packets(0), 0);
}

#[test]
fn until_the_length_is_known_packets_must_fit_the_buffer() {
    let mut qp = connected(small());
    post(&mut qp, 1000);
    for (packet, bytes) in [
        (0, 65),
        (15, 64),
        (16, 1),
        (0, 0),
        (7, 0),
        (u32::MAX >> 14, 64),
    ] {
        assert_eq!(
            arrive(&qp, 0, packet, bytes),
            Arrival::Invalid,
            "{packet}: {bytes} bytes"
        );
    }
    for (packet, bytes) in [(0, 64), (15, 40), (3, 1)] {
        assert_eq!(
            arrive(&qp, 0, packet, bytes),
            NEW,
            "{packet}: {bytes} bytes"
        );
    }
}

#[test]
fn a_late_offer_completes_the_last_short_chunk() {
    let mut qp = connected(small());
    let bitmap = post(&mut qp, 1000);
    for (packet, bytes) in [(0, 64), (1, 64), (2, 64), (4, 64), (5, 8)] {
        assert_eq!(arrive(&qp, 0, packet, bytes), NEW);
    }
    assert_eq!((bitmap.count(), bitmap.len()), (0, 4));
    qp.received().drain_arrivals(|_| {});
    take(&mut qp, offer(0, 64 * 5 + 8));
    assert_eq!((bitmap.word(0), bitmap.count(), bitmap.len()), (0b10, 1, 2));
    let mut changed = Vec::new();
    qp.received()
        .drain_arrivals(|message| changed.push(message));
    assert_eq!(changed, [0]);
    assert_eq!(arrive(&qp, 0, 3, 64), completes(0));
    assert!(bitmap.is_complete());
}

#[test]
fn copies_are_drained_too_and_what_is_over_is_not() {
    let mut qp = connected(small());
    let drained = |qp: &SdrQp| {
        let mut messages = Vec::new();
        qp.received()
            .drain_arrivals(|message| messages.push(message.data()));
        messages
    };
    for _ in 0..4 {
        post(&mut qp, 64);
    }
    arrive(&qp, 3, 0, 64);
    arrive(&qp, 1, 0, 64);
    assert_eq!(drained(&qp), [1, 3]);
    assert_eq!(drained(&qp), []);
    assert_eq!(
        arrive(&qp, 3, 0, 64),
        Arrival::Duplicate { message: 3.into() }
    );
    assert_eq!(drained(&qp), [3]);
    arrive(&qp, 0, 0, 64);
    take(&mut qp, offer(0, 64));
    qp.complete_recv(0, Outcome::Whole).unwrap();
    assert_eq!(drained(&qp), []);
    arrive(&qp, 1, 0, 64);
    qp.complete_recv(1, Outcome::Whole).unwrap();
    take(&mut qp, offer(1, 64));
    post(&mut qp, 64);
    post(&mut qp, 64);
    assert_eq!(drained(&qp), []);
}

#[test]
fn a_buffer_that_is_full_needs_no_offer() {
    let mut qp = connected(QpConfig {
        split: crate::without_user_bits(),
        ..small()
    });
    let bitmap = post(&mut qp, 100);
    arrive(&qp, 0, 0, 64);
    assert_eq!(arrive(&qp, 0, 1, 36), completes(0));
    assert_eq!((bitmap.count(), bitmap.is_complete()), (1, false));
    take(&mut qp, offer(0, 100));
    assert!(bitmap.is_complete());
}

#[test]
fn an_offer_that_contradicts_what_arrived_is_refused() {
    let mut qp = connected(small());
    let bitmap = post(&mut qp, 1000);
    arrive(&qp, 0, 10, 64);
    take(&mut qp, offer(0, 640));
    let refusal = Refusal::Contradicted {
        packets: 10,
        seen: 11,
    };
    assert_eq!(
        qp.poll_event(),
        Some(Event::Refused {
            message: 0,
            refusal
        })
    );
    assert_eq!(qp.poll_event(), None);
    assert!(!bitmap.is_complete());
}

#[test]
fn packets_before_the_first_receive_or_of_no_slot_are_invalid() {
    let mut qp = connected(small());
    assert_eq!(arrive(&qp, 0, 0, 64), Arrival::Invalid);
    post(&mut qp, 1000);
    assert_eq!(arrive(&qp, 1, 0, 64), Arrival::Invalid);
    // There are 4 slots and 4 generations, so slot 5 and generation 4 do not exist.
    assert_eq!(qp.table().handle_packet(0, 5 << 22, 64), Arrival::Invalid);
    assert_eq!(qp.table().handle_packet(4, 0, 64), Arrival::Invalid);
    // The slot has not used this generation yet.
    assert_eq!(qp.table().handle_packet(1, 0, 64), Arrival::Invalid);
}

#[test]
fn a_bitmap_outlives_its_receive_and_its_slot() {
    let mut qp = connected(small());
    let first = post(&mut qp, 64);
    take(&mut qp, offer(0, 64));
    arrive(&qp, 0, 0, 64);
    qp.complete_recv(0, Outcome::Whole).unwrap();
    assert_eq!(arrive(&qp, 0, 0, 64), Arrival::Late { message: 0 });
    assert!(first.get(0) && first.is_complete());
    for _ in 1..4 {
        post(&mut qp, 64);
    }
    // The slot is posted again before its last receive is released.
    let second = post(&mut qp, 64);
    assert_eq!((second.count(), second.word(0)), (0, 0));
    // The packet is late again. This time another generation shows it.
    assert_eq!(arrive(&qp, 0, 0, 64), Arrival::Late { message: 0 });
    assert_eq!(second.bytes(), 0);
    assert_eq!(qp.received().count(0), 1);
    release(&mut qp, 0);
    assert_eq!(qp.received().count(0), 0);
    assert_eq!(arrive(&qp, 0, 0, 64), Arrival::Late { message: 0 });
    drop(qp);
    assert_eq!((first.len(), first.count(), first.bytes()), (1, 1, 64));
    assert_eq!((first.to_bytes(), second.to_bytes()), (vec![1], vec![0]));
}

#[test]
fn a_short_message_carries_a_whole_immediate() {
    let (mut sender, mut receiver) = (connected(small()), connected(small()));
    let bitmap = post(&mut receiver, 10);
    let spec = farwrite_sdr::SendSpec {
        length: Some(3),
        immediate: Some(0x1234_5678),
        ..Default::default()
    };
    sender.start_send(spec).unwrap();
    crate::tell(0, &mut sender, &mut receiver);
    crate::tell(0, &mut receiver, &mut sender);
    let writes: Vec<_> = sender.writes(0, 0..u32::MAX).collect();
    assert_eq!(
        writes.iter().map(|w| w.bytes).collect::<Vec<_>>(),
        [3, 0, 0, 0, 0, 0, 0, 0]
    );
    for write in &writes {
        assert!(receiver.recv_immediate(0).is_err());
        receiver
            .table()
            .handle_packet(write.generation, write.imm, write.bytes);
    }
    assert_eq!(receiver.recv_immediate(0), Ok(0x1234_5678));
    assert!(bitmap.is_complete());
}

#[test]
fn the_first_copy_of_a_fragment_holds() {
    let mut qp = connected(small());
    post(&mut qp, 1000);
    take(
        &mut qp,
        Offer {
            has_immediate: true,
            ..offer(0, 1000)
        },
    );
    for packet in 0..16 {
        assert_eq!(qp.recv_immediate(0).is_ok(), packet >= 8);
        let bytes = if packet == 15 { 40 } else { 64 };
        // Packets from 8 on carry the same fragments again, here with other bits, which are
        // ignored.
        let fragment = if packet < 8 { packet + 1 } else { 0xf };
        let imm = packet << 4 | fragment;
        assert!(matches!(
            qp.table().handle_packet(0, imm, bytes),
            Arrival::New { .. }
        ));
    }
    assert_eq!(qp.recv_immediate(0), Ok(0x8765_4321));
}

proptest! {
    /// Compares the bitmaps with a model that keeps sets of packets.
    #[test]
    fn bitmaps_show_what_arrived(
        per_chunk in prop_oneof![Just(1_u32), 2_u32..9, Just(64), 65_u32..130],
        length in 1_u64..20_000,
        offer_at in 0_usize..400,
        packets in prop::collection::vec(0_u32..320, 1..400),
    ) {
        let config = QpConfig { packets_per_chunk: per_chunk, max_message_bytes: 20_000, ..small() };
        let mut qp = connected(config);
        let bitmap = post(&mut qp, length);
        let total = qp.geometry().packets(length, false);
        let mut arrived = BTreeSet::new();
        for (step, packet) in packets.into_iter().enumerate() {
            if step == offer_at {
                take(&mut qp, offer(0, length));
            }
            let packet = packet % total;
            let bytes = qp.geometry().packet_bytes(length, false, packet).unwrap();
            let fresh = arrived.insert(packet);
            let is_new = matches!(arrive(&qp, 0, packet, bytes), Arrival::New { .. });
            prop_assert_eq!(is_new, fresh);
        }
        take(&mut qp, offer(0, length));
        let chunk_is_whole = |chunk: u32| {
            (chunk * per_chunk..((chunk + 1) * per_chunk).min(total)).all(|p| arrived.contains(&p))
        };
        let whole: Vec<bool> = (0..total.div_ceil(per_chunk)).map(chunk_is_whole).collect();
        let shown: Vec<bool> = (0..bitmap.len()).map(|chunk| bitmap.get(chunk)).collect();
        prop_assert_eq!(&shown, &whole);
        prop_assert_eq!(bitmap.count() as usize, whole.iter().filter(|&&whole| whole).count());
        prop_assert_eq!(bitmap.is_complete(), whole.iter().all(|&whole| whole));
        prop_assert_eq!(qp.received().packets(0) as usize, arrived.len());
        let bytes = bitmap.to_bytes();
        for (chunk, whole) in whole.iter().enumerate() {
            prop_assert_eq!(bytes[chunk / 8] >> (chunk % 8) & 1 == 1, *whole);
        }
        for chunk in 0..bitmap.len() {
            let first = chunk * per_chunk;
            let bits = (0..per_chunk.min(64)).filter(|i| arrived.contains(&(first + i)));
            prop_assert_eq!(bitmap.packets(chunk), bits.map(|i| 1 << i).sum::<u64>());
        }
    }
}
