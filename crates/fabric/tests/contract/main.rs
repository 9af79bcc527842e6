//! The contract of `farwrite_fabric::contract`, on every fabric that there is.

mod sim;
mod suite;
#[cfg(target_os = "linux")]
mod udp;
