//! A queue pair: both halves behind one interface.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::ops::Range;

use farwrite_wire::control::{Ack, Control, MessageId, Nack, Outcome, Place, Terms};
use farwrite_wire::timing::Timing;

use crate::bitmap::ChunkBitmap;
use crate::clearances::RepeatWaits;
use crate::config::{ConfigError, QpConfig};
use crate::error::{ConnectError, SdrError, Violation};
use crate::event::{Event, Offered};
use crate::geometry::Geometry;
use crate::info::QpInfo;
use crate::message_send::SendSpec;
use crate::reads::{PeerRequests, Requests};
use crate::received::Received;
use crate::recv_half::{RecvHalf, RecvPlace};
use crate::send_half::SendHalf;
use crate::table::SlotTable;
use crate::writes::PacketWrites;

/// Capacity for events that is always kept.
const KEPT_EVENTS: usize = 4;

/// The control state of an SDR queue pair: everything except the slot table. It has one owner.
///
/// After every call that can change something (`handle_*`, posting, starting, ending), poll in this
/// order: [`SdrQp::poll_event`] until `None`, [`SdrQp::poll_control`] until `None`, then arrange to
/// call `poll_control` again at [`SdrQp::next_timeout`]. An offer goes out with the first poll
/// after its send was started, so control packets sent before data keep it ahead of them.
///
/// ```
/// use farwrite_sdr::{ConfigError, Place, QpConfig, SdrQp, Terms, Timing};
/// use farwrite_wire::control::Control;
///
/// let mut receiver = SdrQp::new(QpConfig::default(), Timing::wide_area())?;
/// let place = receiver.next_recv().expect("all slots are free");
/// let memory = Place { rkey: 7, base: 0, length: 1 << 20 };
/// let bitmap = receiver.post_recv(place, memory, Terms::default()).expect("it fits");
/// assert_eq!((bitmap.message(), bitmap.count()), (0, 0));
/// // Nothing is sent before the peer is known.
/// assert_eq!(receiver.poll_control(0, 25_000_000), None::<Control>);
/// # Ok::<(), ConfigError>(())
/// ```
pub struct SdrQp {
    geometry: Geometry,
    table: Arc<SlotTable>,
    pub(crate) recv: RecvHalf,
    pub(crate) send: SendHalf,
    /// The reads that this end requests.
    pub(crate) requests: Requests,
    /// The reads that the peer requests.
    pub(crate) peer_requests: PeerRequests,
    events: VecDeque<Event>,
    connected: bool,
    timing: Timing,
    /// Computed from the last round trip passed in.
    waits: RepeatWaits,
}

impl SdrQp {
    /// Creates a queue pair with the given shape and timing.
    ///
    /// # Errors
    /// The first field of `config` or `timing` that is not valid.
    pub fn new(config: QpConfig, timing: Timing) -> Result<Self, ConfigError> {
        let geometry = config.validate()?;
        timing.validate()?;
        let table = Arc::new(SlotTable::new(geometry));
        Ok(Self {
            recv: RecvHalf::new(geometry, table.clone()),
            send: SendHalf::new(geometry),
            requests: Requests::new(),
            peer_requests: PeerRequests::new(),
            events: VecDeque::new(),
            connected: false,
            timing,
            waits: RepeatWaits::new(&timing, 0),
            geometry,
            table,
        })
    }

    /// The arithmetic of this queue pair.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The timing of this queue pair.
    #[must_use]
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// The part that receive workers share.
    #[must_use]
    pub fn table(&self) -> &Arc<SlotTable> {
        &self.table
    }

    /// What has arrived of the messages that are being received.
    #[must_use]
    pub fn received(&self) -> &Received {
        &self.recv.received
    }

    /// Checks that [`SdrQp::connect`] would succeed, and changes nothing.
    ///
    /// # Errors
    /// The first difference, with both values, or [`ConnectError::Connected`].
    pub fn check_peer(&self, peer: &QpInfo) -> Result<(), ConnectError> {
        if self.connected {
            return Err(ConnectError::Connected);
        }
        peer.check()?;
        ConnectError::compare(self.geometry.config(), &peer.config)?;
        ConnectError::compare_timing(&self.timing, &peer.timing)
    }

    /// Connects to the queue pair that `peer` describes. Receives may be posted before this call,
    /// but sends cannot be started before it.
    ///
    /// # Errors
    /// Those of [`SdrQp::check_peer`].
    pub fn connect(&mut self, peer: &QpInfo) -> Result<(), ConnectError> {
        self.check_peer(peer)?;
        self.connected = true;
        Ok(())
    }

    /// The place of the next receive. Bind its memory there, then call [`SdrQp::post_recv`].
    ///
    /// # Errors
    /// [`SdrError::Retry`] while the slot is in use: complete its receive first. Also if the slot's
    /// last message was completed before its offer arrived and before a packet of it or of a later
    /// message was counted: wait for the offer (P3.6).
    pub fn next_recv(&self) -> Result<RecvPlace, SdrError> {
        self.recv.next_place()
    }

    /// Posts the receive for message `place.message`; messages match receives in the order of
    /// posting (paper section 3.1.3). The next [`SdrQp::poll_control`] announces it to the sender.
    ///
    /// With [`Terms::exact_length`] the length of the message is known at once: `target.length`. If
    /// an offer does not match `terms`, [`Event::Refused`] follows.
    ///
    /// The slot's last receive need not be released.
    ///
    /// # Errors
    /// [`SdrError::StalePlace`] if `place` is not what [`SdrQp::next_recv`] returns,
    /// [`SdrError::TooLong`] beyond [`QpConfig::max_message_bytes`], [`SdrError::BadTarget`],
    /// [`SdrError::ImmediatesOff`] for terms with an immediate if the split has none, and the
    /// errors of [`SdrQp::next_recv`].
    pub fn post_recv(
        &mut self,
        place: RecvPlace,
        target: Place,
        terms: Terms,
    ) -> Result<ChunkBitmap, SdrError> {
        self.recv.post(place, target, terms, &mut self.events)
    }

    /// The place of the parity of an open receive. Bind its memory there, then call
    /// [`SdrQp::post_parity`].
    ///
    /// # Errors
    /// [`SdrError::ParityOff`].
    pub fn parity_place(&self, message: u64) -> Result<RecvPlace, SdrError> {
        self.recv.parity_place(message)
    }

    /// Posts memory for the parity of an open receive (P3.11). Call it once, with the receive or
    /// when [`Event::Offered`] is polled. The next [`SdrQp::poll_control`] announces it to the
    /// sender. If no memory is posted by then, the message has no parity.
    ///
    /// # Errors
    /// [`SdrError::ParityOff`], [`SdrError::TooLong`], [`SdrError::BadTarget`],
    /// [`SdrError::ParityPosted`], [`SdrError::UnknownMessage`] if no such receive is open.
    pub fn post_parity(&mut self, message: u64, target: Place) -> Result<(), SdrError> {
        self.recv.post_parity(message, target)
    }

    /// Sets the number of parity bytes, once the offer of the message is known. From then on, only
    /// whole packets of this length count as parity.
    ///
    /// # Errors
    /// [`SdrError::TooLong`] if the length exceeds the posted memory or is less than what has
    /// arrived, [`SdrError::UnknownMessage`].
    pub fn expect_parity(&mut self, message: u64, length: u64) -> Result<(), SdrError> {
        self.recv.expect_parity(message, length)
    }

    /// Completes a receive, early or not (paper section 3.3.1): no more packets count for it, and
    /// the sender receives `outcome`. Unbind its memory before you use it for anything else. A
    /// worker may still be in [`SlotTable::handle_packet`] with a packet of the message. When no
    /// worker can be there any more, call [`SdrQp::release_recv`].
    ///
    /// # Errors
    /// [`SdrError::UnknownMessage`] if no such receive is open.
    pub fn complete_recv(&mut self, message: u64, outcome: Outcome) -> Result<RecvPlace, SdrError> {
        let place = self.recv.complete(message, outcome)?;
        self.requests.end(message);
        Ok(place)
    }

    /// Clears the bitmap of an ended receive and keeps its memory for a later receive of the queue
    /// pair. The bits stay readable at their address until the queue pair is dropped, for readers
    /// outside Rust ([`ChunkBitmap::as_ptr`]). Returns false, and keeps nothing, while the receive is
    /// not released or a clone of the bitmap exists.
    pub fn reuse_bitmap(&mut self, bitmap: ChunkBitmap) -> bool {
        self.recv.received.reuse(bitmap.into_memory())
    }

    /// The user immediate of an open receive's message.
    ///
    /// # Errors
    /// [`SdrError::Retry`] until all of it has arrived, [`SdrError::NoImmediate`] if the sender
    /// sent none, [`SdrError::UnknownMessage`] if no such receive is open,
    /// [`SdrError::ImmediatesOff`].
    pub fn recv_immediate(&self, message: u64) -> Result<u32, SdrError> {
        self.recv.immediate(message)
    }

    /// Number of the message that [`SdrQp::start_send`] starts next.
    #[must_use]
    pub fn next_send(&self) -> u64 {
        self.send.next()
    }

    /// Starts a send and returns its message number. It may write after [`Event::ClearToSend`].
    ///
    /// # Errors
    /// [`SdrError::Retry`] while a message is in flight in the slot, [`SdrError::TooLong`],
    /// [`SdrError::ImmediatesOff`], [`SdrError::CriticalOutOfRange`], [`SdrError::NotConnected`].
    pub fn start_send(&mut self, spec: SendSpec) -> Result<u64, SdrError> {
        if !self.connected {
            return Err(SdrError::NotConnected);
        }
        let message = self.send.start(spec, &mut self.events)?;
        self.peer_requests.remove(message);
        Ok(message)
    }

    /// Returns whether a send, or its parity, may be written now.
    #[must_use]
    pub fn is_clear(&self, message: impl Into<MessageId>) -> bool {
        self.send.is_clear(message.into())
    }

    /// Returns whether the peer is known to hold the clearance of a receive: it may write, and it does
    /// so as soon as it has offered the message.
    #[must_use]
    pub fn sender_holds_clearance(&self, message: u64) -> bool {
        self.recv.sender_holds_clearance(message)
    }

    /// Returns how many bytes the peer's buffer for a send holds. Returns `None` while the send may
    /// not write.
    #[must_use]
    pub fn window_bytes(&self, message: u64) -> Option<u64> {
        self.send.window_bytes(message)
    }

    /// The packets of a run of chunks of a send, or of its parity. There are none while the send
    /// may not write. For a streaming send without a length yet, packets reach up to the end of the
    /// peer's buffer.
    #[must_use]
    pub fn writes(&self, message: impl Into<MessageId>, chunks: Range<u32>) -> PacketWrites {
        self.send.writes(message.into(), chunks)
    }

    /// Sets the length of a streaming send. The send may continue to write.
    ///
    /// # Errors
    /// [`SdrError::TooLong`] if the length exceeds the limit of the queue pair or the peer's
    /// buffer, [`SdrError::LengthSet`] if the send has another length, [`SdrError::UnknownMessage`]
    /// if it is not in flight.
    pub fn end_send(&mut self, message: u64, length: u64) -> Result<(), SdrError> {
        self.send.end(message, length)
    }

    /// Returns whether a send may end as partial: its scheme is bounded ([`SendSpec::is_bounded`]),
    /// or the peer accepts that ([`Terms::accepts_partial`]). The value is known after
    /// [`Event::ClearToSend`].
    #[must_use]
    pub fn accepts_partial(&self, message: u64) -> bool {
        self.send.accepts_partial(message)
    }

    /// Ends a send at this end, if it is still in flight. With [`Outcome::Whole`], and if the send
    /// has a length and a clearance, its slot is free as soon as the peer knows the length.
    /// Otherwise the peer is informed that nothing more comes, and the slot is free once the peer
    /// has completed the receive. With [`Outcome::Partial`] the message ends as partial if
    /// [`SdrQp::accepts_partial`], and otherwise as failed.
    pub fn close_send(&mut self, message: u64, outcome: Outcome) {
        self.send.close(message, outcome);
    }

    /// Processes a control message of the peer. Those about the path (`Loss`, `PeerFeedback`,
    /// `CreditRequest`, `Credit`) are ignored here.
    ///
    /// # Errors
    /// The message is one that a correct peer does not send. It changes nothing.
    pub fn handle_control(&mut self, now_ns: u64, control: &Control) -> Result<(), Violation> {
        match control {
            Control::Offer(offer) => {
                let answer_ns = now_ns.saturating_add(self.waits.usual_ns);
                self.recv.handle_offer(answer_ns, offer, &mut self.events)
            }
            Control::ClearToSend(cts) => {
                self.send
                    .handle_clear_to_send(now_ns, cts, &mut self.events)
            }
            Control::ReceiveComplete { message, outcome } => {
                self.send
                    .handle_receive_complete(*message, *outcome, &mut self.events)
            }
            Control::Ack(Ack { message, .. }) | Control::Nack(Nack { message, .. }) => {
                self.send.handle_report(now_ns, *message);
                Ok(())
            }
            Control::Read(request) => {
                let started = self.send.next();
                self.peer_requests
                    .handle(now_ns, &self.geometry, started, request)
            }
            Control::Loss(_)
            | Control::PeerFeedback(_)
            | Control::CreditRequest(_)
            | Control::Credit(_) => Ok(()),
        }
    }

    /// Handles a packet of a message that has ended ([`Arrival::Late`](crate::Arrival::Late)):
    /// sends the message's end again, unless that was just done.
    pub fn handle_late(&mut self, message: u64) {
        self.recv.late(message);
    }

    /// Returns what to send to the peer now, if anything. `rtt_ns` is the round-trip time, as far
    /// as it is known.
    pub fn poll_control(&mut self, now_ns: u64, rtt_ns: u64) -> Option<Control> {
        if !self.connected {
            return None;
        }
        self.waits = RepeatWaits::new(&self.timing, rtt_ns);
        self.recv
            .poll(now_ns, &self.waits)
            .or_else(|| {
                let is_started = |message| self.recv.is_started(message);
                self.requests.poll(now_ns, &self.waits, is_started)
            })
            .or_else(|| self.poll_over())
            .or_else(|| self.send.poll(now_ns, &self.waits))
    }

    /// Makes repeats that nobody has asked for due now, if they would be due soon: a control packet leaves
    /// anyway, and they ride in it. [`SdrQp::poll_control`] returns them.
    pub fn hasten_repeats(&mut self, now_ns: u64) {
        self.recv.hasten_repeats(now_ns, &self.waits);
    }

    /// Returns the next event that the peer caused, if any. There are no events about a receive
    /// that was completed at this end in the meantime. A send that was closed then has only its refusal.
    pub fn poll_event(&mut self) -> Option<Event> {
        loop {
            let Some(event) = self.events.pop_front() else {
                // A burst of events must not occupy memory forever.
                self.events.shrink_to(KEPT_EVENTS);
                return None;
            };
            let matters = match event {
                Event::Offered(Offered { message, .. })
                | Event::LengthKnown { message, .. }
                | Event::Refused { message, .. }
                | Event::Withdrawn { message, .. } => self.recv.is_open(message),
                Event::ClearToSend { message } => self.send.is_active(message.data()),
                // The peer may have ended it since.
                Event::SendRefused { message, .. } => {
                    self.send.is_active(message) || self.send.is_over(message)
                }
                Event::Closed { .. } => true,
            };
            if matters {
                return Some(event);
            }
        }
    }

    /// When [`SdrQp::poll_control`] will next return something, if nothing else happens before. The
    /// time is on the clock of `now_ns`; 0 means at once.
    #[must_use]
    pub fn next_timeout(&self) -> Option<u64> {
        if !self.connected {
            return None;
        }
        let timeouts = [
            self.recv.next_timeout(),
            self.requests.next_timeout(),
            self.peer_requests.is_due().then_some(0),
            self.send.next_timeout(),
        ];
        timeouts.into_iter().flatten().min()
    }
}

impl core::fmt::Debug for SdrQp {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SdrQp")
            .field("geometry", &self.geometry)
            .field("connected", &self.connected)
            .finish_non_exhaustive()
    }
}
