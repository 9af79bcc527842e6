//! How fast arriving bytes are taken in.

/// Counts what arrives on a queue pair, and says at which rate it did of late.
#[derive(Debug)]
pub(crate) struct DrainMeter {
    /// Shortest time over which a rate is worth telling.
    min_span_ns: u64,
    packets: u64,
    bytes: u64,
    span_start_ns: u64,
    span_start_bytes: u64,
    rate_bps: u64,
}

impl DrainMeter {
    /// Measures over `min_span_ns` and more.
    pub(crate) fn new(min_span_ns: u64) -> Self {
        Self {
            min_span_ns,
            packets: 0,
            bytes: 0,
            span_start_ns: 0,
            span_start_bytes: 0,
            rate_bps: 0,
        }
    }

    pub(crate) fn add(&mut self, payload_bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(payload_bytes);
    }

    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bits a second over the span since the last call that closed one.
    pub(crate) fn rate_bps(&mut self, now_ns: u64) -> u64 {
        let span_ns = now_ns.saturating_sub(self.span_start_ns);
        if span_ns >= self.min_span_ns {
            let bits = u128::from(self.bytes - self.span_start_bytes) * 8;
            let rate = bits * 1_000_000_000 / u128::from(span_ns);
            self.rate_bps = u64::try_from(rate).unwrap_or(u64::MAX);
            self.span_start_ns = now_ns;
            self.span_start_bytes = self.bytes;
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
        for _ in 0..1000 {
            meter.add(1000);
        }
        assert_eq!(
            meter.rate_bps(1_000_000),
            0,
            "too short a span tells nothing"
        );
        assert_eq!(meter.rate_bps(10_000_000), 800_000_000);
        assert_eq!(
            meter.rate_bps(20_000_000),
            0,
            "nothing arrived in the second span"
        );
        assert_eq!((meter.packets(), meter.bytes()), (1000, 1_000_000));
    }
}
