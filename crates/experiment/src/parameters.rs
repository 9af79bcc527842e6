//! Parameters of DCQCN, Swift, EQDS, DCTCP, TIMELY, HPCC and IRN in plans, by the names of their papers.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use farwrite::{EqdsOptions, SwiftOptions};
use farwrite_rate::{
    DcqcnOptions, DctcpOptions, HpccOptions, Parameter, Parameters, Quantity, TimelyOptions,
};
use farwrite_rc::{PathProfile, QpConfig};
use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units::{maybe_rate, maybe_time, maybe_wait, nanoseconds, some_size};

/// Values of some parameters of the options `O`. Absent ones keep the value of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values<O> {
    /// A value for each entry of [`Parameters::PARAMETERS`].
    values: Vec<Option<u64>>,
    of: PhantomData<fn() -> O>,
}

/// Parameters of Swift (SIGCOMM 2020).
pub type Swift = Values<SwiftOptions>;
/// Parameters of EQDS (NSDI 2022).
pub type Eqds = Values<EqdsOptions>;
/// Parameters of DCTCP (RFC 8257).
pub type Dctcp = Values<DctcpOptions>;
/// Parameters of TIMELY (SIGCOMM 2015).
pub type Timely = Values<TimelyOptions>;
/// Parameters of HPCC (SIGCOMM 2019).
pub type Hpcc = Values<HpccOptions>;
/// Parameters of IRN (SIGCOMM 2018). `window` of the transport is its limit of packets in flight
/// (BDP-FC).
pub type Irn = Values<QpConfig>;

/// Parameters of DCQCN (SIGCOMM 2015). What is absent has the value of the preset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dcqcn {
    /// The other values.
    pub preset: DcqcnPreset,
    /// The values that differ from the preset.
    pub values: Values<DcqcnOptions>,
}

/// Values from which the parameters of DCQCN start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DcqcnPreset {
    /// [`DcqcnOptions::paper`].
    #[default]
    Paper,
    /// [`DcqcnOptions::ns3`].
    Ns3,
    /// The same, with a window of one bandwidth-delay product of the path.
    Ns3Vwin,
}

impl<O: Parameters> Default for Values<O> {
    fn default() -> Self {
        Self {
            values: O::PARAMETERS.iter().map(unset).collect(),
            of: PhantomData,
        }
    }
}

impl<O: Parameters> Values<O> {
    /// The options with these values.
    pub(crate) fn apply(&self, mut options: O) -> O {
        for (parameter, value) in O::PARAMETERS.iter().zip(&self.values) {
            if let Some(value) = value {
                (parameter.set)(&mut options, *value);
            }
        }
        options
    }

    /// The value of a parameter.
    fn get(&self, name: &str) -> Option<u64> {
        let mut all = O::PARAMETERS.iter().zip(&self.values);
        let found = all.find(|(parameter, _)| parameter.name == name);
        found.and_then(|(_, value)| *value)
    }

    /// Reads the value of the parameter `key`. `also` has another key that the table may have, for the
    /// error.
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        key: &str,
        also: Option<&str>,
        table: &mut M,
    ) -> Result<(), M::Error> {
        let names = O::PARAMETERS.iter().map(|parameter| parameter.name);
        let Some(at) = names.clone().position(|name| name == key) else {
            let names: Vec<_> = (also.into_iter().chain(names))
                .map(|name| format!("`{name}`"))
                .collect();
            let expected = match &names[..] {
                [one] => one.clone(),
                many => format!("one of {}", many.join(", ")),
            };
            let why = format!("unknown field `{key}`, expected {expected}");
            return Err(M::Error::custom(why));
        };
        let parameter = &O::PARAMETERS[at];
        let value = table.next_value_seed(Number(parameter.quantity))?;
        if self.values[at].replace(value) != unset(parameter) {
            return Err(M::Error::custom(format!("duplicate field `{key}`")));
        }
        Ok(())
    }

    /// Writes all parameters; absent ones are null.
    fn write<M: SerializeMap>(&self, table: &mut M) -> Result<(), M::Error> {
        for (parameter, value) in O::PARAMETERS.iter().zip(&self.values) {
            let value = value.map(|value| Written(parameter.quantity, value));
            table.serialize_entry(parameter.name, &value)?;
        }
        Ok(())
    }
}

/// The value of a parameter that a plan does not have. A flag is then false.
fn unset<O>(parameter: &Parameter<O>) -> Option<u64> {
    matches!(parameter.quantity, Quantity::Flag).then_some(0)
}

impl Swift {
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

impl Timely {
    /// The error of values that contradict each other.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let all = self.apply(TimelyOptions::paper(1));
        let [low, high] = [all.low_ns, all.high_ns].map(Duration::from_nanos);
        (low > high).then(|| {
            let [low, high] = [low, high].map(humantime::format_duration);
            format!("timely.T_low = {low} is above timely.T_high = {high}")
        })
    }
}

impl Irn {
    /// The error of values that contradict each other.
    pub(crate) fn contradiction(&self, timeout: Option<Duration>) -> Option<String> {
        let high = self.get("RTO_high").map(Duration::from_nanos);
        if timeout.is_some() && high.is_some() {
            return Some("timeout and irn.RTO_high are the same setting: give one of them".into());
        }
        let low = Duration::from_nanos(self.get("RTO_low")?);
        let high = high.or(timeout)?;
        (low > high).then(|| {
            let [low, high] = [low, high].map(humantime::format_duration);
            format!("irn.RTO_low = {low} is above RTO_high = {high}")
        })
    }
}

impl Dcqcn {
    /// The options for a path. The line rate is that of the path.
    pub(crate) fn options(&self, path: &PathProfile) -> DcqcnOptions {
        let base = match self.preset {
            DcqcnPreset::Paper => DcqcnOptions::paper(path.rate_bps),
            DcqcnPreset::Ns3 => DcqcnOptions::ns3(path.rate_bps),
            DcqcnPreset::Ns3Vwin => DcqcnOptions {
                window_bytes: Some(path.round_trip_bytes()),
                ..DcqcnOptions::ns3(path.rate_bps)
            },
        };
        self.values.apply(base)
    }
}

/// A number of millionths, as plans have it.
#[expect(clippy::cast_precision_loss, reason = "the bounds are below 2^53")]
fn in_units(millionths: u64) -> f64 {
    millionths as f64 / 1e6
}

/// Reads the number of a parameter.
struct Number(Quantity);

impl<'de> DeserializeSeed<'de> for Number {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<u64, D::Error> {
        let time = |time: Option<Duration>| time.map_or(0, nanoseconds);
        match self.0 {
            Quantity::Time => maybe_time(from).map(time),
            Quantity::Wait => maybe_wait(from).map(time),
            Quantity::Size => some_size(from).map(Option::unwrap_or_default),
            Quantity::Rate => maybe_rate(from).map(Option::unwrap_or_default),
            Quantity::Count => u32::deserialize(from).map(u64::from),
            Quantity::Flag => bool::deserialize(from).map(u64::from),
            Quantity::Steps { most } => {
                let number = i64::deserialize(from)?;
                let steps = u64::try_from(number).ok();
                let steps = steps.filter(|steps| *steps <= u64::from(most));
                let wrong = || D::Error::custom(format!("a number of steps from 0 to {most}"));
                steps.ok_or_else(wrong)
            }
            Quantity::Weight => {
                let number = f64::deserialize(from)?;
                let shift = (0..=16).find(|shift| number * f64::from(1_u32 << shift) == 1.0);
                let wrong = "a power of two from 2^-16 to 1, such as 0.00390625 (1/256)";
                shift.ok_or_else(|| D::Error::custom(wrong))
            }
            Quantity::Millionths { least, most } => {
                let number = f64::deserialize(from)?;
                if !(in_units(least)..=in_units(most)).contains(&number) {
                    let (least, most) = (in_units(least), in_units(most));
                    return Err(D::Error::custom(format!("a number from {least} to {most}")));
                }
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "within the bounds"
                )]
                let millionths = (number * 1e6).round() as u64;
                Ok(millionths)
            }
        }
    }
}

/// The number of a parameter, to be written as plans have it.
struct Written(Quantity, u64);

impl Serialize for Written {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let value = self.1;
        match self.0 {
            Quantity::Time | Quantity::Wait => {
                to.collect_str(&humantime::format_duration(Duration::from_nanos(value)))
            }
            Quantity::Weight => {
                let shift = u32::try_from(value).unwrap_or(u32::MAX).min(31);
                to.serialize_f64(1.0 / f64::from(1_u32 << shift))
            }
            Quantity::Millionths { .. } => to.serialize_f64(in_units(value)),
            Quantity::Flag => to.serialize_bool(value != 0),
            Quantity::Size | Quantity::Rate | Quantity::Steps { .. } | Quantity::Count => {
                to.serialize_u64(value)
            }
        }
    }
}

impl<'de, O: Parameters> Deserialize<'de> for Values<O> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Table<O>(PhantomData<O>);
        impl<'de, O: Parameters> Visitor<'de> for Table<O> {
            type Value = Values<O>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut table: M) -> Result<Values<O>, M::Error> {
                let mut values = Values::default();
                while let Some(key) = table.next_key::<String>()? {
                    values.read(&key, None, &mut table)?;
                }
                Ok(values)
            }
        }
        from.deserialize_map(Table(PhantomData))
    }
}

impl<O: Parameters> Serialize for Values<O> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut table = to.serialize_map(None)?;
        self.write(&mut table)?;
        table.end()
    }
}

/// The key of [`Dcqcn::preset`].
const PRESET: &str = "preset";

impl<'de> Deserialize<'de> for Dcqcn {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct NameOrTable;
        impl<'de> Visitor<'de> for NameOrTable {
            type Value = Dcqcn;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "\"paper\", \"ns3\", \"ns3-vwin\", or a table such as { preset = \"paper\", K = \"55us\" }",
                )
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Dcqcn, E> {
                let preset = DcqcnPreset::deserialize(name.into_deserializer())?;
                Ok(Dcqcn {
                    preset,
                    ..Dcqcn::default()
                })
            }

            fn visit_map<M: MapAccess<'de>>(self, mut table: M) -> Result<Dcqcn, M::Error> {
                let mut dcqcn = Dcqcn::default();
                while let Some(key) = table.next_key::<String>()? {
                    match key.as_str() {
                        PRESET => dcqcn.preset = table.next_value()?,
                        key => dcqcn.values.read(key, Some(PRESET), &mut table)?,
                    }
                }
                Ok(dcqcn)
            }
        }
        from.deserialize_any(NameOrTable)
    }
}

impl Serialize for Dcqcn {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut table = to.serialize_map(None)?;
        table.serialize_entry(PRESET, &self.preset)?;
        self.values.write(&mut table)?;
        table.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_of_dcqcn_reaches_its_field() {
        let path = PathProfile {
            rate_bps: 1_000_000_000,
            rtt_ns: 80_000,
            mtu_bytes: 1024,
            framing_bytes: 0,
        };
        let text = "preset = \"ns3\"\ng = 0.25\nK = \"1us\"\nT = \"2us\"\nB = \"3kB\"\nF = 4\n\
                    R_AI = \"5Mbit\"\nR_HAI = \"6Mbit\"\nN = \"7us\"\nmin_rate = \"8Mbit\"\n\
                    ns3_timing = true\nvar_win = \"9kB\"";
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
            window_bytes: Some(9_000),
            ..DcqcnOptions::ns3(1_000_000_000)
        };
        assert_eq!(own.options(&path), want);
        let vwin = Dcqcn {
            preset: DcqcnPreset::Ns3Vwin,
            ..Dcqcn::default()
        };
        let want = DcqcnOptions {
            window_bytes: Some(10_000),
            ..DcqcnOptions::ns3(1_000_000_000)
        };
        assert_eq!(vwin.options(&path), want);
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
    fn every_parameter_of_dctcp_timely_and_hpcc_reaches_its_field() {
        let own: Dctcp = toml::from_str("g = 0.5\nfirst_window = \"9kB\"").unwrap();
        let base = DctcpOptions::new(1_000_000_000, 1_000, 80_000);
        let want = DctcpOptions {
            g_shift: 1,
            first_window_bytes: 9_000,
            ..base
        };
        assert_eq!(own.apply(base), want);
        let text = "segment = \"1kB\"\nalpha = 0.1\nbeta = 0.2\ndelta = \"3Mbit\"\nT_low = \"4us\"\n\
                    T_high = \"5us\"\nmin_rtt = \"6us\"\nN = 7\nmin_rate = \"8Mbit\"";
        let own: Timely = toml::from_str(text).unwrap();
        let base = TimelyOptions::paper(1_000_000_000);
        let want = TimelyOptions {
            line_rate_bps: 1_000_000_000,
            min_rate_bps: 8_000_000,
            segment_bytes: 1_000,
            alpha_millionths: 100_000,
            beta_millionths: 200_000,
            delta_bps: 3_000_000,
            low_ns: 4_000,
            high_ns: 5_000,
            min_rtt_ns: 6_000,
            hai: 7,
        };
        assert_eq!((own.apply(base), own.contradiction()), (want, None));
        let wrong: Timely = toml::from_str("T_low = \"1ms\"").unwrap();
        let why = "timely.T_low = 1ms is above timely.T_high = 500us";
        assert_eq!(wrong.contradiction().as_deref(), Some(why));
        let text = "T = \"1us\"\neta = 0.9\nmax_stage = 3\nW_AI = \"80B\"";
        let own: Hpcc = toml::from_str(text).unwrap();
        let want = HpccOptions {
            line_rate_bps: 1_000_000_000,
            base_rtt_ns: 1_000,
            eta_millionths: 900_000,
            max_stage: 3,
            additive_bytes: 80,
        };
        assert_eq!(own.apply(HpccOptions::paper(1_000_000_000, 9_000)), want);
    }

    #[test]
    fn settings_are_written_as_they_are_read() {
        let text = "g = 0.25\nK = \"1us\"\nF = 4";
        let own: Dcqcn = toml::from_str(text).unwrap();
        let written = toml::to_string(&own).unwrap();
        assert_eq!(toml::from_str::<Dcqcn>(&written), Ok(own), "{written}");
    }
}
