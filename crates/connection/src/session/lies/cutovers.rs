//! Lies about smaller packets.

use super::*;
use crate::cutover::{EndedMessages, Numbers};

/// A connection of a liar and of an honest end, a queue pair of it, which carries messages at the honest end, and its
/// number.
fn carrying(
    world: &World,
    liar_initiates: bool,
) -> ([Connection; 2], OpenedQueuePair, Messages, u32) {
    let [liar, honest] = world.with_liar(liar_initiates);
    let [of_liar, of_honest] = opened(&liar, &honest);
    let number = liar.on_session(|session, _| *session.pairs.keys().next().expect("one"));
    let messages = of_honest.into_messages(MessageOptions::default());
    let number = number.expect("it is open");
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

/// The information of the session queue pair, whose shape no other queue pair has.
fn session_info(of: &Connection) -> Vec<u8> {
    let info = of.on_session(|session, shared| encoded(shared, session.qp));
    info.expect("it is open").expect("its own")
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
    assert_eq!(outcome, Some(farwrite::Outcome::Failed));
    opened(&honest, &liar);
    world.works();
}

/// What a peer says of messages that were never sent has no effect on those that are.
#[test]
fn numbers_beyond_all_messages_are_ignored() {
    let world = World::new();
    let ([liar, honest], pair, messages, number) = carrying(&world, true);
    drop(pair);
    let queue_pair = liar.on_session(|session, shared| {
        let mut options = session.fitted(shared, QpOptions::default());
        options.sdr.mtu = SESSION_MTU;
        options.sdr.max_message_bytes = u64::from(SESSION_MTU) << options.sdr.split.offset_bits;
        let qp = shared.endpoint.create_qp(options)?;
        encoded(shared, qp)
    });
    let all = Numbers::ended(u64::MAX, &[u64::MAX - 3].into());
    let cutover = Message::Cutover {
        number,
        queue_pair: queue_pair.expect("it is open").expect("room"),
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
