//! Measures how fast the receiver processes arriving bytes.

/// Measures the rate at which bytes are processed, over consecutive spans of time.
#[derive(Debug)]
pub(crate) struct DrainMeter {
    /// Shortest time over which a rate is meaningful.
    min_span_ns: u64,
    span_start_ns: u64,
    span_start_bytes: u64,
    rate_bps: u64,
}

impl DrainMeter {
    pub(crate) fn new(min_span_ns: u64) -> Self {
        Self {
            min_span_ns,
            span_start_ns: 0,
            span_start_bytes: 0,
            rate_bps: 0,
        }
    }

    /// Returns the rate over the last span that ended, in bits per second. `bytes` is the number of
    /// bytes processed until now.
    pub(crate) fn rate_bps(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let span_ns = now_ns.saturating_sub(self.span_start_ns);
        if span_ns >= self.min_span_ns {
            let bits = u128::from(bytes - self.span_start_bytes) * 8;
            let rate = bits * 1_000_000_000 / u128::from(span_ns);
            self.rate_bps = u64::try_from(rate).unwrap_or(u64::MAX);
            self.span_start_ns = now_ns;
            self.span_start_bytes = bytes;
        }
        self.rate_bps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_bits_over_the_span() {
        let mut meter = DrainMeter::new(5_000_000);
        let bytes = 1_000_000;
        assert_eq!(meter.rate_bps(1_000_000, bytes), 0, "the span is too short");
        assert_eq!(meter.rate_bps(10_000_000, bytes), 800_000_000);
        assert_eq!(meter.rate_bps(20_000_000, bytes), 0, "nothing came");
    }
}
