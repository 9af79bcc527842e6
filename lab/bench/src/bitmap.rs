//! Measures how many packets per second a receive worker can enter into a chunk bitmap, without a
//! network.
#![allow(unsafe_code)]

use std::time::Duration;

use farwrite::{Outcome, QpConfig, Timing};
use farwrite_rng::SplitMix;
use farwrite_sdr::{Arrival, ImmediateParts, Place, SdrQp, Terms};

use crate::Failure;
use crate::meter::Meter;
use crate::table;
use farwrite_units::stats::median;

/// Packets of a chunk.
const PACKETS_PER_CHUNK: u32 = 64;
/// Packets of a message.
const PACKETS: u32 = 1 << 15;
/// Messages per run, one after the other.
const MESSAGES: u32 = 256;

/// The order in which the packets of a message arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// In order.
    Sequential,
    /// Shuffled within each group of 64 packets.
    Shuffled,
}

/// Runs the measurement, and prints packets per second.
pub(crate) fn run(runs: usize) -> Result<(), Failure> {
    let orders = [
        ("in order", Order::Sequential),
        ("shuffled within 64", Order::Shuffled),
    ];
    let rows = orders.map(|(name, order)| {
        let times: Result<Vec<_>, _> = (0..runs).map(|_| receive(order)).collect();
        let packets = f64::from(PACKETS * MESSAGES);
        let rates = times?
            .into_iter()
            .map(|cpu| packets / cpu.as_secs_f64() / 1e6);
        Ok([name.to_owned(), format!("{:.1}", median(rates))])
    });
    let rows: Result<Vec<_>, Failure> = rows.into_iter().collect();
    let title = format!(
        "bitmap: packets into chunk bitmaps on one thread, {PACKETS_PER_CHUNK} a chunk, no network; \
         medians of\n{runs} runs. Goal: 50 million packets per core-second."
    );
    table::print(&title, ["", "million per core-second"], &rows?);
    Ok(())
}

/// Receives complete messages in the given order. Returns the processor time of the calls that
/// process packets.
fn receive(order: Order) -> Result<Duration, Failure> {
    let config = QpConfig {
        packets_per_chunk: PACKETS_PER_CHUNK,
        ..QpConfig::default()
    };
    let mut qp = SdrQp::new(config, Timing::wide_area())?;
    let packets = packets(order);
    let mut cpu = Duration::ZERO;
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
        cpu += meter.read().cpu;
        if chunks != PACKETS / PACKETS_PER_CHUNK || !bitmap.is_complete() {
            return Err(format!("{} has {chunks} chunks", place.message).into());
        }
        qp.complete_recv(place.message.data(), Outcome::Whole)?;
        // SAFETY: this thread alone takes packets in.
        unsafe { qp.release_recv(place.message.data()) };
    }
    Ok(cpu)
}

/// The packets of a message in the order of arrival.
fn packets(order: Order) -> Vec<u32> {
    let mut packets: Vec<u32> = (0..PACKETS).collect();
    if order == Order::Shuffled {
        // A constant seed: every run has the same order.
        let mut rng = SplitMix::new(1);
        for window in packets.chunks_exact_mut(64) {
            for last in (1..window.len()).rev() {
                window.swap(last, rng.index(last + 1));
            }
        }
    }
    packets
}
