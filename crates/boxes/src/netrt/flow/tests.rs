//! Tests the table of P11.4 row by row, and special cases.

use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::packets::test::data;
use crate::shares::Source;

const MS: u64 = 1_000_000;

/// A flow, with the state that flows share.
struct Rig {
    flow: DestinationFlow,
    shared: FlowShared,
    config: Config,
    now_ns: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Observed {
    state: FlowState,
    expected: u32,
    /// The first byte of each frame that went to the NIC: the low byte of its PSN, or [`ACK`].
    out: Vec<u8>,
    /// Distances of the requested packets from the expected one.
    wants: Option<Vec<u32>>,
}

const ACK: u8 = 0xAC;

#[derive(Clone, Copy, Debug)]
enum Event {
    Packet(u32),
    Repeat(u32),
    Ack,
    Start(u32),
    Mark { next: u32, last: u32 },
    Notice(u32),
    Wait(u64),
}

impl Rig {
    fn new(psn: u32) -> Self {
        let config = Config {
            request_ns: MS,
            hold_ns: 10 * MS,
            ..Config::new(1_000_000_000, 1000)
        };
        Self {
            flow: DestinationFlow::new(Source::numbered(1, 1), psn),
            shared: FlowShared {
                room: BufferBudget::new(1000),
                repair_ns: 0,
                counters: Counters::default(),
            },
            config,
            now_ns: 5,
        }
    }

    /// Returns a flow in this state that expects PSN 5.
    fn at(state: FlowState) -> Self {
        let mut rig = Self::new(5);
        if state != FlowState::Ordered {
            rig.on(Event::Packet(7));
            rig.on(Event::Packet(8));
        }
        if state == FlowState::Waiting {
            rig.on(Event::Notice(5));
        }
        assert_eq!((rig.flow.state, rig.flow.expected()), (state, 5));
        rig
    }

    fn on(&mut self, event: Event) -> Observed {
        let (flow, shared, now_ns) = (&mut self.flow, &mut self.shared, self.now_ns);
        let mut out = Vec::new();
        let frame = |psn: u32| vec![psn.to_be_bytes()[3]; 10];
        match event {
            Event::Packet(psn) => {
                flow.packet(now_ns, data(psn), frame(psn), false, shared, &mut out);
            }
            Event::Repeat(psn) => {
                flow.packet(now_ns, data(psn), frame(psn), true, shared, &mut out);
            }
            Event::Ack => flow.ack(now_ns, vec![ACK], shared, &mut out),
            Event::Start(psn) => flow.start(psn, shared, &mut out),
            Event::Mark { next, last } => flow.mark(now_ns, next, last, &self.config),
            Event::Notice(psn) => flow.notice(now_ns, psn, shared, &mut out),
            Event::Wait(ns) => self.now_ns += ns,
        }
        let (flow, now_ns) = (&mut self.flow, self.now_ns);
        let request = flow.due(now_ns, &self.config, &mut self.shared, &mut out);
        let wants = request.map(|(psn, request)| {
            let from = psn::distance(flow.expected(), psn).unsigned_abs();
            let wanted = (0..200).filter(|&at| request.wants(at));
            wanted.map(|at| from + at).collect()
        });
        Observed {
            state: flow.state,
            expected: flow.expected(),
            out: out.iter().map(|frame| frame[0]).collect(),
            wants,
        }
    }
}

/// An event, the next state, the next expected PSN, the frames to the NIC, the requested distances.
type Row = (Event, FlowState, u32, &'static [u8], Option<&'static [u32]>);

#[track_caller]
fn check(state: FlowState, rows: &[Row]) {
    for &(event, state_after, expected, out, wants) in rows {
        let want = Observed {
            state: state_after,
            expected,
            out: out.to_vec(),
            wants: wants.map(<[u32]>::to_vec),
        };
        assert_eq!(Rig::at(state).on(event), want, "{state:?}, {event:?}");
    }
}

use Event::{Ack, Mark, Notice, Packet, Repeat, Start, Wait};
use FlowState::{Ordered, ReTx, Waiting};

/// Too far ahead of PSN 5 to be held, and one packet less.
const FAR: u32 = 5 + (1 << 20);
const NEAR: u32 = FAR - 1;

/// The packets that one request covers, from the expected one on.
const COVERED: [u32; 129] = {
    let mut covered = [0; 129];
    let mut at: u32 = 0;
    while at < 129 {
        covered[at as usize] = at;
        at += 1;
    }
    covered
};
/// The same without packets 7 and 8, which wait.
const NOT_HELD: [u32; 127] = {
    let mut missing = [0; 127];
    let mut at: usize = 0;
    while at < 127 {
        missing[at] = COVERED[if at < 2 { at } else { at + 2 }];
        at += 1;
    }
    missing
};

#[test]
fn events_in_ordered() {
    check(
        Ordered,
        &[
            (Packet(5), Ordered, 6, &[5], None),
            (Repeat(5), Ordered, 6, &[5], None),
            (Packet(8), ReTx, 5, &[], Some(&[0, 1, 2])),
            (Repeat(8), ReTx, 5, &[], Some(&[0, 1, 2])),
            (Packet(FAR), Ordered, 5, &[5], None),
            (Packet(NEAR), ReTx, 5, &[], Some(&COVERED)),
            (Repeat(NEAR), ReTx, 5, &[], Some(&COVERED)),
            (Repeat(FAR), Ordered, 5, &[5], None),
            (Packet(3), Ordered, 5, &[3], None),
            (Repeat(3), Ordered, 5, &[], None),
            (Ack, Ordered, 5, &[ACK], None),
            (Start(3), Ordered, 3, &[], None),
            (Start(5), Ordered, 5, &[], None),
            (Start(20), Ordered, 20, &[], None),
            (Mark { next: 5, last: 4 }, Ordered, 5, &[], None),
            (Mark { next: 7, last: 6 }, ReTx, 5, &[], Some(&[0, 1])),
            (Notice(5), Ordered, 5, &[], None),
            (Notice(6), Ordered, 5, &[], None),
            (Wait(100 * MS), Ordered, 5, &[], None),
        ],
    );
}

#[test]
fn events_in_retx() {
    // Packets 7 and 8 wait.
    check(
        ReTx,
        &[
            (Packet(5), ReTx, 6, &[5], None),
            (Repeat(5), ReTx, 6, &[5], None),
            (Packet(6), ReTx, 5, &[], None),
            (Repeat(6), ReTx, 5, &[], None),
            (Packet(9), ReTx, 5, &[], None),
            (Repeat(9), ReTx, 5, &[], None),
            (Packet(11), ReTx, 5, &[], Some(&[0, 1, 4, 5])),
            (Packet(7), ReTx, 5, &[], None),
            (Repeat(7), ReTx, 5, &[], None),
            (Repeat(11), ReTx, 5, &[], Some(&[0, 1, 4, 5])),
            (Packet(FAR), Waiting, 5, &[7, 8, 5], None),
            (Packet(NEAR), ReTx, 5, &[], Some(&NOT_HELD)),
            (Repeat(NEAR), ReTx, 5, &[], Some(&NOT_HELD)),
            (Repeat(FAR), Waiting, 5, &[7, 8, 5], None),
            (Packet(3), ReTx, 5, &[3], None),
            (Repeat(3), ReTx, 5, &[], None),
            (Ack, ReTx, 5, &[], None),
            (Start(3), ReTx, 5, &[], None),
            (Start(5), ReTx, 5, &[], None),
            (Start(20), Ordered, 20, &[7, 8], None),
            (Mark { next: 9, last: 8 }, ReTx, 5, &[], None),
            (Mark { next: 10, last: 9 }, ReTx, 5, &[], Some(&[0, 1, 4])),
            (Notice(5), Waiting, 5, &[7, 8], None),
            (Notice(6), ReTx, 5, &[], None),
            (Wait(MS - 1), ReTx, 5, &[], None),
            (Wait(MS), ReTx, 5, &[], Some(&[0, 1])),
            (Wait(10 * MS), Waiting, 5, &[7, 8], None),
        ],
    );
}

#[test]
fn events_in_waiting() {
    check(
        Waiting,
        &[
            (Packet(5), Ordered, 6, &[5], None),
            (Repeat(5), Ordered, 6, &[5], None),
            (Packet(7), Waiting, 5, &[7], None),
            (Packet(9), Waiting, 5, &[9], None),
            (Repeat(9), Waiting, 5, &[], None),
            (Packet(FAR), Waiting, 5, &[5], None),
            (Packet(NEAR), Waiting, 5, &[4], None),
            (Repeat(NEAR), Waiting, 5, &[], None),
            (Repeat(FAR), Waiting, 5, &[5], None),
            (Packet(3), Waiting, 5, &[3], None),
            (Repeat(3), Waiting, 5, &[], None),
            (Ack, Waiting, 5, &[ACK], None),
            (Start(3), Ordered, 3, &[], None),
            (Start(5), Ordered, 5, &[], None),
            (Start(20), Ordered, 20, &[], None),
            (Mark { next: 9, last: 8 }, Waiting, 5, &[], None),
            (Mark { next: 5, last: 4 }, Waiting, 5, &[], None),
            (Notice(5), Waiting, 5, &[], None),
            (Notice(6), Waiting, 5, &[], None),
            (Wait(100 * MS), Waiting, 5, &[], None),
        ],
    );
    // After the hold time, a mark ends the wait if the sender does not go back.
    for next in [9, 5] {
        let mut rig = Rig::at(Waiting);
        rig.on(Wait(10 * MS - 1));
        let last = next - 1;
        assert_eq!(rig.on(Mark { next, last }).state, Waiting);
        rig.on(Wait(1));
        let result = rig.on(Mark { next, last });
        assert_eq!((result.state, result.expected), (Ordered, next));
        assert_eq!((result.out, result.wants), (vec![], None));
    }
}

#[test]
fn without_room_all_goes_on() {
    for (event, last) in [(Packet(9), 9), (Repeat(9), 9), (Ack, ACK)] {
        let mut rig = Rig::new(5);
        rig.shared.room = BufferBudget::new(2);
        rig.on(Packet(7));
        rig.on(Packet(8));
        let result = rig.on(event);
        assert_eq!((result.state, result.wants), (Waiting, None), "{event:?}");
        assert_eq!(result.out, [7, 8, last], "{event:?}");
        assert_eq!(rig.shared.room.refused, 1);
    }
}

/// Other flows can hold all the room, so a flow may find none for the first packet after a gap.
#[test]
fn without_any_room_a_gap_ends_order() {
    for event in [Packet(7), Repeat(7)] {
        let mut rig = Rig::new(5);
        rig.shared.room = BufferBudget::new(0);
        let result = rig.on(event);
        assert_eq!((result.state, result.expected), (Waiting, 5), "{event:?}");
        assert_eq!((result.out, result.wants), (vec![7], None), "{event:?}");
        assert_eq!(rig.shared.counters.given_up, 1);
    }
    // An acknowledgement passes, because nothing waits.
    let mut rig = Rig::new(5);
    rig.shared.room = BufferBudget::new(0);
    assert_eq!(rig.on(Ack).state, Ordered);
}

/// The bitmap of the paper's Algorithm 1 has an off-by-one error after the second gap.
#[test]
fn a_second_hole_is_requested_and_repaired() {
    let mut rig = Rig::new(5);
    for psn in [6, 7, 9] {
        rig.on(Packet(psn));
    }
    let result = rig.on(Repeat(5));
    assert_eq!((result.state, &result.out[..]), (ReTx, &[5, 6, 7][..]));
    let result = rig.on(Wait(MS));
    assert_eq!((result.expected, result.wants), (8, Some(vec![0])));
    let result = rig.on(Repeat(8));
    assert_eq!((result.state, &result.out[..]), (Ordered, &[8, 9][..]));
    assert_eq!((result.expected, rig.shared.counters.recovered), (10, 2));
}

#[test]
fn packets_beyond_the_bitmap_wait_and_are_requested_when_it_reaches_them() {
    let mut rig = Rig::new(0);
    rig.on(Packet(1));
    // Packet 140 is missing too. Packets 2 to 139 and 141 to 150 come.
    for psn in (2..140).chain(141..150) {
        assert_eq!(rig.on(Packet(psn)).wants, None, "{psn}");
    }
    let result = rig.on(Repeat(0));
    let released: Vec<_> = (0..140).collect();
    assert_eq!(result.out, released);
    assert_eq!((result.state, result.wants), (ReTx, Some(vec![0])));
    assert_eq!(rig.on(Repeat(140)).state, Ordered);
}

#[test]
fn a_longer_bitmap_requests_each_hole_when_it_is_seen() {
    let mut rig = Rig::new(0);
    rig.config.bitmap_bits = 4096;
    assert_eq!(rig.on(Packet(1)).wants, Some(vec![0]));
    for psn in (2..140).chain(141..150) {
        let wants = (psn == 141).then(|| vec![140]);
        assert_eq!(rig.on(Packet(psn)).wants, wants, "{psn}");
    }
    // 150 to 599 are missing: a request covers 129 of them.
    let mut wanted = rig.on(Packet(600)).wants.expect("a request");
    while let Some(wants) = rig.on(Wait(0)).wants {
        assert!(wants.len() <= 129);
        wanted.extend(wants);
    }
    assert!(wanted.into_iter().eq(150..600));
    // The expected packet is requested again.
    assert_eq!(rig.on(Wait(MS)).wants, Some(vec![0]));
    // The later holes need no other request.
    rig.on(Repeat(140));
    let result = rig.on(Repeat(0));
    assert_eq!((result.expected, result.wants), (150, None));
    for psn in 150..600 {
        rig.on(Repeat(psn));
    }
    assert_eq!((rig.flow.state, rig.flow.expected()), (Ordered, 601));
}

#[test]
fn psns_wrap() {
    let mut rig = Rig::new(0xFF_FFFD);
    for psn in [0xFF_FFFF, 1, 0xFF_FFFD, 2] {
        rig.on(Packet(psn));
    }
    let result = rig.on(Wait(MS));
    assert_eq!(
        (result.expected, result.wants),
        (0xFF_FFFE, Some(vec![0, 2]))
    );
    assert_eq!(rig.on(Repeat(0)).out, []);
    let result = rig.on(Repeat(0xFF_FFFE));
    assert_eq!(
        (result.out, result.state),
        (vec![254, 255, 0, 1, 2], Ordered)
    );
}

/// A lost request, a lost repeat and a lost notice have the same effect: nothing arrives.
#[test]
fn what_does_not_come_is_requested_again_until_the_hold_time_ends() {
    let mut rig = Rig::new(5);
    assert_eq!(rig.on(Packet(6)).wants, Some(vec![0]));
    for _ in 0..9 {
        assert_eq!(rig.on(Wait(MS)).wants, Some(vec![0]));
    }
    let result = rig.on(Wait(MS));
    assert_eq!((result.state, result.out), (Waiting, vec![6]));
    assert_eq!(rig.shared.counters.hold_ended, 1);
    assert_eq!(rig.flow.next_ns(&rig.config), None);
}

/// Otherwise, the flow would request packets again while their repeats wait in a queue.
#[test]
fn slow_repeats_are_requested_again_later() {
    let mut rig = Rig::new(0);
    rig.on(Packet(1));
    for _ in 0..4 {
        assert_eq!(rig.on(Wait(MS)).wants, Some(vec![0]));
    }
    assert_eq!(rig.on(Repeat(0)).state, Ordered);
    assert_eq!(rig.on(Packet(3)).wants, Some(vec![0]));
    assert_eq!(rig.on(Wait(8 * MS - 1)).wants, None);
    assert_eq!(rig.on(Wait(1)).wants, Some(vec![0]));
    // One fast repeat lowers the estimate only a little.
    rig.on(Repeat(2));
    rig.on(Packet(5));
    rig.on(Repeat(4));
    assert!((3 * MS..8 * MS).contains(&rig.shared.repair_ns));
}

#[test]
fn progress_prolongs_the_hold_time() {
    let mut rig = Rig::new(0);
    for psn in (1..60).filter(|psn| psn % 3 != 0) {
        rig.on(Packet(psn));
    }
    for psn in (0..60).step_by(3) {
        rig.on(Wait(9 * MS));
        assert_eq!(rig.on(Repeat(psn)).out[0], psn.to_be_bytes()[3]);
    }
    assert_eq!((rig.flow.state, rig.flow.expected()), (Ordered, 60));
}

#[test]
fn the_last_packets_of_a_message_are_requested_after_a_mark() {
    let mut rig = Rig::new(5);
    rig.on(Packet(5));
    let result = rig.on(Mark { next: 9, last: 8 });
    assert_eq!((result.state, result.wants), (ReTx, Some(vec![0, 1, 2])));
    rig.on(Repeat(7));
    rig.on(Repeat(6));
    let result = rig.on(Repeat(8));
    assert_eq!((result.state, result.expected), (Ordered, 9));
}

#[test]
fn packets_that_overtook_others_are_not_requested_within_the_delay() {
    let mut rig = Rig::new(5);
    rig.config.request_delay_ns = 1000;
    assert_eq!(rig.on(Packet(6)).wants, None);
    rig.on(Wait(500));
    assert_eq!(rig.on(Packet(8)).wants, None);
    // The hole before packet 8 is younger.
    assert_eq!(rig.on(Wait(500)).wants, Some(vec![0]));
    let result = rig.on(Packet(5));
    assert_eq!((result.out, result.wants), (vec![5, 6], None));
    assert_eq!(rig.on(Packet(7)).state, Ordered);
    assert_eq!(rig.on(Wait(MS)).wants, None);
}

/// The planned time of a request belongs to one hole. It does not apply to the next hole, which is
/// younger.
#[test]
fn a_hole_that_closes_takes_its_request_along() {
    let mut rig = Rig::new(5);
    rig.config.request_delay_ns = 1000;
    rig.on(Packet(6));
    rig.on(Wait(500));
    rig.on(Packet(8));
    rig.on(Wait(100));
    let result = rig.on(Packet(5));
    assert_eq!((result.out, result.state), (vec![5, 6], ReTx));
    assert_eq!(rig.on(Wait(400)).wants, None);
    assert_eq!(rig.on(Wait(600)).wants, Some(vec![0]));
}

/// Otherwise, a box with this setting would be due at the same time forever.
#[test]
fn a_request_is_never_repeated_at_once() {
    let mut rig = Rig::new(5);
    rig.config.request_ns = 0;
    assert_eq!(rig.on(Packet(6)).wants, Some(vec![0]));
    assert_eq!(rig.flow.next_ns(&rig.config), Some(rig.now_ns + 1_000));
}

#[test]
fn an_acknowledgement_waits_behind_responses() {
    let mut rig = Rig::new(5);
    rig.on(Packet(6));
    rig.on(Ack);
    rig.on(Packet(7));
    assert_eq!(rig.on(Packet(5)).out, [5, 6, ACK, 7]);
}
