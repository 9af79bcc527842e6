//! LoWAR (`IWQoS` 2024): forward error correction for the packets of unmodified RDMA NICs.
//!
//! Two boxes stand at the ends of a long path, each beside the NICs that it protects. The encoder
//! of one box adds repair packets to blocks of data packets. The decoder of the other box uses them
//! to recover lost packets, so that the NIC sees no loss. `docs/boxes.md` describes what a box does
//! and costs, P10 the messages between boxes.

mod coding;
mod config;
mod controller;
mod counters;
mod decoder;
mod encoder;
mod format;
mod negotiation;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

pub use coding::{BlockShape, MAX_BLOCK_PACKETS, MAX_UNITS, ShapeError};
pub use config::{Coding, CodingError, Config};
pub use counters::Counters;

use self::decoder::Decoder;
use self::encoder::Encoder;
use self::format::{LowarBody, LowarMessage};
use crate::frame::View;
use crate::message::Seal;
use crate::packets::{PacketKind, Space};
use crate::streams::StreamKey;
use crate::{BoxFrame, Class, Middlebox, Side};
use farwrite_wire::packet::Packet;

/// A LoWAR box.
#[derive(Debug)]
pub struct Lowar {
    encoder: Encoder,
    decoder: Decoder,
    seal: Seal,
    out: VecDeque<BoxFrame>,
}

impl Middlebox for Lowar {
    type Config = Config;
    type Counters = Counters;

    fn new(config: &Config, boot: u64) -> Self {
        Self {
            encoder: Encoder::new(config, boot),
            decoder: Decoder::new(config, boot),
            seal: config.seal(),
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
        let times = [self.encoder.next_ns(), self.decoder.next_ns()];
        times.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        let repairs = self.encoder.close_due(now_ns);
        self.send_classed(repairs);
        let frames = self.decoder.hold_ended(now_ns);
        self.send(Side::Near, frames);
    }

    fn held(&self) -> usize {
        self.decoder.held()
    }

    fn counters(&self) -> Counters {
        let (sent, received) = (self.encoder.counters(), self.decoder.counters());
        Counters {
            coded: sent.coded,
            xored_bytes: sent.xored_bytes + received.xored_bytes,
            repairs_sent: sent.repairs_sent,
            repairs_too_long: sent.repairs_too_long,
            questions_sent: sent.questions_sent,
            reports_received: sent.reports_received,
            damaged: sent.damaged + received.damaged,
            connections_full: sent.connections_full + received.connections_full,
            peak_units: sent.peak_units + received.peak_units,
            units_full: sent.units_full + received.units_full,
            ..received
        }
    }
}

impl Lowar {
    /// Free coding units of the sending and of the receiving half.
    #[must_use]
    pub fn free_units(&self) -> [usize; 2] {
        [self.encoder.free_units(), self.decoder.free_units()]
    }

    fn handle_near(&mut self, now_ns: u64, frame: Vec<u8>) {
        let added = View::parse(&frame).and_then(|view| {
            let packet = Packet::parse(view.payload()).ok()?;
            match PacketKind::of(&packet) {
                PacketKind::Data(data) => Some(self.encoder.handle(now_ns, &view, &data)),
                PacketKind::Ack { .. } | PacketKind::Other => None,
            }
        });
        let added = added.unwrap_or_default();
        self.send_classed(added.before);
        self.out.push_back(BoxFrame::data(Side::Far, frame));
        self.send_classed(added.after);
    }

    fn handle_far(&mut self, now_ns: u64, frame: Vec<u8>) {
        let Some(view) = View::parse(&frame) else {
            return self.out.push_back(BoxFrame::data(Side::Near, frame));
        };
        if let Some(message) = self.seal.open(&view).and_then(LowarMessage::parse) {
            if let LowarBody::Report(stamp, report) = &message.body {
                let key = StreamKey::new(&view, message.qpn, message.space).reversed();
                return self.encoder.handle_report(now_ns, &key, stamp.boot, report);
            }
            let (frames, answer) = self
                .decoder
                .handle_message(now_ns, &view, &message, &self.seal);
            self.send(Side::Near, frames);
            self.send(Side::Far, answer);
            return;
        }
        let frames = match Packet::parse(view.payload()).map(|packet| PacketKind::of(&packet)) {
            Ok(PacketKind::Data(data)) => self.decoder.handle(now_ns, frame, data),
            Ok(PacketKind::Ack { qpn }) => {
                let key = StreamKey::new(&view, qpn, Space::Response);
                self.decoder.handle_ack(now_ns, frame, key)
            }
            _ => return self.out.push_back(BoxFrame::data(Side::Near, frame)),
        };
        self.send(Side::Near, frames);
    }

    fn send(&mut self, to: Side, frames: impl IntoIterator<Item = Vec<u8>>) {
        let frames = frames.into_iter();
        self.out
            .extend(frames.map(|frame| BoxFrame::data(to, frame)));
    }

    fn send_classed(&mut self, frames: Vec<(Class, Vec<u8>)>) {
        let to = Side::Far;
        let frames = frames.into_iter();
        self.out.extend(frames.map(|(class, bytes)| BoxFrame {
            class,
            ..BoxFrame::data(to, bytes)
        }));
    }
}
