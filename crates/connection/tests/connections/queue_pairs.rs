//! Queue pairs and messages of connections.

use super::*;

#[test]
fn messages_cross_in_both_directions_without_carrying_anything_by_hand() {
    let (listener, a, b) = pair(LOOPBACK);
    assert_eq!(a.peer().name(), Some("site-b"));
    assert_eq!(b.peer().name(), Some("site-a"));
    let port = listener.local_addr().port();
    assert_eq!(a.peer_addr().map(|addr| addr.port()), Some(port));
    assert!(
        a.mtu() > 8000 && a.mtu() == b.mtu(),
        "{} {}",
        a.mtu(),
        b.mtu()
    );
    // Each end opens one, and two have the same name.
    let (a1, b1) = opened(&a, &b, "one");
    let (b2, a2) = opened(&b, &a, "two");
    let (a3, b3) = opened(&a, &b, "two");
    assert_eq!((a1.name(), b2.name(), b3.name()), ("one", "two", "two"));
    for (from, to) in [(a1, b1), (b2, a2), (a3, b3)] {
        let (from, to) = (messages(from), messages(to));
        let long: Vec<u8> = (0..=255).cycle().take(1_000_000).collect();
        let sent = [Vec::new(), b"short".to_vec(), long];
        let tickets: Vec<_> = sent.iter().map(|message| from.send(&message[..])).collect();
        for message in &sent {
            let came = to.receive(LONG).expect("no failure");
            assert!(came.as_ref() == Some(message), "{} bytes", message.len());
        }
        for ticket in tickets {
            assert_eq!(ticket.wait(LONG).expect("no failure"), Some(Outcome::Whole));
        }
        for n in 0..40_u8 {
            to.send([n]);
        }
        for n in 0..40_u8 {
            assert_eq!(from.receive(LONG).expect("no failure"), Some(vec![n]));
        }
        assert_eq!(from.receive(Duration::ZERO).expect("no failure"), None);
    }
    b.close();
    let why = a.wait_ended(LONG).expect("no failure").expect("over");
    let cause = ByeCause::Closed;
    assert!(
        matches!(&why, Ended::ByPeer { cause: c, .. } if *c == cause),
        "{why}"
    );
    let late = a.open_queue_pair("late", QpOptions::default(), LONG);
    let text = late.expect_err("over").to_string();
    assert_eq!(
        text,
        "the connection is over: the peer has ended it (closed)"
    );
}

#[test]
fn the_two_ways_to_use_a_queue_pair_are_one() {
    let (_listener, a, b) = pair("[::1]:0");
    let (a, b) = opened(&a, &b, "by hand");
    // The default of `QpOptions` is unsealed.
    for end in [&a, &b] {
        let info = end.call(|endpoint, qp| endpoint.qp_info(qp));
        let info = info.expect("the thread runs").expect("it exists");
        assert!(info.seals && info.requires_sealing);
    }
    let recv = b.call(|endpoint, qp| {
        let target = endpoint.register(vec![0_u8; 5000])?;
        endpoint.post_recv(qp, target.whole())
    });
    let recv = recv.expect("the thread runs").expect("posted");
    let send = a.call(|endpoint, qp| {
        let source = endpoint.register(vec![7_u8; 5000])?;
        endpoint.post_send(qp, source.whole(), SendOptions::default())
    });
    let send = send.expect("the thread runs").expect("posted");
    let thread = a.connection().thread();
    let outcome = thread.wait(LONG, || send.outcome()).expect("no failure");
    assert_eq!(outcome, Some(Outcome::Whole));
    assert_eq!(recv.outcome(), Some(Outcome::Whole));
}

#[test]
fn queue_pairs_that_do_not_fit_are_refused() {
    let (_listener, a, b) = pair(LOOPBACK);
    let mut small = QpOptions::default();
    small.sdr.slots = 16;
    let (refused, failed) = thread::scope(|scope| {
        let opening = scope.spawn(|| a.open_queue_pair("x", QpOptions::default(), LONG));
        let failed = b.accept_queue_pair(None, &small, LONG);
        (opening.join().expect("no panic"), failed)
    });
    let refused = refused.expect_err("other slots").to_string();
    assert!(
        refused.contains("slots") && refused.contains("\"x\""),
        "{refused}"
    );
    assert!(failed.is_err());
    let nobody = a.open_queue_pair("y", QpOptions::default(), Duration::from_millis(50));
    assert!(matches!(nobody.err(), Some(Error::Timeout { .. })));
    let bad = a.open_queue_pair("a\nb", QpOptions::default(), LONG);
    assert!(matches!(bad.err(), Some(Error::InvalidName { bytes: 3 })));
    // A message that is longer than the peer's buffer fails alone. The one that was given up is gone.
    let (a, b) = opened(&a, &b, "z");
    let none = b
        .connection()
        .accept_queue_pair(Some("y"), &small, Duration::ZERO);
    assert!(none.expect("no failure").is_none());
    let options = MessageOptions {
        longest_bytes: 100,
        ..MessageOptions::default()
    };
    let a = messages(a);
    // It is sent before the peer has buffers.
    let long = a.send([1; 101]);
    let b = b.into_messages(options).expect("buffers");
    let short = a.send([1; 100]);
    let came = b.receive(LONG).expect("no failure");
    assert_eq!(came, Some(vec![1; 100]));
    assert_eq!(long.wait(LONG).expect("no failure"), Some(Outcome::Failed));
    assert_eq!(short.wait(LONG).expect("no failure"), Some(Outcome::Whole));
    // And one after the peer has taken messages.
    let longer = a.send([1; 102]);
    assert_eq!(
        longer.wait(LONG).expect("no failure"),
        Some(Outcome::Failed)
    );
    let reason = |length| Some(TooLong::ForPeer { length, limit: 100 });
    let reasons = [&long, &short, &longer].map(SentMessage::too_long);
    assert_eq!(reasons, [reason(101), None, reason(102)]);
}

/// What is queued or under way has a bound, and a message that no path carries fails alone.
#[test]
fn messages_wait_for_room() {
    let (_listener, a, b) = pair(LOOPBACK);
    // Packets of 1 KiB are the smallest, and a message has at most 2^18.
    let on_path = a.largest_message(&QpOptions::default());
    assert!((1 << 28..=1 << 30).contains(&on_path), "{on_path}");
    let mut short = QpOptions::default();
    short.sdr.max_message_bytes = 1 << 20;
    let (a, b) = opened_with(&a, &b, "bounded", &short);
    assert_eq!(a.largest_message(), 1 << 20);
    let options = MessageOptions {
        unsent_bytes: 10_000,
        ..MessageOptions::default()
    };
    let a = a.into_messages(options).expect("buffers");
    let beyond = a.send(vec![1; (1 << 20) + 1]);
    assert_eq!(
        beyond.wait(LONG).expect("no failure"),
        Some(Outcome::Failed)
    );
    let reason = TooLong::ForPath {
        length: (1 << 20) + 1,
        limit: 1 << 20,
    };
    assert_eq!(beyond.too_long(), Some(reason));
    // The peer has posted no buffers.
    let two: Vec<_> = (0..2).map(|n| a.try_send(vec![n; 5000])).collect();
    assert!(two.iter().all(Result::is_ok));
    assert_eq!(a.try_send([2]).err(), Some(vec![2]));
    thread::scope(|scope| {
        let third = scope.spawn(|| a.send([2; 5000]).wait(LONG));
        let b = messages(b);
        for n in 0..3 {
            let came = b.receive(LONG).expect("no failure");
            assert_eq!(came, Some(vec![n; 5000]));
        }
        let outcome = third.join().expect("no panic").expect("no failure");
        assert_eq!(outcome, Some(Outcome::Whole));
    });
}

/// A queue pair that the peer has no place for waits, and so does one behind many others.
#[test]
fn queue_pairs_wait_for_a_place() {
    const SHORT: Duration = Duration::from_millis(50);
    let keys = Keys::of_psk(&Psk::generate().expect("randomness"));
    let two = ConnectionOptions {
        max_queue_pairs: 2,
        ..options()
    };
    let addr: SocketAddr = LOOPBACK.parse().expect("an address");
    let listener = Listener::bind(addr, &keys, &two).expect("a port");
    let to = listener.local_addr().to_string();
    let a = connect(&to, &keys, "", &options()).expect("connected");
    let b = accepted(&listener);
    let (_a1, b1) = opened(&a, &b, "one");
    let (_a2, b2) = opened(&a, &b, "two");
    let names: Vec<_> = (3..43).map(|number| number.to_string()).collect();
    thread::scope(|scope| {
        let opening: Vec<_> = names
            .iter()
            .map(|name| scope.spawn(|| a.open_queue_pair(name, QpOptions::default(), LONG)))
            .collect();
        let none = b.accept_queue_pair(None, &QpOptions::default(), SHORT);
        assert!(none.expect("no failure").is_none(), "two are open");
        drop(b1);
        b2.retire();
        // Each takes the place of one that has ended.
        let mut places = 0;
        for _ in &opening {
            let accepted = b.accept_queue_pair(None, &QpOptions::default(), LONG);
            drop(accepted.expect("no failure").expect("a place"));
            places += 1;
        }
        assert_eq!(places, 40);
        for opened in opening {
            opened.join().expect("no panic").expect("opened");
        }
    });
}
