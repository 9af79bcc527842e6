//! NetRT: retransmission between top-of-rack switches, for unmodified RDMA NICs. From *NetRT:
//! Enhancing RDMA with Retransmission Offloading in Data Center Networks*.
//!
//! A box stands beside each NIC, in place of the port of a top-of-rack switch. Its source half
//! keeps copies of the packets that its NIC sends. The destination half of the box at the other end
//! delivers packets in order: it holds back packets that arrive after a missing one, and requests
//! the missing packet from the source half. `docs/boxes.md` describes what a box does and costs,
//! P11 the messages between boxes and the states of a flow.

mod config;
mod counters;
mod destination;
mod flow;
mod format;
mod pool;
mod rate;
mod repeats;
mod source;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use farwrite_wire::packet::Packet;

pub use config::Config;
pub use counters::Counters;
pub use rate::RateLimit;

use self::destination::{Destination, Emitted};
use self::format::{NetRtBody, NetRtMessage};
use self::source::Source;
use crate::frame::View;
use crate::message::Seal;
use crate::packets::{PacketKind, Space};
use crate::streams::StreamKey;
use crate::{BoxFrame, Class, Middlebox, Side};

/// A NetRT box.
#[derive(Debug)]
pub struct NetRt {
    source: Source,
    destination: Destination,
    seal: Seal,
    repeat_dscp: u8,
    out: VecDeque<BoxFrame>,
}

impl Middlebox for NetRt {
    type Config = Config;
    type Counters = Counters;

    fn new(config: &Config, boot: u64) -> Self {
        Self {
            source: Source::new(config, boot),
            destination: Destination::new(config),
            seal: config.seal(),
            repeat_dscp: config.repeat_dscp,
            out: VecDeque::new(),
        }
    }

    fn handle(&mut self, now_ns: u64, from: Side, frame: Vec<u8>) {
        match from {
            Side::Near => self.handle_near(now_ns, frame),
            Side::Far => self.handle_far(now_ns, frame),
        }
    }

    fn poll(&mut self) -> Option<BoxFrame> {
        self.out.pop_front()
    }

    fn next_ns(&self) -> Option<u64> {
        let times = [self.source.next_ns(), self.destination.next_ns()];
        times.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        self.send_due(now_ns);
        for emitted in self.destination.due(now_ns) {
            self.finish(emitted);
        }
    }

    fn stops(&self) -> u8 {
        self.source.stops()
    }

    fn held(&self) -> usize {
        self.destination.held()
    }

    fn counters(&self) -> Counters {
        let (sent, received) = (self.source.counters(), self.destination.counters());
        Counters {
            copied: sent.copied,
            peak_pool_bytes: sent.peak_pool_bytes,
            starts_sent: sent.starts_sent,
            marks_sent: sent.marks_sent,
            requests_received: sent.requests_received,
            repeated: sent.repeated,
            notices_sent: sent.notices_sent,
            pauses: sent.pauses,
            damaged: sent.damaged + received.damaged,
            connections_full: sent.connections_full + received.connections_full,
            ..received
        }
    }
}

impl NetRt {
    /// Bytes in the duplicate pool now.
    #[must_use]
    pub fn pool_bytes(&self) -> usize {
        self.source.pool_bytes()
    }

    /// Bytes of the frames held back now.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.destination.held_bytes()
    }

    fn handle_near(&mut self, now_ns: u64, frame: Vec<u8>) {
        let around = View::parse(&frame).and_then(|view| {
            let data = protected(&view)?;
            Some(self.source.handle(now_ns, &view, &frame, &data))
        });
        let [before, after] = around.unwrap_or_default();
        self.send_far(Class::Data, before);
        self.out.push_back(BoxFrame::data(Side::Far, frame));
        self.send_far(Class::Data, after);
    }

    fn handle_far(&mut self, now_ns: u64, frame: Vec<u8>) {
        let Some(view) = View::parse(&frame) else {
            return self.out.push_back(BoxFrame::data(Side::Near, frame));
        };
        if let Some(message) = self.seal.open(&view).and_then(NetRtMessage::parse) {
            return self.handle_message(now_ns, &view, &message);
        }
        let emitted = match Packet::parse(view.payload()).map(|packet| PacketKind::of(&packet)) {
            Ok(PacketKind::Data(data)) => self.destination.handle(now_ns, frame, data),
            Ok(PacketKind::Ack { qpn }) => {
                let key = StreamKey::new(&view, qpn, Space::Response);
                self.destination.handle_ack(now_ns, frame, key)
            }
            _ => return self.out.push_back(BoxFrame::data(Side::Near, frame)),
        };
        self.finish(emitted);
    }

    fn handle_message(&mut self, now_ns: u64, view: &View<'_>, message: &NetRtMessage) {
        if let NetRtBody::Request(request) = &message.body {
            let key = StreamKey::new(view, message.qpn, message.space).reversed();
            let (psn, source) = (message.psn, &mut self.source);
            let notice = source.request(now_ns, key, psn, request, view);
            self.send_far(Class::Data, notice);
            self.send_due(now_ns);
        } else {
            let emitted = self.destination.message(now_ns, view, message);
            self.finish(emitted);
        }
    }

    fn finish(&mut self, emitted: Emitted) {
        let near = emitted.near.into_iter();
        self.out
            .extend(near.map(|frame| BoxFrame::data(Side::Near, frame)));
        self.send_far(Class::Data, emitted.far);
    }

    /// Sends frames of this box to the network. Those with the preferred code point are ahead.
    fn send_far(&mut self, class: Class, frames: impl IntoIterator<Item = Vec<u8>>) {
        let preferred = self.repeat_dscp;
        let frames = frames.into_iter().map(|bytes| BoxFrame {
            class,
            ahead: View::parse(&bytes).is_some_and(|view| view.dscp() == preferred),
            ..BoxFrame::data(Side::Far, bytes)
        });
        self.out.extend(frames);
    }

    fn send_due(&mut self, now_ns: u64) {
        for (class, frame) in self.source.due(now_ns) {
            self.send_far(class, [frame]);
        }
    }
}

/// Returns the packet if NetRT protects it: it must belong to a reliable connection.
fn protected(view: &View<'_>) -> Option<crate::packets::DataPacket> {
    match PacketKind::of(&Packet::parse(view.payload()).ok()?) {
        PacketKind::Data(data) if data.space != Space::Singles => Some(data),
        _ => None,
    }
}
