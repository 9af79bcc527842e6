//! Tests of the public interface, as one program: it links once.

mod channel;
#[path = "../common/mod.rs"]
mod common;
mod connect;
mod handshake;
mod listener;
