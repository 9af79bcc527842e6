//! Sockets of a UDP fabric: connected ones for peers, and the open one for strangers and path
//! packets.
#![cfg(target_os = "linux")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Completion, Fabric, QpAttr, QpRoute, Qpn, RemoteQp};
use farwrite_fabric::udp::{
    ReservedPort, SocketConfig, UdpConfig, UdpFabric, UdpSocket as FabricSocket,
};
use farwrite_wire::opcode::{HANDSHAKE_PACKET, ROUTE_PACKET};

const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Returns a fabric whose sockets have room for some thousand small packets.
fn bind(addr: &str) -> Adapter<UdpFabric> {
    let fabric = UdpFabric::bind(&config(addr.parse().expect("an address")));
    Adapter::new(fabric.expect("sockets")).expect("all queues")
}

/// Same as [`bind`], at a port that is held at `held`.
fn bind_beside(addr: IpAddr, held: &ReservedPort) -> Adapter<UdpFabric> {
    let at = SocketAddr::new(addr, held.local_addr().port());
    let fabric = UdpFabric::bind_beside(&config(at), held);
    Adapter::new(fabric.expect("sockets")).expect("all queues")
}

fn config(bind: SocketAddr) -> UdpConfig {
    let socket = SocketConfig {
        recv_buffer_bytes: 256 << 10,
        ..SocketConfig::new(bind)
    };
    UdpConfig { socket, ports: 1 }
}

fn queue_pair(fabric: &mut Adapter<UdpFabric>) -> Qpn {
    let attr = QpAttr {
        mtu: 1024,
        port: 0,
        context: 0,
        recv_buffers: 1000,
    };
    fabric.create_qp(attr).expect("a queue pair")
}

/// Returns two fabrics, joined by a queue pair on each.
fn pair(addr: &str) -> [(Adapter<UdpFabric>, Qpn); 2] {
    join(bind(addr), bind(addr))
}

fn join(mut a: Adapter<UdpFabric>, mut b: Adapter<UdpFabric>) -> [(Adapter<UdpFabric>, Qpn); 2] {
    let (qa, qb) = (queue_pair(&mut a), queue_pair(&mut b));
    let at = |fabric: &Adapter<UdpFabric>, qpn| RemoteQp {
        addr: fabric.local_addr(0),
        qpn,
    };
    a.connect_qp(qa, at(&b, qb)).expect("connected");
    b.connect_qp(qb, at(&a, qa)).expect("connected");
    [(a, qa), (b, qb)]
}

/// Polls until `count` completions have arrived. Gives up after one minute.
fn completions(fabric: &mut Adapter<UdpFabric>, count: usize) -> Vec<Completion> {
    completions_within(fabric, count, Duration::from_secs(60))
}

/// Polls for two seconds, or until a completion arrives.
fn unexpected(fabric: &mut Adapter<UdpFabric>) -> Vec<Completion> {
    completions_within(fabric, 1, Duration::from_secs(2))
}

/// Polls until `count` completions have arrived, or until this time has passed.
fn completions_within(
    fabric: &mut Adapter<UdpFabric>,
    count: usize,
    time: Duration,
) -> Vec<Completion> {
    let end = Instant::now() + time;
    let mut out = Vec::new();
    while out.len() < count && Instant::now() < end {
        fabric.wait(Duration::from_millis(20)).expect("sockets");
        fabric.poll(&mut out).expect("sockets");
    }
    out
}

#[test]
fn a_flood_of_strangers_drops_its_own_packets_only() {
    for (addr, held) in [
        ("127.0.0.1:0", None),
        ("[::1]:0", None),
        // A program holds the port, for one address or for all of them.
        ("127.0.0.1:0", Some("127.0.0.1:0")),
        ("[::1]:0", Some("[::1]:0")),
        ("127.0.0.1:0", Some("0.0.0.0:0")),
        ("127.0.0.1:0", Some("[::]:0")),
    ] {
        let held = held.map(|held| ReservedPort::bind(held.parse().expect("an address")));
        let held = held.map(|held| held.expect("a port"));
        let [(mut a, qa), (mut b, _)] = match &held {
            None => pair(addr),
            Some(held) => join(bind(addr), bind_beside(bind(addr).local_addr(0).ip(), held)),
        };
        let stranger = UdpSocket::bind(addr).expect("a socket");
        let to = b.local_addr(0);
        for _ in 0..20_000 {
            stranger.send_to(&[0x2B; 200], to).expect("sent");
        }
        for _ in 0..100 {
            assert!(a.post_send(qa, &[7; 100]).expect("sent"));
        }
        assert_eq!(completions(&mut b, 100).len(), 100, "{addr}");
        // The system reports drops together with the next received packet.
        let end = Instant::now() + Duration::from_secs(60);
        while b.counters().stranger_drops == 0 && Instant::now() < end {
            stranger.send_to(&[0x2B; 200], to).expect("sent");
            completions(&mut b, 0);
            b.poll(&mut Vec::new()).expect("sockets");
        }
        let counters = b.counters();
        assert!(counters.stranger_drops > 1000, "{addr}: {counters:?}");
        assert_eq!(counters.socket_drops, 0, "{addr}: {counters:?}");
    }
}

/// One of many peers of a port.
struct Peer {
    fabric: Adapter<UdpFabric>,
    qpn: Qpn,
    /// The queue pair that is joined to it.
    hub_qpn: Qpn,
}

/// Returns a fabric, and `count` peers of its port.
fn star(count: usize) -> (Adapter<UdpFabric>, Vec<Peer>) {
    let mut hub = bind("127.0.0.1:0");
    let join = |_| {
        let mut fabric = bind("127.0.0.1:0");
        let (hub_qpn, qpn) = (queue_pair(&mut hub), queue_pair(&mut fabric));
        let at = |fabric: &Adapter<UdpFabric>, qpn| RemoteQp {
            addr: fabric.local_addr(0),
            qpn,
        };
        hub.connect_qp(hub_qpn, at(&fabric, qpn))
            .expect("connected");
        fabric
            .connect_qp(qpn, at(&hub, hub_qpn))
            .expect("connected");
        Peer {
            fabric,
            qpn,
            hub_qpn,
        }
    };
    let peers = (0..count).map(join).collect();
    (hub, peers)
}

/// Each of these peers sends `each` packets, after a flood of a stranger. Checks that all packets of
/// peers arrive. Returns the drops of sockets of peers, and of the socket of strangers.
fn send_after_a_flood(hub: &mut Adapter<UdpFabric>, peers: &mut [Peer], each: usize) -> [u64; 2] {
    let before = hub.counters();
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = hub.local_addr(0);
    for _ in 0..20_000 {
        stranger.send_to(&[0x2B; 200], to).expect("sent");
    }
    for peer in &mut *peers {
        for _ in 0..each {
            assert!(peer.fabric.post_send(peer.qpn, &[7; 100]).expect("sent"));
        }
    }
    let count = peers.len() * each;
    assert_eq!(completions(hub, count).len(), count);
    // The system reports drops together with the next received packet.
    let drops = |hub: &Adapter<UdpFabric>| {
        let now = hub.counters();
        [
            now.socket_drops - before.socket_drops,
            now.stranger_drops - before.stranger_drops,
        ]
    };
    let end = Instant::now() + Duration::from_secs(60);
    while drops(hub) == [0, 0] && Instant::now() < end {
        stranger.send_to(&[0x2B; 200], to).expect("sent");
        hub.poll(&mut Vec::new()).expect("sockets");
    }
    drops(hub)
}

#[test]
fn a_flood_of_strangers_drops_no_packet_of_many_peers() {
    let (mut hub, mut peers) = star(40);
    let [of_peers, of_strangers] = send_after_a_flood(&mut hub, &mut peers, 20);
    assert_eq!(of_peers, 0);
    assert!(of_strangers > 1000, "{of_strangers}");
}

#[test]
fn one_of_many_peers_wakes_a_waiting_port() {
    let (mut hub, mut peers) = star(40);
    for peer in &mut peers {
        assert!(peer.fabric.post_send(peer.qpn, &[7; 100]).expect("sent"));
        let start = Instant::now();
        hub.wait(Duration::from_secs(60)).expect("sockets");
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "no packet woke it"
        );
        assert_eq!(completions(&mut hub, 1).len(), 1);
    }
}

/// The last six peers share the socket of strangers until others leave.
#[test]
fn peers_without_a_socket_get_one_when_others_leave() {
    let (mut hub, mut peers) = star(70);
    for peer in &mut peers {
        assert!(peer.fabric.post_send(peer.qpn, &[7; 100]).expect("sent"));
    }
    assert_eq!(completions(&mut hub, 70).len(), 70);
    for peer in peers.drain(..6) {
        hub.disconnect_qp(peer.hub_qpn).expect("disconnected");
    }
    let [of_peers, of_strangers] = send_after_a_flood(&mut hub, &mut peers, 20);
    assert_eq!(of_peers, 0);
    assert!(of_strangers > 1000, "{of_strangers}");
}

#[test]
fn no_other_program_gets_the_port_of_a_connected_socket() {
    let [(a, _), (b, _)] = pair("127.0.0.1:0");
    for fabric in [a, b] {
        UdpSocket::bind(fabric.local_addr(0)).expect_err("in use");
        let config = UdpConfig::new(fabric.local_addr(0));
        UdpFabric::bind(&config).map(drop).expect_err("in use");
    }
}

#[test]
fn a_peer_at_a_new_address_is_received_there() {
    let [(mut a, qa), (mut b, qb)] = pair("127.0.0.1:0");
    let mut c = bind("127.0.0.1:0");
    let qc = queue_pair(&mut c);
    let to_b = RemoteQp {
        addr: b.local_addr(0),
        qpn: qb,
    };
    c.connect_qp(qc, to_b).expect("connected");
    b.set_route(qb, QpRoute::to(c.local_addr(0)))
        .expect("moved");
    for _ in 0..10 {
        assert!(c.post_send(qc, &[1; 100]).expect("sent"));
        assert!(a.post_send(qa, &[2; 100]).expect("sent"));
    }
    let of_c = |completion: &Completion| {
        matches!(completion, Completion::Send(send)
            if send.payload == [1; 100] && send.from == farwrite_fabric::contract::Sender::Validated)
    };
    let arrived = completions(&mut b, 20);
    assert_eq!(arrived.iter().filter(|c| of_c(c)).count(), 10);
    assert_eq!(
        b.counters().unvalidated_packets,
        10,
        "those of the old address"
    );
    b.disconnect_qp(qb).expect("disconnected");
    assert_eq!(unexpected(&mut b), []);
}

#[test]
fn route_packets_come_to_the_owner_from_peers_and_strangers() {
    let [(a, _), (mut b, _)] = pair("127.0.0.1:0");
    let to = b.local_addr(0);
    let mut bytes = vec![5; 300];
    bytes[0] = ROUTE_PACKET;
    assert!(a.send_owners_packet(0, ANY, to, &bytes).expect("sent"));
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    stranger.send_to(&bytes, to).expect("sent");
    assert_eq!(unexpected(&mut b), [], "the NIC does not see them");
    let came = b.take_route_packets();
    let mut from: Vec<SocketAddr> = came.iter().map(|datagram| datagram.src).collect();
    from.sort();
    let mut expected = [a.local_addr(0), stranger.local_addr().expect("an address")];
    expected.sort();
    assert_eq!(from, expected);
    assert!(
        came.iter()
            .all(|d| d.dst == to && d.port == 0 && d.bytes == bytes)
    );
    assert_eq!(b.take_route_packets(), []);
    assert_eq!(b.counters().taken_packets(), 0);
}

/// Strangers can send as many as they like. The owner of most fabrics takes none.
#[test]
fn packets_of_handshakes_do_not_displace_route_packets() {
    let [(mut a, _), (mut b, _)] = pair("127.0.0.1:0");
    let (from, to) = (a.local_addr(0), b.local_addr(0));
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for length in [1200, 1201] {
        let bytes = vec![HANDSHAKE_PACKET; length];
        for _ in 0..200 {
            stranger.send_to(&bytes, to).expect("sent");
        }
        assert_eq!(unexpected(&mut b), [], "the NIC does not see them");
    }
    let route = [ROUTE_PACKET; 80];
    assert!(a.send_owners_packet(0, ANY, to, &route).expect("sent"));
    assert_eq!(unexpected(&mut b), []);
    assert_eq!(b.take_route_packets().len(), 1);
    let came = b.take_handshake_packets();
    assert_eq!(came.len(), 200, "longer ones are dropped");
    assert!(came.iter().all(|datagram| datagram.bytes.len() == 1200));
    assert_eq!(b.counters().taken_packets(), 0);
    // The answers go the same way.
    let answer = [HANDSHAKE_PACKET; 80];
    assert!(
        b.send_owners_packet(0, to.ip(), from, &answer)
            .expect("sent")
    );
    assert_eq!(unexpected(&mut a), []);
    assert_eq!(a.take_handshake_packets().len(), 1);
    assert!(!a.is_wildcard(0));
}

/// Each fabric has a peer of its own. Every fabric gets the route packets, because the socket cannot tell for
/// which fabric they are.
#[test]
fn fabrics_at_one_port_get_what_is_theirs() {
    let held = ReservedPort::bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let at = held.local_addr().ip();
    let mut hubs = [(); 3].map(|()| bind_beside(at, &held));
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for round in 1..=2 {
        let mut peers = [(); 3].map(|()| bind("127.0.0.1:0"));
        let mut pairs = Vec::new();
        for (hub, peer) in hubs.iter_mut().zip(&mut peers) {
            let (of_hub, of_peer) = (queue_pair(hub), queue_pair(peer));
            let remote = |fabric: &Adapter<UdpFabric>, qpn| RemoteQp {
                addr: fabric.local_addr(0),
                qpn,
            };
            peer.connect_qp(of_peer, remote(hub, of_hub))
                .expect("connected");
            hub.connect_qp(of_hub, remote(peer, of_peer))
                .expect("connected");
            pairs.push((of_hub, of_peer));
        }
        for (peer, (_, qpn)) in peers.iter_mut().zip(&pairs) {
            for _ in 0..100 {
                assert!(peer.post_send(*qpn, &[7; 100]).expect("sent"));
            }
        }
        let bytes = [ROUTE_PACKET; 80];
        stranger.send_to(&bytes, held.local_addr()).expect("sent");
        for (hub, (qpn, _)) in hubs.iter_mut().zip(&pairs) {
            assert_eq!(completions(hub, 100).len(), 100, "round {round}");
            let end = Instant::now() + Duration::from_secs(60);
            let mut came = hub.take_route_packets();
            while came.is_empty() && Instant::now() < end {
                hub.wait(Duration::from_millis(1)).expect("sockets");
                hub.poll(&mut Vec::new()).expect("sockets");
                came = hub.take_route_packets();
            }
            assert_eq!(came.len(), 1, "round {round}");
            assert_eq!(hub.counters().taken_packets(), 100 * round);
            hub.disconnect_qp(*qpn).expect("disconnected");
        }
    }
    drop(hubs);
    bind_beside(at, &held);
}

#[test]
fn a_route_packet_that_this_machine_does_not_send_is_said_to_be_too_large() {
    let [(a, _), (b, _)] = pair("127.0.0.1:0");
    let to = b.local_addr(0);
    let bytes = vec![ROUTE_PACKET; 65_508];
    assert!(!a.send_owners_packet(0, ANY, to, &bytes).expect("no error"));
    a.send_owners_packet(1, ANY, to, &bytes)
        .expect_err("one port");
}

/// The kernel gives each packet of a stranger to one socket of a port: the one with the exact address, or the one that
/// was bound last. A listener beside it gets those for owners, and does not wait for another fabric to read that socket.
#[test]
fn a_listener_gets_what_strangers_send_to_other_sockets_of_its_port() {
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for at in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
        let held = ReservedPort::bind(at.parse().expect("an address")).expect("a port");
        let mut listener = bind_beside(held.local_addr().ip(), &held);
        listener.await_strangers();
        let exact = SocketAddr::from((Ipv4Addr::LOCALHOST, held.local_addr().port()));
        let mut heard = |pass: &mut dyn FnMut()| {
            stranger
                .send_to(&[HANDSHAKE_PACKET; 80], exact)
                .expect("sent");
            let end = Instant::now() + Duration::from_secs(60);
            let mut came = listener.take_handshake_packets();
            while came.is_empty() && Instant::now() < end {
                pass();
                listener.wait(Duration::from_secs(60)).expect("sockets");
                listener.poll(&mut Vec::new()).expect("sockets");
                came = listener.take_handshake_packets();
            }
            assert_eq!(came.len(), 1, "{at}");
            assert_eq!(came[0].dst, exact, "{at}");
        };
        heard(&mut || {});
        // A fabric with a peer of its own, as a transfer has.
        let mut beside = bind_beside(exact.ip(), &held);
        let mut peer = bind("127.0.0.1:0");
        let (of_beside, of_peer) = (queue_pair(&mut beside), queue_pair(&mut peer));
        let remote = |addr, qpn| RemoteQp { addr, qpn };
        peer.connect_qp(of_peer, remote(exact, of_beside))
            .expect("connected");
        beside
            .connect_qp(of_beside, remote(peer.local_addr(0), of_peer))
            .expect("connected");
        heard(&mut || {});
        assert!(peer.post_send(of_peer, &[7; 100]).expect("sent"));
        assert_eq!(completions(&mut beside, 1).len(), 1, "{at}");
        // A socket that is no fabric, as a probe has.
        let mut socket =
            FabricSocket::bind_beside(&SocketConfig::new(exact), &held).expect("a socket");
        let mut taken = 0;
        heard(&mut || {
            let (batches, _) = socket.recv().expect("sockets");
            for batch in batches {
                taken += 1;
                held.pass(&batch);
            }
        });
        assert_eq!(
            taken, 1,
            "{at}: the socket has the exact address, and was bound last"
        );
    }
}
