//! Parameters of DCQCN, Swift, EQDS and IRN in plans, by the names of their papers.

use std::fmt;
use std::time::Duration;

use farwrite::{EqdsOptions, SwiftOptions};
use farwrite_rate::DcqcnOptions;
use farwrite_rc::{QpConfig, Recovery};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units::{maybe_rate, maybe_time, maybe_wait, nanoseconds, write_maybe_time};

/// Values from which the parameters of DCQCN start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DcqcnPreset {
    /// [`DcqcnOptions::paper`].
    #[default]
    Paper,
    /// [`DcqcnOptions::ns3`].
    Ns3,
}

/// Parameters of DCQCN (SIGCOMM 2015). What is absent has the value of the preset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Dcqcn {
    /// The other values.
    pub preset: DcqcnPreset,
    /// Weight of the newest period in alpha: a power of two.
    pub g: Option<Weight>,
    /// Period of alpha.
    #[serde(
        rename = "K",
        deserialize_with = "maybe_wait",
        serialize_with = "write_maybe_time"
    )]
    pub alpha_period: Option<Duration>,
    /// Time between two steps of increase.
    #[serde(
        rename = "T",
        deserialize_with = "maybe_wait",
        serialize_with = "write_maybe_time"
    )]
    pub increase_period: Option<Duration>,
    /// Bytes between two steps of increase.
    #[serde(rename = "B", deserialize_with = "crate::units::some_size")]
    pub increase_bytes: Option<u64>,
    /// Steps of fast recovery.
    #[serde(rename = "F", deserialize_with = "few_steps")]
    pub fast_recovery_steps: Option<u32>,
    /// Step of additive increase, in bits a second.
    #[serde(rename = "R_AI", deserialize_with = "maybe_rate")]
    pub additive_increase_bps: Option<u64>,
    /// Step of hyper increase, in bits a second.
    #[serde(rename = "R_HAI", deserialize_with = "maybe_rate")]
    pub hyper_increase_bps: Option<u64>,
    /// Shortest time between two congestion notifications.
    #[serde(
        rename = "N",
        deserialize_with = "maybe_time",
        serialize_with = "write_maybe_time"
    )]
    pub notification_interval: Option<Duration>,
    /// Lowest rate of a flow, in bits a second.
    #[serde(rename = "min_rate", deserialize_with = "maybe_rate")]
    pub min_rate_bps: Option<u64>,
    /// Whether changes of the rate apply when they do in the RDMA trees of ns-3: see
    /// [`DcqcnOptions::cuts_at_interval_ends`] and [`DcqcnOptions::paces_by_departures`].
    pub ns3_timing: bool,
}

/// Parameters of Swift (SIGCOMM 2020). What is absent has the default of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Swift {
    /// Target delay of the path.
    #[serde(deserialize_with = "maybe_wait", serialize_with = "write_maybe_time")]
    pub base_target: Option<Duration>,
    /// Target delay in the receiver.
    #[serde(deserialize_with = "maybe_wait", serialize_with = "write_maybe_time")]
    pub endpoint_target: Option<Duration>,
    /// Highest value that flow scaling adds to the target.
    #[serde(deserialize_with = "maybe_time", serialize_with = "write_maybe_time")]
    pub fs_range: Option<Duration>,
    /// Window in packets below which flow scaling adds all of `fs_range`.
    pub fs_min_cwnd: Option<Millionths<1_000, 1_000_000_000>>,
    /// Window in packets above which flow scaling adds nothing.
    pub fs_max_cwnd: Option<Millionths<1_000, 1_000_000_000_000>>,
    /// Packets that each round trip below the target adds to the window.
    pub ai: Option<Millionths<1, 1_000_000_000_000>>,
    /// Share of the excess delay by which the window falls.
    pub beta: Option<Millionths<0, 1_000_000>>,
    /// Largest share of one decrease.
    pub max_mdf: Option<Millionths<0, 999_999>>,
    /// Smallest window in packets.
    pub min_cwnd: Option<Millionths<1, 1_000_000>>,
    /// Largest window in packets.
    pub max_cwnd: Option<Millionths<1_000_000, 1_000_000_000_000>>,
    /// Consecutive timeouts after which the window is the smallest.
    pub retx_reset_threshold: Option<u32>,
}

/// Parameters of IRN (SIGCOMM 2018). What is absent has the default of the protocol. `window` of the
/// transport is its limit of packets in flight (BDP-FC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Irn {
    /// Timeout while few packets are in flight.
    #[serde(
        rename = "RTO_low",
        deserialize_with = "maybe_wait",
        serialize_with = "write_maybe_time"
    )]
    pub rto_low: Option<Duration>,
    /// Timeout otherwise.
    #[serde(
        rename = "RTO_high",
        deserialize_with = "maybe_wait",
        serialize_with = "write_maybe_time"
    )]
    pub rto_high: Option<Duration>,
    /// Largest number of packets in flight for which `RTO_low` applies.
    #[serde(rename = "N")]
    pub few_packets: Option<u32>,
}

/// Parameters of EQDS (NSDI 2022).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Eqds {
    /// Bytes that a flow sends before the first credit; `None`: one round trip.
    #[serde(deserialize_with = "crate::units::some_size")]
    pub first_window: Option<u64>,
}

/// A number of the form 2^-n, up to 2^-16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    shift: u32,
}

/// A number in millionths, with its bounds in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millionths<const LEAST: u64, const MOST: u64>(u64);

impl Dcqcn {
    pub(crate) fn options(&self, line_rate_bps: u64) -> DcqcnOptions {
        let base = match self.preset {
            DcqcnPreset::Paper => DcqcnOptions::paper(line_rate_bps),
            DcqcnPreset::Ns3 => DcqcnOptions::ns3(line_rate_bps),
        };
        let time = |own: Option<Duration>, base_ns| own.map_or(base_ns, nanoseconds);
        DcqcnOptions {
            min_rate_bps: self.min_rate_bps.unwrap_or(base.min_rate_bps),
            g_shift: self.g.map_or(base.g_shift, |g| g.shift),
            alpha_timer_ns: time(self.alpha_period, base.alpha_timer_ns),
            increase_timer_ns: time(self.increase_period, base.increase_timer_ns),
            byte_counter_bytes: self.increase_bytes.or(base.byte_counter_bytes),
            fast_recovery_steps: self.fast_recovery_steps.unwrap_or(base.fast_recovery_steps),
            additive_increase_bps: self
                .additive_increase_bps
                .unwrap_or(base.additive_increase_bps),
            hyper_increase_bps: self.hyper_increase_bps.unwrap_or(base.hyper_increase_bps),
            notification_interval_ns: time(
                self.notification_interval,
                base.notification_interval_ns,
            ),
            cuts_at_interval_ends: self.ns3_timing,
            paces_by_departures: self.ns3_timing,
            ..base
        }
    }

    /// Parses the name of a preset, or a table.
    pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Self>, D::Error> {
        struct NameOrTable;
        impl<'de> Visitor<'de> for NameOrTable {
            type Value = Dcqcn;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "\"paper\", \"ns3\", or a table such as { preset = \"paper\", K = \"55us\" }",
                )
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Dcqcn, E> {
                let preset = DcqcnPreset::deserialize(name.into_deserializer())?;
                Ok(Dcqcn {
                    preset,
                    ..Dcqcn::default()
                })
            }

            fn visit_map<M: MapAccess<'de>>(self, table: M) -> Result<Dcqcn, M::Error> {
                Dcqcn::deserialize(MapAccessDeserializer::new(table))
            }
        }
        from.deserialize_any(NameOrTable).map(Some)
    }
}

impl Swift {
    pub(crate) fn apply(&self, base: SwiftOptions) -> SwiftOptions {
        let time = |own: Option<Duration>, base_ns| own.map_or(base_ns, nanoseconds);
        SwiftOptions {
            base_target_ns: time(self.base_target, base.base_target_ns),
            endpoint_target_ns: time(self.endpoint_target, base.endpoint_target_ns),
            fs_range_ns: time(self.fs_range, base.fs_range_ns),
            fs_min_cwnd_millionths: or(self.fs_min_cwnd, base.fs_min_cwnd_millionths),
            fs_max_cwnd_millionths: or(self.fs_max_cwnd, base.fs_max_cwnd_millionths),
            ai_millionths: or(self.ai, base.ai_millionths),
            beta_millionths: or(self.beta, base.beta_millionths),
            max_mdf_millionths: or(self.max_mdf, base.max_mdf_millionths),
            min_cwnd_millionths: or(self.min_cwnd, base.min_cwnd_millionths),
            max_cwnd_millionths: or(self.max_cwnd, base.max_cwnd_millionths),
            retx_reset_threshold: self
                .retx_reset_threshold
                .unwrap_or(base.retx_reset_threshold),
            ..base
        }
    }

    /// The error of values that contradict each other.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let all = self.apply(SwiftOptions::new(1, 1, 0));
        let (min, max) = (all.fs_min_cwnd_millionths, all.fs_max_cwnd_millionths);
        (min >= max).then(|| {
            format!(
                "swift.fs_min_cwnd = {} is not below swift.fs_max_cwnd = {}",
                in_units(min),
                in_units(max)
            )
        })
    }
}

impl Irn {
    pub(crate) fn apply(&self, base: QpConfig) -> QpConfig {
        let recovery = match base.recovery {
            Recovery::Irn {
                rto_low_ns,
                rto_low_packets,
            } => Recovery::Irn {
                rto_low_ns: self.rto_low.map_or(rto_low_ns, nanoseconds),
                rto_low_packets: self.few_packets.unwrap_or(rto_low_packets),
            },
            other => other,
        };
        QpConfig {
            recovery,
            ack_timeout_ns: self.rto_high.map_or(base.ack_timeout_ns, nanoseconds),
            ..base
        }
    }

    /// The error of values that contradict each other.
    pub(crate) fn contradiction(&self, timeout: Option<Duration>) -> Option<String> {
        if timeout.is_some() && self.rto_high.is_some() {
            return Some("timeout and irn.RTO_high are the same setting: give one of them".into());
        }
        let (low, high) = (self.rto_low?, self.rto_high.or(timeout)?);
        (low > high).then(|| {
            let [low, high] = [low, high].map(humantime::format_duration);
            format!("irn.RTO_low = {low} is above RTO_high = {high}")
        })
    }
}

impl Eqds {
    pub(crate) fn apply(&self, base: EqdsOptions) -> EqdsOptions {
        EqdsOptions {
            first_window_bytes: self.first_window.unwrap_or(base.first_window_bytes),
            ..base
        }
    }
}

fn or<const LEAST: u64, const MOST: u64>(own: Option<Millionths<LEAST, MOST>>, base: u64) -> u64 {
    own.map_or(base, |own| own.0)
}

#[expect(clippy::cast_precision_loss, reason = "the bounds are below 2^53")]
fn in_units(millionths: u64) -> f64 {
    millionths as f64 / 1e6
}

/// Steps of fast recovery.
fn few_steps<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let number = i64::deserialize(from)?;
    let steps = u32::try_from(number).ok().filter(|steps| *steps <= 1_000);
    let wrong = || D::Error::custom("a number of steps from 0 to 1000");
    steps.map(Some).ok_or_else(wrong)
}

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(from)?;
        let shift = (0..=16).find(|shift| number * f64::from(1_u32 << shift) == 1.0);
        let wrong = "a power of two from 2^-16 to 1, such as 0.00390625 (1/256)";
        let shift = shift.ok_or_else(|| D::Error::custom(wrong))?;
        Ok(Self { shift })
    }
}

impl Serialize for Weight {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(1.0 / f64::from(1_u32 << self.shift))
    }
}

impl<'de, const LEAST: u64, const MOST: u64> Deserialize<'de> for Millionths<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(from)?;
        if !(in_units(LEAST)..=in_units(MOST)).contains(&number) {
            let (least, most) = (in_units(LEAST), in_units(MOST));
            let why = format!("a number from {least} to {most}");
            return Err(D::Error::custom(why));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "within the bounds"
        )]
        let millionths = (number * 1e6).round() as u64;
        Ok(Self(millionths))
    }
}

impl<const LEAST: u64, const MOST: u64> Serialize for Millionths<LEAST, MOST> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(in_units(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_of_dcqcn_reaches_its_field() {
        let text = "preset = \"ns3\"\ng = 0.25\nK = \"1us\"\nT = \"2us\"\nB = \"3kB\"\nF = 4\n\
                    R_AI = \"5Mbit\"\nR_HAI = \"6Mbit\"\nN = \"7us\"\nmin_rate = \"8Mbit\"\n\
                    ns3_timing = true";
        let own: Dcqcn = toml::from_str(text).unwrap();
        let want = DcqcnOptions {
            g_shift: 2,
            alpha_timer_ns: 1_000,
            increase_timer_ns: 2_000,
            byte_counter_bytes: Some(3_000),
            fast_recovery_steps: 4,
            additive_increase_bps: 5_000_000,
            hyper_increase_bps: 6_000_000,
            notification_interval_ns: 7_000,
            min_rate_bps: 8_000_000,
            cuts_at_interval_ends: true,
            paces_by_departures: true,
            ..DcqcnOptions::ns3(1_000_000_000)
        };
        assert_eq!(own.options(1_000_000_000), want);
    }

    #[test]
    fn every_parameter_of_swift_reaches_its_field() {
        let text = "base_target = \"1us\"\nendpoint_target = \"2us\"\nfs_range = \"3us\"\n\
                    fs_min_cwnd = 0.2\nfs_max_cwnd = 50\nai = 0.5\nbeta = 0.6\nmax_mdf = 0.7\n\
                    min_cwnd = 0.01\nmax_cwnd = 80\nretx_reset_threshold = 9";
        let own: Swift = toml::from_str(text).unwrap();
        let base = SwiftOptions::new(1_000_000_000, 1_000, 2);
        let want = SwiftOptions {
            base_target_ns: 1_000,
            endpoint_target_ns: 2_000,
            fs_range_ns: 3_000,
            fs_min_cwnd_millionths: 200_000,
            fs_max_cwnd_millionths: 50_000_000,
            ai_millionths: 500_000,
            beta_millionths: 600_000,
            max_mdf_millionths: 700_000,
            min_cwnd_millionths: 10_000,
            max_cwnd_millionths: 80_000_000,
            retx_reset_threshold: 9,
            ..base
        };
        assert_eq!(own.apply(base), want);
        assert_eq!(own.contradiction(), None);
    }

    #[test]
    fn settings_are_written_as_they_are_read() {
        let text = "g = 0.25\nK = \"1us\"\nF = 4";
        let own: Dcqcn = toml::from_str(text).unwrap();
        let written = toml::to_string(&own).unwrap();
        assert_eq!(toml::from_str::<Dcqcn>(&written), Ok(own), "{written}");
    }
}
