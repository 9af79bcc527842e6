//! Every interleaving of a few workers and the queue pair's owner, explored by loom.
#![allow(unsafe_code)]

use loom::sync::atomic::{AtomicBool, Ordering, fence};
use loom::thread;
use std::sync::Arc;
use std::vec::Vec;

use farwrite_wire::control::MessageId;

use super::{Arrival, SlotTable};
use crate::config::{ImmediateSplit, QpConfig};
use crate::geometry::ImmediateParts;
use crate::memory::{Extent, SlotMemory};

/// One slot of up to 130 packets of 64 bytes, three packets per chunk. Chunk 21 lies in two words.
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

/// Posts a message whose buffer has `capacity` bytes. `length` is its length, if known.
fn post(table: &SlotTable, message: u64, capacity: u64, length: Option<u64>) -> Arc<SlotMemory> {
    let memory = Arc::new(SlotMemory::new(table.geometry, message.into(), capacity));
    table.publish(memory.clone());
    table.set_posted(message + 1);
    if let Some(length) = length {
        memory.set_extent(extent(length)).unwrap();
    }
    memory
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
        let memory = post(&table, 0, 64 * 130, Some(64 * 130));
        arrive(&table, 64, 64);
        let workers: Vec<_> = [63, 65]
            .map(|packet| {
                let table = table.clone();
                thread::spawn(move || completed(arrive(&table, packet, 64)))
            })
            .into();
        let told: u32 = workers.into_iter().map(|w| w.join().unwrap()).sum();
        assert_eq!((told, memory.count(), memory.word(0)), (1, 1, 1 << 21));
    });
}

#[test]
fn two_copies_count_once() {
    loom::model(|| {
        let table = table();
        let memory = post(&table, 0, 64, Some(64));
        let worker = {
            let table = table.clone();
            thread::spawn(move || completed(arrive(&table, 0, 64)))
        };
        let told = completed(arrive(&table, 0, 64)) + worker.join().unwrap();
        assert_eq!((told, memory.count(), memory.bytes()), (1, 1, 64));
    });
}

#[test]
fn a_last_chunk_is_completed_by_its_packet_or_by_its_length() {
    loom::model(|| {
        let table = table();
        let memory = post(&table, 0, 64 * 130, None);
        let worker = {
            let table = table.clone();
            thread::spawn(move || arrive(&table, 0, 9))
        };
        memory.set_extent(extent(9)).unwrap();
        assert!(matches!(worker.join().unwrap(), Arrival::New { .. }));
        assert!(memory.is_complete());
        assert_eq!(memory.bytes(), 9);
    });
}

#[test]
fn a_packet_beyond_the_length_is_noticed_by_one_side() {
    loom::model(|| {
        let table = table();
        let memory = post(&table, 0, 64 * 130, None);
        let worker = {
            let table = table.clone();
            thread::spawn(move || arrive(&table, 7, 64))
        };
        let set = memory.set_extent(extent(9));
        let arrival = worker.join().unwrap();
        assert!(set.is_err() || arrival == Arrival::Invalid);
        assert!(!memory.is_complete());
    });
}

/// Returns what the owner sees of a message's packets each time that its slot is marked.
fn look(table: &SlotTable, memory: &SlotMemory) -> Option<(u32, u32)> {
    let mut seen = None;
    table.drain_dirty(|_| seen = Some((memory.packets(), memory.count())));
    seen
}

#[test]
fn every_arrival_is_drained() {
    loom::model(|| {
        let table = table();
        let memory = post(&table, 0, 192, Some(192));
        arrive(&table, 0, 64);
        arrive(&table, 1, 64);
        let worker = {
            let table = table.clone();
            thread::spawn(move || arrive(&table, 2, 64))
        };
        let first = look(&table, &memory);
        worker.join().unwrap();
        let last = look(&table, &memory).or(first);
        assert_eq!(last, Some((3, 1)));
    });
}

#[test]
fn arrivals_of_two_workers_are_drained() {
    loom::model(|| {
        let table = table();
        let memory = post(&table, 0, 128, Some(128));
        let workers: Vec<_> = [0, 1]
            .map(|packet| {
                let table = table.clone();
                thread::spawn(move || arrive(&table, packet, 64))
            })
            .into();
        let first = look(&table, &memory);
        for worker in workers {
            worker.join().unwrap();
        }
        let last = look(&table, &memory).or(first);
        assert_eq!(last, Some((2, 1)));
    });
}

#[test]
fn a_message_never_shows_packets_of_the_next() {
    loom::model(|| {
        let table = table();
        let memory = post(&table, 0, 192, Some(192));
        for packet in 0..3 {
            arrive(&table, packet, 64);
        }
        let reader = {
            let memory = memory.clone();
            thread::spawn(move || (memory.word(0), memory.packet_word(0, 0)))
        };
        let closed = table.unpublish(MessageId::new(0)).unwrap();
        let next = post(&table, 1, 192, Some(192));
        let parts = ImmediateParts {
            slot: 0,
            packet: 1,
            fragment: 0,
        };
        let imm = table.geometry().encode_immediate(parts);
        table.handle_packet(1, imm, 64);
        // SAFETY: this thread alone takes packets in. The reader counts.
        unsafe { closed.free() };
        assert_eq!(reader.join().unwrap(), (1, 0b111));
        assert_eq!((next.word(0), next.packet_word(0, 0)), (0, 0b10));
    });
}

/// A worker processes a packet in a batch that it announces. Meanwhile the owner closes the
/// message, with or without posting the slot again, and releases it if no worker is in a batch.
fn release_beside_a_worker(post_again: bool) {
    let table = table();
    post(&table, 0, 64, Some(64));
    let in_batch = Arc::new(AtomicBool::new(false));
    let worker = {
        let (table, in_batch) = (table.clone(), in_batch.clone());
        thread::spawn(move || {
            in_batch.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let arrival = arrive(&table, 0, 64);
            in_batch.store(false, Ordering::Release);
            arrival
        })
    };
    let closed = table.unpublish(MessageId::new(0)).unwrap();
    if post_again {
        post(&table, 1, 64, Some(64));
    }
    fence(Ordering::SeqCst);
    let is_busy = in_batch.load(Ordering::Acquire);
    if is_busy {
        // The table frees it later.
        table.leave([closed].into());
    } else {
        // SAFETY: the worker has left its batch, or is yet to begin it and finds the slot empty.
        unsafe { closed.free() };
    }
    let arrival = worker.join().unwrap();
    let completes = Arrival::New {
        message: MessageId::new(0),
        chunk_completed: Some(0),
    };
    let late = Arrival::Late { message: 0 };
    assert!(arrival == completes || arrival == late, "{arrival:?}");
}

#[test]
fn memory_outlives_the_batch_that_found_it() {
    loom::model(|| release_beside_a_worker(false));
}

#[test]
fn memory_outlives_the_batch_that_found_it_where_the_slot_is_posted_again() {
    loom::model(|| release_beside_a_worker(true));
}

#[test]
fn a_worker_sees_all_of_a_message_that_it_finds() {
    loom::model(|| {
        let table = table();
        let worker = {
            let table = table.clone();
            thread::spawn(move || arrive(&table, 0, 64))
        };
        let memory = post(&table, 0, 64, None);
        let arrival = worker.join().unwrap();
        let is_new = matches!(arrival, Arrival::New { message, .. } if message == 0);
        // Before the slot is posted, it has never had a message.
        let is_early = matches!(arrival, Arrival::Invalid | Arrival::Late { .. });
        assert!(is_new || is_early, "{arrival:?}");
        assert_eq!(memory.packets(), u32::from(is_new));
    });
}
