//! A peer that holds a valid key and lies. Each lie ends its own connection with one line, or has no
//! effect. Other connections of the same listener go on.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use farwrite_keys::{Psk, Text};

use super::queue_pairs::{MOST_REQUESTS, encoded};
use super::*;
use crate::driver::reserve;
use crate::handshake::{Initiator, InitiatorKeys, Limits, Reaction, Responder};
use crate::message::Introduction;
use crate::{Connection, Keys, Listener, MessageOptions, Messages, OpenedQueuePair, connect};

mod cutovers;
mod notices;

const LONG: Duration = Duration::from_secs(20);
const LOOPBACK: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

fn keys() -> Keys {
    Keys::of_psk(&Psk::generate().expect("randomness"))
}

fn options() -> ConnectionOptions {
    ConnectionOptions::default()
}

/// A listener, and an honest connection to it whose messages cross as long as it works.
struct World {
    listener: Listener,
    keys: Keys,
    witness: [Messages; 2],
}

impl World {
    fn new() -> Self {
        let keys = keys();
        let listener = Listener::bind(LOOPBACK, &keys, &options()).expect("a port");
        let [a, b] = connected(&listener, &keys);
        let witness = opened(&a, &b).map(|pair| {
            let options = MessageOptions::default();
            pair.into_messages(options).expect("buffers")
        });
        Self {
            listener,
            keys,
            witness,
        }
    }

    /// A connection of a liar and of an honest end. The liar is the initiator, or else the responder.
    fn with_liar(&self, initiates: bool) -> [Connection; 2] {
        let [initiator, responder] = connected(&self.listener, &self.keys);
        match initiates {
            true => [initiator, responder],
            false => [responder, initiator],
        }
    }

    fn works(&self) {
        let [a, b] = &self.witness;
        a.send(*b"still here");
        let came = b.receive(LONG).expect("no failure");
        assert_eq!(came.as_deref(), Some(&b"still here"[..]));
    }
}

fn connected(listener: &Listener, keys: &Keys) -> [Connection; 2] {
    let to = listener.local_addr().to_string();
    let a = connect(&to, keys, "", &options()).expect("connected");
    let b = listener.accept(LONG).expect("no failure");
    [a, b.expect("a connection")]
}

/// Opens a queue pair at one end and accepts it at the other.
fn opened(a: &Connection, b: &Connection) -> [OpenedQueuePair; 2] {
    thread::scope(|scope| {
        let opening = scope.spawn(|| a.open_queue_pair("x", QpOptions::default(), LONG));
        let accepted = accept(b);
        let opened = opening.join().expect("no panic");
        [opened.expect("accepted"), accepted]
    })
}

fn accept(at: &Connection) -> OpenedQueuePair {
    let accepted = at.accept_queue_pair(None, &QpOptions::default(), LONG);
    accepted.expect("no failure").expect("in time")
}

/// Runs `call` on the session of an end, which is open.
fn at<R: Send + 'static>(
    end: &Connection,
    call: impl FnOnce(&mut Session, &mut Shared<'_>) -> R + Send + 'static,
) -> R {
    end.on_session(call).expect("it is open")
}

/// Sends messages of the session, whatever they are.
fn say(liar: &Connection, messages: impl IntoIterator<Item = Vec<u8>>) {
    let messages: Vec<_> = messages.into_iter().collect();
    at(liar, |session, _| {
        messages.into_iter().for_each(|message| {
            session.queue.send(message);
        });
    });
}

fn open(number: u32, name: &str, queue_pair: Vec<u8>) -> Vec<u8> {
    let name = name.to_owned();
    let open = Message::Open {
        number,
        name,
        queue_pair,
    };
    open.encode()
}

/// The information of a queue pair of `of`, which is made for it.
fn info(of: &Connection) -> Vec<u8> {
    let made = at(of, |session, shared| {
        let options = session.fitted(shared, QpOptions::default());
        let qp = shared.endpoint.create_qp(options)?;
        encoded(shared, qp)
    });
    made.expect("room")
}

/// The information of the session queue pair, whose shape no other queue pair has.
fn session_info(of: &Connection) -> Vec<u8> {
    at(of, |session, shared| encoded(shared, session.qp)).expect("its own")
}

/// What the session holds: queue pairs, openings of its own, and requests.
fn held(end: &Connection) -> [usize; 3] {
    at(end, |session, _| {
        let lists = [session.pairs.len(), session.openings.len()];
        [lists[0], lists[1], session.requests.len()]
    })
}

/// The handshake takes longer than a round trip, because both ends compute meanwhile.
#[test]
fn queue_pairs_begin_with_the_round_trip_that_the_route_has_measured() {
    let world = World::new();
    let [_, responder] = &world.with_liar(true);
    let start = Instant::now();
    loop {
        let (guessed, measured, used) = at(responder, |session, shared| {
            let found = shared.keeper.found(session.route, Duration::MAX);
            let measured = found
                .expect("a route")
                .map_or(session.rtt, |found| found.rtt);
            let used = session.fitted(shared, QpOptions::default()).initial_rtt;
            (session.rtt, measured, used)
        });
        if measured != guessed {
            return assert_eq!(used, measured);
        }
        assert!(start.elapsed() < LONG, "nothing is measured");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_no_honest_peer_says_ends_its_connection_with_one_line() {
    let world = World::new();
    let bye = |cause| vec![5, cause, 0];
    let ready = |mtu| Message::Ready { mtu }.encode();
    let unnamed = |numbers: &[u32]| {
        let opens = numbers.iter().map(|number| open(*number, "", Vec::new()));
        opens.collect::<Vec<_>>()
    };
    let lies = [
        (vec![Vec::new()], "breaks the protocol: "),
        (vec![vec![0]], "breaks the protocol: "),
        (vec![vec![1, 0, 200, 1]], "breaks the protocol: "),
        (vec![bye(77)], "breaks the protocol: "),
        (vec![ready(100)], "packets of 100 bytes"),
        (vec![ready(4098)], "packets of 4098 bytes"),
        (vec![ready(u32::MAX)], "packets of 4294967295 bytes"),
        (unnamed(&[1]), "it numbers a queue pair 1"),
        (unnamed(&[0, 0]), "it numbers a queue pair 0"),
        (unnamed(&[8, 2]), "it numbers a queue pair 2"),
        (vec![open(0, "a\nb", Vec::new())], "control characters"),
        (vec![open(0, &"n".repeat(256), Vec::new())], "256 bytes"),
    ];
    for (messages, expected) in lies {
        let [liar, honest] = world.with_liar(true);
        say(&liar, messages);
        let why = honest.wait_ended(LONG).expect("no failure").expect("over");
        let text = why.to_string();
        assert!(matches!(why, Ended::Malformed(_)), "{text}");
        assert!(text.contains(expected) && !text.contains('\n'), "{text}");
        let told = liar.wait_ended(LONG).expect("no failure").expect("over");
        let is_cause = matches!(&told, Ended::ByPeer { cause, .. } if *cause == ByeCause::Failed);
        assert!(is_cause && told.to_string().ends_with(&text), "{told}");
    }
    world.works();
}

#[test]
fn what_has_no_meaning_here_has_no_effect() {
    let world = World::new();
    let text = Text::new("no");
    for initiates in [true, false] {
        let [liar, honest] = world.with_liar(initiates);
        let mtu = honest.mtu();
        let [_kept, _pair] = opened(&liar, &honest);
        let number = at(&liar, |session, _| {
            *session.pairs.keys().next().expect("one")
        });
        let refused = |number| Message::Refused {
            number,
            reason: text.clone(),
        };
        let mut messages = vec![
            Message::Ready { mtu: SESSION_MTU }.encode(),
            Message::Opened {
                number: 4,
                queue_pair: vec![1; 4000],
            }
            .encode(),
            refused(4).encode(),
            refused(number).encode(),
            // A queue pair stays until its user closes it.
            Message::Close { number }.encode(),
            Message::Close { number }.encode(),
            Message::Close { number: u32::MAX }.encode(),
        ];
        messages.extend((11..=255).map(|kind| vec![kind; 4096]));
        say(&liar, messages);
        opened(&honest, &liar);
        assert_eq!(honest.mtu(), mtu);
        assert_eq!(held(&honest)[0], 1);
    }
    world.works();
}

/// What a liar answers to an opening.
type Answer = fn(&Connection, u32) -> Vec<u8>;

fn opened_with(number: u32, queue_pair: Vec<u8>) -> Vec<u8> {
    Message::Opened { number, queue_pair }.encode()
}

#[test]
fn a_lying_answer_does_not_open_a_queue_pair() {
    let world = World::new();
    let answers: [(&str, Answer); 3] = [
        ("the peer breaks the protocol", |_, number| {
            opened_with(number, vec![7; 100])
        }),
        ("the peer breaks the protocol", |liar, number| {
            opened_with(number, info(liar)[..80].to_vec())
        }),
        ("does not open queue pair \"x\"", |liar, number| {
            opened_with(number, session_info(liar))
        }),
    ];
    for (expected, answer) in answers {
        let [liar, honest] = world.with_liar(false);
        let result = thread::scope(|scope| {
            let opening = scope.spawn(|| honest.open_queue_pair("x", QpOptions::default(), LONG));
            let number = asked(&liar);
            // The second answer has no effect.
            say(&liar, [answer(&liar, number), answer(&liar, number)]);
            opening.join().expect("no panic")
        });
        let text = result.map(drop).expect_err(expected).to_string();
        assert!(text.contains(expected) && !text.contains('\n'), "{text}");
        assert_eq!(held(&honest), [0; 3]);
    }
    world.works();
}

/// The number of the queue pair that the peer asks for.
fn asked(liar: &Connection) -> u32 {
    until(liar, |session| session.requests.front().map(|at| at.number))
}

/// Waits until there is something to see.
fn until<R: Send + 'static>(end: &Connection, look: fn(&Session) -> Option<R>) -> R {
    let start = Instant::now();
    loop {
        match at(end, move |session, _| look(session)) {
            Some(seen) => return seen,
            None => assert!(start.elapsed() < LONG, "not in time"),
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn endless_openings_are_refused() {
    let world = World::new();
    let most = MOST_REQUESTS;
    let [liar, honest] = world.with_liar(true);
    say(&liar, (0..200).map(|n| open(2 * n, "x", vec![0; 3000])));
    // What the peer closes makes room for others, and no more than that.
    say(&liar, [Message::Close { number: 0 }.encode()]);
    say(&liar, (200..210).map(|n| open(2 * n, "x", info(&liar))));
    say(&liar, [open(1000, "last", info(&liar))]);
    until(&honest, |session| {
        (session.next_theirs == 1002).then_some(())
    });
    assert_eq!(held(&honest), [0, 0, most]);
    world.works();

    // A peer that takes no answers.
    let [liar, honest] = world.with_liar(true);
    at(&liar, |session, _| session.queue.take_no_more());
    for start in [0, 600] {
        say(
            &liar,
            (start..start + 600).map(|n| open(2 * n, "x", Vec::new())),
        );
        // The liar is bound by the limit too.
        until(&liar, |session| {
            (session.queue.unsent() < 100).then_some(())
        });
    }
    let why = honest.wait_ended(LONG).expect("no failure").expect("over");
    let text = why.to_string();
    assert!(
        text.contains("it takes no messages of the session"),
        "{text}"
    );
    world.works();
}

/// The highest number is used once like any other, so that no queue pair takes the place of another one.
#[test]
fn the_highest_number_is_used_once() {
    let world = World::new();
    let [liar, honest] = world.with_liar(false);
    say(&liar, [open(u32::MAX, "x", info(&liar))]);
    let _pair = accept(&honest);
    say(&liar, [open(u32::MAX, "x", info(&liar))]);
    let why = honest.wait_ended(LONG).expect("no failure").expect("over");
    let expected = format!("it numbers a queue pair {}", u32::MAX);
    assert!(why.to_string().contains(&expected), "{why}");
    world.works();
}

#[test]
fn what_follows_a_bye_has_no_effect() {
    let world = World::new();
    let bye = Message::Bye {
        cause: ByeCause::Closed,
        reason: Text::new("first\n\u{1b}[2J"),
    };
    for initiates in [true, false] {
        let [liar, honest] = world.with_liar(initiates);
        let again = Message::Bye {
            cause: ByeCause::Failed,
            reason: Text::new("second"),
        };
        say(
            &liar,
            [bye.encode(), again.encode(), vec![1], open(0, "", vec![])],
        );
        let why = honest.wait_ended(LONG).expect("no failure").expect("over");
        let text = why.to_string();
        assert!(
            text.contains("(closed): first") && !text.contains('\n'),
            "{text}"
        );
    }
    // This end has closed first, and its own message waits for a buffer of the peer.
    let [liar, honest] = world.with_liar(true);
    at(&liar, |session, _| session.queue.take_no_more());
    say(&liar, (0..100).map(|n| open(2 * n, "x", Vec::new())));
    until(&honest, |session| {
        let least = 100 - MOST_REQUESTS - BUFFERS;
        (session.queue.unsent() >= least).then_some(())
    });
    honest.close();
    say(&liar, [bye.encode()]);
    honest.finish(LONG);
    let why = honest.ended().expect("over");
    assert!(matches!(why, Ended::Closed), "{why}");
    world.works();
}

/// The key of the handshakes that the next two tests make by hand.
fn pre_shared(keys: &Keys) -> InitiatorKeys {
    InitiatorKeys::PreShared(keys.psk.clone().expect("a key"))
}

/// Makes a handshake, with `payload` in place of an introduction.
fn prove(socket: &UdpSocket, to: SocketAddr, keys: &Keys, number: u64, payload: &[u8]) {
    let start = Instant::now();
    let now = || nanoseconds(start.elapsed());
    let limits = Limits {
        answer_ns: nanoseconds(LONG),
        busy_ns: 0,
    };
    let mut initiator = Initiator::new(pre_shared(keys), &[to], number, 0, limits);
    let mut bytes = [0; 2000];
    loop {
        while let Some((to, packet)) = initiator.poll_transmit(now()) {
            socket.send_to(&packet, to).expect("sent");
        }
        let Ok((length, from)) = socket.recv_from(&mut bytes) else {
            assert!(start.elapsed() < LONG, "no answer");
            continue;
        };
        if initiator.receive(now(), from, &bytes[..length]).is_some() {
            initiator.prove(now(), payload).expect("a short payload");
            let (to, proof) = initiator.poll_transmit(now()).expect("the proof");
            socket.send_to(&proof, to).expect("sent");
            return;
        }
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(LOOPBACK).expect("a port");
    let soon = Some(Duration::from_millis(100));
    socket.set_read_timeout(soon).expect("a timeout");
    socket
}

/// More of them than one peer may have under way.
#[test]
fn introductions_that_lie_take_no_place() {
    let world = World::new();
    let (socket, to) = (socket(), world.listener.local_addr());
    for number in 0..20 {
        let payload = vec![0xFF; 50 * number];
        prove(&socket, to, &world.keys, number as u64, &payload);
    }
    // Two purposes, none, one that the listener does not serve, addresses that no packet has, and first messages that
    // no honest peer says.
    let [liar, _honest] = world.with_liar(true);
    let lies: [fn(&mut Introduction); 6] = [
        |said| said.purposes = vec![Purpose::PROGRAM; 2],
        |said| said.purposes.clear(),
        |said| said.purposes = vec![Purpose::FILES],
        |said| said.seen.0.set_port(0),
        |said| said.messages = vec![vec![0]],
        |said| said.messages = vec![Message::Ready { mtu: 100 }.encode()],
    ];
    for (number, lie) in (100..).zip(lies) {
        let stated = at(&liar, |session, shared| {
            let peer = shared.keeper.peer(session.route).expect("a route");
            let rate_control = (shared.options.rate_control, None);
            let stated = ((peer, peer), &[Purpose::PROGRAM][..]);
            reserve(shared.keeper, shared.endpoint, rate_control, stated)
        });
        let (_, mut introduction) = stated.expect("room");
        lie(&mut introduction);
        let payload = introduction.encode().expect("it is short");
        prove(&socket, to, &world.keys, number, &payload);
    }
    let accepted = world.listener.accept(Duration::ZERO);
    assert!(accepted.expect("no failure").is_none());
    drop(liar);
    world.works();
}

/// An end that answers handshakes with `payload`, and does nothing else.
fn answer(socket: UdpSocket, keys: Keys, payload: Vec<u8>, stop: Receiver<()>) {
    let mut responder = Responder::new(keys, [[1; 32], [2; 32]]);
    let mut bytes = [0; 2000];
    while stop.try_recv().is_err() {
        let Ok((length, from)) = socket.recv_from(&mut bytes) else {
            continue;
        };
        let answer = match responder.receive(0, from, &bytes[..length]) {
            Reaction::Answered(answer) => answer,
            Reaction::Asked(asked) => {
                let accepted = responder.accept(0, asked, &payload);
                accepted.expect("a short payload").1
            }
            Reaction::Ignored | Reaction::Proven { .. } => continue,
        };
        socket.send_to(&answer, from).expect("sent");
    }
}

#[test]
fn an_answer_that_lies_is_one_error() {
    let keys = keys();
    for payload in [Vec::new(), vec![0xFF; 900]] {
        let socket = socket();
        let to = socket.local_addr().expect("bound").to_string();
        let (ended, stop) = channel();
        let of_liar = keys.clone();
        let liar = thread::spawn(move || answer(socket, of_liar, payload, stop));
        let error = connect(&to, &keys, "", &options()).expect_err("no introduction");
        let text = error.to_string();
        assert!(text.starts_with("the peer breaks the protocol: "), "{text}");
        assert!(!text.contains('\n'), "{text}");
        ended.send(()).expect("it runs");
        liar.join().expect("no panic");
    }
}
