//! The receiving side: posted buffers, what arrives in them, and when they are closed.

use std::sync::Arc;

use farwrite_codes::Layout;
use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, Lkey, Window};
use farwrite_schemes::scheme::Message;
use farwrite_sdr::{ChunkBitmap, Event, Place, RecvPlace, SdrQp, Terms};
use farwrite_wire::control::{Outcome, SchemeTag, data_of, parity_of};

use super::Pair;
use super::closing::Closing;
use super::parity::Lent;
use crate::error::Error;
use crate::handle::{RecvHandle, RecvShared};
use crate::memory::MrSlice;
use crate::options::RecvOptions;
use crate::registry::{Registry, TableArrivals};

/// What the sender said of a message.
pub(super) struct Offered {
    pub(super) message: u64,
    pub(super) length: Option<u64>,
    pub(super) scheme: SchemeTag,
    pub(super) has_immediate: bool,
}

/// A posted receive.
pub(super) struct Recv {
    place: RecvPlace,
    target: MrSlice,
    pub(super) window: Window,
    pub(super) terms: Terms,
    pub(super) deadline_ns: Option<u64>,
    pub(super) bitmap: ChunkBitmap,
    /// The scheme that runs it, once it has begun, and whether that is bounded.
    scheme: Option<SchemeTag>,
    is_bounded: bool,
    pub(super) wants_immediate: bool,
    /// Memory for parity, if there is any.
    pub(super) lent: Option<Lent>,
    /// How the message is cut into groups, once it was offered, if there is memory for all its
    /// parity.
    pub(super) layout: Option<Layout>,
    pub(super) shared: Arc<RecvShared>,
}

impl Recv {
    pub(super) fn target(&self) -> MrSlice {
        self.target
    }

    pub(super) fn scheme(&self) -> Option<SchemeTag> {
        self.scheme
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.is_bounded
    }

    /// Hands the user immediate on once it is whole.
    fn look_for_immediate(&mut self, sdr: &SdrQp) {
        if self.wants_immediate
            && let Ok(immediate) = sdr.recv_immediate(self.place.message)
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
        self.check_slice(&target)?;
        let terms = self.terms(known, options)?;
        let place = self.sdr.next_recv().map_err(|e| self.sdr_error(e))?;
        self.settle_closing(fabric);
        if self.has_laggard(place.message) {
            let slots = self.geometry().slots();
            return Err(Error::Retry { slots });
        }
        let (window, remote) = fabric.open_window(
            self.holdings.windows(place.generation),
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
        let shared = Arc::new(RecvShared::default());
        let message = place.message;
        let recv = Recv {
            place,
            target,
            window,
            terms,
            deadline_ns: options.deadline_ns,
            bitmap: bitmap.clone(),
            scheme: None,
            is_bounded: false,
            wants_immediate: terms.exact_length && terms.immediate,
            lent: None,
            layout: None,
            shared: Arc::clone(&shared),
        };
        self.recvs.insert(message, recv);
        if terms.exact_length {
            shared.set_length(target.length);
        }
        if let Some(deadline_ns) = options.deadline_ns {
            self.recv_deadlines.insert(deadline_ns, message);
        }
        self.foresee(fabric, known, message)?;
        Ok(RecvHandle {
            pair: self.name,
            message,
            bitmap,
            shared,
        })
    }

    /// Whether a worker may still handle a packet that it would take for one of `message`: of an
    /// older message with the same slot and generation, whose windows are not closed.
    fn has_laggard(&self, message: u64) -> bool {
        let geometry = self.sdr.geometry();
        let cycle = u64::from(geometry.slots()) * u64::from(geometry.generations());
        let mut closing = self.closing.iter().map(Closing::message);
        closing.any(|older| older % cycle == message % cycle)
    }

    /// Ends a receive, early or not. Its buffer is out of every peer's reach when its outcome is
    /// set.
    pub(crate) fn complete_recv<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        message: u64,
        outcome: Outcome,
    ) -> Result<(), Error> {
        let recv = self
            .recvs
            .remove(&message)
            .ok_or(Error::NoSuchMessage(message))?;
        // First the slot, then the memory: when the windows are closed, no worker finds the receive
        // at its slot.
        self.sdr
            .complete_recv(message, outcome)
            .map_err(|e| self.sdr_error(e))?;
        self.events.recv_ended(message, outcome);
        self.foreseen.remove(&message);
        if let Some(deadline_ns) = recv.deadline_ns {
            self.recv_deadlines.remove(deadline_ns, message);
        }
        if let Some(receiver) = recv
            .scheme
            .and_then(|tag| self.halves.existing_receiver(tag))
        {
            receiver.abandon(message);
        }
        if let Some(meter) = recv.scheme.and_then(|tag| self.losses.meter(tag)) {
            meter.end(message, &TableArrivals(self.sdr.received()));
        }
        let windows = [Some(recv.window), recv.lent.map(|lent| lent.window)];
        let mut closing = Closing::new(message, recv, outcome);
        let mut result = Ok(());
        for window in windows.into_iter().flatten() {
            if let Err(error) = fabric.close_window(window) {
                closing.forget(window);
                result = Err(error.into());
            }
        }
        self.closing.push(closing);
        self.settle_closing(fabric);
        result
    }

    /// Whether a receive writes into the region.
    pub(crate) fn receives_into(&self, lkey: Lkey) -> bool {
        self.recvs
            .values()
            .any(|recv| recv.target.region.lkey == lkey)
    }

    /// A packet came that had come before.
    pub(crate) fn handle_duplicate(&mut self, message: u64, imm: u32) {
        self.events.recv_duplicate(message);
        self.note_late(data_of(message), imm);
    }

    /// A packet came for a message that is over.
    pub(crate) fn handle_late(&mut self, message: u64, imm: u32) {
        self.events.recv_late(message);
        self.sdr.handle_late(message);
        self.note_late(message, imm);
    }

    /// A packet of a message brought nothing new. Its chunk may have counted as lost.
    fn note_late(&mut self, message: u64, imm: u32) {
        let geometry = self.sdr.geometry();
        let parts = geometry.decode_immediate(imm);
        let number = match parts.slot >= geometry.slots() {
            true => parity_of(message),
            false => message,
        };
        let chunk = (number, geometry.chunk_of(parts.packet));
        let is_whole = geometry.config().packets_per_chunk == 1;
        self.losses.handle_late(message, chunk, is_whole);
    }

    /// Shows the schemes which messages had arrivals.
    pub(super) fn look_at_arrivals<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        known: &Registry,
        now_ns: u64,
    ) -> Result<(), Error> {
        self.inlet.take_announcement();
        let mut arrived = std::mem::take(&mut self.arrived);
        arrived.clear();
        let received = self.sdr.received();
        received.drain_arrivals(|message| arrived.push(message));
        if let Some(newest) = arrived.iter().copied().map(data_of).max() {
            self.begin_foreseen(fabric, known, now_ns, newest)?;
        }
        let path = self.path(now_ns);
        let Self {
            sdr,
            recvs,
            halves,
            losses,
            events,
            ..
        } = self;
        let arrivals = TableArrivals(sdr.received());
        for &message in &arrived {
            events.recv_arrived(message, &arrivals);
            let Some(recv) = recvs.get_mut(&data_of(message)) else {
                continue;
            };
            recv.look_for_immediate(sdr);
            let Some(tag) = recv.scheme else { continue };
            if let Some(meter) = losses.meter(tag) {
                meter.look(&path, data_of(message), &arrivals);
            }
            if let Some(receiver) = halves.existing_receiver(tag) {
                receiver.handle_arrivals(&path, message, &arrivals);
            }
        }
        self.arrived = arrived;
        Ok(())
    }

    /// Does what the SDR core asks for.
    pub(super) fn handle_sdr_events<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        known: &Registry,
        now_ns: u64,
    ) -> Result<(), Error> {
        while let Some(event) = self.sdr.poll_event() {
            match event {
                Event::Offered {
                    message,
                    length,
                    scheme,
                    has_immediate,
                } => {
                    self.events.recv_offered(message, length, scheme);
                    let offer = Offered {
                        message,
                        length,
                        scheme,
                        has_immediate,
                    };
                    self.begin_foreseen(fabric, known, now_ns, message)?;
                    self.begin_recv(fabric, known, now_ns, &offer)?;
                }
                Event::LengthKnown { message, length } => {
                    if let Some(recv) = self.recvs.get(&message) {
                        recv.shared.set_length(length);
                    }
                }
                Event::Refused { message, refusal } => {
                    if let Some(recv) = self.recvs.get(&message) {
                        recv.shared.refuse(refusal);
                    }
                    self.complete_recv(fabric, message, Outcome::Failed)?;
                }
                Event::Withdrawn {
                    message,
                    withdrawal,
                } => self.handle_withdrawn(fabric, now_ns, message, withdrawal)?,
                Event::SendRefused { message, refusal } => {
                    if let Some(send) = self.sends.get(&message) {
                        send.refuse(refusal);
                    }
                    self.finish_send(message, Outcome::Failed);
                }
                Event::ClearToSend { message } => self.clear_to_send(fabric, now_ns, message)?,
                Event::Closed { message, outcome } => self.handle_closed(now_ns, message, outcome),
            }
        }
        Ok(())
    }

    /// A receive was offered its message, or the offer is foreseen: its scheme begins.
    pub(super) fn begin_recv<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        known: &Registry,
        now_ns: u64,
        offer: &Offered,
    ) -> Result<(), Error> {
        let path = self.path(now_ns);
        let recv = self.recvs.get(&offer.message);
        if recv.is_some_and(|recv| recv.scheme.is_some() && offer.length.is_some()) {
            // It was foreseen: the offer confirms.
            return Ok(());
        }
        if !self.expect_parity(fabric, known, offer)? {
            return self.complete_recv(fabric, offer.message, Outcome::Failed);
        }
        let Some(recv) = self.recvs.get_mut(&offer.message) else {
            return Ok(());
        };
        recv.wants_immediate = offer.has_immediate;
        // All of it may have come before the offer, or with it.
        recv.look_for_immediate(&self.sdr);
        if let Some(length) = offer.length {
            recv.shared.set_length(length);
        }
        if offer.scheme == SchemeTag::NONE {
            return Ok(());
        }
        let receiver = self.halves.receiver(offer.scheme, known);
        let (Some(length), Some(receiver)) = (offer.length, receiver) else {
            // Nobody here can repair it, or it breaks P4.3: the sender learns so instead of sending
            // for ever.
            return self.complete_recv(fabric, offer.message, Outcome::Failed);
        };
        recv.scheme = Some(offer.scheme);
        recv.is_bounded = known.is_bounded(offer.scheme);
        if let Some(deadline_ns) = recv.deadline_ns {
            receiver.handle_deadline(offer.message, deadline_ns);
        }
        let chunks = self.sdr.geometry().chunks(length, offer.has_immediate);
        let chunk_bytes = self.sdr.geometry().chunk_bytes();
        let message = Message {
            number: offer.message,
            bytes: length,
            chunks,
            chunk_bytes,
        };
        receiver.start(&path, &message);
        // Chunks may have come before the offer.
        let arrivals = TableArrivals(self.sdr.received());
        receiver.handle_arrivals(&path, offer.message, &arrivals);
        if let Some(scheme) = known.find(offer.scheme) {
            self.losses
                .begin(offer.scheme, &message, scheme.order(&message));
        }
        if let Some(meter) = self.losses.meter(offer.scheme) {
            meter.look(&path, offer.message, &arrivals);
        }
        Ok(())
    }

    /// Sees to it that there is memory for the parity of an offered message. Receives posted from
    /// now on get as much, since it cannot grow when a message is offered. False if parity has
    /// arrived that the message does not have.
    fn expect_parity<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        known: &Registry,
        offer: &Offered,
    ) -> Result<bool, Error> {
        let bytes = offer.length.unwrap_or(0);
        let Some(layout) = self.layout(known, offer.scheme, bytes) else {
            // It says nothing of the parity of others: a peer may use schemes in turn.
            return Ok(true);
        };
        let expected = self.layout(known, self.expected, bytes);
        if expected.is_none_or(|expected| expected.parity_bytes() < layout.parity_bytes()) {
            self.expected = offer.scheme;
        }
        let is_enough = self.provide_parity(fabric, offer.message, &layout)?;
        let Some(recv) = self.recvs.get_mut(&offer.message) else {
            return Ok(true);
        };
        recv.layout = is_enough.then_some(layout);
        // Memory that is too small takes nothing in.
        let parity_bytes = recv.layout.map_or(0, |layout| layout.parity_bytes() as u64);
        Ok(recv.lent.is_none() || self.sdr.expect_parity(offer.message, parity_bytes).is_ok())
    }

    /// Whether the oldest open receive was offered.
    pub(super) fn expects_data(&self) -> bool {
        let oldest = self.recvs.values().next();
        oldest.is_some_and(|recv| recv.scheme.is_some())
    }

    /// Closes the receives that their schemes have done with. Whether there were any.
    pub(super) fn settle_receives<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
    ) -> Result<bool, Error> {
        let mut over = Vec::new();
        for receiver in self.halves.receivers() {
            while let Some(outcome) = receiver.poll_outcome() {
                over.push(outcome);
            }
        }
        let any = !over.is_empty();
        for (message, outcome) in over {
            if self.recvs.contains_key(&message) {
                self.complete_recv(fabric, message, outcome)?;
            }
        }
        Ok(any)
    }
}
