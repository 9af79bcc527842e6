//! The changes that the control object makes to the queue and the worker of a port.

use std::net::SocketAddr;
use std::sync::Arc;

use farwrite_wire::icrc::Flow;

use super::sealing::OneWay;
use super::windows::Slots;
use crate::contract::{Qpn, WindowSet};

/// A change that the control object makes to the queue pairs of a port.
pub(super) enum TxUpdate {
    Create {
        qpn: Qpn,
        mtu: u32,
        context: u64,
        first_psn: u32,
    },
    /// Whether the writes are sealed. Comes before `Connect`.
    Seal {
        qpn: Qpn,
        with: Option<OneWay>,
    },
    Connect {
        qpn: Qpn,
        remote: SendRoute,
    },
    Disconnect(Qpn),
    Destroy(Qpn),
}

/// The addresses of a queue pair's packets.
pub(super) struct SendRoute {
    pub(super) qpn: Qpn,
    /// Destination, with the interface of a link-local address.
    pub(super) destination: SocketAddr,
    /// The addresses in the headers of packets.
    pub(super) flow: Flow,
    /// The addresses that the ICRC covers, if they differ.
    pub(super) sealed_as: Option<Box<Flow>>,
}

/// A change that the control object makes to the receive state of a port.
pub(super) enum RxUpdate {
    Create {
        qpn: Qpn,
        serial: u64,
        mtu: u32,
        takes_sends: bool,
        context: u64,
    },
    /// Whether only sealed writes are accepted. Comes before `Permit`.
    Seal {
        qpn: Qpn,
        with: Option<OneWay>,
    },
    /// Sets the permitted source of writes. `None` also ends sealing.
    Permit {
        qpn: Qpn,
        source: Option<SocketAddr>,
    },
    Destroy(Qpn),
    AddWindows(WindowSet, Arc<Slots>),
    RemoveWindows(WindowSet),
}
