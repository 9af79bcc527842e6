//! The receiving half of a queue pair: posted receives, offers, and their ends.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use farwrite_wire::control::{
    ClearToSend, Clearance, Control, MessageId, Offer, Outcome, Place, Terms, Withdrawal,
};

use crate::bitmap::ChunkBitmap;
use crate::clearances::{Clearances, RepeatWaits};
use crate::ended_receives::EndedReceives;
use crate::error::{Awaited, SdrError, Violation};
use crate::event::{Event, Offered, Refusal};
use crate::geometry::Geometry;
use crate::memory::Extent;
use crate::offer::{self, Described};
use crate::received::Received;
use crate::sparse::Sparse;
use crate::table::SlotTable;

/// The place of the next receive. Its memory must be bound there before it is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvPlace {
    /// The message, or the parity message.
    pub message: MessageId,
    /// Slot of the root key.
    pub slot: u32,
    /// The generation, which determines the root key and the queue pairs.
    pub generation: u8,
}

/// An open receive.
struct Posted {
    clearance: Clearance,
    offer: Option<Offer>,
}

pub(crate) struct RecvHalf {
    geometry: Geometry,
    table: Arc<SlotTable>,
    pub(crate) received: Received,
    /// Number of receives posted so far, which is the number of the next one.
    next: u64,
    /// Open receives.
    posted: Sparse<u64, Posted>,
    /// Offers for messages `next..next + slots`.
    ahead: Sparse<u64, Offer>,
    ended: EndedReceives,
    /// An end that follows what its sender learns first.
    held_end: Option<Control>,
    /// One past the highest message that the sender is known to have started.
    started: u64,
    /// Messages `0..settled` have a known length or have ended.
    settled: u64,
    clearances: Clearances,
}

impl RecvHalf {
    pub(crate) fn new(geometry: Geometry, table: Arc<SlotTable>) -> Self {
        Self {
            received: Received::new(table.clone()),
            posted: Sparse::new(),
            ahead: Sparse::new(),
            ended: EndedReceives::new(geometry.slots()),
            held_end: None,
            next: 0,
            started: 0,
            settled: 0,
            clearances: Clearances::default(),
            geometry,
            table,
        }
    }

    fn place(&self, message: MessageId) -> RecvPlace {
        RecvPlace {
            message,
            slot: self.geometry.slot(message),
            generation: self.geometry.generation(message),
        }
    }

    fn open_mut(&mut self, message: u64) -> Result<&mut Posted, SdrError> {
        let posted = self.posted.get_mut(message);
        posted.ok_or(SdrError::UnknownMessage(message))
    }

    pub(crate) fn is_open(&self, message: u64) -> bool {
        self.posted.contains(message)
    }

    pub(crate) fn next_place(&self) -> Result<RecvPlace, SdrError> {
        if let Some(last) = self.next.checked_sub(self.geometry.slots().into()) {
            if self.is_open(last) {
                return Err(Awaited::RecvSlot.into());
            }
            // A sender that has started the slot's last message is done with the one before that:
            // so what is late is late in the network, not at the sender (P3.6).
            let has_begun =
                last < self.started || (last..self.next).any(|m| self.received.seen(m) > 0);
            if !has_begun {
                return Err(Awaited::LastOffer.into());
            }
        }
        Ok(self.place(self.next.into()))
    }

    pub(crate) fn post(
        &mut self,
        place: RecvPlace,
        target: Place,
        terms: Terms,
        events: &mut VecDeque<Event>,
    ) -> Result<ChunkBitmap, SdrError> {
        let next = self.next_place()?;
        if place != next {
            return Err(SdrError::StalePlace {
                place: place.message.data(),
                next: next.message.data(),
            });
        }
        let Place { rkey, base, length } = self.check_place(target)?;
        if terms.immediate && self.geometry.fragments() == 0 {
            return Err(SdrError::ImmediatesOff);
        }
        let memory = self.received.post(place.message, length);
        if let Some(extent) = offer::extent(&self.geometry, &terms, length) {
            let set = self.received.set_extent(place.message, extent);
            debug_assert!(set.is_ok(), "packets in a slot that was just opened");
        }
        let posted = Posted {
            clearance: Clearance {
                generation: place.generation,
                rkey,
                base,
                length,
                parity: None,
                terms,
            },
            offer: None,
        };
        let message = self.next;
        self.posted.insert(message, posted);
        self.next += 1;
        self.table.set_posted(self.next);
        self.ended.post();
        self.clearances.posted();
        if let Some(offer) = self.ahead.remove(message) {
            self.take_offer(None, offer, events);
        }
        Ok(ChunkBitmap::new(memory))
    }

    fn check_place(&self, target: Place) -> Result<Place, SdrError> {
        let max = self.geometry.config().max_message_bytes;
        let Place { base, length, .. } = target;
        if length > max {
            return Err(SdrError::TooLong { length, max });
        }
        if base.checked_add(length).is_none() {
            return Err(SdrError::BadTarget { base, length });
        }
        Ok(target)
    }

    pub(crate) fn parity_place(&self, message: u64) -> Result<RecvPlace, SdrError> {
        if !self.geometry.config().parity {
            return Err(SdrError::ParityOff);
        }
        Ok(self.place(MessageId::new(message).parity()))
    }

    pub(crate) fn post_parity(&mut self, message: u64, target: Place) -> Result<(), SdrError> {
        let place = self.parity_place(message)?;
        let target = self.check_place(target)?;
        let posted = self.open_mut(message)?;
        if posted.clearance.parity.is_some() {
            return Err(SdrError::ParityPosted(message));
        }
        posted.clearance.parity = Some(target);
        self.received.post(place.message, target.length);
        self.clearances.send_from(message);
        Ok(())
    }

    pub(crate) fn expect_parity(&mut self, message: u64, length: u64) -> Result<(), SdrError> {
        let posted = self.open_mut(message)?;
        let max = posted.clearance.parity.map_or(0, |place| place.length);
        if length > max {
            return Err(SdrError::TooLong { length, max });
        }
        let extent = Extent {
            length,
            has_immediate: false,
        };
        let parity = MessageId::new(message).parity();
        let set = self.received.set_extent(parity, extent);
        set.map_err(|_| SdrError::TooLong { length, max })
    }

    pub(crate) fn complete(
        &mut self,
        message: u64,
        outcome: Outcome,
    ) -> Result<RecvPlace, SdrError> {
        let posted = self.posted.remove(message);
        posted.ok_or(SdrError::UnknownMessage(message))?;
        let data = MessageId::new(message);
        self.received.close(data);
        self.received.close(data.parity());
        if self.received.seen(message) > 0 {
            self.started = self.started.max(message + 1);
        }
        self.ended.add(message, outcome);
        self.settle();
        Ok(self.place(data))
    }

    pub(crate) fn immediate(&self, message: u64) -> Result<u32, SdrError> {
        if self.geometry.fragments() == 0 {
            return Err(SdrError::ImmediatesOff);
        }
        let posted = self.posted.get(message);
        let posted = posted.ok_or(SdrError::UnknownMessage(message))?;
        let terms = posted.clearance.terms;
        let demanded = terms.exact_length.then_some(terms.immediate);
        match posted
            .offer
            .map_or(demanded, |offer| Some(offer.has_immediate))
        {
            None => Err(Awaited::Offer.into()),
            Some(false) => Err(SdrError::NoImmediate(message)),
            Some(true) => self
                .received
                .immediate(message)
                .ok_or(Awaited::Immediate.into()),
        }
    }

    /// Queues a message's end to be sent again, if the message has ended.
    pub(crate) fn late(&mut self, message: u64) {
        self.ended.ask(message);
    }

    pub(crate) fn handle_offer(
        &mut self,
        answer_ns: u64,
        offer: &Offer,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Violation> {
        let message = offer.message;
        offer::check_offer(&self.geometry, self.next, offer)?;
        self.started = self.started.max(message + 1);
        self.clearances.sender_holds(offer.cleared.min(self.next));
        let unposted = message >= self.next;
        let known = if unposted {
            self.ahead.get(message).copied()
        } else {
            let Some(posted) = self.posted.get(message) else {
                self.late(message);
                return Ok(());
            };
            posted.offer
        };
        if let Some(offer) = offer::merge(known.as_ref(), offer)? {
            if unposted {
                self.ahead.insert(message, offer);
            } else {
                self.take_offer(known, offer, events);
            }
        }
        self.settle();
        if message < self.settled {
            self.clearances.answer(answer_ns);
        }
        if !unposted && offer.cleared <= message {
            self.clearances.pull(offer.cleared);
        }
        Ok(())
    }

    /// Applies a new or changed offer to its open receive.
    fn take_offer(&mut self, known: Option<Offer>, offer: Offer, events: &mut VecDeque<Event>) {
        let message = offer.message;
        let Some(posted) = self.posted.get_mut(message) else {
            return;
        };
        posted.offer = Some(offer);
        let mut fits = offer::check_fit(&posted.clearance, &Described::from(&offer));
        if fits.is_err() && !self.clearances.is_held(message) {
            self.ended.refuse(message, posted.clearance);
        }
        let is_given_up = offer
            .withdrawn
            .is_some_and(|why| why != Withdrawal::Expired);
        if let (Ok(()), false, Some(length)) = (fits, is_given_up, offer.length) {
            let extent = Extent {
                length,
                has_immediate: offer.has_immediate,
            };
            let packets = self.geometry.packets(length, offer.has_immediate);
            let set = self.received.set_extent(message.into(), extent);
            fits = set.map_err(|seen| Refusal::Contradicted { packets, seen });
        }
        if let Err(refusal) = fits {
            events.push_back(Event::Refused { message, refusal });
            return;
        }
        // Report a message that expired as well: its receiver keeps what has arrived.
        let is_news = known.is_none_or(|known| known.length != offer.length);
        if is_news && !is_given_up {
            events.push_back(match (known, offer.length) {
                (Some(_), Some(length)) => Event::LengthKnown { message, length },
                (_, length) => Event::Offered(Offered {
                    message,
                    length,
                    scheme: offer.scheme,
                    critical: offer.critical,
                    has_immediate: offer.has_immediate,
                }),
            });
        }
        if let Some(withdrawal) = offer.withdrawn {
            events.push_back(Event::Withdrawn {
                message,
                withdrawal,
            });
        }
    }

    /// Returns whether the sender is known to have started a message.
    pub(crate) fn is_started(&self, message: u64) -> bool {
        message < self.started || self.received.seen(message) > 0
    }

    /// Returns whether the sender is known to hold the clearance of a message.
    pub(crate) fn sender_holds_clearance(&self, message: u64) -> bool {
        self.clearances.is_held(message) || self.received.seen(message) > 0
    }

    fn settle(&mut self) {
        let slots = u64::from(self.geometry.slots());
        while self.settled < self.next + slots {
            let message = self.settled;
            let offer = if message >= self.next {
                self.ahead.get(message).copied()
            } else {
                let Some(posted) = self.posted.get(message) else {
                    self.settled += 1;
                    continue;
                };
                posted.offer
            };
            if offer.is_none_or(|offer| offer.length.is_none()) {
                break;
            }
            self.settled += 1;
        }
    }

    pub(crate) fn poll(&mut self, now_ns: u64, waits: &RepeatWaits) -> Option<Control> {
        let slots = u64::from(self.geometry.slots());
        debug_assert!(self.settled <= self.next + slots, "offers beyond all slots");
        debug_assert!(
            self.posted
                .first()
                .is_none_or(|oldest| oldest + slots >= self.next)
        );
        self.held_end
            .take()
            .or_else(|| self.poll_end(now_ns, waits))
            .or_else(|| self.poll_clearance(now_ns, waits))
    }

    /// Returns the next end to send. The clearance of a message that did not fit comes first: its sender learns why.
    fn poll_end(&mut self, now_ns: u64, waits: &RepeatWaits) -> Option<Control> {
        let (message, outcome) = self.ended.poll(now_ns, waits)?;
        let end = Control::ReceiveComplete { message, outcome };
        let Some(clearance) = self.ended.misfit(message) else {
            return Some(end);
        };
        self.held_end = Some(end);
        Some(self.clear_to_send(message, vec![clearance]))
    }

    pub(crate) fn hasten_repeats(&mut self, now_ns: u64, waits: &RepeatWaits) {
        self.ended.hasten(now_ns, waits);
    }

    fn poll_clearance(&mut self, now_ns: u64, waits: &RepeatWaits) -> Option<Control> {
        let oldest = self.next.saturating_sub(self.geometry.slots().into());
        let (posted, received) = (&self.posted, &self.received);
        let is_open = |message| posted.contains(message);
        // A sender that writes into a buffer already holds its clearance.
        let is_known = |message| received.seen(message) > 0;
        let (range, started) = (oldest..self.next, self.started);
        let range = self
            .clearances
            .poll(now_ns, waits, range, started, is_open, is_known)?;
        let clearances = range.clone().map_while(|m| Some(posted.get(m)?.clearance));
        Some(self.clear_to_send(range.start, clearances.collect()))
    }

    fn clear_to_send(&self, first: u64, clearances: Vec<Clearance>) -> Control {
        Control::ClearToSend(ClearToSend {
            posted: self.next,
            offers: self.settled,
            first,
            clearances,
        })
    }

    pub(crate) fn next_timeout(&self) -> Option<u64> {
        if self.held_end.is_some() {
            return Some(0);
        }
        let clearing = self.clearances.next_timeout(self.next);
        self.ended.next_timeout().into_iter().chain(clearing).min()
    }
}
