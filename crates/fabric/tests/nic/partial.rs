//! A carrier that accepts only a part of a burst.

use std::net::SocketAddr;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, FabricError, QpAttr, Qpn, RemoteQp, Rkey, WriteWr};
use farwrite_fabric::nic::{Arrival, Burst, Carrier, CarrierRx, CarrierTx, NicFabric};
use farwrite_wire::icrc::Flow;

/// Accepts a fixed number of packets of each burst, and delivers none.
#[derive(Clone, Copy)]
struct Narrow(usize);

impl Carrier for Narrow {
    type Tx = Self;
    type Rx = Self;
    const GHOSTS: bool = false;

    fn ports(&self) -> u16 {
        1
    }
    fn max_mtu(&self) -> u32 {
        1024
    }
    fn local_addr(&self, _port: u16) -> SocketAddr {
        ([10, 0, 0, 1], 5000).into()
    }
    fn take_tx(&mut self, _port: u16) -> Option<Self> {
        Some(*self)
    }
    fn take_rx(&mut self, _port: u16) -> Option<Self> {
        Some(*self)
    }
    fn flow(&self, port: u16, remote: SocketAddr) -> Result<Flow, FabricError> {
        Ok(Flow::new(self.local_addr(port), remote).unwrap())
    }
    fn socket_drops(&self) -> [u64; 2] {
        [0, 0]
    }
}

impl CarrierTx for Narrow {
    fn send(&mut self, burst: &Burst<'_>) -> Result<usize, FabricError> {
        Ok(burst.len().min(self.0))
    }
}

impl CarrierRx for Narrow {
    fn recv(&mut self, _each: impl FnMut(&Arrival<'_>)) -> Result<bool, FabricError> {
        Ok(false)
    }
}

/// Returns the completions of four writes with `wr_id` 0 to 3, of which only `signaled` is
/// signalled.
fn departures(room: usize, signaled: u64) -> Vec<u64> {
    let mut fabric = Adapter::new(NicFabric::new(Narrow(room), [1; 32])).unwrap();
    let attr = QpAttr {
        mtu: 1024,
        port: 0,
        context: 0,
        recv_buffers: 0,
    };
    let qpn = fabric.create_qp(attr).unwrap();
    let remote = RemoteQp {
        addr: ([10, 0, 0, 2], 5000).into(),
        qpn: Qpn(2),
    };
    fabric.connect_qp(qpn, remote).unwrap();
    let writes = [0, 1, 2, 3].map(|wr_id| WriteWr {
        wr_id,
        signaled: wr_id == signaled,
        local: &[],
        remote_addr: 0,
        rkey: Rkey(1),
        imm: 0,
    });
    assert_eq!(fabric.post_writes(qpn, &writes).unwrap(), room.min(4));
    let mut departed = Vec::new();
    fabric.poll_departed(&mut departed).unwrap();
    assert!(departed.iter().all(|departed| departed.qpn == qpn));
    departed.iter().map(|departed| departed.wr_id).collect()
}

#[test]
fn the_last_write_taken_of_a_batch_that_is_cut_completes() {
    assert_eq!(departures(4, 3), [3]);
    assert_eq!(departures(9, 3), [3]);
    assert_eq!(departures(3, 3), [2]);
    assert_eq!(departures(1, 3), [0]);
    assert_eq!(departures(0, 3), []);
    assert_eq!(departures(3, 2), [2], "once");
    assert_eq!(departures(3, 0), [0, 2]);
}
