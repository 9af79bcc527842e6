//! Encodes and rebuilds all groups of a message on several threads.

use core::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::codec::Codec;
use crate::error::CodecError;
use crate::layout::Layout;
use crate::mask::Present;

/// An error of [`Codec::recover_message`]. When it is returned, nothing has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The error concerns the whole message.
    #[error(transparent)]
    Whole(#[from] CodecError),
    /// The error concerns one group.
    #[error("group {group}: {error}")]
    Group {
        /// Index of the group in the message.
        group: usize,
        /// The error of the group.
        error: CodecError,
    },
}

impl Codec {
    /// Computes the parity of all groups of a message on up to `threads` threads. Data and parity
    /// are laid out as in [`Layout`]. One thread works on each group.
    ///
    /// # Errors
    /// If the lengths do not match the code or each other.
    pub fn encode_message(
        &self,
        data: &[u8],
        chunk_bytes: usize,
        parity: &mut [u8],
        threads: NonZeroUsize,
    ) -> Result<(), CodecError> {
        let layout = self.layout(data, chunk_bytes, parity)?;
        let [data_bytes, parity_bytes] = group_bytes(&layout);
        let groups = data.chunks(data_bytes).zip(parity.chunks_mut(parity_bytes));
        on_threads(threads, &layout, groups, |(data, parity)| {
            self.encode(data, chunk_bytes, parity)
        })
    }

    /// Rebuilds in place the missing data chunks of all groups of a message on up to `threads`
    /// threads. Data and parity are laid out as in [`Layout`]. `present` has one entry for each
    /// group.
    ///
    /// # Errors
    /// If the lengths do not match the code or each other, or if a group has more losses than the
    /// code can repair. In the latter case the error names the group.
    pub fn recover_message(
        &self,
        data: &mut [u8],
        parity: &[u8],
        chunk_bytes: usize,
        present: &[Present],
        threads: NonZeroUsize,
    ) -> Result<(), MessageError> {
        let layout = self.layout(data, chunk_bytes, parity)?;
        if present.len() != layout.groups() {
            return Err(MessageError::Whole(CodecError::Groups {
                given: present.len(),
                expected: layout.groups(),
            }));
        }
        for (group, present) in present.iter().enumerate() {
            let chunks = layout.group(group).map_or(0, |group| group.data_chunks);
            self.check_recoverable(chunks, present)
                .map_err(|error| MessageError::Group { group, error })?;
        }
        let [data_bytes, parity_bytes] = group_bytes(&layout);
        let groups = data.chunks_mut(data_bytes).zip(parity.chunks(parity_bytes));
        on_threads(
            threads,
            &layout,
            groups.zip(present),
            |((data, parity), present)| self.recover(data, parity, chunk_bytes, present),
        )?;
        Ok(())
    }

    fn layout(&self, data: &[u8], chunk_bytes: usize, parity: &[u8]) -> Result<Layout, CodecError> {
        let layout = Layout::new(self.code(), data.len(), chunk_bytes)?;
        if parity.len() != layout.parity_bytes() {
            return Err(CodecError::ParityBytes {
                given: parity.len(),
                expected: layout.parity_bytes(),
            });
        }
        Ok(layout)
    }
}

/// Returns the bytes of data and of parity in a full group.
fn group_bytes(layout: &Layout) -> [usize; 2] {
    let chunks = |chunks: usize| chunks.saturating_mul(layout.chunk_bytes());
    [chunks(layout.code().k()), chunks(layout.code().m())]
}

/// Calls `work` once for each group. A free thread takes the next group, so groups of different
/// cost balance.
fn on_threads<G: Send>(
    threads: NonZeroUsize,
    layout: &Layout,
    groups: impl Iterator<Item = G> + Send,
    work: impl Fn(G) -> Result<(), CodecError> + Sync,
) -> Result<(), CodecError> {
    let groups = Mutex::new(groups);
    let next = || groups.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        while let Some(group) = next() {
            work(group)?;
        }
        Ok(())
    };
    let others = threads.get().min(layout.groups()) - 1;
    thread::scope(|scope| {
        let others: std::vec::Vec<_> = (0..others).map(|_| scope.spawn(run)).collect();
        others
            .into_iter()
            .map(|thread| thread.join())
            .fold(run(), |sum, result| {
                let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                sum.and(result)
            })
    })
}
