//! The probability of ECN marks.

/// The probability of an ECN mark, by the length of the queue: 0 up to `low_bytes`, then rising
/// linearly to `most` at `high_bytes`, and 1 above. If both lengths are equal, it is a step, as in
/// DCTCP (RFC 8257).
///
/// This is RED's curve (Floyd and Jacobson 1993), applied to the current length of the queue
/// instead of its mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramp {
    /// Queue length up to which no datagram is marked, in bytes.
    pub low_bytes: u64,
    /// Queue length above which all datagrams are marked, in bytes. At least `low_bytes`.
    pub high_bytes: u64,
    /// The probability at `high_bytes`.
    pub most: f64,
}

impl Ramp {
    /// Marks each datagram that arrives while the queue is longer than `bytes`.
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
