//! Reads (P3.13): requests of this end, which are repeated until the peer has them, and requests of
//! the peer, which are answered in the order of their messages.

use farwrite_wire::control::{
    Control, CriticalChunks, Offer, ReadRefusal, ReadRequest, SchemeTag, Withdrawal,
};

use crate::clearances::RepeatWaits;
use crate::error::{SdrError, Violation};
use crate::geometry::Geometry;
use crate::message_send::SendSpec;
use crate::qp::SdrQp;
use crate::sparse::Sparse;
use crate::timers::Timers;

/// Exposed bytes that a message carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSpec {
    /// Number of the region at the end that exposes it.
    pub region: u64,
    /// First byte in the region.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The scheme of the message.
    pub scheme: SchemeTag,
    /// When the read ends, by the clock of this end. At the end that answers, this is the arrival
    /// of the request plus the time that remained when the request left.
    pub deadline_ns: Option<u64>,
}

impl ReadSpec {
    /// Whether two requests are about the same bytes. Their deadlines may differ, by the time that
    /// each request took.
    fn is_like(&self, other: &Self) -> bool {
        let deadline_ns = other.deadline_ns;
        *other
            == Self {
                deadline_ns,
                ..*self
            }
    }
}

/// A request that the peer may not have.
struct Requested {
    spec: ReadSpec,
    is_over: bool,
    /// Wait before the next request; `None` if none was sent since the last change.
    interval_ns: Option<u64>,
}

/// The requests of this end.
pub(crate) struct Requests {
    requested: Sparse<u64, Requested>,
    /// When to send each request again.
    timers: Timers,
}

impl Requests {
    pub(crate) const fn new() -> Self {
        Self {
            requested: Sparse::new(),
            timers: Timers::new(),
        }
    }

    /// Requests a message whose receive was just posted. A second call replaces the first.
    pub(crate) fn add(&mut self, message: u64, spec: ReadSpec) {
        let requested = Requested {
            spec,
            is_over: false,
            interval_ns: None,
        };
        self.requested.insert(message, requested);
        self.timers.set(message, 0);
    }

    /// The receive of a message has ended. If the peer does not have the request, it is repeated:
    /// the peer must use the number of the message before it can answer later requests.
    pub(crate) fn end(&mut self, message: u64) {
        if let Some(requested) = self.requested.get_mut(message) {
            requested.is_over = true;
            requested.interval_ns = None;
            self.timers.set(message, 0);
        }
    }

    /// Returns a request to send now, if any. `is_started` returns whether the peer is known to
    /// have started a message, so that it has the request.
    pub(crate) fn poll(
        &mut self,
        now_ns: u64,
        waits: &RepeatWaits,
        is_started: impl Fn(u64) -> bool,
    ) -> Option<Control> {
        while let Some(message) = self.timers.due(now_ns) {
            let requested = self.requested.get_mut(message);
            let Some(requested) = requested.filter(|_| !is_started(message)) else {
                self.requested.remove(message);
                self.timers.remove(message);
                continue;
            };
            let wait_ns = waits.after_ns(requested.interval_ns);
            requested.interval_ns = Some(wait_ns);
            let ReadSpec {
                region,
                offset,
                length,
                scheme,
                deadline_ns,
            } = requested.spec;
            let remaining_ns = match (requested.is_over, deadline_ns) {
                (true, _) => 0,
                (false, None) => u64::MAX,
                (false, Some(deadline_ns)) => deadline_ns.saturating_sub(now_ns),
            };
            self.timers.set(message, now_ns.saturating_add(wait_ns));
            return Some(Control::Read(ReadRequest {
                message,
                region,
                offset,
                length,
                remaining_ns,
                scheme,
            }));
        }
        None
    }

    pub(crate) fn next_timeout(&self) -> Option<u64> {
        self.timers.next_ns()
    }
}

pub(crate) struct PeerRequests {
    /// Those whose messages have not started.
    waiting: Sparse<u64, ReadSpec>,
    /// Those whose messages have started, and to which an offer must answer now.
    repeated: Sparse<u64, ReadSpec>,
}

impl PeerRequests {
    pub(crate) const fn new() -> Self {
        Self {
            waiting: Sparse::new(),
            repeated: Sparse::new(),
        }
    }

    /// Handles a request, where `started` sends have started.
    pub(crate) fn handle(
        &mut self,
        now_ns: u64,
        geometry: &Geometry,
        started: u64,
        request: &ReadRequest,
    ) -> Result<(), Violation> {
        let message = request.message;
        let slots = u64::from(geometry.slots());
        // A reader has posted at most one receive in each slot whose last message was started.
        let limit = started.saturating_add(slots);
        if message >= limit {
            return Err(Violation::MessageOutOfRange { message, limit });
        }
        let max = geometry.config().max_message_bytes;
        let length = request.length;
        if length > max {
            return Err(Violation::ReadTooLong {
                message,
                length,
                max,
            });
        }
        let has_deadline = request.remaining_ns < u64::MAX;
        let deadline_ns = has_deadline.then(|| now_ns.saturating_add(request.remaining_ns));
        let new = ReadSpec {
            region: request.region,
            offset: request.offset,
            length,
            scheme: request.scheme,
            deadline_ns,
        };
        if message < started {
            // A reader that has posted a slot again has seen the offer of its last message.
            if started - message <= slots {
                self.repeated.insert(message, new);
            }
            return Ok(());
        }
        match self.waiting.get_mut(message) {
            None => self.waiting.insert(message, new),
            Some(known) if !known.is_like(&new) => return Err(Violation::ReadChanged(message)),
            // Each request came later than it left. The earliest deadline is the nearest to that of
            // the reader.
            Some(known) => {
                let deadlines = [known.deadline_ns, new.deadline_ns];
                known.deadline_ns = deadlines.into_iter().flatten().min();
            }
        }
        Ok(())
    }

    /// The request for a message that has not started.
    pub(crate) fn get(&self, message: u64) -> Option<&ReadSpec> {
        self.waiting.get(message)
    }

    /// Whether an offer must answer a request now.
    pub(crate) fn is_due(&self) -> bool {
        !self.repeated.is_empty()
    }

    /// Removes and returns a request for a message that has started.
    pub(crate) fn pop_started(&mut self) -> Option<(u64, ReadSpec)> {
        self.repeated.pop_first()
    }

    /// Forgets the request of a message that has started.
    pub(crate) fn remove(&mut self, message: u64) {
        self.waiting.remove(message);
    }
}

impl SdrQp {
    /// Requests the message of a receive that was just posted, with terms that answer a read. The
    /// request is repeated until the peer has started the message.
    ///
    /// # Errors
    /// [`SdrError::UnknownMessage`] if no such receive is open.
    pub fn request_read(&mut self, message: u64, spec: ReadSpec) -> Result<(), SdrError> {
        if !self.recv.is_open(message) {
            return Err(SdrError::UnknownMessage(message));
        }
        self.requests.add(message, spec);
        Ok(())
    }

    /// The read that the message [`SdrQp::next_send`] must answer, once the peer's request has
    /// arrived. Answer it with [`SdrQp::start_send`], or refuse it. Requests for later messages
    /// wait.
    #[must_use]
    pub fn next_read(&self) -> Option<&ReadSpec> {
        self.peer_requests.get(self.send.next())
    }

    /// Refuses the next read: starts its message and withdraws it at once. Returns the number of
    /// the message. Returns `None` if there is no next read.
    ///
    /// # Errors
    /// Those of [`SdrQp::start_send`].
    pub fn refuse_read(&mut self, refusal: ReadRefusal) -> Result<Option<u64>, SdrError> {
        let Some(read) = self.next_read() else {
            return Ok(None);
        };
        let spec = SendSpec {
            length: Some(read.length),
            scheme: read.scheme,
            answers_read: true,
            ..SendSpec::default()
        };
        let message = self.start_send(spec)?;
        self.send.withdraw(message, Withdrawal::Refused(refusal));
        Ok(Some(message))
    }

    /// Returns an offer for a reader that repeats the request of a message which is over. It ended
    /// its receive before an offer arrived, and needs to know that the number is used.
    pub(crate) fn poll_over(&mut self) -> Option<Control> {
        while let Some((message, read)) = self.peer_requests.pop_started() {
            // The offer of a message that is not over is repeated anyway.
            if self.send.is_over(message) {
                return Some(Control::Offer(Offer {
                    message,
                    length: Some(read.length),
                    has_immediate: false,
                    scheme: read.scheme,
                    critical: CriticalChunks::NONE,
                    cleared: self.send.cleared(),
                    withdrawn: Some(Withdrawal::GivenUp),
                    answers_read: true,
                }));
            }
        }
        None
    }
}
