//! Peers that violate the protocol: no file is written outside the directory, and no wrong file
//! gets a final name.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use farwrite::fabric::Adapter;
use farwrite::fabric::contract::{Fabric, QpAttr, Qpn, Region, RemoteQp, Rkey, Sge, WriteWr};
use farwrite::{Outcome, QpConfig, UdpConfig, UdpFabric};
use farwrite_files::{Delete, Entry, Hello, Kind, Message, TransferPlan};
use farwrite_keys::Text;
use farwrite_rng::SplitMix;

use crate::hostile_sender::{HostileSender, SEGMENT, SEGMENT_BYTES, config, dial, file, plan};
use crate::rig::{Ended, Receiver, Rig, V4, list, pattern};

const SOON: Duration = Duration::from_secs(60);

fn hash(bytes: &[u8]) -> [u8; 32] {
    blake3::hash(bytes).into()
}

/// Returns a receiver for one transfer, and a liar whose offer of these files the receiver has
/// accepted.
fn accepted(rig: &Rig, args: &[&str], files: &[Entry]) -> (Receiver, HostileSender) {
    let receiver = rig.recv(V4, &[&["--once"], args].concat());
    let mut liar = HostileSender::meet(rig, receiver.addr, config());
    liar.offer(plan(files), files.to_vec())
        .expect("an honest offer");
    (receiver, liar)
}

/// Waits for the end of the receiver. Its directory must be empty then.
#[track_caller]
fn nothing_left(rig: &Rig, receiver: Receiver) -> Ended {
    let ended = receiver.end();
    assert_eq!(rig.received(), [""; 0], "{ended:?}");
    ended
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let rig = Rig::new();
    let receiver = rig.recv(V4, &[]);
    let names: [&[u8]; 9] = [
        b"../x",
        b"..",
        b".",
        b"/etc/passwd",
        b"a/../../x",
        b"",
        b"a\0b",
        b"x/",
        &[b'a'; 256],
    ];
    for name in names {
        let mut liar = HostileSender::meet(&rig, receiver.addr, config());
        let entries = vec![file("good", 1), file(name, 1)];
        let error = liar.offer(plan(&entries), entries).expect_err("refused");
        assert!(error.to_string().contains("manifest entry 1"), "{error}");
    }
    let mut child = file("x", 1);
    child.parent = Some(0);
    let mut liar = HostileSender::meet(&rig, receiver.addr, config());
    let entries = vec![file("no directory", 0), child];
    let error = liar.offer(plan(&entries), entries).expect_err("refused");
    assert!(
        error.to_string().contains("no directory that came before"),
        "{error}"
    );
    receiver.running.signal("INT");
    nothing_left(&rig, receiver).assert(130, "manifest entry 1");
    assert_eq!(list(&rig.path("")), ["in", "key"]);
}

/// The sender of a dry run wants names that it may not remove.
#[test]
fn a_dry_run_lists_nothing_without_the_right_to_remove() {
    let rig = Rig::new();
    std::fs::write(rig.inbox().join("secret"), "x").expect("write");
    let receiver = rig.recv(V4, &[]);
    let mut channel = dial(&rig, receiver.addr);
    let hello = Hello {
        software: Text::new("liar"),
        capabilities: Hello::DRY_RUNS,
    };
    let order = Delete {
        max: None,
        top: true,
    };
    for message in [
        Message::Hello(hello),
        Message::Plan(plan(&[])),
        Message::Delete(order),
        Message::StreamEnd { stream_bytes: 0 },
    ] {
        channel.send(&message).expect("sent");
    }
    let reason = loop {
        match channel.recv().expect("the reason") {
            Message::Hello(_) | Message::Progress(_) => {}
            Message::Abort { reason, .. } => break reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(reason.as_str().contains("--allow-delete"), "{reason}");
}

#[test]
fn a_link_in_the_directory_is_not_followed() {
    let rig = Rig::new();
    let elsewhere = rig.path("elsewhere");
    std::fs::create_dir(&elsewhere).expect("directory");
    std::os::unix::fs::symlink(&elsewhere, rig.inbox().join("link")).expect("link");
    let receiver = rig.recv(V4, &["--once"]);
    let mut link = file("link", 0);
    link.kind = Kind::Directory;
    let mut child = file("x", 1);
    child.parent = Some(0);
    let entries = vec![link, child];
    let mut liar = HostileSender::meet(&rig, receiver.addr, config());
    // The entry fails, and so does the one below it; the others would go on.
    let _ = liar.offer(plan(&entries), entries);
    drop(liar);
    let ended = receiver.end();
    assert_ne!(ended.code, Some(0), "{ended:?}");
    assert_eq!(list(&elsewhere), [""; 0]);
}

/// Changes an honest offer to an invalid one.
type Lie = fn(&mut TransferPlan, &mut QpConfig, &mut Vec<Entry>);

#[test]
fn absurd_sizes_are_refused() {
    let rig = Rig::new();
    let receiver = rig.recv(V4, &[]);
    let lies: [(Lie, &str); 11] = [
        (|plan, _, _| plan.entries = u32::MAX, "more than"),
        (|plan, _, _| plan.entries = 0, "has 0 bytes"),
        (
            |plan, _, _| plan.stream_bytes = u64::MAX,
            "the transfer plan said",
        ),
        (
            |_, _, files| files[0] = file("f", u64::MAX),
            "is longer than",
        ),
        (|plan, _, _| plan.segment_bytes = u64::MAX, "segments of"),
        (|plan, _, _| plan.segment_bytes = 0, "segments of"),
        (
            |plan, config, _| {
                config.slots = 512;
                config.max_message_bytes = 1 << 30;
                plan.segment_bytes = 1 << 30;
            },
            "512 buffers",
        ),
        (|_, config, _| config.generations = 16, "16 generations"),
        (|plan, _, _| plan.scheme = Text::new("magic"), "magic"),
        (
            |plan, _, _| plan.scheme = Text::new("ec-mds:1,254"),
            "16646144 of parity",
        ),
        (
            |plan, config, _| {
                config.slots = 128;
                config.max_message_bytes = 254 * SEGMENT_BYTES;
                plan.scheme = Text::new("ec-mds:1,254");
            },
            "128 buffers of 15.9 MiB",
        ),
    ];
    for (lie, told) in lies {
        let mut files = vec![file("f", 100)];
        let (mut plan, mut config) = (plan(&files), config());
        lie(&mut plan, &mut config, &mut files);
        let mut liar = HostileSender::meet(&rig, receiver.addr, config);
        let error = liar.offer(plan, files).expect_err(told).to_string();
        assert!(
            error.contains("gave up") && error.contains(told),
            "{told}: {error}"
        );
    }
    receiver.running.signal("INT");
    nothing_left(&rig, receiver).assert(130, "512 buffers");
}

#[test]
fn a_file_of_an_exabyte_takes_no_more_than_what_comes_of_it() {
    let rig = Rig::new();
    // Without the check of free space, which would refuse the offer.
    let (receiver, mut liar) = accepted(&rig, &["--reserve", "none"], &[file("f", 1 << 60)]);
    let send = liar.post(vec![1; SEGMENT]);
    assert_eq!(liar.drive(&send, SOON), Some(Outcome::Whole));
    drop(liar);
    nothing_left(&rig, receiver).assert(5, "closed the connection");
}

#[test]
fn a_wrong_hash_gives_no_name() {
    let rig = Rig::new();
    let (receiver, mut liar) = accepted(&rig, &[], &[file("right", 3), file("wrong", 3)]);
    let send = liar.post(b"abcabc".to_vec());
    liar.say(&Message::FileHash {
        index: 0,
        hash: hash(b"abc"),
    });
    liar.say(&Message::FileHash {
        index: 1,
        hash: hash(b"abd"),
    });
    liar.say(&Message::StreamEnd { stream_bytes: 6 });
    assert_eq!(liar.drive(&send, SOON), Some(Outcome::Whole));
    assert!(matches!(
        liar.hear(),
        Ok(Message::FileVerified { index: 0 })
    ));
    assert!(matches!(
        liar.hear(),
        Ok(Message::FileFailed { index: 1, .. })
    ));
    assert!(matches!(liar.hear(), Ok(Message::Done)));
    drop(liar);
    receiver.end().assert(4, "wrong: its hash is");
    assert_eq!(rig.received(), ["right"]);
}

#[test]
fn more_messages_than_the_stream_has_go_nowhere() {
    let rig = Rig::new();
    let (receiver, mut liar) = accepted(&rig, &[], &[file("f", 3)]);
    let send = liar.post(b"abc".to_vec());
    let excess = liar.post(b"def".to_vec());
    assert_eq!(liar.drive(&send, SOON), Some(Outcome::Whole));
    liar.drive(&excess, Duration::from_millis(300));
    assert_eq!(excess.outcome(), None, "nobody posted a receive for it");
    liar.say(&Message::FileHash {
        index: 0,
        hash: hash(b"abc"),
    });
    liar.say(&Message::StreamEnd { stream_bytes: 3 });
    assert!(matches!(
        liar.hear(),
        Ok(Message::FileVerified { index: 0 })
    ));
    assert!(matches!(liar.hear(), Ok(Message::Done)));
    drop(liar);
    receiver.end().assert(0, "");
    assert_eq!(
        std::fs::read(rig.inbox().join("f")).expect("received"),
        b"abc"
    );
}

#[test]
fn data_that_is_shorter_or_longer_than_promised_ends_the_transfer() {
    for (bytes, expected) in [
        (99, "neither verified nor given up"),
        (101, "want at most 100"),
    ] {
        let rig = Rig::new();
        let (receiver, mut liar) = accepted(&rig, &[], &[file("f", 100)]);
        let wrong = vec![7; bytes];
        let length = wrong.len() as u64;
        let send = liar.post(wrong.clone());
        liar.say(&Message::FileHash {
            index: 0,
            hash: hash(&wrong),
        });
        liar.say(&Message::StreamEnd {
            stream_bytes: length,
        });
        // A message that is too long does not end.
        liar.drive(&send, Duration::from_secs(2));
        let why = liar.hear_why();
        assert!(why.contains(expected), "{why}");
        nothing_left(&rig, receiver).assert(1, expected);
    }
}

#[test]
fn words_out_of_turn_end_the_transfer() {
    let h = hash(b"");
    let cases: [&[Message]; 6] = [
        &[Message::FileHash { index: 1, hash: h }],
        &[
            Message::FileHash { index: 0, hash: h },
            Message::FileHash { index: 0, hash: h },
        ],
        &[Message::FileHash {
            index: u32::MAX,
            hash: h,
        }],
        &[
            Message::StreamEnd { stream_bytes: 6 },
            Message::FileHash { index: 0, hash: h },
        ],
        &[Message::Done],
        &[Message::FileVerified { index: 0 }],
    ];
    for words in cases {
        let rig = Rig::new();
        let (receiver, mut liar) = accepted(&rig, &[], &[file("f", 3), file("g", 3)]);
        words.iter().for_each(|word| liar.say(word));
        let why = liar.hear_why();
        assert!(
            why.contains("is due") || why.contains("want a message"),
            "{why}"
        );
        nothing_left(&rig, receiver).assert(1, "receiving");
    }
}

#[test]
fn a_sender_that_dies_in_the_middle_leaves_nothing() {
    let rig = Rig::new();
    let (receiver, mut liar) = accepted(&rig, &[], &[file("f", 3 * SEGMENT_BYTES)]);
    let send = liar.post(vec![1; SEGMENT]);
    assert_eq!(liar.drive(&send, SOON), Some(Outcome::Whole));
    drop(liar);
    nothing_left(&rig, receiver).assert(5, "closed the connection");
}

#[test]
fn a_sender_that_ends_before_its_data_is_given_up() {
    let rig = Rig::new();
    let (receiver, mut liar) =
        accepted(&rig, &["--timeout", "3s"], &[file("f", 2 * SEGMENT_BYTES)]);
    let send = liar.post(vec![1; SEGMENT]);
    liar.drive(&send, SOON);
    liar.say(&Message::FileHash {
        index: 0,
        hash: hash(&[1]),
    });
    liar.say(&Message::StreamEnd {
        stream_bytes: 2 * SEGMENT_BYTES,
    });
    nothing_left(&rig, receiver).assert(5, "nothing was heard");
}

#[test]
fn udp_that_does_not_come_through_is_said_so() {
    let rig = Rig::new();
    let (receiver, mut liar) = accepted(&rig, &["--timeout", "2s"], &[file("f", 100)]);
    let why = liar.hear_why();
    assert!(why.contains("UDP seems to be blocked between"), "{why}");
    nothing_left(&rig, receiver).assert(5, "UDP seems to be blocked");
}

#[test]
fn address_translation_is_found_before_anything_is_sent() {
    let rig = Rig::new();
    let receiver = rig.recv(V4, &["--once"]);
    let mut liar = HostileSender::meet(&rig, receiver.addr, config());
    let mut info = liar.info();
    let inside = SocketAddr::new(IpAddr::from([10, 0, 0, 5]), info.control.port());
    info.control = inside;
    info.channels.fill(inside);
    let entries = vec![file("f", 100)];
    let error = liar
        .offer_info(plan(&entries), entries, &info)
        .expect_err("refused");
    assert!(error.to_string().contains("address translation"), "{error}");
    nothing_left(&rig, receiver).assert(3, "10.0.0.5");
}

/// Sends valid and invalid packets to the UDP port of a receiver until `stop` is set. Returns the
/// number of packets.
fn forge(to: SocketAddr, stop: &AtomicBool) -> u64 {
    let fabric = UdpFabric::bind(&UdpConfig::new(([127, 0, 0, 1], 0).into())).expect("socket");
    let mut fabric = Adapter::new(fabric).expect("all its queues");
    let lkey = fabric
        .register(Region::owned(vec![0x66_u8; 4096]))
        .expect("memory");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("socket");
    let (mut sent, mut rng) = (0, SplitMix::new(1));
    while !stop.load(Ordering::Acquire) {
        let random = u32::try_from(rng.next() >> 32).expect("32 bits");
        // Fabrics give queue pairs random numbers: this number belongs to no queue pair, or to one
        // of another connection.
        let qpn = fabric
            .create_qp(QpAttr {
                mtu: 4096,
                port: 0,
                context: 0,
                recv_buffers: 1,
            })
            .expect("queue pair");
        let remote = RemoteQp {
            addr: to,
            qpn: Qpn((random >> 8).max(2)),
        };
        fabric.connect_qp(qpn, remote).expect("connected");
        let write = WriteWr {
            wr_id: 0,
            signaled: false,
            local: &[Sge {
                lkey,
                offset: 0,
                length: 4096,
            }],
            remote_addr: u64::from(random % 8) * SEGMENT_BYTES,
            rkey: Rkey(random),
            imm: random,
        };
        fabric.post_writes(qpn, &[write; 8]).expect("sent");
        fabric.post_send(qpn, &[0x55; 200]).expect("sent");
        fabric.destroy_qp(qpn).expect("gone");
        let garbage = random.to_be_bytes().repeat(30);
        for length in [0, 1, 16, 44, 120] {
            // A receiver that has ended answers with ICMP, which causes an error here.
            let _ = socket.send_to(&garbage[..length], to);
        }
        sent += 14;
        thread::sleep(Duration::from_micros(200));
    }
    sent
}

#[test]
fn forged_packets_change_nothing() {
    let rig = Rig::new();
    let file = rig.file("file", 6_000_000);
    let receiver = rig.recv(V4, &["--once"]);
    let (to, stop) = (receiver.addr, AtomicBool::new(false));
    thread::scope(|scope| {
        let forging = scope.spawn(|| forge(to, &stop));
        let sent = rig.send(to, &["--rate", "40Mbit"], &[&file]).end();
        stop.store(true, Ordering::Release);
        let forged = forging.join().expect("no panic");
        assert!(forged > 1000, "only {forged} forged packets");
        sent.assert(0, "");
    });
    receiver.end().assert(0, "");
    assert!(std::fs::read(rig.inbox().join("file")).expect("received") == pattern(6_000_000));
}
