//! Moving files between two machines: what `farwrite send` and `farwrite recv` do once they know whom
//! to talk to (P7, P8).
//!
//! The files are one stream of bytes, cut into segments, each of which is a message of one queue pair.
//! Beside the queue pair stays the session's channel, which carries manifest, hashes and verdicts.
//! At both ends one thread does nothing but poll the endpoint; a second one has the disk, a third
//! listens to the channel.
//!
//! ```text
//!   sender                                              receiver
//!   source thread: files -> buffers                     disk thread: segments -> files, verdicts
//!   main thread:   buffers -> messages  == UDP ==>      main thread: messages -> segments, in order
//!   listener:      verdicts             <== TCP ==>     listener:    hashes
//! ```

mod failure;
pub(crate) mod key;
mod meter;
mod receiver;
mod report;
mod sender;
mod shape;
mod talk;
mod watch;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::time::Duration;

use farwrite::QpInfo;

pub(crate) use failure::sort;
pub(crate) use receiver::{Limits, receive};
pub(crate) use report::Report;
pub(crate) use sender::{Wishes, send};

use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;

/// Port for TCP and UDP that `recv` listens on unless told otherwise: the one after RoCEv2's own,
/// which Soft-RoCE takes where it is loaded.
pub(crate) const DEFAULT_PORT: u16 = 4792;
/// For connecting and shaking hands, and for each step of the setup.
pub(crate) const SETUP: Duration = Duration::from_secs(10);
/// Longest sleep of an endpoint's thread without a look at what the other threads have for it.
const MAX_WAIT: Duration = Duration::from_millis(2);
/// Between two looks at everything that is not urgent.
const HOUSEKEEPING: Duration = Duration::from_millis(10);

/// What a transfer has around itself.
pub(crate) struct Around<'a> {
    /// Where to send to, given what the peer says of itself; see [`direct`].
    pub(crate) route: &'a dyn Fn(QpInfo) -> Result<QpInfo, Failure>,
    /// Whether the user wants to end.
    pub(crate) interrupt: &'a Interrupt,
    /// Where to show how it goes.
    pub(crate) console: &'a Console,
}

/// The way that the channel goes: the peer's packets come from the address that its channel comes
/// from.
///
/// # Errors
/// Where that is not what the peer knows as its own: then something between the ends rewrites
/// addresses, and its packets' ICRC will not be right here (P2.5).
pub(crate) fn direct(peer: SocketAddr) -> impl Fn(QpInfo) -> Result<QpInfo, Failure> {
    move |mut info| {
        for addr in info.channels.iter_mut().chain([&mut info.control]) {
            if addr.ip() != peer.ip() {
                return Err(Failure::new(
                    Exit::Mismatch,
                    format!(
                        "the peer is {} for itself and {} seen from here: address translation between \
                         the ends is not supported; run them where they see each other's own addresses",
                        addr.ip(),
                        peer.ip()
                    ),
                ));
            }
            // The peer's address as it is known here: with the scope of a link-local one.
            let port = addr.port();
            *addr = peer;
            addr.set_port(port);
        }
        Ok(info)
    }
}
