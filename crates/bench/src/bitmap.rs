//! Packets into a chunk bitmap: what a receive worker pays for each, without a network.
#![allow(unsafe_code)]

use farwrite::{Outcome, QpConfig, Timing};
use farwrite_sdr::{Arrival, ImmediateParts, Place, SdrQp, Terms};

use crate::meter::{Meter, Usage};

/// Packets of a chunk.
const PACKETS_PER_CHUNK: u32 = 64;
/// Packets of a message.
const PACKETS: u32 = 1 << 15;
/// Messages of a run, one after the other.
const MESSAGES: u32 = 256;

type Failure = Box<dyn std::error::Error>;

/// The order in which the packets of a message arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// By number.
    Sequential,
    /// At random within each run of 64 packets.
    Shuffled,
}

/// One run, on one thread.
#[derive(Clone, Copy)]
pub(crate) struct BitmapResult {
    /// Of the calls that take packets in, and nothing else.
    usage: Usage,
}

impl BitmapResult {
    /// Packets in a second of processor time.
    pub(crate) fn per_second(&self) -> f64 {
        f64::from(PACKETS * MESSAGES) / self.usage.cpu.as_secs_f64()
    }
}

/// Receives messages whose packets all arrive, in the given order.
pub(crate) fn run(order: Order) -> Result<BitmapResult, Failure> {
    let config = QpConfig {
        packets_per_chunk: PACKETS_PER_CHUNK,
        ..QpConfig::default()
    };
    let mut qp = SdrQp::new(config, Timing::wide_area())?;
    let packets = packets(order);
    let mut usage = Usage::default();
    for _ in 0..MESSAGES {
        let place = qp.next_recv()?;
        let target = Place {
            rkey: 1,
            base: qp.geometry().slot_base(place.slot),
            length: u64::from(PACKETS) * u64::from(config.mtu),
        };
        let terms = Terms {
            exact_length: true,
            ..Terms::default()
        };
        let bitmap = qp.post_recv(place, target, terms)?;
        let immediates = packets.iter().map(|&packet| {
            qp.geometry().encode_immediate(ImmediateParts {
                slot: place.slot,
                packet,
                fragment: 0,
            })
        });
        let immediates: Vec<u32> = immediates.collect();
        let table = qp.table();
        let mut chunks = 0;
        let meter = Meter::start();
        for &immediate in &immediates {
            let arrival = table.handle_packet(place.generation, immediate, config.mtu);
            if let Arrival::New {
                chunk_completed: Some(_),
                ..
            } = arrival
            {
                chunks += 1;
            }
        }
        usage += meter.stop();
        if chunks != PACKETS / PACKETS_PER_CHUNK || !bitmap.is_complete() {
            return Err(format!("message {} has {chunks} chunks", place.message).into());
        }
        qp.complete_recv(place.message, Outcome::Whole)?;
        // SAFETY: this thread alone takes packets in.
        unsafe { qp.release_recv(place.message) };
    }
    Ok(BitmapResult { usage })
}

/// The packets of a message as they arrive.
fn packets(order: Order) -> Vec<u32> {
    let mut packets: Vec<u32> = (0..PACKETS).collect();
    if order == Order::Shuffled {
        // A small generator with a fixed seed (xorshift): every run has the same order.
        let mut state = 0x9e37_79b9_u32;
        for window in packets.chunks_exact_mut(64) {
            for last in (1..window.len()).rev() {
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                window.swap(last, state as usize % (last + 1));
            }
        }
    }
    packets
}
