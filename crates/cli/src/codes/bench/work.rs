//! The tasks that are measured.

use std::fmt;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::thread;
use std::time::{Duration, Instant};

use farwrite_codes::{ChunkMask, Code, Codec, Layout, MessageError, Present};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::exit::{Exit, Failure, OrExit};

#[derive(Clone, Debug)]
pub(super) enum Task {
    Read,
    Encode(Codec),
    /// Rebuilds this number of chunks in every group.
    Decode(Codec, usize),
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read => f.write_str("read"),
            Self::Encode(codec) => write!(f, "encode, {}", codec.kernel()),
            Self::Decode(codec, lost) => write!(f, "decode {lost}, {}", codec.kernel()),
        }
    }
}

/// The data and parity of the tasks.
pub(super) struct Work {
    layout: Layout,
    pub(super) threads: NonZeroUsize,
    pub(super) data: Vec<u8>,
    parity: Vec<u8>,
    copy: Vec<u8>,
}

impl Work {
    /// Random data for `groups` groups.
    pub(super) fn new(
        code: Code,
        chunk_bytes: usize,
        groups: usize,
        threads: NonZeroUsize,
    ) -> Self {
        let bytes = groups * code.k() * chunk_bytes;
        let layout = Layout::new(code, bytes, chunk_bytes).expect("it fits into memory");
        let mut data = vec![0; bytes];
        ChaCha8Rng::seed_from_u64(1).fill_bytes(&mut data);
        Self {
            layout,
            threads,
            copy: data.clone(),
            data,
            // Written once, so that the pages are allocated.
            parity: vec![0xff; layout.parity_bytes()],
        }
    }

    /// Measures the time of a task.
    ///
    /// # Errors
    /// [`Exit::Corrupt`] if the rebuilt data differ from the original.
    pub(super) fn run(&mut self, task: &Task) -> Result<Duration, Failure> {
        let doing = format_args!("{task}");
        match task {
            Task::Read => Ok(self.read()),
            Task::Encode(codec) => self.encode(codec).or_exit(Exit::Other, doing),
            Task::Decode(codec, lost) => {
                let time = self.decode(codec, *lost).or_exit(Exit::Other, doing)?;
                match self.data == self.copy {
                    true => Ok(time),
                    false => Err(Failure::new(
                        Exit::Corrupt,
                        format_args!("{task}: wrong bytes"),
                    )),
                }
            }
        }
    }

    fn read(&self) -> Duration {
        let start = Instant::now();
        let part = self.data.len().div_ceil(self.threads.get());
        thread::scope(|scope| {
            let mut parts = self.data.chunks(part);
            let own = parts.next().unwrap_or(&[]);
            for part in parts {
                scope.spawn(|| black_box(sum(part)));
            }
            black_box(sum(own));
        });
        start.elapsed()
    }

    fn encode(&mut self, codec: &Codec) -> Result<Duration, MessageError> {
        let start = Instant::now();
        codec.encode_message(
            &self.data,
            self.layout.chunk_bytes(),
            &mut self.parity,
            self.threads,
        )?;
        Ok(start.elapsed())
    }

    /// Decodes. The parity must already match the data: an encoding task runs first.
    fn decode(&mut self, codec: &Codec, lost: usize) -> Result<Duration, MessageError> {
        let (chunk_bytes, k) = (self.layout.chunk_bytes(), self.layout.code().k());
        for group in self.data.chunks_mut(k * chunk_bytes) {
            group[..lost * chunk_bytes].fill(0xff);
        }
        let mut present = Present::all(self.layout.code(), k);
        present.data = ChunkMask::first(lost).missing(k);
        let present = vec![present; self.layout.groups()];
        let start = Instant::now();
        codec.recover_message(
            &mut self.data,
            &self.parity,
            chunk_bytes,
            &present,
            self.threads,
        )?;
        Ok(start.elapsed())
    }
}

/// Adds up bytes, as words in eight columns. This is as fast as the memory.
fn sum(bytes: &[u8]) -> u64 {
    let mut sums = [0_u64; 8];
    let (lines, rest) = bytes.as_chunks::<64>();
    for line in lines {
        let (words, _) = line.as_chunks::<8>();
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
        }
    }
    let rest = rest.iter().map(|byte| u64::from(*byte));
    sums.into_iter().chain(rest).fold(0, u64::wrapping_add)
}
