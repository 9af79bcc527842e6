//! Tests of links: when datagrams arrive, and what happens to them.

mod bursts;
mod common;
mod faults;
mod queue;
mod steps;
mod timing;
