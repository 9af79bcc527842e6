//! One queue pair to another rank, and its buffers.
//!
//! All receives have the same size and are posted in advance. So the other rank is cleared to send
//! one message for each buffer, whatever operation the messages belong to. Messages match receives
//! in the order in which they were sent. Data is copied into a buffer when it is sent, and copied
//! out of a buffer when it has arrived. So the fabric never holds memory of the caller.
//!
//! The number of buffers follows the product of rate and round trip, in both directions:
//!
//! - A message cannot begin earlier than one round trip after its receive is posted. If it begins
//!   within one and a half, its sender waited for the clearance, so the receiver adds a buffer.
//! - If nearly all messages that wait for their ends have left, the sender waits for a buffer, so it
//!   adds one.
//!
//! Messages that follow each other with pauses meet neither condition. Buffers are never released.

use std::collections::VecDeque;

use farwrite::fabric::contract::Region;
use farwrite::{
    Endpoint, Error, Fabric, MemoryRegion, Outcome, QpOptions, QueuePair, RecvHandle, RecvOptions,
    SchemeName, SendHandle, SendOptions,
};

use crate::memory_budget::MemoryBudget;

/// How many buffers a queue pair has in each direction.
#[derive(Clone, Debug)]
pub(crate) struct Depth {
    /// The number at the start.
    pub(crate) first: usize,
    /// The maximum, if there is memory.
    pub(crate) most: usize,
    /// The memory for all buffers beyond the first ones. Queue pairs share it.
    pub(crate) budget: MemoryBudget,
}

impl Depth {
    /// A number of buffers that does not change.
    pub(crate) fn fixed(depth: usize) -> Self {
        Self {
            first: depth,
            most: depth,
            budget: MemoryBudget::new(0),
        }
    }
}

/// A posted receive.
#[derive(Debug)]
pub(crate) struct PostedReceive {
    pub(crate) handle: RecvHandle,
    pub(crate) region: MemoryRegion,
    /// When it was posted; `None` if that was before the first message.
    posted_ns: Option<u64>,
}

impl PostedReceive {
    fn has_begun(&self) -> bool {
        self.handle.outcome().is_some() || self.handle.bitmap().bytes() > 0
    }
}

/// A queue pair, and the buffers of its messages.
#[derive(Debug)]
pub(crate) struct QpBuffers {
    qp: QueuePair,
    buffer_bytes: usize,
    depth: Depth,
    terms: RecvOptions,
    /// The posted receives, in the order of posting.
    receives: VecDeque<PostedReceive>,
    /// The number of them, from the first one on, that are known to have begun.
    begun: usize,
    /// The receive buffers that must still be posted.
    unposted: Vec<MemoryRegion>,
    sends: VecDeque<(SendHandle, MemoryRegion)>,
    /// The send buffers that can be used again.
    free: Vec<MemoryRegion>,
}

impl QpBuffers {
    /// Wraps a queue pair with these options that has no messages yet. Its receives have `terms`.
    pub(crate) fn new(
        qp: QueuePair,
        options: &QpOptions,
        depth: Depth,
        terms: RecvOptions,
    ) -> Self {
        let bytes = options.sdr.max_message_bytes;
        Self {
            qp,
            buffer_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            depth,
            terms,
            receives: VecDeque::new(),
            begun: 0,
            unposted: Vec::new(),
            sends: VecDeque::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn queue_pair(&self) -> QueuePair {
        self.qp
    }

    /// Posts the first receives. The queue pair must be connected.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn open<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Result<(), Error> {
        for _ in 0..self.depth.first {
            let region = self.buffer(endpoint)?;
            self.unposted.push(region);
        }
        self.post_buffers(endpoint, None).map(|_| ())
    }

    fn buffer<F: Fabric>(&self, endpoint: &mut Endpoint<F>) -> Result<MemoryRegion, Error> {
        endpoint.register_region(Region::zeroed(self.buffer_bytes)?)
    }

    /// Posts the receives that could not be posted before, and more if the sender waits for
    /// receives. Returns whether it posted any: the next poll of the endpoint sends their
    /// clearances.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn post<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        now_ns: u64,
    ) -> Result<bool, Error> {
        self.add_receives(endpoint, now_ns)?;
        self.post_buffers(endpoint, Some(now_ns))
    }

    fn post_buffers<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        posted_ns: Option<u64>,
    ) -> Result<bool, Error> {
        let mut posted = false;
        while let Some(&region) = self.unposted.last() {
            match endpoint.post_recv_with(self.qp, region.whole(), self.terms) {
                Ok(handle) => {
                    self.unposted.pop();
                    self.receives.push_back(PostedReceive {
                        handle,
                        region,
                        posted_ns,
                    });
                    posted = true;
                }
                Err(Error::Retry { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(posted)
    }

    /// Adds a receive buffer for each message that began as soon as its clearance allowed.
    fn add_receives<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        now_ns: u64,
    ) -> Result<(), Error> {
        while let Some(receive) = self.receives.get(self.begun)
            && receive.has_begun()
        {
            self.begun += 1;
            let Some(posted_ns) = receive.posted_ns else {
                continue;
            };
            let peer = endpoint.peer_stats(self.qp)?;
            // Without the queue, which a longer ring would only lengthen.
            let rtt_ns = peer.base_rtt_ns.unwrap_or(peer.rtt_ns);
            let waited = now_ns.saturating_sub(posted_ns) < rtt_ns.saturating_add(rtt_ns / 2);
            let has_room = self.receives.len() + self.unposted.len() < self.depth.most;
            if waited && has_room && self.depth.budget.take(self.buffer_bytes as u64) {
                let region = self.buffer(endpoint)?;
                self.unposted.push(region);
            }
        }
        Ok(())
    }

    /// The receives that are posted, in order.
    pub(crate) fn receives(&self) -> impl Iterator<Item = &PostedReceive> {
        self.receives.iter()
    }

    /// Releases the first receive: its buffer can receive another message when it is posted again.
    pub(crate) fn release(&mut self) {
        let first = self.receives.pop_front();
        self.begun = self.begun.saturating_sub(1);
        self.unposted.extend(first.map(|receive| receive.region));
    }

    /// Sends bytes, one part after the other, as one message. Returns `false` if no buffer is free.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn send<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        parts: &[&[u8]],
        options: SendOptions,
    ) -> Result<bool, Error> {
        let bytes = self.buffer_bytes as u64;
        let region = match self.free.pop() {
            Some(region) => region,
            None if self.sends.len() < self.depth.first
                || (self.waits_for_buffer() && self.depth.budget.take(bytes)) =>
            {
                self.buffer(endpoint)?
            }
            None => return Ok(false),
        };
        let mut length = 0;
        for part in parts {
            endpoint.write_memory(region, length, part)?;
            length += part.len() as u64;
        }
        match endpoint.post_send(self.qp, region.slice(0..length), options) {
            Ok(send) => {
                self.sends.push_back((send, region));
                Ok(true)
            }
            Err(error) => {
                self.free.push(region);
                match error {
                    Error::Retry { .. } => Ok(false),
                    error => Err(error),
                }
            }
        }
    }

    /// Whether nearly all messages in flight have left, so that another buffer would be of use. The
    /// rest keeps the path busy until the next poll.
    fn waits_for_buffer(&self) -> bool {
        let waiting = (self.depth.first / 2).max(1);
        let place = self.sends.len().checked_sub(waiting);
        let send = place.and_then(|place| self.sends.get(place));
        self.sends.len() < self.depth.most && send.is_some_and(|(send, _)| send.is_injected())
    }

    /// Cancels the next message: none of it is sent, and the receive that it matches ends as
    /// failed. Returns `false` if no buffer is free.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn skip<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Result<bool, Error> {
        let options = SendOptions {
            scheme: SchemeName::BestEffort.tag(),
            ..SendOptions::default()
        };
        let posted = self.send(endpoint, &[], options)?;
        if let Some((send, _)) = self.sends.back().filter(|_| posted) {
            endpoint.cancel_send(send)?;
        }
        Ok(posted)
    }

    /// Whether a message can be sent.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
            || self.sends.len() < self.depth.first
            || (self.waits_for_buffer() && self.depth.budget.has(self.buffer_bytes as u64))
    }

    /// Reclaims the buffers of sends that have ended. Returns the outcome of a send that did not
    /// complete, if there is one.
    pub(crate) fn reclaim(&mut self) -> Option<Outcome> {
        let mut not_whole = None;
        let free = &mut self.free;
        self.sends.retain(|(send, region)| {
            let Some(outcome) = send.outcome() else {
                return true;
            };
            if outcome != Outcome::Whole {
                not_whole = Some(outcome);
            }
            free.push(*region);
            false
        });
        not_whole
    }

    /// The number of receive buffers and of send buffers.
    #[cfg(test)]
    pub(crate) fn count(&self) -> [usize; 2] {
        let receives = self.receives.len() + self.unposted.len();
        [receives, self.sends.len() + self.free.len()]
    }

    /// The number of sends that have not ended.
    pub(crate) fn in_flight(&self) -> usize {
        self.sends.len()
    }
}
