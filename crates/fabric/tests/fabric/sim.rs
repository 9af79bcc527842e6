//! The simulated network itself: time, links, taps, seeds.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{
    Completion, Fabric, FabricError, QpAttr, Qpn, Region, RemoteQp, Sge, WriteWr,
};
use farwrite_fabric::sim::{Datagram, LinkConfig, SimError, SimFabric, SimNetwork, Verdict};
use farwrite_link::{Loss, Step};

const ATTR: QpAttr = QpAttr {
    mtu: 1024,
    port: 0,
    context: 0,
    recv_buffers: 1,
};

fn addr(host: u8) -> SocketAddr {
    SocketAddr::new(ip(host), 5000)
}

fn ip(host: u8) -> IpAddr {
    [10, 0, 0, host].into()
}

/// Two ends with a queue pair each.
struct Ends {
    network: SimNetwork,
    a: Adapter<SimFabric>,
    b: Adapter<SimFabric>,
    qa: Qpn,
    qb: Qpn,
}

impl Ends {
    fn new(seed: u64, link: LinkConfig) -> Self {
        let network = SimNetwork::new(seed);
        network.connect(ip(1), ip(2), link, link).unwrap();
        let (mut a, mut b) = (end(&network, 1), end(&network, 2));
        let (qa, qb) = (a.create_qp(ATTR).unwrap(), b.create_qp(ATTR).unwrap());
        let remote = |host, qpn| RemoteQp {
            addr: addr(host),
            qpn,
        };
        a.connect_qp(qa, remote(2, qb)).unwrap();
        b.connect_qp(qb, remote(1, qa)).unwrap();
        Self {
            network,
            a,
            b,
            qa,
            qb,
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        assert!(self.a.post_send(self.qa, bytes).unwrap());
    }

    /// First byte of every SEND that `b` receives now.
    fn taken(&mut self) -> Vec<u8> {
        let mut completions = Vec::new();
        while self.b.poll(&mut completions).unwrap() {}
        let first = |completion| match completion {
            Completion::Send(send) => send.payload[0],
            other @ Completion::Write { .. } => panic!("{other:?}"),
        };
        completions.into_iter().map(first).collect()
    }

    /// Advances to each arrival. Returns its time and its first byte.
    fn run(&mut self) -> Vec<(u64, u8)> {
        let mut log = Vec::new();
        while let Some(next_ns) = self.network.next_ns() {
            self.network.advance_to(next_ns);
            log.extend(self.taken().into_iter().map(|byte| (next_ns, byte)));
        }
        log
    }
}

fn end(network: &SimNetwork, host: u8) -> Adapter<SimFabric> {
    Adapter::new(network.endpoint(addr(host), 1).unwrap()).unwrap()
}

fn delay(delay: Duration) -> LinkConfig {
    LinkConfig {
        delay,
        ..LinkConfig::default()
    }
}

#[test]
fn time_passes_when_it_is_moved_only() {
    let mut ends = Ends::new(1, delay(Duration::from_millis(12)));
    assert_eq!((ends.network.now_ns(), ends.network.next_ns()), (0, None));
    ends.network.advance_to(1_000);
    ends.send(&[7]);
    assert_eq!(ends.network.next_ns(), Some(12_001_000));
    ends.network.advance_to(12_000_999);
    assert_eq!(ends.taken(), []);
    ends.network.advance_to(20_000_000);
    assert_eq!(ends.taken(), [7]);
    assert_eq!(ends.network.next_ns(), None);
    ends.network.advance_to(0);
    assert_eq!(ends.network.now_ns(), 20_000_000);
}

#[test]
fn packets_are_applied_when_polled() {
    let mut ends = Ends::new(1, LinkConfig::default());
    ends.send(&[1]);
    ends.network.advance_to(0);
    assert_eq!(ends.b.counters().received_packets, 0);
    assert_eq!(ends.taken(), [1]);
    assert_eq!(ends.b.counters().received_packets, 1);
}

#[test]
fn one_poll_takes_a_bounded_amount() {
    let mut ends = Ends::new(1, LinkConfig::default());
    (0..=255)
        .cycle()
        .take(600)
        .for_each(|byte| ends.send(&[byte]));
    ends.network.advance_to(0);
    let mut completions = Vec::new();
    assert!(ends.b.poll(&mut completions).unwrap());
    assert!(completions.len() < 600);
    assert_eq!(completions.len() + ends.taken().len(), 600);
    assert!(!ends.b.poll(&mut completions).unwrap());
}

#[test]
fn the_seed_decides() {
    let faulty = LinkConfig {
        delay: Duration::from_millis(1),
        rate_bps: Some(1_000_000_000),
        loss: Loss::Iid { loss_packet: 0.2 },
        duplicate: 0.1,
        corrupt: 0.1,
        ..LinkConfig::default()
    };
    let run = |seed| {
        let mut ends = Ends::new(seed, faulty);
        (0..200).for_each(|byte| ends.send(&[byte]));
        let log = ends.run();
        let link = ends.network.link_counters(ip(1), ip(2)).unwrap();
        let counters = ends.b.counters();
        let dropped: u64 = counters.dropped.iter().sum();
        assert_eq!(counters.received_packets + dropped, link.delivered);
        assert_eq!(log.len() as u64, counters.received_packets);
        assert!(link.lost > 0 && link.duplicated > 0, "{link:?}");
        // A packet that was corrupted only in the byte that the ICRC leaves out is accepted.
        let found_out = link.corrupted - 2..=link.corrupted;
        assert!(
            dropped > 0 && found_out.contains(&dropped),
            "{link:?}, {counters:?}"
        );
        log
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_tap_passes_drops_and_holds() {
    let mut ends = Ends::new(1, LinkConfig::default());
    let count = Rc::new(Cell::new(0));
    let seen = Rc::clone(&count);
    ends.network.set_tap(move |datagram| {
        assert_eq!((datagram.src, datagram.dst), (addr(1), addr(2)));
        seen.set(seen.get() + 1);
        [Verdict::Pass, Verdict::Drop, Verdict::Hold][(seen.get() - 1) % 3]
    });
    (0..6).for_each(|byte| ends.send(&[byte]));
    ends.network.advance_to(10);
    assert_eq!(ends.taken(), [0, 3]);
    assert_eq!(count.get(), 6);
    let held = ends.network.take_held();
    assert_eq!(held.len(), 2);
    assert!(ends.network.take_held().is_empty());
    // Inject the packets late, in another order, and inject one of them twice.
    for datagram in [&held[1], &held[0], &held[1]] {
        ends.network.inject(datagram.clone());
    }
    assert_eq!(ends.taken(), [5, 2, 5]);
    ends.network.clear_tap();
    ends.send(&[9]);
    ends.network.advance_to(10);
    assert_eq!((ends.taken(), count.get()), (vec![9], 6));
}

#[test]
fn a_tap_may_use_the_network() {
    let mut ends = Ends::new(1, LinkConfig::default());
    let network = ends.network.clone();
    ends.network.set_tap(move |datagram| {
        network.inject(datagram.clone());
        network.set_tap(|_| Verdict::Drop);
        Verdict::Pass
    });
    (0..3).for_each(|byte| ends.send(&[byte]));
    ends.network.advance_to(0);
    assert_eq!(ends.taken(), [0, 0]);
}

#[test]
fn a_cut_link_carries_nothing_and_can_be_mended() {
    let mut ends = Ends::new(1, delay(Duration::from_micros(5)));
    ends.send(&[1]);
    ends.network.set_down(ip(1), ip(2), true).unwrap();
    ends.send(&[2]);
    assert_eq!(ends.run(), []);
    ends.network.set_down(ip(1), ip(2), false).unwrap();
    ends.send(&[3]);
    assert_eq!(ends.run(), [(5_000, 3)]);
    let counters = ends.network.link_counters(ip(1), ip(2)).unwrap();
    assert_eq!(
        (counters.offered, counters.lost, counters.delivered),
        (3, 2, 1)
    );
    let error = ends.network.set_down(ip(1), ip(3), true).unwrap_err();
    let (from, to) = (ip(1), ip(3));
    assert_eq!(error, SimError::NoLink { from, to });
    assert_eq!(ends.network.link_counters(from, to), Err(error));
}

#[test]
fn a_link_changes_at_its_steps() {
    let mut ends = Ends::new(1, LinkConfig::default());
    let step = Step {
        at: Duration::from_millis(2),
        delay: Some(Duration::from_millis(9)),
        ..Step::default()
    };
    let config = delay(Duration::from_millis(1));
    ends.network
        .set_link(ip(1), ip(2), config, &[step])
        .unwrap();
    ends.send(&[1]);
    ends.network.advance_to(2_000_000);
    assert_eq!(ends.taken(), [1]);
    ends.send(&[2]);
    assert_eq!(ends.run(), [(11_000_000, 2)]);
    let (from, to) = (ip(1), ip(3));
    let error = ends.network.set_link(from, to, config, &[]);
    assert_eq!(error, Err(SimError::NoLink { from, to }));
}

#[test]
fn each_end_is_told_what_it_cannot_have() {
    let network = SimNetwork::new(1);
    let end = network.endpoint(addr(1), 3).unwrap();
    let mut beside = addr(1);
    beside.set_port(5002);
    let taken = network.endpoint(beside, 1).err();
    assert_eq!(taken, Some(SimError::AddressTaken(beside)));
    beside.set_port(5003);
    network.endpoint(beside, 1).unwrap();
    drop(end);
    network.endpoint(addr(1), 3).unwrap();
    for (port, ports) in [(5000, 0), (0, 1), (65_535, 2), (1, u16::MAX)] {
        let addr = SocketAddr::new(ip(9), port);
        let wrong = network.endpoint(addr, ports).err();
        let fits = u32::from(port) + u32::from(ports) <= 65_536 && port > 0 && ports > 0;
        assert_eq!(wrong.is_none(), fits, "{addr} and {ports}");
    }
    let bad = LinkConfig {
        duplicate: 2.0,
        ..LinkConfig::default()
    };
    let refused = network.connect(ip(1), ip(2), LinkConfig::default(), bad);
    assert!(matches!(refused, Err(SimError::Link(_))));
    assert!(network.link_counters(ip(1), ip(2)).is_err());
}

#[test]
fn an_end_cannot_be_joined_across_ip_versions() {
    let network = SimNetwork::new(1);
    let mut end = network.endpoint(addr(1), 1).unwrap();
    let qpn = end.create_qp(ATTR).unwrap();
    let remote = RemoteQp {
        addr: "[fd00::1]:5000".parse().unwrap(),
        qpn: Qpn(2),
    };
    let refused = end.connect_qp(qpn, remote);
    assert!(matches!(refused, Err(FabricError::BadAttribute { .. })));
}

#[test]
fn what_nobody_takes_is_counted() {
    let mut ends = Ends::new(1, LinkConfig::default());
    ends.network.inject(Datagram {
        src: addr(1),
        dst: addr(7),
        tos: 0,
        id: 0,
        payload: vec![0; 16],
    });
    let mut c = end(&ends.network, 3);
    let qc = c.create_qp(ATTR).unwrap();
    let remote = RemoteQp {
        addr: addr(2),
        qpn: ends.qb,
    };
    c.connect_qp(qc, remote).unwrap();
    // No link leads from there.
    assert!(c.post_send(qc, b"x").unwrap());
    assert_eq!(ends.network.undeliverable(), 2);
    ends.send(&[1]);
    ends.send(&[2]);
    let Ends { network, b, .. } = ends;
    drop(b);
    network.advance_to(0);
    assert_eq!(network.undeliverable(), 4);
}

#[test]
fn three_ends_on_one_clock() {
    let network = SimNetwork::new(1);
    let mut ends: Vec<_> = (1..=3).map(|host| end(&network, host)).collect();
    let away = Duration::from_micros;
    network
        .connect(ip(1), ip(2), delay(away(1)), delay(away(1)))
        .unwrap();
    network
        .connect(ip(1), ip(3), delay(away(3)), delay(away(3)))
        .unwrap();
    for (other, bytes) in [(2, b"far"), (1, b"few")] {
        let (near, far) = (
            ends[0].create_qp(ATTR).unwrap(),
            ends[other].create_qp(ATTR).unwrap(),
        );
        let addrs = [0, other].map(|end| ends[end].local_addr(0));
        ends[0]
            .connect_qp(
                near,
                RemoteQp {
                    addr: addrs[1],
                    qpn: far,
                },
            )
            .unwrap();
        ends[other]
            .connect_qp(
                far,
                RemoteQp {
                    addr: addrs[0],
                    qpn: near,
                },
            )
            .unwrap();
        ends[0].post_send(near, bytes).unwrap();
    }
    let mut log = Vec::new();
    while let Some(next_ns) = network.next_ns() {
        network.advance_to(next_ns);
        for (i, end) in ends.iter_mut().enumerate() {
            let mut completions = Vec::new();
            end.poll(&mut completions).unwrap();
            log.extend(completions.iter().map(|_| (next_ns, i)));
        }
    }
    assert_eq!(log, [(1_000, 1), (3_000, 2)]);
}

/// Moves 100 KiB over a link that has a rate and losses. Returns the arrival time and the size of
/// each packet.
fn timing(memory: impl Fn() -> Region) -> Vec<(Option<u64>, u32)> {
    let link = LinkConfig {
        delay: Duration::from_millis(3),
        rate_bps: Some(1_000_000_000),
        loss: Loss::Iid { loss_packet: 0.1 },
        ..LinkConfig::default()
    };
    let mut ends = Ends::new(7, link);
    let source = ends.a.register(memory()).unwrap();
    let target = ends.b.register(memory()).unwrap();
    let length = ends.b.region(target).unwrap().length();
    let set = ends.b.create_windows(&[ends.qb], 1, length).unwrap();
    let opened = ends.b.open_window(set, 0, target, 0, length);
    let (_, place) = opened.unwrap();
    for offset in (0..length).step_by(1024) {
        let local = [Sge {
            lkey: source,
            offset,
            length: 1024,
        }];
        let write = WriteWr {
            wr_id: 0,
            signaled: false,
            local: &local,
            remote_addr: place.addr + offset,
            rkey: place.rkey,
            imm: 0,
        };
        assert_eq!(ends.a.post_writes(ends.qa, &[write]).unwrap(), 1);
    }
    ends.network.advance_to(1_000_000_000);
    let mut completions = Vec::new();
    while ends.b.poll(&mut completions).unwrap() {}
    let arrived = completions.into_iter().map(|completion| match completion {
        Completion::Write {
            bytes, arrived_ns, ..
        } => (arrived_ns, bytes),
        Completion::Send(send) => panic!("{send:?}"),
    });
    arrived.collect()
}

#[test]
fn ghosts_arrive_when_bytes_do() {
    let ghosts = timing(|| Region::ghost(100 << 10));
    assert_eq!(ghosts, timing(|| Region::owned(vec![3; 100 << 10])));
    assert!((50..100).contains(&ghosts.len()), "some are lost");
    // Packets of 1024 bytes and 64 of headers follow each other at the rate of the link.
    let first_ns = ghosts[0].0.unwrap();
    assert!(first_ns > 3_000_000);
    assert!(
        ghosts
            .iter()
            .all(|(at, _)| (at.unwrap() - first_ns) % (1088 * 8) == 0)
    );
}

#[test]
fn two_pairs_of_hosts_share_a_link() {
    let link = LinkConfig {
        rate_bps: Some(8_000_000),
        ..LinkConfig::default()
    };
    let mut ends = Ends::new(1, link);
    let shared = (ip(1), ip(2));
    ends.network.share_link(ip(3), ip(2), shared).unwrap();
    let mut third = end(&ends.network, 3);
    let qpn = third.create_qp(ATTR).unwrap();
    let remote = RemoteQp {
        addr: addr(2),
        qpn: ends.qb,
    };
    third.connect_qp(qpn, remote).unwrap();
    let backlog_bytes = |ends: &Ends| ends.network.link_backlog_bytes(ip(1), ip(2)).unwrap();
    ends.send(&[1; 1000]);
    let one_bytes = backlog_bytes(&ends);
    assert!(third.post_send(qpn, &[3; 1000]).unwrap());
    assert_eq!(backlog_bytes(&ends), 2 * one_bytes);
    assert_eq!(ends.network.undeliverable(), 0);
    // No link leads from the second host to the third one.
    let nothing = ends.network.share_link(ip(2), ip(1), (ip(2), ip(3)));
    let (from, to) = (ip(2), ip(3));
    assert_eq!(nothing, Err(SimError::NoLink { from, to }));
}
