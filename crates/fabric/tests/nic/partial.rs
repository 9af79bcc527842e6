//! A carrier that accepts only a part of a burst.

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, QpAttr, Qpn, RemoteQp, Rkey, WriteWr};
use farwrite_fabric::nic::NicFabric;

use crate::closure_carrier::ClosureCarrier;

/// Returns the completions of four writes with `wr_id` 0 to 3, of which only `signaled` is
/// signalled.
fn departures(room: usize, signaled: u64) -> Vec<u64> {
    let carrier = ClosureCarrier::new(move |burst| burst.len().min(room));
    let mut fabric = Adapter::new(NicFabric::new(carrier, [1; 32])).unwrap();
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
