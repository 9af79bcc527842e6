//! Sends without a scheme: the user decides which chunks to send, and when.

use std::ops::Range;

use farwrite_schemes::scheme::Chunks;
use farwrite_wire::control::SchemeTag;

use super::queue::Source;
use super::runs::StreamRun;
use super::{Stage, Traits};
use crate::critical::CriticalError;
use crate::error::{Error, StreamError};
use crate::handle::SendHandle;
use crate::memory::MrSlice;
use crate::options::SendOptions;
use crate::pair::Pair;

/// State of a send without a scheme.
#[derive(Default)]
pub(super) struct Stream {
    /// Bytes up to the end of the furthest run.
    pub(super) bytes: u64,
    /// Number of chunks that were given and have not departed.
    pub(super) in_hand: u32,
    pub(super) ended: bool,
}

/// A run of chunks that fits its stream.
#[derive(Clone)]
pub(super) struct NewRun {
    chunks: Range<u32>,
    source: Source,
}

impl NewRun {
    /// Returns one past the last byte of the run in the message.
    pub(super) fn end_bytes(&self) -> u64 {
        self.source.end()
    }

    pub(super) fn chunks(&self) -> u32 {
        self.chunks.end - self.chunks.start
    }
}

impl Pair {
    /// Starts a message of unknown length. [`Pair::continue_stream`] adds its chunks.
    pub(crate) fn start_stream(&mut self, immediate: Option<u32>) -> Result<SendHandle, Error> {
        self.open_stream(SendOptions {
            immediate,
            scheme: SchemeTag::NONE,
            ..SendOptions::default()
        })
    }

    /// Starts a message whose bytes are all in `source`, and begin behind the first chunk of the peer's
    /// buffer. It is a stream of one run. What is wrong with it is found before it takes the number of a
    /// message.
    pub(super) fn post_from(
        &mut self,
        source: MrSlice,
        options: SendOptions,
    ) -> Result<SendHandle, Error> {
        let first_chunk = options.first_chunk;
        if options.scheme != SchemeTag::NONE {
            return Err(StreamError::OffsetWithScheme(first_chunk).into());
        }
        if !options.critical.is_empty() {
            return Err(CriticalError::Scheme {
                scheme: options.scheme.id,
            }
            .into());
        }
        self.check_slice(&source)?;
        if source.length == 0 {
            return Err(StreamError::EmptyRun.into());
        }
        let geometry = self.geometry();
        self.check_length(u64::from(first_chunk) * geometry.chunk_bytes() + source.length)?;
        let (packets, parts) = (
            source.length.div_ceil(geometry.mtu().into()),
            geometry.fragments(),
        );
        if options.immediate.is_some() && packets < u64::from(parts) {
            return Err(StreamError::TooShortForImmediate {
                packets,
                first_chunk,
                parts,
            }
            .into());
        }
        let handle = self.open_stream(options)?;
        let run = self.check_run(handle.message, source, first_chunk)?;
        self.add_run(handle.message, run, None);
        self.end_stream(handle.message)?;
        Ok(handle)
    }

    fn open_stream(&mut self, options: SendOptions) -> Result<SendHandle, Error> {
        let handle = self.start_send(None, options, None, Traits::default())?;
        let send = self.send.open.get_mut(&handle.message);
        send.expect("just inserted").stream = Some(Stream::default());
        Ok(handle)
    }

    /// Queues all chunks of a message that has no scheme and whose bytes are in `source`.
    pub(super) fn send_raw(&mut self, message: u64, source: MrSlice, has_immediate: bool) {
        let chunks = self.geometry().chunks(source.length, has_immediate);
        let send = self.send.open.get_mut(&message);
        send.expect("just inserted").stream = Some(Stream {
            bytes: source.length,
            in_hand: chunks,
            ended: true,
        });
        self.send.streams.push(StreamRun {
            chunks: Chunks {
                message: message.into(),
                range: 0..chunks,
            },
            source: Source {
                slice: source,
                first_byte: 0,
            },
            write: None,
        });
    }

    /// Sends a run of chunks of a message without a scheme, starting at `first_chunk`. Only the
    /// message's last chunk may be short.
    pub(crate) fn continue_stream(
        &mut self,
        message: u64,
        source: MrSlice,
        first_chunk: u32,
    ) -> Result<(), Error> {
        let run = self.check_run(message, source, first_chunk)?;
        self.add_run(message, run, None);
        Ok(())
    }

    pub(super) fn check_run(
        &self,
        message: u64,
        source: MrSlice,
        first_chunk: u32,
    ) -> Result<NewRun, Error> {
        self.check_slice(&source)?;
        let chunk_bytes = self.geometry().chunk_bytes();
        let first_byte = u64::from(first_chunk) * chunk_bytes;
        let end_bytes = first_byte + source.length;
        self.check_length(end_bytes)?;
        let send = self.send.open.get(&message);
        let send = send.ok_or(Error::NoSuchMessage(message))?;
        let stream = send.stream.as_ref().ok_or(StreamError::HasScheme)?;
        if source.length == 0 {
            return Err(StreamError::EmptyRun.into());
        }
        if end_bytes > stream.bytes && stream.ended {
            return Err(StreamError::PastEnd.into());
        }
        if end_bytes > stream.bytes && stream.bytes % chunk_bytes != 0 {
            return Err(StreamError::BehindShortChunk.into());
        }
        if end_bytes < stream.bytes && !end_bytes.is_multiple_of(chunk_bytes) {
            return Err(StreamError::EndsWithinChunk.into());
        }
        let end = u32::try_from(end_bytes.div_ceil(chunk_bytes))
            .expect("checked against the largest message");
        Ok(NewRun {
            chunks: first_chunk..end,
            source: Source {
                slice: source,
                first_byte,
            },
        })
    }

    /// `run` was just checked. `write` is the number of the write that it belongs to, if any.
    pub(super) fn add_run(&mut self, message: u64, run: NewRun, write: Option<u64>) {
        let send = self.send.open.get_mut(&message);
        if let Some(stream) = send.and_then(|send| send.stream.as_mut()) {
            stream.bytes = stream.bytes.max(run.end_bytes());
            stream.in_hand += run.chunks();
        }
        self.send.streams.push(StreamRun {
            chunks: Chunks {
                message: message.into(),
                range: run.chunks,
            },
            source: run.source,
            write,
        });
    }

    /// Ends a stream: no more chunks are added. The message ends where its furthest run ends.
    pub(crate) fn end_stream(&mut self, message: u64) -> Result<(), Error> {
        let send = self.send.open.get_mut(&message);
        let send = send.ok_or(Error::NoSuchMessage(message))?;
        let has_immediate = send.has_immediate;
        let stream = send.stream.as_mut().filter(|stream| !stream.ended);
        let stream = stream.ok_or(StreamError::NotOpen)?;
        let bytes = stream.bytes;
        let ended = self.sdr.end_send(message, bytes);
        if ended.is_ok() {
            stream.ended = true;
            let geometry = self.sdr.geometry();
            // Packets past the last byte carry the rest of an immediate. The first of them may
            // share a chunk with the last byte.
            let first = u32::try_from(bytes.div_ceil(geometry.mtu().into()))
                .expect("checked against the largest message");
            if first < geometry.packets(bytes, has_immediate) {
                let first_chunk = geometry.chunk_of(first);
                let range = first_chunk..geometry.chunks(bytes, has_immediate);
                stream.in_hand += range.end - range.start;
                self.send.streams.push(StreamRun {
                    chunks: Chunks {
                        message: message.into(),
                        range,
                    },
                    source: Source {
                        slice: MrSlice::EMPTY,
                        first_byte: u64::from(first_chunk) * geometry.chunk_bytes(),
                    },
                    write: None,
                });
            }
            // All chunks may have left already.
            send.note_injected();
        }
        ended.map_err(|e| self.sdr_error(e))
    }

    /// Queues chunks of the oldest run of a stream whose receiver is ready. Returns false if there
    /// is no such run. A user may give runs of messages whose buffers are posted only after an
    /// older message has ended.
    pub(super) fn pull_stream(&mut self, max_chunks: u32) -> bool {
        let (open, sdr) = (&self.send.open, &self.sdr);
        let run = self.send.streams.take(max_chunks, |message| {
            // Writes that do not fit the window were ended when the clearance was handled.
            let send = open.get(&message);
            let is_handled = send.is_some_and(|send| send.stage >= Stage::Cleared);
            is_handled && sdr.is_clear(message)
        });
        let Some(run) = run else {
            return false;
        };
        self.queue_run(run.chunks, run.source, run.write);
        true
    }
}
