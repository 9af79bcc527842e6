//! Which datagrams a queue marks.

/// The probability of an ECN mark by the length of the queue: 0 up to `low_bytes`, from there
/// rising linearly to `most` at `high_bytes`, and 1 beyond. Where both lengths are equal, it is a
/// step: DCTCP's threshold (RFC 8257).
///
/// This is RED's curve (Floyd and Jacobson 1993) on the length of the queue now, not on its mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramp {
    /// Longest queue that is never marked, in bytes.
    pub low_bytes: u64,
    /// Longest queue that is not always marked, in bytes; not below `low_bytes`.
    pub high_bytes: u64,
    /// The probability at `high_bytes`.
    pub most: f64,
}

impl Ramp {
    /// A mark for each datagram that finds more than `bytes` in the queue.
    #[must_use]
    pub const fn step(bytes: u64) -> Self {
        Self {
            low_bytes: bytes,
            high_bytes: bytes,
            most: 1.0,
        }
    }

    /// The probability of a mark at this length of the queue.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a queue has fewer than 2^53 bytes"
    )]
    pub fn probability(&self, queue_bytes: u64) -> f64 {
        if queue_bytes <= self.low_bytes {
            return 0.0;
        }
        if queue_bytes > self.high_bytes {
            return 1.0;
        }
        let above = (queue_bytes - self.low_bytes) as f64;
        self.most * above / (self.high_bytes - self.low_bytes) as f64
    }
}
