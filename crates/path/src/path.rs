//! The state of one pair of sockets at one end.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use farwrite_wire::control::ReplayWindow;

use crate::candidate::{Candidate, Seen, wire_bytes};
use crate::packet::{Kind, MIN_BYTES, Packet, is_resealed};
use crate::search::Search;
use crate::terms::{Config, Refused, Role, Route, Transmit};

/// Bytes of a probe that tests no size: enough for its receiver to send a reply and a probe of its
/// own without sending more than it got, IP and UDP headers counted.
pub const PROBE_BYTES: usize = 256;
/// Without packets in one direction for this long, a probe keeps the mapping alive. Port mappings
/// for UDP are kept for 30 s and longer by what is in use.
const KEEP_ALIVE_NS: u64 = 15_000_000_000;
/// An end that sends, and hears nothing for this long, asks whether the path is still there.
const SILENCE_NS: u64 = 500_000_000;
/// Unanswered probes after which the next ones come more and more rarely.
const PATIENT_PROBES: u32 = 10;
/// For an answer: one and a half round trips, within bounds.
const MIN_TIMEOUT_NS: u64 = 50_000_000;
const MAX_TIMEOUT_NS: u64 = 1_000_000_000;
const FIRST_TIMEOUT_NS: u64 = 200_000_000;
/// Probes that are remembered; more make the oldest forgotten.
const OUTSTANDING: usize = 64;
/// Packets that wait to be sent; more are dropped, as the network could.
const WAITING: usize = 64;
/// Times that an address is kept because it still takes packets in, though none comes out of it.
const REPRIEVES: u8 = 8;
/// Probes that may go to the address that the peer itself names, before anything came from there.
const UNASKED_PROBES: u64 = 8;

/// A probe that may be answered.
#[derive(Clone, Copy, Debug)]
struct Probe {
    counter: u64,
    to: SocketAddr,
    bytes: u32,
    sent_ns: u64,
}

/// The state of one pair of sockets at one end.
#[derive(Debug)]
pub struct Path {
    config: Config,
    /// Of the last packet sent.
    counter: u64,
    replays: ReplayWindow,
    /// The highest counter of the peer so far.
    newest: u64,
    outstanding: VecDeque<Probe>,
    waiting: VecDeque<Transmit>,
    rtt_ns: Option<u64>,
    /// The peer's address, once it is accepted; the initiator accepts the one that it was given.
    current: Option<SocketAddr>,
    candidate: Option<Candidate>,
    /// How the peer sees this end's packets, and the probe that it said so about.
    seen: Option<Seen>,
    /// The peer's last reply said that it does not accept this end's address yet.
    is_doubted: bool,
    elsewhere: Option<SocketAddr>,
    heard_ns: u64,
    sent_ns: u64,
    probed_ns: Option<u64>,
    /// Times that the current address was kept though the peer's packets come from another.
    reprieves: u8,
    /// Keep-alive probes since something was heard.
    unanswered: u32,
}

impl Path {
    /// A path about which nothing is known at `now_ns`.
    #[must_use]
    pub fn new(config: Config, now_ns: u64) -> Self {
        let (current, candidate) = match config.role {
            Role::Initiator => (Some(config.peer), None),
            Role::Responder => {
                let mut named = Candidate::new(config.peer, 0, now_ns);
                named.allow(UNASKED_PROBES * wire_bytes(MIN_BYTES));
                (None, Some(named))
            }
        };
        Self {
            config,
            counter: 0,
            replays: ReplayWindow::new(),
            newest: 0,
            outstanding: VecDeque::new(),
            waiting: VecDeque::new(),
            rtt_ns: None,
            current,
            candidate,
            seen: None,
            is_doubted: false,
            elsewhere: None,
            heard_ns: now_ns,
            sent_ns: now_ns,
            probed_ns: None,
            reprieves: 0,
            unanswered: 0,
        }
    }

    /// Where packets go, once both ends know the path. It changes when the peer's address does.
    #[must_use]
    pub fn route(&self) -> Option<Route> {
        let ((sealed_as, _), peer) = self.seen.zip(self.current)?;
        Some(Route { peer, sealed_as })
    }

    /// Whether the path is known and the search for its size is over.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let search = self.config.search.as_ref();
        self.route().is_some() && search.is_none_or(|search| search.outcome().is_some())
    }

    /// The largest datagram that the path carries toward the peer, in bytes of UDP payload, once
    /// the search is over.
    #[must_use]
    pub fn largest(&self) -> Option<u32> {
        self.config.search.as_ref()?.outcome()
    }

    /// Begins another search, where the result of the last one is in doubt.
    pub fn search(&mut self, search: Search) {
        self.config.search = Some(search);
    }

    /// Whether the search is over without a result: this machine sends none of its sizes.
    #[must_use]
    pub fn is_hopeless(&self) -> bool {
        let search = self.config.search.as_ref();
        search.is_some_and(Search::is_hopeless)
    }

    /// The round trip, once something was answered.
    #[must_use]
    pub fn rtt_ns(&self) -> Option<u64> {
        self.rtt_ns
    }

    /// Another address that the peer's packets came from. An initiator does not follow it there.
    #[must_use]
    pub fn elsewhere(&self) -> Option<SocketAddr> {
        self.elsewhere
    }

    /// Takes in that other packets than path packets were sent to the peer by `now_ns`.
    pub fn note_sent(&mut self, now_ns: u64) {
        self.sent_ns = now_ns;
    }

    /// Takes in that other packets than path packets came from the peer by `now_ns`, and passed
    /// their checks.
    pub fn note_heard(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
        self.unanswered = 0;
    }

    /// Takes in that this machine refused to send a packet of `bytes`, as too large.
    pub fn too_large(&mut self, bytes: usize) {
        if let Some(search) = &mut self.config.search {
            search.too_large(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }

    /// Takes in a path packet that came from `src` to the local address `dst`.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then, but that a replay is known and
    /// [`Path::elsewhere`] may have been noted.
    pub fn receive(
        &mut self,
        now_ns: u64,
        src: SocketAddr,
        dst: SocketAddr,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        let packet = Packet::open(&self.config.recv_key, bytes)?;
        if packet.path != self.config.number {
            return Err(Refused::OtherPath(packet.path));
        }
        if !self.replays.accept(packet.counter) {
            return Err(Refused::Replayed);
        }
        if self.config.role == Role::Initiator && src != self.config.peer {
            self.elsewhere = Some(src);
            return Err(Refused::Elsewhere(src));
        }
        let is_newest = packet.counter > self.newest;
        self.newest = self.newest.max(packet.counter);
        match packet.kind {
            Kind::Probe => {
                self.probed(now_ns, src, &packet, is_newest, bytes.len())?;
                self.reply(src, dst, packet.counter, is_resealed(bytes));
                if self.wants_acceptance() {
                    // The answer to this reply can say that the peer accepts this end's address.
                    self.probed_ns = None;
                }
            }
            Kind::Reply {
                echo,
                is_accepted,
                is_resealed,
            } => {
                let sealed_as = Some((packet.from, packet.to)).filter(|_| !is_resealed);
                self.replied(now_ns, src, (sealed_as, echo), is_accepted)?;
                self.accept_candidate();
            }
        }
        if self.current == Some(src) {
            self.reprieves = 0;
        }
        self.note_heard(now_ns);
        Ok(())
    }

    /// The next packet to send at `now_ns`. Ask until there is none.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Transmit> {
        self.poll_candidate(now_ns);
        self.poll_probes(now_ns);
        self.waiting.pop_front()
    }

    /// When [`Path::poll_transmit`] may have something next.
    #[must_use]
    pub fn next_ns(&self) -> u64 {
        let timeout_ns = self.timeout_ns();
        let searching = self.config.search.as_ref();
        let search_ns = searching.and_then(|search| search.next_ns(timeout_ns));
        let candidate_ns = self.candidate.as_ref().map(|c| c.next_ns(timeout_ns));
        let due = [search_ns, candidate_ns, Some(self.probe_due_ns())];
        due.into_iter().flatten().min().unwrap_or(0)
    }

    /// A probe came from `src`: is it the peer where it was, or at a new address?
    fn probed(
        &mut self,
        now_ns: u64,
        src: SocketAddr,
        packet: &Packet,
        is_newest: bool,
        bytes: usize,
    ) -> Result<(), Refused> {
        if self.current == Some(src) {
            self.drop_candidate_before(packet.counter);
            return Ok(());
        }
        if self.candidate.as_ref().is_none_or(|c| c.address != src) {
            if !is_newest {
                return Err(Refused::Overtaken);
            }
            self.candidate = Some(Candidate::new(src, packet.counter, now_ns));
        }
        if let Some(candidate) = &mut self.candidate {
            candidate.allow(wire_bytes(bytes));
        }
        Ok(())
    }

    /// The old address is still alive, as it has sent a packet after the new one did.
    fn drop_candidate_before(&mut self, counter: u64) {
        let is_older = |c: &Candidate| c.since_counter > 0 && c.since_counter < counter;
        if self.candidate.as_ref().is_some_and(is_older) {
            self.candidate = None;
        }
    }

    fn reply(&mut self, src: SocketAddr, dst: SocketAddr, echo: u64, is_resealed: bool) {
        let is_accepted = self.current == Some(src);
        let may = is_accepted || self.candidate.as_mut().is_some_and(|c| c.spend(MIN_BYTES));
        if may {
            let kind = Kind::Reply {
                echo,
                is_accepted,
                is_resealed,
            };
            // The answer leaves from the address that was asked.
            self.queue(kind, (src, dst), src, dst.ip(), MIN_BYTES);
        }
    }

    fn replied(
        &mut self,
        now_ns: u64,
        src: SocketAddr,
        seen: Seen,
        is_accepted: bool,
    ) -> Result<(), Refused> {
        let (_, echo) = seen;
        let place = self.outstanding.iter().position(|p| p.counter == echo);
        let probe = place.and_then(|place| self.outstanding.remove(place));
        let probe = probe.ok_or(Refused::Unasked)?;
        if self.current == Some(probe.to) {
            self.keep_current(src, &probe);
        }
        if probe.to != src {
            return Err(Refused::Unasked);
        }
        let sample_ns = now_ns.saturating_sub(probe.sent_ns);
        self.rtt_ns = Some(
            self.rtt_ns
                .map_or(sample_ns, |rtt| rtt - rtt / 8 + sample_ns / 8),
        );
        if let Some(search) = &mut self.config.search {
            search.pass(probe.bytes);
        }
        if self.current == Some(src) {
            let is_newer = self.seen.is_none_or(|(_, last)| echo > last);
            // The peer takes packets from the address that it has accepted, and from no other.
            if is_newer && (is_accepted || self.config.role == Role::Responder) {
                self.seen = Some(seen);
            }
            self.is_doubted = !is_accepted;
            return Ok(());
        }
        let candidate = self.candidate.as_mut().filter(|c| c.address == src);
        candidate.ok_or(Refused::Unasked)?.seen = Some(seen);
        Ok(())
    }

    /// The peer has answered a probe that was sent to its old address after the new one had appeared:
    /// the old one still leads to it. The answer may come from elsewhere: someone who forwards the
    /// peer's packets from an address of their own can make theirs arrive first. An old address that
    /// takes packets in, but from which none comes out, is given up in the end.
    fn keep_current(&mut self, src: SocketAddr, probe: &Probe) {
        let is_older = |c: &Candidate| c.since_ns < probe.sent_ns;
        if self.candidate.as_ref().is_some_and(is_older) && self.reprieves < REPRIEVES {
            self.candidate = None;
            self.reprieves += u8::from(self.current != Some(src));
        }
    }

    /// Whether the peer has not said yet that it accepts this end's address.
    fn wants_acceptance(&self) -> bool {
        self.config.role == Role::Initiator && (self.seen.is_none() || self.is_doubted)
    }

    /// Moves to a new address that has answered, if the old one has not.
    fn accept_candidate(&mut self) {
        let current = self.current;
        let proven = self
            .candidate
            .as_ref()
            .filter(|c| current.is_none() || c.is_old_gone());
        if let Some((address, seen)) = proven.and_then(|c| Some((c.address, c.seen?))) {
            self.current = Some(address);
            self.seen = Some(seen);
            self.candidate = None;
        }
    }

    /// Challenges a new address, asks the old one whether it is still alive, and accepts the new one
    /// when it has answered and the old one has not.
    fn poll_candidate(&mut self, now_ns: u64) {
        let timeout_ns = self.timeout_ns();
        let current = self.current;
        let Some(candidate) = &mut self.candidate else {
            return;
        };
        let address = candidate.address;
        let challenges = candidate.challenge(MIN_BYTES, now_ns, timeout_ns);
        let asks_old = current.filter(|_| candidate.farewell(now_ns, timeout_ns));
        if candidate.is_hopeless(now_ns, timeout_ns) {
            self.candidate = None;
        }
        if challenges {
            self.probe(now_ns, address, MIN_BYTES);
        }
        if let Some(old) = asks_old {
            self.probe(now_ns, old, PROBE_BYTES);
        }
        self.accept_candidate();
    }

    /// Probes that are due to the peer: of all sizes that are tested, and to keep the path.
    fn poll_probes(&mut self, now_ns: u64) {
        let Some(peer) = self.current else {
            return;
        };
        let timeout_ns = self.timeout_ns();
        let search = &mut self.config.search;
        let sizes = core::iter::from_fn(|| search.as_mut()?.probe(now_ns, timeout_ns));
        let sizes: Vec<_> = sizes.collect();
        for bytes in sizes {
            self.probe(now_ns, peer, usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        if now_ns >= self.probe_due_ns() {
            self.probed_ns = Some(now_ns);
            self.unanswered = self.unanswered.saturating_add(1);
            self.probe(now_ns, peer, PROBE_BYTES);
        }
    }

    /// When the peer is to be asked next.
    fn probe_due_ns(&self) -> u64 {
        if self.current.is_none() {
            return u64::MAX;
        }
        let asked = |interval_ns| self.probed_ns.map_or(0, |at| at + interval_ns);
        if self.wants_acceptance() {
            return asked(self.timeout_ns());
        }
        let quiet_ns = self
            .heard_ns
            .min(self.sent_ns.max(self.probed_ns.unwrap_or(0)));
        let idle_ns = asked(KEEP_ALIVE_NS).max(quiet_ns + KEEP_ALIVE_NS);
        if self.sent_ns <= self.heard_ns {
            return idle_ns;
        }
        let silence_ns = SILENCE_NS
            .max(4 * self.rtt_ns.unwrap_or(0))
            .min(KEEP_ALIVE_NS);
        let backed_off_ns = silence_ns << self.unanswered.saturating_sub(PATIENT_PROBES).min(5);
        let silent_ns = asked(backed_off_ns.min(KEEP_ALIVE_NS)).max(self.heard_ns + silence_ns);
        silent_ns.min(idle_ns)
    }

    /// How long an answer may take.
    fn timeout_ns(&self) -> u64 {
        self.rtt_ns.map_or(FIRST_TIMEOUT_NS, |rtt| {
            (rtt + rtt / 2).clamp(MIN_TIMEOUT_NS, MAX_TIMEOUT_NS)
        })
    }

    fn probe(&mut self, now_ns: u64, to: SocketAddr, bytes: usize) {
        let local = self.config.local;
        let counter = self.queue(Kind::Probe, (local, to), to, local.ip(), bytes);
        if self.outstanding.len() >= OUTSTANDING {
            self.outstanding.pop_front();
        }
        self.outstanding.push_back(Probe {
            counter,
            to,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            sent_ns: now_ns,
        });
    }

    /// Seals a packet to be sent; returns its counter.
    fn queue(
        &mut self,
        kind: Kind,
        (from, to): (SocketAddr, SocketAddr),
        destination: SocketAddr,
        source: IpAddr,
        bytes: usize,
    ) -> u64 {
        self.counter += 1;
        let packet = Packet {
            kind,
            path: self.config.number,
            counter: self.counter,
            from,
            to,
        };
        if self.waiting.len() < WAITING {
            self.waiting.push_back(Transmit {
                from: source,
                to: destination,
                bytes: packet.seal(&self.config.send_key, bytes),
            });
        }
        self.counter
    }
}
