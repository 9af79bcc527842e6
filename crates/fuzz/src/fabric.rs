//! Targets of the fabric crate.

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{
    Completion, Counters, DropReason, Fabric, Lkey, QpAttr, Qpn, Region, RemoteQp, Rkey,
};
use farwrite_fabric::sim::{Datagram, SimFabric, SimNetwork};
use farwrite_wire::icrc::{Flow, Icrc};
use std::net::SocketAddr;
use std::ops::Range;

/// Length of the region, and the ranges that peers may write: one through the only window of a set, the
/// other through the middle window of three.
const REGION: usize = 400;
const WINDOW: Range<usize> = 100..200;
const SLOT: Range<usize> = 300..350;
/// The contents of the region before any write.
const UNTOUCHED: u8 = 0x5A;

/// Packets for the receive path of a NIC: for each, a byte of `Wrap`, a length byte, and that number
/// of bytes. No packet causes a panic. Each is counted once. Only a write that completes changes memory,
/// and only memory behind a window.
pub fn nic_receive(data: &[u8]) {
    let mut nic = Victim::new();
    let mut rest = data;
    while let [wrap, length, more @ ..] = rest {
        let (bytes, after) = more.split_at(more.len().min(usize::from(*length)));
        nic.take(Wrap(*wrap), bytes);
        rest = after;
    }
}

/// Changes to the bytes of a packet, so that it passes more checks.
#[derive(Clone, Copy)]
struct Wrap(u8);

impl Wrap {
    /// Appends a valid ICRC.
    fn sealed(self) -> bool {
        self.0 & 1 != 0
    }
    /// Names an existing queue pair.
    fn addressed(self) -> bool {
        self.0 & 2 != 0
    }
    /// Comes from another address than the peer's.
    fn strange(self) -> bool {
        self.0 & 4 != 0
    }
    /// Which key the packet has at the place of a write's key: an unknown one, or one of [`Victim::keys`].
    fn key(self) -> Option<usize> {
        usize::from(self.0 >> 3 & 3).checked_sub(1)
    }
}

struct Victim {
    network: SimNetwork,
    end: Adapter<SimFabric>,
    qpn: Qpn,
    region: Lkey,
    /// Keys of the set with one window, of the set with three, and of a set that was destroyed.
    keys: [Rkey; 3],
    peer: SocketAddr,
}

impl Victim {
    fn new() -> Self {
        let network = SimNetwork::new(0);
        let own = SocketAddr::from(([10, 0, 0, 1], 5000));
        let peer = SocketAddr::from(([10, 0, 0, 2], 5000));
        let end = network.endpoint(own, 1).expect("the network is empty");
        let mut end = Adapter::new(end).expect("nothing was taken from it");
        let attr = QpAttr {
            mtu: 64,
            port: 0,
            context: 0,
            recv_buffers: 8,
        };
        let qpn = end.create_qp(attr).expect("the NIC is empty");
        let remote = RemoteQp {
            addr: peer,
            qpn: Qpn(2),
        };
        end.connect_qp(qpn, remote).expect("it is new");
        let memory = vec![UNTOUCHED; REGION];
        let region = Region::owned(memory);
        let region = end.register(region).expect("the NIC is empty");
        let mut open = |slots, slot_bytes, slot, range: Range<usize>| {
            let set = end.create_windows(&[qpn], slots, slot_bytes);
            let set = set.expect("the NIC is empty");
            let (offset, length) = (range.start as u64, range.len() as u64);
            let opened = end.open_window(set, slot, region, offset, length);
            (set, opened.expect("it fits").1.rkey)
        };
        let (_, one) = open(1, 100, 0, WINDOW);
        let (_, three) = open(3, 60, 1, SLOT);
        let (gone, destroyed) = open(1, 100, 0, WINDOW);
        end.destroy_windows(gone).expect("it is live");
        Self {
            network,
            end,
            qpn,
            region,
            keys: [one, three, destroyed],
            peer,
        }
    }

    fn take(&mut self, wrap: Wrap, bytes: &[u8]) {
        let before = (self.end.counters(), self.memory());
        self.network.inject(self.datagram(wrap, bytes));
        let mut completions = Vec::new();
        let more = self
            .end
            .poll(&mut completions)
            .expect("time does not break");
        assert!(!more);
        let after = self.end.counters();
        assert_eq!(seen(&after), seen(&before.0) + 1);
        let done =
            |counters: &Counters| counters.received_packets + counters.dropped(DropReason::NullKey);
        assert_eq!(completions.len() as u64, done(&after) - done(&before.0));
        let memory = self.memory();
        for (at, byte) in memory.iter().enumerate() {
            let exposed = WINDOW.contains(&at) || SLOT.contains(&at);
            assert!(exposed || *byte == UNTOUCHED, "byte {at} is {byte:#x}");
        }
        let changed = memory.iter().zip(&before.1).filter(|(a, b)| a != b).count();
        match completions.first() {
            Some(Completion::Write { bytes, .. }) => assert!(changed <= *bytes as usize),
            _ => assert_eq!(changed, 0),
        }
    }

    fn datagram(&self, wrap: Wrap, bytes: &[u8]) -> Datagram {
        let mut payload = bytes.to_vec();
        let mut patch = |place: Range<usize>, with: &[u8]| {
            if let Some(place) = payload.get_mut(place) {
                place.copy_from_slice(with);
            }
        };
        if wrap.addressed() {
            patch(5..8, &self.qpn.0.to_be_bytes()[1..]);
        }
        if let Some(key) = wrap.key() {
            patch(20..24, &self.keys[key].0.to_be_bytes());
        }
        let mut src = self.peer;
        if wrap.strange() {
            src.set_port(1);
        }
        let dst = self.end.local_addr(0);
        if wrap.sealed() {
            let flow = Flow::new(src, dst).expect("both are IPv4");
            let icrc = Icrc::new(&flow, 0, payload.len() + 4).update(&payload);
            payload.extend(icrc.finish().to_le_bytes());
        }
        Datagram {
            src,
            dst,
            tos: 0,
            id: 0,
            payload,
        }
    }

    fn memory(&self) -> Vec<u8> {
        let mut memory = vec![0; REGION];
        let copied = self.end.copy_out(self.region, 0, &mut memory);
        copied.expect("it is registered");
        memory
    }
}

/// The number of packets in all counters.
fn seen(counters: &Counters) -> u64 {
    counters.received_packets + counters.dropped.iter().sum::<u64>()
}
