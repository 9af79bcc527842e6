//! Every interleaving of a few workers and the control thread, by loom.

use loom::thread;
use std::sync::Arc;
use std::vec::Vec;

use super::{Arrival, SlotTable};
use crate::config::{ImmediateSplit, QpConfig};
use crate::geometry::ImmediateParts;
use crate::slot::Extent;

/// One slot of up to 130 packets of 64 bytes, three a chunk: chunk 21 lies in two words.
fn table() -> Arc<SlotTable> {
    let config = QpConfig {
        mtu: 64,
        packets_per_chunk: 3,
        split: ImmediateSplit {
            id_bits: 14,
            offset_bits: 18,
            user_bits: 0,
        },
        slots: 1,
        parity: false,
        max_message_bytes: 64 * 130,
        generations: 2,
        channels: 1,
    };
    Arc::new(SlotTable::new(config.validate().unwrap()))
}

fn arrive(table: &SlotTable, packet: u32, bytes: u32) -> Arrival {
    let parts = ImmediateParts {
        slot: 0,
        packet,
        fragment: 0,
    };
    let imm = table.geometry().encode_immediate(parts);
    table.handle_packet(0, imm, bytes)
}

fn extent(length: u64) -> Extent {
    Extent {
        length,
        has_immediate: false,
    }
}

fn completed(arrival: Arrival) -> u32 {
    match arrival {
        Arrival::New {
            chunk_completed, ..
        } => chunk_completed.is_some().into(),
        _ => 0,
    }
}

#[test]
fn a_chunk_in_two_words_is_completed_once() {
    loom::model(|| {
        let table = table();
        table.open(0, 64 * 130);
        table.set_extent(0, extent(64 * 130)).unwrap();
        arrive(&table, 64, 64);
        let workers: Vec<_> = [63, 65]
            .map(|packet| {
                let table = table.clone();
                thread::spawn(move || completed(arrive(&table, packet, 64)))
            })
            .into();
        let told: u32 = workers.into_iter().map(|w| w.join().unwrap()).sum();
        assert_eq!((told, table.count(0), table.word(0, 0)), (1, 1, 1 << 21));
    });
}

#[test]
fn two_copies_count_once() {
    loom::model(|| {
        let table = table();
        table.open(0, 64);
        table.set_extent(0, extent(64)).unwrap();
        let worker = {
            let table = table.clone();
            thread::spawn(move || completed(arrive(&table, 0, 64)))
        };
        let told = completed(arrive(&table, 0, 64)) + worker.join().unwrap();
        assert_eq!((told, table.count(0), table.bytes(0)), (1, 1, 64));
    });
}

#[test]
fn a_last_chunk_is_completed_by_its_packet_or_by_its_length() {
    loom::model(|| {
        let table = table();
        table.open(0, 64 * 130);
        let worker = {
            let table = table.clone();
            thread::spawn(move || arrive(&table, 0, 9))
        };
        table.set_extent(0, extent(9)).unwrap();
        assert!(matches!(worker.join().unwrap(), Arrival::New { .. }));
        assert!(table.is_complete(0));
    });
}

#[test]
fn a_packet_beyond_the_length_is_noticed_by_one_side() {
    loom::model(|| {
        let table = table();
        table.open(0, 64 * 130);
        let worker = {
            let table = table.clone();
            thread::spawn(move || arrive(&table, 7, 64))
        };
        let set = table.set_extent(0, extent(9));
        let arrival = worker.join().unwrap();
        assert!(set.is_err() || arrival == Arrival::Invalid);
        assert!(!table.is_complete(0));
    });
}

#[test]
fn every_arrival_is_drained() {
    loom::model(|| {
        let table = table();
        table.open(0, 128);
        table.set_extent(0, extent(128)).unwrap();
        arrive(&table, 0, 64);
        let worker = {
            let table = table.clone();
            thread::spawn(move || arrive(&table, 1, 64))
        };
        let mut seen = 0;
        table.drain_arrivals(|message| seen = table.packets(message));
        worker.join().unwrap();
        table.drain_arrivals(|message| seen = table.packets(message));
        assert_eq!(seen, 2);
    });
}

#[test]
fn a_reader_never_sees_the_next_message() {
    loom::model(|| {
        let table = table();
        table.open(0, 64 * 130);
        table.set_extent(0, extent(64 * 130)).unwrap();
        for packet in 0..3 {
            arrive(&table, packet, 64);
        }
        let reader = {
            let table = table.clone();
            thread::spawn(move || (table.word(0, 0), table.packets_of(0, 0)))
        };
        table.close(0);
        table.open(1, 64 * 130);
        let parts = ImmediateParts {
            slot: 0,
            packet: 1,
            fragment: 0,
        };
        let imm = table.geometry().encode_immediate(parts);
        table.handle_packet(1, imm, 64);
        let (word, packets) = reader.join().unwrap();
        assert!(word == 0 || word == 1, "{word}");
        assert!(packets == 0 || packets == 0b111, "{packets}");
    });
}
