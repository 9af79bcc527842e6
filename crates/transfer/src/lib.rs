//! Moves trees of files between two machines: what `farwrite send` and `farwrite recv` do once they
//! have a channel to the peer (P7, P8).
//!
//! The files are one stream of bytes. It is cut into segments, each of which is a message of one
//! queue pair. The session's channel stays open beside the queue pair and carries the manifest, the
//! hashes and the verdicts. Each end has four threads, so that no slow part holds up another:
//!
//! ```text
//!   sender                                              receiver
//!   disk:      files -> buffers                         disk:      segments -> files, verdicts
//!   endpoint:  buffers -> messages     == UDP ==>       endpoint:  messages -> segments, in order
//!   speaker:   hashes, signs of life   == TCP ==>       listener:  hashes
//!   listener:  verdicts                <== TCP ==       speaker:   verdicts, signs of life
//! ```
//!
//! The endpoint's thread never waits for a disk, the channel or a terminal. An end that gives up
//! first makes sure that no file gets its final name any more, then informs the peer, and leaves
//! threads that are stuck in the operating system to themselves.

mod choice;
mod connect;
mod door;
pub mod error;
mod host;
mod lane;
mod loss;
mod meter;
mod parity;
mod paths;
mod pulse;
mod receiver;
mod report;
mod resume;
mod sender;
mod setup;
mod shape;
mod speaker;
mod visitor;
mod watch;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use choice::SchemeChoice;
pub use connect::connect;
pub use door::Door;
pub use error::{Error, ErrorKind};
pub use farwrite::{RateControl, Start};
pub use host::{Cancel, EndpointCounters, Event, Host, Observer, Route, unchanged};
pub use loss::PathLoss;
pub use parity::parity_bytes;
pub use receiver::{ReceiveSettings, receive};
pub use report::{FailedFile, Report, Role};
pub use sender::{Choices, SendSettings, send};
pub use setup::SETUP;
pub use visitor::Visitor;

/// Port for TCP and UDP that a receiver listens on unless it is given another: the one after
/// RoCEv2's own, which Soft-RoCE takes where it is loaded.
pub const DEFAULT_PORT: u16 = 4792;
/// Longest sleep of an endpoint's thread without a look at what the other threads have for it.
const MAX_WAIT: Duration = Duration::from_millis(2);
/// Between two looks at everything that is not urgent.
const HOUSEKEEPING: Duration = Duration::from_millis(10);
/// For the disk's thread to end after a failure, remove what has no final name, and be waited for.
/// One that takes longer is stuck in the operating system and is left to itself.
const DISK_END: Duration = Duration::from_secs(2);
