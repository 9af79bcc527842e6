//! The promises for critical ranges (P5.9.6 to P5.9.8).

use farwrite::{Outcome, SchemeName};

use super::{Broken, MessageEnd, demand};
use crate::oracle::GUARD;
use crate::violation::Rule;
use crate::world::Message;

impl MessageEnd<'_> {
    /// Whether the bytes of all critical chunks are in the buffer of the receive.
    pub(super) fn has_critical(&self) -> bool {
        let Message {
            content, snapshot, ..
        } = self.message;
        self.plan.critical_chunks(self.chunk_bytes).all(|chunk| {
            let at = |chunk: u64| usize::try_from(chunk * self.chunk_bytes).expect("short");
            let (start, end) = (at(chunk), at(chunk + 1).min(content.len()));
            snapshot.get(GUARD + start..GUARD + end) == content.get(start..end)
        })
    }

    /// Checks the promises for critical ranges (P5.9.6 to P5.9.8). A receiver's user who ends a
    /// message early gives up the promise for exact ranges.
    pub(super) fn check_critical(&self) -> Result<(), Broken> {
        demand(
            Rule::Critical,
            !self.is_overtaken,
            "other chunks left before the critical ones",
        )?;
        if !self.plan.is_exact() || self.message.completed.is_some() {
            return Ok(());
        }
        let has_critical = self.has_critical();
        demand(
            Rule::Critical,
            self.sent == Outcome::Failed || has_critical,
            "the send has not failed, and exact ranges are missing",
        )?;
        // A receiver that has no offer does not know the scheme, and nothing was sent to it.
        demand(
            Rule::Critical,
            self.received == Outcome::Failed || has_critical || !self.is_begun(),
            "the receive has not failed, and exact ranges are missing",
        )
    }

    /// Whether a deadline may make the receive fail: exact ranges are missing, or are not known yet
    /// where the terms demand the scheme (P5.9.8).
    pub(super) fn may_lack_exact_ranges(&self) -> bool {
        let is_demanded = self.plan.terms.scheme == Some(SchemeName::BestEffortExact.tag());
        // Unlike the buffer, the bitmap shows whether packets without bytes are missing.
        let recv = self.message.recv.as_ref();
        let has_arrived = |chunk: u64| {
            let chunk = u32::try_from(chunk).expect("short");
            recv.is_some_and(|recv| recv.bitmap().get(chunk))
        };
        let is_missing =
            self.plan.is_exact() && !self.plan.critical_chunks(self.chunk_bytes).all(has_arrived);
        self.recv_expired() && (is_missing || is_demanded)
    }
}
