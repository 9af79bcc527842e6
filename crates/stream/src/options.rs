//! Options of a stream.

use farwrite::{ImmediateSplit, QpOptions, SchemeName};
use farwrite_choice::SchemeSetting;

/// The most chunks of a group of a code.
const MOST_GROUP: u64 = 256;

/// How a stream divides its bytes into messages, and how much memory it takes.
///
/// Both ends need the same `message_bytes` and `messages`. Each end chooses its own scheme.
///
/// ```
/// use farwrite_stream::StreamOptions;
///
/// // 100 ms at 1 Gbit/s are 12.5 MB in flight.
/// let options = StreamOptions { messages: 64, ..StreamOptions::default() };
/// assert_eq!(options.window_bytes(), 16 << 20);
/// assert!(options.check().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Bytes of the largest message: 1 KiB to 64 MiB.
    pub message_bytes: u32,
    /// Buffers of `message_bytes` for each direction: 2 to 4096. They bound the bytes that are
    /// written and not acknowledged, and those that have arrived and are not read.
    pub messages: u32,
    /// The scheme that repairs losses of what this end sends, or [`SchemeSetting::Auto`].
    pub scheme: SchemeSetting,
}

impl Default for StreamOptions {
    /// Messages of 256 KiB, of which 32 can be in flight (8 MiB), repaired by selective repeat with
    /// NACKs.
    fn default() -> Self {
        Self {
            message_bytes: 256 * 1024,
            messages: 32,
            scheme: SchemeSetting::Named(SchemeName::SrNack),
        }
    }
}

/// An option of a stream is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}: choose {low} to {high}")]
pub struct OptionError {
    name: &'static str,
    value: u32,
    low: u32,
    high: u32,
}

impl StreamOptions {
    /// Bytes of all buffers of one direction.
    #[must_use]
    pub fn window_bytes(&self) -> u64 {
        u64::from(self.message_bytes) * u64::from(self.messages)
    }

    /// Checks all fields.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn check(&self) -> Result<(), OptionError> {
        let within = |name, value, low, high| {
            let fits = (low..=high).contains(&value);
            fits.then_some(()).ok_or(OptionError {
                name,
                value,
                low,
                high,
            })
        };
        within("message_bytes", self.message_bytes, 1024, 1 << 26)?;
        within("messages", self.messages, 2, 4096)
    }

    /// Returns the options of the queue pair of a stream. Packet sizes, rate control and timing
    /// stay as in `base`.
    #[must_use]
    pub fn queue_pair(&self, base: &QpOptions) -> QpOptions {
        let mut options = base.clone();
        // A code has at most as much parity as data, and groups are not cut.
        let chunk_bytes = u64::from(base.sdr.mtu) * u64::from(base.sdr.packets_per_chunk);
        options.sdr.max_message_bytes = u64::from(self.message_bytes) + MOST_GROUP * chunk_bytes;
        // A slot is posted again only after the sender has used it (P3.6), so there are more slots
        // than buffers.
        options.sdr.slots = (2 * self.messages).next_power_of_two();
        let ids = options.sdr.slots << u32::from(options.sdr.parity);
        let id_bits = u8::try_from(ids.ilog2()).unwrap_or(1);
        options.sdr.split = ImmediateSplit {
            id_bits,
            offset_bits: 32 - id_bits,
            user_bits: 0,
        };
        options.expected_scheme = self.scheme.most_parity().tag();
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_named() {
        let options = StreamOptions {
            messages: 1,
            ..StreamOptions::default()
        };
        let error = options.check().expect_err("too few").to_string();
        assert_eq!(error, "messages is 1: choose 2 to 4096");
        let options = StreamOptions {
            message_bytes: 100,
            ..StreamOptions::default()
        };
        let error = options.check().expect_err("too short").to_string();
        assert!(error.starts_with("message_bytes"), "{error}");
    }

    #[test]
    fn queue_pairs_of_all_sizes_are_valid() {
        for messages in [2, 3, 32, 300, 4096] {
            let options = StreamOptions {
                messages,
                message_bytes: 1 << 26,
                ..StreamOptions::default()
            };
            let queue_pair = options.queue_pair(&QpOptions::default());
            queue_pair.sdr.validate().expect("valid");
            assert!(queue_pair.sdr.slots >= messages);
        }
    }
}
