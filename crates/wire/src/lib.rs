//! RoCEv2 packets and Farwrite control messages, built and parsed in place.
//!
//! Nothing here allocates per packet, keeps state, or knows what a message is for: the crate
//! turns bytes into checked views and plain structs, and back. Sections of the specification
//! (`docs/protocol.md`) are cited as `P<number>`.
#![no_std]

extern crate alloc;

pub mod control;
