//! Choices of the NIC that the contract leaves open.

use std::cell::RefCell;
use std::rc::Rc;

use farwrite_fabric::contract::{
    DropReason, Fabric, FabricError, QpAttr, Region, RemoteQp, Rkey, Sge, Table, WriteWr,
};
use farwrite_fabric::sim::{Datagram, Verdict};
use farwrite_wire::packet::Packet;
use farwrite_wire::request::{SendOnly, WriteImm};

use crate::two_ends::{ATTR, TwoEnds, seal, window};

/// A write without payload.
const EMPTY: WriteWr<'_> = WriteWr {
    wr_id: 0,
    signaled: false,
    local: &[],
    remote_addr: 0,
    rkey: Rkey(0),
    imm: 0,
};

/// Records all datagrams that `a` sends.
fn record(ends: &TwoEnds) -> Rc<RefCell<Vec<Datagram>>> {
    let log = Rc::new(RefCell::new(Vec::new()));
    let tap = Rc::clone(&log);
    ends.network.set_tap(move |datagram| {
        tap.borrow_mut().push(datagram.clone());
        Verdict::Pass
    });
    log
}

#[test]
fn psns_count_up_and_wrap() {
    let mut ends = TwoEnds::new(1);
    let psns = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&psns);
    ends.network.set_tap(move |datagram| {
        let packet = Packet::parse(&datagram.payload).unwrap();
        log.borrow_mut().push(packet.bth().psn);
        Verdict::Drop
    });
    // The first PSN is random: look for a queue pair whose PSN wraps soon.
    let remote = RemoteQp {
        addr: ends.b.local_addr(0),
        qpn: ends.qb,
    };
    let qpn = loop {
        let qpn = ends.a.create_qp(ATTR).unwrap();
        ends.a.connect_qp(qpn, remote).unwrap();
        psns.borrow_mut().clear();
        assert!(ends.a.post_send(qpn, &[]).unwrap());
        if psns.borrow()[0] > (1 << 24) - 1000 {
            break qpn;
        }
    };
    ends.a.post_writes(qpn, &[EMPTY; 2000]).unwrap();
    assert!(ends.a.post_send(qpn, &[]).unwrap());
    let psns = psns.borrow();
    assert_eq!(psns.len(), 2002);
    assert!(
        psns.windows(2)
            .all(|pair| (pair[0] + 1) % (1 << 24) == pair[1])
    );
    assert!(psns.contains(&0));
}

#[test]
fn numbers_differ_by_seed_and_repeat_by_seed() {
    let numbers = |seed| {
        let mut ends = TwoEnds::new(seed);
        let lkey = ends.b.register(Region::owned(vec![0; 8])).unwrap();
        let (_, _, place) = window(&mut ends.b, ends.qb, lkey, 8);
        (ends.qa, ends.qb, lkey, place.rkey)
    };
    assert_eq!(numbers(1), numbers(1));
    let (one, two) = (numbers(1), numbers(2));
    assert!(one.0 != two.0 && one.1 != two.1 && one.2 != two.2 && one.3 != two.3);
    assert_ne!(one.0, one.1);
}

#[test]
fn keys_of_destroyed_window_sets_are_remembered_for_a_while() {
    let mut ends = TwoEnds::new(1);
    let lkey = ends.b.register(Region::owned(vec![0; 8])).unwrap();
    let source = ends.a.register(Region::owned(vec![1; 8])).unwrap();
    let keys: Vec<_> = (0..4097)
        .map(|_| {
            let (set, _, place) = window(&mut ends.b, ends.qb, lkey, 8);
            ends.b.destroy_windows(set).unwrap();
            place.rkey
        })
        .collect();
    for rkey in [keys[0], keys[1], keys[4096]] {
        let local = [Sge {
            lkey: source,
            offset: 0,
            length: 4,
        }];
        let write = WriteWr {
            local: &local,
            rkey,
            ..EMPTY
        };
        ends.a.post_writes(ends.qa, &[write]).unwrap();
    }
    assert_eq!(ends.arrivals(), []);
    let counters = ends.b.counters();
    assert_eq!(counters.dropped(DropReason::UnknownKey), 1);
    assert_eq!(counters.dropped(DropReason::RevokedKey), 2);
}

/// For packets sealed with these IPv4 identifications: how many arrive on a port of software ends,
/// and how many on the port of RNICs.
#[test]
fn identifications_of_software_and_of_rnics() {
    let taken = |ends: &mut TwoEnds, id: u16, expected: u16| {
        let send = SendOnly {
            dest_qp: ends.qb.0,
            psn: 0,
            payload_bytes: 0,
        };
        let mut datagram = ends.datagram(send.header().to_vec());
        seal(&mut datagram, id);
        datagram.id = expected;
        ends.network.inject(datagram);
        ends.arrivals().len() == 1
    };
    let mut software = TwoEnds::new(1);
    for (id, expected) in [(0, 0), (1, 0), (63, 0), (0, 63), (17, 17)] {
        assert!(taken(&mut software, id, expected), "{id} for {expected}");
    }
    for id in [64, 1000, u16::MAX] {
        assert!(!taken(&mut software, id, 0), "{id}");
    }
    assert_eq!(software.b.counters().dropped(DropReason::BadIcrc), 3);
    let mut rnic = TwoEnds::at(1, "10.0.0.1:4791", "10.0.0.2:4791");
    for id in [0, 63, 64, u16::MAX] {
        assert!(taken(&mut rnic, id, 0), "{id}");
    }
}

/// RNICs send from many ports to port 4791. Software ends send from their receiving port.
#[test]
fn source_ports_of_software_and_of_rnics() {
    for (right, taken) in [("10.0.0.2:5000", 0), ("10.0.0.2:4791", 1)] {
        let left = right.replace(".2:", ".1:");
        let mut ends = TwoEnds::at(1, &left, right);
        let write = WriteImm {
            dest_qp: ends.qb.0,
            psn: 0,
            remote_addr: 0,
            rkey: 0,
            imm: 0,
            payload_bytes: 0,
        };
        let mut datagram = ends.datagram(write.header().to_vec());
        datagram.src.set_port(50_000);
        seal(&mut datagram, 0);
        ends.network.inject(datagram);
        assert_eq!(ends.arrivals().len(), taken, "{right}");
        let strangers = ends.b.counters().dropped(DropReason::Stranger);
        assert_eq!(strangers, 1 - taken as u64);
    }
}

#[test]
fn identifications_are_those_of_a_burst_cut_by_the_kernel() {
    for (left, right, most) in [
        ("10.0.0.1:5000", "10.0.0.2:5000", 64),
        ("[fd00::1]:5000", "[fd00::2]:5000", 1),
    ] {
        let mut ends = TwoEnds::at(1, left, right);
        let log = record(&ends);
        ends.a.post_writes(ends.qa, &[EMPTY; 100]).unwrap();
        let ids: Vec<_> = log.borrow().iter().map(|datagram| datagram.id).collect();
        assert!(ids.into_iter().eq((0..100).map(|i| i % most)));
        assert_eq!(ends.arrivals().len(), 100);
    }
}

#[test]
fn tables_have_an_end() {
    let mut ends = TwoEnds::new(1);
    let attr = QpAttr { mtu: 4, ..ATTR };
    // One of the 2^20 queue pairs exists already.
    for _ in 1..1 << 20 {
        ends.a.create_qp(attr).unwrap();
    }
    let full = ends.a.create_qp(attr);
    assert!(matches!(
        full,
        Err(FabricError::OutOfResources(Table::QueuePair))
    ));
    ends.a.destroy_qp(ends.qa).unwrap();
    ends.a.create_qp(attr).unwrap();

    let set = ends.a.create_windows(&[], 1, 1).unwrap();
    for _ in 1..1 << 20 {
        ends.a.create_windows(&[], 1, 1).unwrap();
    }
    let full = ends.a.create_windows(&[], 1, 1);
    assert!(matches!(
        full,
        Err(FabricError::OutOfResources(Table::WindowSet))
    ));
    ends.a.destroy_windows(set).unwrap();
    ends.a.create_windows(&[], 1, 1).unwrap();
}

#[test]
fn a_v4_peer_may_be_written_in_v6() {
    let mut ends = TwoEnds::new(1);
    let qpn = ends.b.create_qp(ATTR).unwrap();
    let addr = "[::ffff:10.0.0.1]:5000".parse().unwrap();
    let remote = RemoteQp { addr, qpn: ends.qa };
    ends.b.connect_qp(qpn, remote).unwrap();
    let other = ends.a.create_qp(ATTR).unwrap();
    let remote = RemoteQp {
        addr: ends.b.local_addr(0),
        qpn,
    };
    ends.a.connect_qp(other, remote).unwrap();
    ends.a.post_send(other, b"x").unwrap();
    assert_eq!(ends.arrivals().len(), 1);
}
