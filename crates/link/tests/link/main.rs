//! Tests of links: when datagrams arrive, and what happens to them.

mod bursts;
mod common;
mod faults;
mod policing;
mod queue;
mod steps;
mod timing;
mod traced;
mod varying;
