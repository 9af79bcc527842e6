//! Whole messages over a queue pair: received into buffers of its own, and sent in order.

use std::collections::VecDeque;
use std::sync::Arc;

use farwrite::{
    Endpoint, Error, MemoryRegion, Outcome, QueuePair, RecvHandle, SendHandle, SendOptions,
    UdpFabric,
};

use crate::ticket::Ticket;

/// Messages of one queue pair.
pub(crate) struct MessageQueue {
    qp: QueuePair,
    /// Buffers in the order in which they were posted.
    posted: VecDeque<(MemoryRegion, RecvHandle)>,
    /// Buffers that are not posted.
    idle: Vec<MemoryRegion>,
    /// Messages that have arrived. Their buffers are posted again only when the user has taken them, so
    /// this list is no longer than the number of buffers.
    arrived: VecDeque<Vec<u8>>,
    /// Buffers whose messages wait in `arrived`.
    held: VecDeque<MemoryRegion>,
    waiting: VecDeque<(Vec<u8>, Arc<Ticket>)>,
    /// The message that is sent when a slot is free.
    next: Option<(MemoryRegion, Arc<Ticket>)>,
    sent: VecDeque<(MemoryRegion, SendHandle, Arc<Ticket>)>,
    options: SendOptions,
}

impl MessageQueue {
    /// Registers `buffers` buffers of `bytes`. Messages of the peer must fit into them.
    pub(crate) fn new(
        endpoint: &mut Endpoint<UdpFabric>,
        qp: QueuePair,
        buffers: usize,
        bytes: usize,
        options: SendOptions,
    ) -> Result<Self, Error> {
        let buffers = (0..buffers).map(|_| endpoint.register(vec![0_u8; bytes]));
        Ok(Self {
            qp,
            posted: VecDeque::new(),
            idle: buffers.collect::<Result<_, _>>()?,
            arrived: VecDeque::new(),
            held: VecDeque::new(),
            waiting: VecDeque::new(),
            next: None,
            sent: VecDeque::new(),
            options,
        })
    }

    /// Queues a message.
    pub(crate) fn send(&mut self, message: Vec<u8>) -> Arc<Ticket> {
        let ticket = Arc::<Ticket>::default();
        self.waiting.push_back((message, Arc::clone(&ticket)));
        ticket
    }

    /// Messages that are queued or under way.
    pub(crate) fn unsent(&self) -> usize {
        self.waiting.len() + usize::from(self.next.is_some()) + self.sent.len()
    }

    /// Posts no more buffers.
    #[cfg(test)]
    pub(crate) fn take_no_more(&mut self) {
        self.posted.clear();
        self.idle.clear();
    }

    /// The next message that has arrived.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        let message = self.arrived.pop_front()?;
        self.idle.extend(self.held.pop_front());
        Some(message)
    }

    /// Takes what has arrived, and posts what can be posted. Returns whether the endpoint must be polled
    /// again at once.
    ///
    /// # Errors
    /// The queue pair is gone or broken, or the peer has sent a message that does not fit. All messages
    /// fail.
    pub(crate) fn poll(&mut self, endpoint: &mut Endpoint<UdpFabric>) -> Result<bool, Error> {
        self.take_arrivals(endpoint)?;
        self.take_departures(endpoint);
        let has_posted = self.post_buffers(endpoint)?;
        Ok(self.post_messages(endpoint)? || has_posted)
    }

    fn take_arrivals(&mut self, endpoint: &mut Endpoint<UdpFabric>) -> Result<(), Error> {
        while let Some((region, recv)) = self.posted.front() {
            match recv.outcome() {
                None => break,
                Some(Outcome::Whole) => {
                    let length = recv.length().unwrap_or(0);
                    let mut message = vec![0; usize::try_from(length).unwrap_or(0)];
                    endpoint.read_memory(*region, 0, &mut message)?;
                    self.arrived.push_back(message);
                    self.held.push_back(*region);
                }
                // The sender has given the message up, or it is longer than the buffer. The next one takes
                // the next buffer.
                Some(_) => self.idle.push(*region),
            }
            self.posted.pop_front();
        }
        Ok(())
    }

    fn take_departures(&mut self, endpoint: &mut Endpoint<UdpFabric>) {
        self.sent.retain(|(region, send, ticket)| {
            let Some(outcome) = send.outcome() else {
                return true;
            };
            ticket.finish(outcome, send.refusal());
            // The fabric can hold packets of the region for a moment.
            endpoint.deregister(*region).is_err()
        });
    }

    fn post_buffers(&mut self, endpoint: &mut Endpoint<UdpFabric>) -> Result<bool, Error> {
        let before = self.posted.len();
        while let Some(region) = self.idle.pop() {
            match endpoint.post_recv(self.qp, region.whole()) {
                Ok(recv) => self.posted.push_back((region, recv)),
                Err(error) => {
                    self.idle.push(region);
                    match error {
                        Error::Retry { .. } => break,
                        error => return Err(error),
                    }
                }
            }
        }
        Ok(self.posted.len() > before)
    }

    fn post_messages(&mut self, endpoint: &mut Endpoint<UdpFabric>) -> Result<bool, Error> {
        let mut has_posted = false;
        loop {
            if self.next.is_none() {
                let Some((message, ticket)) = self.waiting.pop_front() else {
                    return Ok(has_posted);
                };
                self.next = Some((endpoint.register(message)?, ticket));
            }
            let Some((region, ticket)) = self.next.take() else {
                return Ok(has_posted);
            };
            match endpoint.post_send(self.qp, region.whole(), self.options) {
                Ok(send) => self.sent.push_back((region, send, ticket)),
                Err(error) => {
                    self.next = Some((region, ticket));
                    match error {
                        Error::Retry { .. } => return Ok(has_posted),
                        error => return Err(error),
                    }
                }
            }
            has_posted = true;
        }
    }

    /// Fails all messages, and returns the buffers. The queue pair must be destroyed before.
    pub(crate) fn end(&mut self, endpoint: &mut Endpoint<UdpFabric>) {
        let posted = self.posted.drain(..).map(|(region, _)| region);
        let sent = self.sent.drain(..).map(|(region, _, ticket)| {
            ticket.finish(Outcome::Failed, None);
            region
        });
        let next = self.next.take().map(|(region, ticket)| {
            ticket.finish(Outcome::Failed, None);
            region
        });
        let regions = posted.chain(sent).chain(next).chain(self.idle.drain(..));
        for region in regions.chain(self.held.drain(..)) {
            // What the fabric still holds goes with the endpoint.
            let _ = endpoint.deregister(region);
        }
        for (_, ticket) in self.waiting.drain(..) {
            ticket.finish(Outcome::Failed, None);
        }
    }
}
