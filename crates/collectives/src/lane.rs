//! One queue pair to another rank: buffers that travel, and their order.
//!
//! Receives are posted ahead, all of one size, so a sender is cleared for as many segments as there
//! are buffers, whatever operation they belong to. Segments arrive in the order in which they were
//! sent, since messages match receives in order. Data is copied into a buffer when it is sent, and
//! read out of one when it has arrived. So memory of the caller is never in the hands of the fabric.

use std::collections::VecDeque;

use farwrite::{
    Endpoint, Error, Fabric, MemoryRegion, Outcome, QpOptions, QueuePair, RecvHandle, SchemeTag,
    SendHandle, SendOptions,
};

/// One queue pair, and its buffers.
#[derive(Debug)]
pub(crate) struct Lane {
    qp: QueuePair,
    scheme: SchemeTag,
    buffer_bytes: usize,
    /// Most buffers in either direction.
    depth: usize,
    /// In the order of posting.
    receives: VecDeque<(RecvHandle, MemoryRegion)>,
    /// Receive buffers that are to be posted.
    unposted: Vec<MemoryRegion>,
    sends: VecDeque<(SendHandle, MemoryRegion)>,
    /// Send buffers that can be used again.
    free: Vec<MemoryRegion>,
}

impl Lane {
    /// A lane over a queue pair with these options that has no messages yet.
    pub(crate) fn new(qp: QueuePair, options: &QpOptions, depth: usize) -> Self {
        let bytes = options.sdr.max_message_bytes;
        Self {
            qp,
            scheme: options.expected_scheme,
            buffer_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            depth,
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
            self.unposted
                .push(endpoint.register(vec![0; self.buffer_bytes])?);
        }
        self.post(endpoint)
    }

    /// Posts the receives that could not be posted before.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn post<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Result<(), Error> {
        while let Some(&region) = self.unposted.last() {
            match endpoint.post_recv(self.qp, region.whole()) {
                Ok(receive) => {
                    self.unposted.pop();
                    self.receives.push_back((receive, region));
                }
                Err(Error::Retry { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The bytes of the segment that is next in order; `None` until it has arrived.
    ///
    /// # Errors
    /// How it ended, if it is not whole.
    pub(crate) fn front<'a, F: Fabric>(
        &self,
        endpoint: &'a Endpoint<F>,
    ) -> Result<Option<&'a [u8]>, String> {
        let Some((receive, region)) = self.receives.front() else {
            return Ok(None);
        };
        let Some(outcome) = receive.outcome() else {
            return Ok(None);
        };
        if outcome != Outcome::Whole {
            return Err(format!("a segment ended as {outcome:?}"));
        }
        let bytes = endpoint
            .memory(*region)
            .map_err(|error| error.to_string())?;
        let length = receive
            .length()
            .and_then(|length| usize::try_from(length).ok());
        Ok(Some(&bytes[..length.unwrap_or(0).min(bytes.len())]))
    }

    /// Is done with the front segment: its buffer takes another one.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn release<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Result<(), Error> {
        let region = self.receives.pop_front().map(|(_, region)| region);
        self.unposted.extend(region);
        self.post(endpoint)
    }

    /// Sends a header and the bytes behind it as one segment. `false`: no buffer is free.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn send<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        header: &[u8],
        payload: &[u8],
    ) -> Result<bool, Error> {
        let region = match self.free.pop() {
            Some(region) => region,
            None if self.sends.len() < self.depth => {
                endpoint.register(vec![0; self.buffer_bytes])?
            }
            None => return Ok(false),
        };
        let header_bytes = header.len() as u64;
        endpoint.write_memory(region, 0, header)?;
        endpoint.write_memory(region, header_bytes, payload)?;
        let options = SendOptions {
            scheme: self.scheme,
            ..SendOptions::default()
        };
        let bytes = region.slice(0..header_bytes + payload.len() as u64);
        match endpoint.post_send(self.qp, bytes, options) {
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

    /// Whether a segment can be sent.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.sends.len() < self.depth
    }

    /// Takes back the buffers of segments that have arrived at the other end.
    ///
    /// # Errors
    /// How a segment ended that did not arrive.
    pub(crate) fn reclaim(&mut self) -> Result<(), String> {
        let mut failed = None;
        let free = &mut self.free;
        self.sends.retain(|(send, region)| {
            let Some(outcome) = send.outcome() else {
                return true;
            };
            if outcome != Outcome::Whole {
                failed = Some(outcome);
            }
            free.push(*region);
            false
        });
        failed.map_or(Ok(()), |outcome| {
            Err(format!("a segment ended as {outcome:?}"))
        })
    }

    /// Segments that the other end has not confirmed.
    pub(crate) fn in_flight(&self) -> usize {
        self.sends.len()
    }
}
