//! Quantities as people read them: three digits and a unit.

use std::fmt;
use std::time::{Duration, SystemTime};

/// An integer as a real number. All values shown here are far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub fn real(value: u64) -> f64 {
    value as f64
}

/// The whole part of a real number: 0 if that is negative or no number, and at most the highest integer.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what does not fit becomes the next integer that fits"
)]
pub fn whole(value: f64) -> u64 {
    value as u64
}

/// Shows bytes in binary units: `256 MiB`.
///
/// ```
/// use farwrite_units::show::{Bytes, Percent, Rate, Time};
/// use std::time::Duration;
///
/// assert_eq!(Bytes(1536).to_string(), "1.50 KiB");
/// assert_eq!(Rate(1.874e9).to_string(), "1.87 Gbit/s");
/// assert_eq!(Time(Duration::from_micros(300)).to_string(), "300 us");
/// assert_eq!(Percent(0.001).to_string(), "0.10 %");
/// ```
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.into_iter().find(|(unit, _)| self.0 >= *unit) {
            Some((unit, name)) => write!(f, "{} {name}", Digits(real(self.0) / real(unit))),
            None => write!(f, "{} B", self.0),
        }
    }
}

/// Shows a number of things, whose plural ends in s: `1 message`, `2 messages`.
///
/// ```
/// use farwrite_units::show::Count;
///
/// assert_eq!(Count(1, "chunk").to_string(), "1 chunk");
/// assert_eq!(Count(0, "chunk").to_string(), "0 chunks");
/// ```
pub struct Count(pub u64, pub &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, thing) = self;
        write!(f, "{number} {thing}{}", if *number == 1 { "" } else { "s" })
    }
}

/// Shows a rate in bits per second: `1.87 Gbit/s`.
pub struct Rate(pub f64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_rate(f, self.0, "bit/s")
    }
}

/// Shows a speed in bytes per second: `12.1 GB/s`.
pub struct ByteRate(pub f64);

impl ByteRate {
    /// The rate of `bytes` in `elapsed`.
    pub fn of(bytes: u64, elapsed: Duration) -> Self {
        // At the very start, the rate would be a division by almost zero.
        Self(real(bytes) / elapsed.as_secs_f64().max(1e-6))
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_rate(f, self.0, "B/s")
    }
}

fn show_rate(f: &mut fmt::Formatter<'_>, rate: f64, unit: &str) -> fmt::Result {
    let (factor, prefix) = [(1e9, "G"), (1e6, "M"), (1e3, "k")]
        .into_iter()
        .find(|(factor, _)| rate >= *factor)
        .unwrap_or((1.0, ""));
    write!(f, "{} {prefix}{unit}", Digits(rate / factor))
}

/// Shows a time: `1.23 s`, `25 ms`.
pub struct Time(pub Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        if seconds >= 1.0 || seconds == 0.0 {
            write!(f, "{} s", Digits(seconds))
        } else if seconds >= 1e-3 {
            write!(f, "{} ms", Digits(seconds * 1e3))
        } else {
            write!(f, "{} us", Digits(seconds * 1e6))
        }
    }
}

/// Shows a moment in UTC, with a resolution of one second (RFC 3339): `2026-03-01T12:00:00Z`.
pub struct Moment(pub SystemTime);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_seconds(self.0).fmt(f)
    }
}

/// Shows a share in per cent: `0.10 %`. Only a share of 0 is shown as 0.
pub struct Percent(pub f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (share, percent) = (self.0, self.0 * 100.0);
        if share > 0.0 && share < LEAST_SHARE {
            f.write_str("less than 0.0001 %")
        } else if share > 0.0 && share < 1e-3 {
            // Two significant digits.
            let places = if share < 1e-5 {
                5
            } else if share < 1e-4 {
                4
            } else {
                3
            };
            write!(f, "{percent:.places$} %")
        } else {
            write!(f, "{} %", Digits(percent))
        }
    }
}

/// A smaller share is shown as less than this one.
const LEAST_SHARE: f64 = 1e-6;

/// Three significant digits, without trailing zeros after an integer.
struct Digits(f64);

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if value.fract() == 0.0 || value >= 99.95 {
            write!(f, "{value:.0}")
        } else if value >= 9.995 {
            write!(f, "{value:.1}")
        } else {
            write!(f, "{value:.2}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_with_three_digits() {
        assert_eq!(Bytes(256 << 20).to_string(), "256 MiB");
        assert_eq!(Bytes(1536).to_string(), "1.50 KiB");
        assert_eq!(Bytes(12).to_string(), "12 B");
        assert_eq!(Rate(1.874e9).to_string(), "1.87 Gbit/s");
        assert_eq!(Rate(2e9).to_string(), "2 Gbit/s");
        assert_eq!(Rate(123.4e6).to_string(), "123 Mbit/s");
        assert_eq!(ByteRate(12.08e9).to_string(), "12.1 GB/s");
        assert_eq!(
            ByteRate::of(3_000_000, Duration::from_secs(2)).to_string(),
            "1.50 MB/s"
        );
        assert_eq!(Time(Duration::from_millis(25)).to_string(), "25 ms");
        assert_eq!(Time(Duration::from_micros(12_345)).to_string(), "12.3 ms");
        assert_eq!(Time(Duration::from_millis(1234)).to_string(), "1.23 s");
        assert_eq!(Percent(0.001).to_string(), "0.10 %");
    }

    #[test]
    fn a_small_share_is_not_shown_as_none() {
        for (share, shown) in [
            (0.0, "0 %"),
            (0.00123, "0.12 %"),
            (9.1e-4, "0.091 %"),
            (5.1e-5, "0.0051 %"),
            (1e-6, "0.00010 %"),
            (9e-7, "less than 0.0001 %"),
        ] {
            assert_eq!(Percent(share).to_string(), shown);
        }
    }
}
