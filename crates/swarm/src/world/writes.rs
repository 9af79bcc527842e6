//! What users do for writes: they send the parts of a stream, each with a deadline of its own.

use std::ops::Range;

use farwrite::{Error, MemoryRegion, SendHandle, WriteHandle};

use super::World;

/// A write at run time.
pub(crate) struct Write {
    pub(crate) handle: WriteHandle,
    /// Its bytes of the message.
    pub(crate) bytes: Range<u64>,
    pub(crate) deadline_ns: Option<u64>,
}

impl World<'_> {
    /// Writes the bytes of a message into the window of a stream: the later half, the earlier half,
    /// and all of it again, with the limits that the plan has.
    pub(super) fn write_parts(
        &mut self,
        index: usize,
        host: usize,
        (stream, source): (&SendHandle, MemoryRegion),
    ) -> Result<(), Error> {
        let plan = &self.plan.messages[index];
        let chunk_bytes = self.plan.pairs[plan.pair].chunk_bytes();
        let bytes = source.length();
        let half = bytes.div_ceil(chunk_bytes) / 2;
        let at = half * chunk_bytes;
        let parts = [at..bytes, 0..at, 0..bytes];
        for (part, limit_ns) in parts.into_iter().zip(&plan.write_limits_ns) {
            if part.is_empty() {
                continue;
            }
            let deadline_ns = self.deadline_ns(*limit_ns);
            let first = u32::try_from(part.start / chunk_bytes).expect("short");
            let slice = source.slice(part.clone());
            let endpoint = self.hosts[host].endpoint();
            let handle = endpoint.write(stream, slice, first, deadline_ns)?;
            self.messages[index].writes.push(Write {
                handle,
                bytes: part,
                deadline_ns,
            });
        }
        Ok(())
    }
}
