//! Quantities in plans: `"1us"`, `"500kB"`.

use std::fmt::Display;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::time::Duration;

use farwrite_units::parse::parse_count;
pub(crate) use farwrite_units::written::time;
use farwrite_units::written::{self, rate};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

pub(crate) fn maybe_time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    time(from).map(Some)
}

/// A time as plans have it, such as `4ms`.
pub(crate) fn write_maybe_time<S: Serializer>(
    time: &Option<Duration>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => to.collect_str(&humantime::format_duration(*time)),
        None => to.serialize_none(),
    }
}

/// A time to wait; above 0.
pub(crate) fn maybe_wait<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    const DAY: Duration = Duration::from_secs(86_400);
    match time(from)? {
        Duration::ZERO => Err(D::Error::custom("a time above 0")),
        wait if wait > DAY => Err(D::Error::custom("a time of at most a day (86400s)")),
        wait => Ok(Some(wait)),
    }
}

pub(crate) fn maybe_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    rate(from).map(Some)
}

/// The size of a message, above 0.
pub(crate) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = written::text(from, written::SIZE)?;
    let wrong = |why: &dyn Display| D::Error::custom(format!("{text:?}: {why}"));
    match parse_count(&text) {
        Ok(0) => Err(wrong(&"a message has at least 1 byte")),
        Ok(bytes) => Ok(bytes),
        Err(why) => Err(wrong(&why)),
    }
}

/// A size above 0.
pub(crate) fn some_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    match maybe_size(from)? {
        Some(0) => Err(D::Error::custom("at least 1 byte")),
        size => Ok(size),
    }
}

pub(crate) fn maybe_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    written::size(from).map(Some)
}

/// A UDP port.
pub(crate) fn maybe_port<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<NonZeroU16>, D::Error> {
    let number = i64::deserialize(from)?;
    let port = u16::try_from(number).ok().and_then(NonZeroU16::new);
    let wrong = || D::Error::custom("a port is a number from 1 to 65535");
    port.map(Some).ok_or_else(wrong)
}

/// A value with a textual form.
pub(crate) fn parsed<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text = String::deserialize(from)?;
    text.parse()
        .map_err(|why| D::Error::custom(format!("{text:?}: {why}")))
}

/// A time in whole nanoseconds; at most 584 years.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
