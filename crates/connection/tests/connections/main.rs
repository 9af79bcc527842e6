//! Connections over loopback sockets.

mod queue_pairs;

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farwrite::{Outcome, QpOptions, SendOptions};
use farwrite_connection::{
    ByeCause, Connection, ConnectionOptions, Ended, Error, Keys, Listener, MessageOptions,
    Messages, OpenedQueuePair, Purpose, SentMessage, TooLong, connect,
};
use farwrite_keys::{Code, Identity, KnownPeers, Proof, Psk};

const LONG: Duration = Duration::from_secs(20);
const LOOPBACK: &str = "127.0.0.1:0";

fn options() -> ConnectionOptions {
    ConnectionOptions::default()
}

fn identity() -> Identity {
    Identity::generate().expect("randomness")
}

fn knows(peers: &[(&str, &Identity)]) -> KnownPeers {
    let mut known = KnownPeers::default();
    for (name, identity) in peers {
        known.add(name, identity.public()).expect("a name");
    }
    known
}

/// A listener, and keys of an initiator that it knows as `site-a`.
fn listener(addr: &str, options: &ConnectionOptions) -> (Listener, String, Keys) {
    let [a, b] = [identity(), identity()];
    let of_b = Keys::of_identity(b.clone(), knows(&[("site-a", &a)]));
    let of_a = Keys::of_identity(a, knows(&[("site-b", &b)]));
    let addr: SocketAddr = addr.parse().expect("an address");
    let listener = Listener::bind(addr, &of_b, options).expect("a port");
    let to = SocketAddr::new(addr.ip(), listener.local_addr().port());
    (listener, to.to_string(), of_a)
}

fn accepted(listener: &Listener) -> Connection {
    let accepted = listener.accept(LONG).expect("no failure");
    accepted.expect("a connection")
}

/// Both ends of a connection.
fn pair(addr: &str) -> (Listener, Connection, Connection) {
    let (listener, to, keys) = listener(addr, &options());
    let a = connect(&to, &keys, "site-b", &options()).expect("connected");
    let b = accepted(&listener);
    (listener, a, b)
}

/// Opens a queue pair at one end and accepts it at the other.
fn opened(a: &Connection, b: &Connection, name: &str) -> (OpenedQueuePair, OpenedQueuePair) {
    opened_with(a, b, name, &QpOptions::default())
}

fn opened_with(
    a: &Connection,
    b: &Connection,
    name: &str,
    options: &QpOptions,
) -> (OpenedQueuePair, OpenedQueuePair) {
    thread::scope(|scope| {
        let opened = scope.spawn(|| a.open_queue_pair(name, options.clone(), LONG));
        let accepted = b.accept_queue_pair(Some(name), options, LONG);
        let accepted = accepted.expect("no failure").expect("in time");
        let opened = opened.join().expect("no panic");
        (opened.expect("accepted"), accepted)
    })
}

fn messages(pair: OpenedQueuePair) -> Messages {
    pair.into_messages(MessageOptions::default())
        .expect("buffers")
}

#[test]
fn closing_ends_calls_that_wait() {
    let (listener, a, b) = pair(LOOPBACK);
    let (at_a, _at_b) = opened(&a, &b, "closed");
    let posted = at_a.call(|endpoint, qp| {
        let memory = endpoint.register(vec![0; 1000])?;
        endpoint.post_recv(qp, memory.whole())
    });
    let recv = posted.expect("it runs").expect("a free slot");
    thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept(LONG));
        let waiting = scope.spawn(|| a.thread().wait(LONG, || recv.outcome()));
        thread::sleep(Duration::from_millis(100));
        at_a.close();
        listener.close();
        let outcome = waiting.join().expect("no panic").expect("it runs");
        assert_eq!(outcome, Some(Outcome::Failed));
        let accepted = accepting.join().expect("no panic");
        assert!(matches!(accepted, Err(Error::NotListening)), "{accepted:?}");
    });
    assert!(b.ended().is_none(), "connections go on");
}

/// The last task that uses a queue pair ends on the thread of the endpoint, and so may its connection.
#[test]
fn a_connection_can_be_dropped_on_its_own_thread() {
    let (_listener, a, b) = pair(LOOPBACK);
    let (at_a, at_b) = opened(&a, &b, "dropped");
    let mut held = Some((a.clone(), at_a));
    a.thread().post(move |_| drop(held.take()));
    drop(a);
    let ended = b.wait_ended(LONG).expect("it runs").expect("over");
    assert!(
        matches!(
            ended,
            Ended::ByPeer {
                cause: ByeCause::Closed,
                ..
            }
        ),
        "{ended}"
    );
    drop(at_b);
}

/// Each end says what it wants, and data arrives whether one end or both ends want to omit the ICRC (P2.5).
#[test]
fn a_connection_says_whether_it_omits_the_icrc() {
    let omits = ConnectionOptions {
        omit_icrc: true,
        ..options()
    };
    for (of_listener, wants) in [(&omits, true), (&options(), false)] {
        let (listener, to, keys) = listener(LOOPBACK, of_listener);
        let a = connect(&to, &keys, "site-b", &omits).expect("connected");
        let b = accepted(&listener);
        let (a, b) = opened(&a, &b, "without ICRC");
        for (end, wants) in [(&a, true), (&b, wants)] {
            let info = end.call(|endpoint, qp| endpoint.qp_info(qp));
            let info = info.expect("the thread runs").expect("it exists");
            assert_eq!(info.omits_icrc, wants);
        }
        let (a, b) = (messages(a), messages(b));
        let ticket = a.send(vec![7; 100_000]);
        let came = b.receive(LONG).expect("no failure");
        assert_eq!(came, Some(vec![7; 100_000]));
        assert_eq!(ticket.wait(LONG).expect("no failure"), Some(Outcome::Whole));
    }
}

#[test]
fn many_peers_share_one_port() {
    let [a, b] = [identity(), identity()];
    let psk = Psk::generate().expect("randomness");
    let keys = Keys::of_identity(b.clone(), knows(&[("site-a", &a)])).with_psk(&psk);
    let any: SocketAddr = "[::]:0".parse().expect("an address");
    let listener = Listener::bind(any, &keys, &options()).expect("a port");
    let port = listener.local_addr().port();
    let of_a = Keys::of_identity(a, knows(&[("site-b", &b)]));
    let of_psk = Keys::of_psk(&psk);
    let ends: Vec<_> = [
        (&of_a, "127.0.0.1", Some("site-a")),
        (&of_psk, "[::1]", None),
        (&of_a, "localhost", Some("site-a")),
        (&of_psk, "127.0.0.1", None),
    ]
    .into_iter()
    .map(|(keys, host, name)| {
        let to = format!("{host}:{port}");
        let near = connect(&to, keys, "site-b", &options()).expect(host);
        let far = accepted(&listener);
        assert_eq!(far.peer().name(), name, "{host}");
        (near, far)
    })
    .collect();
    for (near, far) in &ends {
        let (near, far) = opened(near, far, "x");
        let (near, far) = (messages(near), messages(far));
        far.send(*b"hello");
        let came = near.receive(LONG).expect("no failure");
        assert_eq!(came, Some(b"hello".to_vec()));
    }
    // Connections outlive their listener.
    drop(listener);
    for (near, far) in ends {
        let (near, far) = opened(&far, &near, "y");
        let (near, far) = (messages(near), messages(far));
        far.send(*b"hello");
        let came = near.receive(LONG).expect("no failure");
        assert_eq!(came, Some(b"hello".to_vec()));
    }
}

/// The name has an IPv6 address, at which nobody listens.
#[test]
fn a_name_with_a_dead_address_is_reached_at_the_other() {
    let (listener, to, keys) = listener(LOOPBACK, &options());
    let to = to.replace("127.0.0.1", "localhost");
    let near = connect(&to, &keys, "site-b", &options()).expect("connected");
    let far = accepted(&listener);
    opened(&near, &far, "x");
}

/// One line each, that says what to do.
#[test]
fn wrong_keys_and_peers_are_told_in_one_line() {
    let (listener, to, right) = listener(LOOPBACK, &options());
    let [stranger, other] = [identity(), identity()];
    let known_b = match connect(&to, &right, "site-b", &options()) {
        Ok(connection) => connection.peer().key().expect("an identity"),
        Err(error) => panic!("{error}"),
    };
    let mut peers = KnownPeers::default();
    peers.add("site-b", known_b).expect("a name");
    let of_stranger = Keys::of_identity(stranger.clone(), peers);
    let of_other = Keys::of_identity(stranger.clone(), knows(&[("site-b", &other)]));
    let psk = Keys::of_psk(&Psk::generate().expect("randomness"));
    let line = format!("add {} to the peers", stranger.public());
    for (keys, name, expected) in [
        (&of_stranger, "site-b", line.as_str()),
        (
            &of_other,
            "site-b",
            "has other keys: compare its public key",
        ),
        (
            &psk,
            "site-b",
            "does not accept a pre-shared key: it needs an identity",
        ),
        (&right, "site-c", "\"site-c\" is not among the known peers"),
    ] {
        let error = connect(&to, keys, name, &options()).expect_err(expected);
        let text = error.to_string();
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }
    let refusals = listener.refusals();
    // An initiator repeats a packet whose answer is late.
    assert!(
        refusals.unknown_peers >= 1 && refusals.other_keys >= 2,
        "{refusals:?}"
    );
    assert_eq!(refusals.no_room, 0);
    let addr: SocketAddr = LOOPBACK.parse().expect("an address");
    let none = Listener::bind(addr, &Keys::default(), &options());
    assert!(matches!(none.err(), Some(Error::NoKeys)));
}

/// A code connects two ends that know nothing else of each other, once.
#[test]
fn a_code_serves_one_attempt() {
    let addr: SocketAddr = LOOPBACK.parse().expect("an address");
    let [code, other] = [(); 2].map(|()| Code::generate().expect("randomness"));
    let listen = || {
        let keys = Keys::of_code(code.clone());
        Listener::bind(addr, &keys, &options()).expect("a port")
    };
    let listener = listen();
    let to = listener.local_addr().to_string();
    let ours = Keys::of_code(code.clone());
    let a = connect(&to, &ours, "", &options()).expect("connected");
    let b = accepted(&listener);
    assert!(listener.is_code_used());
    assert_eq!(
        [a.peer(), b.peer()].map(|peer| peer.proof()),
        [Proof::Code; 2]
    );
    opened(&a, &b, "x");
    let told = |to: &str, keys: &Keys| {
        let error = connect(to, keys, "", &options()).expect_err("refused");
        error.to_string()
    };
    let used = "the code is used up: start the other end again for a new one";
    assert_eq!(
        told(&to, &Keys::of_code(code.clone())),
        used,
        "by another end"
    );
    assert_eq!(told(&to, &ours), used, "by this end");
    let listener = listen();
    let to = listener.local_addr().to_string();
    let text = told(&to, &Keys::of_code(other));
    let expected = format!("the code is wrong, and is used up now: start the end at {to} again");
    assert!(text.starts_with(&expected), "{text}");
    assert_eq!(told(&to, &Keys::of_code(code.clone())), used);
    assert_eq!(listener.refusals().wrong_codes, 1);
    // Keys of both kinds, and a listener without a code.
    let psk = Psk::generate().expect("randomness");
    let listener = Listener::bind(addr, &Keys::of_psk(&psk), &options()).expect("a port");
    let to = listener.local_addr().to_string();
    let text = told(&to, &Keys::of_code(code));
    assert!(
        text.contains("does not accept a code: it needs a pre-shared key"),
        "{text}"
    );
}

/// Ends that do different things say so, and one listener serves several purposes.
#[test]
fn a_listener_serves_its_purposes_only() {
    let addr: SocketAddr = LOOPBACK.parse().expect("an address");
    let keys = Keys::of_psk(&Psk::generate().expect("randomness"));
    let serving = ConnectionOptions {
        serves: vec![Purpose::PIPE, Purpose::PROBE],
        ..options()
    };
    let listener = Listener::bind(addr, &keys, &serving).expect("a port");
    let to = listener.local_addr().to_string();
    let wanting = |purpose| {
        let options = ConnectionOptions {
            purpose,
            ..options()
        };
        connect(&to, &keys, "", &options)
    };
    for (purpose, named) in [
        (Purpose::FILES, "files"),
        (Purpose::other(77), "purpose 77"),
    ] {
        let text = wanting(purpose).expect_err("not served").to_string();
        let expected = format!("the end at {to} serves pipes and probes, not {named}: ");
        assert!(text.starts_with(&expected), "{text}");
    }
    let a = wanting(Purpose::PROBE).expect("connected");
    let b = accepted(&listener);
    assert_eq!([a.purpose(), b.purpose()], [Purpose::PROBE; 2]);
}

#[test]
fn a_port_of_another_program_is_told() {
    let (_listener, to, keys) = listener(LOOPBACK, &options());
    let again = Listener::bind(
        to.parse::<SocketAddr>().expect("an address"),
        &keys,
        &options(),
    );
    let text = again.err().expect("the port is taken").to_string();
    assert!(
        text.contains(&to) && text.contains("another port"),
        "{text}"
    );
    // A program that answers each packet with garbage.
    let other = UdpSocket::bind(LOOPBACK).expect("a port");
    let to = other.local_addr().expect("bound").to_string();
    let answering = thread::spawn(move || {
        let limit = Some(Duration::from_secs(2));
        other.set_read_timeout(limit).expect("a timeout");
        let mut bytes = [0; 2000];
        while let Ok((length, from)) = other.recv_from(&mut bytes) {
            bytes[4] ^= 1;
            other.send_to(&bytes[..length], from).expect("sent");
        }
    });
    let mut soon = options();
    soon.connect_limit = Duration::from_secs(1);
    let error = connect(&to, &keys, "site-b", &soon).expect_err("no listener");
    let text = error.to_string();
    let expected = format!("no answer from UDP {to} within 1 s");
    assert!(text.contains(&expected), "{text}");
    answering.join().expect("no panic");
    let error = connect("nowhere.invalid:1", &keys, "site-b", &soon).expect_err("no name");
    assert!(error.to_string().contains("nowhere.invalid"), "{error}");
    assert!(connect("127.0.0.1", &keys, "site-b", &soon).is_err());
}

/// Sends what a stranger can: hellos, hellos of another version, openings without a valid cookie, and packets of other
/// programs.
fn flood(source: [u8; 4], to: SocketAddr, is_over: &AtomicBool) {
    let socket = UdpSocket::bind(SocketAddr::from((source, 0))).expect("a port");
    socket.connect(to).expect("an address");
    socket.set_nonblocking(true).expect("a socket");
    let [hello, other] = [1, 9].map(|version| [&[0x1B, 0, 0, version], &[5; 60][..]].concat());
    let opening = [&[0x1B, 2, 0, 1], &[9; 125][..]].concat();
    while !is_over.load(Ordering::Relaxed) {
        for packet in [&hello[..], &other, &opening, b"GET / HTTP/1.0\r\n\r\n"] {
            // This fails while the buffer of the socket is full.
            let _ = socket.send(packet);
        }
        thread::sleep(Duration::from_micros(500));
    }
}

#[test]
fn a_flood_of_strangers_starves_nobody() {
    let (listener, to, keys) = listener(LOOPBACK, &options());
    let (addr, is_over) = (listener.local_addr(), AtomicBool::new(false));
    let patient = ConnectionOptions {
        connect_limit: LONG,
        ..options()
    };
    let connected = thread::scope(|scope| {
        for source in 1..=2 {
            let is_over = &is_over;
            scope.spawn(move || flood([127, 0, 3, source], addr, is_over));
        }
        // The flood has come.
        let start = Instant::now();
        while listener.refusals().cookies < 200 && start.elapsed() < LONG {
            thread::sleep(Duration::from_millis(1));
        }
        let connected = connect(&to, &keys, "site-b", &patient);
        is_over.store(true, Ordering::Relaxed);
        connected
    });
    let (near, far) = (connected.expect("the peer"), accepted(&listener));
    assert_eq!(far.peer().name(), Some("site-a"));
    opened(&near, &far, "x");
    let counts = listener.refusals();
    assert!(counts.other_version > 100, "{counts:?}");
    assert_eq!((counts.over_budget, counts.no_room), (0, 0));
}

#[test]
fn a_peer_that_is_removed_loses_its_connections() {
    let [a, b, c] = [identity(), identity(), identity()];
    let of_b = |peers: &[(&str, &Identity)]| Keys::of_identity(b.clone(), knows(peers));
    let addr: SocketAddr = LOOPBACK.parse().expect("an address");
    let keys = of_b(&[("site-a", &a), ("site-c", &c)]);
    let listener = Listener::bind(addr, &keys, &options()).expect("a port");
    let to = listener.local_addr().to_string();
    let [near_a, near_c] = [&a, &c].map(|own| {
        let keys = Keys::of_identity(own.clone(), knows(&[("site-b", &b)]));
        let near = connect(&to, &keys, "site-b", &options()).expect("connected");
        (near, accepted(&listener), keys)
    });
    listener.reload(&of_b(&[("site-c", &c)])).expect("reloaded");
    let why = near_a.1.ended().expect("over");
    assert!(matches!(why, Ended::NoLongerKnown), "{why}");
    let why = near_a
        .0
        .wait_ended(LONG)
        .expect("no failure")
        .expect("over");
    let cause = ByeCause::NoLongerKnown;
    assert!(
        matches!(&why, Ended::ByPeer { cause: c, .. } if *c == cause),
        "{why}"
    );
    assert!(
        why.to_string().contains("no longer knows this end"),
        "{why}"
    );
    let again = connect(&to, &near_a.2, "site-b", &options());
    assert!(matches!(again.err(), Some(Error::UnknownHere { .. })));
    opened(&near_c.0, &near_c.1, "still open");
}

/// A listener whose program accepts nobody, and two peers.
#[test]
fn one_peer_does_not_fill_the_backlog() {
    let [greedy, other, here] = [identity(), identity(), identity()];
    let known = knows(&[("greedy", &greedy), ("other", &other)]);
    let limits = ConnectionOptions {
        backlog: 8,
        ..options()
    };
    let addr: SocketAddr = LOOPBACK.parse().expect("an address");
    let keys = Keys::of_identity(here.clone(), known);
    let listener = Listener::bind(addr, &keys, &limits).expect("a port");
    let to = listener.local_addr().to_string();
    let try_as = |who: &Identity, busy_limit: Duration| {
        let keys = Keys::of_identity(who.clone(), knows(&[("here", &here)]));
        let options = ConnectionOptions {
            connect_limit: LONG,
            busy_limit,
            ..options()
        };
        connect(&to, &keys, "here", &options)
    };
    let _two = [(); 2].map(|()| try_as(&greedy, LONG).expect("a quarter of the backlog"));
    let third = try_as(&greedy, Duration::ZERO).expect_err("more than a quarter");
    assert!(matches!(third, Error::Busy { .. }), "{third}");
    let _one = try_as(&other, LONG).expect("the others have room");
    // Who waits asks again, until the program accepts one.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| try_as(&greedy, LONG));
        thread::sleep(Duration::from_millis(100));
        let _first = accepted(&listener);
        waiting.join().expect("no panic").expect("there is room");
    });
}

#[test]
fn fifty_connections_of_one_host_begin_at_once() {
    let keys = Keys::of_psk(&Psk::generate().expect("randomness"));
    let addr: SocketAddr = LOOPBACK.parse().expect("an address");
    let listener = Listener::bind(addr, &keys, &options()).expect("a port");
    let to = listener.local_addr().to_string();
    let limits = ConnectionOptions {
        // Debug builds on a busy machine.
        connect_limit: LONG,
        ..options()
    };
    thread::scope(|scope| {
        let connecting: Vec<_> = (0..50)
            .map(|_| scope.spawn(|| connect(&to, &keys, "", &limits)))
            .collect();
        let _theirs: Vec<_> = (0..50).map(|_| accepted(&listener)).collect();
        for ours in connecting {
            ours.join().expect("no panic").expect("connected");
        }
    });
    assert_eq!(listener.refusals().no_room, 0);
}
