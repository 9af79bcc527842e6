//! One queue pair to another rank, and its buffers.
//!
//! All receives have the same size and are posted in advance. So the other rank is cleared to send
//! one message for each buffer, whatever operation the messages belong to. Messages match receives
//! in the order in which they were sent. Data is copied into a buffer when it is sent, and copied
//! out of a buffer when it has arrived. So the fabric never holds memory of the caller.

use std::collections::VecDeque;

use farwrite::{
    Endpoint, Error, Fabric, MemoryRegion, Outcome, QpOptions, QueuePair, RecvHandle, RecvOptions,
    SchemeName, SendHandle, SendOptions,
};

/// A queue pair, and the buffers of its messages.
#[derive(Debug)]
pub(crate) struct QpBuffers {
    qp: QueuePair,
    buffer_bytes: usize,
    /// The maximum number of buffers in each direction.
    depth: usize,
    terms: RecvOptions,
    /// The posted receives, in the order of posting.
    receives: VecDeque<(RecvHandle, MemoryRegion)>,
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
        depth: usize,
        terms: RecvOptions,
    ) -> Self {
        let bytes = options.sdr.max_message_bytes;
        Self {
            qp,
            buffer_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            depth,
            terms,
            receives: VecDeque::new(),
            unposted: Vec::new(),
            sends: VecDeque::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn queue_pair(&self) -> QueuePair {
        self.qp
    }

    /// Posts all receives. The queue pair must be connected.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn open<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Result<(), Error> {
        for _ in 0..self.depth {
            let region = endpoint.register(vec![0; self.buffer_bytes])?;
            self.unposted.push(region);
        }
        self.post(endpoint).map(|_| ())
    }

    /// Posts the receives that could not be posted before. Returns whether it posted any: the next
    /// poll of the endpoint sends their clearances.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn post<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Result<bool, Error> {
        let mut posted = false;
        while let Some(&region) = self.unposted.last() {
            match endpoint.post_recv_with(self.qp, region.whole(), self.terms) {
                Ok(receive) => {
                    self.unposted.pop();
                    self.receives.push_back((receive, region));
                    posted = true;
                }
                Err(Error::Retry { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(posted)
    }

    /// The receives that are posted, in order.
    pub(crate) fn receives(&self) -> impl Iterator<Item = &(RecvHandle, MemoryRegion)> {
        self.receives.iter()
    }

    /// Releases the first receive: its buffer can receive another message when it is posted again.
    pub(crate) fn release(&mut self) {
        let first = self.receives.pop_front();
        self.unposted.extend(first.map(|(_, region)| region));
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
        let region = match self.free.pop() {
            Some(region) => region,
            None if self.sends.len() < self.depth => {
                endpoint.register(vec![0; self.buffer_bytes])?
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
        !self.free.is_empty() || self.sends.len() < self.depth
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

    /// The number of sends that have not ended.
    pub(crate) fn in_flight(&self) -> usize {
        self.sends.len()
    }
}
