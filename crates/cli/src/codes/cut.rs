//! The division of a file into groups, and the layout of the parity file.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::thread;

use clap::Args;
use farwrite_codes::{Code, Codec, CodecError, Layout};

use crate::exit::{Exit, Failure};
use farwrite_units::parse::parse_size;
use farwrite_units::show::Bytes;

/// The number of bytes of data and parity that are processed at a time. It is enough work for all
/// threads and fits the memory of every machine.
const BATCH_BYTES: usize = 64 << 20;
/// A group is processed as a whole, so it must fit into memory.
const MAX_GROUP_BYTES: u64 = 1 << 30;

/// Options that encoding and decoding share.
#[derive(Debug, Args)]
pub(super) struct CutArgs {
    /// Erasure code, as ec-mds:32,8 or ec-xor:32,8: groups of 32 data chunks, 8 parity chunks for
    /// each
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

/// A code and its chunk size. Group `g` has data chunks `g k` to `(g + 1) k - 1`, and parity chunks
/// `g m` to `(g + 1) m - 1`. Every group has `m` parity chunks of full length, as if zeros filled
/// the data to the end of the group.
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
    /// The number of data bytes in a full group.
    pub(super) fn group_bytes(&self) -> usize {
        self.code.k() * self.chunk_bytes
    }

    /// The number of parity bytes in every group.
    pub(super) fn group_parity_bytes(&self) -> usize {
        self.code.m() * self.chunk_bytes
    }

    pub(super) fn groups(&self, data_bytes: u64) -> u64 {
        data_bytes.div_ceil(self.group_bytes() as u64)
    }

    pub(super) fn chunks(&self, data_bytes: u64) -> u64 {
        data_bytes.div_ceil(self.chunk_bytes as u64)
    }

    pub(super) fn parity_chunks(&self, data_bytes: u64) -> u64 {
        let m = self.code.m() as u64;
        self.groups(data_bytes).saturating_mul(m)
    }

    /// The number of parity bytes of a file; `None` if the number is too large for any file.
    pub(super) fn parity_bytes(&self, data_bytes: u64) -> Option<u64> {
        self.parity_chunks(data_bytes)
            .checked_mul(self.chunk_bytes as u64)
    }

    /// The data chunks of a group, by their number in a file of `data_bytes` bytes.
    pub(super) fn chunks_of(&self, group: u64, data_bytes: u64) -> Range<u64> {
        let k = self.code.k() as u64;
        let first = group.saturating_mul(k);
        first..first.saturating_add(k).min(self.chunks(data_bytes))
    }

    /// The number of groups to process at a time.
    pub(super) fn batch_groups(&self) -> usize {
        let group = self.group_bytes() + self.group_parity_bytes();
        let held = |bytes: usize| bytes / group;
        let most = held(usize::try_from(MAX_GROUP_BYTES).expect("64-bit machine"));
        held(BATCH_BYTES).max(self.threads.get()).min(most).max(1)
    }

    /// Computes the parity of consecutive groups. The last group can be short.
    pub(super) fn encode(
        &self,
        codec: &Codec,
        data: &[u8],
        parity: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        let layout = Layout::new(self.code, data.len(), self.chunk_bytes)?;
        parity.clear();
        // An XOR code has parity chunks that cover nothing of a short group: these stay zero.
        parity.resize(layout.groups() * self.group_parity_bytes(), 0);
        let covering = &mut parity[..layout.parity_bytes()];
        codec.encode_message(data, self.chunk_bytes, covering, self.threads)
    }
}
