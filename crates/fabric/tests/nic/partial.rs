//! A carrier that takes part of a burst.

use std::net::SocketAddr;

use farwrite_fabric::contract::{
    Completion, Fabric, FabricError, QpAttr, Qpn, RemoteQp, Rkey, WriteWr,
};
use farwrite_fabric::nic::{Burst, Carrier, Nic, NicFabric};

/// Takes so many packets of each burst, and delivers none.
struct Narrow(usize);

impl Carrier for Narrow {
    fn ports(&self) -> u16 {
        1
    }
    fn max_mtu(&self) -> u32 {
        1024
    }
    fn local_addr(&self, _port: u16) -> SocketAddr {
        ([10, 0, 0, 1], 5000).into()
    }
    fn join(&mut self, _port: u16, _remote: SocketAddr) -> Result<(), FabricError> {
        Ok(())
    }
    fn part(&mut self, _port: u16, _remote: SocketAddr) {}
    fn send(&mut self, burst: &Burst<'_>) -> Result<usize, FabricError> {
        Ok(burst.len().min(self.0))
    }
    fn poll(&mut self, _nic: &mut Nic, _out: &mut Vec<Completion>) -> Result<bool, FabricError> {
        Ok(false)
    }
    fn socket_drops(&self) -> u64 {
        0
    }
}

/// The completions of four writes, `wr_id` 0 to 3, of which only `signaled` is signalled.
fn departures(room: usize, signaled: u64) -> Vec<u64> {
    let mut fabric = NicFabric::new(Narrow(room), [1; 32]);
    let attr = QpAttr {
        mtu: 1024,
        port: 0,
        recv_depth: 0,
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
    let mut completions = Vec::new();
    fabric.poll(&mut completions).unwrap();
    let departed = completions.into_iter().map(|completion| match completion {
        Completion::Departed { qpn: of, wr_id } if of == qpn => wr_id,
        other => panic!("{other:?}"),
    });
    departed.collect()
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
