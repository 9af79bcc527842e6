//! The options of a group, from the values that `farwrite.torch` passes.

use std::time::Duration;

use farwrite::{DcqcnOptions, EqdsOptions, RateControl, RateControlName, SchemeName, SwiftOptions};
use farwrite_collectives::{Algorithm, BoundedOptions, Delivery, GroupOptions, Hadamard};
use farwrite_deadline::{Bounds, Policy};
use pyo3::prelude::*;

use crate::communicator::{seconds, value_error};

/// The options of all operations.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Settings {
    timeout_s: f64,
    dead_after_s: f64,
    scheme: String,
    expected_loss: Option<f64>,
    sites: Vec<u32>,
    buffer_growth_bytes: u64,
    rate_control: Rate,
    bounded: Option<Bounded>,
}

/// The options of bounded operations.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Bounded {
    scheme: String,
    timeouts: String,
    loss_target_ppm: u32,
    timeout_range_s: (f64, f64),
    /// The block and the stride of the Hadamard transform.
    hadamard: Option<(u32, u32)>,
    has_bounded_parts: bool,
    algorithm: String,
}

/// The rate control: how fast packets are sent.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Rate {
    name: String,
    /// The rate, the highest rate, or the rate of the port, in bits per second. Only `adaptive` does not
    /// need it.
    rate_bps: Option<u64>,
    hops: u32,
    first_window_bytes: u64,
}

impl Settings {
    /// Returns the options of `group`, in which these options replace their values.
    pub(crate) fn options(&self, rank: usize, group: GroupOptions) -> PyResult<GroupOptions> {
        let mut options = GroupOptions {
            timeout: seconds("timeout_s", self.timeout_s)?,
            dead_after: seconds("dead_after_s", self.dead_after_s)?,
            sites: self.sites.clone(),
            expected_loss: self.expected_loss,
            ..group
        };
        options.buffer_growth_bytes = self.buffer_growth_bytes;
        options.scheme = parse(rank, "exact", &self.scheme)?;
        options.rate_control = self.rate_control.parse(rank, options.packet_bytes)?;
        if let Some(bounded) = &self.bounded {
            options.bounded = bounded.options(rank)?;
        }
        Ok(options)
    }
}

impl Bounded {
    fn options(&self, rank: usize) -> PyResult<BoundedOptions> {
        let mut options = BoundedOptions {
            scheme: parse::<SchemeName>(rank, "bounded", &self.scheme)?,
            algorithm: algorithm(&self.algorithm)?,
            hadamard: self
                .hadamard
                .map(|(block, stride)| Hadamard { block, stride }),
            ..BoundedOptions::default()
        };
        if self.has_bounded_parts {
            options.parts = Delivery::Bounded;
        }
        match (self.timeouts.as_str(), &mut options.policy) {
            ("optinic", policy) => *policy = Policy::OptiNic,
            ("celeris", policy) => *policy = Policy::Celeris,
            ("loss-target", Policy::LossTarget { target_ppm, .. }) => {
                *target_ppm = self.loss_target_ppm;
            }
            (name, _) => return Err(value_error(format!("rank {rank}: timeouts = {name:?}"))),
        }
        let (min_s, max_s) = self.timeout_range_s;
        options.bounds = Bounds {
            min_ns: nanoseconds(min_s)?,
            max_ns: nanoseconds(max_s)?,
        };
        Ok(options)
    }
}

impl Rate {
    fn parse(&self, rank: usize, packet_bytes: u32) -> PyResult<RateControl> {
        let wrong = || {
            let (name, rate) = (&self.name, self.rate_bps);
            value_error(format!(
                "rank {rank}: rate_control = {name:?}, {rate:?} bit/s"
            ))
        };
        let name = self.name.parse::<RateControlName>();
        let name = name.map_err(|why| value_error(format!("rank {rank}: {why}")))?;
        match (name, self.rate_bps) {
            (RateControlName::Adaptive, max_bps) => Ok(RateControl::Adaptive {
                max_bps,
                start: None,
            }),
            (_, None) => Err(wrong()),
            (RateControlName::Fixed, Some(rate_bps)) => Ok(RateControl::Fixed { rate_bps }),
            (RateControlName::Dcqcn, Some(rate_bps)) => {
                Ok(RateControl::Dcqcn(DcqcnOptions::paper(rate_bps)))
            }
            (RateControlName::Swift, Some(rate_bps)) => {
                let options = SwiftOptions::new(rate_bps, packet_bytes.into(), self.hops);
                Ok(RateControl::Swift(options))
            }
            (RateControlName::Eqds, Some(line_rate_bps)) => Ok(RateControl::Eqds(EqdsOptions {
                line_rate_bps,
                first_window_bytes: self.first_window_bytes,
            })),
        }
    }
}

fn parse<T>(rank: usize, operations: &str, scheme: &str) -> PyResult<T>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    scheme.parse().map_err(|error| {
        value_error(format!(
            "rank {rank}: scheme of {operations} operations = {scheme:?}: {error}"
        ))
    })
}

/// Parses the name of the algorithm of bounded all-reduces.
pub(crate) fn algorithm(name: &str) -> PyResult<Algorithm> {
    let mut all = Algorithm::ALL.into_iter();
    let found = all.find(|algorithm| algorithm.to_string() == name);
    found.ok_or_else(|| value_error(format!("algorithm = {name:?}: unknown")))
}

fn nanoseconds(value: f64) -> PyResult<u64> {
    let range: Duration = seconds("timeout_range_s", value)?;
    Ok(u64::try_from(range.as_nanos()).unwrap_or(u64::MAX))
}
