//! The parameters of controllers by the names of their papers, for files that set some of them.

use crate::{DcqcnOptions, EqdsOptions, SwiftOptions};

/// A parameter of the options `O`.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<O> {
    /// The name in the paper.
    pub name: &'static str,
    /// What its number counts.
    pub quantity: Quantity,
    /// Sets it.
    pub set: fn(&mut O, u64),
}

/// What the number of a parameter counts, and which numbers are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Nanoseconds, possibly 0.
    Time,
    /// Nanoseconds, above 0.
    Wait,
    /// Bytes, above 0.
    Size,
    /// Bits a second.
    Rate,
    /// Millionths.
    Millionths {
        /// Lowest value.
        least: u64,
        /// Highest value.
        most: u64,
    },
    /// The number n of a weight 2^-n, up to 16.
    Weight,
    /// A number of steps.
    Steps {
        /// Highest value.
        most: u32,
    },
    /// A 32-bit number.
    Count,
    /// 0 or 1.
    Flag,
}

/// Options with parameters that have names.
pub trait Parameters: Sized + 'static {
    /// The parameters.
    const PARAMETERS: &'static [Parameter<Self>];
}

impl<O> Parameter<O> {
    /// A parameter.
    pub const fn new(name: &'static str, quantity: Quantity, set: fn(&mut O, u64)) -> Self {
        Self {
            name,
            quantity,
            set,
        }
    }
}

/// A number of at most 32 bits.
fn short(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

impl Parameters for DcqcnOptions {
    const PARAMETERS: &'static [Parameter<Self>] = &[
        Parameter::new("g", Quantity::Weight, |to, value| to.g_shift = short(value)),
        // The period of alpha.
        Parameter::new("K", Quantity::Wait, |to, value| to.alpha_timer_ns = value),
        Parameter::new("T", Quantity::Wait, |to, value| {
            to.increase_timer_ns = value;
        }),
        Parameter::new("B", Quantity::Size, |to, value| {
            to.byte_counter_bytes = Some(value);
        }),
        Parameter::new("F", Quantity::Steps { most: 1_000 }, |to, value| {
            to.fast_recovery_steps = short(value);
        }),
        Parameter::new("R_AI", Quantity::Rate, |to, value| {
            to.additive_increase_bps = value;
        }),
        Parameter::new("R_HAI", Quantity::Rate, |to, value| {
            to.hyper_increase_bps = value;
        }),
        Parameter::new("N", Quantity::Time, |to, value| {
            to.notification_interval_ns = value;
        }),
        Parameter::new("min_rate", Quantity::Rate, |to, value| {
            to.min_rate_bps = value;
        }),
        // `VAR_WIN` of the RDMA trees of ns-3.
        Parameter::new("var_win", Quantity::Size, |to, value| {
            to.window_bytes = Some(value);
        }),
        // Changes of the rate apply when they do in the RDMA trees of ns-3.
        Parameter::new("ns3_timing", Quantity::Flag, |to, value| {
            to.cuts_at_interval_ends = value != 0;
            to.paces_by_departures = value != 0;
        }),
    ];
}

impl Parameters for SwiftOptions {
    const PARAMETERS: &'static [Parameter<Self>] = &[
        Parameter::new("base_target", Quantity::Wait, |to, value| {
            to.base_target_ns = value;
        }),
        Parameter::new("endpoint_target", Quantity::Wait, |to, value| {
            to.endpoint_target_ns = value;
        }),
        Parameter::new("fs_range", Quantity::Time, |to, value| {
            to.fs_range_ns = value;
        }),
        Parameter::new(
            "fs_min_cwnd",
            millionths(1_000, 1_000_000_000),
            |to, value| {
                to.fs_min_cwnd_millionths = value;
            },
        ),
        Parameter::new(
            "fs_max_cwnd",
            millionths(1_000, 1_000_000_000_000),
            |to, value| {
                to.fs_max_cwnd_millionths = value;
            },
        ),
        Parameter::new("ai", millionths(1, 1_000_000_000_000), |to, value| {
            to.ai_millionths = value;
        }),
        Parameter::new("beta", millionths(0, 1_000_000), |to, value| {
            to.beta_millionths = value;
        }),
        Parameter::new("max_mdf", millionths(0, 999_999), |to, value| {
            to.max_mdf_millionths = value;
        }),
        Parameter::new("min_cwnd", millionths(1, 1_000_000), |to, value| {
            to.min_cwnd_millionths = value;
        }),
        Parameter::new(
            "max_cwnd",
            millionths(1_000_000, 1_000_000_000_000),
            |to, value| {
                to.max_cwnd_millionths = value;
            },
        ),
        Parameter::new("retx_reset_threshold", Quantity::Count, |to, value| {
            to.retx_reset_threshold = short(value);
        }),
    ];
}

const fn millionths(least: u64, most: u64) -> Quantity {
    Quantity::Millionths { least, most }
}

impl Parameters for EqdsOptions {
    const PARAMETERS: &'static [Parameter<Self>] = &[Parameter::new(
        "first_window",
        Quantity::Size,
        |to, value| {
            to.first_window_bytes = value;
        },
    )];
}
