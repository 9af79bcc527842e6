//! Quantities in files: `"100Gbit"`, `"1us"`, `"9MiB"`, and loss models.

use std::time::Duration;

use farwrite_link::Loss;
pub(crate) use farwrite_units::written::{rate, size, time};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// A time as files have it, such as `1us`.
pub(crate) fn write_time<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&humantime::format_duration(*time))
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
