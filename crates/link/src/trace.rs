//! Traces of opportunities to deliver, as mahimahi writes them.

use alloc::vec::Vec;

const NS_PER_MS: u64 = 1_000_000;

/// When a link can deliver: a list of instants, each an opportunity to deliver some bytes. Bytes
/// that nobody uses at that instant are wasted. The list repeats from its last instant on.
///
/// The text form is that of mahimahi (mm-link(1), 0.98): one line for each opportunity, with a time
/// in milliseconds; times do not decrease, and an opportunity delivers 1500 bytes. Several lines
/// with the same time are several opportunities. A datagram may use the rest of an opportunity, or
/// more than one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryTrace {
    /// In ascending order. The last one is above 0, and is the length of the trace.
    at_ms: Vec<u32>,
    opportunity_bytes: u64,
}

/// Why a trace is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A line that is no whole number.
    #[error(
        "line {line}: {text:?} is no time; want whole milliseconds up to {}",
        u32::MAX
    )]
    NoTime {
        /// The number of the line, from 1.
        line: usize,
        /// The first characters of the line.
        text: alloc::string::String,
    },
    /// A time before that of the line before.
    #[error("line {line}: {at_ms} ms comes after {before_ms} ms; times must not decrease")]
    Decreases {
        /// The number of the line, from 1.
        line: usize,
        /// The time of this line.
        at_ms: u32,
        /// The time of the line before.
        before_ms: u32,
    },
    /// No line, or only lines with the time 0.
    #[error("the trace has no length: the last line must have a time above 0 ms")]
    Empty,
}

/// Longest part of a wrong line that an error shows, in characters.
const SHOWN_CHARS: usize = 40;

impl DeliveryTrace {
    /// Bytes of an opportunity in mahimahi's format.
    pub const OPPORTUNITY_BYTES: u64 = 1500;

    /// A trace with these times in milliseconds.
    ///
    /// # Errors
    /// [`TraceError`], with the number of the first wrong line, which is its index plus 1.
    pub fn new(at_ms: Vec<u32>) -> Result<Self, TraceError> {
        for (i, pair) in at_ms.windows(2).enumerate() {
            if pair[1] < pair[0] {
                return Err(TraceError::Decreases {
                    line: i + 2,
                    at_ms: pair[1],
                    before_ms: pair[0],
                });
            }
        }
        if at_ms.last().is_none_or(|last| *last == 0) {
            return Err(TraceError::Empty);
        }
        Ok(Self {
            at_ms,
            opportunity_bytes: Self::OPPORTUNITY_BYTES,
        })
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// [`TraceError`], with the number of the first wrong line.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut at_ms = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let time = line.trim_end().parse();
            at_ms.push(time.map_err(|_| TraceError::NoTime {
                line: i + 1,
                text: line.chars().take(SHOWN_CHARS).collect(),
            })?);
        }
        Self::new(at_ms)
    }

    /// The same trace, with other bytes for each opportunity, at least 1. A simulation that scales
    /// its datagrams scales them too.
    #[must_use]
    pub fn delivering(self, opportunity_bytes: u64) -> Self {
        Self {
            opportunity_bytes: opportunity_bytes.max(1),
            ..self
        }
    }

    /// The rate in bits a second that the whole trace delivers, at least 1.
    #[must_use]
    pub fn mean_bps(&self) -> u64 {
        let bits = self.at_ms.len() as u128 * u128::from(self.opportunity_bytes) * 8;
        let mean = bits * 1_000_000_000 / u128::from(self.period_ns());
        u64::try_from(mean).unwrap_or(u64::MAX).max(1)
    }

    /// The times in milliseconds, as [`new`](Self::new) takes them.
    #[must_use]
    pub fn times_ms(&self) -> &[u32] {
        &self.at_ms
    }

    pub(crate) fn opportunity_bytes(&self) -> u64 {
        self.opportunity_bytes
    }

    /// The instant of an opportunity, counted from 0 on over all repetitions.
    pub(crate) fn at_ns(&self, opportunity: u64) -> u64 {
        let lines = self.at_ms.len() as u64;
        let rounds_ns = (opportunity / lines).saturating_mul(self.period_ns());
        // The remainder is an index into the list.
        #[allow(clippy::cast_possible_truncation)]
        let line = (opportunity % lines) as usize;
        rounds_ns.saturating_add(u64::from(self.at_ms[line]) * NS_PER_MS)
    }

    /// The first opportunity at `now_ns` or later.
    pub(crate) fn first_from(&self, now_ns: u64) -> u64 {
        // The last instant of a repetition belongs to it, and not to the next one.
        let before_ns = now_ns.saturating_sub(1);
        let round = before_ns / self.period_ns();
        let within_ns = now_ns - round * self.period_ns();
        let passed = self
            .at_ms
            .partition_point(|at| u64::from(*at) * NS_PER_MS < within_ns);
        round * self.at_ms.len() as u64 + passed as u64
    }

    fn period_ns(&self) -> u64 {
        self.at_ms
            .last()
            .map_or(NS_PER_MS, |last| u64::from(*last) * NS_PER_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use std::string::ToString;

    const MS: u64 = NS_PER_MS;

    #[test]
    fn the_list_repeats_from_its_last_instant() {
        let trace = DeliveryTrace::parse("0\n2\n2\n5\n").expect("a trace");
        let at_ms: Vec<_> = (0..9).map(|n| trace.at_ns(n) / MS).collect();
        assert_eq!(at_ms, [0, 2, 2, 5, 5, 7, 7, 10, 10]);
        // Four opportunities in 5 ms.
        assert_eq!(trace.mean_bps(), 4 * 1500 * 8 * 200);
        for (now_ns, first) in [
            (0, 0),
            (1, 1),
            (2 * MS, 1),
            (2 * MS + 1, 3),
            (5 * MS, 3),
            (5 * MS + 1, 5),
            (10 * MS, 7),
        ] {
            assert_eq!(trace.first_from(now_ns), first, "{now_ns}");
        }
    }

    #[test]
    fn one_line_is_a_rate() {
        // mahimahi's own example: 12 Mbit/s.
        let trace = DeliveryTrace::parse("1").expect("a trace");
        assert_eq!(trace.mean_bps(), 12_000_000);
        assert_eq!(trace.first_from(7 * MS), 6);
        assert_eq!(trace.at_ns(6), 7 * MS);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, want) in [
            ("", "no length"),
            ("0\n0\n", "no length"),
            ("1\n\n2\n", "line 2: \"\" is no time"),
            ("1\n2.5\n", "line 2: \"2.5\" is no time"),
            ("1\n-2\n", "line 2: \"-2\" is no time"),
            ("4294967296\n", "line 1"),
            ("1\n5\n4\n", "line 3: 4 ms comes after 5 ms"),
        ] {
            let error = DeliveryTrace::parse(text).expect_err(text).to_string();
            assert!(error.contains(want), "{text:?}: {error}");
        }
        assert_eq!(DeliveryTrace::new(vec![]), Err(TraceError::Empty));
    }
}
