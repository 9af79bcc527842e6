//! Behaviour of the UDP fabric beyond the contract: several sockets, both address families, and
//! packets sealed for the identification with which the kernel sends them.
#![cfg(target_os = "linux")]

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{
    Completion, Fabric, FabricError, Lkey, QpAttr, Qpn, Region, RemotePlace, RemoteQp, Rkey, Sge,
    WriteWr,
};
use farwrite_fabric::udp::{SocketConfig, UdpConfig, UdpFabric, UdpSocket, now_ns, wait};
use farwrite_wire::icrc::{self, Flow, IdRange};
use proptest::prelude::*;

fn config(bind: &str, ports: u16, offload: bool) -> UdpConfig {
    let socket = SocketConfig {
        offload,
        ..SocketConfig::new(bind.parse().unwrap())
    };
    UdpConfig { socket, ports }
}

fn bind(addr: &str, offload: bool) -> Adapter<UdpFabric> {
    Adapter::new(UdpFabric::bind(&config(addr, 1, offload)).unwrap()).unwrap()
}

fn queue_pair(fabric: &mut Adapter<UdpFabric>, port: u16, mtu: u32) -> Qpn {
    let attr = QpAttr {
        mtu,
        port,
        context: 0,
        recv_buffers: 1000,
    };
    fabric.create_qp(attr).unwrap()
}

/// Joins queue pairs on the same port of two fabrics, by their addresses at `ip`.
fn join(
    a: &mut Adapter<UdpFabric>,
    b: &mut Adapter<UdpFabric>,
    ip: IpAddr,
    port: u16,
    mtu: u32,
) -> (Qpn, Qpn) {
    let (qa, qb) = (queue_pair(a, port, mtu), queue_pair(b, port, mtu));
    let at = |fabric: &Adapter<UdpFabric>, qpn| RemoteQp {
        addr: SocketAddr::new(ip, fabric.local_addr(port).port()),
        qpn,
    };
    a.connect_qp(qa, at(b, qb)).unwrap();
    b.connect_qp(qb, at(a, qa)).unwrap();
    (qa, qb)
}

/// Polls until `count` completions have arrived. Gives up after one minute.
fn completions(fabric: &mut Adapter<UdpFabric>, count: usize) -> Vec<Completion> {
    let end = Instant::now() + Duration::from_secs(60);
    let mut out = Vec::new();
    while out.len() < count && Instant::now() < end {
        fabric.wait(Duration::from_millis(20)).unwrap();
        fabric.poll(&mut out).unwrap();
    }
    out
}

fn pattern(length: usize) -> Vec<u8> {
    (1..=251).cycle().take(length).collect()
}

fn sge(lkey: Lkey, offset: usize, length: usize) -> Sge {
    Sge {
        lkey,
        offset: offset as u64,
        length: u32::try_from(length).unwrap(),
    }
}

/// Returns a window onto a whole region, in a set of its own.
fn window(fabric: &mut Adapter<UdpFabric>, of: Qpn, lkey: Lkey, length: usize) -> RemotePlace {
    let length = length as u64;
    let set = fabric.create_windows(&[of], 1, length.max(1)).unwrap();
    fabric.open_window(set, 0, lkey, 0, length).unwrap().1
}

/// Returns all bytes of a region.
fn bytes(fabric: &Adapter<UdpFabric>, lkey: Lkey, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fabric.copy_out(lkey, 0, &mut bytes).unwrap();
    bytes
}

fn write(local: &[Sge], remote_addr: usize, rkey: Rkey, imm: u32) -> WriteWr<'_> {
    WriteWr {
        wr_id: 0,
        signaled: false,
        local,
        remote_addr: remote_addr as u64,
        rkey,
        imm,
    }
}

#[test]
fn one_wildcard_serves_both_families() {
    let (mut a, mut b) = (bind("[::]:0", true), bind("[::]:0", true));
    for ip in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
        let (qa, qb) = join(&mut a, &mut b, ip.parse().unwrap(), 0, 1024);
        for (from, to, qf, qt) in [(0, 1, qa, qb), (1, 0, qb, qa)] {
            let ends = [&mut a, &mut b];
            assert!(ends[from].post_send(qf, ip.as_bytes()).unwrap());
            let ends = [&mut a, &mut b];
            match &completions(ends[to], 1)[..] {
                [Completion::Send(send)] => {
                    assert_eq!((send.qpn, &send.payload[..]), (qt, ip.as_bytes()));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// The carrier sends it in one system call with the data behind it.
#[test]
fn a_packet_that_is_held_leaves_with_the_next_writes_or_at_a_flush() {
    for offload in [true, false] {
        let (mut a, mut b) = (bind("127.0.0.1:0", offload), bind("127.0.0.1:0", offload));
        let ip = "127.0.0.1".parse().unwrap();
        let (control, _) = join(&mut a, &mut b, ip, 0, 1024);
        let (data, qb) = join(&mut a, &mut b, ip, 0, 1024);
        let source = a.register(Region::owned(pattern(1000))).unwrap();
        let target = b.register(Region::owned(vec![0; 1000])).unwrap();
        let place = window(&mut b, qb, target, 1000);
        let arrives_at_once = |b: &mut Adapter<UdpFabric>| {
            let mut out = Vec::new();
            b.wait(Duration::from_millis(20)).unwrap();
            b.poll(&mut out).unwrap();
            b.end_batch();
            out
        };
        for round in 0..3 {
            assert!(a.hold_send(control, b"first").unwrap());
            assert!(a.hold_send(control, b"second").unwrap());
            assert!(arrives_at_once(&mut b).is_empty(), "{round}: it is held");
            let local = [sge(source, 0, 1000)];
            let writes = [write(&local, 0, place.rkey, round)];
            assert_eq!(a.post_writes(data, &writes).unwrap(), 1);
            match &completions(&mut b, 3)[..] {
                [
                    Completion::Send(first),
                    Completion::Send(second),
                    Completion::Write { imm, .. },
                ] => {
                    assert_eq!(&first.payload[..], b"first");
                    assert_eq!(&second.payload[..], b"second");
                    assert_eq!(*imm, round);
                }
                other => panic!("{other:?}"),
            }
            b.end_batch();
            assert!(a.hold_send(control, b"alone").unwrap());
            assert!(a.flush().unwrap());
            assert_eq!(completions(&mut b, 1).len(), 1);
            b.end_batch();
        }
        // More than are held at a time.
        for _ in 0..100 {
            assert!(a.hold_send(control, b"many").unwrap());
        }
        assert!(a.flush().unwrap());
        assert_eq!(completions(&mut b, 100).len(), 100);
    }
}

#[test]
fn a_packet_arrives_when_the_kernel_receives_it() {
    for (addr, ip) in [
        ("127.0.0.1:0", "127.0.0.1"),
        ("[::1]:0", "::1"),
        ("[::]:0", "127.0.0.1"),
    ] {
        let (mut a, mut b) = (bind(addr, true), bind(addr, true));
        let (qa, _) = join(&mut a, &mut b, ip.parse().unwrap(), 0, 1024);
        // The kernel begins to note times shortly after a first socket wants them.
        let is_early = (0..50).any(|_| {
            assert!(a.post_send(qa, b"x").unwrap());
            b.wait(Duration::from_secs(60)).unwrap();
            let waiting = Duration::from_nanos(now_ns());
            std::thread::sleep(Duration::from_millis(20));
            let [Completion::Send(send)] = &completions(&mut b, 1)[..] else {
                panic!("one SEND arrives");
            };
            Duration::from_nanos(send.arrived_ns.unwrap()) < waiting + Duration::from_millis(5)
        });
        assert!(is_early, "{addr}");
    }
}

#[test]
fn ports_are_consecutive_and_carry_their_queue_pairs() {
    // Another process may take a port between the search for a free one and binding it.
    let consecutive = || {
        let base = bind("127.0.0.1:0", true).local_addr(0);
        let fabric = UdpFabric::bind(&config(&base.to_string(), 3, true)).ok()?;
        Adapter::new(fabric).ok()
    };
    let three = || (0..20).find_map(|_| consecutive()).unwrap();
    let (mut a, mut b) = (three(), three());
    let ports = [0, 1, 2].map(|port| a.local_addr(port).port());
    assert_eq!([ports[1], ports[2]], [ports[0] + 1, ports[0] + 2]);
    assert_eq!(a.capabilities().ports, 3);
    let ip = "127.0.0.1".parse().unwrap();
    let joined = [0, 1, 2].map(|port| join(&mut a, &mut b, ip, port, 1024));
    for (qa, _) in joined {
        assert!(a.post_send(qa, b"x").unwrap());
    }
    let mut got: Vec<_> = completions(&mut b, 3)
        .into_iter()
        .map(|completion| completion.qpn())
        .collect();
    let mut want = joined.map(|(_, qb)| qb);
    got.sort_unstable();
    want.sort_unstable();
    assert_eq!(got, want);
}

#[test]
fn ports_that_do_not_exist_are_refused() {
    for (addr, ports) in [("127.0.0.1:0", 0), ("127.0.0.1:65535", 2)] {
        let error = UdpFabric::bind(&config(addr, ports, true)).err().unwrap();
        assert!(matches!(error, FabricError::BadAttribute { .. }), "{error}");
    }
}

#[test]
fn an_address_of_the_other_family_is_refused_by_name() {
    for (addr, remote) in [("127.0.0.1:0", "[::1]:9"), ("[::1]:0", "127.0.0.1:9")] {
        let mut fabric = bind(addr, true);
        let qpn = queue_pair(&mut fabric, 0, 1024);
        let remote = RemoteQp {
            addr: remote.parse().unwrap(),
            qpn: Qpn(2),
        };
        let error = fabric.connect_qp(qpn, remote).unwrap_err();
        assert!(matches!(error, FabricError::BadAttribute { .. }), "{error}");
        assert!(error.to_string().contains(&remote.addr.to_string()));
    }
}

/// The kernel numbers the segments of a batch 0, 1, 2, ..., and every other datagram 0. The system
/// tests check this on the wire; this test checks that packets are sealed for it.
#[test]
fn packets_are_sealed_for_the_identification_they_leave_with() {
    for offload in [true, false] {
        let mut fabric = bind("127.0.0.1:0", offload);
        let gso = fabric.carrier().granted(0).gso;
        let mut raw = UdpSocket::bind(&config("127.0.0.1:0", 1, false).socket).unwrap();
        let qpn = queue_pair(&mut fabric, 0, 1024);
        let remote = RemoteQp {
            addr: raw.local_addr(),
            qpn: Qpn(2),
        };
        fabric.connect_qp(qpn, remote).unwrap();
        let lkey = fabric.register(Region::owned(pattern(100_000))).unwrap();
        // 61 packets of 1060 bytes fill a batch, and only its last packet may be shorter.
        let lengths = [[1024; 90].as_slice(), &[100, 1024, 100]].concat();
        let entries: Vec<_> = lengths
            .iter()
            .map(|&length| [sge(lkey, 0, length)])
            .collect();
        let writes: Vec<_> = entries.iter().map(|e| write(e, 0, Rkey(1), 0)).collect();
        assert_eq!(fabric.post_writes(qpn, &writes).unwrap(), writes.len());
        let want: Vec<u16> = if gso {
            (0..61).chain(0..30).chain(0..2).collect()
        } else {
            vec![0; writes.len()]
        };
        let mut got = Vec::new();
        while got.len() < writes.len()
            && wait([(&raw, false)], Some(Duration::from_secs(60))).unwrap()
        {
            for batch in raw.recv().unwrap().0 {
                let flow = Flow::new(batch.src, batch.dst).unwrap();
                got.extend(
                    batch
                        .segments()
                        .map(|packet| icrc::verify(&flow, packet, 0, IdRange::ANY).unwrap()),
                );
            }
        }
        assert_eq!(got, want);
    }
}

#[test]
fn the_largest_packet_passes_and_one_beyond_the_path_mtu_is_named() {
    let (mut a, mut b) = (bind("[::]:0", true), bind("[::]:0", true));
    let mtu = a.capabilities().max_mtu;
    let lkey = a.register(Region::owned(pattern(mtu as usize))).unwrap();
    let target = b.register(Region::owned(vec![0; mtu as usize])).unwrap();
    let (v4, v4_at_b) = join(&mut a, &mut b, "127.0.0.1".parse().unwrap(), 0, mtu);
    let rkey = window(&mut b, v4_at_b, target, mtu as usize).rkey;
    let local = [sge(lkey, 0, mtu as usize)];
    let writes = [write(&local, 0, rkey, 0)];
    assert_eq!(a.post_writes(v4, &writes).unwrap(), 1);
    assert_eq!(completions(&mut b, 1).len(), 1);
    assert!(bytes(&b, target, mtu as usize) == pattern(mtu as usize));
    // Loopback carries IP datagrams of 65536 bytes, and IPv6 headers are 20 bytes longer.
    let v6 = join(&mut a, &mut b, "::1".parse().unwrap(), 0, mtu).0;
    let error = a.post_writes(v6, &writes).unwrap_err();
    assert!(error.to_string().contains("65536"), "{error}");
    let FabricError::BrokenQp { qpn, source } = error else {
        panic!("{error}");
    };
    assert_eq!(qpn, v6);
    assert!(matches!(
        *source,
        FabricError::BadAttribute { name: "mtu", .. }
    ));
    // The other queue pair of the port is not affected.
    assert_eq!(a.post_writes(v4, &writes).unwrap(), 1);
    assert_eq!(completions(&mut b, 1).len(), 1);
}

#[test]
fn a_peer_that_went_away_breaks_nothing() {
    let (mut a, mut b) = (bind("127.0.0.1:0", true), bind("127.0.0.1:0", true));
    let ip = "127.0.0.1".parse().unwrap();
    let (gone, _) = join(&mut a, &mut bind("127.0.0.1:0", true), ip, 0, 1024);
    let (qa, _) = join(&mut a, &mut b, ip, 0, 1024);
    for _ in 0..5 {
        assert!(a.post_send(gone, b"anyone?").unwrap());
        assert!(a.post_send(qa, b"you").unwrap());
        assert!(!a.poll(&mut Vec::new()).unwrap());
    }
    assert_eq!(completions(&mut b, 5).len(), 5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Bursts with any mixture of lengths, gathered from pieces, arrive whole, with any combination
    /// of offloads.
    #[test]
    fn any_burst_lands(
        lengths in prop::collection::vec((0usize..1500, 0usize..1500), 1..90),
        offloads in any::<(bool, bool)>(),
        v6 in any::<bool>(),
    ) {
        let (addr, ip) = if v6 { ("[::1]:0", "::1") } else { ("127.0.0.1:0", "127.0.0.1") };
        let (mut a, mut b) = (bind(addr, offloads.0), bind(addr, offloads.1));
        let (qa, qb) = join(&mut a, &mut b, ip.parse().unwrap(), 0, 3000);
        let total = lengths.iter().map(|(first, second)| first + second).sum();
        let source = a.register(Region::owned(pattern(total))).unwrap();
        let target = b.register(Region::owned(vec![0; total])).unwrap();
        let rkey = window(&mut b, qb, target, total).rkey;
        let mut entries = Vec::new();
        let mut at = 0;
        for &(first, second) in &lengths {
            entries.push((at, [sge(source, at, first), sge(source, at + first, second)]));
            at += first + second;
        }
        let writes: Vec<_> = (0..)
            .zip(&entries)
            .map(|(imm, (at, local))| write(local, *at, rkey, imm))
            .collect();
        prop_assert_eq!(a.post_writes(qa, &writes).unwrap(), writes.len());
        let mut imms: Vec<_> = completions(&mut b, writes.len())
            .into_iter()
            .filter_map(|completion| match completion {
                Completion::Write { imm, .. } => Some(imm as usize),
                _ => None,
            })
            .collect();
        imms.sort_unstable();
        prop_assert!(imms.into_iter().eq(0..writes.len()), "{:?}", b.counters());
        prop_assert!(bytes(&b, target, total) == pattern(total));
    }
}
