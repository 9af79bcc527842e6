//! What the connections of one endpoint cost each other.

use std::net::Ipv4Addr;
use std::time::Duration;

use farwrite::QpOptions;
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
