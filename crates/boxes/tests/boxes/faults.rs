//! Exhausted memory, boxes that restart or disappear, and unexpected packets.
#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

use crate::common::{
    IPV4, Kind, Link, Pair, QPN, SRC_PORT, ack, addresses, config, drain, ethernet, frame,
    is_box_message, is_repair, message, offset, payload,
};
use std::net::IpAddr;

use farwrite_boxes::lowar::{BlockShape, Coding, Config, Lowar};
use farwrite_boxes::{Middlebox, Side};

const TAG_BYTES: usize = 16;

/// Sends two messages of one packet each. After that, the boxes know each other.
pub(crate) fn warm(pair: &mut Pair, psn: u32) {
    let frames = [0, 1].map(|at| message(IPV4, Kind::Write, psn + at, 1).remove(0));
    assert_eq!(pair.send(&frames), frames);
}

pub(crate) fn write(psn: u32, packets: u32) -> Vec<Vec<u8>> {
    message(IPV4, Kind::Write, psn, packets)
}

/// Sends frames over a path that loses the packets with these numbers. Returns the frames that the
/// receiver gets.
pub(crate) fn send_without(pair: &mut Pair, frames: &[Vec<u8>], lost: &[usize]) -> Vec<Vec<u8>> {
    let sent: Vec<_> = frames.iter().flat_map(|frame| pair.encode(frame)).collect();
    let mut got = Vec::new();
    for (at, frame) in sent.into_iter().enumerate() {
        if !lost.contains(&at) {
            got.extend(pair.decode(frame));
        }
    }
    got
}

#[test]
fn bursts_of_up_to_c_packets_are_repaired() {
    for from in 0..17 {
        let mut pair = Pair::new(&config(16, 8));
        warm(&mut pair, 0);
        let frames = write(2, 16);
        let lost: Vec<_> = (from..from + 8).collect();
        assert_eq!(send_without(&mut pair, &frames, &lost), frames, "{from}");
    }
}

#[test]
fn without_an_answer_nothing_is_added_and_questions_become_rare() {
    let mut pair = Pair::new(&config(4, 1));
    for number in 0..1000 {
        pair.now_ns += 10_000_000;
        for frame in write(4 * number, 4) {
            let sent = pair.encode(&frame);
            assert_eq!(sent.last(), Some(&frame));
            assert!(!sent.iter().any(|frame| is_repair(IPV4, frame)));
        }
    }
    let counters = pair.a.counters();
    assert_eq!(counters.repairs_sent, 0);
    assert!(counters.questions_sent <= 12, "{}", counters.questions_sent);
}

#[test]
fn a_known_peer_that_never_answers_counts_as_silent_after_a_second() {
    let mut pair = Pair::new(&known(4, 1));
    let mut coded_until_ns = 0;
    for number in 0..300 {
        pair.now_ns += 10_000_000;
        for frame in write(4 * number, 4) {
            let sent = pair.encode(&frame);
            if sent.iter().any(|frame| is_repair(IPV4, frame)) {
                coded_until_ns = pair.now_ns;
            }
        }
    }
    assert_eq!(coded_until_ns, 1_010_000_000, "from 10 ms on");
    let counters = pair.a.counters();
    // One before each block, and then a few.
    let asked = counters.questions_sent;
    assert!((101..=105).contains(&asked), "{asked}");
}

/// The announcement of the first block is lost, so its packets pass. Its repair packet shows where the next
/// block begins.
#[test]
fn a_stream_becomes_known_by_a_repair_packet() {
    let mut pair = Pair::new(&known(4, 1));
    let frames = write(0, 12);
    // The announcement; four packets and a repair packet; a packet of the second block.
    assert_eq!(send_without(&mut pair, &frames, &[0, 7]), frames);
    assert_eq!(pair.b.counters().recovered, 1);
    // Without the repair packet, the next one shows it.
    let mut pair = Pair::new(&known(4, 1));
    assert_eq!(send_without(&mut pair, &frames, &[0, 5, 12]), frames);
}

/// A NIC sends a READ response again, with another MSN in its last packet. The announcement of the second block
/// is lost. The XOR of the old packet, the new one and the missing one would have a right ICRC, because the ICRC
/// is linear.
#[test]
fn packets_that_were_sent_again_differently_are_not_mixed() {
    let mut pair = Pair::new(&known(8, 1));
    let first = message(IPV4, Kind::ReadResponse, 0, 4);
    let mut again = first.clone();
    again[3] = frame(IPV4, 3 ^ 0x5A5A, payload(0x0F, 3, 103, 1));
    assert_ne!(first[3], again[3]);
    // The announcement, four packets and the repair packet.
    let mut got = send_without(&mut pair, &first, &[3, 5]);
    got.extend(send_without(&mut pair, &again, &[0, 3]));
    got.extend(pair.wait(4_000_000));
    let is_known = |frame: &Vec<u8>| first.contains(frame) || again.contains(frame);
    assert!(got.iter().all(is_known));
    assert_eq!(got.len(), 6, "all that arrived");
}

/// Boxes that rely on each other.
fn known(packets: u16, units: u8) -> Config {
    Config {
        peer_known: true,
        ..config(packets, units)
    }
}

/// The path bypasses the other box, or its answers take another route.
#[test]
fn a_box_that_falls_silent_gets_no_more_repairs() {
    let mut pair = Pair::new(&config(4, 1));
    warm(&mut pair, 0);
    assert_eq!(pair.send(&write(2, 4)), write(2, 4));
    let repairs = pair.a.counters().repairs_sent;
    assert!(repairs > 0);
    pair.now_ns += 30_000_000;
    pair.encode(&write(6, 1)[0]);
    pair.now_ns += 1_100_000_000;
    let sent: Vec<_> = write(7, 4)
        .iter()
        .flat_map(|frame| pair.encode(frame))
        .collect();
    assert!(!sent.iter().any(|frame| is_repair(IPV4, frame)));
    // The other box is back. Its answer starts the repairs again.
    for frame in sent {
        pair.decode(frame);
    }
    pair.now_ns += 6_000_000_000;
    pair.send(&write(11, 1));
    let frames = write(12, 4);
    assert_eq!(send_without(&mut pair, &frames, &[2]), frames);
}

#[test]
fn a_stream_that_pauses_stays_protected() {
    let mut pair = Pair::new(&config(4, 1));
    warm(&mut pair, 0);
    pair.now_ns += 5_000_000_000;
    let frames = write(2, 4);
    // The first frame is the probe of the box.
    assert_eq!(send_without(&mut pair, &frames, &[2]), frames);
}

#[test]
fn boxes_that_start_again_damage_nothing() {
    for restarts in [[true, false], [false, true], [true, true]] {
        let config = config(4, 1);
        let mut pair = Pair::new(&config);
        warm(&mut pair, 0);
        let frames = write(2, 20);
        let mut got = Vec::new();
        for (at, frame) in frames.iter().enumerate() {
            if at == 6 {
                if restarts[0] {
                    pair.a = Lowar::new(&config, 2);
                }
                if restarts[1] {
                    pair.b = Lowar::new(&config, 2);
                }
            }
            for frame in pair.encode(frame) {
                got.extend(pair.decode(frame));
            }
        }
        got.extend(pair.wait(5_000_000));
        assert_eq!(got, frames, "{restarts:?}");
        // After a round trip, the boxes protect again.
        pair.now_ns += 30_000_000;
        warm(&mut pair, 22);
        let frames = write(24, 4);
        assert_eq!(
            send_without(&mut pair, &frames, &[1]),
            frames,
            "{restarts:?}"
        );
    }
}

#[test]
fn without_units_streams_or_room_packets_pass_unprotected() {
    let short = |change: fn(&mut Config)| {
        let mut config = config(8, 2);
        change(&mut config);
        let mut pair = Pair::new(&config);
        warm(&mut pair, 0);
        let frames = write(2, 8);
        let mut got = send_without(&mut pair, &frames, &[4]);
        got.extend(pair.wait(5_000_000));
        let data = got.iter().all(|frame| frames.contains(frame));
        assert!(data && (7..=8).contains(&got.len()), "{}", got.len());
        (pair, got)
    };
    let (pair, _) = short(|config| config.max_units = 1);
    assert!(pair.a.counters().units_full > 0 && pair.a.counters().repairs_sent == 0);
    let (pair, _) = short(|config| config.max_connections = 0);
    assert!(pair.a.counters().connections_full > 0);
    let (pair, _) = short(|config| config.max_held = 2);
    assert!(pair.b.counters().held_full > 0 && pair.b.held() == 0);
}

#[test]
fn a_receiving_box_without_units_lets_all_pass() {
    let sender = config(8, 2);
    let mut pair = Pair::new(&sender);
    pair.b = Lowar::new(
        &Config {
            max_units: 1,
            ..sender
        },
        1,
    );
    warm(&mut pair, 0);
    let frames = write(2, 20);
    assert_eq!(pair.send(&frames), frames);
    assert!(pair.b.counters().units_full > 0);
    let frames = write(22, 8);
    assert_eq!(send_without(&mut pair, &frames, &[3]).len(), 7);
}

#[test]
fn frames_wait_no_longer_than_the_hold_time() {
    let mut pair = Pair::new(&config(8, 1));
    warm(&mut pair, 0);
    let frames = write(2, 8);
    let got = send_without(&mut pair, &frames[..5], &[2]);
    assert_eq!(got, frames[..2]);
    assert_eq!(pair.b.next_ns(), Some(4_000_000));
    assert!(pair.wait(3_999_999).is_empty());
    assert_eq!(pair.wait(1), frames[3..5]);
    assert_eq!(pair.b.next_ns(), None);
    // The sender goes back, and is protected again.
    assert_eq!(send_without(&mut pair, &frames[2..], &[3]), frames[2..]);
}

#[test]
fn foreign_frames_pass_untouched() {
    let (src, dst) = addresses(IPV4);
    let good = write(7, 1).remove(0);
    let mut fragment = good.clone();
    fragment[14 + 6] = 0x20;
    let mut later_fragment = good.clone();
    later_fragment[14 + 7] = 3;
    let mut options = good.clone();
    options[14] = 0x46;
    let other_port = {
        let dst = std::net::SocketAddr::new(dst.ip(), 4792);
        ethernet(IPV4, 1, src, dst, b"not RoCE at all.")
    };
    let foreign = [
        vec![],
        vec![0; 13],
        [&[0xFF; 12][..], &[0x08, 0x06], &[1; 28]].concat(),
        fragment,
        later_fragment,
        options,
        other_port,
        // A payload that is not a RoCE packet, sent to the port of RoCE.
        ethernet(IPV4, 1, src, dst, b"hello"),
        ethernet(IPV4, 1, src, dst, &[0x1F; 200]),
        ethernet(IPV4, 1, src, dst, &[]),
        // A congestion notification, and a datagram.
        frame(IPV4, 0, payload(0x81, 0, 16, 0)),
        frame(IPV4, 0, payload(0x64, 0, 16, 0)),
        // A short frame with Ethernet padding.
        [ack(IPV4, 3), vec![0; 6]].concat(),
    ];
    let mut pair = Pair::new(&config(4, 1));
    warm(&mut pair, 0);
    for side in [Side::Near, Side::Far] {
        for frame in &foreign {
            pair.a.handle(0, side, frame.clone());
        }
        let other = if side == Side::Near {
            Side::Far
        } else {
            Side::Near
        };
        assert_eq!(drain(&mut pair.a, other), foreign);
    }
}

#[test]
fn damaged_packets_count_as_lost_and_still_pass() {
    let mut pair = Pair::new(&config(4, 1));
    warm(&mut pair, 0);
    let frames = write(2, 4);
    let sent: Vec<_> = frames.iter().flat_map(|frame| pair.encode(frame)).collect();
    let mut got = Vec::new();
    for (at, mut frame) in sent.into_iter().enumerate() {
        if at == 1 {
            frame[60] ^= 4;
        }
        got.extend(pair.decode(frame));
    }
    let damaged = got.remove(1);
    assert_ne!(damaged, frames[1]);
    assert_eq!(got, frames);
    assert_eq!(
        (pair.b.counters().damaged, pair.b.counters().recovered),
        (1, 1)
    );
}

#[test]
fn a_packet_damaged_before_the_sending_box_is_not_coded() {
    let mut pair = Pair::new(&config(4, 1));
    warm(&mut pair, 0);
    let mut frames = write(2, 8);
    frames[1][60] ^= 4;
    assert_eq!(pair.send(&frames), frames);
    assert_eq!(pair.a.counters().damaged, 1);
    let frames = write(10, 4);
    assert_eq!(send_without(&mut pair, &frames, &[2]), frames);
}

/// Repair packets with changed bytes, or sealed with another key, pass as foreign frames. Repair
/// packets sealed with the right key that do not match a block recover nothing.
#[test]
fn forged_repairs_recover_nothing() {
    for byte in 0..120 {
        let mut pair = Pair::new(&config(2, 1));
        warm(&mut pair, 0);
        let frames = write(2, 2);
        let sent: Vec<_> = frames.iter().flat_map(|frame| pair.encode(frame)).collect();
        let mut repair = sent[2].clone();
        repair[offset(IPV4) + byte] ^= 0x10;
        let mut got = pair.decode(sent[0].clone());
        got.extend(pair.decode(repair.clone()));
        assert_eq!(got, [frames[0].clone(), repair], "{byte}");
        assert_eq!(pair.b.counters().recovered, 0);
    }
    let mut other = Pair::new(&Config {
        key: Some([8; 32].into()),
        ..config(2, 1)
    });
    other.b = Lowar::new(&config(2, 1), 1);
    let sent = other.encode(&write(0, 1)[0]);
    assert!(is_box_message(IPV4, &sent[0]));
    assert_eq!(other.decode(sent[0].clone()), [sent[0].clone()]);
    assert_eq!(other.a.counters().reports_received, 0);
}

/// Returns a repair packet with changed bytes between its header and its tag, sealed again with the
/// key of [`config`].
fn forge(repair: &[u8], change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let end = repair.len() - TAG_BYTES - 4;
    let mut message = repair[offset(IPV4)..end].to_vec();
    change(&mut message);
    let mut hash = blake3::Hasher::new_keyed(&[7; 32]);
    let (src, dst) = addresses(IPV4);
    for address in [src.ip(), dst.ip()] {
        let IpAddr::V4(address) = address else {
            panic!("an IPv6 address");
        };
        hash.update(&address.to_ipv6_mapped().octets());
    }
    hash.update(&message);
    let mut tag = [0; TAG_BYTES];
    hash.finalize_xof().fill(&mut tag);
    message.extend_from_slice(&tag);
    frame(IPV4, 0, message)
}

/// A change of a repair packet.
type Forgery<'a> = &'a dyn Fn(&mut Vec<u8>);

/// All of a block's data arrives except one packet. A forged repair packet comes before each of the
/// frames, and the true ones come last.
#[test]
fn the_true_repair_recovers_after_forged_ones() {
    let packets_at = 17;
    let unit_at = 20;
    let forgeries: [(&str, Forgery<'_>); 8] = [
        ("none", &|_| {}),
        ("other bytes", &|message| message[unit_at + 40] ^= 1),
        ("another length", &|message| message[unit_at + 1] ^= 1),
        ("a longer unit", &|message| message.extend([0xA5; 4000])),
        ("a shorter unit", &|message| message.truncate(unit_at + 9)),
        ("fewer packets", &|message| message[packets_at] = 2),
        ("more packets", &|message| message[packets_at] = 7),
        ("a full block", &|message| message[packets_at] = 8),
    ];
    for (shape, lost, unit) in [(8, 1), (8, 2)]
        .iter()
        .flat_map(|shape| (0..6).map(move |lost| (shape, lost)))
        .flat_map(|(shape, lost)| (0..shape.1).map(move |unit| (shape, lost, unit)))
    {
        for (name, change) in forgeries.iter().skip(1) {
            for at in 0..=6 {
                let mut pair = Pair::new(&config(shape.0, shape.1));
                warm(&mut pair, 0);
                let frames = write(2, 6);
                let sent: Vec<_> = frames.iter().flat_map(|frame| pair.encode(frame)).collect();
                assert_eq!(forge(&sent[6], forgeries[0].1), sent[6]);
                let forged = forge(&sent[6 + usize::from(unit)], change);
                let mut got = Vec::new();
                for (number, frame) in sent.into_iter().enumerate() {
                    if number == at {
                        got.extend(pair.decode(forged.clone()));
                    }
                    if number != lost {
                        got.extend(pair.decode(frame));
                    }
                }
                let when = format!("{name}, {shape:?}, lost {lost}, unit {unit}, before {at}");
                assert!(got == frames, "{when}");
                assert_eq!(pair.b.counters().given_up, 0, "{when}");
            }
        }
    }
}

/// A repair packet that is replayed long after its block does no harm.
#[test]
fn repeated_box_messages_do_no_harm() {
    let mut pair = Pair::new(&config(2, 1));
    let mut messages = Vec::new();
    for number in 0..20 {
        let frames = write(2 * number, 2);
        let mut got = Vec::new();
        for frame in &frames {
            for frame in pair.encode(frame) {
                if is_box_message(IPV4, &frame) {
                    messages.push(frame.clone());
                }
                got.extend(pair.decode(frame));
                for message in messages.iter().rev().take(9) {
                    got.extend(pair.decode(message.clone()));
                }
            }
        }
        got.extend(pair.wait(5_000_000));
        assert_eq!(got, frames, "{number}");
    }
}

#[test]
fn copies_of_data_packets_do_not_cancel() {
    let mut pair = Pair::new(&config(4, 1));
    warm(&mut pair, 0);
    let frames = write(2, 4);
    let sent: Vec<_> = frames.iter().flat_map(|frame| pair.encode(frame)).collect();
    let mut got = Vec::new();
    for at in [0, 0, 2, 2, 3, 4] {
        got.extend(pair.decode(sent[at].clone()));
    }
    let want = [0, 0, 1, 2, 2, 3].map(|at: usize| frames[at].clone());
    assert_eq!(got, want);
}

/// A packet with 256 bytes of payload is an IP datagram of 316 bytes, and its repair packet one of
/// 360. The last packet of the message is shorter.
#[test]
fn packets_whose_repairs_exceed_the_path_mtu_pass_unprotected() {
    let mut config = config(4, 1);
    config.path_mtu_bytes = 340;
    let mut pair = Pair::new(&config);
    warm(&mut pair, 0);
    let frames = write(2, 8);
    assert_eq!(pair.send(&frames), frames);
    let counters = pair.a.counters();
    assert_eq!((counters.repairs_too_long, counters.coded), (7, 2));
}

/// They have no repair packets, so nothing waits behind a lost one. The last packet is protected.
#[test]
fn packets_behind_an_unprotected_one_do_not_wait() {
    let mut config = config(4, 1);
    config.path_mtu_bytes = 340;
    for lost in 0..8 {
        let mut pair = Pair::new(&config);
        warm(&mut pair, 0);
        let frames = write(2, 8);
        let sent: Vec<_> = frames.iter().flat_map(|frame| pair.encode(frame)).collect();
        let mut got = Vec::new();
        for frame in sent.into_iter().filter(|frame| *frame != frames[lost]) {
            got.extend(pair.decode(frame));
            assert_eq!(pair.b.held(), 0, "{lost}");
        }
        let mut want = frames;
        if lost < 7 {
            want.remove(lost);
        }
        assert_eq!(got, want, "{lost}");
    }
}

/// Packets come so slowly that a full block would take longer than a packet may wait.
#[test]
fn slow_blocks_are_repaired_within_the_hold_time() {
    for lost in 0..8 {
        let mut pair = Pair::new(&config(8, 1));
        warm(&mut pair, 0);
        let frames = write(2, 8);
        let mut got = Vec::new();
        for frame in &frames {
            for sent in pair.encode(frame) {
                if sent != frames[lost] {
                    got.extend(pair.decode(sent));
                }
            }
            pair.now_ns += 900_000;
            pair.a.handle_timeout(pair.now_ns);
            for sent in drain(&mut pair.a, Side::Far) {
                got.extend(pair.decode(sent));
            }
            got.extend(pair.wait(0));
        }
        assert_eq!(got, frames, "{lost}");
    }
}

/// The clock of the sending box was set back before it restarted, so its messages have lower stamps.
/// The stream never pauses.
#[test]
fn a_box_whose_clock_was_set_back_protects_again() {
    let config = config(4, 1);
    let mut pair = Pair::new(&config);
    pair.a = Lowar::new(&config, 9);
    warm(&mut pair, 0);
    pair.a = Lowar::new(&config, 8);
    for number in 0..130 {
        pair.now_ns += 100_000_000;
        let frames = write(2 + 4 * number, 4);
        assert_eq!(pair.send(&frames), frames);
    }
    let frames = write(522, 4);
    let sent: Vec<_> = frames.iter().flat_map(|frame| pair.encode(frame)).collect();
    let lossy = sent.into_iter().filter(|frame| *frame != frames[1]);
    let got: Vec<_> = lossy.flat_map(|frame| pair.decode(frame)).collect();
    assert_eq!(got, frames);
}

/// A NIC that parses a box message as a packet finds a reserved opcode and queue pair 0.
#[test]
fn box_messages_are_no_packets_for_a_nic() {
    let mut pair = Pair::new(&config(2, 1));
    warm(&mut pair, 0);
    let sent: Vec<_> = write(2, 2)
        .iter()
        .flat_map(|frame| pair.encode(frame))
        .collect();
    let header = &sent[2][offset(IPV4)..];
    assert_eq!(header[0], 0x1F);
    assert_eq!(header[1..4], QPN.to_be_bytes()[1..]);
    assert_eq!(header[5..8], [0; 3]);
    assert_eq!(sent[2][offset(IPV4) - 8..][..2], SRC_PORT.to_be_bytes());
}

#[test]
fn acknowledgements_do_not_overtake_responses_that_wait() {
    let mut pair = Pair::new(&config(4, 2));
    let warm: Vec<_> = [0, 1]
        .into_iter()
        .flat_map(|psn| message(IPV4, Kind::ReadResponse, psn, 1))
        .collect();
    assert_eq!(pair.send(&warm), warm);
    let frames = message(IPV4, Kind::ReadResponse, 2, 4);
    let sent: Vec<_> = frames.iter().flat_map(|frame| pair.encode(frame)).collect();
    let (early, cnp) = (ack(IPV4, 1), frame(IPV4, 0, payload(0x81, 0, 16, 0)));
    let mut got = Vec::new();
    for frame in [
        &sent[0], &sent[2], &early, &cnp, &sent[3], &sent[4], &sent[5],
    ] {
        got.extend(pair.decode(frame.clone()));
    }
    let want = [&frames[0], &cnp, &frames[1], &frames[2], &early, &frames[3]];
    assert_eq!(got.iter().collect::<Vec<_>>(), want);
}

#[test]
fn a_response_that_begins_again_opens_a_new_block() {
    let mut pair = Pair::new(&config(4, 1));
    let warm: Vec<_> = [0, 1]
        .into_iter()
        .flat_map(|psn| message(IPV4, Kind::ReadResponse, psn, 1))
        .collect();
    assert_eq!(pair.send(&warm), warm);
    let frames = message(IPV4, Kind::ReadResponse, 2, 6);
    assert_eq!(pair.send(&frames[..4]), frames[..4]);
    // The requester repeated its request, so the response begins with the third packet.
    let again = message(IPV4, Kind::ReadResponse, 4, 4);
    assert_eq!(send_without(&mut pair, &again, &[2]), again);
}

#[test]
fn a_sender_that_goes_back_opens_a_new_block() {
    let mut pair = Pair::new(&config(4, 1));
    warm(&mut pair, 0);
    let frames = write(2, 8);
    // A class with two losses is not repaired, so the NIC repeats from the first lost packet.
    let got = send_without(&mut pair, &frames, &[1, 3]);
    let want: Vec<_> = [0, 2, 4, 5, 6, 7].map(|at| frames[at].clone()).into();
    assert_eq!(got, want);
    // The blocks begin at the step back at both boxes, so one loss in each of them is repaired.
    let again = send_without(&mut pair, &frames[1..], &[2, 6]);
    assert_eq!(again, frames[1..]);
}

#[test]
fn losses_are_repaired_where_psns_wrap() {
    let first = 0xFF_FFFC;
    for lost in 0..5 {
        let mut pair = Pair::new(&config(4, 1));
        warm(&mut pair, first);
        let frames = write(first + 2, 4);
        assert_eq!(send_without(&mut pair, &frames, &[lost]), frames, "{lost}");
    }
}

#[test]
fn keys_are_optional_and_different_vlans_are_different_streams() {
    let config = Config {
        key: None,
        coding: Coding::Fixed(BlockShape::new(2, 1).unwrap()),
        ..Config::default()
    };
    let mut pair = Pair::new(&config);
    let tagged = Link {
        ipv6: false,
        vlan_tags: 1,
    };
    warm(&mut pair, 0);
    let frames = message(tagged, Kind::Write, 2, 2);
    let sent: Vec<_> = frames.iter().flat_map(|frame| pair.encode(frame)).collect();
    assert!(!sent.iter().any(|frame| is_repair(tagged, frame)));
    let frames = write(2, 2);
    assert_eq!(send_without(&mut pair, &frames, &[1]), frames);
}
