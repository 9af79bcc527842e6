//! Senders that cut over to another queue pair, and what a receiver accepts in that case.

use std::fs;
use std::time::Duration;

use farwrite::{Outcome, QpConfig, QpInfo, QpOptions};
use farwrite_files::{Cutover, CutoverAccepted, Message, QpBlob};

use crate::hostile_sender::{HostileSender, SEGMENT, config, file, plan};
use crate::rig::{Receiver, Rig, V4, pattern};

/// Segments of the file that is sent.
const SEGMENTS: usize = 4;
const BYTES: usize = SEGMENTS * SEGMENT;
const SOON: Duration = Duration::from_secs(60);

/// Starts a receiver that has the first segment, and its sender.
fn begun(rig: &Rig) -> (Receiver, HostileSender) {
    let receiver = rig.recv(V4, &["--once"]);
    let mut liar = HostileSender::meet(rig, receiver.addr, config());
    let files = vec![file("f", BYTES as u64)];
    liar.offer(plan(&files), files).expect("an honest offer");
    send(&mut liar, 0);
    (receiver, liar)
}

/// Sends a segment and waits until it arrives.
fn send(liar: &mut HostileSender, segment: usize) {
    let bytes = pattern(BYTES)[segment * SEGMENT..][..SEGMENT].to_vec();
    let send = liar.post(bytes);
    assert_eq!(liar.drive(&send, SOON), Some(Outcome::Whole));
}

/// Ends the queue pair, creates one of this shape, and cuts over from the segment `first_segment`.
fn cut_over(liar: &mut HostileSender, first_segment: u64, sdr: QpConfig) {
    liar.endpoint.destroy_qp(liar.qp).expect("it was there");
    let options = QpOptions {
        sdr,
        ..QpOptions::default()
    };
    liar.qp = liar.endpoint.create_qp(options).expect("queue pair");
    let info = QpBlob(liar.info().encode().expect("encoded"));
    liar.say(&Message::Cutover(Cutover {
        first_segment,
        info,
    }));
}

/// Returns the answer of the receiver, after its queue pair is connected.
fn accepted(liar: &mut HostileSender) -> CutoverAccepted {
    let heard = liar.hear();
    let Ok(Message::CutoverAccepted(accepted)) = heard else {
        panic!("{heard:?}");
    };
    let theirs = QpInfo::decode(&accepted.info.0).expect("decoded");
    liar.endpoint.connect_qp(liar.qp, &theirs).expect("fits");
    accepted
}

fn smaller(by: u32) -> QpConfig {
    let config = config();
    QpConfig {
        mtu: config.mtu - by,
        ..config
    }
}

#[test]
fn what_has_arrived_is_not_sent_again() {
    let rig = Rig::new();
    let (receiver, mut liar) = begun(&rig);
    let old = liar.info();
    // Segment 1 is incomplete. Segment 0 has arrived, whether or not the sender knows it.
    cut_over(&mut liar, 0, smaller(1000));
    let answer = accepted(&mut liar);
    assert_eq!(answer.finished, [0]);
    let new = liar.info();
    assert_ne!(old.control_key, new.control_key, "a key of its own");
    send(&mut liar, 1);
    cut_over(&mut liar, 2, smaller(2000));
    assert_eq!(accepted(&mut liar).finished, [0_u64; 0]);
    (2..SEGMENTS).for_each(|segment| send(&mut liar, segment));
    liar.say(&Message::FileHash {
        index: 0,
        hash: blake3::hash(&pattern(BYTES)).into(),
    });
    liar.say(&Message::StreamEnd {
        stream_bytes: BYTES as u64,
    });
    assert!(matches!(
        liar.hear(),
        Ok(Message::FileVerified { index: 0 })
    ));
    assert!(matches!(liar.hear(), Ok(Message::Done)));
    drop(liar);
    receiver.end().assert(0, "the transfer goes on with");
    assert!(fs::read(rig.inbox().join("f")).expect("received") == pattern(BYTES));
}

#[test]
fn wishes_that_cannot_be_end_the_transfer() {
    let slots = config().slots;
    let many = QpConfig {
        slots: slots * 2,
        ..smaller(100)
    };
    let coarse = QpConfig {
        packets_per_chunk: 1 << 16,
        ..smaller(100)
    };
    for (first_segment, config, why) in [
        (2, smaller(100), "from segment 2; want one from 0 to 1"),
        (u64::MAX, smaller(100), "from segment 18446744073709551615;"),
        (1, config(), "want at least 256 and fewer than"),
        (1, many, "segments in flight; want at most"),
        (1, coarse, "chunks of 65536 packets; want 1"),
    ] {
        let rig = Rig::new();
        let (receiver, mut liar) = begun(&rig);
        cut_over(&mut liar, first_segment, config);
        let told = liar.hear_why();
        assert!(told.contains(why), "{told}");
        receiver.end().assert(3, why);
        assert_eq!(rig.received(), [""; 0]);
    }
}

#[test]
fn a_sender_that_cuts_over_for_ever_is_refused() {
    let rig = Rig::new();
    let (receiver, mut liar) = begun(&rig);
    for time in 1..=8 {
        cut_over(&mut liar, 1, smaller(4 * time));
        assert_eq!(accepted(&mut liar).finished, [0_u64; 0], "time {time}");
    }
    cut_over(&mut liar, 1, smaller(100));
    let why = "more than 8 times";
    let told = liar.hear_why();
    assert!(told.contains(why), "{told}");
    receiver.end().assert(3, why);
    assert_eq!(rig.received(), [""; 0]);
}
