//! Streams that are opened and accepted over a connection.

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, current, scope, sleep, spawn};
use std::time::Duration;

use farwrite::{Endpoint, QpOptions, TaskState, UdpFabric};
use farwrite_connection::{Connection, ConnectionOptions, Keys, Listener, MessageOptions, connect};
use farwrite_keys::Psk;
use farwrite_rng::SplitMix;
use farwrite_stream::{ConnectionExt, Stream, StreamOptions};

const LONG: Duration = Duration::from_secs(60);

/// The ends of a connection, and their listener.
fn connected() -> (Listener, [Connection; 2]) {
    let keys = Keys::of_psk(&Psk::generate().expect("random bytes"));
    let options = ConnectionOptions::default();
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = Listener::bind(loopback, &keys, &options).expect("a port");
    let addr = listener.local_addr().to_string();
    let a = connect(&addr, &keys, "b", &options).expect("connected");
    let b = listener.accept(LONG).expect("it runs").expect("a peer");
    (listener, [a, b])
}

/// Opens a stream at `a`, and accepts it at `b`.
fn opened([a, b]: &[Connection; 2], name: &str) -> [Stream; 2] {
    let options = StreamOptions::default();
    let (opener, opened) = (a.clone(), name.to_owned());
    let opening = spawn(move || opener.open_stream(&opened, &options, LONG));
    let (accepted, to_a) = b
        .accept_stream(None, &options, LONG)
        .expect("accepted")
        .expect("in time");
    assert_eq!(accepted, name);
    [opening.join().expect("no panic").expect("opened"), to_a]
}

#[test]
fn streams_of_a_connection_do_not_wait_for_each_other() {
    let (_listener, connection) = connected();
    let [mut blocked, _unread] = opened(&connection, "blocked");
    blocked.set_write_timeout(Some(Duration::from_millis(50)));
    let error = blocked
        .write_all(&vec![1; 32 << 20])
        .expect_err("nobody reads");
    assert_eq!(error.kind(), ErrorKind::TimedOut);

    let [mut to_b, to_a] = opened(&connection, "flowing");
    to_b.end(Shutdown::Write);
    let data = SplitMix::new(1).bytes(3_000_000);
    let written = data.clone();
    let writer = spawn(move || {
        let (_reader, mut writer) = to_a.split();
        writer.write_all(&written).expect("written");
        writer.close().expect("delivered");
    });
    let mut heard = Vec::new();
    to_b.read_to_end(&mut heard).expect("read");
    writer.join().expect("no panic");
    assert!(heard == data);
}

/// A stream that its user has dropped is delivered, and then its connection ends.
#[test]
fn a_dropped_stream_is_delivered() {
    let (listener, connection) = connected();
    let [mut to_b, mut to_a] = opened(&connection, "last words");
    to_b.write_all(&[7; 1_000_000]).expect("written");
    let [a, b] = connection;
    drop((to_b, a));
    let mut heard = Vec::new();
    to_a.read_to_end(&mut heard).expect("read");
    assert_eq!(heard.len(), 1_000_000);
    drop(to_a);
    assert!(
        b.wait_ended(LONG).expect("it runs").is_some(),
        "the peer has closed it"
    );
    drop(listener);
}

/// An end that has read everything may end the connection at once.
#[test]
fn what_was_delivered_stays_delivered_when_the_peer_ends_the_connection() {
    for _ in 0..8 {
        let (_listener, connection) = connected();
        let [mut to_b, mut to_a] = opened(&connection, "last words");
        let [a, _b] = connection;
        let writer = spawn(move || {
            to_a.write_all(&[7; 100_000]).expect("written");
            to_a.end(Shutdown::Write);
            to_a.wait_delivered()
        });
        let mut heard = Vec::new();
        to_b.read_to_end(&mut heard).expect("read");
        a.finish(LONG);
        assert_eq!(heard.len(), 100_000);
        writer
            .join()
            .expect("no panic")
            .expect("the peer has everything");
    }
}

#[test]
fn streams_end_with_their_connection() {
    let (_listener, connection) = connected();
    let [_to_b, mut to_a] = opened(&connection, "cut");
    let reader = spawn(move || to_a.read(&mut [0; 10]));
    connection[0].close();
    let error = reader
        .join()
        .expect("no panic")
        .expect_err("the connection is over");
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted, "{error}");
}

/// Ends that do not agree on the lengths of messages are told so.
#[test]
fn different_options_are_refused() {
    let (_listener, [a, b]) = connected();
    let opening = spawn(move || {
        a.open_stream("odd", &StreamOptions::default(), LONG)
            .map(drop)
    });
    let options = StreamOptions {
        message_bytes: 4096,
        ..StreamOptions::default()
    };
    b.accept_stream(None, &options, LONG)
        .map(drop)
        .expect_err("the shapes differ");
    let error = opening
        .join()
        .expect("no panic")
        .expect_err("refused")
        .to_string();
    assert!(error.contains("odd"), "{error}");
}

/// A peer that breaks the protocol of streams ends that stream. The connection and its other streams go
/// on.
#[test]
fn a_stream_of_a_liar_ends_alone() {
    let (_listener, connection) = connected();
    let [mut to_b, mut to_a] = opened(&connection, "honest");
    let [a, b] = connection;
    let options = StreamOptions::default();
    let mut base = QpOptions::default();
    base.sdr.mtu = a.mtu();
    let shape = options.queue_pair(&base);
    for lie in [&b"\x09unknown"[..], b"", b"\0"] {
        let (opener, shape) = (a.clone(), shape.clone());
        let opening = spawn(move || opener.open_queue_pair("lie", shape, LONG));
        let accepted = b.accept_stream(Some("lie"), &options, LONG);
        let (_, mut stream) = accepted.expect("accepted").expect("in time");
        let pair = opening.join().expect("no panic").expect("opened");
        let liar = pair
            .into_messages(MessageOptions::default())
            .expect("buffers");
        liar.send(&b"\0right"[..]);
        liar.send(lie);
        let mut heard = Vec::new();
        let error = stream.read_to_end(&mut heard).expect_err("a lie");
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        assert_eq!(heard, b"right");
        stream.write_all(b"more").expect_err("it has ended");
    }
    to_b.write_all(b"honest").expect("written");
    let mut heard = [0; 6];
    to_a.read_exact(&mut heard).expect("read");
    assert_eq!(&heard, b"honest");
}

/// A stream for each request. The queue pairs of streams that have ended stay for half a second, and take no
/// place.
#[test]
fn a_stream_for_each_request() {
    let (_listener, [a, b]) = connected();
    let options = StreamOptions {
        message_bytes: 4096,
        messages: 2,
        ..StreamOptions::default()
    };
    let most = 3 * ConnectionOptions::default().max_queue_pairs;
    let answering = spawn(move || {
        for _ in 0..most {
            let accepted = b.accept_stream(None, &options, LONG).expect("accepted");
            let (_, mut stream) = accepted.expect("in time");
            let mut request = Vec::new();
            stream.read_to_end(&mut request).expect("read");
            stream.write_all(&request).expect("written");
            stream.end(Shutdown::Write);
        }
        b
    });
    for number in 0..most {
        let mut stream = a.open_stream("request", &options, LONG).expect("opened");
        stream.write_all(&number.to_be_bytes()).expect("written");
        stream.end(Shutdown::Write);
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("read");
        assert_eq!(answer, number.to_be_bytes());
    }
    answering.join().expect("no panic");
}

/// Asks, and checks the answers. The pauses are around the time for which an endpoint stays where a thread has left it.
fn ask(to_b: &mut Stream, connection: &Connection, seed: u64) {
    let mut draws = SplitMix::new(seed);
    for number in 0..1000_u64 {
        let request = number.to_le_bytes();
        to_b.write_all(&request).expect("written");
        let mut answer = [0; 8];
        to_b.read_exact(&mut answer).expect("read");
        assert_eq!(answer, request, "seed {seed}");
        match draws.below(40) {
            0 => sleep(Duration::from_micros(draws.below(600))),
            1 => connection.thread().call(|_| ()).expect("it runs"),
            _ => {}
        }
    }
    to_b.end(Shutdown::Write);
}

/// A thread that reads again and again polls the endpoint itself, alone and beside others.
#[test]
fn requests_cross_while_their_threads_poll() {
    for streams in [1, 3] {
        let (_listener, connection) = connected();
        let polling = Arc::new(Mutex::new(HashSet::new()));
        let names = Arc::clone(&polling);
        let note = move |_: &mut Endpoint<UdpFabric>| {
            let name = current().name().map(str::to_owned);
            names.lock().expect("no panic").insert(name);
            TaskState::Idle
        };
        let task = connection[0].thread().add_task(note).expect("it runs");
        let pairs: Vec<_> = (0..streams)
            .map(|number| opened(&connection, &number.to_string()))
            .collect();
        scope(|threads| {
            for (seed, [mut to_b, mut to_a]) in (0..).zip(pairs) {
                let [a, _] = &connection;
                let asking = move || ask(&mut to_b, a, seed);
                Builder::new()
                    .name("asks".into())
                    .spawn_scoped(threads, asking)
                    .expect("a thread");
                threads.spawn(move || {
                    let mut request = [0; 8];
                    while to_a.read_exact(&mut request).is_ok() {
                        to_a.write_all(&request).expect("written");
                    }
                });
            }
        });
        connection[0].thread().remove_task(task).expect("it runs");
        let polling = polling.lock().expect("no panic").clone();
        assert!(polling.contains(&Some("farwrite".into())), "{polling:?}");
        if streams == 1 {
            assert!(polling.contains(&Some("asks".into())), "{polling:?}");
        }
    }
}
