//! Quantities as people write them on a command line, and as they are shown to people.

use std::fmt;
use std::ops::{Deref, RangeInclusive};
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;

const GIB: u64 = 1 << 30;

/// Bytes of a transfer, 1 to 16 GiB: `256MiB`, `1GB`, or plain bytes.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    const RANGE: RangeInclusive<u64> = 1..=16 * GIB;
    let bytes = text
        .parse::<ByteSize>()
        .map_err(|_| "not a size; write it like 256MiB, 1GB or 4096".to_owned())?
        .as_u64();
    if RANGE.contains(&bytes) {
        Ok(bytes)
    } else {
        Err("a size lies in 1 byte to 16GiB".to_owned())
    }
}

/// A number of bytes, however large: `1TiB`, or plain bytes.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let bytes = text.parse::<ByteSize>();
    bytes
        .map(|bytes| bytes.as_u64())
        .map_err(|_| "not a size; write it like 256MiB, 1GB or 4096".to_owned())
}

/// A round-trip time, 0 to 10 s: `25ms`, `1s`.
pub(crate) fn parse_rtt(text: &str) -> Result<Duration, String> {
    const MAX: Duration = Duration::from_secs(10);
    let rtt = humantime::parse_duration(text)
        .map_err(|_| "not a time; write it like 25ms, 300us or 1s".to_owned())?;
    if rtt <= MAX {
        Ok(rtt)
    } else {
        Err("a round trip lies in 0s to 10s".to_owned())
    }
}

/// Memory for a transfer, 1 MiB to 16 GiB.
pub(crate) fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).ok().filter(|bytes| *bytes >= 1 << 20);
    bytes.ok_or_else(|| "memory for a transfer is 1MiB to 16GiB; write it like 256MiB".to_owned())
}

/// How long to be patient, 1 s to 1 h: `60s`, `5min`.
pub(crate) fn parse_timeout(text: &str) -> Result<Duration, String> {
    const RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
    let timeout = humantime::parse_duration(text).ok();
    timeout
        .filter(|timeout| RANGE.contains(timeout))
        .ok_or_else(|| "a timeout is 1s to 1h; write it like 60s or 5min".to_owned())
}

/// Payload bytes of a packet, a multiple of 4 from 256 to 65468.
pub(crate) fn parse_mtu(text: &str) -> Result<u32, String> {
    let mtu = text.parse().ok();
    mtu.filter(|mtu: &u32| (256..=65_468).contains(mtu) && mtu.is_multiple_of(4))
        .ok_or_else(|| "an MTU is a multiple of 4 from 256 to 65468 bytes".to_owned())
}

/// Bits a second, 1 Mbit/s to 100 Gbit/s: `2Gbit`, `500Mbit`, or plain bits.
pub(crate) fn parse_rate(text: &str) -> Result<u64, String> {
    const RANGE: RangeInclusive<f64> = 1e6..=1e11;
    let wrong =
        || "not a rate; write it like 2Gbit, 500Mbit or 2000000000 (bits a second)".to_owned();
    let text = text.trim();
    let unit_at = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit = unit.trim_end_matches("/s").trim_end_matches("ps");
    // Whether a B is a bit or a byte should never be a guess.
    if unit.ends_with('B') {
        return Err(format!(
            "{unit} could mean bytes, and rates are in bits a second; write it like 2Gbit"
        ));
    }
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "bit" | "b" => 1.0,
        "k" | "kbit" | "kb" => 1e3,
        "m" | "mbit" | "mb" => 1e6,
        "g" | "gbit" | "gb" => 1e9,
        _ => return Err(wrong()),
    };
    let bps = number.trim().parse::<f64>().map_err(|_| wrong())? * factor;
    if RANGE.contains(&bps) {
        Ok(truncate(bps))
    } else {
        Err("a rate lies in 1Mbit to 100Gbit".to_owned())
    }
}

/// A probability that a packet is lost, 0 to 0.5: `1e-3`, `0.001`, `0.1%`.
pub(crate) fn parse_loss(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 0.01),
        None => (text, 1.0),
    };
    let loss = number
        .parse::<f64>()
        .map_err(|_| "not a probability; write it like 1e-3, 0.001 or 0.1%".to_owned())?
        * factor;
    if (0.0..=0.5).contains(&loss) {
        Ok(loss)
    } else {
        Err("a loss lies in 0 to 0.5 (50%)".to_owned())
    }
}

/// Names with a comma between, which can have shapes with a comma of their own:
/// `sr-nack,ec-mds:32,8`. One name at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List<T>(Vec<T>);

impl<T: FromStr> FromStr for List<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        let mut names: Vec<String> = Vec::new();
        for part in text.split(',') {
            match names.last_mut() {
                // No name begins with a digit.
                Some(name) if part.starts_with(|c: char| c.is_ascii_digit()) => {
                    name.push(',');
                    name.push_str(part);
                }
                _ => names.push(part.to_owned()),
            }
        }
        let names: Result<_, _> = names.iter().map(|name| name.parse()).collect();
        Ok(Self(names?))
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

/// A number within what [`parse_rate`] admits.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "1e6 to 1e11 fit, and a part of a bit a second is nothing"
)]
fn truncate(bps: f64) -> u64 {
    bps as u64
}

/// An integer as a real number. All that is shown here is far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub(crate) fn real(value: u64) -> f64 {
    value as f64
}

/// Shows bytes in binary units: `256 MiB`.
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.into_iter().find(|(unit, _)| self.0 >= *unit) {
            Some((unit, name)) => write!(f, "{} {name}", Digits(real(self.0) / real(unit))),
            None => write!(f, "{} B", self.0),
        }
    }
}

/// Shows a rate in bits a second: `1.87 Gbit/s`.
pub(crate) struct Rate(pub(crate) f64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_rate(f, self.0, "bit/s")
    }
}

/// Shows a speed in bytes a second: `12.1 GB/s`.
pub(crate) struct ByteRate(pub(crate) f64);

impl ByteRate {
    /// So many bytes in so much time.
    pub(crate) fn of(bytes: u64, elapsed: Duration) -> Self {
        // The first moments would show a rate of nothing over nothing.
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
pub(crate) struct Time(pub(crate) Duration);

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

/// Shows a share in per cent: `0.10 %`.
pub(crate) struct Percent(pub(crate) f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", Digits(self.0 * 100.0))
    }
}

/// Three digits that count, and no zeros behind a whole number.
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
    fn sizes() {
        assert_eq!(parse_size("256MiB"), Ok(256 << 20));
        assert_eq!(parse_size("1GB"), Ok(1_000_000_000));
        assert_eq!(parse_size("1.5 KiB"), Ok(1536));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("16GiB"), Ok(16 << 30));
        assert_eq!(parse_count("1TiB"), Ok(1 << 40));
        assert_eq!(parse_count("0"), Ok(0));
        parse_count("-1").expect_err("negative");
        for text in [
            "",
            "0",
            "-1",
            "-5MiB",
            "NaN",
            "inf",
            "17GiB",
            "9e99GB",
            "1XB",
            "MiB",
            "99999999999999999999999",
        ] {
            parse_size(text).expect_err(text);
        }
    }

    #[test]
    fn times() {
        assert_eq!(parse_rtt("25ms"), Ok(Duration::from_millis(25)));
        assert_eq!(parse_rtt("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(parse_rtt("0s"), Ok(Duration::ZERO));
        for text in [
            "",
            "25",
            "-25ms",
            "NaN",
            "1h",
            "11s",
            "ms",
            "9999999999999999999999s",
        ] {
            parse_rtt(text).expect_err(text);
        }
    }

    #[test]
    fn rates() {
        assert_eq!(parse_rate("2Gbit"), Ok(2_000_000_000));
        assert_eq!(parse_rate("2.5gbit/s"), Ok(2_500_000_000));
        assert_eq!(parse_rate("500Mbit"), Ok(500_000_000));
        assert_eq!(parse_rate("500 mbps"), Ok(500_000_000));
        assert_eq!(parse_rate("1G"), Ok(1_000_000_000));
        assert_eq!(parse_rate("2000000000"), Ok(2_000_000_000));
        for text in [
            "", "0", "-2Gbit", "NaN", "inf", "nanGbit", "2Tbit", "200Gbit", "1kbit", "Gbit",
            "2Gwhat", "2Gbit/h",
        ] {
            parse_rate(text).expect_err(text);
        }
        assert!(parse_rate("2GB/s").expect_err("bytes").contains("2Gbit"));
    }

    #[test]
    fn losses() {
        assert_eq!(parse_loss("1e-3"), Ok(1e-3));
        assert_eq!(parse_loss("0.1%"), Ok(0.1 * 0.01));
        assert_eq!(parse_loss("0"), Ok(0.0));
        assert_eq!(parse_loss("50 %"), Ok(0.5));
        for text in ["", "-0.1", "NaN", "nan%", "inf", "0.51", "51%", "2", "x"] {
            parse_loss(text).expect_err(text);
        }
    }

    #[test]
    fn lists_of_names_with_shapes() {
        let names = |text: &str| text.parse::<List<String>>().expect("any name").0;
        assert_eq!(names("gbn"), ["gbn"]);
        assert_eq!(names("a:32,8,gbn,b:4,2"), ["a:32,8", "gbn", "b:4,2"]);
        assert_eq!(names("a:32,"), ["a:32", ""]);
        assert_eq!(names("3,4"), ["3,4"]);
    }

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
}
