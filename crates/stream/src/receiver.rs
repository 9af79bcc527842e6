//! The receiving half of a stream, without I/O: posts buffers, and gives bytes out in order.

use std::collections::{BTreeSet, VecDeque};

use farwrite::fabric::contract::FabricError;
use farwrite::{Endpoint, Fabric, MemoryRegion, Outcome, QueuePair, RecvHandle, Region};
use farwrite_connection::Numbers;

use crate::buffers::Buffers;
use crate::error::Error;
use crate::message::{HEAD_BYTES, Head};
use crate::options::StreamOptions;

/// The receiving half of a stream.
///
/// [`StreamReceiver::read`] gives out the bytes that have arrived, and needs no endpoint.
/// [`ByteStream::progress`](crate::ByteStream::progress) takes messages from the endpoint, and posts
/// the buffers that were read.
///
/// Buffers that are not read are not posted again. So the peer's messages wait at the peer, and this
/// end holds at most [`StreamOptions::window_bytes`].
pub struct StreamReceiver {
    qp: QueuePair,
    buffers: Buffers,
    /// The number of buffers.
    most: usize,
    /// A buffer that is registered, while the queue pair has no slot for it.
    ready: Option<MemoryRegion>,
    /// Receives, in the order of their messages.
    posted: VecDeque<Posted>,
    /// Receives that were posted on this queue pair.
    posts: u64,
    /// Memory of receives that were given up, which the fabric may still write into.
    held: Vec<MemoryRegion>,
    /// Bytes that have arrived, in order.
    arrived: VecDeque<Arrived>,
    stage: Stage,
    /// Whether this end reads no more, and what comes is dropped.
    is_dropping: bool,
    /// Whether the peer has asked this end to stop.
    peer_has_stopped: bool,
}

struct Posted {
    handle: RecvHandle,
    region: MemoryRegion,
}

/// Bytes of a message.
struct Arrived {
    region: Region,
    /// The bytes that were not read.
    first: usize,
    end: usize,
}

#[derive(Clone, Debug)]
enum Stage {
    Open,
    /// The last message has arrived.
    Ended,
    Failed(Error),
}

/// What the sending half has to know of a step.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) changed: bool,
    /// The peer asks this end to send no more.
    pub(crate) stop: Option<u32>,
    /// The half has failed, apart from a reset by the peer.
    pub(crate) failed: Option<Error>,
}

impl StreamReceiver {
    /// Creates the receiving half of the stream on a queue pair.
    #[must_use]
    pub fn new(qp: QueuePair, options: &StreamOptions) -> Self {
        Self {
            qp,
            buffers: Buffers::new(options.message_bytes, options.messages),
            most: options.messages as usize,
            ready: None,
            posted: VecDeque::new(),
            posts: 0,
            held: Vec::new(),
            arrived: VecDeque::new(),
            stage: Stage::Open,
            is_dropping: false,
            peer_has_stopped: false,
        }
    }

    /// Copies the next bytes to `out`, and returns how many: 0 at the end of the stream, or if `out`
    /// is empty. Returns `None` while there are none.
    ///
    /// # Errors
    /// [`Error::Reset`] and other errors that ended the direction, [`Error::NotReading`] after
    /// [`ByteStream::stop`](crate::ByteStream::stop).
    pub fn read(&mut self, out: &mut [u8]) -> Result<Option<usize>, Error> {
        if self.is_dropping {
            return Err(Error::NotReading);
        }
        let mut copied = 0;
        while copied < out.len()
            && let Some(first) = self.arrived.front_mut()
        {
            let bytes = &first.region[first.first..first.end];
            let length = bytes.len().min(out.len() - copied);
            out[copied..copied + length].copy_from_slice(&bytes[..length]);
            copied += length;
            first.first += length;
            if first.first == first.end
                && let Some(read) = self.arrived.pop_front()
            {
                self.buffers.give(read.region);
            }
        }
        if copied > 0 || out.is_empty() {
            return Ok(Some(copied));
        }
        match &self.stage {
            Stage::Open => Ok(None),
            Stage::Ended => Ok(Some(0)),
            Stage::Failed(error) => Err(error.clone()),
        }
    }

    /// Returns whether [`StreamReceiver::read`] would return bytes, the end or an error.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.is_dropping || !self.arrived.is_empty() || !matches!(self.stage, Stage::Open)
    }

    /// Returns the error that ended the half, if there is one.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        match &self.stage {
            Stage::Failed(error) => Some(error),
            Stage::Open | Stage::Ended => None,
        }
    }

    /// Returns whether at most half of the buffers are posted, so that those that were read must be posted now.
    /// Otherwise they are posted when something else happens on the queue pair: a clearance then leaves
    /// beside something else, and long before the peer needs it.
    pub(crate) fn is_short(&self) -> bool {
        2 * self.posted.len() <= self.most
    }

    /// Reads no more: bytes that have arrived, and those that come, are dropped. Returns whether
    /// the peer must be asked to send no more.
    pub(crate) fn stop(&mut self) -> bool {
        let is_first = !self.is_dropping;
        self.is_dropping = true;
        self.drop_arrived();
        is_first && matches!(self.stage, Stage::Open)
    }

    fn drop_arrived(&mut self) {
        for arrived in self.arrived.drain(..) {
            self.buffers.give(arrived.region);
        }
    }

    /// Ends the half with an error.
    pub(crate) fn fail(&mut self, error: Error) {
        if matches!(self.stage, Stage::Open) {
            self.stage = Stage::Failed(error);
        }
    }

    /// Returns whether the peer has ended its direction, or it has failed. Bytes may be left to read.
    #[must_use]
    pub fn is_over(&self) -> bool {
        !matches!(self.stage, Stage::Open)
    }

    /// Bytes that have arrived and were not read.
    #[must_use]
    pub fn unread_bytes(&self) -> u64 {
        self.arrived
            .iter()
            .map(|arrived| (arrived.end - arrived.first) as u64)
            .sum()
    }

    /// Takes messages from the endpoint, and posts buffers.
    pub(crate) fn progress<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Received {
        let mut received = Received::default();
        let stepped = self.take_messages(endpoint, &mut received);
        let stepped = stepped.and_then(|()| {
            received.changed |= self.post(endpoint)?;
            Ok(())
        });
        if let Err(error) = stepped {
            self.fail(error.clone());
            self.drop_buffers(endpoint);
            received.changed = true;
            received.failed = Some(error);
        }
        received
    }

    /// Takes the messages that have ended, up to the first that has not.
    fn take_messages<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        received: &mut Received,
    ) -> Result<(), Error> {
        let ended = |posted: &Posted| posted.handle.outcome().is_some();
        while self.posted.front().is_some_and(ended)
            && let Some(posted) = self.posted.pop_front()
        {
            received.changed = true;
            let region = endpoint.deregister(posted.region)?;
            if posted.handle.outcome() != Some(Outcome::Whole) {
                return Err(failure(&posted.handle));
            }
            self.take(region, posted.handle.length(), received)?;
        }
        Ok(())
    }

    /// Takes the messages that are whole, before the half is failed because its connection has ended.
    pub(crate) fn take_whole<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) {
        let is_whole = |posted: &Posted| posted.handle.outcome() == Some(Outcome::Whole);
        while !self.is_over()
            && self.posted.front().is_some_and(is_whole)
            && let Some(posted) = self.posted.pop_front()
        {
            let region = endpoint.deregister(posted.region).map_err(Error::from);
            let length = posted.handle.length();
            let taken =
                region.and_then(|region| self.take(region, length, &mut Received::default()));
            if let Err(error) = taken {
                self.fail(error);
            }
        }
    }

    /// Ends the receives and frees their memory.
    fn drop_buffers<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) {
        for posted in &self.posted {
            // Fails if the receive has ended.
            let _ = endpoint.complete_recv(&posted.handle, Outcome::Failed);
        }
        self.release(endpoint);
    }

    /// As [`ByteStream::release`](crate::ByteStream::release).
    pub(crate) fn release<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> usize {
        self.buffers.end();
        self.held
            .extend(self.posted.drain(..).map(|posted| posted.region));
        self.held.extend(self.ready.take());
        self.held.retain(|&region| is_in_use(endpoint, region));
        self.held.len()
    }

    /// Takes a whole message of `length` bytes in `region`.
    fn take(
        &mut self,
        region: Region,
        length: Option<u64>,
        received: &mut Received,
    ) -> Result<(), Error> {
        let length = length.and_then(|length| usize::try_from(length).ok());
        let message = length.and_then(|length| region.get(..length));
        let end = message.map_or(0, <[u8]>::len);
        let head = Head::read(message.unwrap_or_default()).map_err(Error::Violation)?;
        match head {
            Head::Stop(_) if self.peer_has_stopped => {
                return Err(Error::Violation("a second signal to stop"));
            }
            Head::Stop(code) => {
                self.peer_has_stopped = true;
                received.stop = Some(code);
            }
            _ if self.is_over() => return Err(Error::Violation("a message after the end")),
            Head::Reset(code) => {
                self.drop_arrived();
                self.stage = Stage::Failed(Error::Reset(code));
            }
            Head::Last => self.stage = Stage::Ended,
            Head::Data => {}
        }
        let has_bytes = matches!(head, Head::Data | Head::Last) && end > HEAD_BYTES;
        if has_bytes && !self.is_dropping {
            let first = HEAD_BYTES;
            self.arrived.push_back(Arrived { region, first, end });
        } else {
            self.buffers.give(region);
        }
        Ok(())
    }

    /// How many receives were posted, and which of them are not over.
    pub(crate) fn open_messages(&self) -> (u64, BTreeSet<u64>) {
        let open = self.posted.iter().map(|posted| &posted.handle);
        let open = open.filter(|recv| recv.outcome().is_none());
        (self.posts, open.map(RecvHandle::message).collect())
    }

    /// Those of these messages that are not whole.
    pub(crate) fn not_whole(&self, open: &BTreeSet<u64>) -> BTreeSet<u64> {
        let posted = self.posted.iter().map(|posted| &posted.handle);
        let own = posted.filter(|recv| recv.queue_pair() == self.qp);
        let missing = own.filter(|recv| recv.outcome() != Some(Outcome::Whole));
        let missing = missing.map(RecvHandle::message);
        missing.filter(|number| open.contains(number)).collect()
    }

    /// Goes on over the queue pair `qp`: posts the buffers of the messages `cut` again, which its predecessor has not
    /// ended, in their place. Returns whether that has succeeded.
    pub(crate) fn go_on<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        qp: QueuePair,
        (cut, sent): (&BTreeSet<u64>, &Numbers),
    ) -> bool {
        let old = std::mem::replace(&mut self.qp, qp);
        self.posts = 0;
        for posted in &mut self.posted {
            let number = posted.handle.message();
            let is_cut = posted.handle.queue_pair() == old && cut.contains(&number);
            // A message that has ended at the peer only will not come: the next step finds the failed receive.
            if !is_cut || sent.contains(number) {
                continue;
            }
            match endpoint.post_recv(qp, posted.region.whole()) {
                Ok(handle) => {
                    self.posts = handle.message() + 1;
                    posted.handle = handle;
                }
                Err(_) => return false,
            }
        }
        true
    }

    /// Posts the buffers that are free. After the end of the direction, the buffers that are posted
    /// are enough for the signal that may follow.
    fn post<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Result<bool, farwrite::Error> {
        let mut has_posted = false;
        while !self.is_over() || self.posted.is_empty() && !self.peer_has_stopped {
            let region = match self.ready.take() {
                Some(region) => region,
                None => match self.buffers.take() {
                    Some(region) => endpoint.register_region(region)?,
                    None => break,
                },
            };
            match endpoint.post_recv(self.qp, region.whole()) {
                Ok(handle) => {
                    self.posts = handle.message() + 1;
                    self.posted.push_back(Posted { handle, region });
                }
                Err(farwrite::Error::Retry { .. }) => {
                    self.ready = Some(region);
                    break;
                }
                Err(error) => return Err(error),
            }
            has_posted = true;
        }
        Ok(has_posted)
    }
}

/// Why a receive that is not whole ends the stream.
fn failure(handle: &RecvHandle) -> Error {
    match handle.refusal() {
        Some(_) => Error::Violation("a message longer than its buffer"),
        None => Error::MessageFailed(handle.message()),
    }
}

/// Deregisters a region. Returns whether the fabric still uses it.
pub(crate) fn is_in_use<F: Fabric>(endpoint: &mut Endpoint<F>, region: MemoryRegion) -> bool {
    let freed = endpoint.deregister(region);
    matches!(freed, Err(farwrite::Error::Fabric(FabricError::InUse(_))))
}
