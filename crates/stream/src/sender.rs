//! The sending half of a stream, without I/O: gathers bytes into messages.

use std::collections::{BTreeSet, VecDeque};

use farwrite::fabric::contract::FabricError;
use farwrite::{
    Endpoint, Fabric, MemoryRegion, Outcome, QpOptions, QueuePair, Region, SendHandle, SendOptions,
};
use farwrite_choice::{SchemePicker, SchemeSetting};
use farwrite_connection::EndedMessages;

use crate::buffers::Buffers;
use crate::error::Error;
use crate::message::{HEAD_BYTES, Head, SIGNAL_BYTES, VIOLATION_CODE};
use crate::options::StreamOptions;
use crate::receiver::is_in_use;

/// Messages that may be started and not have left. Enough for the fabric to have work between two
/// polls, and few, because a signal waits behind them.
const MOST_LEAVING: usize = 4;

/// The least that a message gathers where a message waits at all.
const LEAST_GATHERED_BYTES: usize = 64;

/// The sending half of a stream.
///
/// [`StreamSender::write`] takes bytes as long as there is a free buffer, and needs no endpoint.
/// [`ByteStream::progress`](crate::ByteStream::progress) sends what was written.
///
/// A full buffer leaves as soon as the endpoint can send it. A buffer that is not full leaves as
/// soon as all earlier messages have left, if fewer than half of the messages are open. While more are
/// open, it leaves when it has gathered some bytes: the more messages are open, the more bytes. So a small
/// write that finds little before it leaves at once, and small writes that come while bytes are
/// leaving are gathered. No timer delays them.
pub struct StreamSender {
    pub(crate) qp: QueuePair,
    scheme: SchemeSetting,
    picker: SchemePicker,
    buffers: Buffers,
    /// The most messages that may be open.
    most_open: usize,
    /// Bytes that no message carries yet. Only the last buffer may have room.
    gathered: VecDeque<Gathered>,
    /// Messages that were started.
    open: Vec<OpenMessage>,
    /// Messages that were started on this queue pair.
    started: u64,
    /// Memory of messages that have ended, which the fabric still holds.
    held: Vec<MemoryRegion>,
    stage: Stage,
    /// The signals to send.
    reset: Option<u32>,
    stop: Option<u32>,
    error: Option<Error>,
    /// Whether the peer had everything when the connection or the endpoint ended.
    pub(crate) had_delivered: bool,
    /// Whether the queue pair has ended, and the stream has not begun to go on over another one.
    pub(crate) waits_for_cutover: bool,
}

/// A buffer with bytes behind the head of a message.
struct Gathered {
    region: Region,
    /// Bytes in use, with the head.
    filled: usize,
}

struct OpenMessage {
    handle: SendHandle,
    region: MemoryRegion,
    /// Bytes of the message.
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// No more bytes are written, and the last message was not started.
    Ending,
    /// The last message was started.
    Ended,
}

impl StreamSender {
    /// Creates the sending half of the stream on a queue pair with these options
    /// ([`StreamOptions::queue_pair`]).
    #[must_use]
    pub fn new(qp: QueuePair, options: &StreamOptions, queue_pair: &QpOptions) -> Self {
        Self {
            qp,
            scheme: options.scheme,
            picker: SchemePicker::new(options.scheme, queue_pair, options.messages),
            buffers: Buffers::new(options.message_bytes, options.messages),
            most_open: options.messages as usize,
            gathered: VecDeque::new(),
            open: Vec::new(),
            started: 0,
            held: Vec::new(),
            stage: Stage::Open,
            reset: None,
            stop: None,
            error: None,
            had_delivered: false,
            waits_for_cutover: false,
        }
    }

    /// Takes as many bytes as there is room for, and returns how many. Returns 0 while there is no
    /// room.
    ///
    /// # Errors
    /// [`Error::Finished`] after the end of the direction, and the error that ended the stream.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        self.check()?;
        let mut taken = 0;
        while taken < bytes.len() {
            let Some(last) = self.buffer_with_room() else {
                break;
            };
            let left = &bytes[taken..];
            let room = &mut last.region[last.filled..];
            let length = left.len().min(room.len());
            room[..length].copy_from_slice(&left[..length]);
            last.filled += length;
            taken += length;
        }
        Ok(taken)
    }

    /// Returns the last buffer, if bytes can be added to it.
    fn buffer_with_room(&mut self) -> Option<&mut Gathered> {
        let full = self.buffers.buffer_bytes;
        if self.gathered.back().is_none_or(|last| last.filled == full) {
            let region = self.buffers.take()?;
            let filled = HEAD_BYTES;
            self.gathered.push_back(Gathered { region, filled });
        }
        self.gathered.back_mut()
    }

    fn check(&self) -> Result<(), Error> {
        match &self.error {
            Some(error) => Err(error.clone()),
            None if self.stage != Stage::Open => Err(Error::Finished),
            None => Ok(()),
        }
    }

    /// Returns whether [`StreamSender::write`] would take a byte or return an error.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        let full = self.buffers.buffer_bytes;
        self.check().is_err()
            || self.buffers.has_one()
            || self.gathered.back().is_some_and(|last| last.filled < full)
    }

    /// Whether this end has not ended the direction.
    pub(crate) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Ends the direction after the bytes that were written. A second call does nothing.
    pub fn finish(&mut self) {
        if self.stage == Stage::Open {
            self.stage = Stage::Ending;
        }
    }

    /// Gives up the direction: bytes that no message carries yet are dropped. The peer's reads fail
    /// with [`Error::Reset`], and bytes that it has not read are dropped. Does nothing if the last
    /// message was started.
    pub fn reset(&mut self, code: u32) {
        if self.stage != Stage::Ended && self.reset.is_none() {
            self.stage = Stage::Ending;
            self.reset = Some(code);
            self.drop_gathered();
        }
    }

    pub(crate) fn stop_peer(&mut self, code: u32) {
        self.stop.get_or_insert(code);
    }

    /// The peer asks for no more bytes.
    pub(crate) fn take_stop(&mut self, code: u32) {
        if self.error.is_none() && self.stage != Stage::Ended {
            self.error = Some(Error::Stopped(code));
        }
        self.reset(code);
    }

    /// The other half has failed. Tells the peer, if the queue pair still works.
    pub(crate) fn take_failure(&mut self, error: &Error) {
        if !matches!(error, Error::Violation(_) | Error::MessageFailed(_)) {
            return self.fail(error.clone());
        }
        self.error.get_or_insert(error.clone());
        self.reset(VIOLATION_CODE);
        self.stop_peer(VIOLATION_CODE);
    }

    /// Ends the half with an error: nothing more is sent.
    pub(crate) fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
        self.stage = Stage::Ended;
        (self.reset, self.stop) = (None, None);
        self.drop_gathered();
    }

    /// Ends the half, because its connection or its endpoint has ended. What the peer had acknowledged before
    /// is delivered.
    pub(crate) fn cut(&mut self, error: Error) {
        if self.error.is_none() {
            let is_whole = |open: &OpenMessage| open.handle.outcome() == Some(Outcome::Whole);
            let has_all_left = self.gathered.is_empty() && self.stage != Stage::Ending;
            self.had_delivered =
                has_all_left && self.stop.is_none() && self.open.iter().all(is_whole);
        }
        self.fail(error);
    }

    fn drop_gathered(&mut self) {
        for gathered in self.gathered.drain(..) {
            self.buffers.give(gathered.region);
        }
    }

    /// Returns whether the peer has everything, the end of the direction included, so that nothing
    /// is left to do.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Ended && self.is_delivered()
    }

    /// Returns whether the peer has everything that was written up to now.
    #[must_use]
    pub fn is_delivered(&self) -> bool {
        self.gathered.is_empty()
            && self.open.is_empty()
            && self.stage != Stage::Ending
            && self.stop.is_none()
    }

    /// Returns the error that ended the half, if there is one.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// Takes back the memory of messages that have ended, and starts messages. Returns whether
    /// something has changed, so that the endpoint must be polled again.
    pub(crate) fn progress<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> bool {
        let settled = self.settle(endpoint);
        let started = match self.start(endpoint) {
            Ok(started) => started,
            Err(error) => {
                self.fail(error.into());
                true
            }
        };
        settled || started
    }

    /// Takes back the memory of messages that have ended.
    fn settle<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> bool {
        let before = self.open.len() + self.held.len();
        if before == 0 {
            return false;
        }
        let mut failed = None;
        self.open.retain(|message| {
            let Some(outcome) = message.handle.outcome() else {
                return true;
            };
            if outcome != Outcome::Whole {
                failed = failed.or(Some(message.handle.message()));
            }
            self.held.push(message.region);
            false
        });
        if let Some(message) = failed {
            self.fail(Error::MessageFailed(message));
        }
        let buffer_bytes = self.buffers.buffer_bytes as u64;
        let buffers = &mut self.buffers;
        self.held.retain(|&held| match endpoint.deregister(held) {
            Ok(region) => {
                // The memory of a signal is smaller.
                if region.length() == buffer_bytes {
                    buffers.give(region);
                }
                false
            }
            Err(farwrite::Error::Fabric(FabricError::InUse(_))) => true,
            Err(_) => false,
        });
        self.open.len() + self.held.len() != before
    }

    /// Whether the fabric still holds memory of messages that have ended.
    pub(crate) fn holds_memory(&self) -> bool {
        !self.held.is_empty()
    }

    /// As [`ByteStream::release`](crate::ByteStream::release).
    pub(crate) fn release<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> usize {
        self.buffers.end();
        self.gathered.clear();
        self.held
            .extend(self.open.drain(..).map(|open| open.region));
        self.held.retain(|&region| is_in_use(endpoint, region));
        self.held.len()
    }

    /// Starts the messages that may start now.
    fn start<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Result<bool, farwrite::Error> {
        let mut started = false;
        loop {
            let leaving = self
                .open
                .iter()
                .filter(|open| !open.handle.is_injected())
                .count();
            let Some(head) = self.next_head(leaving) else {
                return Ok(started);
            };
            let Gathered { mut region, filled } = match head {
                Head::Data | Head::Last => {
                    let first = self.gathered.pop_front();
                    first.unwrap_or_else(|| empty(HEAD_BYTES))
                }
                Head::Reset(_) | Head::Stop(_) => empty(SIGNAL_BYTES),
            };
            head.write(&mut region);
            // What comes is not known. A writer that has filled messages is taken to go on.
            let left = (self.gathered.len() + self.open.len()) as u64 + 1;
            if let Err(region) = self.post(endpoint, region, filled, left)? {
                if matches!(head, Head::Data | Head::Last) && filled > HEAD_BYTES {
                    self.gathered.push_front(Gathered { region, filled });
                }
                return Ok(started);
            }
            started = true;
            match head {
                Head::Data => {}
                Head::Last | Head::Reset(_) => (self.stage, self.reset) = (Stage::Ended, None),
                Head::Stop(_) => self.stop = None,
            }
        }
    }

    /// Returns what the next message is, if one may start while `leaving` messages have not left.
    fn next_head(&self, leaving: usize) -> Option<Head> {
        if leaving >= MOST_LEAVING {
            return None;
        }
        if let Some(code) = self.stop {
            return Some(Head::Stop(code));
        }
        if let Some(code) = self.reset {
            return Some(Head::Reset(code));
        }
        if self.stage == Stage::Ending && self.gathered.len() <= 1 {
            return Some(Head::Last);
        }
        let first = self.gathered.front()?;
        let is_full = first.filled == self.buffers.buffer_bytes;
        let may_be_short = leaving == 0 && first.filled >= self.least_bytes();
        (is_full || may_be_short).then_some(Head::Data)
    }

    /// Returns the bytes that a message must have gathered to leave. They grow by a constant factor with each
    /// open message, up to a full buffer. So small writes at any steady rate leave in messages that come
    /// evenly, and a round trip of them does not take all buffers.
    fn least_bytes(&self) -> usize {
        // With fewer messages open, a message of any length leaves.
        let most_short = self.most_open / 2;
        let Some(steps) = self.open.len().checked_sub(most_short) else {
            return 0;
        };
        let all_steps = (self.most_open - most_short).max(1);
        let doublings = (self.buffers.buffer_bytes / LEAST_GATHERED_BYTES).ilog2() as usize;
        LEAST_GATHERED_BYTES << (doublings * steps / all_steps).min(doublings)
    }

    /// How a message of `bytes` bytes is sent, of `left` that are not over.
    fn send_options<F: Fabric>(
        &mut self,
        endpoint: &Endpoint<F>,
        (bytes, left): (u64, u64),
    ) -> SendOptions {
        SendOptions {
            scheme: self.picker.pick(endpoint, self.qp, (bytes, left)),
            ..SendOptions::default()
        }
    }

    /// How many messages were started, and which of them have no outcome.
    pub(crate) fn open_messages(&self) -> (u64, BTreeSet<u64>) {
        let open = self.open.iter().map(|open| &open.handle);
        let open = open.filter(|send| send.outcome().is_none());
        (self.started, open.map(SendHandle::message).collect())
    }

    /// Goes on over the queue pair `qp`: of the messages `cut`, which its predecessor has not ended, those that have
    /// not ended at the peer are sent again. Returns whether that has succeeded.
    pub(crate) fn go_on<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        (qp, options): (QueuePair, &QpOptions),
        (cut, theirs): (&BTreeSet<u64>, &EndedMessages),
    ) -> bool {
        let old = std::mem::replace(&mut self.qp, qp);
        self.started = 0;
        let most_open = u32::try_from(self.most_open).unwrap_or(u32::MAX);
        self.picker = SchemePicker::new(self.scheme, options, most_open);
        let left = self.open.len() as u64;
        let mut has_succeeded = true;
        for mut message in std::mem::take(&mut self.open) {
            let number = message.handle.message();
            let is_cut = message.handle.queue_pair() == old && cut.contains(&number);
            if !is_cut || theirs.failed.contains(&number) {
                self.open.push(message);
            } else if theirs.received.contains(number) {
                self.held.push(message.region);
            } else {
                let options = self.send_options(endpoint, (message.bytes, left));
                let source = message.region.slice(0..message.bytes);
                match endpoint.post_send(qp, source, options) {
                    Ok(handle) => {
                        self.started = handle.message() + 1;
                        message.handle = handle;
                    }
                    Err(error) => {
                        self.fail(error.into());
                        has_succeeded = false;
                    }
                }
                self.open.push(message);
            }
        }
        has_succeeded
    }

    /// Starts a message. Returns the region if the queue pair cannot start one now.
    fn post<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        region: Region,
        filled: usize,
        left: u64,
    ) -> Result<Result<(), Region>, farwrite::Error> {
        let bytes = filled as u64;
        let options = self.send_options(endpoint, (bytes, left));
        let region = endpoint.register_region(region)?;
        match endpoint.post_send(self.qp, region.slice(0..bytes), options) {
            Ok(handle) => {
                self.started = handle.message() + 1;
                self.open.push(OpenMessage {
                    handle,
                    region,
                    bytes,
                });
                Ok(Ok(()))
            }
            Err(farwrite::Error::Retry { .. } | farwrite::Error::NotConnected(_)) => {
                endpoint.deregister(region).map(Err)
            }
            Err(error) => {
                // The region goes with the error.
                endpoint.deregister(region)?;
                Err(error)
            }
        }
    }
}

/// The memory of a message without bytes of the stream.
fn empty(bytes: usize) -> Gathered {
    let region = Region::owned(vec![0_u8; bytes]);
    let filled = bytes;
    Gathered { region, filled }
}
