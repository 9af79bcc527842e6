//! One queue pair to another rank, for messages that end in time.
//!
//! Messages match receives in order, and both ends count them. A rank that gives up on messages
//! leaves their receives open: it does not know whether they were ever sent. The sender says so
//! afterwards, exactly, and then receives of old messages are closed and posted again.

use std::collections::VecDeque;

use farwrite::{
    Endpoint, Error, Fabric, MemoryRegion, Outcome, QpOptions, QueuePair, RecvHandle, RecvOptions,
    SchemeTag, SendHandle, SendOptions,
};

/// One queue pair, and its buffers.
#[derive(Debug)]
pub(crate) struct BoundedLane {
    qp: QueuePair,
    scheme: SchemeTag,
    buffer_bytes: usize,
    /// Most buffers in either direction.
    depth: usize,
    /// In the order of posting.
    receives: VecDeque<(RecvHandle, MemoryRegion)>,
    unposted: Vec<MemoryRegion>,
    sends: VecDeque<(SendHandle, MemoryRegion)>,
    free: Vec<MemoryRegion>,
    /// Messages of the other rank that have been taken; the number of the first receive.
    taken: u64,
    /// The first message of the other rank that is not of an operation that is over.
    current: u64,
    /// Messages that were sent.
    sent: u64,
}

/// A message, as far as it has come.
pub(crate) struct Arrival<'a> {
    receive: &'a RecvHandle,
    region: MemoryRegion,
}

impl BoundedLane {
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
            taken: 0,
            current: 0,
            sent: 0,
        }
    }

    pub(crate) fn queue_pair(&self) -> QueuePair {
        self.qp
    }

    /// Messages that were sent, ever.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// The other rank's next operation begins with its message `current`.
    pub(crate) fn set_current(&mut self, current: u64) {
        self.current = self.current.max(current);
    }

    /// Registers the receive buffers. The queue pair must be connected.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn open<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Result<(), Error> {
        for _ in 0..self.depth {
            let region = endpoint.register(vec![0; self.buffer_bytes])?;
            self.unposted.push(region);
        }
        self.tend(endpoint)
    }

    /// Closes receives of operations that are over, posts receives, and takes back buffers of
    /// messages that have left.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn tend<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Result<(), Error> {
        let free = &mut self.free;
        self.sends.retain(|(send, region)| {
            let is_over = send.outcome().is_some();
            if is_over {
                free.push(*region);
            }
            !is_over
        });
        while self.taken < self.current
            && let Some((receive, _)) = self.receives.front()
        {
            if receive.outcome().is_none() {
                endpoint.complete_recv(receive, Outcome::Partial)?;
            }
            self.release();
        }
        while let Some(&region) = self.unposted.last() {
            let terms = RecvOptions {
                scheme: Some(self.scheme),
                accept_partial: true,
                ..RecvOptions::default()
            };
            match endpoint.post_recv_with(self.qp, region.whole(), terms) {
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

    /// Is done with the first message.
    pub(crate) fn release(&mut self) {
        if let Some((_, region)) = self.receives.pop_front() {
            self.unposted.push(region);
            self.taken += 1;
        }
    }

    /// Messages of the present operation that have a receive: their numbers in it, and what came.
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = (u64, Arrival<'_>)> {
        let numbered = (self.taken..).zip(&self.receives);
        numbered.filter_map(|(number, (receive, region))| {
            let region = *region;
            let number = number.checked_sub(self.current)?;
            Some((number, Arrival { receive, region }))
        })
    }

    /// Sends a message that ends at its deadline. `false`: no buffer is free.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn send<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        payload: &[u8],
        deadline_ns: Option<u64>,
    ) -> Result<bool, Error> {
        let region = match self.free.pop() {
            Some(region) => region,
            None if self.sends.len() < self.depth => {
                endpoint.register(vec![0; self.buffer_bytes])?
            }
            None => return Ok(false),
        };
        endpoint.write_memory(region, 0, payload)?;
        let options = SendOptions {
            scheme: self.scheme,
            deadline_ns,
            ..SendOptions::default()
        };
        let bytes = region.slice(0..payload.len() as u64);
        match endpoint.post_send(self.qp, bytes, options) {
            Ok(send) => {
                self.sends.push_back((send, region));
                self.sent += 1;
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
}

impl Arrival<'_> {
    /// Whether nothing more of it will come.
    pub(crate) fn is_over(&self) -> bool {
        self.receive.outcome().is_some()
    }

    /// Which of its first `count` packets, of `packet_bytes` each, are there. A message that is
    /// shorter has fewer.
    pub(crate) fn packets(&self, count: usize, packet_bytes: u64) -> Vec<bool> {
        let numbers = (0_u32..).take(count);
        match self.receive.outcome() {
            Some(Outcome::Whole) => {
                let length = self.receive.length().unwrap_or(0);
                let begins = |packet| u64::from(packet) * packet_bytes < length;
                numbers.map(begins).collect()
            }
            Some(Outcome::Failed) => vec![false; count],
            Some(Outcome::Partial) => {
                let partial = self.receive.partial();
                let has = |packet| partial.is_some_and(|partial| partial.has_chunk(packet));
                numbers.map(has).collect()
            }
            None => {
                let bitmap = self.receive.bitmap();
                let has = |packet| packet < bitmap.len() && bitmap.get(packet);
                numbers.map(has).collect()
            }
        }
    }

    /// Copies bytes of it, of packets that are there.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn read<F: Fabric>(
        &self,
        endpoint: &Endpoint<F>,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), Error> {
        endpoint.read_memory(self.region, offset, out)
    }
}
