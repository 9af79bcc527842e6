//! Workers that share the slot table (paper section 3.4).

use std::sync::atomic::{AtomicU32, Ordering};

use farwrite_rng::SplitMix;
use farwrite_sdr::{Arrival, QpConfig, SlotTable};
use farwrite_wire::control::Control;

use crate::{connected, offer, post, small};

const PACKETS: u32 = 331;

/// Delivers all packets of message 0 in some order. Counts the completed chunks and new packets
/// that the table returns.
fn deliver(table: &SlotTable, seed: u64, chunks: &AtomicU32, new: &AtomicU32) {
    let mut random = SplitMix::new(seed);
    let mut order: Vec<u32> = (0..PACKETS).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, usize::try_from(random.below(i as u64 + 1)).unwrap());
    }
    let geometry = table.geometry();
    for packet in order {
        let bytes = if packet == PACKETS - 1 { 9 } else { 64 };
        let parts = farwrite_sdr::ImmediateParts {
            slot: 0,
            packet,
            fragment: 0,
        };
        match table.handle_packet(0, geometry.encode_immediate(parts), bytes) {
            Arrival::New {
                chunk_completed, ..
            } => {
                new.fetch_add(1, Ordering::Relaxed);
                chunks.fetch_add(chunk_completed.is_some().into(), Ordering::Relaxed);
            }
            Arrival::Duplicate { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn racing_workers_complete_every_chunk_once() {
    // Miri is a thousand times slower.
    let runs = if cfg!(miri) { 6 } else { 60 };
    for (seed, per_chunk) in (0..runs).zip([1, 4, 5, 64, 70, 200].into_iter().cycle()) {
        let config = QpConfig {
            packets_per_chunk: per_chunk,
            max_message_bytes: 64 * 1024,
            ..small()
        };
        let mut receiver = connected(config);
        let bitmap = post(&mut receiver, 64 * 1024);
        let table = receiver.table().clone();
        let (chunks, new) = (AtomicU32::new(0), AtomicU32::new(0));
        let length = u64::from(PACKETS - 1) * 64 + 9;
        std::thread::scope(|scope| {
            for worker in 0..3 {
                let (table, chunks, new) = (&table, &chunks, &new);
                scope.spawn(move || deliver(table, seed * 3 + worker, chunks, new));
            }
            // The length becomes known while the packets arrive.
            let offer = Control::Offer(offer(0, length));
            receiver.handle_control(0, &offer).unwrap();
        });
        let total = PACKETS.div_ceil(per_chunk);
        assert_eq!(new.into_inner(), PACKETS);
        assert_eq!(bitmap.count(), total);
        assert!(bitmap.is_complete());
        assert_eq!(bitmap.bytes(), length);
        // The offer may have completed the last chunk.
        assert!((total - 1..=total).contains(&chunks.into_inner()));
        let mut drained = Vec::new();
        receiver
            .received()
            .drain_arrivals(|message| drained.push(message));
        assert_eq!(drained, [0]);
    }
}
