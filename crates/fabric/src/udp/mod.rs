//! RoCEv2 through ordinary UDP sockets (Linux).

mod config;
mod control;
mod datagram;
mod error;
mod name;
mod options;
mod path;
mod socket;
mod sys;

pub use config::{Granted, SocketConfig, reaches};
pub use datagram::{MAX_BATCH_BYTES, MAX_SEGMENTS, Outgoing, Received};
pub use error::SocketError;
pub use path::{path_mtu, source_for};
pub use socket::{UdpSocket, wait_any};
