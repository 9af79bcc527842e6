//! The sending side: messages on their way out, pulled from their schemes as the path allows.

use std::sync::Arc;

use farwrite_codes::Layout;
use farwrite_fabric::contract::Lkey;
use farwrite_schemes::chunk_set::ChunkSet;
use farwrite_schemes::scheme::Chunks;
use farwrite_sdr::{Refusal, SendSpec};
use farwrite_wire::control::{Outcome, SchemeTag, is_parity};

use super::Pair;
use super::parity::Parity;
use crate::error::Error;
use crate::handle::{SendHandle, SendShared};
use crate::memory::MrSlice;
use crate::options::SendOptions;
use crate::registry::Registry;

/// A message being sent.
pub(super) struct Send {
    /// Where its bytes are; `None` for a stream, whose runs bring their own.
    source: Option<MrSlice>,
    scheme: SchemeTag,
    has_immediate: bool,
    /// How it is cut into groups, if its scheme codes.
    pub(super) layout: Option<Layout>,
    /// Memory for its parity, from the time that it is cleared; `None` if there is no room for it.
    pub(super) parity: Option<Parity>,
    /// Whether its scheme is bounded: then messages of that scheme start in their order.
    is_bounded: bool,
    /// Whether its chunks may be written at the receiver.
    cleared: bool,
    /// Whether its scheme has charge of it.
    started: bool,
    /// Chunks that have left at least once.
    departed: u32,
    stream: Option<Stream>,
    /// Chunks that were handed out to be sent, of the message and of its parity.
    queued: [ChunkSet; 2],
    pub(super) deadline_ns: Option<u64>,
    shared: Arc<SendShared>,
}

impl Send {
    pub(super) fn refuse(&self, refusal: Refusal) {
        self.shared.refuse(refusal);
    }

    pub(super) fn source(&self) -> Option<MrSlice> {
        self.source
    }

    pub(super) fn scheme(&self) -> SchemeTag {
        self.scheme
    }

    pub(super) fn parity(&self) -> Option<Parity> {
        self.parity
    }

    pub(super) fn has_immediate(&self) -> bool {
        self.has_immediate
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.is_bounded
    }

    pub(super) fn clear(&mut self) {
        self.cleared = true;
    }

    /// Whether its scheme may have charge of it.
    pub(super) fn is_cleared(&self) -> bool {
        self.cleared
    }

    pub(super) fn start(&mut self) {
        self.started = true;
    }

    pub(super) fn is_started(&self) -> bool {
        self.started
    }

    pub(super) fn finish(&self, outcome: Outcome) {
        self.shared.finish(outcome);
    }

    /// Chunks are about to be sent. Returns how many of them were never queued before.
    pub(super) fn note_queued(&mut self, chunks: &Chunks) -> u32 {
        let queued = &mut self.queued[usize::from(is_parity(chunks.message))];
        let before = queued.count();
        queued.insert_range(chunks.range.clone());
        queued.count() - before
    }

    /// Whether packets of a chunk of the message, or of its parity, may have been sent.
    pub(super) fn may_have_sent(&self, message: u64, chunk: u32) -> bool {
        let queued = &self.queued[usize::from(is_parity(message))];
        queued.word(chunk / 64) >> (chunk % 64) & 1 == 1
    }

    /// Chunks of the message left this end, for the first time where it has a scheme.
    pub(super) fn chunks_departed(&mut self, count: u32) {
        self.departed = self.departed.saturating_add(count);
        if let Some(stream) = &mut self.stream {
            stream.in_hand = stream.in_hand.saturating_sub(count);
        }
        self.note_injected();
    }

    fn note_injected(&self) {
        let all_left = match &self.stream {
            Some(stream) => stream.ended && stream.in_hand == 0,
            None => self.departed >= self.queued[0].chunks(),
        };
        if all_left {
            self.shared.set_injected();
        }
    }
}

/// What is known of a send without a scheme.
#[derive(Default)]
struct Stream {
    /// Bytes up to the end of the last run.
    bytes: u64,
    /// Chunks given and not yet departed.
    in_hand: u32,
    ended: bool,
}

/// Chunks that the user of a stream wants sent.
pub(super) struct StreamRun {
    /// Those still to be sent.
    pub(super) chunks: Chunks,
    pub(super) source: MrSlice,
    /// The chunk that starts at the first byte of `source`.
    pub(super) first_chunk: u32,
}

impl Pair {
    /// Starts a message whose bytes all lie in `source`.
    pub(crate) fn post_send(
        &mut self,
        source: MrSlice,
        options: SendOptions,
        known: &Registry,
    ) -> Result<SendHandle, Error> {
        self.check_slice(&source)?;
        let is_raw = options.scheme == SchemeTag::NONE;
        if !is_raw && self.halves.sender(options.scheme, known).is_none() {
            return Err(Error::UnknownScheme(options.scheme.id));
        }
        let is_bounded = known.is_bounded(options.scheme);
        let layout = self.layout(known, options.scheme, source.length);
        if let Some(layout) = &layout {
            self.check_length(layout.parity_bytes() as u64)?;
        }
        let handle = self.start(Some(source.length), options, layout, is_bounded)?;
        let send = self.sends.get_mut(&handle.message).expect("just inserted");
        send.source = Some(source);
        if is_raw {
            let chunks = self
                .sdr
                .geometry()
                .chunks(source.length, options.immediate.is_some());
            send.stream = Some(Stream {
                bytes: source.length,
                in_hand: chunks,
                ended: true,
            });
            let chunks = Chunks {
                message: handle.message,
                range: 0..chunks,
            };
            self.streams.push_back(StreamRun {
                chunks,
                source,
                first_chunk: 0,
            });
        }
        Ok(handle)
    }

    /// Starts a message of unknown length, whose chunks come by [`Pair::continue_stream`].
    pub(crate) fn start_stream(&mut self, immediate: Option<u32>) -> Result<SendHandle, Error> {
        let handle = self.start(
            None,
            SendOptions {
                immediate,
                scheme: SchemeTag::NONE,
                deadline_ns: None,
            },
            None,
            false,
        )?;
        let send = self.sends.get_mut(&handle.message).expect("just inserted");
        send.stream = Some(Stream::default());
        Ok(handle)
    }

    fn start(
        &mut self,
        length: Option<u64>,
        options: SendOptions,
        layout: Option<Layout>,
        is_bounded: bool,
    ) -> Result<SendHandle, Error> {
        if self.connected.is_none() {
            return Err(Error::NotConnected(self.name.serial));
        }
        let slots = self.geometry().slots();
        let oldest = self.leaving.keys().next();
        if oldest.is_some_and(|oldest| oldest + u64::from(slots) <= self.sdr.next_send()) {
            return Err(Error::Retry { slots });
        }
        let spec = SendSpec {
            length,
            immediate: options.immediate,
            scheme: options.scheme,
            parity_bytes: layout.map_or(0, |layout| layout.parity_bytes() as u64),
            is_bounded,
        };
        let message = self.sdr.start_send(spec).map_err(|e| self.sdr_error(e))?;
        let shared = Arc::new(SendShared::default());
        let geometry = self.geometry();
        let most_bytes = length.unwrap_or(geometry.config().max_message_bytes);
        let chunks = geometry.chunks(most_bytes, options.immediate.is_some());
        let parity_chunks = layout.map_or(0, |layout| {
            geometry.chunks(layout.parity_bytes() as u64, false)
        });
        let send = Send {
            source: None,
            scheme: options.scheme,
            has_immediate: options.immediate.is_some(),
            layout,
            parity: None,
            is_bounded,
            cleared: false,
            started: false,
            departed: 0,
            stream: None,
            queued: [ChunkSet::new(chunks), ChunkSet::new(parity_chunks)],
            deadline_ns: options.deadline_ns,
            shared: Arc::clone(&shared),
        };
        self.sends.insert(message, send);
        if let Some(deadline_ns) = options.deadline_ns {
            self.send_deadlines.insert(deadline_ns, message);
        }
        Ok(SendHandle {
            pair: self.name,
            message,
            shared,
        })
    }

    /// Sends a run of chunks, from `first_chunk` on, of a message without a scheme. Only the
    /// message's last chunk may be short.
    pub(crate) fn continue_stream(
        &mut self,
        message: u64,
        source: MrSlice,
        first_chunk: u32,
    ) -> Result<(), Error> {
        self.check_slice(&source)?;
        let chunk_bytes = self.geometry().chunk_bytes();
        let end_bytes = u64::from(first_chunk) * chunk_bytes + source.length;
        self.check_length(end_bytes)?;
        let send = self
            .sends
            .get_mut(&message)
            .ok_or(Error::NoSuchMessage(message))?;
        let stream = send
            .stream
            .as_mut()
            .ok_or(Error::Stream("the message has a scheme"))?;
        if source.length == 0 {
            return Err(Error::Stream("a run of chunks must hold at least one byte"));
        }
        if end_bytes > stream.bytes && stream.ended {
            return Err(Error::Stream("the stream ended before these chunks"));
        }
        if end_bytes > stream.bytes && stream.bytes % chunk_bytes != 0 {
            return Err(Error::Stream(
                "a run was added behind one that ended within a chunk",
            ));
        }
        if end_bytes < stream.bytes && !end_bytes.is_multiple_of(chunk_bytes) {
            return Err(Error::Stream(
                "a run must end where a chunk ends, or the message",
            ));
        }
        let end = u32::try_from(end_bytes.div_ceil(chunk_bytes))
            .expect("checked against the largest message");
        stream.bytes = stream.bytes.max(end_bytes);
        stream.in_hand += end - first_chunk;
        let chunks = Chunks {
            message,
            range: first_chunk..end,
        };
        self.streams.push_back(StreamRun {
            chunks,
            source,
            first_chunk,
        });
        Ok(())
    }

    /// Says that no chunks will be added: the message is as long as its furthest run.
    pub(crate) fn end_stream(&mut self, message: u64) -> Result<(), Error> {
        let send = self
            .sends
            .get_mut(&message)
            .ok_or(Error::NoSuchMessage(message))?;
        let has_immediate = send.has_immediate;
        let stream = send.stream.as_mut().filter(|stream| !stream.ended);
        let stream = stream.ok_or(Error::Stream("the message is not a stream, or ended"))?;
        let bytes = stream.bytes;
        let ended = self.sdr.end_send(message, bytes);
        if ended.is_ok() {
            stream.ended = true;
            let geometry = self.sdr.geometry();
            // Packets past the last byte that carry the rest of an immediate; the first of them may
            // share a chunk with the last byte.
            let first = u32::try_from(bytes.div_ceil(geometry.mtu().into()))
                .expect("checked against the largest message");
            if first < geometry.packets(bytes, has_immediate) {
                let first_chunk = geometry.chunk_of(first);
                let range = first_chunk..geometry.chunks(bytes, has_immediate);
                stream.in_hand += range.end - range.start;
                self.streams.push_back(StreamRun {
                    chunks: Chunks { message, range },
                    source: MrSlice::EMPTY,
                    first_chunk,
                });
            }
            // Perhaps all had left before.
            send.note_injected();
        }
        ended.map_err(|e| self.sdr_error(e))
    }

    /// Whether an open message is sent from the region.
    pub(super) fn sends_from(&self, lkey: Lkey) -> bool {
        let whole = self.sends.values().filter_map(|send| send.source);
        let runs = self.streams.iter().map(|run| run.source);
        whole.chain(runs).any(|source| source.region.lkey == lkey) || self.outgoing.sends_from(lkey)
    }

    /// Gives a message up; the receiver is told that no more comes.
    pub(crate) fn cancel_send(&mut self, message: u64) {
        self.stop_send(message, Outcome::Failed);
    }

    /// Ends a send before its scheme is done with it. Nothing more of it goes to the fabric.
    pub(super) fn stop_send(&mut self, message: u64, outcome: Outcome) {
        if let Some(send) = self.sends.get(&message)
            && let Some(sender) = self.halves.existing_sender(send.scheme)
        {
            sender.abandon(message);
        }
        self.finish_send(message, outcome);
    }
}
