//! The link emulator, between plain UDP sockets that speak RoCEv2.
#![cfg(target_os = "linux")]

mod effects;
mod end;
mod refusals;
mod relaying;
