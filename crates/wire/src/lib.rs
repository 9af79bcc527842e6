//! RoCEv2 packets and Farwrite control messages, built and parsed in place.
//!
//! Nothing here keeps state between packets (except [`control::ReplayWindow`] and
//! [`sealing::CounterWindow`]) or knows the purpose of a message. The crate converts bytes to checked views
//! and plain structs, and back. Sections of the specification (`docs/protocol.md`) are cited as
//! `P<number>`, and clauses of the InfiniBand Architecture Specification, volume 1, as `IBTA <number>`.
//!
//! Feature `std`: the CRC selects the fastest instructions of the machine at run time. Without it,
//! the CRC uses only instructions of the compilation target, which is several times slower.
#![no_std]

extern crate alloc;

pub mod control;
pub mod header;
pub mod icrc;
pub mod opcode;
pub mod packet;
pub mod request;
pub mod sealing;
mod secret;
pub mod timing;

pub use secret::Secret;
