//! Two pairs of NetRT boxes, one inside the other, as on a long path into a data center: each pair has
//! its own key and its own waits.

use crate::common::{IPV4, Kind, is_box_message, message};
use farwrite_boxes::netrt::{Config, NetRt};
use farwrite_boxes::{BoxFrame, PathBox, Side};

const US: u64 = 1000;
const PACKETS: u32 = 6;

/// Sources are 0 and 1, destinations 2 and 3. The outer pair is 0 and 3.
struct Chain {
    boxes: [NetRt; 4],
    now_ns: u64,
    /// The box that loses the next data packet behind it.
    loses_behind: Option<usize>,
    /// The frames that the receiver got.
    got: Vec<Vec<u8>>,
}

impl Chain {
    fn new(keys: [u8; 2]) -> Self {
        let new = |key, rtt_ns| {
            let config = Config {
                key: Some([key; 32]),
                ..Config::new(10_000_000_000, rtt_ns)
            };
            NetRt::new(&config, 1)
        };
        let [outer, inner] = keys;
        Self {
            boxes: [
                new(outer, 200 * US),
                new(inner, 20 * US),
                new(inner, 20 * US),
                new(outer, 200 * US),
            ],
            now_ns: 0,
            loses_behind: None,
            got: Vec::new(),
        }
    }

    /// The side of a box that looks to the receiver.
    fn onward(at: usize) -> Side {
        if at < 2 { Side::Far } else { Side::Near }
    }

    /// The side of a box that looks to the sender.
    fn back(at: usize) -> Side {
        if at < 2 { Side::Near } else { Side::Far }
    }

    fn send(&mut self, frame: &[u8]) {
        self.boxes[0].handle(self.now_ns, Side::Near, frame.to_vec());
        self.exchange();
    }

    /// Moves frames between the boxes until there are none.
    fn exchange(&mut self) {
        let now_ns = self.now_ns;
        let mut is_quiet = false;
        while !is_quiet {
            is_quiet = true;
            for at in 0..self.boxes.len() {
                while let Some(BoxFrame { to, bytes, .. }) = self.boxes[at].poll() {
                    is_quiet = false;
                    if to != Self::onward(at) {
                        let before = at.checked_sub(1).expect("nothing goes back to the sender");
                        self.boxes[before].handle(now_ns, Self::onward(before), bytes);
                    } else if at == 3 {
                        self.got.push(bytes);
                    } else if self.loses_behind == Some(at) && !is_box_message(IPV4, &bytes) {
                        self.loses_behind = None;
                    } else {
                        self.boxes[at + 1].handle(now_ns, Self::back(at + 1), bytes);
                    }
                }
            }
        }
    }

    fn wait(&mut self, ns: u64) {
        let end_ns = self.now_ns + ns;
        while self.now_ns < end_ns {
            self.now_ns += US;
            for this in &mut self.boxes {
                this.handle_timeout(self.now_ns);
            }
            self.exchange();
        }
    }

    /// Sends a message of which packet `lost` is lost behind a box.
    fn lose(mut self, lost: usize, behind: usize) -> Self {
        let frames = message(IPV4, Kind::Write, 7, PACKETS);
        for (at, frame) in frames.iter().enumerate() {
            self.loses_behind = (at == lost).then_some(behind);
            self.send(frame);
            self.now_ns += US;
        }
        self.wait(2000 * US);
        let got = |frame: &Vec<u8>| frames.contains(frame) || is_box_message(IPV4, frame);
        assert!(self.got.iter().all(got));
        self.got.retain(|frame| !is_box_message(IPV4, frame));
        assert_eq!(self.got, frames, "packet {lost} behind box {behind}");
        self
    }
}

#[test]
fn each_pair_repairs_what_is_lost_between_its_boxes() {
    for lost in 0..PACKETS as usize {
        for (behind, repaired_by, other) in [(1, 2, 3), (0, 3, 2), (2, 3, 2)] {
            let chain = Chain::new([1, 2]).lose(lost, behind);
            let recovered = |at: usize| chain.boxes[at].counters().recovered;
            assert_eq!(
                [recovered(repaired_by), recovered(other)],
                [1, 0],
                "packet {lost} behind box {behind}"
            );
            // The receiver's NIC gets nothing that its boxes made.
            assert_eq!(chain.got.len(), PACKETS as usize);
        }
    }
}
