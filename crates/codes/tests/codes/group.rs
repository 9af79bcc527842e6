//! Random groups.

use farwrite_codes::{Code, Kernel, Kind, Present};
use farwrite_rng::SplitMix;
use proptest::prelude::*;

/// A group: its code, the length of its chunks, and its data.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) code: Code,
    pub(crate) chunk_bytes: usize,
    /// The bytes, which follow from the shape and the seed.
    pub(crate) data: Vec<u8>,
}

impl Group {
    pub(crate) fn data_chunks(&self) -> usize {
        self.data.len().div_ceil(self.chunk_bytes)
    }

    pub(crate) fn parity_bytes(&self) -> usize {
        self.code.parity_chunks(self.data_chunks()) * self.chunk_bytes
    }

    /// Returns the data with all chunks overwritten that are not present.
    pub(crate) fn damaged(&self, present: &Present) -> Vec<u8> {
        let mut data = self.data.clone();
        for (chunk, bytes) in data.chunks_mut(self.chunk_bytes).enumerate() {
            if !present.data.contains(chunk) {
                bytes.fill(0xDB);
            }
        }
        data
    }
}

/// Returns the kernels of this machine.
pub(crate) fn kernels() -> Vec<Kernel> {
    Kernel::available().collect()
}

/// Returns pseudorandom bytes: a pattern could hide an error in chunk lengths.
pub(crate) fn bytes(count: usize, seed: u64) -> Vec<u8> {
    SplitMix::new(seed).bytes(count)
}

/// Returns codes with up to `most` chunks per group.
pub(crate) fn codes(most: usize) -> impl Strategy<Value = Code> {
    (any::<bool>(), 1..most).prop_flat_map(move |(xor, k)| {
        let (kind, m) = match xor {
            true => (Kind::Xor, k.min(most - k)),
            false => (Kind::Mds, most - k),
        };
        (1..=m).prop_map(move |m| Code::new(kind, k, m).unwrap())
    })
}

/// Returns groups of up to `chunks` chunks, full and short ones.
pub(crate) fn groups(chunks: usize, chunk_bytes: usize) -> impl Strategy<Value = Group> {
    (codes(chunks), 1..=chunk_bytes, any::<u64>()).prop_flat_map(|(code, chunk_bytes, seed)| {
        let whole = code.k() * chunk_bytes;
        prop_oneof![Just(whole), 1..=whole].prop_map(move |data_bytes| Group {
            code,
            chunk_bytes,
            data: bytes(data_bytes, seed),
        })
    })
}

/// Returns the chunks of a group that are left when each chunk is lost with the probability `loss /
/// 256`.
pub(crate) fn survivors(group: &Group, seed: u64, loss: u8) -> Present {
    let rng = bytes(256 + 256, seed);
    let mut present = Present::default();
    for chunk in (0..group.data_chunks()).filter(|&chunk| rng[chunk] >= loss) {
        present.data.insert(chunk);
    }
    let parity = group.code.parity_chunks(group.data_chunks());
    for chunk in (0..parity).filter(|&chunk| rng[256 + chunk] >= loss) {
        present.parity.insert(chunk);
    }
    present
}
