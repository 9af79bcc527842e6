//! A LoWAR box as a device of a network in virtual time.

use alloc::collections::VecDeque;

use farwrite_net::{Device, Ecn, Frame, Output, Ports};

use crate::Side;
use crate::backpressure::Backpressure;
use crate::bytes::{from_bytes, to_bytes};
use crate::lowar::{Config, Counters, Lowar};

/// A LoWAR box between two cables. Frames that cannot be bytes, because a switch trimmed them, pass.
#[derive(Debug)]
pub struct LowarDevice {
    lowar: Lowar,
    config: Config,
    boot: u64,
    near_port: usize,
    backpressure: Backpressure,
    outputs: VecDeque<Output>,
    /// Priorities, a bit each, that came from the near side.
    seen: u8,
    /// Priorities that are stopped.
    stopped: u8,
    /// Bytes that waited before the far port at the last poll.
    queued_bytes: u64,
    marked: u64,
}

impl LowarDevice {
    /// A box whose NICs are at port `near_port`, 0 or 1, and the long path at the other one.
    #[must_use]
    pub fn new(config: Config, near_port: usize, backpressure: Backpressure) -> Self {
        Self {
            lowar: Lowar::new(&config, 1),
            config,
            boot: 1,
            near_port,
            backpressure,
            outputs: VecDeque::new(),
            seen: 0,
            stopped: 0,
            queued_bytes: 0,
            marked: 0,
        }
    }

    /// The box itself.
    #[must_use]
    pub fn lowar(&self) -> &Lowar {
        &self.lowar
    }

    /// What the box has done since it started.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.lowar.counters()
    }

    /// Packets that the box marked with congestion experienced.
    #[must_use]
    pub fn marked(&self) -> u64 {
        self.marked
    }

    /// Starts the box again, without all that it knew and held.
    pub fn restart(&mut self) {
        self.boot += 1;
        self.lowar = Lowar::new(&self.config, self.boot);
    }

    fn port_of(&self, side: Side) -> usize {
        match side {
            Side::Near => self.near_port,
            Side::Far => 1 - self.near_port,
        }
    }

    /// Moves frames from the box to the outputs.
    fn drain(&mut self) {
        while let Some((side, bytes)) = self.lowar.poll() {
            let Some(mut frame) = from_bytes(&bytes) else {
                continue;
            };
            if side == Side::Far {
                self.mark(&mut frame);
            }
            let port = self.port_of(side);
            self.outputs.push_back(Output::Send { port, frame });
        }
    }

    fn mark(&mut self, frame: &mut Frame) {
        let Backpressure::Ecn { mark_bytes } = self.backpressure else {
            return;
        };
        let capable = matches!(frame.ecn, Ecn::Capable0 | Ecn::Capable1);
        if capable && self.queued_bytes > mark_bytes {
            frame.ecn = Ecn::Experienced;
            self.marked += 1;
        }
    }

    /// The next priority to stop or to resume.
    fn pause(&mut self) -> Option<Output> {
        let Backpressure::Pfc {
            stop_bytes,
            resume_bytes,
        } = self.backpressure
        else {
            return None;
        };
        let (stop, which) = if self.queued_bytes > stop_bytes {
            (true, self.seen & !self.stopped)
        } else if self.queued_bytes <= resume_bytes {
            (false, self.stopped)
        } else {
            return None;
        };
        if which == 0 {
            return None;
        }
        self.stopped ^= 1 << which.trailing_zeros();
        Some(Output::Pause {
            port: self.near_port,
            // A bit of eight.
            priority: u8::try_from(which.trailing_zeros()).unwrap_or(7),
            stop,
        })
    }
}

impl Device for LowarDevice {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        let from = if port == self.near_port {
            self.seen |= 1 << frame.priority.min(7);
            Side::Near
        } else {
            Side::Far
        };
        match to_bytes(&frame) {
            Some(bytes) => {
                self.lowar.handle(now_ns, from, bytes);
                self.drain();
            }
            None => {
                let port = 1 - port;
                self.outputs.push_back(Output::Send { port, frame });
            }
        }
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        self.queued_bytes = ports.queued_bytes(self.port_of(Side::Far));
        if self.lowar.next_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.lowar.handle_timeout(now_ns);
            self.drain();
        }
        self.outputs.pop_front().or_else(|| self.pause())
    }

    fn next_ns(&self) -> Option<u64> {
        self.lowar.next_ns()
    }
}
