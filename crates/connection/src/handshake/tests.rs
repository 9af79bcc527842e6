//! Handshakes in virtual time, over paths that lose, repeat and reorder packets, with an attacker.
#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use farwrite_keys::{Code, Identity, KnownPeers, OneTimeCode, PAKE_BYTES, Psk, PublicKey};
use farwrite_rng::SplitMix;

use super::packet::{self, Content, HELLO_BYTES, MAX_BYTES, Packet, Pattern, Refusal};
use super::{
    HandshakeId, Initiator, InitiatorFailure, InitiatorKeys, Limits, Reaction, RefusalCounts,
    Responder,
};
use crate::keys::{Keys, Peer};

mod codes;
mod many;

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const LIMIT: u64 = 60 * S;
const FROM_INITIATOR: &[u8] = b"from the initiator";
const FROM_RESPONDER: &[u8] = b"from the responder";

static OWN: LazyLock<Identity> = LazyLock::new(|| Identity::generate().expect("randomness"));
static PEER: LazyLock<Identity> = LazyLock::new(|| Identity::generate().expect("randomness"));

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn knows(name: &str, key: PublicKey) -> KnownPeers {
    let mut peers = KnownPeers::default();
    peers.add(name, key).expect("a name");
    peers
}

fn responder_keys() -> Keys {
    Keys::of_identity(PEER.clone(), knows("site-a", OWN.public()))
}

fn identities() -> InitiatorKeys {
    of_identities(&OWN, &PEER)
}

fn of_identities(own: &Identity, peer: &Identity) -> InitiatorKeys {
    InitiatorKeys::Identities {
        own: own.clone(),
        peer: peer.public(),
    }
}

fn responder(keys: Keys) -> Responder {
    Responder::new(keys, [[1; 32], [2; 32]])
}

fn code() -> Code {
    Code::generate().expect("randomness")
}

fn of_code(code: &Code) -> InitiatorKeys {
    InitiatorKeys::Code(Arc::new(OneTimeCode::new(code.clone())))
}

fn initiator(keys: InitiatorKeys, addresses: &[SocketAddr], number: u64, now_ns: u64) -> Initiator {
    let limits = Limits {
        answer_ns: LIMIT,
        busy_ns: LIMIT,
    };
    Initiator::new(keys, addresses, number, now_ns, limits)
}

/// An answer of a responder that has not proven that it is the peer.
fn refused(at: SocketAddr, reason: Refusal) -> InitiatorFailure {
    let version = packet::VERSION;
    InitiatorFailure::Refused {
        at,
        reason,
        version,
    }
}

/// What a path makes of a packet: which packets arrive instead, and after which time.
type Path<'a> = dyn FnMut(&[u8]) -> Vec<(u64, Vec<u8>)> + 'a;

/// The ends of one handshake, and the packets between them.
struct World {
    now_ns: u64,
    source: SocketAddr,
    place: SocketAddr,
    initiator: Initiator,
    responder: Responder,
    /// Packets under way: due time, whether to the responder, bytes.
    under_way: Vec<(u64, bool, Vec<u8>)>,
    /// All packets ever sent.
    seen: Vec<Vec<u8>>,
    /// What the responder has said of the peer, and the payloads of both ends.
    proven: Vec<(HandshakeId, Peer, Vec<u8>)>,
    answered: Option<Vec<u8>>,
    /// How many requests the responder refuses for lack of room.
    refusals: u32,
}

impl World {
    fn plain(keys: InitiatorKeys, of_responder: Keys) -> Self {
        let place = at("198.51.100.2:4792");
        Self {
            now_ns: 0,
            source: at("192.0.2.1:7000"),
            place,
            initiator: initiator(keys, &[place], 7, 0),
            responder: responder(of_responder),
            under_way: Vec::new(),
            seen: Vec::new(),
            proven: Vec::new(),
            answered: None,
            refusals: 0,
        }
    }

    fn send(&mut self, to_responder: bool, bytes: Vec<u8>, path: &mut Path<'_>) {
        assert!(bytes.len() <= MAX_BYTES);
        for (delay_ns, bytes) in path(&bytes) {
            let due_ns = self.now_ns + delay_ns;
            self.under_way.push((due_ns, to_responder, bytes));
        }
        self.seen.push(bytes);
    }

    /// Gives a datagram to the responder. Returns its answer.
    fn at_responder(&mut self, source: SocketAddr, bytes: &[u8]) -> Option<Vec<u8>> {
        match self.responder.receive(self.now_ns, source, bytes) {
            Reaction::Ignored => None,
            Reaction::Answered(answer) => Some(answer),
            Reaction::Asked(asked) if self.refusals > 0 => {
                self.refusals -= 1;
                let Reaction::Answered(busy) = self.responder.refuse(asked) else {
                    panic!("no answer");
                };
                // The network has copied the opening.
                assert_eq!(self.at_responder(source, bytes), Some(busy.clone()));
                Some(busy)
            }
            Reaction::Asked(asked) => {
                let accepted = self.responder.accept(self.now_ns, asked, FROM_RESPONDER);
                Some(accepted.expect("a short payload").1)
            }
            Reaction::Proven {
                id, peer, payload, ..
            } => {
                self.proven.push((id, peer, payload));
                None
            }
        }
    }

    /// Runs until both ends are done, the initiator has failed, or `until_ns`.
    fn run(&mut self, until_ns: u64, path: &mut Path<'_>) -> Option<InitiatorFailure> {
        while self.now_ns < until_ns {
            self.under_way.sort_by_key(|(due_ns, ..)| *due_ns);
            while self
                .under_way
                .first()
                .is_some_and(|(due, ..)| *due <= self.now_ns)
            {
                let (_, to_responder, bytes) = self.under_way.remove(0);
                if to_responder {
                    if let Some(answer) = self.at_responder(self.source, &bytes) {
                        self.send(false, answer, path);
                    }
                } else if let Some((from, payload)) =
                    self.initiator.receive(self.now_ns, self.place, &bytes)
                {
                    assert_eq!(from, self.place);
                    self.initiator
                        .prove(self.now_ns, FROM_INITIATOR)
                        .expect("a short payload");
                    self.answered = Some(payload);
                }
            }
            while self.responder.expire(self.now_ns).is_some() {}
            if self.initiator.begin_again_if_forgotten(self.now_ns) {
                self.answered = None;
            }
            while let Some((to, bytes)) = self.initiator.poll_transmit(self.now_ns) {
                if to == self.place {
                    self.send(true, bytes, path);
                }
            }
            if let Some(why) = self.initiator.failure(self.now_ns) {
                return Some(why);
            }
            assert!(self.initiator.next_ns() > self.now_ns, "nothing is due");
            if self.answered.is_some() && !self.proven.is_empty() {
                return None;
            }
            let due = self.under_way.iter().map(|(due, ..)| *due);
            let next_ns = due.min().unwrap_or(u64::MAX).min(self.initiator.next_ns());
            self.now_ns = next_ns.max(self.now_ns + 1).min(until_ns);
        }
        None
    }

    fn assert_done(&self, peer: &Peer) {
        assert_eq!(self.answered.as_deref(), Some(FROM_RESPONDER));
        assert_eq!(self.proven.len(), 1, "{:?}", self.proven);
        assert_eq!(&self.proven[0].1, peer);
        assert_eq!(self.proven[0].2, FROM_INITIATOR);
    }
}

/// A path that carries each packet once, in 10 ms.
fn clean(bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    vec![(10 * MS, bytes.to_vec())]
}

fn clean_unless(is_lost: bool, bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    match is_lost {
        true => Vec::new(),
        false => clean(bytes),
    }
}

#[test]
fn two_and_a_half_round_trips_with_each_key() {
    let psk = Psk::generate().expect("randomness");
    let of_psk = InitiatorKeys::PreShared(Keys::of_psk(&psk).psk.expect("a key"));
    let site_a = Peer::known("site-a", OWN.public());
    let code = code();
    let all = responder_keys().with_psk(&psk).with_code(code.clone());
    for (keys, of_responder, peer, packets) in [
        (identities(), responder_keys(), &site_a, 5),
        (of_psk.clone(), Keys::of_psk(&psk), &Peer::PRE_SHARED, 5),
        (identities(), all.clone(), &site_a, 5),
        (of_psk, all.clone(), &Peer::PRE_SHARED, 5),
        // A code costs one round trip more.
        (of_code(&code), all, &Peer::CODE, 7),
    ] {
        let mut world = World::plain(keys, of_responder);
        assert_eq!(world.run(LIMIT, &mut clean), None);
        world.assert_done(peer);
        assert_eq!(world.now_ns, 10 * packets * MS);
        assert_eq!(world.seen.len() as u64, packets);
        assert_eq!(world.responder.entries(), 0);
        assert_eq!(world.responder.counts, RefusalCounts::default());
        // The proof is repeated until the peer has used it.
        assert!(world.initiator.poll_transmit(S).is_some());
        world.initiator.confirm();
        assert!(world.initiator.poll_transmit(10 * S).is_none());
    }
}

#[test]
fn keys_that_differ_are_told_apart() {
    let other = Identity::generate().expect("randomness");
    let psk = InitiatorKeys::PreShared([9; 32].into());
    let place = at("198.51.100.2:4792");
    let refused = |reason| refused(place, reason);
    let wrong_peer = of_identities(&OWN, &other);
    let stranger = of_identities(&other, &PEER);
    let of_psk = Keys::of_psk(&Psk::generate().expect("randomness"));
    let (strange_code, used) = (Keys::of_code(code()), Keys::of_code(code()));
    assert!(used.code.as_ref().expect("a code").use_up());
    for (keys, of_responder, expected) in [
        (of_code(&code()), strange_code, refused(Refusal::Keys)),
        (of_code(&code()), used, refused(Refusal::CodeUsed)),
        (of_code(&code()), of_psk.clone(), refused(Refusal::Pattern)),
        (wrong_peer, responder_keys(), refused(Refusal::Keys)),
        (psk.clone(), of_psk.clone(), refused(Refusal::Keys)),
        (psk, responder_keys(), refused(Refusal::Pattern)),
        (identities(), of_psk, refused(Refusal::Pattern)),
        (
            stranger,
            responder_keys(),
            InitiatorFailure::UnknownHere { at: place },
        ),
    ] {
        let mut world = World::plain(keys, of_responder);
        assert_eq!(world.run(LIMIT, &mut clean), Some(expected));
        assert!(world.now_ns < 2 * S, "the answer is final");
        assert_eq!(world.responder.entries(), 0);
        assert_eq!((world.answered, world.proven.len()), (None, 0));
    }
}

#[test]
fn another_version_is_named() {
    let mut world = World::plain(identities(), responder_keys());
    let (_, mut hello) = world.initiator.poll_transmit(0).expect("a hello");
    hello[3] += 1;
    let mut answer = world.at_responder(world.source, &hello).expect("a refusal");
    assert!(answer.len() < HELLO_BYTES);
    // An end of version 2 answers a hello of version 1 with its own version.
    answer[3] += 1;
    assert!(world.initiator.receive(0, world.place, &answer).is_none());
    let expected = InitiatorFailure::Refused {
        at: world.place,
        reason: Refusal::Version,
        version: 2,
    };
    assert_eq!(world.initiator.failure(0), None, "anyone can say this");
    while world.initiator.poll_transmit(S).is_some() {}
    assert_eq!(world.initiator.failure(S), Some(expected));
}

#[test]
fn an_address_that_is_dead_does_not_hold_up_one_that_lives() {
    let [dead, live] = ["[2001:db8::1]:4792", "198.51.100.2:4792"].map(at);
    let mut world = World::plain(identities(), responder_keys());
    world.initiator = initiator(identities(), &[dead, live], 7, 0);
    assert_eq!(world.run(LIMIT, &mut clean), None);
    world.assert_done(&Peer::known("site-a", OWN.public()));
    assert_eq!(world.now_ns, 300 * MS, "the dead one had 250 ms");
    // While a far one is being tried, nothing is due at the other one.
    let mut world = World::plain(identities(), responder_keys());
    world.initiator = initiator(identities(), &[live, dead], 7, 0);
    let mut far = |bytes: &[u8]| vec![(300 * MS, bytes.to_vec())];
    assert_eq!(world.run(LIMIT, &mut far), None);
    world.assert_done(&Peer::known("site-a", OWN.public()));
    // Without an answer, the error names each address.
    let mut alone = initiator(identities(), &[dead, live], 7, 0);
    assert!(alone.poll_transmit(0).is_some());
    assert_eq!(alone.failure(LIMIT - 1), None);
    let to = vec![dead, live];
    assert_eq!(alone.failure(LIMIT), Some(InitiatorFailure::Silent { to }));
}

#[test]
fn a_responder_that_starts_again_is_found_again() {
    let mut world = World::plain(identities(), responder_keys());
    let mut packets = 0;
    // The responder starts again after its first answer, so the cookie is one of another secret.
    let mut lost = |bytes: &[u8]| {
        packets += 1;
        clean_unless(packets == 3, bytes)
    };
    world.run(100 * MS, &mut lost);
    world.responder = Responder::new(responder_keys(), [[3; 32], [4; 32]]);
    assert_eq!(world.run(LIMIT, &mut clean), None);
    world.assert_done(&Peer::known("site-a", OWN.public()));
    let refused = world.responder.counts.cookies;
    assert!(refused > 0, "the old cookie is refused");
    assert!(world.now_ns < 3 * S, "{}", world.now_ns);
}

/// A path that carries no proof for longer than the responder keeps a handshake.
#[test]
fn a_handshake_that_was_forgotten_begins_again() {
    let mut world = World::plain(identities(), responder_keys());
    let began = std::cell::Cell::new(0);
    let mut path = |bytes: &[u8]| {
        let number = packet::number(bytes).expect("a number");
        began.set(began.get().max(number));
        clean_unless(bytes[1] == 4 && number == 7, bytes)
    };
    assert_eq!(world.run(LIMIT, &mut path), None);
    world.assert_done(&Peer::known("site-a", OWN.public()));
    assert!(began.get() != 7, "another number");
    assert!(world.now_ns < 12 * S, "{}", world.now_ns);
    assert_eq!(world.responder.entries(), 0);
}

/// The limit for a peer without room is not that for one that is silent, and an initiator learns both.
#[test]
fn busy_has_a_limit_of_its_own() {
    let place = at("198.51.100.2:4792");
    for (answer_ns, busy_ns, silent_from_ns, ends_s) in [
        // The responder stays busy.
        (10 * S, 60 * S, u64::MAX, 60..61),
        (30 * S, 5 * S, u64::MAX, 5..8),
        (30 * S, 0, u64::MAX, 0..1),
        // It dies while it is busy.
        (10 * S, 60 * S, 20 * S, 28..31),
    ] {
        let limits = Limits { answer_ns, busy_ns };
        let mut initiator = Initiator::new(identities(), &[place], 7, 0, limits);
        let mut responder = responder(responder_keys());
        let mut now_ns = 0;
        let failed = loop {
            while let Some((to, bytes)) = initiator.poll_transmit(now_ns) {
                if now_ns >= silent_from_ns {
                    continue;
                }
                let mut reaction = responder.receive(now_ns, at("192.0.2.1:7000"), &bytes);
                if let Reaction::Asked(asked) = reaction {
                    reaction = responder.refuse(asked);
                }
                if let Reaction::Answered(answer) = reaction {
                    initiator.receive(now_ns, to, &answer);
                }
            }
            if let Some(why) = initiator.failure(now_ns) {
                break why;
            }
            let next_ns = initiator.next_ns();
            assert!(next_ns > now_ns, "nothing is due");
            now_ns = next_ns;
        };
        assert_eq!(failed, InitiatorFailure::Busy { at: place });
        assert!(ends_s.contains(&(now_ns / S)), "{now_ns}");
    }
}

/// Loss, copies, delays that reorder, and an attacker on the path who sends changed and old packets and
/// refusals to both ends. Loss keeps the ends apart only for a time, forged refusals do not, and no attack
/// leads to a second connection or to another peer.
#[test]
fn any_path_leads_to_one_connection_or_none() {
    for seed in 0..300 {
        let mut rng = SplitMix::new(seed);
        let is_of_code = seed % 2 == 1;
        let code = code();
        let mut world = match is_of_code {
            true => World::plain(of_code(&code), Keys::of_code(code)),
            false => World::plain(identities(), responder_keys()),
        };
        let seed = seed / 2;
        let [loses, refuses, changes] = [1, 2, 4].map(|bit| (1 + seed % 7) & bit != 0);
        let loss = if loses { rng.below(60) } else { 0 };
        let mut sent = Vec::<Vec<u8>>::new();
        let mut path = |bytes: &[u8]| {
            sent.push(bytes.to_vec());
            let mut arrive = Vec::new();
            for _ in 0..2 {
                if !rng.percent(loss) {
                    arrive.push((rng.within(1..150) * MS, bytes.to_vec()));
                }
                if refuses {
                    let number = sent[0][4..12].try_into().map(u64::from_be_bytes);
                    let refusal = packet::refusal(number.expect("8 bytes"), Refusal::Keys);
                    arrive.push((rng.within(1..150) * MS, refusal));
                }
                if changes {
                    let mut changed = sent[rng.index(sent.len())].clone();
                    for _ in 0..rng.below(3) {
                        let place = rng.index(changed.len());
                        changed[place] ^= 1 << rng.below(8);
                    }
                    arrive.push((rng.within(1..150) * MS, changed));
                }
            }
            arrive
        };
        let mut failed = None;
        while failed.is_none() && world.now_ns < LIMIT && world.proven.is_empty() {
            failed = world.run(world.now_ns + S, &mut path);
            assert!(world.responder.entries() <= 2, "seed {seed}");
        }
        assert!(world.proven.len() <= 1, "seed {seed}");
        if !world.proven.is_empty() {
            world.assert_done(&match is_of_code {
                true => Peer::CODE,
                false => Peer::known("site-a", OWN.public()),
            });
        }
        // An attacker who sees the packets can end a handshake, as one who cuts the cable. An opening with a code
        // cannot be replaced when its cookie is too old.
        let may_fail = changes || (loses && (refuses || is_of_code));
        let has_failed = world.proven.is_empty();
        assert!(may_fail || !has_failed, "seed {seed}: {failed:?}");
        while world.responder.expire(world.now_ns + LIMIT).is_some() {}
        assert_eq!(world.responder.entries(), 0);
    }
}

/// What an attacker on the path has recorded opens nothing later, from any address.
#[test]
fn a_recorded_handshake_is_worth_nothing() {
    let mut world = World::plain(identities(), responder_keys());
    assert_eq!(world.run(LIMIT, &mut clean), None);
    let recorded = std::mem::take(&mut world.seen);
    for source in [world.source, at("203.0.113.9:9")] {
        for round in 0..3 {
            for bytes in &recorded {
                world.at_responder(source, bytes);
            }
            assert_eq!(world.proven.len(), 1, "round {round}");
            let entries = world.responder.entries();
            assert!(entries <= 1, "the one of the same address");
        }
    }
    world.now_ns += 30 * S;
    while world.responder.expire(world.now_ns).is_some() {}
    for bytes in &recorded {
        world.at_responder(world.source, bytes);
    }
    assert_eq!(world.responder.entries(), 0, "the cookie is too old");
}

/// Each byte of an opening and of an answer counts, and so do their lengths.
#[test]
fn changed_openings_and_answers_are_refused() {
    let psk = Psk::generate().expect("randomness");
    for wrapping in [13, 14] {
        crate::fuzzing::datagram(&psk, &[wrapping]);
        for byte in 0..140 {
            let mut change = vec![0; byte + 3];
            (change[0], change[byte + 2]) = (wrapping, 1 << (byte % 8));
            crate::fuzzing::datagram(&psk, &change);
            crate::fuzzing::datagram(&psk, &[wrapping, byte as u8 + 1]);
        }
    }
}

/// Strangers send what they can: hellos and openings from many sources. They cost answers that are no
/// longer than their packets, a bounded number of exchanges, and no memory.
#[test]
fn strangers_leave_no_state() {
    let code = code();
    let keys = responder_keys().with_code(code.clone());
    let mut responder = responder(keys);
    let stranger = of_identities(&Identity::generate().expect("randomness"), &OWN);
    let (mut verified, mut cookies) = (0, BTreeMap::new());
    for n in 0..2000_u32 {
        let source = SocketAddr::from(([10, 0, (n / 250) as u8, (n % 250) as u8], 9));
        let number = u64::from(n);
        let mut answered = |bytes: &[u8]| match responder.receive(S, source, bytes) {
            Reaction::Answered(answer) => {
                assert!(answer.len() <= bytes.len());
                Some(answer)
            }
            Reaction::Ignored => None,
            _ => panic!("a stranger"),
        };
        let retry = answered(&packet::hello(number)).expect("a cookie");
        let retry = Packet::read(&retry).expect("a packet").content;
        let Content::Retry(cookie) = retry else {
            panic!("{retry:?}");
        };
        cookies.insert(cookie, n);
        let mut opening = packet::prologue(number, &cookie, Pattern::Identities);
        let (_, noise) = stranger.begin(&opening).expect("a message");
        opening.extend_from_slice(&noise);
        // An exchange about a code costs as much, and leaves as little.
        let (_, pake) = code.begin();
        let exchange = packet::exchange(number, &cookie, &pake);
        let packet = if n % 2 == 0 { opening } else { exchange };
        let refusal = packet::refusal(number, Refusal::OverBudget);
        verified += usize::from(answered(&packet) != Some(refusal));
        // With a cookie of another source.
        let other = packet::prologue(number + 1, &cookie, Pattern::Identities);
        let other = [other, noise].concat();
        let again = answered(&other).expect("another cookie");
        let again = Packet::read(&again).expect("a packet").content;
        assert!(matches!(again, Content::Retry(_)), "{again:?}");
    }
    assert_eq!(cookies.len(), 2000);
    assert_eq!(verified, 250, "the budget of one moment");
    assert_eq!(responder.entries(), 0);
    assert_eq!(responder.next_ns(), u64::MAX);
    let counts = responder.counts;
    assert_eq!((counts.other_keys, counts.over_budget), (125, 1750));
    let code = responder.keys.code.as_ref().expect("a code");
    assert!(!code.is_used(), "messages of an exchange test no guess");
}

/// A peer that holds a valid key and begins handshakes without end.
#[test]
fn a_peer_fills_its_own_share_only() {
    let other = Identity::generate().expect("randomness");
    let mut known = knows("site-a", OWN.public());
    known.add("site-b", other.public()).expect("a name");
    let mut responder = responder(Keys::of_identity(PEER.clone(), known));
    let begin = |own: &Identity, n: u32| {
        let keys = of_identities(own, &PEER);
        initiator(keys, &[at("198.51.100.2:4792")], u64::from(n), 0)
    };
    // Returns whether the responder accepts.
    let go_on = |responder: &mut Responder, initiator: &mut Initiator, n: u32, now_ns: u64| {
        let source = SocketAddr::from(([10, 0, 0, n as u8], 9));
        while let Some((to, bytes)) = initiator.poll_transmit(now_ns) {
            match responder.receive(now_ns, source, &bytes) {
                Reaction::Answered(answer) => {
                    initiator.receive(now_ns, to, &answer);
                }
                Reaction::Asked(asked) => {
                    responder.accept(now_ns, asked, &[]).expect("accepted");
                    return true;
                }
                _ => panic!("a known peer"),
            }
        }
        false
    };
    for n in 0..64 {
        assert!(go_on(&mut responder, &mut begin(&OWN, n), n, 0));
    }
    let mut waiting: Vec<_> = (64..68).map(|n| begin(&OWN, n)).collect();
    for (initiator, n) in waiting.iter_mut().zip(64..) {
        assert!(!go_on(&mut responder, initiator, n, 0), "no room");
        assert_eq!(initiator.failure(0), None, "it asks again");
        let next_ns = initiator.next_ns();
        assert!((MS..S).contains(&next_ns), "{next_ns}");
        let busy = initiator.failure(LIMIT).expect("no room");
        assert!(matches!(busy, InitiatorFailure::Busy { .. }), "{busy:?}");
    }
    assert!(go_on(&mut responder, &mut begin(&other, 70), 70, 0));
    assert_eq!(responder.entries(), 65);
    assert_eq!(responder.counts.no_room, 4);
    // One of the first is finished, so there is room for one.
    responder.forget_one();
    let asked_again = go_on(&mut responder, &mut waiting[0], 64, S);
    assert!(asked_again && !go_on(&mut responder, &mut waiting[1], 65, S));
    // A peer that is removed from the file loses its handshakes.
    let keys = Keys::of_identity(PEER.clone(), knows("site-b", other.public()));
    assert_eq!(responder.replace_keys(keys).len(), 64);
    assert_eq!(responder.next_ns(), 10 * S);
    assert!(responder.expire(10 * S).is_some());
    assert!(responder.expire(10 * S).is_none());
}
