//! The benchmarked operations, and their shared memory.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut, Range};
use std::time::{Duration, Instant};

use farwrite_codes::{Code, Codec, CodecError, Layout, Present};
use farwrite_rng::SplitMix;
use nix::time::{ClockId, clock_gettime};

use crate::reading::Loop;
use farwrite_isal::Product;

const PAGE_BYTES: usize = 4096;

/// An operation on the whole message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Reads all data chunks in order.
    Read(Loop),
    /// Encodes all parity.
    Encode(Code),
    /// Encodes all parity, with one thread per processor.
    EncodeOnThreads(Code),
    /// Rebuilds this number of chunks of each group, with the MDS code.
    Recover(usize),
    /// ISA-L encodes all parity, in columns of this number of bytes per call.
    IsalEncode(usize),
    /// ISA-L rebuilds this number of chunks of each group, in columns of this number of bytes per
    /// call.
    IsalRecover(usize, usize),
}

/// Ways of calling ISA-L: bytes of a call's columns. The last one means whole chunks.
pub(crate) const ISAL_TILES: [usize; 7] = [256, 512, 1024, 2048, 4096, 16384, usize::MAX];

/// A message in cold memory with its parity.
pub(crate) struct CodedMessage {
    pub(crate) layout: Layout,
    data: Memory,
    parity: Memory,
    /// The expected data and parity of the first group.
    first_group: [Vec<u8>; 2],
    threads: NonZeroUsize,
}

impl CodedMessage {
    /// A message of whole groups, with at least `bytes` bytes.
    pub(crate) fn new(mds: Code, bytes: usize, chunk_bytes: usize) -> Result<Self, CodecError> {
        let group_bytes = mds.k() * chunk_bytes;
        let layout = Layout::new(
            mds,
            bytes.div_ceil(group_bytes.max(1)) * group_bytes,
            chunk_bytes,
        )?;
        let mut rng = SplitMix::new(1);
        let mut data = Memory::new(layout.data_bytes());
        for word in data.as_chunks_mut::<8>().0 {
            *word = rng.next().to_le_bytes();
        }
        let mut parity = Memory::new(layout.parity_bytes());
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Codec::new(mds).encode_message(&data, chunk_bytes, &mut parity, threads)?;
        let first_group = [
            data[..group_bytes].to_vec(),
            parity[..mds.m() * chunk_bytes].to_vec(),
        ];
        Ok(Self {
            layout,
            data,
            parity,
            first_group,
            threads,
        })
    }

    /// Number of processors, and of threads of [`What::EncodeOnThreads`].
    pub(crate) fn threads(&self) -> usize {
        self.threads.get()
    }

    /// Runs the operation once. Returns its time in seconds. For operations on one thread, this is
    /// processor time, so that other programs affect it less.
    pub(crate) fn run(&mut self, what: What) -> Result<f64, CodecError> {
        let (code, chunk_bytes) = (self.layout.code(), self.layout.chunk_bytes());
        let data = self.data.chunks_mut(code.k() * chunk_bytes);
        let groups = data.zip(self.parity.chunks_mut(code.m() * chunk_bytes));
        // Lost chunks are spread evenly over the group.
        let lost = |lost: usize| (0..lost).map(move |i| i * code.k() / lost);
        let (start, wall) = (thread_time(), Instant::now());
        match what {
            What::Read(way) => {
                for chunk in self.data.chunks(chunk_bytes) {
                    black_box(way.read(chunk));
                }
            }
            What::Encode(code) => {
                let codec = Codec::new(code);
                for (data, parity) in groups {
                    codec.encode(data, chunk_bytes, parity)?;
                }
            }
            What::EncodeOnThreads(code) => {
                let (data, parity) = (&*self.data, &mut *self.parity);
                Codec::new(code).encode_message(data, chunk_bytes, parity, self.threads)?;
                return Ok(wall.elapsed().as_secs_f64());
            }
            What::Recover(count) => {
                let codec = Codec::new(code);
                let mut present = Present::all(code, code.k());
                lost(count).for_each(|chunk| assert!(present.data.remove(chunk)));
                for (data, parity) in groups {
                    codec.recover(data, parity, chunk_bytes, &present)?;
                }
            }
            What::IsalEncode(tile) => {
                let product = Product::encoding(code.k(), code.m());
                for (data, parity) in groups {
                    let data: Vec<&[u8]> = data.chunks(chunk_bytes).collect();
                    let mut parity: Vec<_> = parity.chunks_mut(chunk_bytes).collect();
                    product.run(&data, &mut parity, tile);
                }
            }
            What::IsalRecover(count, tile) => {
                let lost: Vec<usize> = lost(count).collect();
                let product = Product::decoding(code.k(), code.m(), &lost);
                for (data, parity) in groups {
                    let chunks = data.chunks_mut(chunk_bytes).enumerate();
                    let (outputs, kept): (Vec<_>, Vec<_>) =
                        chunks.partition(|(chunk, _)| lost.contains(chunk));
                    let kept = kept.into_iter().map(|(_, chunk)| &*chunk);
                    let inputs: Vec<_> = kept
                        .chain(parity.chunks(chunk_bytes))
                        .take(code.k())
                        .collect();
                    let mut outputs: Vec<_> = outputs.into_iter().map(|(_, chunk)| chunk).collect();
                    product.run(&inputs, &mut outputs, tile);
                }
            }
        }
        Ok((thread_time() - start).as_secs_f64())
    }

    /// Checks the bytes of the first group after this operation.
    ///
    /// # Errors
    /// A text that describes the wrong bytes.
    pub(crate) fn check(&self, after: What) -> Result<(), String> {
        let [data, parity] = &self.first_group;
        if self.data[..data.len()] != *data {
            return Err(format!("{after:?} damaged the data"));
        }
        let other_parity = matches!(after, What::Encode(code) if code != self.layout.code());
        if !other_parity && self.parity[..parity.len()] != *parity {
            return Err(format!("{after:?} made other parity"));
        }
        Ok(())
    }
}

/// Page-aligned bytes, because ISA-L is much slower without alignment.
struct Memory {
    bytes: Vec<u8>,
    range: Range<usize>,
}

impl Memory {
    fn new(bytes: usize) -> Self {
        // Write to the memory once, so that all pages exist.
        let memory = vec![0xFF; bytes + PAGE_BYTES];
        let start = memory.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        Self {
            bytes: memory,
            range: start..start + bytes,
        }
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.range.clone()]
    }
}

/// Processor time of this thread.
pub(crate) fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
