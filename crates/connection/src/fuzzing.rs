//! What the fuzz targets call.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use farwrite_keys::{Code, Psk};

use crate::handshake::{
    Initiator, InitiatorKeys, Limits, Reaction, Responder, exchange_of, opening_of, retry_of,
};
use crate::keys::Keys;
use crate::message::{Introduction, Message};

const SOURCE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7);
const NUMBER: u64 = 5;
const CODE: &str = "4837-2912";

/// The secrets of the responder of `opening_of`.
const SECRETS: [[u8; 32]; 2] = [[1; 32], [2; 32]];
const LIMITS: Limits = Limits {
    answer_ns: 1 << 40,
    busy_ns: 1 << 40,
};

/// Datagrams of someone without the keys, for both ends of a handshake. The first byte says how the
/// others are wrapped: as datagrams of their own, or as changes to an opening or an answer of someone who has
/// the keys. No end accepts them, and no answer is longer than what it answers.
///
/// # Panics
/// If one of that does not hold.
pub fn datagram(psk: &Psk, data: &[u8]) {
    let Some((wrapping, rest)) = data.split_first() else {
        return;
    };
    let code: Code = CODE.parse().expect("a code");
    let keys = Keys::of_psk(psk).with_code(code);
    match wrapping % 16 {
        0 => of_initiator(&keys, rest),
        // With a cookie that is right.
        wrapping @ 1..=3 => of_responder(keys, &opening_of(SOURCE, NUMBER, wrapping - 1, rest)),
        wrapping @ 4..=9 => of_responder(keys, &of_kind(wrapping - 4, rest)),
        10 => of_responder(keys, &exchange_of(SOURCE, NUMBER, rest)),
        wrapping @ 11..=12 => of_responder(keys, &of_kind(wrapping - 5, rest)),
        wrapping @ 13..=14 => changed(keys, wrapping == 14, rest),
        _ => of_responder(keys, rest),
    }
}

/// A datagram of a kind. The header goes on in `rest`.
fn of_kind(kind: u8, rest: &[u8]) -> Vec<u8> {
    [&[0x1B, kind, 0, 1], rest].concat()
}

fn of_responder(keys: Keys, bytes: &[u8]) {
    let mut responder = Responder::new(keys, SECRETS);
    match responder.receive(0, SOURCE, bytes) {
        Reaction::Ignored => {}
        Reaction::Answered(answer) => assert!(answer.len() <= bytes.len()),
        Reaction::Asked(_) | Reaction::Proven { .. } => panic!("nobody holds the key"),
    }
    assert_eq!(responder.next_ns(), u64::MAX, "no state");
}

fn of_initiator(keys: &Keys, rest: &[u8]) {
    let Some(psk) = keys.psk.clone() else {
        return;
    };
    let (state, bytes) = rest.split_first().unwrap_or((&0, &[]));
    let keys = match (state & 2, &keys.code) {
        (2, Some(code)) => InitiatorKeys::Code(Arc::clone(code)),
        _ => InitiatorKeys::PreShared(psk),
    };
    let mut initiator = Initiator::new(keys, &[SOURCE], NUMBER, 0, LIMITS);
    assert!(initiator.poll_transmit(0).is_some(), "a hello");
    if state & 1 == 1 {
        initiator.receive(0, SOURCE, &retry_of(NUMBER));
        let sent = initiator.poll_transmit(0);
        assert!(sent.is_some(), "an opening, or an exchange");
    }
    assert!(initiator.receive(0, SOURCE, bytes).is_none());
    while initiator.poll_transmit(2_000_000_000).is_some() {}
}

/// A handshake of two ends with one key. On the way, as many bytes as the first one says are cut off the opening, or
/// off the answer, and the others change it. It is accepted only as it was.
fn changed(keys: Keys, is_answer: bool, rest: &[u8]) {
    let Some(psk) = keys.psk.clone() else {
        return;
    };
    let (cut, changes) = rest.split_first().unwrap_or((&0, &[]));
    let change = |packet: &mut Vec<u8>| -> bool {
        let before = packet.clone();
        packet.truncate(packet.len().saturating_sub(usize::from(*cut)));
        for (byte, change) in packet.iter_mut().zip(changes) {
            *byte ^= change;
        }
        *packet == before
    };
    let mut responder = Responder::new(keys, SECRETS);
    let mut initiator = Initiator::new(InitiatorKeys::PreShared(psk), &[SOURCE], NUMBER, 0, LIMITS);
    let say = |initiator: &mut Initiator| initiator.poll_transmit(0).map(|(_, bytes)| bytes);
    let hello = say(&mut initiator).expect("a hello");
    let Reaction::Answered(retry) = responder.receive(0, SOURCE, &hello) else {
        panic!("a hello was not answered");
    };
    assert!(initiator.receive(0, SOURCE, &retry).is_none());
    let mut opening = say(&mut initiator).expect("an opening");
    let is_whole = is_answer || change(&mut opening);
    let asked = match responder.receive(0, SOURCE, &opening) {
        Reaction::Asked(asked) if is_whole => asked,
        Reaction::Answered(answer) if !is_whole => {
            return assert!(answer.len() <= opening.len());
        }
        Reaction::Ignored if !is_whole => return,
        _ => panic!("whole: {is_whole}"),
    };
    let (_, mut answer) = responder.accept(0, asked, &[7; 40]).expect("short");
    let is_whole = !is_answer || change(&mut answer);
    let agreed = initiator.receive(0, SOURCE, &answer);
    assert_eq!(agreed.is_some(), is_whole);
}

/// What a peer that holds the keys says. What was read is written so that it reads the same.
///
/// # Panics
/// If that does not hold.
pub fn message(data: &[u8]) {
    if let Ok(Some(message)) = Message::decode(data) {
        assert_eq!(Message::decode(&message.encode()), Ok(Some(message)));
    }
    if let Ok(introduction) = Introduction::decode(data) {
        let bytes = introduction.encode().expect("it was read");
        let again = Introduction::decode(&bytes).expect("own bytes");
        assert_eq!(again.encode(), Ok(bytes));
    }
}
