//! Flows that share a bottleneck, in virtual time, and their measurements.
//!
//! Used by the tests of controllers on paths, and by the examples `rate_*` of crate `bench`, which print
//! whole tables.
#![allow(dead_code, reason = "each of them uses some of it")]
// Times, bytes and round trips of a simulation are far below 2^52.
#![allow(clippy::cast_possible_truncation)]

pub(crate) mod bbr;
pub(crate) mod case;
pub(crate) mod flow;
pub(crate) mod grids;
pub(crate) mod host;
pub(crate) mod loss_based;
pub(crate) mod measure;
pub(crate) mod network;
pub(crate) mod rack;
pub(crate) mod traces;
pub(crate) mod varied;
