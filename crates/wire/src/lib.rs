//! RoCEv2 packets and Farwrite control messages, built and parsed in place.
//!
//! Nothing here keeps state between packets (but for [`control::ReplayWindow`]), or knows what a
//! message is for: the crate turns bytes into checked views and plain structs, and back. Sections of
//! the specification (`docs/protocol.md`) are cited as `P<number>`; clauses of the InfiniBand
//! Architecture Specification, volume 1, as `IBTA <number>`.
//!
//! Feature `std`: the CRC picks the fastest instructions of the machine at run time. Without it only
//! those are used that the compiler was told of, which is several times slower.
#![no_std]

extern crate alloc;

pub mod control;
pub mod header;
pub mod icrc;
pub mod opcode;
pub mod packet;
pub mod request;
pub mod timing;
