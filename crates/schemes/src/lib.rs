//! How loss is repaired: schemes, and the round-trip and rate arithmetic that they use.
//!
//! A [`scheme`] is two state machines, one at each end, that see chunks and never packets. The
//! endpoint passes events to them and does what they return. They hold no clock, no socket and no
//! randomness. Section P5 of `docs/protocol.md` specifies what they send each other, and when.
//!
//! - [`selective_repeat`] sends again what is missing, [`go_back_n`] everything from the first
//!   missing chunk on, [`erasure`] sends parity ahead; [`best_effort`] ends in time, whole or not;
//!   [`registry`] finds them by name and by tag.
//! - [`order`] is the order in which a scheme first sends chunks.
//! - [`rtt`] and [`lateness`] belong to the endpoint, which hands their results to every scheme.
//! - [`loss_meter`] measures path loss from the bitmaps, for every scheme.
//! - [`chunk_set`], [`arrived`], [`ack_clock`], [`silent_peer`] and [`timing`] are the parts that the
//!   schemes here share. Schemes written elsewhere may use them too.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod ack_clock;
pub mod arrived;
pub mod best_effort;
pub mod chunk_loss;
pub mod chunk_set;
pub mod erasure;
pub mod go_back_n;
pub mod lateness;
pub mod loss_meter;
mod marks;
pub mod order;
pub mod registry;
pub mod rtt;
pub mod scheme;
pub mod selective_repeat;
pub mod silent_peer;
pub mod timing;
