//! Lies about smaller packets.

use farwrite::routes::RouteShrunk;
use farwrite::{Outcome, SchemeTag, SendOptions};

use super::*;
use crate::cutover::{EndedMessages, GoesOn, Numbers};

/// A connection of a liar and of an honest end, a queue pair of it, which carries messages at the honest end, and its
/// number.
fn carrying(
    world: &World,
    liar_initiates: bool,
) -> ([Connection; 2], OpenedQueuePair, Messages, u32) {
    let [liar, honest] = world.with_liar(liar_initiates);
    let [of_liar, of_honest] = opened(&liar, &honest);
    let number = at(&liar, |session, _| {
        *session.pairs.keys().next().expect("one")
    });
    let messages = of_honest.into_messages(MessageOptions::default());
    ([liar, honest], of_liar, messages.expect("buffers"), number)
}

fn smaller(mtu: u32) -> Vec<u8> {
    Message::Smaller { mtu }.encode()
}

fn cutover(number: u32, queue_pair: Vec<u8>) -> Vec<u8> {
    let ended = EndedMessages::default();
    let cutover = Message::Cutover {
        number,
        queue_pair,
        ended,
    };
    cutover.encode()
}

/// The information of a queue pair of `of` with the smallest packets, which is made for it.
fn small_info(of: &Connection) -> Vec<u8> {
    let made = at(of, |session, shared| {
        let mut options = session.fitted(shared, QpOptions::default());
        fit_path(&mut options.sdr, SESSION_MTU);
        let qp = shared.endpoint.create_qp(options)?;
        encoded(shared, qp)
    });
    made.expect("room")
}

fn refused(number: u32) -> Vec<u8> {
    let reason = Text::default();
    Message::Refused { number, reason }.encode()
}

/// `end` finds that the path carries only smaller packets.
fn shrink(end: &Connection, carries: u32) {
    at(end, move |session, shared| {
        let peer = shared.keeper.peer(session.route).expect("a route");
        let mtu = session.mtu;
        session.shrink(shared, &RouteShrunk { peer, mtu, carries });
        session.wake();
    });
}

#[test]
fn impossible_cutovers_end_their_connection_with_one_line() {
    let world = World::new();
    type Lie = fn(&Connection, u32) -> Vec<u8>;
    let lies: [(bool, Lie, &str); 5] = [
        (true, |_, _| smaller(100), "packets of 100 bytes"),
        (false, |_, _| smaller(1026), "packets of 1026 bytes"),
        (true, |_, number| cutover(number, vec![7; 100]), ""),
        (
            true,
            |liar, number| cutover(number, info(liar)),
            "packets of 4096 bytes, want 1024 to 4095",
        ),
        (
            false,
            |liar, number| cutover(number, session_info(liar)),
            "the responder begins a cutover",
        ),
    ];
    for (liar_initiates, lie, expected) in lies {
        let ([liar, honest], _pair, _messages, number) = carrying(&world, liar_initiates);
        say(&liar, [lie(&liar, number)]);
        let why = honest.wait_ended(LONG).expect("no failure").expect("over");
        let text = why.to_string();
        assert!(matches!(why, Ended::Malformed(_)), "{text}");
        assert!(text.contains(expected) && !text.contains('\n'), "{text}");
    }
    world.works();
}

#[test]
fn cutovers_that_have_no_meaning_here_have_no_effect() {
    let world = World::new();
    for liar_initiates in [true, false] {
        let ([liar, honest], _pair, messages, number) = carrying(&world, liar_initiates);
        let mtu = honest.mtu();
        let accepted = |number| {
            let accepted = Message::CutoverAccepted {
                number,
                queue_pair: info(&liar),
                ended: EndedMessages::default(),
            };
            accepted.encode()
        };
        let mut lies = vec![accepted(number), accepted(77)];
        lies.push(smaller(mtu));
        if liar_initiates {
            lies.push(cutover(78, session_info(&liar)));
        }
        say(&liar, lies);
        opened(&honest, &liar);
        assert_eq!(honest.mtu(), mtu);
        assert_eq!(messages.receive(Duration::ZERO).expect("it works"), None);
    }
    world.works();
}

/// The messages fail, and the connection goes on.
#[test]
fn a_cutover_to_another_shape_breaks_a_queue_pair() {
    let world = World::new();
    let ([liar, honest], _pair, messages, number) = carrying(&world, true);
    let sent = messages.send("it does not leave");
    say(&liar, [cutover(number, session_info(&liar))]);
    let error = messages.receive(LONG).expect_err("broken").to_string();
    assert!(error.contains("does not carry packets of"), "{error}");
    let outcome = sent.wait(LONG).expect("it runs");
    assert_eq!(outcome, Some(Outcome::Failed));
    opened(&honest, &liar);
    world.works();
}

/// What a peer says of messages that were never sent has no effect on those that are.
#[test]
fn numbers_beyond_all_messages_are_ignored() {
    let world = World::new();
    let ([liar, honest], pair, messages, number) = carrying(&world, true);
    drop(pair);
    let all = Numbers::ended(u64::MAX, &[u64::MAX - 3].into());
    let cutover = Message::Cutover {
        number,
        queue_pair: small_info(&liar),
        ended: EndedMessages {
            received: all.clone(),
            failed: vec![u64::MAX, 0],
            sent: all,
        },
    };
    say(&liar, [cutover.encode()]);
    until(&honest, |session| {
        let mut pairs = session.pairs.values();
        pairs
            .any(|pair| pair.options.sdr.mtu == SESSION_MTU)
            .then_some(())
    });
    assert_eq!(messages.receive(Duration::ZERO).expect("it works"), None);
    world.works();
}

/// The responder waits for a cutover, and the peer ends the connection in place of it.
#[test]
fn messages_end_with_a_connection_that_ends_in_a_cutover() {
    let world = World::new();
    let bye = Message::Bye {
        cause: ByeCause::Closed,
        reason: Text::default(),
    };
    let ([liar, honest], _pair, messages, _number) = carrying(&world, false);
    let sent = messages.send(vec![7; 3000]);
    say(&liar, [smaller(2048), bye.encode()]);
    let why = honest.wait_ended(LONG).expect("no failure");
    assert!(why.is_some());
    let error = messages.receive(LONG).expect_err("over");
    assert!(matches!(error, Error::Over(_)), "{error}");
    assert!(sent.wait(LONG).expect("it runs").is_some());
    let late = messages.send("too late").wait(LONG).expect("it runs");
    assert_eq!(late, Some(Outcome::Failed));
    world.works();
}

/// A message without a scheme is lost, and the one behind it is too long for its buffer.
#[test]
fn a_message_that_has_failed_behind_an_open_one_is_named() {
    let world = World::new();
    let ([_liar, honest], pair, _messages, number) = carrying(&world, true);
    let post = |bytes: usize, options: SendOptions| {
        let sent = pair.call(move |endpoint, qp| {
            let region = endpoint.register(vec![7; bytes])?;
            endpoint.post_send(qp, region.whole(), options)
        });
        sent.expect("it runs").expect("posted")
    };
    let scheme = SchemeTag::NONE;
    post(
        100,
        SendOptions {
            scheme,
            ..SendOptions::default()
        },
    );
    // When the last one has arrived, the receiver knows that the sender has given up the one before it.
    for (bytes, expected) in [(2 << 20, Outcome::Failed), (100, Outcome::Whole)] {
        let sent = post(bytes, SendOptions::default());
        let outcome = pair.connection().thread().wait(LONG, || sent.outcome());
        assert_eq!(outcome.expect("it runs"), Some(expected));
    }
    let ended = at(&honest, move |session, shared| {
        let pair = session.pairs.get_mut(&number).expect("open");
        let user = pair.user.as_mut().expect("messages");
        user.cut(shared.endpoint, &pair.options)
    });
    let (_, ended) = ended.expect("cut");
    assert!(ended.received.contains(1));
    assert_eq!(ended.failed, [1]);
    world.works();
}

/// What cannot go on over its new queue pair.
struct CannotGoOn(farwrite::QueuePair);

impl GoesOn for CannotGoOn {
    fn cut(
        &mut self,
        endpoint: &mut farwrite::Endpoint<UdpFabric>,
        options: &QpOptions,
    ) -> Result<(farwrite::QueuePair, EndedMessages), farwrite::Error> {
        let new = endpoint.replace_qp(self.0, options.clone())?;
        Ok((new, EndedMessages::default()))
    }

    fn go_on(&mut self, _: &mut farwrite::Endpoint<UdpFabric>, _: &EndedMessages) -> bool {
        false
    }

    fn give_up(&mut self, _: &mut farwrite::Endpoint<UdpFabric>, _: Arc<farwrite::Error>) {}
}

/// A queue pair breaks at both ends, also if the peer of the end that cannot go on has gone on already.
#[test]
fn a_queue_pair_that_cannot_go_on_at_one_end_breaks_at_both() {
    let world = World::new();
    for liar_initiates in [true, false] {
        let ([liar, honest], pair, messages, _number) = carrying(&world, liar_initiates);
        let cannot = CannotGoOn(pair.queue_pair());
        pair.set_user(cannot).expect("it is open");
        let sent = messages.send(vec![7; 3000]);
        shrink(&liar, 2048);
        let error = messages.receive(LONG).expect_err("broken").to_string();
        assert!(error.contains("does not carry packets of"), "{error}");
        assert!(sent.wait(LONG).expect("it runs").is_some());
        opened(&honest, &liar);
    }
    // A refusal follows the cutover.
    let ([liar, honest], _pair, messages, number) = carrying(&world, true);
    let cutover = cutover(number, small_info(&liar));
    say(&liar, [smaller(SESSION_MTU), cutover, refused(number)]);
    messages.receive(LONG).expect_err("broken");
    assert!(honest.ended().is_none());
    world.works();
}

#[test]
fn a_request_from_before_the_path_shrank_is_no_failure() {
    let world = World::new();
    let ([liar, honest], _pair, _messages, number) = carrying(&world, true);
    let [withdrawn, late] = [number + 2, number + 4];
    say(
        &liar,
        [
            open(withdrawn, "x", info(&liar)),
            smaller(2048),
            refused(withdrawn),
            open(late, "x", info(&liar)),
        ],
    );
    until(&honest, |session| (session.next_theirs > 4).then_some(()));
    assert_eq!(held(&honest)[2], 1);
    let limit = Duration::from_millis(100);
    let accepted = honest.accept_queue_pair(None, &QpOptions::default(), limit);
    assert!(accepted.expect("no failure").is_none());
    assert_eq!(held(&honest)[2], 0);
    world.works();
}

/// The queue pairs are more than the messages of the session that may wait for the peer.
#[test]
fn very_many_queue_pairs_break_one_after_the_other() {
    let world = World::new();
    let keys = &world.keys;
    let most = ConnectionOptions {
        max_queue_pairs: 2 * MOST_UNSENT,
        ..options()
    };
    let listener = Listener::bind(LOOPBACK, keys, &most).expect("a port");
    let to = listener.local_addr().to_string();
    let near = connect(&to, keys, "", &most).expect("connected");
    let far = listener.accept(LONG).expect("no failure").expect("in time");
    let mut small = QpOptions::default();
    small.sdr.slots = 2;
    small.sdr.max_message_bytes = 10_000;
    let count = MOST_UNSENT + 10;
    let _pairs = thread::scope(|scope| {
        let opening = scope.spawn(|| {
            let opened = (0..count).map(|_| near.open_queue_pair("x", small.clone(), LONG));
            opened.collect::<Result<Vec<_>, _>>()
        });
        let accepted = (0..count).map(|_| far.accept_queue_pair(None, &small, LONG));
        let accepted: Vec<_> = accepted.collect();
        (
            opening.join().expect("no panic").expect("accepted"),
            accepted,
        )
    });
    shrink(&near, 2048);
    for end in [&near, &far] {
        until(end, |session| {
            let mut pairs = session.pairs.values();
            pairs.all(|pair| pair.is_broken).then_some(())
        });
        assert!(end.ended().is_none());
    }
}

/// Either end may find that the path shrinks while the program of the other one has not answered.
#[test]
fn a_request_is_made_again_with_smaller_packets() {
    let world = World::new();
    for finds in [0, 1] {
        let ends = world.with_liar(true);
        let [near, far] = &ends;
        thread::scope(|scope| {
            let opening = scope.spawn(|| near.open_queue_pair("x", QpOptions::default(), LONG));
            asked(far);
            shrink(&ends[finds], 2048);
            // Otherwise the program might accept the request that is made again.
            until(far, |session| (session.mtu == 2048).then_some(()));
            let accepted = accept(far);
            let opened = opening.join().expect("no panic").expect("accepted");
            for pair in [opened, accepted] {
                let info = pair.call(|endpoint, qp| endpoint.qp_info(qp));
                let info = info.expect("it runs").expect("connected");
                assert_eq!(info.config.mtu, 2048);
                assert_eq!(pair.largest_message(), info.config.max_message_bytes);
            }
        });
    }
    world.works();
}
