//! The responder's end of all handshakes of a listener. It keeps no state for a source before that has
//! shown that it receives there, and that it holds a key (P12.4).

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use farwrite_keys::PublicKey;
use snow::{HandshakeState, StatelessTransportState};

use super::budget::Budget;
use super::cookie::CookieJar;
use super::noise;
use super::packet::{self, Content, Opening, Packet, Refusal, VERSION};
use super::{ACCEPTED, BUSY, UNKNOWN_PEER};
use crate::keys::{Keys, Peer};

mod codes;

/// The highest number of handshakes that wait for their proof.
const MOST: usize = 256;
/// The highest number of them of one peer.
const MOST_OF_PEER: usize = 64;
/// How long a handshake may wait for its proof.
const WAIT_NS: u64 = 10_000_000_000;

/// Names a handshake: the number and the address of its initiator.
pub(crate) type HandshakeId = (u64, SocketAddr);

/// What happens on a datagram.
pub(crate) enum Reaction {
    Ignored,
    /// A datagram goes to the source.
    Answered(Vec<u8>),
    /// A peer that holds the keys asks for a connection. [`Responder::accept`] or [`Responder::refuse`]
    /// follows.
    Asked(Asked),
    /// The peer has shown that its request is no replay. The handshake is over.
    Proven {
        id: HandshakeId,
        peer: Peer,
        payload: Vec<u8>,
        /// When this end has answered first.
        since_ns: u64,
    },
}

/// A request whose first message verifies.
pub(crate) struct Asked {
    id: HandshakeId,
    peer: Peer,
    /// The hash of the opening.
    opening: [u8; 32],
    state: Box<HandshakeState>,
}

impl Asked {
    pub(crate) fn owner(&self) -> Owner {
        owner(&self.peer, self.id.1)
    }
}

/// A handshake that waits for its proof.
struct Entry {
    peer: Peer,
    /// The hash of the opening, which its initiator may repeat.
    opening: [u8; 32],
    answer: Vec<u8>,
    ciphers: Box<StatelessTransportState>,
    since_ns: u64,
}

/// How many requests came to nothing, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusalCounts {
    /// Openings without a valid cookie. Their sources got a cookie.
    pub cookies: u64,
    /// Openings and exchanges about a code that were not computed, because too many came. Their initiators repeat
    /// them.
    pub over_budget: u64,
    /// Openings that do not verify: their senders have other keys, or a code that is used up.
    pub other_keys: u64,
    /// Openings that have used the code up, and were wrong.
    pub wrong_codes: u64,
    /// Peers that are not in the known peers.
    pub unknown_peers: u64,
    /// The source of the newest opening without a code that has other keys, or comes from a peer that is not known.
    pub latest: Option<SocketAddr>,
    /// The public key of the newest peer that is not known.
    pub latest_unknown: Option<PublicKey>,
    /// Requests without room.
    pub no_room: u64,
    /// Hellos of another version.
    pub other_version: u64,
}

/// One end of any number of handshakes.
pub(crate) struct Responder {
    pub(crate) keys: Keys,
    cookies: CookieJar,
    budget: Budget,
    entries: BTreeMap<HandshakeId, Entry>,
    /// When handshakes began to wait, in order. Those that have ended leave it when they are first.
    waiting: VecDeque<(u64, HandshakeId)>,
    /// The hash of the last opening that was verified with a code, and its answer unless that accepts.
    tried: Option<([u8; 32], Vec<u8>)>,
    pub(crate) counts: RefusalCounts,
}

impl Responder {
    /// `secrets` are random.
    pub(crate) fn new(keys: Keys, secrets: [[u8; 32]; 2]) -> Self {
        let [cookies, budget] = secrets;
        Self {
            keys,
            cookies: CookieJar::new(cookies),
            budget: Budget::new(budget),
            entries: BTreeMap::new(),
            waiting: VecDeque::new(),
            tried: None,
            counts: RefusalCounts::default(),
        }
    }

    pub(crate) fn receive(&mut self, now_ns: u64, source: SocketAddr, bytes: &[u8]) -> Reaction {
        let Some(packet) = Packet::read(bytes) else {
            return Reaction::Ignored;
        };
        let id = (packet.number, source);
        match packet.content {
            Content::Hello if packet.version != VERSION => {
                self.counts.other_version += 1;
                Reaction::Answered(packet::refusal(packet.number, Refusal::Version))
            }
            Content::Hello => self.retry(now_ns, id),
            Content::Exchange { cookie, .. } | Content::Opening(Opening { cookie, .. })
                if !self.cookies.accepts(now_ns, source, packet.number, &cookie) =>
            {
                self.counts.cookies += 1;
                self.retry(now_ns, id)
            }
            Content::Exchange { cookie, pake } => self.exchange(now_ns, id, &cookie, pake),
            Content::Opening(opening) => {
                let hash = *blake3::hash(bytes).as_bytes();
                if let Some(repeated) = self.repeated(id, &hash) {
                    return repeated;
                }
                match opening.pake {
                    Some(pake) => self.open_of_code(now_ns, id, hash, (&opening, pake)),
                    None => self.open(now_ns, id, hash, &opening),
                }
            }
            Content::Proof(noise) => self.prove(id, noise),
            Content::Retry(_)
            | Content::Exchanged(_)
            | Content::Answer(_)
            | Content::Refusal(_) => Reaction::Ignored,
        }
    }

    /// The reaction to an opening of a handshake that is under way, or has failed with this opening.
    fn repeated(&self, id: HandshakeId, opening: &[u8; 32]) -> Option<Reaction> {
        match (self.entries.get(&id), &self.tried) {
            (Some(entry), _) if entry.opening == *opening => {
                Some(Reaction::Answered(entry.answer.clone()))
            }
            (Some(_), _) => Some(Reaction::Ignored),
            (None, Some((tried, answer))) if tried == opening => {
                Some(Reaction::Answered(answer.clone()))
            }
            _ => None,
        }
    }

    fn retry(&self, now_ns: u64, (number, source): HandshakeId) -> Reaction {
        let cookie = self.cookies.make(now_ns, source, number);
        Reaction::Answered(packet::retry(number, &cookie))
    }

    fn open(
        &mut self,
        now_ns: u64,
        id: HandshakeId,
        hash: [u8; 32],
        opening: &Opening<'_>,
    ) -> Reaction {
        if let Some(refusal) = self.over_budget(now_ns, id) {
            return Reaction::Answered(refusal);
        }
        let (state, peer) = match noise::open(&self.keys, opening) {
            Ok(opened) => opened,
            Err(why) => {
                self.counts.other_keys += 1;
                self.counts.latest = Some(id.1);
                return Reaction::Answered(packet::refusal(id.0, why));
            }
        };
        let peer = match peer {
            Ok(peer) => peer,
            Err(key) => {
                self.counts.unknown_peers += 1;
                self.counts.latest = Some(id.1);
                self.counts.latest_unknown = Some(key);
                return refused(id, state, UNKNOWN_PEER);
            }
        };
        self.ask(Asked {
            id,
            peer,
            opening: hash,
            state,
        })
    }

    /// The answer to a packet of a source for which this end may spend no operations on a curve now.
    fn over_budget(&mut self, now_ns: u64, (number, source): HandshakeId) -> Option<Vec<u8>> {
        if self.budget.take(now_ns, source) {
            return None;
        }
        self.counts.over_budget += 1;
        Some(packet::refusal(number, Refusal::OverBudget))
    }

    /// Lets a request whose first message verifies wait for [`Responder::accept`], if there is room.
    fn ask(&mut self, asked: Asked) -> Reaction {
        match self.has_room(&asked) {
            true => Reaction::Asked(asked),
            false => self.refuse(asked),
        }
    }

    fn has_room(&self, asked: &Asked) -> bool {
        self.entries.len() < MOST && self.owned(asked) < MOST_OF_PEER
    }

    /// How many handshakes of the owner of a request wait for their proof.
    pub(crate) fn owned(&self, asked: &Asked) -> usize {
        let owners = self.entries.iter();
        let owners = owners.map(|((_, source), entry)| owner(&entry.peer, *source));
        owners.filter(|it| *it == asked.owner()).count()
    }

    /// Accepts a request with a payload for the peer. Returns the name of the handshake, and the datagram
    /// to send.
    ///
    /// # Errors
    /// The payload does not fit into a datagram.
    pub(crate) fn accept(
        &mut self,
        now_ns: u64,
        asked: Asked,
        payload: &[u8],
    ) -> Result<(HandshakeId, Vec<u8>), snow::Error> {
        let payload = [&[ACCEPTED], payload].concat();
        let (second, ciphers) = noise::finish(asked.state, &payload)?;
        let answer = packet::answer(asked.id.0, &second);
        let entry = Entry {
            peer: asked.peer,
            opening: asked.opening,
            answer: answer.clone(),
            ciphers,
            since_ns: now_ns,
        };
        self.entries.insert(asked.id, entry);
        self.waiting.push_back((now_ns, asked.id));
        Ok((asked.id, answer))
    }

    /// Refuses a request for lack of room. A peer that has proven that it knows the code may use it again then.
    pub(crate) fn refuse(&mut self, asked: Asked) -> Reaction {
        self.counts.no_room += 1;
        let (opening, is_of_code) = (asked.opening, asked.peer == Peer::CODE);
        let reaction = refused(asked.id, asked.state, BUSY);
        if let (true, Reaction::Answered(answer)) = (is_of_code, &reaction) {
            self.tried = Some((opening, answer.clone()));
            if let Some(code) = &self.keys.code {
                code.restore();
            }
        }
        reaction
    }

    fn prove(&mut self, id: HandshakeId, noise: &[u8]) -> Reaction {
        let Some(entry) = self.entries.get(&id) else {
            return Reaction::Ignored;
        };
        let Ok(payload) = noise::read_proof(&entry.ciphers, noise) else {
            return Reaction::Ignored;
        };
        let entry = self.entries.remove(&id);
        self.skip_ended();
        match entry {
            Some(Entry { peer, since_ns, .. }) => Reaction::Proven {
                id,
                peer,
                payload,
                since_ns,
            },
            None => Reaction::Ignored,
        }
    }

    /// Forgets a handshake whose proof has not come in time, and returns it. Call this until it returns `None`.
    pub(crate) fn expire(&mut self, now_ns: u64) -> Option<HandshakeId> {
        if now_ns < self.next_ns() {
            return None;
        }
        let (_, id) = self.waiting.pop_front()?;
        self.entries.remove(&id);
        self.skip_ended();
        Some(id)
    }

    /// Makes the first of `waiting` one that waits.
    fn skip_ended(&mut self) {
        let is_waiting = |(since_ns, id): &(u64, HandshakeId)| {
            let entry = self.entries.get(id);
            entry.is_some_and(|entry| entry.since_ns == *since_ns)
        };
        while self.waiting.front().is_some_and(|first| !is_waiting(first)) {
            self.waiting.pop_front();
        }
    }

    /// When to call [`Responder::expire`] next.
    pub(crate) fn next_ns(&self) -> u64 {
        let first = self.waiting.front();
        first.map_or(u64::MAX, |(since_ns, _)| since_ns.saturating_add(WAIT_NS))
    }

    /// Forgets the handshakes of peers that are no longer known, and returns them.
    pub(crate) fn replace_keys(&mut self, keys: Keys) -> Vec<HandshakeId> {
        let before = std::mem::replace(&mut self.keys, keys);
        let mut over = Vec::new();
        self.entries.retain(|id, entry| {
            let stays = self.keys.still_accept(&before, &entry.peer);
            if !stays {
                over.push(*id);
            }
            stays
        });
        self.skip_ended();
        over
    }

    #[cfg(test)]
    pub(super) fn forget_one(&mut self) {
        self.entries.pop_first();
        self.skip_ended();
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.entries.len()
    }
}

/// An answer that proves who this end is, and refuses.
fn refused((number, _): HandshakeId, state: Box<HandshakeState>, why: u8) -> Reaction {
    match noise::finish(state, &[why]) {
        Ok((second, _)) => Reaction::Answered(packet::answer(number, &second)),
        Err(_) => Reaction::Ignored,
    }
}

/// Who has a share of the table, and of the backlog: a public key, or a host that holds the pre-shared key.
#[derive(PartialEq, Eq)]
pub(crate) enum Owner {
    Key(PublicKey),
    Host(IpAddr),
}

pub(crate) fn owner(peer: &Peer, source: SocketAddr) -> Owner {
    match peer.key() {
        Some(key) => Owner::Key(key),
        None => Owner::Host(source.ip().to_canonical()),
    }
}
