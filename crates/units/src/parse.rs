//! Quantities as people write them on a command line.
//!
//! Each parser answers with the value, or with one line on what it takes.
#![expect(
    clippy::missing_errors_doc,
    reason = "every parser fails alike: with a line that says what it takes"
)]

use std::ops::{Deref, RangeInclusive};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use bytesize::ByteSize;

const GIB: u64 = 1 << 30;

/// Bytes of a transfer, 1 to 16 GiB: `256MiB`, `1GB`, or plain bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
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
pub fn parse_count(text: &str) -> Result<u64, String> {
    let bytes = text.parse::<ByteSize>();
    bytes
        .map(|bytes| bytes.as_u64())
        .map_err(|_| "not a size; write it like 256MiB, 1GB or 4096".to_owned())
}

/// A round-trip time, 0 to 10 s: `25ms`, `1s`.
pub fn parse_rtt(text: &str) -> Result<Duration, String> {
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
pub fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).ok().filter(|bytes| *bytes >= 1 << 20);
    bytes.ok_or_else(|| "memory for a transfer is 1MiB to 16GiB; write it like 256MiB".to_owned())
}

/// How long to be patient, 1 s to 1 h: `60s`, `5min`.
pub fn parse_timeout(text: &str) -> Result<Duration, String> {
    const RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
    let timeout = humantime::parse_duration(text).ok();
    timeout
        .filter(|timeout| RANGE.contains(timeout))
        .ok_or_else(|| "a timeout is 1s to 1h; write it like 60s or 5min".to_owned())
}

/// Payload bytes of a packet, a multiple of 4 from 256 to 65468.
pub fn parse_mtu(text: &str) -> Result<u32, String> {
    let mtu = text.parse().ok();
    mtu.filter(|mtu: &u32| (256..=65_468).contains(mtu) && mtu.is_multiple_of(4))
        .ok_or_else(|| "an MTU is a multiple of 4 from 256 to 65468 bytes".to_owned())
}

/// Bits a second, 1 Mbit/s to 100 Gbit/s: `2Gbit`, `500Mbit`, or plain bits.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let bps = rate_within(text, 1e6..=1e11, "1Mbit to 100Gbit")?;
    Ok(truncate(bps))
}

/// Bits a second of a path that is only thought of, 1 kbit/s to 1000 Tbit/s.
pub fn parse_path_rate(text: &str) -> Result<f64, String> {
    rate_within(text, 1e3..=1e15, "1kbit to 1000Tbit")
}

fn rate_within(text: &str, range: RangeInclusive<f64>, shown: &str) -> Result<f64, String> {
    let wrong =
        || "not a rate; write it like 2Gbit, 500Mbit or 2000000000 (bits a second)".to_owned();
    let text = text.trim();
    let (number, unit) = split_unit(text);
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
        "t" | "tbit" | "tb" => 1e12,
        _ => return Err(wrong()),
    };
    let bps = number.parse::<f64>().map_err(|_| wrong())? * factor;
    if range.contains(&bps) {
        Ok(bps)
    } else {
        Err(format!("a rate lies in {shown}; write it like 2Gbit"))
    }
}

/// A number and the letters behind it. An `e` between digits is part of a number: `4e11bit`.
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

/// A message that is only thought of, 1 byte to 4 PiB: `128MiB`, `1TiB`.
pub fn parse_message(text: &str) -> Result<u64, String> {
    let bytes = parse_count(text)?;
    if (1..=4096 << 40).contains(&bytes) {
        Ok(bytes)
    } else {
        Err("a message lies in 1 byte to 4PiB".to_owned())
    }
}

/// Bytes of a chunk that is only thought of, 1 byte to 1 GiB.
pub fn parse_chunk(text: &str) -> Result<u64, String> {
    let bytes = parse_count(text)?;
    if (1..=GIB).contains(&bytes) {
        Ok(bytes)
    } else {
        Err("a chunk lies in 1 byte to 1GiB".to_owned())
    }
}

/// The round-trip time of a path that is only thought of, above 0, to 1 h.
pub fn parse_path_rtt(text: &str) -> Result<Duration, String> {
    let rtt = humantime::parse_duration(text)
        .map_err(|_| "not a time; write it like 25ms, 300us or 1s".to_owned())?;
    if (Duration::from_nanos(1)..=Duration::from_secs(3600)).contains(&rtt) {
        Ok(rtt)
    } else {
        Err("a round trip lies above 0, to 1h".to_owned())
    }
}

/// A probability of a loss that is only thought of, 0 to 0.99.
pub fn parse_path_loss(text: &str) -> Result<f64, String> {
    let loss = parse_number(text).ok_or("not a probability; write it like 1e-3, 0.001 or 0.1%")?;
    if (0.0..=0.99).contains(&loss) {
        Ok(loss)
    } else {
        Err("a loss lies in 0 to 0.99 (99%)".to_owned())
    }
}

/// Mean length of a run of losses, 1 to 1e6.
pub fn parse_burst(text: &str) -> Result<f64, String> {
    number_within(text, 1.0..=1e6, "a mean burst lies in 1 to 1e6 losses")
}

/// Cores, 0 to 1e6, and parts of them.
pub fn parse_cores(text: &str) -> Result<f64, String> {
    number_within(text, 0.0..=1e6, "cores lie in 0 to 1e6")
}

fn number_within(text: &str, range: RangeInclusive<f64>, wrong: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    number
        .filter(|number| range.contains(number))
        .ok_or_else(|| wrong.to_owned())
}

/// How far it is, in kilometres, 1 m to 10 million km: `3750km`, `300m`.
pub fn parse_distance(text: &str) -> Result<f64, String> {
    let (number, unit) = split_unit(text.trim());
    let factor = match unit {
        "km" => Some(1.0),
        "m" => Some(1e-3),
        _ => None,
    };
    let km = number.parse::<f64>().ok().zip(factor);
    match km.map(|(number, factor)| number * factor) {
        Some(km) if (1e-3..=1e7).contains(&km) => Ok(km),
        Some(_) => Err("a distance lies in 1m to 10000000km".to_owned()),
        None => Err("not a distance; write it like 3750km or 300m".to_owned()),
    }
}

/// A share that may exceed the whole, 0 to 10: `25%`, `0.25`.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let share = parse_number(text).ok_or("not a share; write it like 25% or 0.25")?;
    if (0.0..=10.0).contains(&share) {
        Ok(share)
    } else {
        Err("a share lies in 0 to 10 (1000%)".to_owned())
    }
}

/// How far a packet falls behind, 0 to 1e6 packets.
pub fn parse_extent(text: &str) -> Result<u32, String> {
    let extent = text.parse().ok().filter(|extent| *extent <= 1_000_000);
    extent.ok_or_else(|| "an extent of reordering lies in 0 to 1000000 packets".to_owned())
}

/// A moment in UTC (RFC 3339): `2026-03-01T12:00:00Z`.
pub fn parse_moment(text: &str) -> Result<SystemTime, String> {
    humantime::parse_rfc3339_weak(text)
        .map_err(|_| "not a moment; write it like 2026-03-01T12:00:00Z".to_owned())
}

/// Payload bytes of a probe's packets, 72 to 9168: `1KiB`, or plain bytes.
pub fn parse_payload(text: &str) -> Result<u32, String> {
    let bytes = parse_count(text)?;
    let bytes = u32::try_from(bytes).ok();
    bytes
        .filter(|bytes| (72..=9168).contains(bytes))
        .ok_or_else(|| "a probe's payload lies in 72 to 9168 bytes".to_owned())
}

/// How long a probe may take, 2 s to 1 h.
pub fn parse_probe_time(text: &str) -> Result<Duration, String> {
    const RANGE: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(3600);
    let time = humantime::parse_duration(text).ok();
    time.filter(|time| RANGE.contains(time))
        .ok_or_else(|| "a probe takes 2s to 1h; write it like 15s".to_owned())
}

/// How long something runs: 1ms to 1 day.
///
/// # Errors
/// What would do instead.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const DAY: Duration = Duration::from_secs(86_400);
    let duration = humantime::parse_duration(text).ok();
    duration
        .filter(|duration| (Duration::from_millis(1)..=DAY).contains(duration))
        .ok_or_else(|| "a time is 1ms to 1 day; write it like 10s or 5min".to_owned())
}

/// A part of the whole, above 0, to 1: `10%`, `0.1`.
pub fn parse_part(text: &str) -> Result<f64, String> {
    let part = parse_number(text).ok_or("not a share; write it like 10% or 0.1")?;
    if part > 0.0 && part <= 1.0 {
        Ok(part)
    } else {
        Err("a share of the path lies above 0, to 1 (100%)".to_owned())
    }
}

/// A number, perhaps in per cent.
fn parse_number(text: &str) -> Option<f64> {
    match text.strip_suffix('%') {
        Some(percent) => Some(percent.trim_end().parse::<f64>().ok()? * 0.01),
        None => text.parse().ok(),
    }
}

/// A probability that a packet is lost, 0 to 0.5: `1e-3`, `0.001`, `0.1%`.
pub fn parse_loss(text: &str) -> Result<f64, String> {
    let loss = parse_number(text).ok_or("not a probability; write it like 1e-3, 0.001 or 0.1%")?;
    if (0.0..=0.5).contains(&loss) {
        Ok(loss)
    } else {
        Err("a loss lies in 0 to 0.5 (50%)".to_owned())
    }
}

/// Names with a comma between, which can have shapes with a comma of their own:
/// `sr-nack,ec-mds:32,8`. One name at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T>(Vec<T>);

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
        assert_eq!(parse_path_rate("400Gbps"), Ok(400e9));
        assert_eq!(parse_path_rate("1.6Tbit/s"), Ok(1.6e12));
        assert_eq!(parse_path_rate("4e11"), Ok(4e11));
        assert_eq!(parse_path_rate("4e2 Gbit"), Ok(400e9));
        for text in ["0", "-1Gbit", "inf", "NaN", "2Pbit", "1e16", "1e", "eGbit"] {
            parse_path_rate(text).expect_err(text);
        }
        assert!(parse_rate("2GB/s").expect_err("bytes").contains("2Gbit"));
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
    }

    #[test]
    fn lists_of_names_with_shapes() {
        let names = |text: &str| text.parse::<List<String>>().expect("any name").0;
        assert_eq!(names("gbn"), ["gbn"]);
        assert_eq!(names("a:32,8,gbn,b:4,2"), ["a:32,8", "gbn", "b:4,2"]);
        assert_eq!(names("a:32,"), ["a:32", ""]);
        assert_eq!(names("3,4"), ["3,4"]);
    }
}
