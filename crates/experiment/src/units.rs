//! Quantities in plans: `"1us"`, `"500kB"`.

use std::fmt::Display;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::time::Duration;

use farwrite_units::parse::{parse_count, parse_path_rate};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// A text. Where the file has another type, the error has an example of what would do.
fn text<'de, D: Deserializer<'de>>(from: D, example: &'static str) -> Result<String, D::Error> {
    struct Text(&'static str);
    impl serde::de::Visitor<'_> for Text {
        type Value = String;

        fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(to, "text such as {:?}", self.0)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
    }
    from.deserialize_str(Text(example))
}

pub(crate) fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = text(from, "25ms")?;
    humantime::parse_duration(&text)
        .map_err(|_| D::Error::custom(format!("{text:?}: not a time; write it like 500ns or 25ms")))
}

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
    match time(from)? {
        Duration::ZERO => Err(D::Error::custom("a time above 0")),
        wait => Ok(Some(wait)),
    }
}

pub(crate) fn maybe_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let text = text(from, "2Gbit")?;
    let bps = parse_path_rate(&text).map_err(|why| D::Error::custom(format!("{text:?}: {why}")))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the parser accepts 1 kbit/s to 1000 Tbit/s, which fits"
    )]
    let bps = (bps + 0.5) as u64;
    Ok(Some(bps))
}

pub(crate) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = text(from, "256MiB")?;
    let bytes = parse_count(&text).map_err(|why| D::Error::custom(format!("{text:?}: {why}")))?;
    match bytes {
        0 => Err(D::Error::custom(format!(
            "{text:?}: a message has at least 1 byte"
        ))),
        bytes => Ok(bytes),
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
    let text = text(from, "256MiB")?;
    let bytes = parse_count(&text).map_err(|why| D::Error::custom(format!("{text:?}: {why}")))?;
    Ok(Some(bytes))
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
