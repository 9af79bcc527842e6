//! A box as a device of a simulated network.

use alloc::collections::VecDeque;

use farwrite_net::{Device, Ecn, Frame, Output, Ports, ROCE_PORT};

use crate::backpressure::Backpressure;
use crate::bytes::{from_bytes, to_bytes};
use crate::{Class, Middlebox, PortQueue, Side};

/// A box between two cables. It forwards two kinds of frames unchanged, without handing them to the
/// box: frames that a switch trimmed, which have no representation as bytes; and frames to a UDP
/// port other than RoCEv2's.
///
/// The ports of a device have no limit. [`with_buffer`](Self::with_buffer) gives the far port one.
#[derive(Debug)]
pub struct BoxDevice<B: Middlebox> {
    inner: B,
    config: B::Config,
    boot: u64,
    near_port: usize,
    backpressure: Backpressure,
    outputs: VecDeque<Output>,
    /// Frames for the far port, if it has a limit. They leave it when the port is free.
    buffer: Option<PortQueue<Frame>>,
    refused: u64,
    /// Bitmap of the priorities of all frames that came from the near side so far.
    seen: u8,
    /// Bitmap of the priorities that are stopped because of the queue at the far port.
    queue_stops: u8,
    /// Bitmap of the priorities for which the last PFC frame said stop.
    stopped: u8,
    /// Bytes queued at the far port at the last poll.
    queued_bytes: u64,
    marked: u64,
}

impl<B: Middlebox> BoxDevice<B> {
    /// A box with its NICs at port `near_port`, 0 or 1, and the path at the other port.
    #[must_use]
    pub fn new(config: B::Config, near_port: usize, backpressure: Backpressure) -> Self {
        Self {
            inner: B::new(&config, 1),
            config,
            boot: 1,
            near_port,
            backpressure,
            outputs: VecDeque::new(),
            buffer: None,
            refused: 0,
            seen: 0,
            queue_stops: 0,
            stopped: 0,
            queued_bytes: 0,
            marked: 0,
        }
    }

    /// Limits the queue of the far port to `bytes` of IP datagrams. A full queue drops repairs
    /// first, and refuses data only if data alone fills it.
    #[must_use]
    pub fn with_buffer(mut self, bytes: u64) -> Self {
        self.buffer = Some(PortQueue::new(bytes));
        self
    }

    /// Repairs that the full queue of the far port dropped, and other frames that it refused.
    #[must_use]
    pub fn dropped(&self) -> (u64, u64) {
        let repairs = self.buffer.as_ref().map_or(0, PortQueue::repairs_dropped);
        (repairs, self.refused)
    }

    /// The box itself.
    #[must_use]
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// What the box has done since it started.
    #[must_use]
    pub fn counters(&self) -> B::Counters {
        self.inner.counters()
    }

    /// Packets that the box marked as Congestion Experienced.
    #[must_use]
    pub fn marked(&self) -> u64 {
        self.marked
    }

    /// Restarts the box. It loses its state and the frames that it held.
    pub fn restart(&mut self) {
        self.boot += 1;
        self.inner = B::new(&self.config, self.boot);
    }

    fn port_of(&self, side: Side) -> usize {
        match side {
            Side::Near => self.near_port,
            Side::Far => 1 - self.near_port,
        }
    }

    /// Moves frames from the box to the outputs.
    fn drain(&mut self) {
        while let Some(sent) = self.inner.poll() {
            let (to, class, ahead) = (sent.to, sent.class, sent.ahead);
            let Some(mut frame) = from_bytes(&sent.bytes) else {
                continue;
            };
            if to == Side::Far {
                self.mark(&mut frame);
            }
            self.send(to, class, ahead, frame);
        }
    }

    fn send(&mut self, to: Side, class: Class, ahead: bool, frame: Frame) {
        match &mut self.buffer {
            Some(buffer) if to == Side::Far => {
                if class == Class::Data && buffer.is_full_of_data() {
                    self.refused += 1;
                } else if ahead {
                    buffer.push_ahead(class, u64::from(frame.ip_bytes()), frame);
                } else {
                    buffer.push(class, u64::from(frame.ip_bytes()), frame);
                }
            }
            _ => {
                let port = self.port_of(to);
                self.outputs.push_back(Output::Send { port, frame });
            }
        }
    }

    /// The next frame for the far port from its buffer, if it can leave now.
    fn leave_buffer(&mut self, ports: &Ports<'_>) -> Option<Output> {
        let port = self.port_of(Side::Far);
        let ready = ports.ready_priorities(port);
        let buffer = self.buffer.as_mut().filter(|_| ready != 0)?;
        let frame = buffer.pop_if(|frame| ready >> frame.priority.min(7) & 1 == 1)?;
        Some(Output::Send { port, frame })
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
        if let Backpressure::Pfc {
            stop_bytes,
            resume_bytes,
        } = self.backpressure
        {
            if self.queued_bytes > stop_bytes {
                self.queue_stops = self.seen;
            } else if self.queued_bytes <= resume_bytes {
                self.queue_stops = 0;
            }
        }
        let stops = self.queue_stops | self.inner.stops();
        let changes = stops ^ self.stopped;
        if changes == 0 {
            return None;
        }
        let number = changes.trailing_zeros();
        self.stopped ^= 1 << number;
        Some(Output::Pause {
            port: self.near_port,
            // `changes` has eight bits.
            priority: u8::try_from(number).unwrap_or(7),
            stop: stops >> number & 1 == 1,
        })
    }
}

impl<B: Middlebox> Device for BoxDevice<B> {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        let from = match port == self.near_port {
            true => Side::Near,
            false => Side::Far,
        };
        let bytes = (frame.dst_port == ROCE_PORT).then(|| to_bytes(&frame));
        match bytes.flatten() {
            Some(bytes) => {
                if from == Side::Near {
                    self.seen |= 1 << frame.priority.min(7);
                }
                self.inner.handle(now_ns, from, bytes);
                self.drain();
            }
            None => {
                let to = match from {
                    Side::Near => Side::Far,
                    Side::Far => Side::Near,
                };
                self.send(to, Class::Data, false, frame);
            }
        }
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        let waiting = self.buffer.as_ref().map_or(0, PortQueue::bytes);
        self.queued_bytes = waiting + ports.queued_bytes(self.port_of(Side::Far));
        if self.inner.next_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.inner.handle_timeout(now_ns);
            self.drain();
        }
        let output = self.outputs.pop_front();
        let output = output.or_else(|| self.leave_buffer(ports));
        output.or_else(|| self.pause())
    }

    fn next_ns(&self) -> Option<u64> {
        self.inner.next_ns()
    }
}
