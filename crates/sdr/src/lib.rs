//! Partial message completion: messages, chunk bitmaps, generations, channels (sans-IO).
//!
//! This is the middleware of section 3 of the SDR-RDMA paper, as a state machine without I/O, clock
//! or randomness. It comes in two parts:
//!
//! - [`SdrQp`], the control state, has one owner. It holds posted receives, started sends, offers,
//!   clearances and ends, and the control messages about them.
//! - [`SlotTable`] is shared with the workers that process packets. It leads them to the memory of
//!   each open message: a packet bitmap, coalesced into a chunk bitmap, in atomic words.
//!
//! [`Received`] shows the owner what has arrived. A [`ChunkBitmap`] shows it to any reader.
//!
//! [`Geometry`] has the arithmetic that both ends share. Sections of the specification
//! (`docs/protocol.md`) are cited as `P<number>`.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bitmap;
mod bits;
mod clearances;
mod config;
mod ended_receives;
mod error;
mod event;
mod fields;
mod geometry;
mod info;
mod memory;
mod message_send;
mod offer;
mod qp;
mod reads;
mod received;
mod recv_half;
mod release;
mod send_half;
mod sparse;
mod sync;
mod table;
mod timers;
mod writes;

pub use bitmap::ChunkBitmap;
pub use config::{
    ConfigError, ImmediateSplit, MAX_CHANNELS, MAX_GENERATIONS, MAX_MTU, MAX_PACKETS_PER_CHUNK,
    MAX_SLOTS, MIN_GENERATIONS, MIN_MTU, QpConfig,
};
pub use error::{Awaited, ConnectError, SdrError, Violation};
pub use event::{Event, Offered, Refusal};
pub use farwrite_wire::control::{MessageId, Place, ReadRefusal, Terms, Withdrawal};
pub use farwrite_wire::timing::{Timing, TimingError};
pub use fields::{EndpointId, FieldError};
pub use geometry::{Geometry, ImmediateParts};
pub use info::{Counted, InfoError, QpInfo, VERSION};
pub use message_send::SendSpec;
pub use qp::SdrQp;
pub use reads::ReadSpec;
pub use received::Received;
pub use recv_half::RecvPlace;
pub use table::{Arrival, SlotTable};
pub use writes::{PacketWrite, PacketWrites};
