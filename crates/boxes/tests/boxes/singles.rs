//! Streams of SDR: single-packet writes of an unreliable connection (P2).
#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

use crate::common::{IPV4, Kind, Pair, config, is_box_message, message};
use farwrite_boxes::lowar::{Coding, Config};
use farwrite_boxes::{Class, Middlebox, Side};
use farwrite_rng::SplitMix;

fn packets(psn: u32, packets: u32) -> Vec<Vec<u8>> {
    let one = |at| message(IPV4, Kind::Sdr, (psn + at) & 0xFF_FFFF, 1).remove(0);
    (0..packets).map(one).collect()
}

fn warm(pair: &mut Pair, psn: u32) {
    assert_eq!(pair.send(&packets(psn, 1)), packets(psn, 1));
}

#[test]
fn blocks_are_runs_and_packets_do_not_wait() {
    let mut pair = Pair::new(&config(4, 2));
    warm(&mut pair, 0xFF_FFFD);
    let frames = packets(0xFF_FFFE, 8);
    let sent: Vec<_> = frames.iter().flat_map(|frame| pair.encode(frame)).collect();
    // An announcement, and two blocks of four packets and two repair packets.
    assert_eq!(sent.len(), 1 + 2 * 6);
    let mut order = Vec::new();
    for (at, frame) in sent.into_iter().enumerate() {
        if ![1, 4, 8].contains(&at) {
            for frame in pair.decode(frame) {
                order.push(frames.iter().position(|sent| *sent == frame).unwrap());
            }
        }
    }
    // No packet waits: each recovered packet follows its repair packet.
    assert_eq!(order, [1, 2, 0, 3, 4, 6, 7, 5]);
    assert_eq!(pair.b.counters().held, 0);
}

#[test]
fn an_unfinished_block_closes_after_a_while() {
    let mut pair = Pair::new(&config(16, 1));
    warm(&mut pair, 0);
    let frames = packets(1, 3);
    let sent: Vec<_> = frames.iter().flat_map(|frame| pair.encode(frame)).collect();
    for frame in &sent[..3] {
        pair.decode(frame.clone());
    }
    assert_eq!(pair.a.next_ns(), Some(1_000_000));
    pair.a.handle_timeout(1_000_000);
    let mut got = Vec::new();
    while let Some(repair) = pair.a.poll() {
        assert_eq!((repair.to, repair.class), (Side::Far, Class::Repair));
        got.extend(pair.decode(repair.bytes));
    }
    assert_eq!(got, frames[2..]);
    // The next block begins behind it.
    let frames = packets(4, 16);
    assert_eq!(pair.send(&frames).len(), 16);
    assert_eq!(pair.b.counters().not_verified, 0);
}

/// With independent losses, a packet stays missing if it is lost and another packet of its class is
/// lost too. The probability is `p (1 - (1 - p)^s)` for classes of `s` data packets and one repair
/// packet.
#[test]
fn what_stays_missing_is_what_the_code_predicts() {
    let mut pair = Pair::new(&config(32, 4));
    warm(&mut pair, 0);
    let (loss, count) = (0.02, 200_000);
    let mut rng = SplitMix::new(7);
    let mut got = 0;
    for psn in 1..=count {
        for frame in packets(psn, 1) {
            for frame in pair.encode(&frame) {
                if !rng.chance(loss) {
                    let out = pair.decode(frame);
                    assert!(!out.iter().any(|frame| is_box_message(IPV4, frame)));
                    got += out.len();
                }
            }
        }
    }
    let missing = (count as usize - got) as f64;
    let want = f64::from(count) * loss * (1.0 - (1.0f64 - loss).powi(8));
    assert!(
        (missing / want - 1.0).abs() < 0.15,
        "{missing} missing, {want} predicted"
    );
}

/// Each packet is a message, but blocks still grow on a path without loss.
#[test]
fn blocks_grow_on_a_good_path() {
    let mut pair = Pair::new(&Config {
        coding: Coding::Adaptive,
        ..Config::default()
    });
    for psn in 0..30_000 {
        pair.now_ns += 2_000;
        pair.send(&packets(psn, 1));
    }
    let before = pair.a.counters().repairs_sent;
    for psn in 30_000..40_000 {
        pair.now_ns += 2_000;
        pair.send(&packets(psn, 1));
    }
    let repairs = pair.a.counters().repairs_sent - before;
    assert!(repairs <= 10_000 / 64, "{repairs}");
}
