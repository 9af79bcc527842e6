//! Translates completions into bits in the slot tables of queue pairs.
//!
//! A [`CompletionHandler`] runs where packets are received: in the owner's poll, or in a receive worker
//! (`workers.rs`). It sets the bits of arrived packets directly in the slot tables. Everything that
//! the owner must handle becomes a [`Notice`].

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use farwrite_fabric::contract::{Completion, Ecn, SendArrival, Sender};
use farwrite_sdr::{Arrival, MessageId, SlotTable};

use crate::announcement::Announcement;
use crate::completion_context::{CompletionContext, Role};
use crate::handle::QueuePair;

/// Maximum number of notices of a queue pair that wait for the owner, not counting
/// [`Event::Arrived`]. If a peer sends more between two polls, the rest is lost, as with a NIC that
/// has no receive buffers left.
pub(crate) const MAX_WAITING: u32 = 1024;
/// Maximum number of these notices for duplicates and late packets. The rest of the room is for
/// control packets.
const MAX_WAITING_DATA: u32 = MAX_WAITING / 2;

/// State of a queue pair that the handler and the owner share.
#[derive(Debug)]
pub(crate) struct PairReceive {
    serial: u32,
    table: Arc<SlotTable>,
    announcement: Announcement,
    /// Number of notices that wait for the owner, not counting `Arrived`.
    waiting: AtomicU32,
    /// The counts of [`ReceiveCounts::fields`].
    counts: [AtomicU64; COUNTS],
    /// The data packets that arrived last since the owner last took them. Locked once for each batch
    /// of packets.
    latest: Mutex<Latest<Newest>>,
}

/// The data packets that arrived last.
///
/// A packet with new data is kept beside later ones without, because someone who repeats a packet all the
/// time would otherwise hide all others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latest<P> {
    /// The last packet.
    pub(crate) any: Option<P>,
    /// The last packet that brought new data.
    pub(crate) fresh: Option<P>,
}

impl<P> Default for Latest<P> {
    fn default() -> Self {
        Self {
            any: None,
            fresh: None,
        }
    }
}

impl<P> Latest<P> {
    pub(crate) fn map<Q>(self, change: impl Fn(P) -> Q) -> Latest<Q> {
        Latest {
            any: self.any.map(&change),
            fresh: self.fresh.map(change),
        }
    }

    pub(crate) fn filter(self, keep: impl Fn(&P) -> bool) -> Self {
        Self {
            any: self.any.filter(&keep),
            fresh: self.fresh.filter(keep),
        }
    }
}

/// The data packet of a queue pair that arrived last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newest {
    /// Its message. For late parity, the message that it belongs to.
    pub(crate) message: MessageId,
    /// Whether the message was over. Then the packet may belong to an older message in the same slot
    /// and generation.
    pub(crate) is_late: bool,
    pub(crate) imm: u32,
    /// Arrival time by the fabric's clock, if the fabric knows it.
    pub(crate) arrived_ns: Option<u64>,
}

/// Number of the counts of a queue pair.
const COUNTS: usize = 11;

/// Counts of a queue pair since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceiveCounts {
    /// Packets from the peer that the fabric's queue pairs of this queue pair accepted.
    pub(crate) accepted_packets: u64,
    /// Data packets, duplicates included, and their payload bytes.
    pub(crate) data_packets: u64,
    pub(crate) data_bytes: u64,
    /// Payload bytes of the data packets with new data.
    pub(crate) new_bytes: u64,
    /// Data packets with ECT or CE, and those with CE (RFC 3168 section 5).
    pub(crate) ect_packets: u64,
    pub(crate) marked_packets: u64,
    /// Data packets with CE that brought nothing new.
    pub(crate) stale_marked_packets: u64,
    pub(crate) duplicate_packets: u64,
    pub(crate) late_packets: u64,
    pub(crate) invalid_packets: u64,
    pub(crate) unvalidated_controls: u64,
}

impl ReceiveCounts {
    fn fields(&mut self) -> [&mut u64; COUNTS] {
        [
            &mut self.accepted_packets,
            &mut self.data_packets,
            &mut self.data_bytes,
            &mut self.new_bytes,
            &mut self.ect_packets,
            &mut self.marked_packets,
            &mut self.stale_marked_packets,
            &mut self.duplicate_packets,
            &mut self.late_packets,
            &mut self.invalid_packets,
            &mut self.unvalidated_controls,
        ]
    }

    /// Data packets that brought nothing new.
    pub(crate) fn stale_packets(&self) -> u64 {
        self.duplicate_packets + self.late_packets + self.invalid_packets
    }

    pub(crate) fn add(&mut self, more: &Self) {
        let mut more = *more;
        for (count, more) in self.fields().into_iter().zip(more.fields()) {
            *count += *more;
        }
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        let (mut since, mut before) = (*self, *before);
        for (count, before) in since.fields().into_iter().zip(before.fields()) {
            *count -= *before;
        }
        since
    }
}

/// Something that the owner must handle.
#[derive(Debug)]
pub(crate) struct Notice {
    pub(crate) pair: QueuePair,
    pub(crate) event: Event,
}

#[derive(Debug)]
pub(crate) enum Event {
    /// Data packets arrived. [`PairReceive::take_announcement`] clears this state.
    Arrived,
    /// A data packet arrived that had already arrived before.
    Duplicate { message: MessageId, imm: u32 },
    /// A late data packet arrived: for a message that has ended, or for the parity of such a
    /// message.
    Late { message: u64, imm: u32 },
    /// A control packet arrived from the peer's address.
    Control(Box<SendArrival>),
}

impl PairReceive {
    pub(crate) fn new(serial: u32, table: Arc<SlotTable>) -> Self {
        Self {
            serial,
            table,
            announcement: Announcement::new(),
            waiting: AtomicU32::new(0),
            counts: Default::default(),
            latest: Mutex::default(),
        }
    }

    /// Takes the data packets that arrived last since the last call.
    pub(crate) fn take_latest(&self) -> Latest<Newest> {
        let latest = self.latest.lock();
        std::mem::take(&mut latest.unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that the owner is about to look at what arrived. The next packet to arrive is
    /// announced again.
    pub(crate) fn take_announcement(&self) {
        self.announcement.take();
    }

    /// Records that the owner has taken a notice other than `Arrived`.
    pub(crate) fn took_notice(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns whether one more notice may wait, that is whether fewer than `most` wait. If so,
    /// counts the notice.
    fn may_wait(&self, most: u32) -> bool {
        let is_full = self.waiting.fetch_add(1, Ordering::Relaxed) >= most;
        if is_full {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        !is_full
    }

    pub(crate) fn counts(&self) -> ReceiveCounts {
        let mut counts = ReceiveCounts::default();
        for (to, from) in counts.fields().into_iter().zip(&self.counts) {
            *to = from.load(Ordering::Relaxed);
        }
        counts
    }
}

/// Processes the completions that one thread receives.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompletionHandler {
    /// Receive states by index of the queue pair.
    receives: Vec<Option<Arc<PairReceive>>>,
}

/// Consecutive completions with the same context.
struct Run<'a> {
    context: u64,
    target: CompletionContext,
    receive: &'a PairReceive,
    counts: ReceiveCounts,
    latest: Latest<Newest>,
}

impl CompletionHandler {
    /// Completions of the queue pair may arrive from now on.
    pub(crate) fn insert(&mut self, index: u32, receive: Arc<PairReceive>) {
        let place = index as usize;
        if place >= self.receives.len() {
            self.receives.resize(place + 1, None);
        }
        self.receives[place] = Some(receive);
    }

    /// Removes a queue pair that has ended. Another queue pair may already have its place.
    pub(crate) fn remove(&mut self, pair: QueuePair) {
        if let Some(place) = self.receives.get_mut(pair.index as usize) {
            place.take_if(|receive| receive.serial == pair.serial);
        }
    }

    /// Processes completions, and appends notices for the owner.
    pub(crate) fn take(&self, completions: &mut Vec<Completion>, notices: &mut Vec<Notice>) {
        let mut run: Option<Run<'_>> = None;
        for completion in completions.drain(..) {
            let context = completion.context();
            if run.as_ref().is_none_or(|run| run.context != context) {
                if let Some(run) = run.take() {
                    run.finish(notices);
                }
                run = self.run(context);
            }
            // A queue pair that was destroyed, or was created directly through the fabric, has no
            // receive state.
            if let Some(run) = &mut run {
                run.take(completion, notices);
            }
        }
        if let Some(run) = run {
            run.finish(notices);
        }
    }

    fn run(&self, context: u64) -> Option<Run<'_>> {
        let target = CompletionContext::decode(context);
        let place = self.receives.get(target.pair.index as usize)?;
        let receive = place.as_deref()?;
        (receive.serial == target.pair.serial).then_some(Run {
            context,
            target,
            receive,
            counts: ReceiveCounts::default(),
            latest: Latest::default(),
        })
    }
}

impl Run<'_> {
    fn take(&mut self, completion: Completion, notices: &mut Vec<Notice>) {
        match (completion, self.target.role) {
            (
                Completion::Write {
                    imm,
                    bytes,
                    ecn,
                    arrived_ns,
                    ..
                },
                Role::Data { generation },
            ) => {
                self.counts.accepted_packets += 1;
                let is_marked = u64::from(ecn == Ecn::CongestionExperienced);
                self.counts.data_packets += 1;
                self.counts.data_bytes += u64::from(bytes);
                self.counts.ect_packets += u64::from(ecn != Ecn::NotEct);
                self.counts.marked_packets += is_marked;
                let table = &self.receive.table;
                let arrival = table.handle_packet(generation, imm, bytes);
                match arrival {
                    Arrival::New { .. } => self.counts.new_bytes += u64::from(bytes),
                    _ => self.counts.stale_marked_packets += is_marked,
                }
                self.take_data(arrival, imm, arrived_ns, notices);
            }
            (Completion::Send(send), Role::Control) => match send.from {
                Sender::Validated => {
                    self.counts.accepted_packets += 1;
                    self.notify(Event::Control(send), notices);
                }
                // No mechanism exists yet for a peer to prove a new address.
                Sender::Unvalidated(_) => self.counts.unvalidated_controls += 1,
            },
            // Our peers never write to the control queue pair, and data queue pairs accept no SEND.
            (Completion::Write { .. }, Role::Control)
            | (Completion::Send(_), Role::Data { .. }) => {
                self.counts.accepted_packets += 1;
                self.counts.invalid_packets += 1;
            }
        }
    }

    /// Processes a data packet that the slot table has seen.
    fn take_data(
        &mut self,
        arrival: Arrival,
        imm: u32,
        arrived_ns: Option<u64>,
        notices: &mut Vec<Notice>,
    ) {
        let (message, is_late) = match arrival {
            Arrival::New { message, .. } => (message, false),
            Arrival::Duplicate { message } => {
                self.counts.duplicate_packets += 1;
                self.notify(Event::Duplicate { message, imm }, notices);
                (message, false)
            }
            Arrival::Late { message } => {
                self.counts.late_packets += 1;
                self.notify(Event::Late { message, imm }, notices);
                (MessageId::new(message), true)
            }
            Arrival::Invalid => {
                self.counts.invalid_packets += 1;
                return;
            }
        };
        let newest = Some(Newest {
            message,
            is_late,
            imm,
            arrived_ns,
        });
        self.latest.any = newest;
        // The sender knows when the latest copy of a packet left.
        let fresh = self.latest.fresh.map(|fresh| (fresh.message, fresh.imm));
        if matches!(arrival, Arrival::New { .. }) || fresh == Some((message, imm)) {
            self.latest.fresh = newest;
        }
    }

    fn notify(&self, event: Event, notices: &mut Vec<Notice>) {
        let most = match event {
            Event::Control(_) => MAX_WAITING,
            Event::Arrived | Event::Duplicate { .. } | Event::Late { .. } => MAX_WAITING_DATA,
        };
        if self.receive.may_wait(most) {
            notices.push(self.notice(event));
        }
    }

    fn notice(&self, event: Event) -> Notice {
        let pair = self.target.pair;
        Notice { pair, event }
    }

    /// Adds the counts of all packets of the run at once, and announces data.
    fn finish(mut self, notices: &mut Vec<Notice>) {
        let has_data = self.counts.data_packets > 0;
        for (count, more) in self.receive.counts.iter().zip(self.counts.fields()) {
            if *more > 0 {
                count.fetch_add(*more, Ordering::Relaxed);
            }
        }
        if has_data {
            let latest = self.receive.latest.lock();
            let latest = &mut *latest.unwrap_or_else(PoisonError::into_inner);
            latest.any = self.latest.any.or(latest.any);
            latest.fresh = self.latest.fresh.or(latest.fresh);
        }
        if has_data && self.receive.announcement.announce() {
            notices.push(self.notice(Event::Arrived));
        }
    }
}
