//! A code gives one guess, and is shown once.

use super::*;

fn world(code: &Code) -> World {
    World::plain(of_code(code), Keys::of_code(code.clone()))
}

/// Packets with these kinds are lost.
fn without(kinds: &'static [u8]) -> impl FnMut(&[u8]) -> Vec<(u64, Vec<u8>)> {
    |bytes| clean_unless(kinds.contains(&bytes[1]), bytes)
}

const OPENING: u8 = 2;
const ANSWER: u8 = 3;
const REFUSAL: u8 = 5;
const EXCHANGE: u8 = 6;
const EXCHANGED: u8 = 7;

fn sent(world: &World, kind: u8) -> Vec<Vec<u8>> {
    let sent = world.seen.iter().filter(|bytes| bytes[1] == kind);
    sent.cloned().collect()
}

#[test]
fn a_wrong_guess_uses_the_code_up_and_its_copies_get_the_same_answer() {
    let code = code();
    let mut world = world(&code);
    let thief = initiator(of_code(&self::code()), &[world.place], 70, 0);
    let owner = std::mem::replace(&mut world.initiator, thief);
    let place = world.place;
    // The first refusal is lost, so the opening comes again.
    let mut lost = true;
    let mut path =
        |bytes: &[u8]| clean_unless(bytes[1] == REFUSAL && std::mem::take(&mut lost), bytes);
    let failed = world.run(LIMIT, &mut path);
    assert_eq!(failed, Some(refused(place, Refusal::Keys)));
    assert_eq!(world.responder.counts.wrong_codes, 1);
    assert!(sent(&world, OPENING).len() >= 2);
    world.initiator = owner;
    let failed = world.run(LIMIT, &mut clean);
    assert_eq!(failed, Some(refused(place, Refusal::CodeUsed)));
    assert_eq!(world.responder.counts.wrong_codes, 1);
    assert_eq!(world.responder.entries(), 0);
}

#[test]
fn copies_of_an_opening_and_of_its_answer_burn_no_guess() {
    let code = code();
    let mut world = world(&code);
    let mut late = Vec::new();
    // Each packet arrives three times, the last time much later.
    let mut path = |bytes: &[u8]| {
        late.push(bytes.to_vec());
        [10, 15, 30].map(|ms| (ms * MS, bytes.to_vec())).to_vec()
    };
    assert_eq!(world.run(LIMIT, &mut path), None);
    world.assert_done(&Peer::CODE);
    for bytes in late {
        world.at_responder(world.source, &bytes);
    }
    assert_eq!(world.proven.len(), 1);
    assert_eq!(world.responder.entries(), 0, "the code has served");
    assert_eq!(world.responder.counts.wrong_codes, 0);
    let openings = sent(&world, OPENING);
    assert!(openings.iter().all(|opening| *opening == openings[0]));
}

#[test]
fn a_code_that_was_shown_is_not_shown_again() {
    let code = code();
    let mut world = world(&code);
    let keys = of_code(&code);
    let place = world.place;
    world.initiator = initiator(keys.clone(), &[place, at("203.0.113.5:4792")], 7, 0);
    let failed = world.run(LIMIT + S, &mut without(&[ANSWER, REFUSAL]));
    assert_eq!(failed, Some(InitiatorFailure::Unfinished { at: place }));
    let openings = sent(&world, OPENING);
    assert!(openings.iter().all(|opening| *opening == openings[0]));
    let mut again = initiator(keys, &[place], 8, world.now_ns);
    while again.poll_transmit(world.now_ns).is_some() {}
    let failed = again.failure(world.now_ns);
    assert_eq!(failed, Some(InitiatorFailure::CodeUsed));
}

/// The first of two addresses sends a cookie and answers no exchange.
#[test]
fn one_address_at_a_time_gets_an_exchange() {
    let places = ["198.51.100.2:4792", "203.0.113.5:4792"].map(at);
    let mut initiator = initiator(of_code(&code()), &places, 7, 0);
    let (mut exchanges, mut now_ns) = (Vec::new(), 0);
    while now_ns < 8 * S {
        while let Some((to, bytes)) = initiator.poll_transmit(now_ns) {
            let number = packet::number(&bytes).expect("a number");
            match Packet::read(&bytes).map(|packet| packet.content) {
                Some(Content::Hello) => {
                    let retry = packet::retry(number, &[1; packet::COOKIE_BYTES]);
                    initiator.receive(now_ns, to, &retry);
                }
                Some(Content::Exchange { .. }) => exchanges.push((now_ns, to)),
                other => panic!("{other:?}"),
            }
        }
        now_ns = initiator.next_ns().max(now_ns + 1);
    }
    for place in places {
        assert!(exchanges.iter().any(|(_, to)| *to == place), "{place}");
    }
    let mut pairs = exchanges.windows(2);
    let turns = pairs.all(|pair| pair[0].1 == pair[1].1 || pair[1].0 >= pair[0].0 + 100 * MS);
    assert!(turns, "{exchanges:?}");
}

#[test]
fn an_exchange_that_was_answered_late_begins_again() {
    let code = code();
    let mut world = world(&code);
    let mut now_lost = 0;
    let mut path = |bytes: &[u8]| {
        let is_lost = bytes[1] == EXCHANGE && now_lost < 8;
        now_lost += usize::from(is_lost);
        clean_unless(is_lost, bytes)
    };
    assert_eq!(world.run(LIMIT, &mut path), None);
    world.assert_done(&Peer::CODE);
    let exchanges = sent(&world, EXCHANGE);
    let numbers = exchanges.iter().map(|bytes| packet::number(bytes));
    let numbers: std::collections::BTreeSet<_> = numbers.collect();
    assert_eq!(numbers.len(), 2, "with a fresh cookie");
    assert_eq!(sent(&world, OPENING).len(), 1);
}

/// Something on the path sends messages of the exchange that no code gives.
#[test]
fn a_malformed_exchange_shows_nothing() {
    let code = code();
    let mut world = world(&code);
    let mut forged = 0;
    let mut path = |bytes: &[u8]| {
        let mut arrive = clean(bytes);
        if bytes[1] == EXCHANGED && forged < 3 {
            forged += 1;
            arrive[0].1[12..].fill(0xff);
        }
        arrive
    };
    assert_eq!(world.run(LIMIT, &mut path), None);
    world.assert_done(&Peer::CODE);
    assert_eq!(sent(&world, OPENING).len(), 1);
    // A guess without a point is none.
    let mut responder = responder(Keys::of_code(code));
    let source = world.source;
    let Reaction::Answered(retry) = responder.receive(0, source, &packet::hello(1)) else {
        panic!("no cookie");
    };
    let cookie = retry[12..].try_into().expect("a cookie");
    let mut opening = packet::prologue(1, &cookie, Pattern::Code);
    opening.extend_from_slice(&[0xff; PAKE_BYTES + 48]);
    let reaction = responder.receive(0, source, &opening);
    assert!(matches!(reaction, Reaction::Ignored));
    assert_eq!(responder.counts.wrong_codes, 0);
}

/// A responder without room proves that it knows the code, so both ends use it again.
#[test]
fn a_code_outlives_a_responder_without_room() {
    let code = code();
    let mut world = world(&code);
    world.refusals = 2;
    assert_eq!(world.run(LIMIT, &mut clean), None);
    world.assert_done(&Peer::CODE);
    assert_eq!(world.responder.counts.no_room, 2);
    assert_eq!(world.responder.counts.wrong_codes, 0);
}
