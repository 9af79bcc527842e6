//! Two ends of a simulated network of perfect links.

use std::net::SocketAddr;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{
    Completion, Fabric, Lkey, QpAttr, Qpn, RemotePlace, RemoteQp, Window, WindowSet,
};
use farwrite_fabric::sim::{Datagram, LinkConfig, SimFabric, SimNetwork};
use farwrite_wire::icrc::{Flow, Icrc};

pub(crate) const ATTR: QpAttr = QpAttr {
    mtu: 256,
    port: 0,
    context: 0,
    recv_buffers: 1,
};

/// A writer, a receiver, and their queue pairs.
pub(crate) struct TwoEnds {
    pub(crate) network: SimNetwork,
    pub(crate) a: Adapter<SimFabric>,
    pub(crate) b: Adapter<SimFabric>,
    pub(crate) qa: Qpn,
    pub(crate) qb: Qpn,
}

impl TwoEnds {
    pub(crate) fn new(seed: u64) -> Self {
        Self::at(seed, "10.0.0.1:5000", "10.0.0.2:5000")
    }

    pub(crate) fn at(seed: u64, left: &str, right: &str) -> Self {
        let network = SimNetwork::new(seed);
        let (left, right): (SocketAddr, SocketAddr) =
            (left.parse().unwrap(), right.parse().unwrap());
        let perfect = LinkConfig::default();
        network
            .connect(left.ip(), right.ip(), perfect, perfect)
            .unwrap();
        let end = |addr| Adapter::new(network.endpoint(addr, 1).unwrap()).unwrap();
        let (mut a, mut b) = (end(left), end(right));
        let (qa, qb) = (a.create_qp(ATTR).unwrap(), b.create_qp(ATTR).unwrap());
        a.connect_qp(
            qa,
            RemoteQp {
                addr: right,
                qpn: qb,
            },
        )
        .unwrap();
        b.connect_qp(
            qb,
            RemoteQp {
                addr: left,
                qpn: qa,
            },
        )
        .unwrap();
        Self {
            network,
            a,
            b,
            qa,
            qb,
        }
    }

    /// Delivers everything in flight to `b`, and lets `b` receive it.
    pub(crate) fn arrivals(&mut self) -> Vec<Completion> {
        while let Some(next_ns) = self.network.next_ns() {
            self.network.advance_to(next_ns);
        }
        let mut completions = Vec::new();
        while self.b.poll(&mut completions).unwrap() {}
        self.b.end_batch();
        completions
    }

    /// Returns a datagram from `a` to `b` with any payload.
    pub(crate) fn datagram(&self, payload: Vec<u8>) -> Datagram {
        Datagram {
            src: self.a.local_addr(0),
            dst: self.b.local_addr(0),
            tos: 0,
            id: 0,
            payload,
        }
    }
}

/// Returns a window onto the first bytes of a region, in a set of its own.
pub(crate) fn window(
    end: &mut Adapter<SimFabric>,
    of: Qpn,
    lkey: Lkey,
    length: u64,
) -> (WindowSet, Window, RemotePlace) {
    let set = end.create_windows(&[of], 1, length).unwrap();
    let (window, place) = end.open_window(set, 0, lkey, 0, length).unwrap();
    (set, window, place)
}

/// Appends a valid ICRC to the payload of a datagram.
pub(crate) fn seal(datagram: &mut Datagram, ipv4_id: u16) {
    let flow = Flow::new(datagram.src, datagram.dst).unwrap();
    let icrc = Icrc::new(&flow, ipv4_id, datagram.payload.len() + 4);
    let icrc = icrc.update(&datagram.payload).finish();
    datagram.payload.extend(icrc.to_le_bytes());
}
