//! One queue pair to another rank, for messages that end by a deadline.
//!
//! Messages match receives in order, and both ends count them. The size of an operation determines
//! its number of messages, so both ends know which operation a message belongs to. If the deadline
//! of a sender comes before it has sent all of them, it posts an empty message in place of each
//! remaining one and cancels it at once. No packet of such a message leaves. The receiver is
//! informed that the message was cancelled, so its receive ends as failed and empty. A receiver
//! closes the receives of operations that have ended.

use farwrite::{
    Endpoint, Error, Fabric, Outcome, QpOptions, QueuePair, RecvOptions, SchemeTag, SendOptions,
};

use crate::qp_buffers::{Depth, PostedReceive, QpBuffers};

/// A queue pair whose messages end by a deadline, whole or partial.
#[derive(Debug)]
pub(crate) struct BoundedQp {
    buffers: QpBuffers,
    /// The number of messages of the other rank that have been processed. This is also the number
    /// of the first receive.
    taken: u64,
    /// The first message of the other rank that does not belong to an ended operation.
    current: u64,
    /// The first message of the other rank's next operation.
    next: u64,
    /// The number of messages of ended operations that were not sent.
    skipped: u64,
}

/// The state of an incoming message.
pub(crate) struct Arrival<'a> {
    receive: &'a PostedReceive,
}

impl BoundedQp {
    /// Wraps a queue pair with these options that has no messages yet.
    pub(crate) fn new(qp: QueuePair, options: &QpOptions, depth: Depth) -> Self {
        // The receive accepts any scheme: the sender selects one for each operation.
        let terms = RecvOptions {
            accept_partial: true,
            ..RecvOptions::default()
        };
        Self {
            buffers: QpBuffers::new(qp, options, depth, terms),
            taken: 0,
            current: 0,
            next: 0,
            skipped: 0,
        }
    }

    pub(crate) fn queue_pair(&self) -> QueuePair {
        self.buffers.queue_pair()
    }

    /// Posts the first receives. The queue pair must be connected.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn open<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Result<(), Error> {
        self.buffers.open(endpoint)
    }

    /// Whether this rank has stopped waiting for all messages of the other rank before this one.
    pub(crate) fn is_next(&self, number: u64) -> bool {
        self.current >= number
    }

    /// Begins an operation for which the other rank sends `messages` messages. Returns the number
    /// of the first one.
    pub(crate) fn begin(&mut self, messages: u64) -> u64 {
        let first = self.next;
        self.next += messages;
        first
    }

    /// Ends the oldest operation, or a part of it. This rank stops waiting for messages of the other rank before
    /// `end`. It did not send `unsent` messages to the other rank.
    pub(crate) fn end(&mut self, end: u64, unsent: u64) {
        self.current = self.current.max(end);
        self.skipped += unsent;
    }

    /// The number of messages that have not left, those that must still be cancelled included.
    pub(crate) fn in_flight(&self) -> usize {
        let skipped = usize::try_from(self.skipped).unwrap_or(usize::MAX);
        self.buffers.in_flight().saturating_add(skipped)
    }

    /// Closes the receives of ended operations, posts receives, reclaims the buffers of messages
    /// that have left, and cancels messages that were not sent. Returns whether this gives the
    /// endpoint something to send.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn tend<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        now_ns: u64,
    ) -> Result<bool, Error> {
        // The outcome is ignored: only the receiver needs to know how much of a message arrived.
        self.buffers.reclaim();
        let mut moved = false;
        while self.taken < self.current && self.close_first(endpoint)? {
            moved = true;
        }
        moved |= self.buffers.post(endpoint, now_ns)?;
        while self.skipped > 0 && self.buffers.skip(endpoint)? {
            self.skipped -= 1;
            moved = true;
        }
        Ok(moved)
    }

    /// Ends the first receive, if there is one, and releases it.
    fn close_first<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Result<bool, Error> {
        let Some(receive) = self.buffers.receives().next() else {
            return Ok(false);
        };
        if receive.handle.outcome().is_none() {
            endpoint.complete_recv(&receive.handle, Outcome::Partial)?;
        }
        self.release();
        Ok(true)
    }

    /// Releases the first message.
    pub(crate) fn release(&mut self) {
        self.buffers.release();
        self.taken += 1;
    }

    /// The messages that have a receive: their numbers and their state.
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = (u64, Arrival<'_>)> {
        let numbered = (self.taken..).zip(self.buffers.receives());
        numbered.map(|(number, receive)| (number, Arrival { receive }))
    }

    /// Sends a message that ends at its deadline. Returns `false` if no buffer is free.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn send<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        payload: &[u8],
        scheme: SchemeTag,
        deadline_ns: Option<u64>,
    ) -> Result<bool, Error> {
        if self.skipped > 0 {
            return Ok(false);
        }
        let options = SendOptions {
            scheme,
            deadline_ns,
            ..SendOptions::default()
        };
        self.buffers.send(endpoint, &[payload], options)
    }
}

impl Arrival<'_> {
    /// Whether the message has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.receive.handle.outcome().is_some()
    }

    /// Returns whether each of the first `count` packets of the message has arrived. A packet has
    /// `packet_bytes` bytes. A packet beyond the end of the message counts as missing.
    pub(crate) fn packets(&self, count: usize, packet_bytes: u64) -> Vec<bool> {
        let numbers = (0_u32..).take(count);
        match self.receive.handle.outcome() {
            Some(Outcome::Whole) => {
                let length = self.receive.handle.length().unwrap_or(0);
                let begins = |packet| u64::from(packet) * packet_bytes < length;
                numbers.map(begins).collect()
            }
            Some(Outcome::Failed) => vec![false; count],
            Some(Outcome::Partial) => {
                let partial = self.receive.handle.partial();
                let has = |packet| partial.is_some_and(|partial| partial.has_chunk(packet));
                numbers.map(has).collect()
            }
            None => {
                let bitmap = self.receive.handle.bitmap();
                let has = |packet| packet < bitmap.len() && bitmap.get(packet);
                numbers.map(has).collect()
            }
        }
    }

    /// Copies bytes of the message from the receive buffer. The packets that hold them must have
    /// arrived.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn read<F: Fabric>(
        &self,
        endpoint: &Endpoint<F>,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), Error> {
        endpoint.read_memory(self.receive.region, offset, out)
    }
}
