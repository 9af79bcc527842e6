//! Moves trees of files between two machines: what `farwrite send` and `farwrite recv` do once they
//! have a connection to the peer (P8, P12).
//!
//! The files are one stream of bytes. It is cut into segments, and each segment is a message of one
//! queue pair. The channel, a stream of the connection, carries the manifest, the hashes and the
//! verdicts. Signs of life and the reason of an end that gives up are notices of the connection, which
//! the channel does not delay. Each end has four threads, so that no slow part delays another:
//!
//! ```text
//!   sender                                              receiver
//!   disk:      files -> buffers                         disk:      segments -> files, verdicts
//!   endpoint:  buffers -> messages     == UDP ==>       endpoint:  messages -> segments, in order
//!   writer:    hashes, signs of life   == stream ==>    reader:    hashes
//!   reader:    verdicts                <== stream ==    writer:    verdicts, signs of life
//! ```
//!
//! The endpoint's thread never waits for a disk, the channel or a terminal. An end that gives up
//! first ensures that no more files get their final names. Then it informs the peer. It does not
//! wait for threads that are stuck in the operating system.

mod admission;
mod bottleneck;
mod channel;
mod channel_writer;
mod choices;
mod client;
mod connect;
mod cutover;
mod device;
mod dry_run;
pub mod error;
mod hooks;
mod liveness;
mod loss;
mod memory_pool;
mod notices;
mod places;
mod progress_counts;
mod progress_meter;
mod receiver;
mod report;
mod results;
mod route;
mod sender;
mod setup;
mod shape;
mod stream_qp;
mod threads;
mod waking;

#[cfg(test)]
mod tests;

pub use admission::{Admission, Refused};
pub use channel::{Channel, ChannelError, Incoming, framed};
pub use choices::Choices;
pub use client::Client;
pub use connect::{
    RECEIVER, Waiting, connect, connect_first, connection_options, keys_of, with_connector,
};
pub use device::{check_device, open_device, open_for_device};
pub use dry_run::{DryRun, Removal, answer_dry_run, dry_run};
pub use error::{Error, ErrorKind};
pub use farwrite::routes::{RouteShrunk, payload_bytes};
pub use farwrite::{
    DcqcnOptions, EqdsOptions, RateControl, RateControlName, Sealing, Start, SwiftOptions,
};
pub use farwrite_choice::{SchemeSetting, parity_bytes};
pub use farwrite_verbs::VerbsConfig;
pub use hooks::{
    Cancel, EndedFile, EndpointCounters, Event, FileState, MaxRate, Observer, ProgressNumbers,
    Redirect, TransferHooks, WhenBlocked, unchanged,
};
pub use loss::PathLoss;
pub use memory_pool::{MemoryPool, MemoryShare};
pub use places::{Place, PlaceLimits, Places};
pub use receiver::{ReceiveSettings, receive};
pub use report::{Delivered, Role, TransferReport, Unfinished};
pub use results::FailedFile;
pub use sender::{SendSettings, send};
pub use setup::SETUP;
pub use shape::MIN_TRANSFER_MTU;

/// The default UDP port of a receiver: one above the port of RoCEv2, which Soft-RoCE
/// uses where it is loaded.
pub const DEFAULT_PORT: u16 = 4792;
