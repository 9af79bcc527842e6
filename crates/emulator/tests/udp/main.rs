//! The link emulator, between plain UDP sockets that speak RoCEv2.
#![cfg(target_os = "linux")]

mod end;
mod path;
mod refusals;
mod relaying;
