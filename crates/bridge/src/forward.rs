//! A bridge without a box.

use std::collections::VecDeque;

use farwrite_boxes::{BoxFrame, Class, Middlebox, Side};

/// Forwards all frames from one side to the other. Shows the cost of a bridge without a box.
#[derive(Debug, Default)]
pub struct Forward {
    frames: VecDeque<BoxFrame>,
}

impl Middlebox for Forward {
    type Config = ();
    type Counters = ();

    fn new((): &(), _boot: u64) -> Self {
        Self::default()
    }

    fn handle(&mut self, _now_ns: u64, from: Side, bytes: Vec<u8>) {
        let to = match from {
            Side::Near => Side::Far,
            Side::Far => Side::Near,
        };
        self.frames.push_back(BoxFrame {
            to,
            class: Class::Data,
            ahead: false,
            bytes,
        });
    }

    fn poll(&mut self) -> Option<BoxFrame> {
        self.frames.pop_front()
    }

    fn next_ns(&self) -> Option<u64> {
        None
    }

    fn handle_timeout(&mut self, _now_ns: u64) {}

    fn held(&self) -> usize {
        0
    }

    fn counters(&self) {}
}
