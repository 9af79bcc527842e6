//! What a receiver has of a file from an interrupted transfer (P8.8).

use std::fmt;
use std::ops::Range;

use farwrite_keys::{Psk, PublicKey};
use serde::{Deserialize, Serialize};

use super::file_hash::{BLOCK_BYTES, BlockHash, offset_of};
use super::sparse::Layout;
use super::{EntryRef, Extent, Kind, Manifest};

/// A transfer resumes only a file that is longer than this. A shorter file is sent again from its start, so an
/// interruption costs up to 16 MiB.
pub const MIN_RESUMED_BYTES: u64 = 16 << 20;
/// The fewest bytes that a file must have received to be kept after an interruption.
pub(super) const MIN_PARTIAL_BYTES: u64 = BLOCK_BYTES;
/// Files that a receiver offers to go on with. Each is an open file.
pub const MAX_PARTIALS: usize = 256;
/// Runs in one message, which has room for more.
const MAX_RUNS: usize = 8192;

/// Domains of hashes (P8.8).
const PSK_CONTEXT: &str = "farwrite resume: pre-shared key 1";
const PUBLIC_CONTEXT: &str = "farwrite resume: public key 1";
const REMOTE_CONTEXT: &str = "farwrite resume: remote shell 1";

/// Stands for the peer that a receiver keeps interrupted files for. Another peer cannot go on with them.
///
/// ```
/// use farwrite_files::PeerKey;
/// use farwrite_keys::Psk;
///
/// let psk = Psk::generate()?;
/// assert_eq!(PeerKey::of_psk(&psk), PeerKey::of_psk(&psk));
/// assert_ne!(PeerKey::of_psk(&psk), PeerKey::of_psk(&Psk::generate()?));
/// # Ok::<(), farwrite_keys::KeyError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PeerKey([u8; 32]);

impl PeerKey {
    /// All peers that hold a pre-shared key.
    #[must_use]
    pub fn of_psk(psk: &Psk) -> Self {
        Self(psk.derive(PSK_CONTEXT))
    }

    /// The peer with an identity.
    #[must_use]
    pub fn of_public(key: &PublicKey) -> Self {
        Self(blake3::derive_key(PUBLIC_CONTEXT, key.bytes()))
    }

    /// The peer that a remote shell such as ssh has authenticated. `name` is what this end knows of it, and
    /// can be empty: who starts this program through the shell can read its files anyway.
    #[must_use]
    pub fn of_remote_shell(name: &[u8]) -> Self {
        Self(blake3::derive_key(REMOTE_CONTEXT, name))
    }
}

impl fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerKey(..)")
    }
}

/// Which file of which peer an interrupted file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SourceId {
    /// The peer and the path.
    pub(super) place: u64,
    /// The same with length and time of modification, which must be those of before.
    pub(super) version: u128,
}

impl SourceId {
    /// Returns the source of an entry; `None` if it is no file that goes on after an interruption.
    pub(super) fn of(
        peer: &PeerKey,
        manifest: &Manifest,
        index: u32,
        entry: &EntryRef<'_>,
    ) -> Option<Self> {
        let Kind::File { bytes, .. } = entry.kind else {
            return None;
        };
        if bytes <= MIN_RESUMED_BYTES {
            return None;
        }
        let mut hasher = blake3::Hasher::new_keyed(&peer.0);
        for index in manifest.lineage(Some(index)) {
            let name = manifest.name(index);
            // No name has a slash, so two paths differ.
            hasher.update(name);
            hasher.update(b"/");
        }
        let mut place = [0; 8];
        hasher.finalize_xof().fill(&mut place);
        hasher.update(&bytes.to_be_bytes());
        hasher.update(&entry.modified.seconds.to_be_bytes());
        hasher.update(&entry.modified.nanos.to_be_bytes());
        let mut version = [0; 16];
        hasher.finalize_xof().fill(&mut version);
        Some(Self {
            place: u64::from_be_bytes(place),
            version: u128::from_be_bytes(version),
        })
    }
}

/// A file whose first bytes the receiver has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partial {
    /// Number of its entry.
    pub entry: u32,
    /// How many bytes of the file it has: whole blocks, and not all.
    pub bytes: u64,
}

impl Partial {
    /// What of a file of this length is offered, if the receiver has its first `bytes`; `None` if that is less
    /// than a block.
    pub(super) fn of(entry: u32, bytes: u64, length: u64) -> Option<Self> {
        let blocks = bytes.min(length.saturating_sub(1)) / BLOCK_BYTES;
        // Longer files exist in theory only.
        let blocks = u32::try_from(blocks).ok().filter(|blocks| *blocks > 0)?;
        let bytes = offset_of(blocks);
        Some(Self { entry, bytes })
    }

    /// Whether a receiver may offer this.
    pub(super) fn fits(&self, manifest: &Manifest) -> bool {
        let kind = manifest.entry(self.entry).map(|entry| entry.kind);
        let Some(Kind::File { bytes, .. }) = kind else {
            return false;
        };
        Self::of(self.entry, self.bytes, bytes) == Some(*self)
    }

    /// The blocks that the receiver has.
    pub(super) fn blocks(&self) -> u32 {
        u32::try_from(self.bytes / BLOCK_BYTES).unwrap_or(u32::MAX)
    }

    /// The bytes of the stream that these bytes of the file are.
    pub(super) fn stream_bytes(&self, manifest: &Manifest) -> u64 {
        Layout::new(manifest.data(self.entry), 0..self.bytes).stream_bytes()
    }
}

/// Consecutive blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The first block.
    pub first: u32,
    /// How many blocks.
    pub blocks: u32,
}

impl Run {
    fn end(&self) -> u64 {
        u64::from(self.first) + u64::from(self.blocks)
    }

    pub(super) fn blocks(&self) -> Range<u32> {
        self.first..self.first.saturating_add(self.blocks)
    }

    /// The bytes of the stream that the blocks are.
    pub(super) fn stream_bytes(&self, data: Option<&[Extent]>) -> u64 {
        let start = offset_of(self.first);
        let end = start + u64::from(self.blocks) * BLOCK_BYTES;
        Layout::new(data, start..end).stream_bytes()
    }
}

/// Where two lists of blocks differ. If there are very many runs, they are one.
pub(super) fn differences(ours: &[BlockHash], theirs: &[BlockHash]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let pairs = ours.iter().zip(theirs).zip(0_u32..);
    for (_, block) in pairs.filter(|((ours, theirs), _)| ours != theirs) {
        match runs.last_mut() {
            Some(last) if last.end() == u64::from(block) => last.blocks += 1,
            _ => runs.push(Run {
                first: block,
                blocks: 1,
            }),
        }
    }
    if let [first, .., last] = runs[..]
        && runs.len() > MAX_RUNS
    {
        let blocks = last.first + last.blocks - first.first;
        return vec![Run { blocks, ..first }];
    }
    runs
}

/// Whether runs are in order, apart, and within this number of blocks.
pub(super) fn are_within(runs: &[Run], blocks: u32) -> bool {
    let mut end = 0;
    runs.iter().all(|run| {
        let fits = u64::from(run.first) >= end && run.blocks > 0 && run.end() <= blocks.into();
        end = run.end();
        fits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u32, blocks: u32) -> Run {
        Run { first, blocks }
    }

    #[test]
    fn differences_are_runs() {
        let ours: Vec<BlockHash> = (0..10).map(|at| [at; 32]).collect();
        let mut theirs = ours.clone();
        assert_eq!(differences(&ours, &theirs), []);
        for changed in [0, 4, 5, 9] {
            theirs[changed] = [99; 32];
        }
        let runs = [run(0, 1), run(4, 2), run(9, 1)];
        assert_eq!(differences(&ours, &theirs), runs);
        assert!(are_within(&runs, 10) && !are_within(&runs, 9));
        let many: Vec<BlockHash> = (0..20_000_u32)
            .map(|at| [u8::from(at % 2 == 1); 32])
            .collect();
        let zeros = vec![[0; 32]; many.len()];
        assert_eq!(differences(&zeros, &many), [run(1, 19_999)]);
    }

    #[test]
    fn runs_of_a_peer_are_checked() {
        for wrong in [
            &[run(0, 0)][..],
            &[run(3, 1)],
            &[run(u32::MAX, u32::MAX)],
            &[run(1, 1), run(1, 1)],
            &[run(1, 1), run(0, 1)],
        ] {
            assert!(!are_within(wrong, 3), "{wrong:?}");
        }
        assert!(are_within(&[run(0, 1), run(1, 2)], 3) && are_within(&[], 0));
    }

    #[test]
    fn an_offer_is_whole_blocks_and_never_a_whole_file() {
        let offer = |bytes, length| Partial::of(3, bytes, length).map(|it| it.bytes);
        assert_eq!(offer(BLOCK_BYTES - 1, 1 << 40), None);
        assert_eq!(offer(3 * BLOCK_BYTES + 5, 1 << 40), Some(3 * BLOCK_BYTES));
        assert_eq!(offer(u64::MAX, 3 * BLOCK_BYTES), Some(2 * BLOCK_BYTES));
        assert_eq!(offer(5, 0), None);
        assert_eq!(offer(u64::MAX, u64::MAX), None);
    }
}
