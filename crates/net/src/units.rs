//! Quantities in files: `"100Gbit"`, `"1us"`, `"9MiB"`, and loss models.

use std::time::Duration;

use farwrite_link::Loss;
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

pub(crate) fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = text(from, "2Gbit")?;
    let bps = parse_path_rate(&text).map_err(|why| D::Error::custom(format!("{text:?}: {why}")))?;
    // The value is within 1 kbit/s and 1000 Tbit/s.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let bps = (bps + 0.5) as u64;
    Ok(bps)
}

pub(crate) fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = text(from, "25ms")?;
    humantime::parse_duration(&text)
        .map_err(|_| D::Error::custom(format!("{text:?}: not a time; write it like 500ns or 25ms")))
}

/// A time as files have it, such as `1us`.
pub(crate) fn write_time<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&humantime::format_duration(*time))
}

pub(crate) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = text(from, "256MiB")?;
    parse_count(&text).map_err(|why| D::Error::custom(format!("{text:?}: {why}")))
}

pub(crate) fn maybe_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    size(from).map(Some)
}

/// A loss model: a probability, or the four of the two-state model under the names of
/// [`Loss::Markov`].
pub(crate) fn loss<'de, D: Deserializer<'de>>(from: D) -> Result<Loss, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, deny_unknown_fields)]
    enum Written {
        Iid(f64),
        Markov {
            p_good_to_bad: f64,
            p_bad_to_good: f64,
            loss_good: f64,
            loss_bad: f64,
        },
    }
    let written = Written::deserialize(from).map_err(|_| {
        D::Error::custom(
            "a loss is a probability such as 1e-5, or a table of p_good_to_bad, p_bad_to_good, \
             loss_good and loss_bad",
        )
    })?;
    Ok(match written {
        Written::Iid(loss_packet) => Loss::Iid { loss_packet },
        Written::Markov {
            p_good_to_bad,
            p_bad_to_good,
            loss_good,
            loss_bad,
        } => Loss::Markov {
            p_good_to_bad,
            p_bad_to_good,
            loss_good,
            loss_bad,
        },
    })
}
