//! The state of one pair of sockets at one end.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use farwrite_wire::control::ReplayWindow;

use crate::new_address::{NewAddress, Seen, wire_bytes};
use crate::packet::{MIN_BYTES, PacketType, RoutePacket, is_resealed};
use crate::size_search::SizeSearch;
use crate::terms::{Addresses, Config, Refused, Role, Transmit};

/// Length of a probe that does not test a size. It is long enough that its receiver may send a
/// reply and a probe of its own, without sending more bytes than it received, including IP and UDP
/// headers.
pub const PROBE_BYTES: usize = 256;
/// After this time without packets in one direction, a probe keeps the mapping alive. Common
/// translators keep UDP port mappings for at least 30 s.
const KEEP_ALIVE_NS: u64 = 15_000_000_000;
/// An end that sends, and receives nothing for this time, sends a probe.
const SILENCE_NS: u64 = 500_000_000;
/// Number of unanswered probes after which the interval between probes grows.
const PATIENT_PROBES: u32 = 10;
/// Bounds of the timeout of a probe, which is one and a half round trips.
const MIN_TIMEOUT_NS: u64 = 50_000_000;
const MAX_TIMEOUT_NS: u64 = 1_000_000_000;
const FIRST_TIMEOUT_NS: u64 = 200_000_000;
/// After this many replies in a row that say so, an end believes that the peer cannot verify its packets, and
/// seals them for other addresses.
const DOUBTS: u8 = 3;
/// Highest number of probes that an end remembers. It then forgets the oldest.
const OUTSTANDING: usize = 64;
/// Highest number of packets in the send queue. More packets are dropped, as if the network had
/// lost them.
const WAITING: usize = 64;
/// How often an address is kept because packets to it still reach the peer, although none comes
/// from it.
const REPRIEVES: u8 = 8;
/// Highest number of probes to the address that the peer itself names, before a packet came from
/// there.
const UNASKED_PROBES: u64 = 8;

/// A probe whose reply may still arrive.
#[derive(Clone, Copy, Debug)]
struct Probe {
    counter: u64,
    /// When packets of queue pairs had been sent before it, the last time.
    after_ns: u64,
    to: SocketAddr,
    bytes: u32,
    sent_ns: u64,
}

/// The state of one pair of sockets at one end.
#[derive(Debug)]
pub struct Route {
    config: Config,
    /// Counter of the last packet sent.
    counter: u64,
    replays: ReplayWindow,
    /// Highest counter received from the peer.
    newest: u64,
    outstanding: VecDeque<Probe>,
    waiting: VecDeque<Transmit>,
    rtt_ns: Option<u64>,
    /// Whether `rtt_ns` is no measurement of this route: the first one replaces it.
    is_rtt_guessed: bool,
    /// The accepted address of the peer. The initiator accepts its configured address from the
    /// start.
    current: Option<SocketAddr>,
    candidate: Option<NewAddress>,
    /// How the peer sees this end's packets, and the probe whose reply said so.
    seen: Option<Seen>,
    /// Whether the peer's last reply said that it has not accepted this end's address.
    is_doubted: bool,
    elsewhere: Option<SocketAddr>,
    /// When anything came from the peer, and when a packet of a queue pair did that could be verified.
    heard_ns: u64,
    verified_ns: u64,
    sent_ns: u64,
    /// Since when something is expected of the peer, and neither a reply nor a verified packet of a queue
    /// pair has come.
    asked_ns: Option<u64>,
    /// The peer hears nothing, although this end has sent packets of queue pairs after its last probe.
    is_unheard: bool,
    /// How many replies in a row said that the peer hears nothing, although this end had sent.
    doubts: u8,
    /// When the last reply came.
    renewed_ns: u64,
    probed_ns: Option<u64>,
    /// How often the current address was kept although the peer's packets come from another one.
    reprieves: u8,
    /// Keep-alive probes since the last packet from the peer.
    unanswered: u32,
}

impl Route {
    /// An unknown route at `now_ns`.
    #[must_use]
    pub fn new(config: Config, now_ns: u64) -> Self {
        let (current, candidate) = match config.role {
            Role::Initiator => (Some(config.peer), None),
            Role::Responder => {
                let mut named = NewAddress::new(config.peer, 0, now_ns);
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
            is_rtt_guessed: false,
            current,
            candidate,
            seen: None,
            is_doubted: false,
            elsewhere: None,
            heard_ns: now_ns,
            verified_ns: now_ns,
            sent_ns: now_ns,
            asked_ns: None,
            is_unheard: false,
            doubts: 0,
            renewed_ns: now_ns,
            probed_ns: None,
            reprieves: 0,
            unanswered: 0,
        }
    }

    /// Takes what a handshake over these sockets has shown (P12.5): the peer receives at its configured address, and
    /// this end's packets reach it as `flow`, from the first address to the second. `rtt_ns` is about the round trip.
    /// Changes nothing for addresses that no packet can have, and returns whether they are others.
    pub fn know(&mut self, flow: (SocketAddr, SocketAddr), rtt_ns: u64) -> bool {
        let is_flow = is_flow(flow.0, flow.1);
        if is_flow && self.seen.is_none() {
            self.current = Some(self.config.peer);
            self.candidate = None;
            self.seen = Some(Seen {
                flow,
                is_resealed: false,
                // The reply to any probe is newer.
                echo: 0,
            });
            (self.rtt_ns, self.is_rtt_guessed) = (Some(rtt_ns), true);
        }
        is_flow
    }

    /// The addresses of packets; `None` until both ends know them. They change with the
    /// peer's address.
    #[must_use]
    pub fn addresses(&self) -> Option<Addresses> {
        let (seen, peer) = self.seen.zip(self.current)?;
        // The trailer of the probe was a hint. Whether packets of queue pairs verify decides.
        let is_wrong = self.doubts >= DOUBTS;
        let sealed_as = Some(seen.flow).filter(|_| seen.is_resealed == is_wrong);
        Some(Addresses { peer, sealed_as })
    }

    /// Whether the addresses are known and the size search has ended.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let search = self.config.search.as_ref();
        self.addresses().is_some() && search.is_none_or(|search| search.outcome().is_some())
    }

    /// The largest datagram that the path carries toward the peer, in bytes of UDP payload; `None`
    /// until the search has ended.
    #[must_use]
    pub fn largest(&self) -> Option<u32> {
        self.config.search.as_ref()?.outcome()
    }

    /// The largest datagram that was answered so far, while the search is running.
    #[must_use]
    pub fn largest_so_far(&self) -> Option<u32> {
        self.config.search.as_ref()?.passed()
    }

    /// As [`SizeSearch::is_narrow`], of the last search.
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        let search = self.config.search.as_ref();
        search.is_some_and(SizeSearch::is_narrow)
    }

    /// Returns when the peer has last answered a probe, so that packets passed in both directions, or when this route was
    /// made if no answer has come.
    #[must_use]
    pub fn answered_ns(&self) -> u64 {
        self.renewed_ns
    }

    /// Sends probes from another local address from now on, because this machine has moved.
    pub fn set_local(&mut self, local: SocketAddr) {
        self.config.local = local;
        // The peer learns the new address from the next probe.
        self.probed_ns = None;
        self.is_doubted = true;
    }

    /// Starts a new search, for instance if the result of the last one is doubtful.
    pub fn search(&mut self, search: SizeSearch) {
        self.config.search = Some(search);
    }

    /// Whether the search ended without a result, because this machine cannot send any of the
    /// sizes.
    #[must_use]
    pub fn is_hopeless(&self) -> bool {
        let search = self.config.search.as_ref();
        search.is_some_and(SizeSearch::is_hopeless)
    }

    /// The round trip; `None` before the first reply.
    #[must_use]
    pub fn rtt_ns(&self) -> Option<u64> {
        self.rtt_ns
    }

    /// A different address from which the peer's packets came. An initiator does not change to it.
    #[must_use]
    pub fn elsewhere(&self) -> Option<SocketAddr> {
        self.elsewhere
    }

    /// Records that packets other than route packets were sent to the peer, the last at `now_ns`.
    pub fn note_sent(&mut self, now_ns: u64) {
        self.sent_ns = now_ns;
        self.ask(now_ns);
    }

    /// Asks the peer for a sign of life soon, unless one comes.
    pub fn ask(&mut self, now_ns: u64) {
        self.asked_ns.get_or_insert(now_ns);
    }

    /// Probes the peer at once.
    pub fn probe_now(&mut self, now_ns: u64) {
        if let Some(peer) = self.current {
            self.probe(now_ns, peer, PROBE_BYTES);
        }
    }

    /// Records that packets other than route packets arrived from the peer and were verified, the last at
    /// `now_ns`.
    pub fn note_heard(&mut self, now_ns: u64) {
        self.verified_ns = now_ns;
        self.asked_ns = None;
        self.note_life(now_ns);
    }

    fn note_life(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
        self.unanswered = 0;
    }

    /// Records that this machine refused to send a packet of `bytes` because it is too large.
    pub fn too_large(&mut self, bytes: usize) {
        if let Some(search) = &mut self.config.search {
            search.too_large(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }

    /// Processes a route packet that came from `src` to the local address `dst`.
    ///
    /// # Errors
    /// [`Refused`]. Then the state is unchanged, except for replay protection and
    /// [`Route::elsewhere`].
    pub fn receive(
        &mut self,
        now_ns: u64,
        src: SocketAddr,
        dst: SocketAddr,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        let packet = RoutePacket::open(&self.config.recv_key, bytes)?;
        let (number, index) = (packet.channel, packet.index);
        if (number, index) != (self.config.number, self.config.recv_index) {
            return Err(Refused::OtherRoute { number, index });
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
            PacketType::Probe => {
                self.probed(now_ns, src, &packet, is_newest, bytes.len())?;
                let is_resealed = is_resealed(bytes, (packet.from, packet.to), (src, dst));
                self.reply(now_ns, (src, dst), packet.counter, is_resealed);
                if self.wants_acceptance() {
                    // Probe again at once: the reply can say that the peer accepts this end's
                    // address.
                    self.probed_ns = None;
                }
            }
            PacketType::Reply {
                echo,
                is_accepted,
                is_resealed,
            } => {
                let (from, to) = (packet.from, packet.to);
                if !is_flow(from, to) {
                    return Err(Refused::NoFlow { from, to });
                }
                let seen = Seen {
                    flow: (from, to),
                    is_resealed,
                    echo,
                };
                let probe = self.replied(now_ns, src, seen, is_accepted)?;
                self.judge(now_ns, &probe, packet.hears_nothing);
                self.accept_candidate();
            }
        }
        if self.current == Some(src) {
            self.reprieves = 0;
        }
        // It has sent packets of queue pairs after its last probe, so the peer may know more by now.
        let has_sent = self.sent_ns > self.probed_ns.unwrap_or(0);
        self.is_unheard |= packet.hears_nothing && has_sent;
        self.note_life(now_ns);
        Ok(())
    }

    /// The next packet to send at `now_ns`. Call this until it returns `None`.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Transmit> {
        self.poll_candidate(now_ns);
        self.poll_probes(now_ns);
        self.waiting.pop_front()
    }

    /// When to call [`Route::poll_transmit`] next.
    #[must_use]
    pub fn next_ns(&self) -> u64 {
        if !self.waiting.is_empty() {
            return 0;
        }
        let timeout_ns = self.timeout_ns();
        // Sizes are tested only when the address of the peer is known.
        let searching = self
            .config
            .search
            .as_ref()
            .filter(|_| self.current.is_some());
        let search_ns = searching.and_then(|search| search.next_ns(timeout_ns));
        let candidate_ns = self.candidate.as_ref().map(|c| c.next_ns(timeout_ns));
        let due = [search_ns, candidate_ns, Some(self.probe_due_ns())];
        due.into_iter().flatten().min().unwrap_or(0)
    }

    /// Processes a probe from `src`, which is the current address of the peer or a candidate.
    fn probed(
        &mut self,
        now_ns: u64,
        src: SocketAddr,
        packet: &RoutePacket,
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
            self.candidate = Some(NewAddress::new(src, packet.counter, now_ns));
        }
        if let Some(candidate) = &mut self.candidate {
            candidate.allow(wire_bytes(bytes));
        }
        Ok(())
    }

    /// Drops the candidate if the old address is alive: it has sent a packet after the candidate's.
    fn drop_candidate_before(&mut self, counter: u64) {
        let is_older = |c: &NewAddress| c.since_counter > 0 && c.since_counter < counter;
        if self.candidate.as_ref().is_some_and(is_older) {
            self.candidate = None;
        }
    }

    fn reply(
        &mut self,
        now_ns: u64,
        (src, dst): (SocketAddr, SocketAddr),
        echo: u64,
        is_resealed: bool,
    ) {
        let is_accepted = self.current == Some(src);
        let may = is_accepted || self.candidate.as_mut().is_some_and(|c| c.spend(MIN_BYTES));
        if may {
            let kind = PacketType::Reply {
                echo,
                is_accepted,
                is_resealed,
            };
            // The reply is sent from the address that received the probe.
            self.queue(now_ns, kind, (src, dst), (src, dst.ip()), MIN_BYTES);
        }
    }

    fn replied(
        &mut self,
        now_ns: u64,
        src: SocketAddr,
        seen: Seen,
        is_accepted: bool,
    ) -> Result<Probe, Refused> {
        let echo = seen.echo;
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
        let measured_ns = self.rtt_ns.filter(|_| !self.is_rtt_guessed);
        self.rtt_ns = Some(measured_ns.map_or(sample_ns, |rtt| rtt - rtt / 8 + sample_ns / 8));
        self.is_rtt_guessed = false;
        if let Some(search) = &mut self.config.search {
            search.pass(probe.bytes);
        }
        if self.current == Some(src) {
            let is_newer = self.seen.is_none_or(|last| echo > last.echo);
            // The peer accepts packets only from the address that it has accepted.
            if is_newer && (is_accepted || self.config.role == Role::Responder) {
                let is_same =
                    |last: Seen| (last.flow, last.is_resealed) == (seen.flow, seen.is_resealed);
                if !self.seen.is_some_and(is_same) {
                    self.doubts = 0;
                }
                self.seen = Some(seen);
            }
            self.is_doubted = !is_accepted;
            return Ok(probe);
        }
        let candidate = self.candidate.as_mut().filter(|c| c.address == src);
        candidate.ok_or(Refused::Unasked)?.seen = Some(seen);
        Ok(probe)
    }

    /// Judges by a reply to `probe` whether the peer can verify this end's packets of queue pairs.
    fn judge(&mut self, now_ns: u64, probe: &Probe, hears_nothing: bool) {
        let had_sent = probe.after_ns > self.renewed_ns;
        self.doubts = match hears_nothing {
            true => (self.doubts + u8::from(had_sent)) % (2 * DOUBTS),
            // The addresses that it has verified stay.
            false => self.doubts / DOUBTS * DOUBTS,
        };
        self.renewed_ns = now_ns;
        if self.asked_ns.is_some_and(|at| at <= probe.sent_ns) {
            self.asked_ns = None;
        }
    }

    /// Keeps the current address: the peer has answered a probe sent there after the candidate
    /// appeared, so packets to it still reach the peer. The answer may come from the candidate: an
    /// attacker who forwards the peer's packets from another address can make them arrive first. If
    /// packets to the old address reach the peer but none comes from it, it is given up after
    /// [`REPRIEVES`] answers.
    fn keep_current(&mut self, src: SocketAddr, probe: &Probe) {
        let is_older = |c: &NewAddress| c.since_ns < probe.sent_ns;
        if self.candidate.as_ref().is_some_and(is_older) && self.reprieves < REPRIEVES {
            self.candidate = None;
            self.reprieves += u8::from(self.current != Some(src));
        }
    }

    /// Whether the peer has not yet said that it accepts this end's address.
    fn wants_acceptance(&self) -> bool {
        self.config.role == Role::Initiator && (self.seen.is_none() || self.is_doubted)
    }

    /// Changes to the candidate if it has answered and the old address has not.
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

    /// Sends challenges to the candidate and probes to the old address. Accepts the candidate when
    /// it has answered and the old address has not.
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

    /// Sends the probes that are due: of all sizes under test, and to keep the route alive.
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
            self.is_unheard = false;
            self.unanswered = self.unanswered.saturating_add(1);
            self.probe(now_ns, peer, PROBE_BYTES);
        }
    }

    fn probe_due_ns(&self) -> u64 {
        if self.current.is_none() {
            return u64::MAX;
        }
        let asked = |interval_ns| self.probed_ns.map_or(0, |at| at + interval_ns);
        if self.wants_acceptance() {
            return asked(self.timeout_ns());
        }
        if self.is_rtt_guessed && self.probed_ns.is_none() {
            // A handshake does not show everything.
            return 0;
        }
        let quiet_ns = self
            .heard_ns
            .min(self.sent_ns.max(self.probed_ns.unwrap_or(0)));
        let idle_ns = asked(KEEP_ALIVE_NS).max(quiet_ns + KEEP_ALIVE_NS);
        let silence_ns = self.silence_ns();
        if self.is_unheard {
            return asked(silence_ns);
        }
        let Some(asked_ns) = self.asked_ns else {
            return idle_ns;
        };
        let backed_off_ns = silence_ns << self.unanswered.saturating_sub(PATIENT_PROBES).min(5);
        let silent_ns = asked(backed_off_ns.min(KEEP_ALIVE_NS)).max(asked_ns + silence_ns);
        silent_ns.min(idle_ns)
    }

    /// The time in which an answer of the peer comes, also if some packets are lost.
    fn silence_ns(&self) -> u64 {
        SILENCE_NS
            .max(4 * self.rtt_ns.unwrap_or(0))
            .min(KEEP_ALIVE_NS)
    }

    fn timeout_ns(&self) -> u64 {
        self.rtt_ns.map_or(FIRST_TIMEOUT_NS, |rtt| {
            (rtt + rtt / 2).clamp(MIN_TIMEOUT_NS, MAX_TIMEOUT_NS)
        })
    }

    fn probe(&mut self, now_ns: u64, to: SocketAddr, bytes: usize) {
        let local = self.config.local;
        let kind = PacketType::Probe;
        let counter = self.queue(now_ns, kind, (local, to), (to, local.ip()), bytes);
        if self.outstanding.len() >= OUTSTANDING {
            self.outstanding.pop_front();
        }
        self.outstanding.push_back(Probe {
            counter,
            after_ns: self.sent_ns,
            to,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            sent_ns: now_ns,
        });
    }

    /// Returns the counter of the packet.
    fn queue(
        &mut self,
        now_ns: u64,
        kind: PacketType,
        (from, to): (SocketAddr, SocketAddr),
        (destination, source): (SocketAddr, IpAddr),
        bytes: usize,
    ) -> u64 {
        self.counter += 1;
        let packet = RoutePacket {
            kind,
            channel: self.config.number,
            index: self.config.send_index,
            counter: self.counter,
            hears_nothing: now_ns.saturating_sub(self.verified_ns) >= self.silence_ns(),
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

/// Whether a packet can go from one of these addresses to the other. Keys are bound to them
/// (P6.2), and a peer states them.
fn is_flow(from: SocketAddr, to: SocketAddr) -> bool {
    let is_place = |address: SocketAddr| address.port() != 0 && !address.ip().is_unspecified();
    from.is_ipv4() == to.is_ipv4() && is_place(from) && is_place(to)
}

#[cfg(test)]
mod tests {
    use super::is_flow;

    #[test]
    fn packets_go_between_places_of_one_ip_version() {
        let flow = |from: &str, to: &str| is_flow(from.parse().unwrap(), to.parse().unwrap());
        assert!(flow("192.0.2.1:1", "198.51.100.2:4792"));
        assert!(flow("[2001:db8::1]:1", "[2001:db8::2]:4792"));
        for (from, to) in [
            ("192.0.2.1:1", "[2001:db8::2]:4792"),
            ("192.0.2.1:0", "198.51.100.2:4792"),
            ("192.0.2.1:1", "0.0.0.0:4792"),
        ] {
            assert!(!flow(from, to), "{from} to {to}");
            assert!(!flow(to, from), "{to} to {from}");
        }
    }
}
