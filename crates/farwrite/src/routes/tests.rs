//! One socket with several peers.

use std::net::{IpAddr, Ipv4Addr};

use farwrite_fabric::contract::{Fabric, RealTime};

use super::*;
use crate::{Outcome, QpConfig, QpOptions, SendOptions, UdpConfig};

const PATIENCE: Duration = Duration::from_secs(20);
const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

struct End {
    endpoint: Endpoint<UdpFabric>,
    keeper: RouteKeeper,
}

impl End {
    fn new() -> Self {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            endpoint: Endpoint::over_udp(&UdpConfig::new(loopback)).expect("a socket"),
            keeper: RouteKeeper::new(),
        }
    }

    fn offer(&mut self) -> (RouteId, RouteOffer) {
        self.keeper.offer(&self.endpoint).expect("an offer")
    }

    fn join(&mut self, id: RouteId, role: Role, theirs: &RouteOffer, sizes: Sizes) {
        let joined = self.keeper.join(&self.endpoint, id, role, theirs, sizes);
        joined.expect("joined");
    }

    fn poll(&mut self) {
        self.endpoint.poll_now().expect("a poll");
        self.keeper.poll(&mut self.endpoint).expect("a poll");
    }

    fn found(&self, id: RouteId) -> Option<FoundRoute> {
        self.keeper.found(id, PATIENCE).expect("a route")
    }

    fn create_qp(&mut self, options: QpOptions) -> (QueuePair, QpInfo) {
        let qp = self.endpoint.create_qp(options).expect("created");
        (qp, self.endpoint.qp_info(qp).expect("info"))
    }

    fn connect(&mut self, id: RouteId, qp: QueuePair, theirs: &QpInfo) {
        let connected = self.keeper.connect(&mut self.endpoint, id, qp, theirs);
        connected.expect("connected");
    }

    fn traffic(&self, qp: QueuePair) -> [u64; 2] {
        self.endpoint.traffic(qp).expect("connected")
    }

    fn address(&self) -> SocketAddr {
        self.endpoint.fabric().local_addr(0)
    }
}

/// Joins two ends, and returns the route at each.
fn join(a: &mut End, b: &mut End, sizes: Sizes) -> (RouteId, RouteId) {
    let ((at_a, of_a), (at_b, of_b)) = (a.offer(), b.offer());
    a.join(at_a, Role::Initiator, &of_b, sizes);
    b.join(at_b, Role::Responder, &of_a, Sizes::Untested);
    (at_a, at_b)
}

/// One end in the middle, and ends around it with a route each: at the end, and in the middle. Ends
/// with an even number are initiators.
fn star(ends: usize) -> (End, Vec<(End, RouteId, RouteId)>) {
    let mut middle = End::new();
    let around = (0..ends).map(|number| {
        let mut end = End::new();
        let sizes = Sizes::Largest {
            least_mtu: 256,
            largest_mtu: None,
        };
        let (outer, inner) = if number % 2 == 0 {
            join(&mut end, &mut middle, sizes)
        } else {
            let (inner, outer) = join(&mut middle, &mut end, sizes);
            (outer, inner)
        };
        (end, outer, inner)
    });
    let around = around.collect();
    (middle, around)
}

/// Creates queue pairs of an end and of the one in the middle, and connects them.
fn connect(
    middle: &mut End,
    (end, outer, inner): &mut (End, RouteId, RouteId),
    options: &QpOptions,
) -> (QueuePair, QueuePair) {
    let (at_end, of_end) = end.create_qp(options.clone());
    let (at_middle, of_middle) = middle.create_qp(options.clone());
    end.connect(*outer, at_end, &of_middle);
    middle.connect(*inner, at_middle, &of_end);
    (at_end, at_middle)
}

fn poll_until_found(middle: &mut End, around: &mut [(End, RouteId, RouteId)]) {
    let is_found = |middle: &End, around: &[(End, RouteId, RouteId)]| {
        let mut all = around.iter();
        all.all(|(end, outer, inner)| end.found(*outer).is_some() && middle.found(*inner).is_some())
    };
    while !is_found(middle, around) {
        poll_all(middle, around);
    }
}

fn poll_all(middle: &mut End, around: &mut [(End, RouteId, RouteId)]) {
    middle.poll();
    around.iter_mut().for_each(|(end, ..)| end.poll());
}

#[test]
fn a_route_that_fails_leaves_the_others() {
    let mut middle = End::new();
    let mut joined = |address: Option<SocketAddr>| {
        let mut end = End::new();
        let ((outer, mut of_end), (inner, of_middle)) = (end.offer(), middle.offer());
        of_end.address = address.unwrap_or(of_end.address);
        middle.join(inner, Role::Initiator, &of_end, Sizes::Untested);
        end.join(outer, Role::Responder, &of_middle, Sizes::Untested);
        (end, inner)
    };
    let (first_end, first) = joined(None);
    // The system lets no packet go to this address.
    let (second_end, second) = joined(Some(SocketAddr::from((Ipv4Addr::BROADCAST, 9))));
    let mut around = [first_end, second_end];
    let mut failed = Vec::new();
    let until = std::time::Instant::now() + PATIENCE;
    while failed.is_empty() || middle.found(first).is_none() {
        assert!(std::time::Instant::now() < until, "failed: {failed:?}");
        middle.endpoint.poll_now().expect("a poll");
        let mut served = Vec::new();
        middle.keeper.poll_each(&mut middle.endpoint, &mut served);
        failed.extend(served.into_iter().filter(|(_, served)| served.is_err()));
        around.iter_mut().for_each(End::poll);
    }
    let failed: Vec<_> = failed.iter().map(|(id, _)| *id).collect();
    assert_eq!(failed, [second]);
}

#[test]
fn every_peer_of_one_socket_is_found_and_gets_its_own_data() {
    let (mut middle, mut around) = star(5);
    poll_until_found(&mut middle, &mut around);
    let mut sends = Vec::new();
    for (number, one) in around.iter_mut().enumerate() {
        let (end, outer, inner) = &*one;
        let (there, here) = (end.found(*outer), middle.found(*inner));
        let (there, here) = (there.expect("found"), here.expect("found"));
        assert_eq!((there.peer, here.peer), (middle.address(), end.address()));
        assert_eq!(middle.keeper.peer(*inner), Some(end.address()));
        // The initiator of each pair has tested the sizes; loopback carries all of them.
        let mtu = there.mtu.or(here.mtu).expect("one end has tested");
        assert_eq!(mtu, payload_in(9000, end.address()));
        let sdr = QpConfig {
            mtu,
            ..QpConfig::default()
        };
        let options = QpOptions {
            sdr,
            ..QpOptions::default()
        };
        let (at_end, at_middle) = connect(&mut middle, one, &options);
        let end = &mut one.0;
        let target = middle.endpoint.register(vec![0; 100_000]).expect("memory");
        let recv = middle.endpoint.post_recv(at_middle, target.whole());
        let byte = u8::try_from(number + 1).expect("few");
        let source = end.endpoint.register(vec![byte; 100_000]).expect("memory");
        let send = end
            .endpoint
            .post_send(at_end, source.whole(), SendOptions::default());
        sends.push((byte, target, recv.expect("posted"), send.expect("posted")));
    }
    while sends.iter().any(|(.., send)| send.outcome().is_none()) {
        poll_all(&mut middle, &mut around);
    }
    for (byte, target, recv, _) in sends {
        assert_eq!(recv.outcome(), Some(Outcome::Whole));
        let came = middle.endpoint.memory(target).expect("memory");
        assert!(came.iter().all(|came| *came == byte));
    }
}

#[test]
fn traffic_is_counted_for_the_peer_that_it_is_of() {
    let (mut middle, mut around) = star(2);
    poll_until_found(&mut middle, &mut around);
    let options = QpOptions::default();
    let ends = around.iter_mut();
    let pairs: Vec<_> = ends
        .map(|one| connect(&mut middle, one, &options))
        .collect();
    let traffic = |middle: &End| [0, 1].map(|end: usize| middle.traffic(pairs[end].1));
    // Queue pairs ask for the round trip once.
    while traffic(&middle).as_flattened().contains(&0) {
        poll_all(&mut middle, &mut around);
    }
    let before = traffic(&middle);
    let target = middle.endpoint.register(vec![0; 10_000]).expect("memory");
    let recv = middle.endpoint.post_recv(pairs[0].1, target.whole());
    let recv = recv.expect("posted");
    let (end, ..) = &mut around[0];
    let source = end.endpoint.register(vec![1; 10_000]).expect("memory");
    let send = end
        .endpoint
        .post_send(pairs[0].0, source.whole(), SendOptions::default());
    let send = send.expect("posted");
    while send.outcome().is_none() || recv.outcome().is_none() {
        middle.poll();
        end.poll();
    }
    let after = traffic(&middle);
    assert!(after[0][1] >= before[0][1] + 3, "{before:?}, {after:?}");
    assert_eq!(after[1][1], before[1][1], "the other peer was silent");
}

#[test]
fn a_peer_whose_address_changes_is_followed() {
    let (mut near, mut far) = (End::new(), End::new());
    let (at_near, at_far) = join(&mut near, &mut far, Sizes::Untested);
    while near.found(at_near).is_none() || far.found(at_far).is_none() {
        near.poll();
        far.poll();
    }
    assert_eq!(far.keeper.peer(at_far), Some(near.address()));
    // The same machine with another socket, as after a change of the mapping: keys and counters of
    // the route continue.
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let other = Endpoint::over_udp(&UdpConfig::new(loopback)).expect("a socket");
    let old = std::mem::replace(&mut near.endpoint, other);
    drop(old);
    // Nothing comes from `far`, so the initiator asks once its keep-alive is due.
    let joined = near.keeper.routes[0].joined.as_mut().expect("joined");
    let due_ns = joined.0;
    let now_ns = near.endpoint.fabric().now_ns();
    assert!(due_ns <= now_ns + 15_000_000_000 && due_ns > now_ns);
    let sent = joined.1.serve(&mut near.endpoint, due_ns);
    sent.expect("a keep-alive");
    while far.keeper.peer(at_far) != Some(near.address()) {
        near.poll();
        far.poll();
    }
}

#[test]
fn packets_of_one_peer_do_not_pass_for_those_of_another() {
    let (mut middle, mut around) = star(2);
    let [key, other] = [0, 1].map(|route| middle.keeper.routes[route].key.clone());
    assert_ne!(key, other);
    let mut thief = End::new();
    // The second peer knows its own key, and states the index of the first.
    let probe = |key: &[u8; 32], index: u16, counter: u64| {
        let packet = farwrite_route::RoutePacket {
            kind: farwrite_route::PacketType::Probe,
            channel: 0,
            index,
            counter,
            hears_nothing: false,
            from: SocketAddr::from(([10, 0, 0, 1], 1)),
            to: SocketAddr::from(([10, 0, 0, 2], 1)),
        };
        packet.seal(key, 256)
    };
    for (counter, index) in [(1, 0), (2, 2), (3, u16::MAX)] {
        let bytes = probe(&other, index, counter);
        let to = middle.address();
        let sent = thief
            .endpoint
            .fabric()
            .send_owners_packet(0, ANY, to, &bytes);
        assert!(sent.expect("sent"));
    }
    poll_until_found(&mut middle, &mut around);
    thief.poll();
    assert_eq!(
        thief.endpoint.fabric().take_route_packets(),
        [],
        "no answer"
    );
    for (end, _, inner) in &around {
        assert_eq!(middle.keeper.peer(*inner), Some(end.address()));
    }
}

#[test]
fn names_of_routes_that_are_gone_are_refused() {
    let (mut a, mut b) = (End::new(), End::new());
    let (at_a, at_b) = join(&mut a, &mut b, Sizes::Untested);
    a.keeper.remove(at_a).expect("there");
    let gone = RouteError::NoSuchRoute(1);
    assert_eq!(a.keeper.remove(at_a), Err(gone.clone()));
    let (again, offer) = a.offer();
    assert_eq!((again.index, offer.index), (at_a.index, 0));
    assert_eq!(a.keeper.found(at_a, PATIENCE), Err(gone));
    assert_eq!(
        a.keeper.found(again, PATIENCE),
        Err(RouteError::NotFound(2))
    );
    let twice = b
        .keeper
        .join(&b.endpoint, at_b, Role::Responder, &offer, Sizes::Untested);
    assert!(matches!(twice, Err(Error::Route(RouteError::Joined(1)))));
    // The peer has forgotten the route, so it does not answer.
    let (waits, ends) = (Duration::from_secs(60), Duration::ZERO);
    b.poll();
    assert_eq!(b.keeper.found(at_b, waits), Ok(None));
    let blocked = b.keeper.found(at_b, ends).expect_err("no answer");
    assert!(matches!(blocked, RouteError::Blocked { .. }), "{blocked}");
}

#[test]
fn an_address_that_is_none_is_refused() {
    let mut end = End::new();
    for bad in ["192.0.2.1:0", "0.0.0.0:4792", "[::]:4792"] {
        let (id, mut offer) = end.offer();
        offer.address = bad.parse().expect("an address");
        let joined = end
            .keeper
            .join(&end.endpoint, id, Role::Initiator, &offer, Sizes::Untested);
        let error = joined.expect_err(bad).to_string();
        assert!(error.contains(bad), "{error}");
    }
}

#[test]
fn a_size_that_the_route_does_not_carry_is_refused() {
    let (mut a, mut b) = (End::new(), End::new());
    // Longer than any datagram.
    let (at_a, _) = join(&mut a, &mut b, Sizes::Exactly { mtu: 65_532 });
    let error = loop {
        a.poll();
        b.poll();
        match a.keeper.found(at_a, PATIENCE) {
            Ok(found) => assert_eq!(found, None),
            Err(error) => break error,
        }
    };
    let peer = b.address();
    assert_eq!(error, RouteError::TooLarge { peer, mtu: 65_532 });
}
