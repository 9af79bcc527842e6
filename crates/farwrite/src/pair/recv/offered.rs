//! Handles the offer of a message and starts its scheme. The content of an offer may be known in
//! advance (P3.12).

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::Fabric;
use farwrite_schemes::scheme::Message;
use farwrite_sdr::{Offered, Refusal, SdrError, Terms};
use farwrite_wire::control::{CriticalChunks, Outcome, SchemeTag};

use super::Repair;
use crate::error::Error;
use crate::options::RecvOptions;
use crate::pair::Pair;
use crate::registry::{Registry, TableArrivals};

impl Pair {
    pub(in crate::pair) fn handle_offered<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        known: &Registry,
        now_ns: u64,
        offer: &Offered,
    ) -> Result<(), Error> {
        self.events
            .recv_offered(offer.message, offer.length, offer.scheme);
        self.begin_foreseen(fabric, known, now_ns, offer.message)?;
        self.begin_recv(fabric, known, now_ns, offer)
    }

    /// Handles the length of a stream that has ended.
    pub(in crate::pair) fn handle_length(&mut self, message: u64, length: u64) {
        if let Some(recv) = self.recv.open.get(&message) {
            recv.shared.set_length(length);
        }
    }

    pub(in crate::pair) fn refuse_offer<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        message: u64,
        refusal: Refusal,
    ) -> Result<(), Error> {
        if let Some(recv) = self.recv.open.get(&message) {
            recv.shared.refuse(refusal);
        }
        self.complete_recv(fabric, message, Outcome::Failed)
    }

    /// Starts the scheme of a receive whose message was offered, or whose offer is foreseen.
    fn begin_recv<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        known: &Registry,
        now_ns: u64,
        offer: &Offered,
    ) -> Result<(), Error> {
        let view = self.receiver_view(now_ns);
        let recv = self.recv.open.get(&offer.message);
        if recv.is_some_and(|recv| recv.repair.is_some() && offer.length.is_some()) {
            // The receive was foreseen, and the offer only confirms it.
            return Ok(());
        }
        if !self.expect_parity(fabric, known, offer)? {
            return self.complete_recv(fabric, offer.message, Outcome::Failed);
        }
        let Some(recv) = self.recv.open.get_mut(&offer.message) else {
            return Ok(());
        };
        recv.wants_immediate = offer.has_immediate;
        // The whole immediate may have arrived before the offer, or with it.
        recv.look_for_immediate(&self.sdr);
        if let Some(length) = offer.length {
            recv.shared.set_length(length);
        }
        if offer.scheme == SchemeTag::NONE {
            return Ok(());
        }
        let receiver = self.halves.receiver(offer.scheme, known);
        let (Some(length), Some(receiver)) = (offer.length, receiver) else {
            // Either no scheme here can repair the message, or the offer breaks P4.3. The sender is
            // notified, so that it does not send forever.
            return self.complete_recv(fabric, offer.message, Outcome::Failed);
        };
        recv.repair = Some(Repair {
            scheme: offer.scheme,
            is_bounded: known.is_bounded(offer.scheme),
        });
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
            critical: offer.critical,
        };
        let is_cleared = self.sdr.sender_holds_clearance(offer.message);
        receiver.start(&view, &message, is_cleared);
        // Chunks may have arrived before the offer.
        let arrivals = TableArrivals(self.sdr.received());
        receiver.handle_arrivals(&view, offer.message.into(), &arrivals);
        if let Some(scheme) = known.find(offer.scheme) {
            self.recv
                .losses
                .begin(offer.scheme, &message, scheme.order(&message));
        }
        let answer_ns = self.round_trip.least_answer_ns();
        let place = (offer.scheme, offer.message);
        self.recv.losses.look(&view, answer_ns, place, &arrivals);
        Ok(())
    }

    /// Provides memory for the parity of an offered message. Receives posted later get the same
    /// amount, because the memory cannot grow when a message is offered. Returns false if parity
    /// has arrived that the message does not have.
    fn expect_parity<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        known: &Registry,
        offer: &Offered,
    ) -> Result<bool, Error> {
        let bytes = offer.length.unwrap_or(0);
        let Some(layout) = self.layout(known, offer.scheme, bytes) else {
            // This offer says nothing about the parity of other messages: a peer may use schemes in
            // turn.
            return Ok(true);
        };
        let expected = self.layout(known, self.recv.expected, bytes);
        if expected.is_none_or(|expected| expected.parity_bytes() < layout.parity_bytes()) {
            self.recv.expected = offer.scheme;
        }
        let is_enough = self.provide_parity(fabric, offer.message, &layout)?;
        let Some(recv) = self.recv.open.get_mut(&offer.message) else {
            return Ok(true);
        };
        recv.layout = is_enough.then_some(layout);
        // Memory that is too small receives no parity.
        let parity_bytes = recv.layout.map_or(0, |layout| layout.parity_bytes() as u64);
        Ok(recv.region.is_none() || self.sdr.expect_parity(offer.message, parity_bytes).is_ok())
    }

    /// Returns the terms of a receive. The sender receives them with its clearance.
    pub(in crate::pair) fn terms(
        &self,
        known: &Registry,
        options: &RecvOptions,
    ) -> Result<Terms, Error> {
        let unknown = |tag: &SchemeTag| *tag != SchemeTag::NONE && known.find(*tag).is_none();
        if let Some(tag) = options.scheme.filter(unknown) {
            return Err(Error::UnknownScheme(tag.id));
        }
        if options.immediate && self.geometry().fragments() == 0 {
            return Err(SdrError::ImmediatesOff.into());
        }
        Ok(Terms {
            exact_length: options.exact_length,
            immediate: options.immediate,
            scheme: options.scheme,
            accepts_partial: options.accept_partial,
            answers_read: false,
        })
    }

    /// Returns the only offer that a posted receive can get, if that is known.
    fn foreseen(&self, message: u64) -> Option<Offered> {
        let recv = self.recv.open.get(&message)?;
        // A read may be refused, and only its offer says so.
        if recv.terms.answers_read {
            return None;
        }
        let scheme = recv.terms.scheme.filter(|tag| *tag != SchemeTag::NONE)?;
        let (length, has_immediate) = (recv.target.length(), recv.terms.immediate);
        // Packets without bytes count only after the offer (P3.7).
        let has_empty_packets = self.geometry().has_empty_packets(length, has_immediate);
        // The offer names the critical chunks.
        let is_known =
            recv.terms.exact_length && !has_empty_packets && recv.expected_critical.is_none();
        is_known.then_some(Offered {
            message,
            length: Some(length),
            scheme,
            critical: CriticalChunks::NONE,
            has_immediate,
        })
    }

    /// Prepares for what is known of a posted receive: records whether its offer is foreseen, and
    /// provides memory for parity.
    pub(in crate::pair) fn foresee<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        known: &Registry,
        message: u64,
    ) -> Result<(), Error> {
        if self.foreseen(message).is_some() {
            self.recv.foreseen.insert(message);
        }
        let Some(recv) = self.recv.open.get(&message) else {
            return Ok(());
        };
        let scheme = recv.terms.scheme.unwrap_or(self.recv.expected);
        if let Some(layout) = self.layout(known, scheme, recv.target.length()) {
            self.provide_parity(fabric, message, &layout)?;
        }
        Ok(())
    }

    /// Starts the schemes of foreseen receives up to message `newest`. A packet of `newest` has
    /// arrived, so the sender has started `newest` and all messages before it. The schemes need not
    /// wait for the offers.
    pub(in crate::pair) fn begin_foreseen<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        known: &Registry,
        now_ns: u64,
        newest: u64,
    ) -> Result<(), Error> {
        while let Some(&message) = self.recv.foreseen.first()
            && message <= newest
        {
            self.recv.foreseen.pop_first();
            if let Some(offered) = self.foreseen(message) {
                self.begin_recv(fabric, known, now_ns, &offered)?;
            }
        }
        Ok(())
    }
}
