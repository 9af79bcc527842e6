//! Quantities in files: `"100Gbit"`, `"1us"`, `"9MiB"`, and models of losses, delay and policers.

use std::time::Duration;

use farwrite_link::{Loss, Policer, Spread, Variation};
use farwrite_units::Burst;
use farwrite_units::written::burst;
pub(crate) use farwrite_units::written::{rate, size, time};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// Highest mean loss in bursts.
const MOST_LOSS: f64 = 0.99;

/// A time as files have it, such as `1us`.
pub(crate) fn write_time<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&humantime::format_duration(*time))
}

pub(crate) fn maybe_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    rate(from).map(Some)
}

pub(crate) fn maybe_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    size(from).map(Some)
}

/// A loss model: a probability, a mean loss with a mean burst, or the two-state model under the
/// names of [`Loss::Markov`] or [`Loss::MarkovInTime`].
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
        MarkovInTime {
            #[serde(deserialize_with = "time")]
            mean_good: Duration,
            #[serde(deserialize_with = "time")]
            mean_bad: Duration,
            loss_good: f64,
            loss_bad: f64,
        },
        Bursts {
            loss_packet: f64,
            #[serde(deserialize_with = "burst")]
            burst: Burst,
        },
    }
    let written = Written::deserialize(from).map_err(|_| {
        D::Error::custom(
            "a loss is a probability such as 1e-5, a table such as { loss_packet = 1e-3, burst = 20 } \
             or { loss_packet = 1e-3, burst = \"2ms\" }, or a table of loss_good, loss_bad, and \
             p_good_to_bad and p_bad_to_good, or mean_good and mean_bad",
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
        Written::MarkovInTime {
            mean_good,
            mean_bad,
            loss_good,
            loss_bad,
        } => Loss::MarkovInTime {
            mean_good,
            mean_bad,
            loss_good,
            loss_bad,
        },
        Written::Bursts { loss_packet, burst } => {
            in_bursts(loss_packet, burst).map_err(D::Error::custom)?
        }
    })
}

/// Losses in bursts with a mean loss and a mean length.
fn in_bursts(loss_packet: f64, burst: Burst) -> Result<Loss, String> {
    if !(0.0..=MOST_LOSS).contains(&loss_packet) {
        return Err(format!(
            "loss_packet = {loss_packet}: a loss in bursts lies in 0 to {MOST_LOSS}"
        ));
    }
    match burst {
        Burst::Losses(packets) => Loss::possible_burst(loss_packet, packets)
            .map(|possible| Loss::in_bursts(loss_packet, possible))
            .map_err(|short| format!("loss_packet = {loss_packet}, burst = {packets}: {short}")),
        Burst::Time(time) => Ok(Loss::in_timed_bursts(loss_packet, time)),
    }
}

/// A delay that varies, such as `{ uniform = "10ms", every = "30ms" }`.
pub(crate) fn variation<'de, D: Deserializer<'de>>(from: D) -> Result<Variation, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, deny_unknown_fields)]
    enum Written {
        Uniform {
            #[serde(deserialize_with = "time")]
            uniform: Duration,
            #[serde(default, deserialize_with = "time")]
            every: Duration,
            #[serde(default)]
            overtakes: bool,
        },
        Normal {
            #[serde(deserialize_with = "time")]
            normal: Duration,
            #[serde(deserialize_with = "time")]
            most: Duration,
            #[serde(default, deserialize_with = "time")]
            every: Duration,
            #[serde(default)]
            overtakes: bool,
        },
        Spikes {
            spikes: f64,
            #[serde(deserialize_with = "time")]
            most: Duration,
            #[serde(default, deserialize_with = "time")]
            every: Duration,
            #[serde(default)]
            overtakes: bool,
        },
    }
    let written = Written::deserialize(from).map_err(|_| {
        D::Error::custom(
            "a variation of the delay is a table such as { uniform = \"10ms\", every = \"30ms\" }, \
             { normal = \"3ms\", most = \"10ms\", every = \"30ms\" } or \
             { spikes = 0.05, most = \"20ms\", every = \"10ms\" }, and may have overtakes = true",
        )
    })?;
    let (spread, every, overtakes) = match written {
        Written::Uniform {
            uniform,
            every,
            overtakes,
        } => (Spread::Uniform { most: uniform }, every, overtakes),
        Written::Normal {
            normal,
            most,
            every,
            overtakes,
        } => {
            let deviation = normal;
            (Spread::Normal { deviation, most }, every, overtakes)
        }
        Written::Spikes {
            spikes,
            most,
            every,
            overtakes,
        } => {
            let share = spikes;
            (Spread::Spikes { share, most }, every, overtakes)
        }
    };
    Ok(Variation {
        spread,
        every,
        overtakes,
    })
}

/// A policer, such as `{ rate = "10Mbit", burst = "24kB" }`.
pub(crate) fn policer<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Policer>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        deny_unknown_fields,
        expecting = "a policer is a table such as { rate = \"10Mbit\", burst = \"24kB\" }"
    )]
    struct Written {
        #[serde(rename = "rate", deserialize_with = "rate")]
        rate_bps: u64,
        #[serde(rename = "burst", deserialize_with = "size")]
        burst_bytes: u64,
    }
    let Written {
        rate_bps,
        burst_bytes,
    } = Written::deserialize(from)?;
    Ok(Some(Policer {
        rate_bps,
        burst_bytes,
    }))
}
