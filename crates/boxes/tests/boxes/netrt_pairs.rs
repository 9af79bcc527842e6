//! NetRT boxes of two pairs on one path: each pair has its own key and its own waits.

use crate::common::{IPV4, Kind, is_box_message, message};
use farwrite_boxes::netrt::{Config, NetRt};
use farwrite_boxes::{BoxFrame, Middlebox, Side};

const US: u64 = 1000;
const PACKETS: u32 = 6;

/// A box, and whether it looks to the receiver with its near side.
struct BoxPlace {
    inner: NetRt,
    is_destination: bool,
}

impl BoxPlace {
    fn new(key: u8, rtt_ns: u64, is_destination: bool) -> Self {
        let config = Config {
            key: Some([key; 32].into()),
            ..Config::new(10_000_000_000, rtt_ns)
        };
        Self {
            inner: NetRt::new(&config, 1),
            is_destination,
        }
    }

    fn onward(&self) -> Side {
        if self.is_destination {
            Side::Near
        } else {
            Side::Far
        }
    }

    fn back(&self) -> Side {
        if self.is_destination {
            Side::Far
        } else {
            Side::Near
        }
    }
}

/// Boxes one behind the other, from the sender to the receiver.
struct Chain {
    boxes: Vec<BoxPlace>,
    now_ns: u64,
    /// The box that loses the next data packet behind it.
    loses_behind: Option<usize>,
    /// The frames that the receiver got.
    got: Vec<Vec<u8>>,
}

impl Chain {
    fn new(boxes: Vec<BoxPlace>) -> Self {
        Self {
            boxes,
            now_ns: 0,
            loses_behind: None,
            got: Vec::new(),
        }
    }

    /// Moves frames between the boxes until there are none.
    fn exchange(&mut self) {
        let now_ns = self.now_ns;
        let mut is_quiet = false;
        while !is_quiet {
            is_quiet = true;
            for at in 0..self.boxes.len() {
                while let Some(BoxFrame { to, bytes, .. }) = self.boxes[at].inner.poll() {
                    is_quiet = false;
                    if to != self.boxes[at].onward() {
                        let before = at.checked_sub(1).expect("nothing goes back to the sender");
                        let place = &mut self.boxes[before];
                        let side = place.onward();
                        place.inner.handle(now_ns, side, bytes);
                    } else if self.loses_behind == Some(at) && !is_box_message(IPV4, &bytes) {
                        self.loses_behind = None;
                    } else if let Some(place) = self.boxes.get_mut(at + 1) {
                        let side = place.back();
                        place.inner.handle(now_ns, side, bytes);
                    } else {
                        self.got.push(bytes);
                    }
                }
            }
        }
    }

    fn wait(&mut self, ns: u64) {
        let end_ns = self.now_ns + ns;
        while self.now_ns < end_ns {
            self.now_ns += US;
            for place in &mut self.boxes {
                place.inner.handle_timeout(self.now_ns);
            }
            self.exchange();
        }
    }

    /// Sends a message of which packet `lost` is lost behind a box. Returns its frames.
    fn lose(&mut self, lost: usize, behind: usize) -> Vec<Vec<u8>> {
        let frames = message(IPV4, Kind::Write, 7, PACKETS);
        for (at, frame) in frames.iter().enumerate() {
            self.loses_behind = (at == lost).then_some(behind);
            let side = self.boxes[0].back();
            self.boxes[0].inner.handle(self.now_ns, side, frame.clone());
            self.exchange();
            self.now_ns += US;
        }
        self.wait(20_000 * US);
        frames
    }

    fn recovered(&self) -> Vec<u64> {
        let counters = self.boxes.iter().map(|place| place.inner.counters());
        counters.map(|counters| counters.recovered).collect()
    }
}

const LONG_NS: u64 = 200 * US;
const SHORT_NS: u64 = 20 * US;

/// A long path into a data center: its pair of boxes, and before the receiver a box of the pairs of
/// the data center, which have no box beside the sender.
#[test]
fn a_box_of_another_pair_lets_a_pair_repair() {
    for lost in 0..PACKETS as usize {
        for behind in [0, 1] {
            let mut chain = Chain::new(vec![
                BoxPlace::new(1, LONG_NS, false),
                BoxPlace::new(2, SHORT_NS, true),
                BoxPlace::new(1, LONG_NS, true),
            ]);
            let frames = chain.lose(lost, behind);
            chain.got.retain(|frame| !is_box_message(IPV4, frame));
            assert!(chain.got == frames, "packet {lost} behind box {behind}");
            assert_eq!(chain.recovered(), [0, 0, 1]);
        }
    }
}

/// A pair inside another one repairs what is lost between its boxes. It takes repeats of the outer
/// pair for late copies of its own, and drops them, so the NICs repair what is lost before it.
#[test]
fn a_pair_inside_another_one_damages_nothing() {
    // The inner pair expects the last packet, so it would let that one pass.
    for lost in 0..PACKETS as usize - 1 {
        for behind in [0, 1] {
            let mut chain = Chain::new(vec![
                BoxPlace::new(1, LONG_NS, false),
                BoxPlace::new(2, SHORT_NS, false),
                BoxPlace::new(2, SHORT_NS, true),
                BoxPlace::new(1, LONG_NS, true),
            ]);
            let mut frames = chain.lose(lost, behind);
            chain.got.retain(|frame| !is_box_message(IPV4, frame));
            if behind == 0 {
                frames.remove(lost);
            }
            assert!(chain.got == frames, "packet {lost} behind box {behind}");
            let repaired = u64::from(behind == 1);
            assert_eq!(chain.recovered(), [0, 0, repaired, 0]);
        }
    }
}
