//! The sending half of a queue pair: started sends, their offers and clearances.

use alloc::collections::VecDeque;

use farwrite_wire::control::{
    ClearToSend, Clearance, Control, MessageId, Offer, Outcome, Withdrawal,
};

use crate::clearances::{self, RepeatWaits};
use crate::error::{Awaited, SdrError, Violation};
use crate::event::Event;
use crate::geometry::Geometry;
use crate::message_send::{MessageSend, Room, SendSpec, Stage, adds_parity};
use crate::offer::{self, Described};
use crate::sparse::Sparse;
use crate::timers::Timers;
use crate::writes::PacketWrites;

pub(crate) struct SendHalf {
    geometry: Geometry,
    /// Number of sends started so far, which is the number of the next one.
    next: u64,
    /// Sends that have not ended.
    sends: Sparse<u64, MessageSend>,
    /// Clearances of messages from `next` on, which have not started.
    ahead: Sparse<u64, Clearance>,
    /// The most receives that the peer is known to have posted.
    posted: u64,
    /// All clearances of messages `0..cleared` have arrived, or are no longer needed.
    cleared: u64,
    /// The peer knows the lengths of messages `0..answered`.
    answered: u64,
    /// When to send the offer of each send again.
    timers: Timers,
}

impl SendHalf {
    pub(crate) fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            next: 0,
            sends: Sparse::new(),
            ahead: Sparse::new(),
            posted: 0,
            cleared: 0,
            answered: 0,
            timers: Timers::new(),
        }
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    fn remove(&mut self, message: u64) -> Option<MessageSend> {
        let sending = self.sends.remove(message)?;
        self.timers.remove(message);
        Some(sending)
    }

    pub(crate) fn start(
        &mut self,
        spec: SendSpec,
        events: &mut VecDeque<Event>,
    ) -> Result<u64, SdrError> {
        let max = self.geometry.config().max_message_bytes;
        let mut lengths = spec.length.into_iter().chain([spec.parity_bytes]);
        if let Some(length) = lengths.find(|&length| length > max) {
            return Err(SdrError::TooLong { length, max });
        }
        if spec.parity_bytes > 0 && !self.geometry.config().parity {
            return Err(SdrError::ParityOff);
        }
        if spec.immediate.is_some() && self.geometry.fragments() == 0 {
            return Err(SdrError::ImmediatesOff);
        }
        let chunks = spec.length.map_or(0, |length| {
            self.geometry.chunks(length, spec.immediate.is_some())
        });
        let end = spec.critical.end();
        if end > chunks {
            return Err(SdrError::CriticalOutOfRange { end, chunks });
        }
        let message = self.next;
        let last = message.checked_sub(self.geometry.slots().into());
        if last.is_some_and(|last| self.sends.contains(last)) {
            return Err(Awaited::SendSlot.into());
        }
        let sending = MessageSend {
            spec,
            streaming: spec.length.is_none(),
            stage: Stage::Active,
            clearance: Room::Awaited,
            parity: match spec.parity_bytes {
                0 => Room::Never,
                _ => Room::Awaited,
            },
            answered: false,
            offer_known: false,
            heard_ns: 0,
            interval_ns: None,
        };
        self.sends.insert(message, sending);
        self.next += 1;
        self.timers.set(message, 0);
        if let Some(clearance) = self.ahead.remove(message) {
            self.clear(message, &clearance, events);
        }
        Ok(message)
    }

    /// Lets a send write, if its message matches the clearance.
    fn clear(&mut self, message: u64, clearance: &Clearance, events: &mut VecDeque<Event>) {
        let Some(sending) = self.sends.get_mut(message) else {
            return;
        };
        if sending.stage != Stage::Active {
            return;
        }
        if sending.clearance.known().is_none() {
            let described = Described {
                length: sending.spec.length,
                has_immediate: sending.spec.immediate.is_some(),
                scheme: sending.spec.scheme,
                answers_read: sending.spec.answers_read,
            };
            if let Err(refusal) = offer::check_fit(clearance, &described) {
                sending.clearance = Room::Never;
                events.push_back(Event::SendRefused { message, refusal });
                return;
            }
            sending.clearance = Room::Known(*clearance);
            if sending.is_writable() {
                let message = message.into();
                events.push_back(Event::ClearToSend { message });
            }
        }
        sending.clearance = Room::Known(*clearance);
        let needed = sending.spec.parity_bytes;
        if sending.parity == Room::Awaited
            && let Some(place) = clearance.parity.filter(|place| place.length >= needed)
        {
            sending.parity = Room::Known(place);
            let message = MessageId::new(message).parity();
            events.push_back(Event::ClearToSend { message });
        }
    }

    fn active(&self, message: u64) -> Option<&MessageSend> {
        let sending = self.sends.get(message)?;
        (sending.stage == Stage::Active).then_some(sending)
    }

    pub(crate) fn is_active(&self, message: u64) -> bool {
        self.active(message).is_some()
    }

    pub(crate) fn is_clear(&self, message: MessageId) -> bool {
        self.active(message.data())
            .is_some_and(|sending| sending.place(message).is_some())
    }

    pub(crate) fn window_bytes(&self, message: u64) -> Option<u64> {
        let place = self.active(message)?.place(message.into())?;
        Some(place.length)
    }

    pub(crate) fn accepts_partial(&self, message: u64) -> bool {
        self.active(message)
            .is_some_and(MessageSend::accepts_partial)
    }

    pub(crate) fn writes(&self, message: MessageId, chunks: core::ops::Range<u32>) -> PacketWrites {
        let cleared = self
            .active(message.data())
            .and_then(|sending| Some((sending, sending.place(message)?)));
        cleared.map_or_else(
            || PacketWrites::none(self.geometry),
            |(sending, place)| {
                let (length, immediate) = if message.is_parity() {
                    (Some(sending.spec.parity_bytes), None)
                } else {
                    (sending.spec.length, sending.spec.immediate)
                };
                PacketWrites::new(self.geometry, message, place, length, immediate, chunks)
            },
        )
    }

    pub(crate) fn end(&mut self, message: u64, length: u64) -> Result<(), SdrError> {
        let limit = self.geometry.config().max_message_bytes;
        let sending = self
            .sends
            .get_mut(message)
            .filter(|sending| sending.stage == Stage::Active)
            .ok_or(SdrError::UnknownMessage(message))?;
        match sending.spec.length {
            Some(known) if known == length => return Ok(()),
            Some(length) => return Err(SdrError::LengthSet { message, length }),
            None => {}
        }
        let max = sending
            .clearance
            .known()
            .map_or(limit, |clearance| clearance.length);
        if length > max {
            return Err(SdrError::TooLong { length, max });
        }
        sending.spec.length = Some(length);
        sending.interval_ns = None;
        self.timers.set(message, 0);
        Ok(())
    }

    pub(crate) fn close(&mut self, message: u64, outcome: Outcome) {
        let Some(sending) = self.sends.get_mut(message) else {
            return;
        };
        if sending.stage != Stage::Active {
            return;
        }
        let complete = sending.spec.length.is_some() && sending.clearance.known().is_some();
        let withdrawal = match outcome {
            Outcome::Whole if complete => None,
            Outcome::Partial if sending.accepts_partial() => Some(Withdrawal::Expired),
            _ => Some(Withdrawal::GivenUp),
        };
        if let Some(withdrawal) = withdrawal {
            self.withdraw(message, withdrawal);
        } else if sending.answered {
            self.remove(message);
        } else {
            sending.stage = Stage::Done;
        }
    }

    /// Ends an active send. Its offers then name the reason to the receiver.
    pub(crate) fn withdraw(&mut self, message: u64, withdrawal: Withdrawal) {
        let sending = self.sends.get_mut(message);
        if let Some(sending) = sending.filter(|sending| sending.stage == Stage::Active) {
            sending.stage = Stage::Withdrawn(withdrawal);
            sending.interval_ns = None;
            self.timers.set(message, 0);
        }
    }

    pub(crate) fn handle_clear_to_send(
        &mut self,
        now_ns: u64,
        cts: &ClearToSend,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Violation> {
        clearances::check_clearances(&self.geometry, self.next, cts)?;
        for (message, clearance) in (cts.first..).zip(&cts.clearances) {
            self.take_clearance(now_ns, message, clearance, events);
            if message < cts.offers {
                self.note_offer_known(message, events);
            }
        }
        self.posted = self.posted.max(cts.posted);
        // Messages whose slot is posted again have ended: the receiver does not clear them again.
        let slots = u64::from(self.geometry.slots());
        self.cleared = self.cleared.max(self.posted.saturating_sub(slots));
        let oldest = self.next.saturating_sub(slots);
        for message in self.answered.max(oldest)..cts.offers {
            self.answer(now_ns, message);
        }
        self.answered = self.answered.max(cts.offers);
        Ok(())
    }

    /// The receiver had the offer of a message when it sent a clearance of it.
    fn note_offer_known(&mut self, message: u64, events: &mut VecDeque<Event>) {
        let Some(sending) = self.sends.get_mut(message) else {
            return;
        };
        // Such a receiver has posted all the memory for parity that it will (P3.11).
        if sending.parity == Room::Awaited {
            sending.parity = Room::Never;
        }
        let could_write = sending.is_writable();
        sending.offer_known = true;
        if sending.stage == Stage::Active && sending.is_writable() && !could_write {
            let message = message.into();
            events.push_back(Event::ClearToSend { message });
        }
    }

    /// Keeps a clearance for later, or lets its send write. Later copies of a clearance have no
    /// effect.
    fn take_clearance(
        &mut self,
        now_ns: u64,
        message: u64,
        clearance: &Clearance,
        events: &mut VecDeque<Event>,
    ) {
        let known = if message >= self.next {
            self.ahead.get(message)
        } else {
            match self.sends.get(message) {
                Some(sending) if sending.clearance != Room::Never => sending.clearance.known(),
                // A message that has ended, or cannot be written there, needs no clearance.
                _ => return,
            }
        };
        if known.is_some_and(|known| !adds_parity(known, clearance)) {
            return;
        }
        if message >= self.next {
            self.ahead.insert(message, *clearance);
        } else {
            self.hear(now_ns, message);
            self.clear(message, clearance, events);
        }
    }

    /// Advances `cleared`.
    fn count_cleared(&mut self) {
        while self.has_clearance(self.cleared) {
            self.cleared += 1;
        }
    }

    /// Returns whether the clearance of a message has arrived, or is no longer needed.
    fn has_clearance(&self, message: u64) -> bool {
        if message >= self.next {
            return self.ahead.contains(message);
        }
        let sending = self.sends.get(message);
        sending.is_none_or(|sending| !sending.awaits_clearance())
    }

    /// The receiver knows the offer of a message.
    fn answer(&mut self, now_ns: u64, message: u64) {
        self.hear(now_ns, message);
        let Some(sending) = self.sends.get_mut(message) else {
            return;
        };
        sending.answered = true;
        if sending.stage == Stage::Done {
            self.remove(message);
        }
    }

    fn hear(&mut self, now_ns: u64, message: u64) {
        if let Some(sending) = self.sends.get_mut(message) {
            sending.heard_ns = now_ns;
        }
    }

    /// Handles a report on a message: the receiver runs its scheme, so it has received an offer.
    pub(crate) fn handle_report(&mut self, now_ns: u64, message: u64) {
        match self.sends.get(message) {
            Some(sending) if sending.streaming => self.hear(now_ns, message),
            Some(_) => self.answer(now_ns, message),
            None => {}
        }
    }

    pub(crate) fn handle_receive_complete(
        &mut self,
        message: u64,
        outcome: Outcome,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Violation> {
        let limit = clearances::most_posted(&self.geometry, self.next);
        if message >= limit {
            return Err(Violation::MessageOutOfRange { message, limit });
        }
        // The event of a refusal that came before says how this message ends.
        let was_open = |sending: MessageSend| {
            sending.stage == Stage::Active && sending.clearance != Room::Never
        };
        if self.remove(message).is_some_and(was_open) {
            events.push_back(Event::Closed { message, outcome });
        }
        Ok(())
    }

    pub(crate) fn poll(&mut self, now_ns: u64, waits: &RepeatWaits) -> Option<Control> {
        self.count_cleared();
        while let Some(message) = self.timers.due(now_ns) {
            let mut cleared = self.cleared;
            let Some(sending) = self.sends.get_mut(message) else {
                self.timers.remove(message);
                continue;
            };
            let quiet_ns = sending.heard_ns.saturating_add(waits.longest_ns);
            if sending.is_settled() && now_ns < quiet_ns {
                self.timers.set(message, quiet_ns);
                continue;
            }
            let wait_ns = waits.after_ns(sending.interval_ns);
            sending.interval_ns = Some(wait_ns);
            if sending.awaits_repeat() {
                // This makes the receiver repeat the clearance of this message.
                cleared = cleared.min(message);
            }
            let offer = Offer {
                message,
                length: sending.spec.length,
                has_immediate: sending.spec.immediate.is_some(),
                scheme: sending.spec.scheme,
                critical: sending.spec.critical,
                cleared,
                withdrawn: match sending.stage {
                    Stage::Withdrawn(withdrawal) => Some(withdrawal),
                    Stage::Active | Stage::Done => None,
                },
                answers_read: sending.spec.answers_read,
            };
            let again_ns = now_ns.saturating_add(wait_ns);
            self.timers.set(message, again_ns);
            return Some(Control::Offer(offer));
        }
        None
    }

    /// Whether a message that was started is over, so that it is offered no more.
    pub(crate) fn is_over(&self, message: u64) -> bool {
        !self.sends.contains(message)
    }

    /// All clearances of messages up to the returned one have arrived, or are no longer needed.
    pub(crate) fn cleared(&mut self) -> u64 {
        self.count_cleared();
        self.cleared
    }

    pub(crate) fn next_timeout(&self) -> Option<u64> {
        self.timers.next_ns()
    }
}
