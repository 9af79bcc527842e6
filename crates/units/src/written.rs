//! Reads quantities from files with serde: `"100Gbit"`, `"1us"`, `"9MiB"`.

use std::fmt;
use std::time::Duration;

use serde::Deserializer;
use serde::de::{Error, Visitor};

use crate::Burst;
use crate::parse::{parse_count, parse_path_rate};

/// An example of a size, for errors.
pub const SIZE: &str = "256MiB";

/// Reads a text.
///
/// # Errors
/// The value has another type. The error shows `example`.
pub fn text<'de, D: Deserializer<'de>>(from: D, example: &'static str) -> Result<String, D::Error> {
    struct Text(&'static str);
    impl Visitor<'_> for Text {
        type Value = String;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(to, "text such as {:?}", self.0)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
    }
    from.deserialize_str(Text(example))
}

/// A rate in bits a second.
///
/// # Errors
/// The value is not a text, or not a rate from 1 kbit/s to 1000 Tbit/s.
pub fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = text(from, "2Gbit")?;
    let bps = parse_path_rate(&text).map_err(|why| D::Error::custom(format!("{text:?}: {why}")))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the parser accepts 1 kbit/s to 1000 Tbit/s, which fits"
    )]
    let bps = (bps + 0.5) as u64;
    Ok(bps)
}

/// A time.
///
/// # Errors
/// The value is not a text, or not a time.
pub fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = text(from, "25ms")?;
    humantime::parse_duration(&text)
        .map_err(|_| D::Error::custom(format!("{text:?}: not a time; write it like 500ns or 25ms")))
}

/// The mean length of bursts of losses.
///
/// # Errors
/// The value is not a number of losses and not a text with a time.
pub fn burst<'de, D: Deserializer<'de>>(from: D) -> Result<Burst, D::Error> {
    struct Length;
    impl Length {
        fn parse<E: Error>(text: &str) -> Result<Burst, E> {
            text.parse()
                .map_err(|why| E::custom(format!("{text}: {why}")))
        }
    }
    impl Visitor<'_> for Length {
        type Value = Burst;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("a mean burst such as 20 or \"2ms\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Burst, E> {
            Self::parse(text)
        }

        fn visit_i64<E: Error>(self, losses: i64) -> Result<Burst, E> {
            Self::parse(&losses.to_string())
        }

        fn visit_u64<E: Error>(self, losses: u64) -> Result<Burst, E> {
            Self::parse(&losses.to_string())
        }

        fn visit_f64<E: Error>(self, losses: f64) -> Result<Burst, E> {
            Self::parse(&losses.to_string())
        }
    }
    from.deserialize_any(Length)
}

/// A size in bytes.
///
/// # Errors
/// The value is not a text, or not a size.
pub fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = text(from, SIZE)?;
    parse_count(&text).map_err(|why| D::Error::custom(format!("{text:?}: {why}")))
}
