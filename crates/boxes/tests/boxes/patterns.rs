//! Every pattern of losses for short streams.
#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

use std::collections::BTreeMap;

use crate::common::{
    IPV4, Kind, Link, Pair, ack, config, drain, is_box_message, is_repair, message, offset, psn_of,
};
use farwrite_boxes::lowar::Config;
use farwrite_boxes::{Middlebox, Side};

/// PSNs wrap on the way.
const FIRST_PSN: u32 = 0xFF_FFFC;
/// Enough for all blocks here. A test makes many boxes.
const UNITS: usize = 32;
/// UC RDMA WRITE Only with Immediate.
const SDR_OPCODE: u8 = 0x2B;

/// A stream: two messages that introduce the boxes to each other, then the messages under test.
struct Case {
    link: Link,
    shape: (u16, u8),
    warm_up: Vec<Vec<u8>>,
    frames: Vec<Vec<u8>>,
}

impl Case {
    fn new(link: Link, shape: (u16, u8), messages: &[(Kind, u32)]) -> Self {
        let kind = messages[0].0;
        let warm_up: Vec<_> = [6, 5]
            .into_iter()
            .flat_map(|before| message(link, kind, FIRST_PSN - before, 1))
            .collect();
        let mut frames = Vec::new();
        let mut psn = FIRST_PSN - 4;
        for &(kind, packets) in messages {
            match kind {
                // A request for 100 bytes, so the response is one packet.
                Kind::ReadRequest | Kind::FetchAdd | Kind::AtomicAck => {
                    frames.extend(message(link, kind, psn, 1));
                    psn += 1;
                }
                kind => {
                    frames.extend(message(link, kind, psn, packets));
                    psn += packets;
                }
            }
            if kind == Kind::ReadResponse {
                // The ACK is for a SEND that follows the READ.
                frames.push(ack(link, psn & 0xFF_FFFF));
                psn += 1;
            }
        }
        Self {
            link,
            shape,
            warm_up,
            frames,
        }
    }

    fn pair(&self) -> Pair {
        let config = Config {
            max_units: UNITS,
            ..config(self.shape.0, self.shape.1)
        };
        let mut pair = Pair::new(&config);
        assert_eq!(pair.send(&self.warm_up), self.warm_up);
        pair
    }

    /// The frames on the path. The last block of single packets ends by a timer.
    fn sent(&self, pair: &mut Pair) -> Vec<Vec<u8>> {
        let frames = self.frames.iter();
        let mut sent: Vec<_> = frames.flat_map(|frame| pair.encode(frame)).collect();
        if let Some(at_ns) = pair.a.next_ns() {
            pair.a.handle_timeout(at_ns);
            sent.extend(drain(&mut pair.a, Side::Far));
        }
        sent
    }

    /// Returns the interleave class of each frame on the path: its block and unit. `None` for
    /// frames that are not protected.
    fn classes(&self, sent: &[Vec<u8>]) -> Vec<Option<(u32, u8)>> {
        let mut classes = vec![None; sent.len()];
        for (at, frame) in sent.iter().enumerate() {
            if !is_repair(self.link, frame) {
                continue;
            }
            let header = &frame[offset(self.link)..];
            let (base, units) = (psn_of(self.link, frame), header[14]);
            let packets = u32::from(u16::from_be_bytes([header[16], header[17]]));
            classes[at] = Some((base, header[15]));
            for (other, frame) in sent.iter().enumerate() {
                let position = psn_of(self.link, frame).wrapping_sub(base) & 0xFF_FFFF;
                let data = !is_box_message(self.link, frame) && frame[offset(self.link)] != 0x11;
                if data && position < packets && position as u8 % units == header[15] {
                    classes[other] = Some((base, header[15]));
                }
            }
        }
        classes
    }

    /// Returns whether all classes have at most one loss.
    fn is_repairable(classes: &[Option<(u32, u8)>], lost: &dyn Fn(usize) -> bool) -> bool {
        let mut losses: BTreeMap<(u32, u8), u32> = BTreeMap::new();
        for (at, class) in classes.iter().enumerate().filter(|(at, _)| lost(*at)) {
            let Some(class) = class else {
                panic!("frame {at} is not protected");
            };
            *losses.entry(*class).or_default() += 1;
        }
        losses.values().all(|losses| *losses <= 1)
    }

    /// Tries all patterns of losses. Returns the numbers of repairable and of other patterns.
    fn try_all(&self) -> [u32; 2] {
        let counts = self.try_up_to(14);
        counts.expect("at most 14 protected frames")
    }

    /// Tries all patterns of losses, unless there are more protected frames than `most`.
    fn try_up_to(&self, most: usize) -> Option<[u32; 2]> {
        let sent = self.sent(&mut self.pair());
        let classes = self.classes(&sent);
        let protected: Vec<usize> = (0..sent.len())
            .filter(|at| classes[*at].is_some())
            .collect();
        if protected.len() > most {
            return None;
        }
        let mut counts = [0; 2];
        for pattern in 0..1u32 << protected.len() {
            let lost = |at: usize| {
                let bit = protected.iter().position(|protected| *protected == at);
                bit.is_some_and(|bit| pattern >> bit & 1 == 1)
            };
            let repairable = Self::is_repairable(&classes, &lost);
            counts[usize::from(!repairable)] += 1;
            self.try_one(&lost, repairable, pattern);
        }
        Some(counts)
    }

    fn try_one(&self, lost: &dyn Fn(usize) -> bool, repairable: bool, pattern: u32) {
        let mut pair = self.pair();
        let sent = self.sent(&mut pair);
        let mut got = Vec::new();
        let mut passed = Vec::new();
        for (at, frame) in sent.into_iter().enumerate() {
            if !lost(at) {
                if !is_box_message(self.link, &frame) {
                    passed.push(frame.clone());
                }
                got.extend(pair.decode(frame));
            }
        }
        if self.is_single() {
            return self.check_singles(got, &passed, repairable, pattern);
        }
        if repairable {
            assert!(got == self.frames, "{:?}, pattern {pattern:#b}", self.shape);
            assert_eq!(pair.b.held(), 0);
            return;
        }
        got.extend(pair.wait(10_000_000));
        // Packets that arrived or were recovered are forwarded, undamaged and in order.
        let places = got.iter().map(|frame| {
            let place = self.frames.iter().position(|original| original == frame);
            place.unwrap_or_else(|| panic!("pattern {pattern:#b}: a frame that was not sent"))
        });
        assert!(places.is_sorted_by(|a, b| a < b), "pattern {pattern:#b}");
        assert!(passed.iter().all(|frame| got.contains(frame)));
        self.go_back(&mut pair, got, pattern);
    }

    /// Whether the messages are single packets, which need no order.
    fn is_single(&self) -> bool {
        self.frames[0][offset(self.link)] == SDR_OPCODE
    }

    /// All packets that arrived or were recovered are forwarded once.
    fn check_singles(
        &self,
        mut got: Vec<Vec<u8>>,
        passed: &[Vec<u8>],
        repairable: bool,
        pattern: u32,
    ) {
        let what = || format!("{:?}, pattern {pattern:#b}", self.shape);
        assert!(passed.iter().all(|frame| got.contains(frame)), "{}", what());
        got.sort();
        let mut want = self.frames.clone();
        want.sort();
        if !repairable {
            want.retain(|frame| got.contains(frame));
        }
        assert!(got == want, "{}", what());
    }

    /// The receiver accepts packets only in order, and the sender goes back to the first missing
    /// one.
    fn go_back(&self, pair: &mut Pair, got: Vec<Vec<u8>>, pattern: u32) {
        let data: Vec<_> = self
            .frames
            .iter()
            .filter(|frame| frame[offset(self.link)] != 0x11)
            .cloned()
            .collect();
        let mut expected = 0;
        for frame in got {
            expected += usize::from(data.get(expected) == Some(&frame));
        }
        let again = pair.send(&data[expected..]);
        assert!(again == data[expected..], "pattern {pattern:#b}");
        assert_eq!(pair.b.held(), 0);
        assert_eq!(pair.b.free_units()[1], UNITS, "pattern {pattern:#b}");
    }
}

fn try_messages(shape: (u16, u8), messages: &[(Kind, u32)]) {
    let [repairable, others] = Case::new(IPV4, shape, messages).try_all();
    assert!(repairable > 8 && others > 8, "{repairable} and {others}");
}

#[test]
fn short_and_long_messages_with_two_classes() {
    try_messages(
        (4, 2),
        &[(Kind::Write, 1), (Kind::Write, 5), (Kind::Send, 2)],
    );
}

#[test]
fn one_class() {
    try_messages(
        (3, 1),
        &[(Kind::Send, 4), (Kind::Write, 1), (Kind::SendImm, 3)],
    );
}

#[test]
fn copies_of_short_messages() {
    try_messages((4, 4), &[(Kind::Write, 2), (Kind::Write, 5)]);
}

#[test]
fn a_block_in_the_middle_of_a_message() {
    try_messages((3, 3), &[(Kind::Write, 7)]);
}

#[test]
fn reads_and_atomics_between_writes() {
    try_messages(
        (4, 2),
        &[
            (Kind::Write, 2),
            (Kind::ReadRequest, 1),
            (Kind::FetchAdd, 1),
            (Kind::Write, 3),
        ],
    );
}

#[test]
fn responses_with_acknowledgements_between_them() {
    try_messages(
        (4, 2),
        &[
            (Kind::ReadResponse, 3),
            (Kind::AtomicAck, 1),
            (Kind::ReadResponse, 4),
        ],
    );
}

/// All shapes of up to 5 packets, and messages of all lengths up to two packets more than a block.
#[test]
fn all_small_shapes_and_lengths() {
    let mut tried = 0;
    for (r, c) in (1..=5).flat_map(|r| (1..=r).map(move |c| (r, c))) {
        for (first, second) in (1..=r + 2).flat_map(|first| [(first, 1), (first, 2)]) {
            let messages = [(Kind::Write, first.into()), (Kind::Send, second)];
            let case = Case::new(IPV4, (r, c as u8), &messages);
            tried += u32::from(case.try_up_to(9).is_some());
        }
    }
    assert!(tried > 60, "{tried}");
}

#[test]
fn single_packets_of_all_small_shapes() {
    let mut tried = 0;
    for (r, c) in (1..=5).flat_map(|r| (1..=r).map(move |c| (r, c))) {
        for packets in 1..=r + 2 {
            let case = Case::new(IPV4, (r, c as u8), &[(Kind::Sdr, packets.into())]);
            tried += u32::from(case.try_up_to(9).is_some());
        }
    }
    assert!(tried > 40, "{tried}");
}

#[test]
fn ipv6_and_vlan_tags() {
    for (ipv6, vlan_tags) in [(false, 1), (false, 2), (true, 0), (true, 2)] {
        let link = Link { ipv6, vlan_tags };
        let messages = [(Kind::Write, 4), (Kind::Send, 1)];
        Case::new(link, (3, 2), &messages).try_all();
    }
}
