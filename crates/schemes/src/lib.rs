//! How loss is repaired: schemes, and the round-trip and rate arithmetic that they stand on.
//!
//! A [`scheme`] is two state machines, one at each end, that see chunks and never packets. The
//! endpoint feeds them and does what they answer; they hold no clock, no socket, no randomness.
#![no_std]

extern crate alloc;

pub mod scheme;
