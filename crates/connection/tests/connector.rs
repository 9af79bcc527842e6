//! Many connections over one port of an initiator.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use farwrite::{Outcome, QpOptions};
use farwrite_connection::{
    Connection, ConnectionOptions, Connector, Error, Keys, Listener, MessageOptions, Messages,
    OpenedQueuePair,
};
use farwrite_keys::Psk;

const LONG: Duration = Duration::from_secs(20);

fn keys() -> Keys {
    Keys::of_psk(&Psk::generate().expect("randomness"))
}

fn listener(keys: &Keys, options: &ConnectionOptions) -> (Listener, String) {
    let loopback: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(loopback, keys, options).expect("a port");
    let to = listener.local_addr().to_string();
    (listener, to)
}

fn accepted(listener: &Listener, limit: Duration) -> Connection {
    let accepted = listener.accept(limit).expect("no failure");
    accepted.expect("a connection")
}

fn in_messages(pair: OpenedQueuePair) -> Messages {
    pair.into_messages(MessageOptions::default())
        .expect("buffers")
}

/// Connections to two listeners, made at the same time, leave from one port. Each ends alone.
#[test]
fn connections_of_a_connector_share_a_port() {
    let options = ConnectionOptions::default();
    let keys = [keys(), keys()];
    let listeners = [listener(&keys[0], &options), listener(&keys[1], &options)];
    let connector = Connector::bind(&options).expect("a port");
    const EACH: usize = 3;
    let connections: Vec<_> = thread::scope(|scope| {
        let ends = listeners.iter().zip(&keys).flat_map(|end| [end; EACH]);
        let connecting = ends.map(|((listener, to), keys)| {
            let made = scope.spawn(|| connector.connect(to, keys, "").expect("connected"));
            (made, listener)
        });
        let connecting: Vec<_> = connecting.collect();
        let made = connecting.into_iter().map(|(made, listener)| {
            let made = made.join().expect("no panic");
            (made, listener)
        });
        made.collect()
    });
    drop(connector);
    let mut ports = Vec::new();
    let pairs: Vec<_> = connections
        .iter()
        .map(|(_, listener)| {
            let accepted = accepted(listener, LONG);
            ports.extend(accepted.peer_addr().map(|addr| addr.port()));
            accepted
        })
        .collect();
    assert_eq!(ports.len(), 2 * EACH);
    assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");

    // The ends of a listener are not in the order of the connections.
    let opening = connections.iter().map(|(connection, _)| {
        let connection = connection.clone();
        thread::spawn(move || connection.open_queue_pair("x", QpOptions::default(), LONG))
    });
    let opening: Vec<_> = opening.collect();
    let theirs: Vec<_> = pairs
        .iter()
        .map(|pair| {
            let accepted = pair.accept_queue_pair(Some("x"), &QpOptions::default(), LONG);
            in_messages(accepted.expect("no failure").expect("in time"))
        })
        .collect();
    let ours = opening.into_iter().map(|opened| {
        let opened = opened.join().expect("no panic");
        in_messages(opened.expect("accepted"))
    });
    for ours in ours {
        let sent = ours.send("hello").wait(LONG).expect("no failure");
        assert_eq!(sent, Some(Outcome::Whole));
    }
    for theirs in theirs {
        let came = theirs.receive(LONG).expect("no failure");
        assert_eq!(came.as_deref(), Some(&b"hello"[..]));
    }
    connections[0].0.close();
    let (first, _) = &connections[0];
    assert!(first.ended().is_some());
    let others = &connections[1..];
    assert!(others.iter().all(|(other, _)| other.ended().is_none()));
}

/// A connection of a connector that fails harms no other one, and leaves nothing.
#[test]
fn a_connector_outlives_an_attempt_that_fails() {
    let options = ConnectionOptions::default();
    let keys = keys();
    let (listener, to) = listener(&keys, &options);
    let hasty = ConnectionOptions {
        // The attempt that succeeds has it, too.
        connect_limit: Duration::from_secs(5),
        ..options
    };
    let connector = Connector::bind(&hasty).expect("a port");
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let silent = nobody.local_addr().expect("an address").to_string();
    let made = connector.connect(&to, &keys, "").expect("connected");
    let theirs = accepted(&listener, LONG);
    let error = connector.connect(&silent, &keys, "");
    assert!(matches!(error, Err(Error::Silent { .. })), "{error:?}");
    assert!(made.ended().is_none() && theirs.ended().is_none());
}
