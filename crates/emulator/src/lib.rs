//! Emulates a long path in real time: carries packets through the link model of `farwrite-link`.
//!
//! - [`tun`] carries the packets of any program between two TUN devices: `farwrite link`.
//! - [`udp`] relays UDP between two ends on the loopback interface, without privileges: `farwrite
//!   demo`, and tests.
//!
//! An emulator runs in real time, so its threads may fall behind. [`Lateness`] measures by how much.
#![cfg(target_os = "linux")]

mod lateness;
mod task;
mod timed_link;
pub mod tun;
pub mod udp;
mod wake;

pub use lateness::Lateness;
pub use task::Task;
