//! One end of a reliable connection.

use alloc::collections::VecDeque;

use farwrite_net::Payload;

use crate::opcode::{self, Operation};
use crate::packet::Packet;
use crate::requester::Requester;
use crate::responder::Responder;
use crate::{Completion, ConfigError, Memory, PostError, QpConfig, Request, RequestError};

/// A queue pair: a requester and a responder. It takes packets and the time, and gives packets and
/// completions. Users of a [`Nic`](crate::Nic) do not need it.
#[derive(Debug)]
pub struct QueuePair {
    requester: Requester,
    responder: Responder,
    completions: VecDeque<Completion>,
    counters: QpCounters,
    broken: bool,
    /// Whether a response to a READ was sent last, so that requests and responses take turns.
    responded: bool,
}

/// What a queue pair has done, in packets unless a line says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCounters {
    /// Requests sent, repetitions included.
    pub sent: u64,
    /// Of these, repetitions.
    pub repeated: u64,
    /// Times that the requester waited in vain.
    pub timeouts: u64,
    /// Requests that came after a gap and were dropped.
    pub out_of_order: u64,
    /// Requests that had come before.
    pub duplicates: u64,
    /// NAKs and RNR NAKs that this end decided to send.
    pub refusals: u64,
}

impl QueuePair {
    /// A queue pair that is ready to send and to receive.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(config: QpConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            requester: Requester::new(config),
            responder: Responder::new(config),
            completions: VecDeque::new(),
            counters: QpCounters::default(),
            broken: false,
            responded: false,
        })
    }

    /// Posts a request.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn post(&mut self, id: u64, request: Request) -> Result<(), PostError> {
        if self.broken {
            return Err(PostError::Broken);
        }
        self.requester.post(id, request)
    }

    /// Posts a receive buffer of `max_bytes`.
    ///
    /// # Errors
    /// [`PostError::Broken`].
    pub fn post_receive(&mut self, id: u64, max_bytes: u32) -> Result<(), PostError> {
        if self.broken {
            return Err(PostError::Broken);
        }
        self.responder.post_receive(id, max_bytes);
        Ok(())
    }

    /// The oldest completion that was not taken.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// What the queue pair has done.
    #[must_use]
    pub fn counters(&self) -> QpCounters {
        self.counters
    }

    /// Whether the queue pair has failed: the error state of IBTA 10.3.1.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Takes in a packet for this queue pair. One that is of no service here, or that a switch
    /// trimmed, changes nothing.
    pub fn handle_packet(&mut self, now_ns: u64, packet: &Packet, memory: &mut Memory) {
        let kind = opcode::parse(packet.header.bth.opcode);
        let whole = !matches!(packet.payload, Payload::Trimmed(_));
        let Some(kind) = kind.filter(|_| whole && !self.broken) else {
            return;
        };
        let completions = &mut self.completions;
        match kind.0 {
            Operation::Acknowledge => {
                self.requester
                    .handle_ack(now_ns, &packet.header, completions);
            }
            Operation::ReadResponse => {
                self.requester
                    .handle_read_response(now_ns, packet, completions);
            }
            Operation::Send | Operation::Write | Operation::ReadRequest => {
                self.responder
                    .handle(kind, packet, memory, &mut self.counters, completions);
            }
        }
        self.settle();
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); `None` for never.
    #[must_use]
    pub fn next_timeout(&self) -> Option<u64> {
        self.requester.next_timeout()
    }

    /// Ends the waits that are over at `now_ns`.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        self.requester.handle_timeout(now_ns, &mut self.counters);
        self.settle();
    }

    /// Whether an acknowledgement, positive or negative, is to be sent.
    #[must_use]
    pub fn has_ack(&self) -> bool {
        self.responder.replies.has_ack()
    }

    /// Whether a request, or a response to a READ, is to be sent.
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.responder.replies.has_read() || self.requester.wants_to_send()
    }

    /// The next acknowledgement. It has no payload, and paces do not hold it back.
    pub fn poll_ack(&mut self) -> Option<Packet> {
        self.responder.replies.poll_ack()
    }

    /// The next packet of a request or of a response to a READ. The two take turns.
    pub fn poll_data(&mut self, now_ns: u64, memory: &Memory) -> Option<Packet> {
        let responds = self.responder.replies.has_read();
        if responds && !(self.responded && self.requester.wants_to_send()) {
            self.responded = true;
            return self.responder.replies.poll_read(memory);
        }
        self.responded = false;
        self.requester.poll_transmit(now_ns, &mut self.counters)
    }

    /// Breaks the queue pair if one of its halves failed.
    fn settle(&mut self) {
        let failure = self.requester.failure.take();
        if self.broken || (failure.is_none() && !self.responder.broken) {
            return;
        }
        self.broken = true;
        let error = failure.unwrap_or(RequestError::Flushed);
        self.requester.fail(error, &mut self.completions);
        self.responder.fail(&mut self.completions);
    }
}
