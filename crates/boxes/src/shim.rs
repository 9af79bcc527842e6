//! A box inside a NIC, for networks in virtual time.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use farwrite_net::header::Header;
use farwrite_net::{Device, Frame, Output, Ports, ROCE_PORT};

use crate::bytes::{from_bytes, to_bytes};
use crate::{Middlebox, Side};

/// A NIC uses its host's port 0.
const PORT: usize = 0;

/// A NIC whose packets pass a box before they leave it, and before they reach its transport. LoWAR's paper has
/// this place: a layer between the transport and the UDP stack. A [`BoxDevice`](crate::BoxDevice) stands
/// behind a cable instead.
///
/// The receive path of the NIC takes time, and handles one frame after the other. Frames wait without limit
/// before it.
#[derive(Debug)]
pub struct ShimDevice<N, B> {
    /// The NIC.
    pub nic: N,
    inner: B,
    times: ReceiveTimes,
    /// Frames for the path.
    sending: VecDeque<Frame>,
    /// Frames that wait for the receive path.
    arrived: VecDeque<Frame>,
    /// When the receive path takes the next frame.
    free_ns: u64,
    /// Frames for the NIC, and when it gets them.
    ready: VecDeque<(u64, Frame)>,
}

/// How long the receive path of a NIC takes, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveTimes {
    /// For each frame from the path.
    pub frame_ns: u64,
    /// More for each packet that comes from the reordering buffer: those that have waited there, and those that
    /// were recovered, which the paper puts there too.
    pub drain_ns: u64,
}

impl<N: Device, B: Middlebox> ShimDevice<N, B> {
    /// A NIC with a box inside.
    #[must_use]
    pub fn new(nic: N, config: &B::Config, times: ReceiveTimes) -> Self {
        Self {
            nic,
            inner: B::new(config, 1),
            times,
            sending: VecDeque::new(),
            arrived: VecDeque::new(),
            free_ns: 0,
            ready: VecDeque::new(),
        }
    }

    /// What the box has done.
    #[must_use]
    pub fn counters(&self) -> B::Counters {
        self.inner.counters()
    }

    /// Takes frames from the path, as far as there is time for them, and hands others to the NIC.
    fn receive(&mut self, now_ns: u64) {
        while self.free_ns <= now_ns
            && let Some(frame) = self.arrived.pop_front()
        {
            self.free_ns = now_ns + self.times.frame_ns;
            let is_packet = matches!(frame.header, Header::Roce(_));
            match box_bytes(&frame) {
                Some(bytes) => self.inner.handle(now_ns, Side::Far, bytes),
                None => self.ready.push_back((self.free_ns, frame)),
            }
            // A message of the other box is not for the NIC: all packets come from the buffer then.
            self.collect(usize::from(is_packet));
        }
        if self.inner.next_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.free_ns = self.free_ns.max(now_ns);
            self.inner.handle_timeout(now_ns);
            self.collect(0);
        }
        let is_due = |(at_ns, _): &(u64, Frame)| *at_ns <= now_ns;
        while self.ready.front().is_some_and(is_due)
            && let Some((_, frame)) = self.ready.pop_front()
        {
            self.nic.handle(now_ns, PORT, frame);
        }
    }

    /// Takes frames from the box. Of those for the NIC, this number comes from the path, and the others from
    /// the reordering buffer.
    fn collect(&mut self, mut from_path: usize) {
        while let Some(sent) = self.inner.poll() {
            let Some(frame) = from_bytes(&sent.bytes) else {
                continue;
            };
            match sent.to {
                Side::Near if from_path > 0 => {
                    from_path -= 1;
                    self.ready.push_back((self.free_ns, frame));
                }
                Side::Near => {
                    self.free_ns += self.times.drain_ns;
                    self.ready.push_back((self.free_ns, frame));
                }
                Side::Far => self.sending.push_back(frame),
            }
        }
    }

    /// Passes a frame of the NIC to the box.
    fn send(&mut self, now_ns: u64, frame: Frame) {
        match box_bytes(&frame) {
            Some(bytes) => self.inner.handle(now_ns, Side::Near, bytes),
            None => self.sending.push_back(frame),
        }
        self.collect(0);
    }
}

/// The bytes of a frame that a box takes.
fn box_bytes(frame: &Frame) -> Option<Vec<u8>> {
    (frame.dst_port == ROCE_PORT).then(|| to_bytes(frame))?
}

impl<N: Device, B: Middlebox> Device for ShimDevice<N, B> {
    fn handle(&mut self, now_ns: u64, _port: usize, frame: Frame) {
        self.arrived.push_back(frame);
        self.receive(now_ns);
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        self.receive(now_ns);
        loop {
            if let Some(frame) = self.sending.pop_front() {
                return Some(Output::Send { port: PORT, frame });
            }
            // The NIC sends when the port is free, so repair packets leave before its next packet.
            match self.nic.poll(now_ns, ports)? {
                Output::Send { frame, .. } => self.send(now_ns, frame),
                pause @ Output::Pause { .. } => return Some(pause),
            }
        }
    }

    fn next_ns(&self) -> Option<u64> {
        let free_ns = (!self.arrived.is_empty()).then_some(self.free_ns);
        let ready_ns = self.ready.front().map(|(at_ns, _)| *at_ns);
        let times = [self.nic.next_ns(), self.inner.next_ns(), free_ns, ready_ns];
        times.into_iter().flatten().min()
    }
}
