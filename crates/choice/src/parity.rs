//! The amount of parity that a scheme sends for a message.

use farwrite::SchemeName;
use farwrite::schemes::scheme::{CriticalChunks, Layout, Message};

/// Parity bytes of a message of `bytes`; 0 if the scheme sends none.
#[must_use]
pub fn parity_bytes(scheme: SchemeName, bytes: u64, chunk_bytes: u64) -> u64 {
    layout(scheme, bytes, chunk_bytes).map_or(0, |layout| layout.parity_bytes() as u64)
}

/// Data chunks of a group; 1 if the scheme has no groups.
#[must_use]
pub fn group_chunks(scheme: SchemeName) -> u64 {
    layout(scheme, 1, 1).map_or(1, |layout| layout.code().k() as u64)
}

fn layout(scheme: SchemeName, bytes: u64, chunk_bytes: u64) -> Option<Layout> {
    let chunks = bytes.div_ceil(chunk_bytes.max(1)).max(1);
    scheme.scheme().layout(&Message {
        number: 0,
        bytes,
        chunks: u32::try_from(chunks).ok()?,
        chunk_bytes,
        critical: CriticalChunks::NONE,
    })
}
