//! The receiving side: a message from the posting of its buffer until the buffer belongs to the
//! user again.

mod closing;
mod offered;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use farwrite_codes::Layout;
use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, Lkey, Window};
use farwrite_schemes::scheme::Critical;
use farwrite_sdr::{Awaited, ChunkBitmap, Place, ReadSpec, RecvPlace, SdrQp, Terms};
use farwrite_wire::control::{MessageId, Outcome, SchemeTag};

use super::Pair;
use super::deadlines::Deadlines;
use super::parity::ParityRegion;
use super::reads::Carries;
use crate::error::Error;
use crate::handle::{RecvHandle, RecvShared};
use crate::losses::Losses;
use crate::memory::MrSlice;
use crate::options::RecvOptions;
use crate::registry::{Registry, TableArrivals};
use closing::Closing;

#[derive(Default)]
pub(super) struct RecvState {
    /// Messages that have not ended.
    pub(super) open: BTreeMap<u64, OpenRecv>,
    /// Those open messages whose offer is foreseen and of which nothing has arrived.
    foreseen: BTreeSet<u64>,
    pub(super) deadlines: Deadlines,
    /// Messages with newly arrived packets. The vector is kept for its capacity.
    arrived: Vec<MessageId>,
    /// Messages that have ended, but whose memory a worker may still write.
    pub(super) closing: Vec<Closing>,
    /// The scheme with the most parity that the peer is expected to use. Receives get memory for
    /// that parity.
    expected: SchemeTag,
    pub(super) losses: Losses,
}

impl RecvState {
    pub(super) fn new(expected: SchemeTag) -> Self {
        Self {
            expected,
            ..Self::default()
        }
    }

    /// Returns whether no message is open, and no worker can write the memory of an ended message.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty() && self.closing.is_empty()
    }

    /// Ends all messages. The outcome of each is set once no worker can write its memory.
    pub(super) fn fail_all(&mut self) {
        let open = std::mem::take(&mut self.open).into_iter();
        let over = open.map(|(message, recv)| Closing::new(message, recv, Outcome::Failed));
        self.closing.extend(over);
    }

    /// Frees the memory of empty collections.
    pub(super) fn shrink(&mut self) {
        self.open = BTreeMap::new();
        self.foreseen = BTreeSet::new();
        self.deadlines = Deadlines::default();
        self.arrived = Vec::new();
        self.closing = Vec::new();
    }
}

/// A posted receive.
pub(super) struct OpenRecv {
    place: RecvPlace,
    pub(super) target: MrSlice,
    pub(super) window: Window,
    pub(super) terms: Terms,
    pub(super) deadline_ns: Option<u64>,
    /// What the receive reads, if it is a read.
    pub(super) read: Option<ReadSpec>,
    pub(super) bitmap: ChunkBitmap,
    /// The scheme that repairs the message, once it has begun. Also `None` for a message without a
    /// scheme.
    pub(super) repair: Option<Repair>,
    /// What the scheme that the terms demand does for critical ranges.
    expected_critical: Option<Critical>,
    pub(super) wants_immediate: bool,
    pub(super) region: Option<ParityRegion>,
    /// How the message is cut into groups. Set once the message was offered, if there is memory for
    /// all its parity.
    pub(super) layout: Option<Layout>,
    pub(super) shared: Arc<RecvShared>,
}

/// How a message is repaired.
#[derive(Clone, Copy)]
pub(super) struct Repair {
    pub(super) scheme: SchemeTag,
    /// Whether the scheme ends messages at their deadlines.
    pub(super) is_bounded: bool,
}

impl OpenRecv {
    /// Returns whether the message may have critical ranges that must be there, and that are not
    /// known before the offer.
    pub(super) fn awaits_exact_ranges(&self) -> bool {
        self.repair.is_none() && self.expected_critical == Some(Critical::Exact)
    }

    pub(super) fn scheme(&self) -> Option<SchemeTag> {
        self.repair.map(|repair| repair.scheme)
    }

    /// Passes the user immediate to the user once all of it has arrived.
    fn look_for_immediate(&mut self, sdr: &SdrQp) {
        if self.wants_immediate
            && let Ok(immediate) = sdr.recv_immediate(self.place.message.data())
        {
            self.wants_immediate = false;
            self.shared.set_immediate(immediate);
        }
    }
}

impl Pair {
    /// Posts a buffer for the next message in order.
    pub(crate) fn post_recv<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        known: &Registry,
        target: MrSlice,
        options: &RecvOptions,
    ) -> Result<RecvHandle, Error> {
        let terms = self.terms(known, options)?;
        self.open_recv(fabric, known, target, terms, options.deadline_ns)
    }

    /// Posts a buffer with terms and a deadline.
    pub(super) fn open_recv<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        known: &Registry,
        target: MrSlice,
        terms: Terms,
        deadline_ns: Option<u64>,
    ) -> Result<RecvHandle, Error> {
        self.check_slice(&target)?;
        let carries = Carries::of(terms.answers_read);
        self.check_receives(carries)?;
        let place = self.sdr.next_recv().map_err(|e| self.sdr_error(e))?;
        self.settle_closing(fabric);
        if self.has_laggard(place.message.data()) {
            return Err(self.retry(Awaited::RecvSlot));
        }
        let (window, remote) = fabric.open_window(
            self.resources.windows(place.generation),
            place.slot,
            target.region.lkey,
            target.offset,
            target.length,
        )?;
        let posted = self.sdr.post_recv(
            place,
            Place {
                rkey: remote.rkey.0,
                base: remote.addr,
                length: target.length,
            },
            terms,
        );
        let bitmap = posted.map_err(|e| self.sdr_error(e))?;
        self.reads.receives = carries;
        let shared = Arc::new(RecvShared::default());
        let message = place.message.data();
        let recv = OpenRecv {
            place,
            target,
            window,
            terms,
            deadline_ns,
            read: None,
            bitmap: bitmap.clone(),
            repair: None,
            expected_critical: terms.scheme.and_then(|tag| known.find(tag)?.critical()),
            wants_immediate: terms.exact_length && terms.immediate,
            region: None,
            layout: None,
            shared: Arc::clone(&shared),
        };
        let before = self.recv.open.insert(message, recv);
        debug_assert!(before.is_none(), "message {message} was posted twice");
        if terms.exact_length {
            shared.set_length(target.length);
        }
        let has_default = self.options.default_deadline.is_some() && !terms.answers_read;
        let deadlines = &mut self.recv.deadlines;
        deadlines.insert(message, deadline_ns);
        if has_default && deadline_ns.is_none() {
            deadlines.date_later(message);
        }
        self.foresee(fabric, known, message)?;
        Ok(RecvHandle {
            pair: self.name,
            message,
            bitmap,
            shared,
        })
    }

    /// Returns whether a worker may still handle a packet of an older message as if it belonged to
    /// `message`. This is possible if the older message has the same slot and generation, and its
    /// windows are not closed.
    fn has_laggard(&self, message: u64) -> bool {
        let geometry = self.sdr.geometry();
        let cycle = u64::from(geometry.slots()) * u64::from(geometry.generations());
        let mut closing = self.recv.closing.iter().map(|it| it.message);
        closing.any(|older| older % cycle == message % cycle)
    }

    /// Ends a receive, early or not. Once its outcome is set, no peer can reach its buffer.
    pub(crate) fn complete_recv<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        message: u64,
        outcome: Outcome,
    ) -> Result<(), Error> {
        let recv = self
            .recv
            .open
            .remove(&message)
            .ok_or(Error::NoSuchMessage(message))?;
        // Free the slot before closing the windows: once the windows are closed, no worker finds
        // the receive at its slot.
        self.sdr
            .complete_recv(message, outcome)
            .map_err(|e| self.sdr_error(e))?;
        self.events.recv_ended(message, outcome);
        self.recv.foreseen.remove(&message);
        self.recv.deadlines.remove(message, recv.deadline_ns);
        if let Some(tag) = recv.scheme() {
            if let Some(receiver) = self.halves.receivers.get(tag) {
                receiver.abandon(message);
            }
            if let Some(meter) = self.recv.losses.meter(tag) {
                meter.end(message, &TableArrivals(self.sdr.received()));
            }
        }
        let windows = [Some(recv.window), recv.region.map(|region| region.window)];
        let mut closing = Closing::new(message, recv, outcome);
        let mut result = Ok(());
        for window in windows.into_iter().flatten() {
            if let Err(error) = fabric.close_window(window) {
                closing.forget(window);
                result = Err(error.into());
            }
        }
        self.recv.closing.push(closing);
        self.settle_closing(fabric);
        result
    }

    /// Keeps the memory of a bitmap for a later receive.
    pub(crate) fn reuse_bitmap(&mut self, bitmap: ChunkBitmap) -> bool {
        self.sdr.reuse_bitmap(bitmap)
    }

    pub(crate) fn receives_into(&self, lkey: Lkey) -> bool {
        self.recv
            .open
            .values()
            .any(|recv| recv.target.region.lkey == lkey)
    }

    /// Handles a packet that had already arrived before.
    pub(crate) fn handle_duplicate(&mut self, now_ns: u64, message: MessageId, imm: u32) {
        self.events.recv_duplicate(message);
        self.note_late(now_ns, message, imm);
    }

    /// Handles a packet for a message that has ended.
    pub(crate) fn handle_late(&mut self, now_ns: u64, message: u64, imm: u32) {
        self.events.recv_late(message);
        self.sdr.handle_late(message);
        let geometry = self.sdr.geometry();
        let data = MessageId::new(message);
        let is_of_parity = geometry.decode_immediate(imm).slot >= geometry.slots();
        let message = if is_of_parity { data.parity() } else { data };
        self.note_late(now_ns, message, imm);
    }

    /// Records a packet without new data. Its chunk may have counted as lost.
    fn note_late(&mut self, now_ns: u64, message: MessageId, imm: u32) {
        let geometry = self.sdr.geometry();
        let chunk = geometry.chunk_of(geometry.decode_immediate(imm).packet);
        let is_whole = geometry.config().packets_per_chunk == 1;
        self.recv
            .losses
            .handle_late(now_ns, (message, chunk), is_whole);
    }

    /// Passes the messages with new arrivals to their schemes.
    pub(super) fn look_at_arrivals<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        known: &Registry,
        now_ns: u64,
    ) -> Result<(), Error> {
        self.receive.take_announcement();
        let mut arrived = std::mem::take(&mut self.recv.arrived);
        arrived.clear();
        let received = self.sdr.received();
        received.drain_arrivals(|message| arrived.push(message));
        if let Some(newest) = arrived.iter().map(|message| message.data()).max() {
            self.begin_foreseen(fabric, known, now_ns, newest)?;
        }
        let view = self.receiver_view(now_ns);
        let answer_ns = self.round_trip.least_answer_ns();
        let Self {
            sdr,
            recv: RecvState { open, losses, .. },
            halves,
            events,
            ..
        } = self;
        let arrivals = TableArrivals(sdr.received());
        for &message in &arrived {
            events.recv_arrived(message, &arrivals);
            let Some(recv) = open.get_mut(&message.data()) else {
                continue;
            };
            recv.look_for_immediate(sdr);
            let Some(tag) = recv.scheme() else { continue };
            losses.look(&view, answer_ns, (tag, message.data()), &arrivals);
            if let Some(receiver) = halves.receivers.get(tag) {
                receiver.handle_arrivals(&view, message, &arrivals);
            }
        }
        self.recv.arrived = arrived;
        Ok(())
    }

    /// Returns whether a scheme repairs the oldest open receive.
    pub(super) fn expects_data(&self) -> bool {
        let oldest = self.recv.open.values().next();
        oldest.is_some_and(|recv| recv.repair.is_some())
    }

    /// Closes the receives that their schemes have finished. Returns whether there were any.
    pub(super) fn settle_receives<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
    ) -> Result<bool, Error> {
        let mut over = Vec::new();
        for receiver in self.halves.receivers.all() {
            while let Some(outcome) = receiver.poll_outcome() {
                over.push(outcome);
            }
        }
        let any = !over.is_empty();
        for (message, outcome) in over {
            if self.recv.open.contains_key(&message) {
                self.complete_recv(fabric, message, outcome)?;
            }
        }
        Ok(any)
    }
}
