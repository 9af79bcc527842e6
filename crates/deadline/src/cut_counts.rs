//! Counts how often operations were cut, and how many bytes were missing.

use crate::cost::Observation;

/// Sums over operations that had a deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutCounts {
    /// Number of operations.
    pub operations: u64,
    /// Of these, operations that the deadline ended before all bytes arrived.
    pub cut: u64,
    /// Bytes that should have arrived.
    pub expected_bytes: u64,
    /// Of these, bytes that did not arrive.
    pub missing_bytes: u64,
}

impl CutCounts {
    pub(crate) fn note(&mut self, observation: &Observation) {
        let Observation {
            received_bytes,
            expected_bytes,
            timed_out,
            ..
        } = *observation;
        let missing_bytes = expected_bytes.saturating_sub(received_bytes);
        self.operations += 1;
        self.cut += u64::from(timed_out && missing_bytes > 0);
        self.expected_bytes = self.expected_bytes.saturating_add(expected_bytes);
        self.missing_bytes = self.missing_bytes.saturating_add(missing_bytes);
    }

    /// The sum of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            cut: self.cut + other.cut,
            expected_bytes: self.expected_bytes.saturating_add(other.expected_bytes),
            missing_bytes: self.missing_bytes.saturating_add(other.missing_bytes),
        }
    }

    /// Share of the operations that were cut, from 0 to 1; 0 without operations.
    #[must_use]
    pub fn share_cut(&self) -> f64 {
        share(self.cut, self.operations)
    }

    /// Share of the bytes that are missing, from 0 to 1; 0 without bytes.
    #[must_use]
    pub fn share_missing(&self) -> f64 {
        share(self.missing_bytes, self.expected_bytes)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share to look at")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
