//! NetRT boxes on Ethernet frames: the exact frames that the receiver's NIC gets, and the frames
//! that pass unchanged.

use std::collections::BTreeSet;

use crate::common::{
    IPV4, Kind, Link, ack, addresses, ethernet, frame, is_box_message, message, offset, payload,
    psn_of,
};
use farwrite_boxes::netrt::{Config, NetRt};
use farwrite_boxes::{BoxFrame, Class, Middlebox, Side};

const US: u64 = 1000;
/// PSNs wrap on the way.
const FIRST_PSN: u32 = 0xFF_FFFE;
const LINKS: [Link; 3] = [
    IPV4,
    Link {
        ipv6: true,
        vlan_tags: 0,
    },
    Link {
        ipv6: true,
        vlan_tags: 2,
    },
];

pub(crate) fn config() -> Config {
    Config {
        key: Some([7; 32].into()),
        ..Config::new(10_000_000_000, 20 * US)
    }
}

/// Boxes beside a sender and a receiver, without delay between them.
pub(crate) struct Pair {
    pub(crate) source: NetRt,
    pub(crate) destination: NetRt,
    pub(crate) now_ns: u64,
    link: Link,
    /// Types of box messages of which the path loses the next one, in either direction.
    pub(crate) lose: Vec<u8>,
    /// The frames that the receiver got.
    pub(crate) got: Vec<Vec<u8>>,
}

impl Pair {
    pub(crate) fn new(link: Link) -> Self {
        Self {
            source: NetRt::new(&config(), 1),
            destination: NetRt::new(&config(), 1),
            now_ns: 0,
            link,
            lose: Vec::new(),
            got: Vec::new(),
        }
    }

    /// Whether the path loses this box message. Each entry of `lose` is used once.
    fn is_lost(&mut self, bytes: &[u8]) -> bool {
        let kind = bytes.get(offset(self.link) + 4);
        let chosen = self.lose.iter().position(|lost| Some(lost) == kind);
        let chosen = chosen.filter(|_| is_box_message(self.link, bytes));
        chosen.map(|at| self.lose.remove(at)).is_some()
    }

    /// Sends a frame. If `lost`, the path loses the frame itself, but not the messages of the box.
    pub(crate) fn send(&mut self, frame: &[u8], lost: bool) {
        self.source.handle(self.now_ns, Side::Near, frame.to_vec());
        self.exchange(lost.then_some(frame));
    }

    /// Exchanges frames between the boxes until there are none.
    fn exchange(&mut self, mut lost: Option<&[u8]>) {
        loop {
            let before = self.got.len();
            let mut quiet = true;
            while let Some(BoxFrame { to, bytes, .. }) = self.source.poll() {
                assert_eq!(to, Side::Far);
                quiet = false;
                if lost == Some(&bytes[..]) {
                    lost = None;
                } else if !self.is_lost(&bytes) {
                    self.destination.handle(self.now_ns, Side::Far, bytes);
                }
            }
            while let Some(BoxFrame { to, bytes, .. }) = self.destination.poll() {
                quiet = false;
                match to {
                    Side::Near => self.got.push(bytes),
                    Side::Far if self.is_lost(&bytes) => {}
                    Side::Far => self.source.handle(self.now_ns, Side::Far, bytes),
                }
            }
            if quiet && before == self.got.len() {
                return;
            }
        }
    }

    pub(crate) fn wait(&mut self, ns: u64) {
        let end_ns = self.now_ns + ns;
        while self.now_ns < end_ns {
            self.now_ns += US;
            self.source.handle_timeout(self.now_ns);
            self.destination.handle_timeout(self.now_ns);
            self.exchange(None);
        }
    }

    fn messages(&self) -> usize {
        let message = |frame: &&Vec<u8>| is_box_message(self.link, frame);
        self.got.iter().filter(message).count()
    }
}

/// Tries all patterns of lost packets, including the last ones. Repeats are not lost.
#[test]
fn every_pattern_of_losses_is_repaired() {
    for link in LINKS {
        for kind in [Kind::Write, Kind::Send, Kind::ReadResponse] {
            let frames = message(link, kind, FIRST_PSN, 6);
            for pattern in 0..1 << frames.len() {
                let mut pair = Pair::new(link);
                for (at, frame) in frames.iter().enumerate() {
                    pair.send(frame, pattern >> at & 1 == 1);
                    pair.now_ns += US;
                }
                pair.wait(200 * US);
                assert_eq!(pair.got, frames, "{link:?} {kind:?} {pattern:b}");
                assert_eq!(pair.destination.counters().given_up, 0);
            }
        }
    }
}

const START: u8 = 5;
const MARK: u8 = 6;
const REQUEST: u8 = 7;
const NOTICE: u8 = 8;

/// The path loses packet 3 and several messages of the boxes. The boxes repair the packet without
/// the NICs.
#[test]
fn lost_messages_between_boxes_are_made_up_for() {
    let lost_messages = [
        &[REQUEST][..],
        &[REQUEST, REQUEST, REQUEST],
        &[START],
        &[START, MARK, REQUEST],
        &[MARK],
    ];
    for link in LINKS {
        for lose in lost_messages {
            let frames = message(link, Kind::Write, FIRST_PSN, 6);
            let mut pair = Pair::new(link);
            pair.lose = lose.to_vec();
            for (at, frame) in frames.iter().enumerate() {
                // The first mark makes up for a lost start.
                pair.wait(400 * US);
                pair.send(frame, at == 3);
            }
            pair.wait(2000 * US);
            assert!(pair.lose.is_empty(), "{link:?} {lose:?}");
            assert_eq!(pair.got, frames, "{link:?} {lose:?}");
            assert_eq!(pair.destination.counters().recovered, 1);
        }
    }
}

/// The source box has no copy of a lost packet, and the path loses its first notices. The
/// destination box asks again, and forwards what it holds when a notice arrives, long before its
/// hold time ends.
#[test]
fn a_lost_notice_is_made_up_for_by_the_next_request() {
    for lost in 0..4 {
        let mut pair = Pair::new(IPV4);
        pair.source = NetRt::new(
            &Config {
                pool_bytes: 0,
                ..config()
            },
            1,
        );
        pair.lose = vec![NOTICE; lost];
        let frames = message(IPV4, Kind::Write, 0, 6);
        for (at, frame) in frames.iter().enumerate() {
            pair.send(frame, at == 3);
        }
        pair.wait(300 * US);
        assert!(pair.lose.is_empty() && config().hold_ns > 300 * US);
        assert_eq!(pair.got, [&frames[..3], &frames[4..]].concat(), "{lost}");
        assert_eq!(pair.source.counters().notices_sent, lost as u64 + 1);
        assert_eq!(pair.destination.counters().given_up, 1);
    }
}

/// READ requests skip PSNs. They do not look like a gap once a full packet has shown the MTU.
#[test]
fn read_requests_leave_numbers_out() {
    let mut frames = message(IPV4, Kind::Write, 0, 3);
    // A READ whose response has 3 packets of 256 bytes.
    let read = |psn| frame(IPV4, 9, payload(0x0C, psn, 700, 0));
    frames.extend([read(3), read(6)]);
    frames.extend(message(IPV4, Kind::Write, 9, 2));
    for pattern in 0..1 << frames.len() {
        let mut pair = Pair::new(IPV4);
        for (at, frame) in frames.iter().enumerate() {
            pair.send(frame, pattern >> at & 1 == 1);
            pair.now_ns += US;
        }
        pair.wait(2000 * US);
        let (got, want): (BTreeSet<_>, BTreeSet<_>) =
            (pair.got.iter().collect(), frames.iter().collect());
        assert_eq!(got, want, "{pattern:b}");
        // If packets 0 and 1 arrive, the destination knows the MTU.
        if pattern & 0b11 == 0 {
            assert_eq!(pair.got, frames, "{pattern:b}");
        }
    }
}

#[test]
fn a_sender_that_goes_back_is_followed() {
    let mut pair = Pair::new(IPV4);
    let frames = message(IPV4, Kind::Write, 0, 8);
    frames[..6].iter().for_each(|frame| pair.send(frame, false));
    // Packet 2 was lost behind the box: the NIC repeats from there, and the network loses packet 4.
    for (at, frame) in frames.iter().enumerate().skip(2) {
        pair.send(frame, at == 4);
    }
    pair.wait(200 * US);
    let psns: Vec<_> = pair.got.iter().map(|frame| psn_of(IPV4, frame)).collect();
    assert_eq!(psns, [0, 1, 2, 3, 4, 5, 2, 3, 4, 5, 6, 7]);
    assert_eq!(pair.destination.counters().recovered, 1);
}

#[test]
fn an_acknowledgement_does_not_overtake_responses() {
    let mut pair = Pair::new(IPV4);
    let frames = message(IPV4, Kind::ReadResponse, 0, 4);
    pair.send(&frames[0], false);
    // The source loses its copies, so the gap stays.
    pair.source = NetRt::new(&config(), 2);
    pair.destination.handle(0, Side::Far, frames[2].clone());
    pair.destination.handle(0, Side::Far, ack(IPV4, 9));
    let cnp = frame(IPV4, 0, payload(0x81, 0, 16, 0));
    pair.destination.handle(0, Side::Far, cnp.clone());
    let near = |pair: &mut Pair| {
        let mut near = Vec::new();
        while let Some(BoxFrame { to, bytes, .. }) = pair.destination.poll() {
            if to == Side::Near {
                near.push(bytes);
            }
        }
        near
    };
    // A congestion notification waits for nothing.
    assert_eq!(near(&mut pair), [cnp]);
    pair.destination.handle(0, Side::Far, frames[1].clone());
    assert_eq!(
        near(&mut pair),
        [frames[1].clone(), frames[2].clone(), ack(IPV4, 9)]
    );
}

/// Frames that NetRT does not protect pass unchanged and in order through both halves.
#[test]
fn foreign_frames_pass_untouched() {
    let (src, dst) = addresses(IPV4);
    let mut fragment = frame(IPV4, 1, payload(0x07, 5, 100, 0));
    fragment[20] |= 0x20;
    let not_roce = ethernet(IPV4, 1, src, dst, b"not RoCE, but port 4791");
    let mut lowar = payload(0x07, 5, 100, 0);
    lowar[0] = 0x1F;
    let frames = [
        vec![],
        vec![0; 13],
        vec![7; 60],
        fragment,
        not_roce,
        ethernet(IPV4, 1, src, dst, &[]),
        frame(IPV4, 1, lowar),
        message(IPV4, Kind::Sdr, 4, 1).remove(0),
        ack(IPV4, 1),
    ];
    let mut pair = Pair::new(IPV4);
    for frame in &frames {
        pair.send(frame, false);
    }
    assert_eq!(pair.got, frames);
    assert_eq!(pair.source.counters().copied, 0);
}

#[test]
fn damaged_packets_pass_and_change_nothing() {
    let mut pair = Pair::new(IPV4);
    let frames = message(IPV4, Kind::Write, 0, 6);
    pair.send(&frames[0], false);
    // Damaged on the way: another PSN. And before the source: another payload.
    let mut other_psn = frames[1].clone();
    other_psn[offset(IPV4) + 11] = 77;
    pair.destination.handle(0, Side::Far, other_psn.clone());
    pair.exchange(None);
    let mut other_bytes = frames[1].clone();
    other_bytes[offset(IPV4) + 20] ^= 1;
    pair.send(&other_bytes, false);
    frames[1..].iter().for_each(|frame| pair.send(frame, false));
    assert_eq!(pair.got[1..3], [other_psn, other_bytes]);
    assert_eq!(pair.got[3..], frames[1..]);
    assert_eq!(pair.destination.counters().damaged, 2);
    assert_eq!(pair.source.counters().damaged, 1);
}

/// Both halves ignore messages that are sealed with another key, come from the NICs' side, are
/// changed, or belong to other addresses.
#[test]
fn forged_messages_pass_like_foreign_frames() {
    let mut other = NetRt::new(
        &Config {
            key: Some([8; 32].into()),
            ..config()
        },
        1,
    );
    let frames = message(IPV4, Kind::Write, 0, 3);
    other.handle(0, Side::Near, frames[0].clone());
    let forged: Vec<_> = std::iter::from_fn(|| other.poll()).collect();
    let start = forged[0].bytes.clone();
    assert!(is_box_message(IPV4, &start));
    let mut own = NetRt::new(&config(), 1);
    own.handle(0, Side::Near, frames[0].clone());
    let genuine = own.poll().unwrap().bytes;
    let mut changed = genuine.clone();
    changed[offset(IPV4) + 11] ^= 4;
    let mut moved = genuine.clone();
    moved[offset(IPV4) - 10] ^= 4;
    let mut pair = Pair::new(IPV4);
    for forged in [start, changed, moved] {
        pair.destination.handle(0, Side::Far, forged.clone());
        pair.exchange(None);
        assert_eq!(pair.got.pop(), Some(forged));
    }
    pair.destination.handle(0, Side::Near, genuine.clone());
    let passed = pair.destination.poll().map(|frame| (frame.to, frame.bytes));
    assert_eq!(passed, Some((Side::Far, genuine)));
    // No flow is known: a later packet passes at once.
    pair.destination.handle(0, Side::Far, frames[2].clone());
    pair.exchange(None);
    assert_eq!(pair.got, [frames[2].clone()]);
}

#[test]
fn an_old_start_is_not_taken_again() {
    let mut pair = Pair::new(IPV4);
    let frames = message(IPV4, Kind::Write, 0, 6);
    pair.source.handle(0, Side::Near, frames[0].clone());
    let start = pair.source.poll().unwrap().bytes;
    pair.destination.handle(0, Side::Far, start.clone());
    pair.exchange(None);
    frames[1..5]
        .iter()
        .for_each(|frame| pair.send(frame, false));
    pair.destination.handle(0, Side::Far, start);
    pair.send(&frames[5], false);
    assert_eq!(pair.got, frames);
    assert_eq!(pair.messages(), 0);
}

/// Marks after its last packet must not keep an ended flow in a full table.
#[test]
fn an_idle_flow_makes_room_although_it_was_marked() {
    let config = Config {
        max_connections: 1,
        idle_ns: 100 * US,
        ..config()
    };
    let mut pair = Pair::new(IPV4);
    pair.source = NetRt::new(&config, 1);
    pair.send(&message(IPV4, Kind::Write, 0, 1)[0], false);
    pair.wait(70 * US);
    let marks_sent = pair.source.counters().marks_sent;
    assert!(marks_sent > 0);
    pair.wait(40 * US);
    let tagged = Link {
        ipv6: false,
        vlan_tags: 1,
    };
    pair.send(&message(tagged, Kind::Write, 0, 1)[0], false);
    let counters = pair.source.counters();
    assert_eq!((counters.starts_sent, counters.connections_full), (2, 0));
}

/// Packets with the code point of repeats are not protected, because they look like repeats.
#[test]
fn packets_of_the_class_of_repeats_pass() {
    let mut pair = Pair::new(IPV4);
    let mut frames = message(IPV4, Kind::Write, 0, 3);
    for frame in &mut frames {
        frame[15] = config().repeat_dscp << 2;
    }
    for at in [0, 2, 1, 1] {
        pair.send(&frames[at], false);
    }
    let want = [0, 2, 1, 1].map(|at| frames[at].clone());
    assert_eq!(pair.got, want);
    assert_eq!(pair.source.counters().starts_sent, 0);
}

/// Repeats, requests and the start of a new flow leave before waiting packets. Packets and marks
/// keep their order.
#[test]
fn what_repairs_a_loss_leaves_first() {
    let [mut source, mut destination] = [1, 2].map(|boot| NetRt::new(&config(), boot));
    let polled =
        |netrt: &mut NetRt| -> Vec<BoxFrame> { std::iter::from_fn(|| netrt.poll()).collect() };
    let order = |frames: &[BoxFrame]| -> Vec<_> {
        let of = |frame: &BoxFrame| (is_box_message(IPV4, &frame.bytes), frame.class, frame.ahead);
        frames.iter().map(of).collect()
    };
    for packet in message(IPV4, Kind::Write, 0, 3) {
        source.handle(0, Side::Near, packet);
    }
    let sent = polled(&mut source);
    let packet = (false, Class::Data, false);
    assert_eq!(
        order(&sent),
        [(true, Class::Data, true), packet, packet, packet]
    );
    for at in [0, 1, 3] {
        destination.handle(0, Side::Far, sent[at].bytes.clone());
    }
    let answers = polled(&mut destination);
    let [first, request] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!((first.to, first.ahead), (Side::Near, false));
    assert_eq!((request.to, request.ahead), (Side::Far, true));
    source.handle(0, Side::Far, request.bytes.clone());
    let repeats = polled(&mut source);
    assert_eq!(order(&repeats), [(false, Class::Repair, true)]);
    // A mark reveals the loss of the last packet only if it does not overtake it.
    source.handle_timeout(20 * US);
    let marks = polled(&mut source);
    assert_eq!(order(&marks), [(true, Class::Data, false)]);
}

/// Packets wait behind the source box, which has their copies too. The first one is lost, and the
/// request for it comes a round trip after the last one.
#[test]
fn a_pool_with_room_for_the_queue_has_copies_of_what_left_it() {
    let queue_bytes = 64 << 10;
    let product = config().pool_bytes;
    for (config, repeated) in [(config(), 0), (config().with_queue(queue_bytes), 1)] {
        let mut source = NetRt::new(&config, 1);
        let mut destination = NetRt::new(&config, 1);
        let frame_bytes = message(IPV4, Kind::Write, 0, 2)[0].len();
        let bytes = usize::try_from(queue_bytes).expect("64 KiB") + product;
        let packets = u32::try_from(bytes / frame_bytes).expect("few");
        let frames = message(IPV4, Kind::Write, 0, packets);
        for frame in &frames {
            source.handle(0, Side::Near, frame.clone());
        }
        while let Some(sent) = source.poll() {
            if sent.bytes != frames[1] {
                destination.handle(0, Side::Far, sent.bytes);
            }
        }
        while let Some(sent) = destination.poll() {
            if sent.to == Side::Far {
                source.handle(0, Side::Far, sent.bytes);
            }
        }
        assert_eq!(source.counters().repeated, repeated);
        assert_eq!(source.counters().notices_sent, 1 - repeated);
    }
}

/// The clock of a box was set back before it restarted, so its messages have lower stamps. Its NIC
/// has a new connection with the same queue pair.
#[test]
fn a_source_whose_clock_was_set_back_is_believed_after_a_while() {
    let config = Config {
        idle_ns: 3000 * US,
        ..config()
    };
    let mut pair = Pair::new(IPV4);
    pair.source = NetRt::new(&config, 9);
    pair.destination = NetRt::new(&config, 1);
    let frames = message(IPV4, Kind::Write, 0, 6);
    frames.iter().for_each(|frame| pair.send(frame, false));
    pair.source = NetRt::new(&config, 8);
    for number in 0..10 {
        pair.wait(400 * US);
        pair.send(&message(IPV4, Kind::Write, 5000 + number, 1)[0], false);
    }
    pair.got.clear();
    let frames = message(IPV4, Kind::Write, 5010, 6);
    for (at, frame) in frames.iter().enumerate() {
        pair.send(frame, at == 3);
    }
    pair.wait(200 * US);
    assert_eq!(pair.got, frames);
}

/// A source box pauses the priority that its NIC sends with: that of the VLAN tag, else the one that
/// is set, else the one of the code point.
#[test]
fn a_nic_is_paused_in_the_priority_of_its_packets() {
    let tagged = Link {
        ipv6: false,
        vlan_tags: 2,
    };
    for (link, pause_priority, paused) in [
        (IPV4, None, 0),
        (IPV4, Some(5), 5),
        (tagged, None, 3),
        (tagged, Some(5), 3),
    ] {
        let config = Config {
            pause_priority,
            pool_bytes: 100_000,
            ..config()
        };
        let mut source = NetRt::new(&config, 1);
        let mut destination = NetRt::new(&config, 1);
        // The path loses 80 packets, more than 20 KB.
        for (at, frame) in message(link, Kind::Write, 0, 90).into_iter().enumerate() {
            source.handle(0, Side::Near, frame);
            while let Some(sent) = source.poll() {
                if !(5..85).contains(&at) {
                    destination.handle(0, Side::Far, sent.bytes);
                }
            }
        }
        while let Some(sent) = destination.poll() {
            if sent.to == Side::Far {
                source.handle(0, Side::Far, sent.bytes);
            }
        }
        assert_eq!(source.stops(), 1 << paused, "{link:?} {pause_priority:?}");
    }
}
