//! Tests rules 2 to 5 of P11.3 state by state, and the times of marks.

use alloc::vec;
use alloc::vec::Vec;

use farwrite_net::{Frame, NodeId, Payload};
use farwrite_wire::header::Bth;
use farwrite_wire::packet::Packet as Parsed;

use super::*;
use crate::bytes::to_bytes;
use crate::packets::{PacketKind, Space};

const US: u64 = 1_000;
const QPN: u32 = 2;
const SEND_MIDDLE: u8 = 0x01;
const SEND_LAST: u8 = 0x02;
/// Offset of the code point in a frame without VLAN tags.
const TOS: usize = 15;
/// Offset of a byte of the payload.
const PAYLOAD: usize = 60;

/// The source half, after some packets of a flow.
struct Rig {
    source: Source,
    now_ns: u64,
}

/// What the source box sends beside the packets of the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// A start, and whether it has the code point of repeats.
    Start(u32, bool),
    Mark {
        next: u32,
        last: u32,
    },
    Notice(u32),
    Repeat(u32),
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A packet in the middle of a message.
    Packet(u32),
    /// The last packet of a message.
    Last(u32),
    /// A packet with the code point of repeats.
    Preferred(u32),
    Damaged(u32),
    /// A request: its base, span and bitmap.
    Request(u32, u8, u128),
    Wait(u64),
}

/// The packets of a flow that were sent so far.
#[derive(Clone, Copy, Debug)]
enum SourceState {
    /// None.
    Unknown,
    /// 5, 6, 7.
    Following,
    /// 5, 6, 7, and 5 again.
    GoneBack,
    /// 5, 6, 7, 10.
    Skipped,
}

use Event::{Damaged, Last, Packet, Preferred, Request as Asked, Wait};
use Sent::{Mark, Notice, Repeat, Start};
use SourceState::{Following, GoneBack, Skipped, Unknown};

fn frame(opcode: u8, psn: u32) -> Vec<u8> {
    let bth = Bth::new(opcode, QPN, psn);
    let payload = Payload::Bytes([7; 64].into());
    to_bytes(&Frame::new(NodeId(0), NodeId(1), 49_152, bth, payload)).unwrap()
}

impl Rig {
    /// The round trip is 20 us: a mark comes 20 us after a message, 160 us after another packet, and
    /// at least every 400 us.
    fn new() -> Self {
        let config = Config::new(10_000_000_000, 20 * US);
        Self {
            source: Source::new(&config, 1),
            now_ns: 0,
        }
    }

    fn at(state: SourceState) -> Self {
        let mut rig = Self::new();
        let psns: &[u32] = match state {
            Unknown => &[],
            Following => &[5, 6, 7],
            GoneBack => &[5, 6, 7, 5],
            Skipped => &[5, 6, 7, 10],
        };
        for psn in psns {
            rig.on(Packet(*psn));
        }
        rig
    }

    fn on(&mut self, event: Event) -> Vec<Sent> {
        let sent = match event {
            Packet(psn) => self.send(frame(SEND_MIDDLE, psn)),
            Last(psn) => self.send(frame(SEND_LAST, psn)),
            Preferred(psn) => {
                let mut frame = frame(SEND_MIDDLE, psn);
                frame[TOS] = self.source.config.repeat_dscp << 2;
                self.send(frame)
            }
            Damaged(psn) => {
                let mut frame = frame(SEND_MIDDLE, psn);
                frame[PAYLOAD] ^= 1;
                self.send(frame)
            }
            Asked(base, span, bitmap) => {
                let mut sent = self.ask(base, span, bitmap);
                sent.extend(self.run(US));
                sent
            }
            Wait(ns) => self.run(ns),
        };
        sent.iter().map(|frame| self.read(frame)).collect()
    }

    fn send(&mut self, frame: Vec<u8>) -> Vec<Vec<u8>> {
        let view = View::parse(&frame).unwrap();
        let packet = Parsed::parse(view.payload()).unwrap();
        let PacketKind::Data(data) = PacketKind::of(&packet) else {
            panic!("not data");
        };
        let around = self.source.handle(self.now_ns, &view, &frame, &data);
        around.into_iter().flatten().collect()
    }

    /// A request, whose repeats [`run`](Self::run) returns.
    fn ask(&mut self, base: u32, span: u8, bitmap: u128) -> Vec<Vec<u8>> {
        let sent = frame(SEND_MIDDLE, 5);
        let key = StreamKey::new(&View::parse(&sent).unwrap(), QPN, Space::Request);
        // The headers of a request are those of a packet of the opposite direction.
        let back = View::parse(&sent).unwrap().envelope().reversed();
        let back = back.wrap(0, &[0; 20]);
        let request = Request { span, bitmap };
        let view = View::parse(&back).unwrap();
        let notice = self.source.request(self.now_ns, key, base, &request, &view);
        notice.into_iter().collect()
    }

    fn run(&mut self, ns: u64) -> Vec<Vec<u8>> {
        let end_ns = self.now_ns + ns;
        let mut sent = Vec::new();
        while let Some(at_ns) = self.source.next_ns().filter(|at_ns| *at_ns <= end_ns) {
            self.now_ns = self.now_ns.max(at_ns);
            let due = self.source.due(self.now_ns);
            sent.extend(due.into_iter().map(|(_, frame)| frame));
        }
        self.now_ns = end_ns;
        sent
    }

    fn read(&self, frame: &[u8]) -> Sent {
        let view = View::parse(frame).unwrap();
        let preferred = view.dscp() == self.source.config.repeat_dscp;
        let Some(bytes) = self.source.seal.open(&view) else {
            assert!(preferred && view.icrc_holds());
            return Repeat(Parsed::parse(view.payload()).unwrap().bth().psn);
        };
        let message = NetRtMessage::parse(bytes).unwrap();
        match message.body {
            NetRtBody::Start(..) => Start(message.psn, preferred),
            NetRtBody::Mark(_, _, last) => {
                assert!(!preferred);
                let next = message.psn;
                Mark { next, last }
            }
            NetRtBody::Notice => {
                assert!(preferred);
                Notice(message.psn)
            }
            NetRtBody::Request(_) => panic!("a request of the source"),
        }
    }
}

#[track_caller]
fn check(state: SourceState, rows: &[(Event, &[Sent])]) {
    for (event, want) in rows {
        assert_eq!(Rig::at(state).on(*event), *want, "{state:?}, {event:?}");
    }
}

#[test]
fn unknown() {
    check(
        Unknown,
        &[
            (Packet(5), &[Start(5, true)]),
            (Last(5), &[Start(5, true)]),
            (Preferred(5), &[]),
            (Damaged(5), &[]),
            (Asked(5, 1, 0), &[Notice(5)]),
            (Wait(1_000_000 * US), &[]),
        ],
    );
}

#[test]
fn following() {
    check(
        Following,
        &[
            (Packet(8), &[]),
            (Last(8), &[]),
            (Packet(6), &[Start(6, false)]),
            (Packet(10), &[Start(10, false)]),
            (Preferred(10), &[]),
            (Damaged(10), &[]),
            (Asked(6, 1, 0), &[Repeat(6)]),
            // The packet at distance 1 has arrived.
            (Asked(5, 3, 0b01), &[Repeat(5), Repeat(7)]),
            (Asked(5, 2, 0), &[Repeat(5), Repeat(6)]),
            // What is not sent yet is not repeated.
            (Asked(7, 9, 0), &[Repeat(7)]),
            (Asked(8, 1, 0), &[]),
            (Asked(20, 1, 0), &[]),
            // Never sent.
            (Asked(4, 1, 0), &[Notice(4)]),
            (Wait(160 * US - 1), &[]),
            (Wait(160 * US), &[Mark { next: 8, last: 7 }]),
        ],
    );
}

#[test]
fn gone_back() {
    check(
        GoneBack,
        &[
            (Packet(6), &[]),
            (Packet(5), &[Start(5, false)]),
            (Packet(7), &[Start(7, false)]),
            (Asked(5, 1, 0), &[Repeat(5)]),
            // The sender is about to send it again.
            (Asked(6, 1, 0), &[]),
            (Asked(7, 1, 0), &[]),
            (Wait(160 * US), &[Mark { next: 6, last: 5 }]),
        ],
    );
}

#[test]
fn skipped() {
    check(
        Skipped,
        &[
            (Packet(11), &[]),
            (Packet(8), &[Start(8, false)]),
            (Asked(10, 1, 0), &[Repeat(10)]),
            // A packet was lost before the box, so all earlier copies are gone.
            (Asked(7, 1, 0), &[Notice(7)]),
            (Asked(8, 1, 0), &[Notice(8)]),
            (Wait(160 * US), &[Mark { next: 11, last: 10 }]),
        ],
    );
}

#[test]
fn a_packet_is_repeated_once_in_a_round_trip() {
    let mut rig = Rig::at(Following);
    assert_eq!(rig.on(Asked(6, 1, 0)), [Repeat(6)]);
    assert!(rig.on(Asked(6, 1, 0)).is_empty());
    assert_eq!(rig.on(Asked(6, 2, 0)), [Repeat(7)]);
    rig.on(Wait(20 * US));
    assert_eq!(rig.on(Asked(6, 1, 0)), [Repeat(6)]);
}

#[test]
fn a_sender_that_goes_back_repeats_itself_what_waits() {
    let mut rig = Rig::at(Following);
    assert!(rig.ask(5, 3, 0).is_empty());
    assert_eq!(rig.on(Packet(5)), [Start(5, false)]);
    assert!(rig.on(Wait(US)).is_empty());
}

#[test]
fn marks_after_a_message_come_at_twice_the_time() {
    for (event, wait_ns) in [(Last(8), 20 * US), (Packet(8), 160 * US)] {
        let mut rig = Rig::at(Following);
        rig.on(event);
        let mut times = Vec::new();
        while let Some(at_ns) = rig.source.next_ns() {
            assert_eq!(
                rig.on(Wait(at_ns - rig.now_ns)),
                [Mark { next: 9, last: 8 }]
            );
            times.push(at_ns);
        }
        let want: Vec<_> = (1..=10).map(|marks| wait_ns * ((1 << marks) - 1)).collect();
        assert_eq!(times, want);
    }
}

#[test]
fn a_flow_that_sends_is_marked_from_time_to_time() {
    let mut rig = Rig::at(Following);
    let mut marked = vec![];
    for psn in 8..18 {
        rig.on(Wait(100 * US));
        if rig.on(Packet(psn))
            == [Mark {
                next: psn + 1,
                last: psn,
            }]
        {
            marked.push(psn);
        }
    }
    // 400 us after the start at 0, and 400 us later.
    assert_eq!(marked, [11, 15]);
}

#[test]
fn a_full_table_has_no_place_for_a_flow() {
    let config = Config {
        max_connections: 0,
        ..Config::new(10_000_000_000, 20 * US)
    };
    let mut rig = Rig {
        source: Source::new(&config, 1),
        now_ns: 0,
    };
    assert!(rig.on(Packet(5)).is_empty());
    assert_eq!(rig.on(Asked(5, 1, 0)), [Notice(5)]);
    assert_eq!(rig.source.counters().connections_full, 1);
}
