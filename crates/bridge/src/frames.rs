//! What a bridge asks of a box.

use farwrite_boxes::Side;
use farwrite_boxes::lowar::{self, Lowar};

/// A box that takes Ethernet frames and the time, and gives frames.
pub trait Frames: Send + 'static {
    /// What it has done.
    type Counters: Clone + Default + Send;

    /// Takes in a frame that came from one side.
    fn handle(&mut self, now_ns: u64, from: Side, frame: Vec<u8>);

    /// The next frame to send, and to which side.
    fn poll(&mut self) -> Option<(Side, Vec<u8>)>;

    /// When to call [`handle_timeout`](Self::handle_timeout); `None` for never.
    fn next_ns(&self) -> Option<u64>;

    /// Ends the waits that are over at `now_ns`.
    fn handle_timeout(&mut self, now_ns: u64);

    /// What the box has done.
    fn counters(&self) -> Self::Counters;
}

impl Frames for Lowar {
    type Counters = lowar::Counters;

    fn handle(&mut self, now_ns: u64, from: Side, frame: Vec<u8>) {
        self.handle(now_ns, from, frame);
    }

    fn poll(&mut self) -> Option<(Side, Vec<u8>)> {
        self.poll()
    }

    fn next_ns(&self) -> Option<u64> {
        self.next_ns()
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        self.handle_timeout(now_ns);
    }

    fn counters(&self) -> Self::Counters {
        self.counters()
    }
}

/// Passes frames from one side to the other: what a bridge costs without a box.
#[derive(Debug, Default)]
pub struct Forward {
    frames: std::collections::VecDeque<(Side, Vec<u8>)>,
}

impl Frames for Forward {
    type Counters = ();

    fn handle(&mut self, _now_ns: u64, from: Side, frame: Vec<u8>) {
        let to = match from {
            Side::Near => Side::Far,
            Side::Far => Side::Near,
        };
        self.frames.push_back((to, frame));
    }

    fn poll(&mut self) -> Option<(Side, Vec<u8>)> {
        self.frames.pop_front()
    }

    fn next_ns(&self) -> Option<u64> {
        None
    }

    fn handle_timeout(&mut self, _now_ns: u64) {}

    fn counters(&self) {}
}
