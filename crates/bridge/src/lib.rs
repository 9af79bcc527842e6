//! Runs a box in the path on real packets: forwards Ethernet frames between two network interfaces.
//!
//! [`Bridge`] passes the frames of two interfaces to a box of [`farwrite_boxes`], and sends the
//! frames that the box returns. Addresses and contents stay unchanged, so the bridge is transparent
//! to NICs. One thread does all the work, because the two directions of a box share its state. It has
//! real-time priority if the process may give it, because a frame that waits for a core is late at the
//! other end. No other thread has. The thread has no privileges: the process gives up its own when the
//! interfaces are open.
//!
//! **Interfaces** are packet sockets (packet(7)) that receive all frames. The bridge does not
//! forward frames to the interface's own address, and frames to group addresses that bridges must
//! not forward, for instance pause frames.
//!
//! **Offloads.** Kernels deliver trains of packets, and packets with incomplete checksums. The
//! bridge splits and completes RoCEv2 packets, because a box works on single packets. All other
//! unfinished frames bypass the box together with the kernel's description, and the kernel finishes
//! them at the other interface. Frames leave in the order of arrival, unless the box holds some
//! back.
//!
//! **Queues.** When frames queue up at the far interface,
//! [`Backpressure`](farwrite_boxes::Backpressure) slows the senders of the near side. If more than
//! 4 MiB are queued at an interface all the same, repairs are dropped first. When data alone fills
//! the queue, the bridge stops reading from the other interface, and the kernel drops arriving
//! frames, like a switch with full buffers. A full queue in the kernel loses no frame: the bridge
//! sends the frame again when there is room.

mod bridge;
mod forward;
mod interface;
mod privileges;
mod queue;
mod sort;
mod sys;
mod throttle;

pub use bridge::{Bridge, BridgeConfig, BridgeReport, SideReport};
pub use forward::Forward;
pub use interface::{Incoming, Interface, Received};
pub use privileges::gain_no_privileges;

/// Why a bridge could not start, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// There is no interface of this name in the process's network namespace.
    #[error("there is no network interface {0:?} here; `ip link` lists them")]
    NoInterface(String),
    /// The interface carries no Ethernet frames.
    #[error("{0} carries no Ethernet frames, so a bridge cannot join it to another interface")]
    NotEthernet(String),
    /// The far interface does not take packets as long as the box may send.
    #[error(
        "a packet of {asked_bytes} bytes does not fit through {interface}, whose MTU is {mtu_bytes}"
    )]
    TooLong {
        /// The longest packet that the box may send.
        asked_bytes: usize,
        /// The interface.
        interface: String,
        /// The longest packet that the interface takes.
        mtu_bytes: usize,
    },
    /// An operation on an interface failed.
    #[error("{what} interface {interface}: {source}")]
    Interface {
        /// The operation that failed.
        what: InterfaceTask,
        /// Its name.
        interface: String,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// Both interfaces are the same.
    #[error("{0} is named for both sides; a bridge joins two interfaces")]
    SameInterface(String),
    /// Another operation failed.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: BridgeTask,
        /// The kernel's reason.
        source: std::io::Error,
    },
}

/// What a bridge does with a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InterfaceTask {
    /// It opens a packet socket, which needs the capability `CAP_NET_RAW`.
    #[error("opening a packet socket, which needs root or CAP_NET_RAW, on")]
    Open,
    /// It sets the options of the socket.
    #[error("setting up")]
    SetUp,
    /// It asks for frames to all addresses.
    #[error("listening to all of")]
    Promiscuous,
    /// It binds the socket.
    #[error("binding to")]
    Bind,
    /// It checks that the interface still exists.
    #[error("using")]
    Use,
    /// It receives frames.
    #[error("receiving from")]
    Receive,
    /// It sends frames.
    #[error("sending to")]
    Send,
}

/// What a bridge asks of the operating system, besides its interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeTask {
    /// To make the eventfd that stops its thread.
    #[error("making an eventfd")]
    Eventfd,
    /// To start its thread.
    #[error("starting a thread")]
    Thread,
    /// To give up privileges.
    #[error("giving up privileges")]
    Privileges,
    /// To wait until frames arrive.
    #[error("waiting for frames")]
    Wait,
}
