//! Flows that share a bottleneck, in virtual time, and their measurements.
//!
//! Used by `tests/grid.rs`, by the example `grid`, which prints the whole table, and by
//! `tests/datacenter.rs`.
#![allow(dead_code, reason = "each of them uses some of it")]
// Times, bytes and round trips of a simulation are far below 2^52.
#![allow(clippy::cast_possible_truncation)]

pub(crate) mod bbr;
pub(crate) mod case;
pub(crate) mod flow;
pub(crate) mod loss_based;
pub(crate) mod measure;
pub(crate) mod network;
