//! Quantities as people write them on a command line.
//!
//! Each parser returns the value, or one line that describes what it accepts.
#![expect(
    clippy::missing_errors_doc,
    reason = "every parser fails alike: with a line that says what it takes"
)]

use std::ops::{Bound, Deref, RangeBounds};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use bytesize::ByteSize;

const GIB: u64 = 1 << 30;
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// Checks that a value lies in a range, otherwise fails with `wrong`. NaN lies in no range.
fn within<T: PartialOrd>(value: T, range: impl RangeBounds<T>, wrong: &str) -> Result<T, String> {
    match range.contains(&value) {
        true => Ok(value),
        false => Err(wrong.to_owned()),
    }
}

/// Parses any number of bytes.
fn bytes(text: &str) -> Result<u64, String> {
    // `Mb` is refused: it could mean bits or bytes.
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || ".+ ".contains(c));
    if ["Kb", "Mb", "Gb", "Tb", "Pb"].contains(&unit.trim()) {
        let unit = unit.trim();
        return Err(format!(
            "{unit} could mean bits, and sizes are in bytes; write it like 1GB"
        ));
    }
    if text.contains('.') && ["", "B", "b"].contains(&unit.trim()) {
        return Err("a number of bytes is whole; write it like 256MiB, 1GB or 4096".to_owned());
    }
    let bytes = text.parse::<ByteSize>();
    bytes
        .map(|bytes| bytes.as_u64())
        .map_err(|_| "not a size; write it like 256MiB, 1GB or 4096".to_owned())
}

/// Parses any time. The error message shows `example`.
fn time(text: &str, example: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| format!("not a time; write it like {example}"))
}

/// Parses any number, also in per cent. The error message shows `what` the number is, and an
/// `example`.
fn number(text: &str, what: &str, example: &str) -> Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().map(|n| n * 0.01),
        None => text.parse(),
    };
    number.map_err(|_| format!("not {what}; write it like {example}"))
}

/// Parses any number of bits per second.
fn rate(text: &str) -> Result<f64, String> {
    let wrong =
        || "not a rate; write it like 2Gbit, 500Mbit or 2000000000 (bits a second)".to_owned();
    let (number, unit) = split_unit(text.trim());
    let unit = unit.trim_end_matches("/s").trim_end_matches("ps");
    // The unit B is rejected: it could mean bits or bytes. Errors do not repeat any other text.
    if unit.ends_with('B') {
        let is_unit = unit.len() <= 3 && unit.bytes().all(|byte| byte.is_ascii_alphabetic());
        return Err(match is_unit {
            true => format!(
                "{unit} could mean bytes, and rates are in bits a second; write it like 2Gbit"
            ),
            false => wrong(),
        });
    }
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "bit" | "b" => 1.0,
        "k" | "kbit" | "kb" => 1e3,
        "m" | "mbit" | "mb" => 1e6,
        "g" | "gbit" | "gb" => 1e9,
        "t" | "tbit" | "tb" => 1e12,
        _ => return Err(wrong()),
    };
    Ok(number.parse::<f64>().map_err(|_| wrong())? * factor)
}

/// Splits a number from the letters after it. An `e` between digits is part of the number:
/// `4e11bit`.
fn split_unit(text: &str) -> (&str, &str) {
    let mut letters = text.char_indices().filter(|(_, c)| c.is_ascii_alphabetic());
    let exponent = |at: usize| {
        text.get(at + 1..)
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || "+-".contains(c)))
    };
    let unit = letters.find(|(at, c)| !(matches!(c, 'e' | 'E') && exponent(*at)));
    let (number, unit) = text.split_at(unit.map_or(text.len(), |(at, _)| at));
    (number.trim(), unit)
}

/// Bytes of a transfer, 1 to 16 GiB: `256MiB`, `1GB`, or plain bytes.
///
/// ```
/// use farwrite_units::parse::parse_size;
///
/// assert_eq!(parse_size("1.5KiB"), Ok(1536));
/// let error = parse_size("17GiB").expect_err("too much");
/// assert_eq!(error, "a size lies in 1 byte to 16GiB");
/// ```
pub fn parse_size(text: &str) -> Result<u64, String> {
    within(bytes(text)?, 1..=16 * GIB, "a size lies in 1 byte to 16GiB")
}

/// A number of bytes, up to 2^63: `1TiB`, or plain bytes.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let wrong = "a number of bytes is at most 9223372036854775808 (8EiB)";
    within(bytes(text)?, ..=1 << 63, wrong)
}

/// Memory for a transfer, 1 MiB to 16 GiB.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    let wrong = "memory for a transfer is 1MiB to 16GiB; write it like 256MiB";
    within(bytes(text)?, 1 << 20..=16 * GIB, wrong)
}

/// Bytes of a message for the planner, 1 byte to 4 PiB: `128MiB`, `1TiB`.
pub fn parse_message(text: &str) -> Result<u64, String> {
    within(
        bytes(text)?,
        1..=4096 << 40,
        "a message lies in 1 byte to 4PiB",
    )
}

/// Bytes of a chunk for the planner, 1 byte to 1 GiB.
pub fn parse_chunk(text: &str) -> Result<u64, String> {
    within(bytes(text)?, 1..=GIB, "a chunk lies in 1 byte to 1GiB")
}

/// Payload bytes of a packet, a multiple of 4 from 256 to 65468.
pub fn parse_mtu(text: &str) -> Result<u32, String> {
    let mtu = text.parse().ok();
    mtu.filter(|mtu: &u32| (256..=65_468).contains(mtu) && mtu.is_multiple_of(4))
        .ok_or_else(|| "an MTU is a multiple of 4 from 256 to 65468 bytes".to_owned())
}

/// Payload bytes of the packets of a probe, 72 to 9168: `1KiB`, or plain bytes.
pub fn parse_payload(text: &str) -> Result<u32, String> {
    let wrong = "a probe's payload lies in 72 to 9168 bytes";
    let bytes = within(bytes(text)?, 72..=9168, wrong)?;
    u32::try_from(bytes).map_err(|_| wrong.to_owned())
}

/// A round-trip time, 0 to 10 s: `25ms`, `1s`.
pub fn parse_rtt(text: &str) -> Result<Duration, String> {
    let most = Duration::from_secs(10);
    within(
        time(text, "25ms, 300us or 1s")?,
        ..=most,
        "a round trip lies in 0s to 10s",
    )
}

/// A delay in one direction, 0 to 10 s: `5us`, `20ms`.
pub fn parse_delay(text: &str) -> Result<Duration, String> {
    let most = Duration::from_secs(10);
    let wrong = "a delay lies in 0s to 10s; write it like 5us or 20ms";
    within(time(text, "5us, 20ms or 1s")?, ..=most, wrong)
}

/// The round-trip time of a path for the planner, above 0, up to 1 h.
pub fn parse_path_rtt(text: &str) -> Result<Duration, String> {
    let range = Duration::from_nanos(1)..=HOUR;
    within(
        time(text, "25ms, 300us or 1s")?,
        range,
        "a round trip lies above 0, to 1h",
    )
}

/// A timeout, 1 s to 1 h: `60s`, `5min`.
pub fn parse_timeout(text: &str) -> Result<Duration, String> {
    let range = Duration::from_secs(1)..=HOUR;
    let wrong = "a timeout is 1s to 1h; write it like 60s or 5min";
    within(time(text, "60s or 5min")?, range, wrong)
}

/// How long a probe may take, 2 s to 1 h.
pub fn parse_probe_time(text: &str) -> Result<Duration, String> {
    let range = Duration::from_secs(2)..=HOUR;
    let wrong = "a probe takes 2s to 1h; write it like 15s";
    within(time(text, "15s")?, range, wrong)
}

/// How long something runs: 1ms to 1 day.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(1)..=DAY;
    let wrong = "a time is 1ms to 1 day; write it like 10s or 5min";
    within(time(text, "10s or 5min")?, range, wrong)
}

/// A time in a simulation, above 0, up to 1 day: `500us`, `10ms`.
pub fn parse_simulated(text: &str) -> Result<Duration, String> {
    let range = Duration::from_nanos(1)..=DAY;
    let wrong = "a simulated time lies above 0, to 1 day; write it like 500us or 10ms";
    within(time(text, "500us or 10ms")?, range, wrong)
}

/// A moment in UTC (RFC 3339): `2026-03-01T12:00:00Z`.
pub fn parse_moment(text: &str) -> Result<SystemTime, String> {
    humantime::parse_rfc3339_weak(text)
        .map_err(|_| "not a moment; write it like 2026-03-01T12:00:00Z".to_owned())
}

/// Bits a second, 8 kbit/s to 100 Gbit/s: `2Gbit`, `500Mbit`, or plain bits.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "8e3 to 1e11 fit, and a part of a bit a second is nothing"
)]
///
/// ```
/// use farwrite_units::parse::parse_rate;
///
/// assert_eq!(parse_rate("2.5Gbit/s"), Ok(2_500_000_000));
/// // Bits and bytes must not be a guess.
/// assert!(parse_rate("2GB/s").is_err());
/// ```
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let wrong = "a rate lies in 8kbit to 100Gbit; write it like 2Gbit";
    Ok(within(rate(text)?, 8e3..=1e11, wrong)? as u64)
}

/// Bits per second of a path for the planner, 1 kbit/s to 1000 Tbit/s.
pub fn parse_path_rate(text: &str) -> Result<f64, String> {
    let wrong = "a rate lies in 1kbit to 1000Tbit; write it like 2Gbit";
    within(rate(text)?, 1e3..=1e15, wrong)
}

/// A probability that a packet is lost, 0 to 0.5: `1e-3`, `0.001`, `0.1%`.
pub fn parse_loss(text: &str) -> Result<f64, String> {
    let loss = number(text, "a probability", "1e-3, 0.001 or 0.1%")?;
    within(loss, 0.0..=0.5, "a loss lies in 0 to 0.5 (50%)")
}

/// A probability that a bit is wrong, 0 to 0.001: `1e-7`.
pub fn parse_bit_errors(text: &str) -> Result<f64, String> {
    let rate = number(text, "a probability", "1e-7")?;
    within(rate, 0.0..=1e-3, "bit errors lie in 0 to 0.001")
}

/// A probability of a loss on a path for the planner, 0 to 0.99.
pub fn parse_path_loss(text: &str) -> Result<f64, String> {
    let loss = number(text, "a probability", "1e-3, 0.001 or 0.1%")?;
    within(loss, 0.0..=0.99, "a loss lies in 0 to 0.99 (99%)")
}

/// A share that may exceed the whole, 0 to 10: `25%`, `0.25`.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let share = number(text, "a share", "25% or 0.25")?;
    within(share, 0.0..=10.0, "a share lies in 0 to 10 (1000%)")
}

/// A part of the whole, above 0, up to 1: `10%`, `0.1`.
pub fn parse_part(text: &str) -> Result<f64, String> {
    let part = number(text, "a share", "10% or 0.1")?;
    let range = (Bound::Excluded(0.0), Bound::Included(1.0));
    within(part, range, "a share of the path lies above 0, to 1 (100%)")
}

/// A number of cores, 0 to 1e6. Fractions are allowed.
pub fn parse_cores(text: &str) -> Result<f64, String> {
    let wrong = "cores lie in 0 to 1e6";
    within(plain(text, wrong)?, 0.0..=1e6, wrong)
}

/// How far a packet falls behind, 0 to 1e6 packets.
pub fn parse_extent(text: &str) -> Result<u32, String> {
    let wrong = "an extent of reordering lies in 0 to 1000000 packets";
    within(plain(text, wrong)?, ..=1_000_000, wrong)
}

/// A number without a unit.
fn plain<T: FromStr>(text: &str, wrong: &str) -> Result<T, String> {
    text.parse().map_err(|_| wrong.to_owned())
}

/// A distance in kilometres, 1 m to 10 million km: `3750km`, `300m`.
pub fn parse_distance(text: &str) -> Result<f64, String> {
    let (number, unit) = split_unit(text.trim());
    let factor = match unit {
        "km" => Some(1.0),
        "m" => Some(1e-3),
        _ => None,
    };
    let km = number.parse::<f64>().ok().zip(factor);
    let (number, factor) = km.ok_or("not a distance; write it like 3750km or 300m")?;
    let wrong = "a distance lies in 1m to 10000000km";
    within(number * factor, 1e-3..=1e7, wrong)
}

/// Names with a comma between, which can have shapes with a comma of their own:
/// `sr-nack,ec-mds:32,8`. One name at least.
///
/// ```
/// use farwrite_units::parse::List;
///
/// let list: List<String> = "sr-nack,ec-mds:32,8".parse()?;
/// assert_eq!(*list, ["sr-nack", "ec-mds:32,8"]);
/// # Ok::<(), std::convert::Infallible>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T>(Vec<T>);

impl<T: FromStr> FromStr for List<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        let mut names: Vec<String> = Vec::new();
        // A shape has two parts, and no name begins with a digit.
        let lacks_part = |name: &str| name.contains(':') && !name.contains(',');
        for part in text.split(',') {
            match names.last_mut() {
                Some(name)
                    if lacks_part(name) || part.starts_with(|c: char| c.is_ascii_digit()) =>
                {
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
        assert_eq!(parse_count("8EiB"), Ok(1 << 63));
        let error = parse_count("99EB").expect_err("too much");
        assert!(error.contains("8EiB"), "{error}");
        for text in [
            "",
            "0",
            "1.5",
            "1.5B",
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
        assert_eq!(parse_simulated("1ns"), Ok(Duration::from_nanos(1)));
        for text in ["", "0s", "10", "2days"] {
            parse_simulated(text).expect_err(text);
        }
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
        assert_eq!(parse_path_rate("400Gbps"), Ok(400e9));
        assert_eq!(parse_path_rate("1.6Tbit/s"), Ok(1.6e12));
        assert_eq!(parse_path_rate("4e11"), Ok(4e11));
        assert_eq!(parse_path_rate("4e2 Gbit"), Ok(400e9));
        for text in ["0", "-1Gbit", "inf", "NaN", "2Pbit", "1e16", "1e", "eGbit"] {
            parse_path_rate(text).expect_err(text);
        }
        assert!(parse_rate("2GB/s").expect_err("bytes").contains("2Gbit"));
        let error = parse_rate("2a\n\u{1b}[31mB").expect_err("no unit");
        assert!(!error.contains(['\n', '\u{1b}']), "{error:?}");
    }

    #[test]
    fn distances_and_shares() {
        assert_eq!(parse_distance("3750km"), Ok(3750.0));
        assert_eq!(parse_distance("500 m"), Ok(0.5));
        for text in [
            "", "3750", "0km", "-1km", "NaNkm", "infkm", "1e9km", "5 miles",
        ] {
            parse_distance(text).expect_err(text);
        }
        assert_eq!(parse_share("25%"), Ok(0.25));
        assert_eq!(parse_share("0"), Ok(0.0));
        for text in ["", "-1%", "NaN", "inf", "11", "a quarter"] {
            parse_share(text).expect_err(text);
        }
    }

    #[test]
    fn what_a_probe_takes() {
        assert_eq!(parse_extent("17"), Ok(17));
        assert_eq!(parse_payload("8KiB"), Ok(8192));
        assert_eq!(parse_probe_time("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(parse_part("10%"), Ok(0.1));
        assert_eq!(parse_part("1"), Ok(1.0));
        let noon = Duration::from_secs(43_200);
        assert_eq!(
            parse_moment("1970-01-01T12:00:00Z"),
            Ok(SystemTime::UNIX_EPOCH + noon)
        );
        for text in ["", "-1", "NaN", "1e7", "2000000"] {
            parse_extent(text).expect_err(text);
        }
        for text in ["0", "71", "9169", "1MiB", "x"] {
            parse_payload(text).expect_err(text);
        }
        for text in ["1s", "2h", "15"] {
            parse_probe_time(text).expect_err(text);
        }
        for text in ["0", "101%", "NaN", "-0.1", "most"] {
            parse_part(text).expect_err(text);
        }
        for text in ["", "today", "2026-13-01T00:00:00Z"] {
            parse_moment(text).expect_err(text);
        }
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
        assert_eq!(parse_bit_errors("1e-7"), Ok(1e-7));
        for text in ["", "-1e-7", "NaN", "0.0011"] {
            parse_bit_errors(text).expect_err(text);
        }
    }

    #[test]
    fn lists_of_names_with_shapes() {
        let names = |text: &str| text.parse::<List<String>>().expect("any name").0;
        assert_eq!(names("gbn"), ["gbn"]);
        assert_eq!(names("a:32,8,gbn,b:4,2"), ["a:32,8", "gbn", "b:4,2"]);
        assert_eq!(names("a:32,m,gbn"), ["a:32,m", "gbn"]);
        assert_eq!(names("a:32,"), ["a:32,"]);
        assert_eq!(names("3,4"), ["3,4"]);
    }
}
