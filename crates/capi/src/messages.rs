//! Messages of a C program: handles of sends and receives.
//!
//! Calls that programs repeat in a loop read atomics, and do not ask the thread of the endpoint. A
//! handle belongs to one thread at a time: of two calls on it that overlap, the second is an error.
//! That is found with a lock that no call waits for. It is not held while a call waits for the thread.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;

use farwrite::{MrSlice, Outcome, RecvHandle, SendHandle};

use crate::failure::Failure;
use crate::queue_pair::Pair;

/// `flags` of `sdr_send_status`: the receiver completed the message before all packets had left.
const ENDED_BY_RECEIVER: u32 = 1;

fn enter<T>(state: &Mutex<T>) -> Result<MutexGuard<'_, T>, Failure> {
    match state.try_lock() {
        Ok(state) => Ok(state),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Failure::new(
            "another thread uses this handle: a handle belongs to one thread at a time",
        )),
    }
}

/// What `sdr_recv_handle` names.
pub(crate) struct Receive {
    pub(crate) pair: Arc<Pair>,
    /// Bytes of the posted buffer.
    bytes: u64,
    /// Chunks of the posted buffer.
    chunks: u32,
    state: Mutex<ReceiveState>,
}

struct ReceiveState {
    /// `None` once it was completed.
    handle: Option<RecvHandle>,
    /// Chunks that the last call saw.
    seen: u32,
}

fn completed() -> Failure {
    Failure::new("the receive was completed already")
}

impl Receive {
    pub(crate) fn new(pair: &Arc<Pair>, handle: RecvHandle, bytes: u64) -> Self {
        let chunks = bytes.div_ceil(pair.chunk_bytes()).max(1);
        Self {
            pair: Arc::clone(pair),
            bytes,
            chunks: u32::try_from(chunks).unwrap_or(u32::MAX),
            state: Mutex::new(ReceiveState {
                handle: Some(handle),
                seen: 0,
            }),
        }
    }

    /// The live bitmap, and its bytes.
    pub(crate) fn bitmap(&self) -> Result<(*mut u8, usize), Failure> {
        let mut state = enter(&self.state)?;
        let bitmap = state.handle.as_ref().ok_or_else(completed)?.bitmap();
        let (bits, count) = (bitmap.as_ptr().cast_mut(), bitmap.count());
        let is_news = count != state.seen;
        state.seen = count;
        drop(state);
        if !is_news {
            // Programs call this in a loop. With few cores, the thread of the endpoint needs this one.
            thread::yield_now();
        }
        Ok((bits, self.chunks.div_ceil(8) as usize))
    }

    /// Which packets of one chunk have arrived, in packets of the program's MTU: 64 bits in each word.
    pub(crate) fn packets(&self, chunk: u32) -> Result<Vec<u64>, Failure> {
        if chunk >= self.chunks {
            return Err(Failure::new(format!(
                "chunk {chunk}: the buffer has {} chunks",
                self.chunks
            )));
        }
        let state = enter(&self.state)?;
        let handle = state.handle.as_ref().ok_or_else(completed)?;
        let bitmap = handle.bitmap();
        let merged = self.pair.shape.packets_a_bit;
        let most = self.pair.config().packets_per_chunk / merged;
        let words = 0..most.div_ceil(64);
        if merged == 1 {
            return Ok(words.map(|word| bitmap.packet_word(chunk, word)).collect());
        }
        // A packet of the program's MTU is several on the wire. The last one of a message can be fewer.
        let config = self.pair.config();
        let bytes = handle.length().unwrap_or(self.bytes);
        let before = u64::from(chunk) * u64::from(config.packets_per_chunk);
        let sent = bytes.div_ceil(config.mtu.into()).saturating_sub(before);
        let wire = |packet: u32| {
            u64::from(packet) >= sent
                || bitmap.packet_word(chunk, packet / 64) >> (packet % 64) & 1 == 1
        };
        let is_there = |packet: u32| {
            let first = u64::from(packet) * u64::from(merged);
            packet < most && first < sent && (packet * merged..(packet + 1) * merged).all(wire)
        };
        let word = |word: u32| {
            let bits = (0..64).filter(|bit| is_there(word * 64 + bit));
            bits.fold(0, |bits, bit| bits | 1 << bit)
        };
        Ok(words.map(word).collect())
    }

    /// The user immediate; [`Failure::Retry`] until all of it is there.
    pub(crate) fn immediate(&self) -> Result<u32, Failure> {
        let state = enter(&self.state)?;
        let immediate = state.handle.as_ref().ok_or_else(completed)?.immediate();
        drop(state);
        immediate.ok_or_else(|| {
            thread::yield_now();
            Failure::Retry(String::new())
        })
    }

    /// Ends the receive. When this returns, no packet changes its memory.
    pub(crate) fn complete(&self) -> Result<(), Failure> {
        let handle = enter(&self.state)?.handle.take().ok_or_else(completed)?;
        let outcome = match handle.bitmap().is_complete() {
            true => Outcome::Whole,
            false => Outcome::Partial,
        };
        // The program may read the bits until the queue pair is destroyed, whatever happens here.
        let message = self.pair.keep_bits(handle.clone());
        let pair = Arc::clone(&self.pair);
        self.pair.context.call(move |endpoint| {
            match endpoint.complete_recv(&handle, outcome) {
                // The sender had withdrawn the message, or it did not fit.
                Ok(()) | Err(farwrite::Error::NoSuchMessage(_)) => {}
                Err(error) => return Err(error),
            }
            pair.give_bits_back(message);
            endpoint.reuse_bitmap(handle).map(drop)
        })??;
        Ok(())
    }
}

/// What `sdr_send_handle` names.
pub(crate) struct Send {
    pub(crate) pair: Arc<Pair>,
    state: Mutex<SendState>,
}

struct SendState {
    handle: SendHandle,
    /// Whether chunks can be added.
    is_stream: bool,
    /// What the program was told, once it was told that the send is over.
    told: Option<Result<u32, ()>>,
}

impl Send {
    pub(crate) fn new(pair: &Arc<Pair>, handle: SendHandle, is_stream: bool) -> Self {
        Self {
            pair: Arc::clone(pair),
            state: Mutex::new(SendState {
                handle,
                is_stream,
                told: None,
            }),
        }
    }

    fn stream(state: &SendState) -> Result<SendHandle, Failure> {
        match state.is_stream {
            true => Ok(state.handle.clone()),
            false => Err(Failure::new(
                "the send is not a stream, or was ended: start one with sdr_streaming_send_start",
            )),
        }
    }

    /// Adds chunks to a stream.
    pub(crate) fn add(&self, source: MrSlice, first_chunk: u32) -> Result<(), Failure> {
        let stream = Self::stream(&*enter(&self.state)?)?;
        let added = self
            .pair
            .context
            .call(move |endpoint| endpoint.send_chunks(&stream, source, first_chunk))?;
        Ok(added?)
    }

    /// Ends a stream.
    pub(crate) fn end(&self) -> Result<(), Failure> {
        let stream = {
            let mut state = enter(&self.state)?;
            let stream = Self::stream(&state)?;
            state.is_stream = false;
            stream
        };
        let ended = self.pair.context.call(move |endpoint| {
            match endpoint.end_stream(&stream) {
                // The receiver completed the message first.
                Ok(()) | Err(farwrite::Error::NoSuchMessage(_)) => Ok(()),
                // The message does not fit the peer's buffer. Without an end it would stay open.
                Err(error) => endpoint.cancel_send(&stream).and(Err(error)),
            }
        })?;
        Ok(ended?)
    }

    /// Whether the send is over, so that nobody needs its handle any more.
    pub(crate) fn is_over(&self) -> bool {
        let Ok(state) = enter(&self.state) else {
            return false;
        };
        state.told.is_some() || state.handle.is_injected() || state.handle.outcome().is_some()
    }

    /// The flags of a send whose packets have all left, or whose message the receiver has completed;
    /// [`Failure::Retry`] before.
    pub(crate) fn poll(&self) -> Result<u32, Failure> {
        let mut state = enter(&self.state)?;
        let told = state.told.or_else(|| {
            if !state.is_stream && state.handle.is_injected() {
                return Some(Ok(0));
            }
            match state.handle.outcome()? {
                Outcome::Failed => Some(Err(())),
                Outcome::Whole | Outcome::Partial => Some(Ok(ENDED_BY_RECEIVER)),
            }
        });
        state.told = told;
        let refusal = state.handle.refusal();
        drop(state);
        match told {
            None => {
                thread::yield_now();
                Err(Failure::Retry(String::new()))
            }
            Some(Ok(flags)) => Ok(flags),
            Some(Err(())) => Err(Failure::new(match refusal {
                Some(refusal) => format!("the message failed: {refusal}"),
                None => {
                    "the message failed: its queue pair is broken, the peer has ended it, or nothing was heard of \
                     the peer for 60 s"
                        .into()
                }
            })),
        }
    }
}
