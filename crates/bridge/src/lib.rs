//! A box in the path on real packets: a program that carries Ethernet frames between two network
//! interfaces.
//!
//! [`Bridge`] gives the frames of two interfaces to a box of [`farwrite_boxes`], and sends what the
//! box gives. Addresses and bytes stay as they are, so NICs do not notice it. One thread does all:
//! the two directions of a box share what it knows.
//!
//! **Interfaces** are packet sockets (packet(7)) that see all frames that come in. Frames to the
//! interface's own address, and to group addresses that bridges do not forward, such as pause
//! frames, end here.
//!
//! **Offloads.** Kernels pass trains of packets, and packets whose checksum is not complete. Those
//! of RoCEv2 are cut and completed, because a box looks at packets. All others go around the box
//! with the kernel's own description, and the kernel of the other interface finishes them. Frames
//! leave in the order in which they came, unless the box holds some back.
//!
//! **Queues.** When frames wait before the far interface, [`Backpressure`](farwrite_boxes::Backpressure)
//! slows the senders of the near side. When more than 4 MiB wait, the bridge reads no more from the
//! other interface, and the kernel drops what comes, as a switch does.

mod bridge;
mod forward;
mod interface;
mod queue;
mod sort;
mod sys;
mod throttle;

pub use bridge::{Bridge, BridgeConfig, Report, SideReport};
pub use forward::Forward;
pub use interface::{Incoming, Interface, Received};

/// Why a bridge cannot work, or works no longer.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// There is no interface of this name in the process's network namespace.
    #[error("there is no network interface {0:?} here; `ip link` lists them")]
    NoInterface(String),
    /// An interface refuses to work.
    #[error("{what} interface {interface}: {source}")]
    Interface {
        /// What was tried.
        what: &'static str,
        /// Its name.
        interface: String,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// Both interfaces are the same.
    #[error("{0} is named for both sides; a bridge joins two interfaces")]
    SameInterface(String),
    /// The system refuses something else.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The kernel's reason.
        source: std::io::Error,
    },
}
