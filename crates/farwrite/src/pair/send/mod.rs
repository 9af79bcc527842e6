//! The sending side: a message from its posting until its memory belongs to the user again.

mod queue;
mod runs;
mod stream;
mod transmit;
mod writes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farwrite_codes::Layout;
use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, Lkey};
use farwrite_schemes::chunk_set::ChunkSet;
use farwrite_schemes::scheme::{Chunks, Critical, CriticalChunks, Message};
use farwrite_sdr::{Awaited, Refusal, SendSpec};
use farwrite_wire::control::{Ack, MessageId, Outcome, SchemeTag};

use super::Pair;
use super::deadlines::Deadlines;
use super::parity::Parity;
use super::reads::Carries;
use crate::critical::CriticalError;
use crate::error::Error;
use crate::handle::{SendHandle, SendShared};
use crate::memory::MrSlice;
use crate::options::SendOptions;
use crate::peer::PlaceInQueue;
use crate::registry::Registry;
use queue::PacketQueue;
use runs::StreamRuns;
use stream::Stream;
pub(crate) use transmit::{Halt, Turn};
use writes::Writes;

#[derive(Default)]
pub(super) struct SendState {
    /// Messages that have not ended.
    pub(super) open: BTreeMap<u64, OpenSend>,
    /// Messages that have ended, but of which the fabric still holds packets.
    pub(super) leaving: BTreeMap<u64, (OpenSend, Outcome)>,
    /// Bounded schemes with a message that ended before it was cleared. Newer messages of these
    /// schemes may start.
    unblocked: Vec<SchemeTag>,
    streams: StreamRuns,
    writes: Writes,
    queue: PacketQueue,
    pub(super) deadlines: Deadlines,
    /// The state of the queue pair among the queue pairs to its peer.
    pub(super) place_in_queue: PlaceInQueue,
    /// Wire bytes that remain in its turn to send. The value is negative if more than a turn was
    /// sent.
    turn_bytes: i64,
}

impl SendState {
    /// Returns whether no message is open, and the fabric holds no packets.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty()
            && self.leaving.is_empty()
            && self.streams.is_empty()
            && self.queue.is_empty()
    }

    /// Returns whether the fabric has taken packets that have not departed.
    pub(super) fn is_departing(&self) -> bool {
        self.queue.is_departing()
    }

    /// Returns the earliest deadline of a message or of a write.
    pub(super) fn next_deadline_ns(&self) -> Option<u64> {
        let deadlines = [self.deadlines.next_ns(), self.writes.next_ns()];
        deadlines.into_iter().flatten().min()
    }

    /// Ends everything, because the queue pair no longer exists.
    pub(super) fn end_all(&mut self) {
        self.writes.close_all();
        for send in self.open.values() {
            send.shared.finish(Outcome::Failed);
        }
        for (send, outcome) in self.leaving.values() {
            send.shared.finish(*outcome);
        }
    }

    /// Frees the memory of empty collections.
    pub(super) fn shrink(&mut self) {
        self.open = BTreeMap::new();
        self.leaving = BTreeMap::new();
        self.streams = StreamRuns::default();
        self.writes.shrink();
        self.deadlines = Deadlines::default();
        self.queue.shrink();
    }

    /// Returns whether the region is in use by a message being sent, or by packets that the fabric
    /// has taken.
    pub(super) fn sends_from(&self, lkey: Lkey) -> bool {
        // The packets of a message without a scheme leave once.
        let needed = |send: &&OpenSend| !(send.scheme == SchemeTag::NONE && send.has_left());
        let whole = self.open.values().filter(needed);
        let whole = whole.filter_map(|send| send.source);
        let runs = self.streams.iter().map(|run| run.source.slice);
        whole.chain(runs).any(|source| source.region.lkey == lkey) || self.queue.sends_from(lkey)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The message was posted. It is offered until the receiver's buffer is known.
    Posted,
    /// The chunks of the message may be written at the receiver. A message of a bounded scheme
    /// waits for older ones.
    Cleared,
    /// The scheme manages the message.
    Started,
}

/// What follows from the scheme and the critical ranges of a message.
#[derive(Clone, Copy, Default)]
struct Traits {
    /// Whether the scheme is bounded. Messages of a bounded scheme start in order.
    is_bounded: bool,
    critical: CriticalChunks,
    /// Whether a message that ends as partial has its critical chunks. It must not end so before it
    /// has started: its critical chunks have not left.
    is_exact_in_part: bool,
    answers_read: bool,
}

pub(super) struct OpenSend {
    /// Where the bytes of the message are. `None` for a stream, because each run of a stream has
    /// its own source.
    pub(super) source: Option<MrSlice>,
    /// The exposed region whose bytes the message sends, if it answers a read.
    pub(super) region: Option<u64>,
    pub(super) scheme: SchemeTag,
    has_immediate: bool,
    /// How the message is cut into groups, if its scheme codes.
    pub(super) layout: Option<Layout>,
    /// Memory for the parity, from the time when the message is cleared. `None` if there is no room
    /// for it.
    pub(super) parity: Option<Parity>,
    traits: Traits,
    stage: Stage,
    /// Number of chunks that have left at least once.
    departed: u32,
    stream: Option<Stream>,
    /// Chunks that were queued for sending, of the message and of its parity.
    queued: [ChunkSet; 2],
    pub(super) deadline_ns: Option<u64>,
    /// The most that an ACK has reported: all chunks before the first, and one past the last.
    reported: [u32; 2],
    /// One past the last chunk that has left.
    left: u32,
    /// Since when chunks that have left wait for an ACK that reports a new one.
    waits_since_ns: Option<u64>,
    shared: Arc<SendShared>,
}

impl OpenSend {
    /// Records that chunks have left which the receiver acknowledges.
    pub(super) fn note_left(&mut self, now_ns: u64, chunks: &Chunks) {
        if !chunks.message.is_parity() {
            self.left = self.left.max(chunks.range.end);
        }
        // The receiver need not acknowledge each chunk of a bounded message.
        if !self.traits.is_bounded {
            self.waits_since_ns.get_or_insert(now_ns);
        }
    }

    pub(super) fn note_ack(&mut self, now_ns: u64, ack: &Ack) {
        let [before, seen] = self.reported;
        if ack.cumulative > before || ack.seen > seen {
            self.reported = [before.max(ack.cumulative), seen.max(ack.seen)];
            let is_waiting = ack.cumulative < self.left && self.waits_since_ns.is_some();
            self.waits_since_ns = is_waiting.then_some(now_ns);
        }
    }

    fn advance(&mut self, stage: Stage) {
        debug_assert!(self.stage <= stage, "{:?} after {:?}", stage, self.stage);
        self.stage = stage;
    }

    /// Records that chunks are about to be sent. Returns how many of them were never queued before.
    fn note_queued(&mut self, chunks: &Chunks) -> u32 {
        let queued = &mut self.queued[usize::from(chunks.message.is_parity())];
        let before = queued.count();
        queued.insert_range(chunks.range.clone());
        queued.count() - before
    }

    /// Returns whether packets of a chunk of the message, or of its parity, may have been sent.
    pub(super) fn may_have_sent(&self, message: MessageId, chunk: u32) -> bool {
        let queued = &self.queued[usize::from(message.is_parity())];
        queued.word(chunk / 64) >> (chunk % 64) & 1 == 1
    }

    /// Returns the bytes of the chunks that its scheme may send and has not sent, parity included.
    fn unqueued_bytes(&self, chunk_bytes: u64) -> u64 {
        let Some(source) = self.source.filter(|_| self.stage > Stage::Posted) else {
            return 0;
        };
        if self.stream.is_some() {
            return 0;
        }
        let left = |queued: &ChunkSet| u64::from(queued.chunks() - queued.count()) * chunk_bytes;
        let [data, parity] = &self.queued;
        let data_bytes = left(data).min(source.length);
        let parity_bytes = self.parity.map_or(0, |_| left(parity));
        data_bytes + parity_bytes
    }

    /// Records chunks of the message that left this end. If the message has a scheme, they left for
    /// the first time.
    fn chunks_departed(&mut self, count: u32) {
        self.departed = self.departed.saturating_add(count);
        if let Some(stream) = &mut self.stream {
            stream.in_hand = stream.in_hand.saturating_sub(count);
        }
        self.note_injected();
    }

    /// Records chunks of a stream that were given and never leave.
    fn chunks_dropped(&mut self, count: u32) {
        if let Some(stream) = &mut self.stream {
            stream.in_hand = stream.in_hand.saturating_sub(count);
        }
        self.note_injected();
    }

    /// Returns whether every chunk has left at least once.
    fn has_left(&self) -> bool {
        match &self.stream {
            Some(stream) => stream.ended && stream.in_hand == 0,
            None => self.departed >= self.queued[0].chunks(),
        }
    }

    fn note_injected(&self) {
        if self.has_left() {
            self.shared.injected.store(true, Ordering::Release);
        }
    }
}

impl Pair {
    /// Since when chunks of a message have left, and no ACK has reported a new one.
    pub(crate) fn unacknowledged_since(&self) -> Option<u64> {
        let open = self.send.open.values();
        open.filter_map(|send| send.waits_since_ns).min()
    }

    /// Starts a message whose bytes are all in `source`.
    pub(crate) fn post_send(
        &mut self,
        source: MrSlice,
        options: SendOptions,
        known: &Registry,
    ) -> Result<SendHandle, Error> {
        if options.first_chunk > 0 {
            return self.post_from(source, options);
        }
        self.send_message(source, options, known, false)
    }

    /// Starts a message of the user, or an answer to a read.
    pub(super) fn send_message(
        &mut self,
        source: MrSlice,
        options: SendOptions,
        known: &Registry,
        answers_read: bool,
    ) -> Result<SendHandle, Error> {
        self.check_slice(&source)?;
        let is_raw = options.scheme == SchemeTag::NONE;
        if !is_raw && self.halves.sender(options.scheme, known).is_none() {
            return Err(Error::UnknownScheme(options.scheme.id));
        }
        let traits = Traits {
            answers_read,
            ..self.traits(known, &options, source.length)?
        };
        let layout = self.layout(known, options.scheme, source.length);
        if let Some(layout) = &layout {
            self.check_length(layout.parity_bytes() as u64)?;
        }
        let handle = self.start_send(Some(source.length), options, layout, traits)?;
        let send = self.send.open.get_mut(&handle.message);
        send.expect("just inserted").source = Some(source);
        if is_raw {
            self.send_raw(handle.message, source, options.immediate.is_some());
        }
        Ok(handle)
    }

    /// What the scheme of a message says about it, and its critical chunks.
    fn traits(
        &self,
        known: &Registry,
        options: &SendOptions,
        length: u64,
    ) -> Result<Traits, Error> {
        let scheme = known.find(options.scheme);
        let critical = scheme.as_ref().and_then(|scheme| scheme.critical());
        if critical.is_none() && !options.critical.is_empty() {
            let scheme = options.scheme.id;
            return Err(CriticalError::Scheme { scheme }.into());
        }
        let chunk_bytes = self.geometry().chunk_bytes();
        Ok(Traits {
            is_bounded: scheme.is_some_and(|scheme| scheme.is_bounded()),
            critical: options.critical.chunks(length, chunk_bytes)?,
            is_exact_in_part: critical == Some(Critical::Exact),
            answers_read: false,
        })
    }

    /// Assigns the next number to a message. The next poll offers the message.
    fn start_send(
        &mut self,
        length: Option<u64>,
        options: SendOptions,
        layout: Option<Layout>,
        traits: Traits,
    ) -> Result<SendHandle, Error> {
        let carries = Carries::of(traits.answers_read);
        self.check_sends(carries)?;
        if self.connected.is_none() {
            return Err(Error::NotConnected(self.name.serial));
        }
        let slots = self.geometry().slots();
        let oldest = self.send.leaving.keys().next();
        if oldest.is_some_and(|oldest| oldest + u64::from(slots) <= self.sdr.next_send()) {
            return Err(self.retry(Awaited::SendSlot));
        }
        let spec = SendSpec {
            length,
            immediate: options.immediate,
            scheme: options.scheme,
            parity_bytes: layout.map_or(0, |layout| layout.parity_bytes() as u64),
            is_bounded: traits.is_bounded,
            critical: traits.critical,
            needs_offer: traits.is_exact_in_part,
            answers_read: traits.answers_read,
        };
        let message = self.sdr.start_send(spec).map_err(|e| self.sdr_error(e))?;
        self.reads.sends = carries;
        let shared = Arc::new(SendShared::default());
        let geometry = self.geometry();
        let most_bytes = length.unwrap_or(geometry.config().max_message_bytes);
        let chunks = geometry.chunks(most_bytes, options.immediate.is_some());
        let parity_chunks = layout.map_or(0, |layout| {
            geometry.chunks(layout.parity_bytes() as u64, false)
        });
        let send = OpenSend {
            source: None,
            region: None,
            scheme: options.scheme,
            has_immediate: options.immediate.is_some(),
            layout,
            parity: None,
            traits,
            stage: Stage::Posted,
            departed: 0,
            stream: None,
            queued: [ChunkSet::new(chunks), ChunkSet::new(parity_chunks)],
            deadline_ns: options.deadline_ns,
            reported: [0; 2],
            left: 0,
            waits_since_ns: None,
            shared: Arc::clone(&shared),
        };
        if self.send.open.is_empty() {
            // Pings ask only while a send is open.
            self.control.packets.forget_unanswered();
        }
        self.send.open.insert(message, send);
        let has_default = self.options.default_deadline.is_some() && !traits.answers_read;
        let deadlines = &mut self.send.deadlines;
        deadlines.insert(message, options.deadline_ns);
        if has_default && options.deadline_ns.is_none() {
            deadlines.date_later(message);
        }
        Ok(SendHandle {
            pair: self.name,
            message,
            shared,
        })
    }

    /// Handles a clearance: the receiver's buffer for a message, or for its parity, is known. The
    /// chunks may be sent.
    pub(super) fn clear_to_send<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        now_ns: u64,
        message: MessageId,
    ) -> Result<(), Error> {
        if message.is_parity() {
            self.parity_clear(now_ns, message.data());
            return Ok(());
        }
        let message = message.data();
        self.begin_coding(fabric, message)?;
        let Some(send) = self.send.open.get_mut(&message) else {
            return Ok(());
        };
        send.advance(Stage::Cleared);
        self.events.send_cleared(message);
        self.refuse_writes_outside(message);
        let Some(send) = self.send.open.get(&message) else {
            return Ok(());
        };
        if send.traits.is_bounded {
            let scheme = send.scheme;
            self.start_bounded(now_ns, scheme);
        } else {
            self.start_cleared(now_ns, message);
        }
        Ok(())
    }

    /// Lets the scheme start the next messages in order, up to the first one that is not cleared. A
    /// packet of a newer message would end all older ones at the receiver (P5.9).
    fn start_bounded(&mut self, now_ns: u64, scheme: SchemeTag) {
        let of_scheme = self.send.open.iter();
        let of_scheme = of_scheme.filter(|(_, send)| send.scheme == scheme);
        let cleared = of_scheme.take_while(|(_, send)| send.stage >= Stage::Cleared);
        let next = cleared.filter(|(_, send)| send.stage == Stage::Cleared);
        let next: Vec<u64> = next.map(|(&message, _)| message).collect();
        for message in next {
            self.start_cleared(now_ns, message);
        }
    }

    /// Starts the messages that waited for messages which ended before they were cleared.
    pub(super) fn start_unblocked(&mut self, now_ns: u64) {
        for scheme in std::mem::take(&mut self.send.unblocked) {
            self.start_bounded(now_ns, scheme);
        }
    }

    /// Lets the scheme of a message start it.
    fn start_cleared(&mut self, now_ns: u64, message: u64) {
        let view = self.sender_view(now_ns);
        let Some(send) = self.send.open.get_mut(&message) else {
            return;
        };
        let Some(source) = send.source else {
            return;
        };
        send.advance(Stage::Started);
        if let Some(sender) = self.halves.senders.get(send.scheme) {
            if let Some(deadline_ns) = send.deadline_ns {
                sender.handle_deadline(message, deadline_ns);
            }
            let geometry = self.sdr.geometry();
            let message = Message {
                number: message,
                bytes: source.length,
                chunks: geometry.chunks(source.length, send.has_immediate),
                chunk_bytes: geometry.chunk_bytes(),
                critical: send.traits.critical,
            };
            sender.start(&view, &message);
        }
        // A message that waits for older ones can get memory for its parity before it starts.
        if self.sdr.is_clear(MessageId::new(message).parity()) {
            self.parity_clear(now_ns, message);
        }
    }

    /// Handles a message that does not fit the peer's receive.
    pub(super) fn handle_refused(&mut self, message: u64, refusal: Refusal) {
        if let Some(send) = self.send.open.get(&message) {
            send.shared.refuse(refusal);
        }
        self.finish_send(message, Outcome::Failed);
    }

    /// Handles a message that the peer closed.
    pub(super) fn handle_closed(&mut self, now_ns: u64, message: u64, outcome: Outcome) {
        let view = self.sender_view(now_ns);
        let Some(send) = self.send.open.get(&message) else {
            return;
        };
        match self.halves.senders.get(send.scheme) {
            Some(sender) if send.stage == Stage::Started => {
                sender.handle_closed(&view, message, outcome);
            }
            // No scheme manages the message, for example because the receive ended before the
            // message was cleared.
            _ => {
                let outcome = match outcome {
                    Outcome::Partial if send.traits.is_exact_in_part => Outcome::Failed,
                    outcome => outcome,
                };
                self.finish_send(message, outcome);
            }
        }
    }

    /// The receiver is notified that no more of the message comes.
    pub(crate) fn cancel_send(&mut self, message: u64) {
        self.stop_send(message, Outcome::Failed);
    }

    /// Ends a send before its scheme has finished it. No more packets of it go to the fabric.
    pub(super) fn stop_send(&mut self, message: u64, outcome: Outcome) {
        if let Some(send) = self.send.open.get(&message)
            && let Some(sender) = self.halves.senders.get(send.scheme)
        {
            sender.abandon(message);
        }
        self.finish_send(message, outcome);
    }

    /// Ends the messages that their schemes have finished.
    pub(super) fn settle_sends(&mut self) {
        let mut over = Vec::new();
        for sender in self.halves.senders.all() {
            while let Some(outcome) = sender.poll_outcome() {
                over.push(outcome);
            }
        }
        for (message, outcome) in over {
            self.finish_send(message, outcome);
        }
    }

    /// Ends a message. The user sees its outcome once the fabric has sent the packets that it took.
    /// From then on, the memory belongs to the user.
    fn finish_send(&mut self, message: u64, outcome: Outcome) {
        let side = &mut self.send;
        side.close_writes(message);
        side.streams.forget(message);
        side.queue.forget(message);
        if let Some(send) = side.open.remove(&message) {
            self.events.send_ended(message, outcome);
            side.deadlines.remove(message, send.deadline_ns);
            if send.traits.is_bounded && send.stage < Stage::Started {
                side.unblocked.push(send.scheme);
            }
            side.leaving.insert(message, (send, outcome));
        }
        self.release_sends();
    }

    /// Ends the messages that are over and of which the fabric holds no packets.
    fn release_sends(&mut self) {
        let SendState { leaving, queue, .. } = &mut self.send;
        let has_left = |message: &u64| !queue.holds(*message);
        let left: Vec<u64> = leaving.keys().copied().filter(has_left).collect();
        for message in left {
            let Some((send, outcome)) = self.send.leaving.remove(&message) else {
                continue;
            };
            send.shared.finish(outcome);
            if let Some(parity) = send.parity {
                self.parity_memory.give(parity.scratch);
            }
            self.sdr.close_send(message, outcome);
        }
    }
}
