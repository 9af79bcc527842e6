//! How a file is cut into groups, and how its parity lies in a file of its own.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::thread;

use clap::Args;
use farwrite_codes::{Code, Codec, CodecError, Layout};

use crate::exit::{Exit, Failure};
use farwrite_units::parse::parse_size;
use farwrite_units::show::Bytes;

/// Data and parity of so many bytes are worked on at a time: enough for every thread, little enough
/// for every machine.
const BATCH_BYTES: usize = 64 << 20;
/// A group is worked on as a whole, so that it has to fit into memory.
const MAX_GROUP_BYTES: u64 = 1 << 30;

/// What encoding and decoding have to be told alike.
#[derive(Debug, Args)]
pub(super) struct CutArgs {
    /// Erasure code, as ec-mds:32,8 or ec-xor:32,8: groups of 32 data chunks, 8 parity chunks for each
    #[arg(long, value_name = "CODE", default_value = "ec-mds:32,8")]
    code: Code,
    /// Bytes of a chunk: 1 to what makes groups of 1GiB, parity included
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = parse_size)]
    #[arg(allow_hyphen_values = true)]
    chunk_bytes: u64,
    /// Threads to compute on; without it, as many as this machine has cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    #[arg(allow_hyphen_values = true)]
    threads: Option<u16>,
}

/// A code and the size of its chunks. Group `g` has data chunks `g k` to `(g + 1) k - 1`, and parity
/// chunks `g m` to `(g + 1) m - 1`: always `m` of them, each of whole length, as if the data went on
/// with zeros to the end of the group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) code: Code,
    pub(super) chunk_bytes: usize,
    pub(super) threads: NonZeroUsize,
}

impl CutArgs {
    /// # Errors
    /// [`Exit::Usage`] for groups that are too large.
    pub(super) fn cut(&self) -> Result<Cut, Failure> {
        let code = self.code;
        let chunks = (code.k() + code.m()) as u64;
        let most = MAX_GROUP_BYTES / chunks;
        if self.chunk_bytes > most {
            return Err(Failure::new(
                Exit::Usage,
                format!(
                    "--chunk-bytes {}: groups of {code} would exceed {}, which are held in memory; \
                     chunks of at most {most} bytes would do",
                    self.chunk_bytes,
                    Bytes(MAX_GROUP_BYTES)
                ),
            ));
        }
        let threads = match self.threads {
            Some(threads) => NonZeroUsize::new(threads.into()),
            None => thread::available_parallelism().ok(),
        };
        Ok(Cut {
            code,
            chunk_bytes: usize::try_from(self.chunk_bytes).expect("at most a GiB"),
            threads: threads.unwrap_or(NonZeroUsize::MIN),
        })
    }
}

impl Cut {
    /// Bytes of data of a full group.
    pub(super) fn group_bytes(&self) -> usize {
        self.code.k() * self.chunk_bytes
    }

    /// Bytes of parity of every group.
    pub(super) fn group_parity_bytes(&self) -> usize {
        self.code.m() * self.chunk_bytes
    }

    /// Groups of a file.
    pub(super) fn groups(&self, data_bytes: u64) -> u64 {
        data_bytes.div_ceil(self.group_bytes() as u64)
    }

    /// Data chunks of a file.
    pub(super) fn chunks(&self, data_bytes: u64) -> u64 {
        data_bytes.div_ceil(self.chunk_bytes as u64)
    }

    /// Parity chunks of a file.
    pub(super) fn parity_chunks(&self, data_bytes: u64) -> u64 {
        let m = self.code.m() as u64;
        self.groups(data_bytes).saturating_mul(m)
    }

    /// Bytes of the parity of a file; `None` if none could hold them.
    pub(super) fn parity_bytes(&self, data_bytes: u64) -> Option<u64> {
        self.parity_chunks(data_bytes)
            .checked_mul(self.chunk_bytes as u64)
    }

    /// The data chunks of a group, by their number in a file of so many bytes.
    pub(super) fn chunks_of(&self, group: u64, data_bytes: u64) -> Range<u64> {
        let k = self.code.k() as u64;
        let first = group.saturating_mul(k);
        first..first.saturating_add(k).min(self.chunks(data_bytes))
    }

    /// Groups to work on at a time.
    pub(super) fn batch_groups(&self) -> usize {
        let group = self.group_bytes() + self.group_parity_bytes();
        let held = |bytes: usize| bytes / group;
        let most = held(usize::try_from(MAX_GROUP_BYTES).expect("64-bit machine"));
        held(BATCH_BYTES).max(self.threads.get()).min(most).max(1)
    }

    /// Makes the parity of groups that follow one another; the last can be short.
    pub(super) fn encode(
        &self,
        codec: &Codec,
        data: &[u8],
        parity: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        let layout = Layout::new(self.code, data.len(), self.chunk_bytes)?;
        parity.clear();
        // Zeros where XOR has parity chunks that cover nothing of a short group.
        parity.resize(layout.groups() * self.group_parity_bytes(), 0);
        let covering = &mut parity[..layout.parity_bytes()];
        codec.encode_message(data, self.chunk_bytes, covering, self.threads)
    }
}
