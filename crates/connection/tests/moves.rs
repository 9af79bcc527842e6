//! Connections whose path changes: the initiator gets another address, or nothing passes for a time.

mod translator;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use farwrite::{Outcome, QpOptions};
use farwrite_connection::{
    ConnectionOptions, Ended, INITIATOR_GONE_AFTER, Keys, Listener, MessageOptions,
    RESPONDER_GONE_AFTER, connect,
};
use farwrite_keys::Psk;

use translator::{LONG, STEP, Translator, exchange, messages, pair, pair_beside};

#[test]
fn a_connection_follows_the_initiator_to_another_address() {
    let (translator, near, far) = pair(LONG);
    let (of_near, of_far) = messages(&near, &far);
    exchange(&of_near, &of_far, "before");
    for _ in 0..2 {
        let addr = translator.moves();
        exchange(&of_near, &of_far, "after");
        assert_eq!(far.peer_addr(), Some(addr));
    }
    // Further queue pairs find it too.
    let (of_near, of_far) = messages(&near, &far);
    exchange(&of_near, &of_far, "again");
}

#[test]
fn silence_ends_a_connection_only_after_its_limit() {
    let limit = Duration::from_secs(5);
    let (translator, near, far) = pair(limit);
    let (of_near, of_far) = messages(&near, &far);
    exchange(&of_near, &of_far, "before");
    // A machine that sleeps.
    translator.carry(0);
    of_near.send("in between");
    thread::sleep(limit / 4);
    translator.carry(usize::MAX);
    let came = of_far.receive(LONG).expect("no failure");
    assert_eq!(came.as_deref(), Some(&b"in between"[..]));
    // Nothing is sent for longer than the limit.
    assert_eq!(of_far.receive(limit + limit / 4).expect("alive"), None);
    assert!(near.ended().is_none() && far.ended().is_none());
    translator.carry(0);
    for end in [near, far] {
        let why = end.wait_ended(LONG).expect("no failure").expect("over");
        assert!(
            matches!(why, Ended::Silence(after) if after == limit),
            "{why}"
        );
    }
    let text = of_near.receive(LONG).expect_err("over").to_string();
    assert_eq!(
        text,
        "the connection is over: nothing was heard of the peer for 5 s"
    );
}

/// The sockets of the translator are those of the two peers: once it is gone, nobody is at their ports.
#[test]
fn a_peer_whose_program_was_killed_is_gone() {
    let (translator, near, far) = pair(4 * LONG);
    let (of_near, of_far) = messages(&near, &far);
    exchange(&of_near, &of_far, "before");
    drop(translator);
    let killed = Instant::now();
    of_near.send("after");
    of_far.send("after");
    for (end, least) in [(near, RESPONDER_GONE_AFTER), (far, INITIATOR_GONE_AFTER)] {
        let why = end.wait_ended(4 * LONG).expect("no failure").expect("over");
        assert!(matches!(why, Ended::Gone), "{why}");
        assert!(killed.elapsed() >= least, "the peer had time to answer");
    }
}

/// ICMP is about the old address of an initiator that moves while it is idle. It is heard from the new one when it
/// probes.
#[test]
fn an_idle_initiator_that_moves_is_not_gone() {
    let (translator, near, far) = pair(4 * LONG);
    let (of_near, of_far) = messages(&near, &far);
    exchange(&of_near, &of_far, "before");
    // The last acknowledgements and their repeats end.
    thread::sleep(LONG / 10);
    translator.moves();
    // The translator takes packets to the old address for up to a step.
    thread::sleep(100 * STEP);
    of_far.send("after");
    let came = of_near.receive(LONG).expect("alive");
    assert_eq!(came.as_deref(), Some(&b"after"[..]));
}

/// A connection of small packets opens before its initiator knows what the path carries.
#[test]
fn both_ends_learn_that_a_path_carries_too_little() {
    let is_told = |end: &Ended| matches!(end, Ended::ByPeer { .. });
    // On a busy machine, an end may also take the path for one that carries nothing.
    let notices = |end: &Ended| matches!(end, Ended::Endpoint(_) | Ended::Silence(_));
    // The end that notices first tells the other end. Both ends may also notice at the same time.
    let is_right = (0..3).any(|_| {
        let [ours, theirs] = ends_of_a_narrow_path();
        assert!(is_told(&ours) || notices(&ours), "{ours}");
        assert!(is_told(&theirs) || notices(&theirs), "{theirs}");
        is_told(&ours) != is_told(&theirs)
    });
    assert!(is_right, "in three tries, no end told the other end");
}

/// Why a connection ends at both ends whose path carries nothing that is of use.
fn ends_of_a_narrow_path() -> [Ended; 2] {
    let keys = Keys::of_psk(&Psk::generate().expect("randomness"));
    let options = ConnectionOptions {
        largest_mtu: Some(1024),
        ..ConnectionOptions::default()
    };
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(any, &keys, &options).expect("a port");
    let translator = Translator::start(listener.local_addr());
    translator.carry(900);
    let near = connect(&translator.at.to_string(), &keys, "", &options).expect("connected");
    let far = listener.accept(LONG).expect("no failure").expect("in time");
    [&near, &far].map(|end| end.wait_ended(LONG).expect("no failure").expect("over"))
}

/// A message for which the peer has no buffer waits, and its connection lives.
#[test]
fn messages_without_a_buffer_are_not_stuck() {
    let limit = Duration::from_secs(3);
    let (_translator, near, far) = pair(limit);
    let (opened, accepted) = thread::scope(|scope| {
        let opened = scope.spawn(|| near.open_queue_pair("x", QpOptions::default(), LONG));
        let accepted = far.accept_queue_pair(None, &QpOptions::default(), LONG);
        (
            opened.join().expect("no panic").expect("opened"),
            accepted.expect("no failure"),
        )
    });
    let waiting = opened
        .into_messages(MessageOptions::default())
        .expect("buffers");
    let sent = waiting.send("nobody has posted a receive");
    assert_eq!(sent.wait(limit * 2).expect("alive"), None);
    assert!(near.ended().is_none() && far.ended().is_none());
    drop(accepted);
}

/// Someone on the path who changes bytes that no tag covers holds up a connection for a moment only, while it is
/// set up, idle or busy.
#[test]
fn changed_bytes_of_route_packets_do_not_end_a_connection() {
    let (translator, near, far) = pair_beside(LONG, true);
    let (of_near, of_far) = messages(&near, &far);
    let meddle = |is_meddling| translator.is_meddling.store(is_meddling, Ordering::Relaxed);
    exchange(&of_near, &of_far, "while it is set up");
    meddle(false);
    exchange(&of_near, &of_far, "afterwards");
    // Probes of both ends are changed, as the initiator moves.
    meddle(true);
    translator.moves();
    exchange(&of_near, &of_far, "while someone meddles");
    let sent: Vec<_> = (0..200).map(|_| of_near.send(vec![7; 100_000])).collect();
    for number in 0..sent.len() {
        if number == 100 {
            meddle(false);
        }
        let came = of_far.receive(LONG).expect("no failure").expect("in time");
        assert_eq!(came.len(), 100_000);
    }
    exchange(&of_near, &of_far, "after all");
    assert!(near.ended().is_none() && far.ended().is_none());
}

/// Calls `leave`, which returns how long an end took to leave, until that was clearly less than the second for which
/// ends wait for each other. A busy machine may need several tries.
fn until_in_time(leave: impl Fn() -> Duration) {
    let took: Vec<_> = (0..30)
        .map(|_| leave())
        .take_while(|took| *took > IN_TIME)
        .collect();
    assert!(took.len() < 30, "no end has left in time: {took:?}");
}

const IN_TIME: Duration = Duration::from_millis(700);

/// An end that has received everything may end the connection, although the path loses some of its
/// acknowledgements.
#[test]
fn messages_that_have_arrived_are_whole_although_the_peer_ends_the_connection() {
    let leave = || {
        let (translator, near, far) = pair(LONG);
        let (of_near, of_far) = messages(&near, &far);
        exchange(&of_near, &of_far, "before");
        translator.loss.store(20, Ordering::Relaxed);
        let sent: Vec<_> = (0..8).map(|_| of_near.send(vec![7; 20_000])).collect();
        for _ in &sent {
            let came = of_far.receive(LONG).expect("no failure").expect("in time");
            assert_eq!(came.len(), 20_000);
        }
        let start = Instant::now();
        far.finish(LONG);
        let took = start.elapsed();
        if took <= IN_TIME {
            for message in sent {
                assert_eq!(message.wait(LONG).expect("it runs"), Some(Outcome::Whole));
            }
            let why = near.wait_ended(LONG).expect("no failure").expect("over");
            assert!(matches!(why, Ended::ByPeer { .. }), "{why}");
        }
        took
    };
    (0..6).for_each(|_| until_in_time(leave));
}

/// An end that has lost packets says that it leaves until its peer knows it.
#[test]
fn a_peer_learns_of_a_departure_although_packets_are_lost() {
    until_in_time(|| {
        let (translator, near, far) = pair(LONG);
        let (of_near, of_far) = messages(&near, &far);
        // Only packets of the message are so long.
        translator.lose_next(2, 1000);
        exchange(&of_near, &of_far, &"before".repeat(5000));
        assert!(translator.has_lost());
        translator.lose_next(4, 0);
        let start = Instant::now();
        near.depart(LONG);
        let took = start.elapsed();
        if took <= IN_TIME {
            assert!(translator.has_lost());
            let why = far.wait_ended(LONG / 4).expect("no failure").expect("over");
            assert!(matches!(why, Ended::ByPeer { .. }), "{why}");
        }
        took
    });
}
