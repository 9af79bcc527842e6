//! Workers that process packets while one thread posts, completes and releases receives.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use farwrite_rng::SplitMix;
use farwrite_sdr::{
    Arrival, ChunkBitmap, Geometry, ImmediateParts, QpConfig, SdrError, SdrQp, SlotTable, Terms,
};
use farwrite_wire::control::{Control, Outcome};

use crate::{connected, offer, post_with, small};

const SLOTS: u64 = 4;
/// Miri is a thousand times slower.
const MESSAGES: u64 = if cfg!(miri) { 10 } else { 60 };
const MOST_PACKETS: u64 = if cfg!(miri) { 8 } else { 150 };
const PACKETS_PER_CHUNK: &[u32] = if cfg!(miri) { &[1, 5] } else { &[1, 4, 5, 64] };

/// The state that the threads share in addition to the table.
struct WorkersState {
    seed: u64,
    posted: AtomicU64,
    is_over: AtomicBool,
    /// One counter for each worker: odd while it is in a batch.
    epochs: Vec<AtomicU64>,
}

/// The results that the table returned to a worker.
#[derive(Default)]
struct Told {
    /// New packets by message.
    packets: BTreeMap<u64, BTreeSet<u32>>,
    /// Completed chunks by message.
    chunks: BTreeMap<u64, BTreeSet<u32>>,
    late: u64,
}

/// Returns the length of a message in bytes. Some lengths are a multiple of a packet, some are not.
fn length(seed: u64, message: u64) -> u64 {
    let mut random = SplitMix::new(seed ^ message << 32);
    let packets = 1 + random.below(MOST_PACKETS);
    packets * 64 - random.below(2) * random.below(63)
}

/// Delivers a run of packets of one of the last messages, some of which have ended. Returns whether
/// a packet was new.
fn deliver(
    table: &SlotTable,
    shared: &WorkersState,
    random: &mut SplitMix,
    told: &mut Told,
) -> bool {
    let posted = shared.posted.load(Ordering::Acquire);
    let back = 1 + random.below(2 * SLOTS);
    let Some(message) = posted.checked_sub(back) else {
        return false;
    };
    let mut any = false;
    let geometry = table.geometry();
    let length = length(shared.seed, message);
    let total = geometry.packets(length, false);
    let first = u32::try_from(random.below(total.into())).unwrap();
    for packet in first..total.min(first + 8) {
        let imm = geometry.encode_immediate(ImmediateParts {
            slot: geometry.slot(message),
            packet,
            fragment: 0,
        });
        let bytes = geometry.packet_bytes(length, false, packet).unwrap();
        match table.handle_packet(geometry.generation(message), imm, bytes) {
            Arrival::New {
                message: its,
                chunk_completed,
            } => {
                assert_eq!(its, message);
                any = true;
                let is_new = told.packets.entry(message).or_default().insert(packet);
                assert!(is_new, "packet {packet} of {message} is new twice");
                if let Some(chunk) = chunk_completed {
                    told.chunks.entry(message).or_default().insert(chunk);
                }
            }
            Arrival::Duplicate { message: its } => assert_eq!(its, message),
            Arrival::Late { message: its } => {
                assert_eq!(its, message);
                told.late += 1;
            }
            Arrival::Invalid => panic!("packet {packet} of {message}: {bytes} bytes"),
        }
    }
    any
}

/// Processes packets, batch by batch, until all messages have ended.
fn work(table: &SlotTable, shared: &WorkersState, worker: usize) -> Told {
    let mut random = SplitMix::new(shared.seed * 64 + worker as u64);
    let mut told = Told::default();
    let epoch = &shared.epochs[worker];
    while !shared.is_over.load(Ordering::Acquire) {
        epoch.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut any = false;
        for _ in 0..random.below(32) {
            any |= deliver(table, shared, &mut random, &mut told);
        }
        epoch.fetch_add(1, Ordering::Release);
        if !any {
            // There was no packet, so let the owner run.
            std::thread::yield_now();
        }
    }
    told
}

/// A receive that has ended, and the batches that may still use its memory.
struct Closing {
    message: u64,
    /// The workers that were in a batch, with their epochs.
    busy: Vec<(usize, u64)>,
}

/// The state of the thread that owns the queue pair.
struct Owner<'a> {
    qp: &'a mut SdrQp,
    shared: &'a WorkersState,
    random: SplitMix,
    bitmaps: Vec<ChunkBitmap>,
    /// For each open message, whether its offer has arrived.
    open: BTreeMap<u64, bool>,
    closing: Vec<Closing>,
    released: BTreeSet<u64>,
}

impl Owner<'_> {
    /// Posts, completes and releases all messages.
    fn run(&mut self) {
        while self.released.len() as u64 != MESSAGES {
            self.post();
            let mut arrived = Vec::new();
            let received = self.qp.received();
            received.drain_arrivals(|message| arrived.push(message.data()));
            let is_idle = arrived.is_empty();
            for message in arrived {
                self.look(message);
            }
            self.release();
            if is_idle {
                std::thread::yield_now();
            }
        }
    }

    fn post(&mut self) {
        let next = self.bitmaps.len() as u64;
        // A slot must not go through all its generations while a worker still holds a packet of the
        // oldest one. So posting stays at most two rounds of slots ahead of releasing.
        let oldest = next.checked_sub(2 * SLOTS);
        let is_ahead = oldest.is_some_and(|oldest| !self.released.contains(&oldest));
        match self.qp.next_recv() {
            Ok(_) if next < MESSAGES && !is_ahead => {}
            Ok(_) | Err(SdrError::Retry(_)) => return,
            Err(other) => panic!("{other}"),
        }
        let exact_length = self.random.percent(50);
        let terms = Terms {
            exact_length,
            ..Terms::default()
        };
        let capacity = match exact_length {
            true => length(self.shared.seed, next),
            false => MOST_PACKETS * 64,
        };
        self.bitmaps.push(post_with(self.qp, capacity, terms));
        self.open.insert(next, false);
        self.shared.posted.store(next + 1, Ordering::Release);
        if exact_length || self.random.percent(20) {
            self.offer(next);
        }
        if self.random.percent(10) {
            self.complete(next, Outcome::Failed);
        }
    }

    fn offer(&mut self, message: u64) {
        if self.open.insert(message, true) == Some(false) {
            let offer = offer(message, length(self.shared.seed, message));
            self.qp.handle_control(0, &Control::Offer(offer)).unwrap();
        }
    }

    /// Reacts to packets of an open message.
    fn look(&mut self, message: u64) {
        if self.random.percent(40) {
            self.offer(message);
        }
        if self.qp.received().is_complete(message) {
            self.complete(message, Outcome::Whole);
        } else if self.random.percent(2) {
            self.complete(message, Outcome::Partial);
        }
    }

    fn complete(&mut self, message: u64, outcome: Outcome) {
        self.offer(message);
        self.open.remove(&message);
        self.qp.complete_recv(message, outcome).unwrap();
        fence(Ordering::SeqCst);
        let epochs = self.shared.epochs.iter().enumerate();
        let epochs = epochs.map(|(worker, epoch)| (worker, epoch.load(Ordering::Acquire)));
        let busy = epochs.filter(|(_, epoch)| epoch % 2 == 1).collect();
        self.closing.push(Closing { message, busy });
    }

    /// Releases the receives that no worker can use any more.
    fn release(&mut self) {
        let (shared, qp) = (self.shared, &mut *self.qp);
        let released = &mut self.released;
        self.closing.retain_mut(|closing| {
            let epoch = |worker: usize| shared.epochs[worker].load(Ordering::Acquire);
            closing.busy.retain(|&(worker, at)| epoch(worker) == at);
            if closing.busy.is_empty() {
                // SAFETY: every worker has left the batch that it was in when the receive was
                // completed, and each batch begins with a fence.
                unsafe { qp.release_recv(closing.message) };
                released.insert(closing.message);
            }
            !closing.busy.is_empty()
        });
    }
}

/// Compares a bitmap with what the table returned to workers.
fn check(geometry: &Geometry, bitmap: &ChunkBitmap, told: &[Told], seed: u64) {
    let message = bitmap.message();
    let of = |sets: &BTreeMap<u64, BTreeSet<u32>>| sets.get(&message).cloned().unwrap_or_default();
    let (mut packets, mut chunks) = (BTreeSet::new(), BTreeSet::new());
    for told in told {
        for packet in of(&told.packets) {
            assert!(packets.insert(packet), "{packet} of {message} is new twice");
        }
        for chunk in of(&told.chunks) {
            assert!(chunks.insert(chunk), "{chunk} of {message} is told twice");
        }
    }
    let length = length(seed, message);
    let total = geometry.packets(length, false);
    let per_chunk = geometry.config().packets_per_chunk;
    assert_eq!(bitmap.len(), total.div_ceil(per_chunk));
    let mut whole = 0;
    for chunk in 0..bitmap.len() {
        let range = chunk * per_chunk..total.min((chunk + 1) * per_chunk);
        let bits = range.clone().filter(|packet| packets.contains(packet));
        let bits: u64 = bits.map(|packet| 1 << (packet % per_chunk)).sum();
        assert_eq!(bitmap.packets(chunk), bits, "chunk {chunk} of {message}");
        let is_whole = bits.count_ones() == range.end - range.start;
        assert_eq!(bitmap.get(chunk), is_whole, "chunk {chunk} of {message}");
        // The offer may have completed the last chunk.
        let is_told = chunks.contains(&chunk);
        assert!(is_told == is_whole || (is_whole && chunk + 1 == bitmap.len()));
        whole += u32::from(is_whole);
    }
    assert_eq!(bitmap.count(), whole);
    assert_eq!(bitmap.is_complete(), whole == bitmap.len());
    let bytes = |packet| u64::from(geometry.packet_bytes(length, false, packet).unwrap());
    assert_eq!(bitmap.bytes(), packets.into_iter().map(bytes).sum::<u64>());
}

#[test]
fn messages_come_and_go_while_workers_take_packets_in() {
    for (seed, workers) in [(1, 1), (2, 2), (3, 4)] {
        for &packets_per_chunk in PACKETS_PER_CHUNK {
            let config = QpConfig {
                packets_per_chunk,
                max_message_bytes: MOST_PACKETS * 64,
                ..small()
            };
            let mut qp = connected(config);
            let table = qp.table().clone();
            let shared = WorkersState {
                seed,
                posted: AtomicU64::new(0),
                is_over: AtomicBool::new(false),
                epochs: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            };
            let mut owner = Owner {
                qp: &mut qp,
                shared: &shared,
                random: SplitMix::new(seed),
                bitmaps: Vec::new(),
                open: BTreeMap::new(),
                closing: Vec::new(),
                released: BTreeSet::new(),
            };
            let told: Vec<Told> = std::thread::scope(|scope| {
                let (table, shared) = (&table, &shared);
                let workers = (0..workers).map(|i| scope.spawn(move || work(table, shared, i)));
                let workers: Vec<_> = workers.collect();
                owner.run();
                shared.is_over.store(true, Ordering::Release);
                workers.into_iter().map(|w| w.join().unwrap()).collect()
            });
            for bitmap in &owner.bitmaps {
                check(table.geometry(), bitmap, &told, seed);
            }
            // Some packets are certain to be late: 10% of messages have ended when they are posted.
            assert!(cfg!(miri) || told.iter().any(|told| told.late > 0));
        }
    }
}
