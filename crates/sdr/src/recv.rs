//! The receiving half of a queue pair: posted receives, offers, and their ends.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use farwrite_wire::control::{
    ClearToSend, Clearance, Control, Offer, Outcome, Place, Terms, parity_of,
};

use crate::bitmap::ChunkBitmap;
use crate::clearing::Clearing;
use crate::ends::Ends;
use crate::error::{SdrError, Violation};
use crate::event::{Event, Refusal};
use crate::geometry::Geometry;
use crate::offer;
use crate::repeat::Waits;
use crate::slot::Extent;
use crate::table::SlotTable;
use crate::terms::{self, Described};

/// Where the next receive goes; the memory must be bound there before it is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvPlace {
    /// Number of the message.
    pub message: u64,
    /// Slot of the root key.
    pub slot: u32,
    /// Which generation's root key and queue pairs.
    pub generation: u8,
}

/// The newest receive of a slot.
#[derive(Clone, Copy)]
struct Posted {
    message: u64,
    open: bool,
    clearance: Clearance,
    offer: Option<Offer>,
}

pub(crate) struct RecvHalf {
    geometry: Geometry,
    table: Arc<SlotTable>,
    /// Receives posted so far: the number of the next.
    next: u64,
    /// By slot.
    posted: Box<[Option<Posted>]>,
    /// Offers for messages `next..next + slots`, by slot.
    ahead: Box<[Option<Offer>]>,
    ends: Ends,
    /// One past the highest message offered.
    offered: u64,
    /// Messages `0..settled` have a known length or are over.
    settled: u64,
    clearing: Clearing,
}

impl RecvHalf {
    pub(crate) fn new(geometry: Geometry, table: Arc<SlotTable>) -> Self {
        let slots = geometry.slots() as usize;
        Self {
            posted: (0..slots).map(|_| None).collect(),
            ahead: (0..slots).map(|_| None).collect(),
            ends: Ends::new(slots),
            next: 0,
            offered: 0,
            settled: 0,
            clearing: Clearing::default(),
            geometry,
            table,
        }
    }

    fn place(&self, message: u64) -> RecvPlace {
        RecvPlace {
            message,
            slot: self.geometry.slot(message),
            generation: self.geometry.generation(message),
        }
    }

    fn index(&self, message: u64) -> usize {
        self.geometry.slot(message) as usize
    }

    fn posted(&self, message: u64) -> Option<&Posted> {
        let posted = self.posted.get(self.index(message))?.as_ref();
        posted.filter(|posted| posted.message == message)
    }

    fn open_mut(&mut self, message: u64) -> Option<&mut Posted> {
        let index = self.index(message);
        let posted = self.posted.get_mut(index)?.as_mut();
        posted.filter(|posted| posted.message == message && posted.open)
    }

    pub(crate) fn is_open(&self, message: u64) -> bool {
        self.posted(message).is_some_and(|posted| posted.open)
    }

    pub(crate) fn next_place(&self) -> Result<RecvPlace, SdrError> {
        let slot = self.posted.get(self.index(self.next));
        if slot.copied().flatten().is_some_and(|posted| posted.open) {
            return Err(SdrError::Retry("a receive is posted in every message slot"));
        }
        // An offer or a packet of the slot's last message says that its sender is done with the
        // one before that: so what is late is late in the network, not at the sender (P3.6).
        let last = self.next.checked_sub(self.geometry.slots().into());
        if last.is_some_and(|last| last >= self.offered && self.table.packets(last) == 0) {
            return Err(SdrError::Retry(
                "the last message of this slot is not offered yet",
            ));
        }
        Ok(self.place(self.next))
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
                place: place.message,
                next: next.message,
            });
        }
        let Place { rkey, base, length } = self.check_place(target)?;
        if terms.immediate && self.geometry.fragments() == 0 {
            return Err(SdrError::ImmediatesOff);
        }
        let message = place.message;
        self.table.open(message, length);
        if let Some(extent) = terms::extent(&self.geometry, &terms, length) {
            let set = self.table.set_extent(message, extent);
            debug_assert!(set.is_ok(), "packets in a slot that was just opened");
        }
        let posted = Posted {
            message,
            open: true,
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
        let index = self.index(message);
        if let Some(slot) = self.posted.get_mut(index) {
            *slot = Some(posted);
        }
        self.next += 1;
        self.clearing.posted();
        let early = self.ahead.get_mut(index).and_then(Option::take);
        if let Some(offer) = early {
            self.take_offer(None, offer, events);
        }
        Ok(ChunkBitmap::new(self.table.clone(), message))
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

    /// Where the parity of a message goes.
    pub(crate) fn parity_place(&self, message: u64) -> Result<RecvPlace, SdrError> {
        if !self.geometry.config().parity {
            return Err(SdrError::ParityOff);
        }
        Ok(self.place(parity_of(message)))
    }

    pub(crate) fn post_parity(&mut self, message: u64, target: Place) -> Result<(), SdrError> {
        self.parity_place(message)?;
        let target = self.check_place(target)?;
        let posted = self
            .open_mut(message)
            .ok_or(SdrError::UnknownMessage(message))?;
        if posted.clearance.parity.is_some() {
            return Err(SdrError::ParityPosted(message));
        }
        posted.clearance.parity = Some(target);
        self.table.open(parity_of(message), target.length);
        self.clearing.tell(message);
        Ok(())
    }

    pub(crate) fn expect_parity(&mut self, message: u64, length: u64) -> Result<(), SdrError> {
        let posted = self
            .open_mut(message)
            .ok_or(SdrError::UnknownMessage(message))?;
        let max = posted.clearance.parity.map_or(0, |place| place.length);
        if length > max {
            return Err(SdrError::TooLong { length, max });
        }
        let extent = Extent {
            length,
            has_immediate: false,
        };
        let set = self.table.set_extent(parity_of(message), extent);
        set.map_err(|_| SdrError::TooLong { length, max })
    }

    pub(crate) fn complete(
        &mut self,
        message: u64,
        outcome: Outcome,
    ) -> Result<RecvPlace, SdrError> {
        let posted = self
            .open_mut(message)
            .ok_or(SdrError::UnknownMessage(message))?;
        posted.open = false;
        let has_parity = posted.clearance.parity.is_some();
        self.table.close(message);
        if has_parity {
            self.table.close(parity_of(message));
        }
        self.ends.add(message, outcome);
        self.settle();
        Ok(self.place(message))
    }

    pub(crate) fn immediate(&self, message: u64) -> Result<u32, SdrError> {
        if self.geometry.fragments() == 0 {
            return Err(SdrError::ImmediatesOff);
        }
        let posted = self
            .posted(message)
            .ok_or(SdrError::UnknownMessage(message))?;
        let terms = posted.clearance.terms;
        let demanded = terms.exact_length.then_some(terms.immediate);
        match posted
            .offer
            .map_or(demanded, |offer| Some(offer.has_immediate))
        {
            None => Err(SdrError::Retry("the message is not offered yet")),
            Some(false) => Err(SdrError::NoImmediate(message)),
            Some(true) => self
                .table
                .immediate(message)
                .ok_or(SdrError::Retry("the user immediate is not whole yet")),
        }
    }

    /// Says a message's end again, if it is over.
    pub(crate) fn late(&mut self, message: u64) {
        self.ends.ask(message);
    }

    pub(crate) fn handle_offer(
        &mut self,
        answer_ns: u64,
        offer: &Offer,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Violation> {
        let message = offer.message;
        offer::check(&self.geometry, self.next, offer)?;
        self.offered = self.offered.max(message + 1);
        self.clearing.sender_holds(offer.cleared.min(self.next));
        let unposted = message >= self.next;
        let index = self.index(message);
        let known = if unposted {
            self.ahead.get(index).copied().flatten()
        } else {
            let Some(posted) = self.open_mut(message) else {
                self.late(message);
                return Ok(());
            };
            posted.offer
        };
        if let Some(offer) = offer::merge(known.as_ref(), offer)? {
            if !unposted {
                self.take_offer(known, offer, events);
            } else if let Some(ahead) = self.ahead.get_mut(index) {
                *ahead = Some(offer);
            }
        }
        self.settle();
        if message < self.settled {
            self.clearing.answer(answer_ns);
        }
        if !unposted && offer.cleared <= message {
            self.clearing.pull(offer.cleared);
        }
        Ok(())
    }

    /// Puts a new or changed offer to its open receive.
    fn take_offer(&mut self, known: Option<Offer>, offer: Offer, events: &mut VecDeque<Event>) {
        let message = offer.message;
        let table = self.table.clone();
        let geometry = self.geometry;
        let Some(posted) = self.open_mut(message) else {
            return;
        };
        posted.offer = Some(offer);
        let mut fits = terms::check(&posted.clearance, &Described::from(&offer));
        if let (Ok(()), None, Some(length)) = (fits, offer.withdrawn, offer.length) {
            let extent = Extent {
                length,
                has_immediate: offer.has_immediate,
            };
            let packets = geometry.packets(length, offer.has_immediate);
            let set = table.set_extent(message, extent);
            fits = set.map_err(|seen| Refusal::Contradicted { packets, seen });
        }
        if let Err(refusal) = fits {
            events.push_back(Event::Refused { message, refusal });
            return;
        }
        if let Some(withdrawal) = offer.withdrawn {
            events.push_back(Event::Withdrawn {
                message,
                withdrawal,
            });
            return;
        }
        events.push_back(match (known, offer.length) {
            (Some(_), Some(length)) => Event::LengthKnown { message, length },
            (_, length) => Event::Offered {
                message,
                length,
                scheme: offer.scheme,
                has_immediate: offer.has_immediate,
            },
        });
    }

    /// Moves `settled` on.
    fn settle(&mut self) {
        let slots = u64::from(self.geometry.slots());
        while self.settled < self.next + slots {
            let message = self.settled;
            let offer = if message >= self.next {
                self.ahead.get(self.index(message)).copied().flatten()
            } else {
                match self.posted(message) {
                    Some(posted) if posted.open => posted.offer,
                    _ => {
                        self.settled += 1;
                        continue;
                    }
                }
            };
            if offer.is_none_or(|offer| offer.length.is_none()) {
                break;
            }
            self.settled += 1;
        }
    }

    pub(crate) fn poll(&mut self, now_ns: u64, waits: &Waits) -> Option<Control> {
        self.ends
            .poll(now_ns, waits)
            .or_else(|| self.poll_clearance(now_ns, waits))
    }

    fn poll_clearance(&mut self, now_ns: u64, waits: &Waits) -> Option<Control> {
        let Self { next, .. } = *self;
        let oldest = next.saturating_sub(self.geometry.slots().into());
        let (posted, geometry, table) = (&self.posted, &self.geometry, &self.table);
        let entry = |message: u64| {
            let entry = posted.get(geometry.slot(message) as usize)?.as_ref()?;
            (entry.message == message).then_some(entry)
        };
        // Whoever writes into a buffer, or was told that it is gone, knows of it.
        let is_known = |m: u64| entry(m).is_none_or(|e| !e.open) || table.packets(m) > 0;
        let range = self.clearing.poll(now_ns, waits, oldest..next, is_known)?;
        Some(Control::ClearToSend(ClearToSend {
            posted: next,
            offers: self.settled,
            first: range.start,
            clearances: range.map_while(|m| Some(entry(m)?.clearance)).collect(),
        }))
    }

    pub(crate) fn next_timeout(&self) -> Option<u64> {
        let clearing = self.clearing.next_timeout(self.next);
        self.ends.next_timeout().into_iter().chain(clearing).min()
    }
}
