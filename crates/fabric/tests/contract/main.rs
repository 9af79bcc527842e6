//! The contract of `farwrite_fabric::contract`, tested on every fabric.

mod sim;
mod software;
mod suite;
#[cfg(target_os = "linux")]
mod udp;
