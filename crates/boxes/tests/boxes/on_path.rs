//! Messages that somebody on the path replays, and headers that the path changes.
#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

use crate::common::{IPV4, Kind, Link, Pair, config, is_box_message, is_repair, message};
use crate::faults::{warm, write};
use farwrite_boxes::{Middlebox, Side};

/// Somebody on the path replays repair packets of earlier blocks before each packet, while each block
/// loses a packet.
#[test]
fn replayed_repairs_do_not_end_the_repair_of_losses() {
    for lost in 0..4 {
        let mut pair = Pair::new(&config(4, 1));
        warm(&mut pair, 0);
        let mut replayed = Vec::new();
        for number in 0..20 {
            let frames = write(2 + 4 * number, 4);
            let sent: Vec<_> = frames.iter().flat_map(|frame| pair.encode(frame)).collect();
            let mut got = Vec::new();
            for (at, frame) in sent.iter().enumerate() {
                for old in replayed.iter().rev().take(3) {
                    got.extend(pair.decode(Vec::clone(old)));
                }
                if at != lost {
                    got.extend(pair.decode(frame.clone()));
                }
            }
            assert_eq!(got, frames, "{lost}, {number}");
            replayed.extend(sent.into_iter().filter(|frame| is_repair(IPV4, frame)));
        }
        assert_eq!(pair.b.counters().recovered, 20);
    }
}

/// Announcements, probes and reports have stamps, so that a replayed one changes nothing.
#[test]
fn replayed_messages_with_stamps_are_ignored() {
    let mut pair = Pair::new(&config(4, 1));
    warm(&mut pair, 0);
    let mut of_a = Vec::new();
    for number in 0..20 {
        // At each of these times, a question is due.
        pair.now_ns += 20_000_000;
        let frames = write(2 + 4 * number, 4);
        let sent: Vec<_> = frames.iter().flat_map(|frame| pair.encode(frame)).collect();
        let data = |frame: &&Vec<u8>| !is_box_message(IPV4, frame);
        let lost = sent.iter().filter(data).nth(1).cloned();
        let reports = pair.b.counters().reports_sent;
        let mut got = Vec::new();
        for frame in &sent {
            for old in &of_a {
                got.extend(pair.decode(Vec::clone(old)));
            }
            if Some(frame) != lost.as_ref() {
                got.extend(pair.decode(frame.clone()));
            }
        }
        assert_eq!(got, frames, "{number}");
        // One for the question of this block, none for those replayed.
        assert_eq!(pair.b.counters().reports_sent, reports + 1, "{number}");
        let stamped = |frame: &Vec<u8>| is_box_message(IPV4, frame) && !is_repair(IPV4, frame);
        of_a.extend(sent.into_iter().filter(stamped));
    }
    assert!(of_a.len() >= 20);
}

/// A box that has fallen silent stays silent for the sending box if its old reports are replayed.
#[test]
fn replayed_reports_do_not_answer() {
    let mut pair = Pair::new(&config(4, 1));
    warm(&mut pair, 0);
    pair.now_ns += 20_000_000;
    let mut reports = Vec::new();
    let sent: Vec<_> = write(2, 4)
        .iter()
        .flat_map(|frame| pair.encode(frame))
        .collect();
    for frame in sent {
        pair.b.handle(pair.now_ns, Side::Far, frame);
        while let Some(frame) = pair.b.poll() {
            if frame.to == Side::Far {
                reports.push(frame.bytes);
            }
        }
    }
    assert_eq!(reports.len(), 1);
    let give = |pair: &mut Pair| pair.a.handle(pair.now_ns, Side::Far, reports[0].clone());
    give(&mut pair);
    pair.now_ns += 30_000_000;
    // The path loses the questions from here on.
    pair.encode(&write(6, 1)[0]);
    pair.now_ns += 1_100_000_000;
    give(&mut pair);
    let sent: Vec<_> = write(7, 4)
        .iter()
        .flat_map(|frame| pair.encode(frame))
        .collect();
    assert!(!sent.iter().any(|frame| is_repair(IPV4, frame)));
}

/// Routers change the time to live, and switches mark packets. The ICRC does not cover these fields
/// (IBTA annex A17).
#[test]
fn a_recovered_packet_is_the_lost_one_but_for_what_the_path_changes() {
    for ipv6 in [false, true] {
        let link = Link { ipv6, vlan_tags: 0 };
        let mut pair = Pair::new(&config(4, 1));
        for psn in 0..2 {
            pair.send(&message(link, Kind::Write, psn, 1));
        }
        let frames = message(link, Kind::Write, 2, 4);
        let sent: Vec<_> = frames.iter().flat_map(|frame| pair.encode(frame)).collect();
        let mut got = Vec::new();
        for (at, frame) in sent.iter().enumerate() {
            if at == 4 {
                assert!(is_repair(link, frame));
                got.extend(pair.decode(over_a_hop(ipv6, frame)));
            } else if at != 1 {
                got.extend(pair.decode(frame.clone()));
            }
        }
        assert_eq!(got.len(), 4);
        assert_ne!(got[1], frames[1]);
        assert_eq!(masked(ipv6, &got[1]), masked(ipv6, &frames[1]));
        got[1].clone_from(&frames[1]);
        assert_eq!(got, frames);
    }
}

/// The frame with a lower time to live and the mark of congestion.
fn over_a_hop(ipv6: bool, frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if ipv6 {
        frame[14 + 1] |= 0x30;
        frame[14 + 7] -= 5;
    } else {
        frame[14 + 1] |= 3;
        frame[14 + 8] -= 5;
        frame[14 + 10..14 + 12].fill(0);
        let checksum = ipv4_checksum(&frame);
        frame[14 + 10..14 + 12].copy_from_slice(&checksum.to_be_bytes());
    }
    frame
}

/// The frame with ones where the ICRC does not look. Checks the IPv4 checksum first.
fn masked(ipv6: bool, frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let masked: &[usize] = if ipv6 {
        // Traffic class and flow label; hop limit; UDP checksum.
        frame[14] |= 0x0F;
        &[15, 16, 17, 14 + 7, 14 + 46, 14 + 47]
    } else {
        assert_eq!(ipv4_checksum(&frame), 0);
        // Type of service; time to live; IP and UDP checksums.
        &[15, 14 + 8, 14 + 10, 14 + 11, 14 + 26, 14 + 27]
    };
    for at in masked {
        frame[*at] = 0xFF;
    }
    frame
}

/// The checksum of the IPv4 header (RFC 1071): 0 if it holds the right one.
fn ipv4_checksum(frame: &[u8]) -> u16 {
    let words = frame[14..34].chunks(2);
    let sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    !((sum & 0xFFFF) + (sum >> 16)) as u16
}
