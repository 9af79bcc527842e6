//! In which order packets leave, and what the connections of one endpoint cost each other.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc;
use std::time::Duration;

use farwrite::QpOptions;
use farwrite::fabric::udp::HANDSHAKE_PACKET;
use farwrite_keys::Psk;

use crate::{Connection, ConnectionOptions, Keys, Listener, MessageOptions, connect};

const LONG: Duration = Duration::from_secs(20);

/// Each exchange of a message polls the endpoint several times, and visits no other connection.
#[test]
fn idle_connections_cost_nothing_in_a_poll() {
    const EXCHANGES: u64 = 300;
    let keys = Keys::of_psk(&Psk::generate().expect("randomness"));
    let options = ConnectionOptions::default();
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0), &keys, &options).expect("a port");
    let to = listener.local_addr().to_string();
    let [idle, busy] = [(); 2].map(|()| {
        let ours = connect(&to, &keys, "", &options).expect("connected");
        let theirs = listener.accept(LONG).expect("no failure");
        [ours, theirs.expect("in time")]
    });
    let pair = std::thread::scope(|scope| {
        let opened = scope.spawn(|| busy[0].open_queue_pair("x", QpOptions::default(), LONG));
        let accepted = busy[1].accept_queue_pair(None, &QpOptions::default(), LONG);
        let accepted = accepted.expect("no failure").expect("in time");
        [
            opened.join().expect("no panic").expect("accepted"),
            accepted,
        ]
    });
    let [from, to] = pair.map(|pair| {
        let messages = pair.into_messages(MessageOptions::default());
        messages.expect("buffers")
    });
    let visits = |connection: &Connection| {
        let visits = connection.on_session(|session, _| session.visits);
        visits.expect("it is open")
    };
    let before = visits(&idle[1]);
    for _ in 0..EXCHANGES {
        from.send("hello").wait(LONG).expect("no failure");
        to.receive(LONG).expect("no failure").expect("in time");
    }
    let cost = visits(&idle[1]) - before;
    assert!(cost < EXCHANGES / 10, "{cost} visits");
}

/// Passes datagrams on between the first end that sends and the one at `to`. Reports the first two bytes of those to
/// it, in their order. Ends when nobody takes the reports.
fn relay(socket: &UdpSocket, to: SocketAddr, seen: &mpsc::Sender<[u8; 2]>) {
    let (mut buffer, mut first) = ([0; 1 << 16], None);
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        let packet = &buffer[..length];
        let sent = if from == to {
            first.map(|first| socket.send_to(packet, first))
        } else {
            first = Some(from);
            if seen.send([packet[0], packet[1]]).is_err() {
                return;
            }
            Some(socket.send_to(packet, to))
        };
        if let Some(sent) = sent {
            sent.expect("sent");
        }
    }
}

/// The responder cannot use a packet of the route or of the session before the proof, so none leaves before it.
#[test]
fn the_proof_leaves_before_all_that_needs_it() {
    const PROOF: [u8; 2] = [HANDSHAKE_PACKET, 4];
    let keys = Keys::of_psk(&Psk::generate().expect("randomness"));
    let options = ConnectionOptions::default();
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0), &keys, &options).expect("a port");
    let to = listener.local_addr();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let at = socket.local_addr().expect("an address").to_string();
    let (sender, seen) = mpsc::channel();
    std::thread::spawn(move || relay(&socket, to, &sender));
    let connected = connect(&at, &keys, "", &options).expect("connected");
    let first = seen
        .iter()
        .find(|kind| kind[0] != HANDSHAKE_PACKET || *kind == PROOF);
    assert_eq!(first, Some(PROOF));
    drop(connected);
}
