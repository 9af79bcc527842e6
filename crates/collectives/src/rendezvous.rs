//! One rank before it is connected: it finds the routes to all others, and agrees with them on the
//! packet size.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use farwrite::routes::{Role, RouteError, RouteId, RouteKeeper, Sizes};
use farwrite::{Endpoint, RealTime, UdpFabric};

use crate::error::CollectiveError;
use crate::gone::{Finding, GoneWatch};
use crate::info::MAX_RANKS;
use crate::meeting::{Content, MeetingMessage, index_of_peer};
use crate::member::Member;
use crate::options::GroupOptions;

/// How long a rank looks for the routes, after all ranks have said that they answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The smallest packets that a group uses. Control packets have as many bytes (P4).
const LEAST_PACKET_BYTES: u32 = 1024;
/// Time between two looks at whether the routes are known.
const CHECK: Duration = Duration::from_millis(20);
/// Time between two looks at whether packets of full size still arrive, and whether a rank is gone.
const WATCH_NS: u64 = 100_000_000;
/// Packets of a segment are a multiple of this number, so that the parity of common codes has room.
const SEGMENT_UNIT: u32 = 32;

/// A rank before it is connected.
pub(crate) struct Rendezvous {
    endpoint: Endpoint<UdpFabric>,
    keeper: RouteKeeper,
    rank: usize,
    ranks: usize,
    group: GroupOptions,
    /// The packet size that the user requires.
    packet_bytes: Option<u32>,
    advertised: Option<IpAddr>,
    /// The routes to the other ranks, in order.
    routes: Vec<RouteId>,
    /// Since when all ranks have joined.
    since: Option<Instant>,
    round: Round,
}

/// What the next message of this rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Offers,
    Joined,
    Sizes,
    /// The information about queue pairs.
    Info,
}

/// The settings of a [`Rendezvous`].
pub(crate) struct Terms {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    pub(crate) group: GroupOptions,
    pub(crate) packet_bytes: Option<u32>,
}

impl Terms {
    /// Checks the options as far as they do not depend on the routes.
    pub(crate) fn check(&mut self) -> Result<(), CollectiveError> {
        if let Some(packet_bytes) = self.packet_bytes {
            self.group.packet_bytes = packet_bytes;
        }
        self.group.check(self.rank, self.ranks)
    }
}

impl Rendezvous {
    /// `advertised` is the address at which other ranks reach this rank, if its own machine does not
    /// have it.
    pub(crate) fn new(
        endpoint: Endpoint<UdpFabric>,
        terms: Terms,
        advertised: Option<IpAddr>,
    ) -> Self {
        let Terms {
            rank,
            ranks,
            group,
            packet_bytes,
        } = terms;
        Self {
            endpoint,
            keeper: RouteKeeper::with_sealing(group.sealing()),
            rank,
            ranks,
            group,
            packet_bytes,
            advertised,
            routes: Vec::new(),
            since: None,
            round: Round::Offers,
        }
    }

    /// Whether this rank has said its packet size. [`Rendezvous::create`] is next then.
    pub(crate) fn is_sized(&self) -> bool {
        self.round == Round::Info
    }

    /// Takes the messages of all ranks in the last round. Returns the next message of this rank, or
    /// `None` if [`Rendezvous::step`] returns it later.
    ///
    /// # Errors
    /// [`CollectiveError::Info`], [`CollectiveError::Argument`], [`CollectiveError::Endpoint`].
    pub(crate) fn next(
        &mut self,
        messages: &[Vec<u8>],
    ) -> Result<Option<Vec<u8>>, CollectiveError> {
        match self.round {
            Round::Offers => {
                self.round = Round::Joined;
                self.offer().map(Some)
            }
            Round::Joined => {
                let greetings = self.read(messages)?;
                self.round = Round::Sizes;
                self.join(&greetings).map(Some)
            }
            Round::Sizes | Round::Info => {
                let greetings = self.read(messages)?;
                let is_other = |greeting: &MeetingMessage| greeting.content != Content::Joined;
                match greetings.iter().position(is_other) {
                    Some(rank) => Err(out_of_turn(rank)),
                    None => {
                        self.since = Some(Instant::now());
                        for route in &self.routes {
                            self.keeper.begin(*route);
                        }
                        Ok(None)
                    }
                }
            }
        }
    }

    /// Polls the endpoint, and keeps the routes. Returns the packet size of this rank if all ranks have
    /// joined and its routes are known now. Otherwise sleeps until there is more to do, for `at_most`.
    pub(crate) fn step(&mut self, at_most: Duration) -> Result<Option<Vec<u8>>, CollectiveError> {
        let polled_ns = self.endpoint.poll_now()?;
        let kept_ns = self.keeper.poll(&mut self.endpoint)?;
        let next_ns = polled_ns.into_iter().chain(kept_ns).min();
        let mut at_most = at_most;
        if self.since.is_some() {
            if self.round == Round::Sizes
                && let Some(sizes) = self.sizes()?
            {
                return Ok(Some(sizes));
            }
            // Time passes until a route counts as missing.
            at_most = at_most.min(CHECK);
        }
        self.endpoint.wait_until(next_ns, at_most)?;
        Ok(None)
    }

    /// The first message: the offers of the routes to all other ranks.
    fn offer(&mut self) -> Result<Vec<u8>, CollectiveError> {
        let advertised = self.advertised;
        let mut offers = Vec::new();
        for _ in 1..self.ranks {
            let (route, mut offer) = self.keeper.offer(&self.endpoint)?;
            if let Some(advertised) = advertised {
                offer.address.set_ip(advertised);
            }
            self.routes.push(route);
            offers.push(offer);
        }
        Ok(self.message(Content::Offers(offers)))
    }

    /// Begins to look for the routes. The rank with the higher number initiates, so that of two ranks
    /// the one with the lower number must be reachable at its address.
    fn join(&mut self, greetings: &[MeetingMessage]) -> Result<Vec<u8>, CollectiveError> {
        let sizes = match self.packet_bytes {
            Some(mtu) => Sizes::Exactly { mtu },
            None => Sizes::Largest {
                least_mtu: LEAST_PACKET_BYTES,
                largest_mtu: None,
            },
        };
        for (peer, greeting) in greetings.iter().enumerate() {
            if peer == self.rank {
                continue;
            }
            let offers = match &greeting.content {
                Content::Offers(offers) => offers,
                _ => return Err(out_of_turn(peer)),
            };
            let offer = offers.get(index_of_peer(self.rank, peer));
            let offer = offer.ok_or_else(|| out_of_turn(peer))?;
            let role = match peer < self.rank {
                true => Role::Initiator,
                false => Role::Responder,
            };
            let route = self.routes[index_of_peer(peer, self.rank)];
            self.keeper
                .join(&self.endpoint, route, role, offer, sizes)?;
            self.keeper.hold(route);
        }
        Ok(self.message(Content::Joined))
    }

    /// After all ranks have joined: returns the packet size of this rank, once all its routes are
    /// known.
    fn sizes(&mut self) -> Result<Option<Vec<u8>>, CollectiveError> {
        let waited = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        let patience = match waited < PATIENCE {
            true => Duration::MAX,
            false => Duration::ZERO,
        };
        let mut least = self.packet_bytes;
        for peer in (0..self.ranks).filter(|peer| *peer != self.rank) {
            let route = self.routes[index_of_peer(peer, self.rank)];
            let found = self.keeper.found(route, patience);
            let found = found.map_err(|problem| CollectiveError::Route {
                rank: peer,
                problem,
            })?;
            let Some(found) = found else {
                return Ok(None);
            };
            if let (None, Some(mtu)) = (self.packet_bytes, found.mtu) {
                // Packets hold whole elements of up to 8 bytes.
                let carries = mtu / 8 * 8;
                least = Some(least.map_or(carries, |least| least.min(carries)));
            }
        }
        let packet_bytes = least.unwrap_or(self.group.packet_bytes);
        self.round = Round::Info;
        Ok(Some(self.message(Content::Sizes { packet_bytes })))
    }

    /// Agrees on the smallest of all packet sizes, and creates the queue pairs.
    pub(crate) fn create(
        mut self,
        messages: &[Vec<u8>],
    ) -> Result<(Member<UdpFabric>, Routes, GroupOptions), CollectiveError> {
        let greetings = self.read(messages)?;
        let mut least = u32::MAX;
        for (peer, greeting) in greetings.iter().enumerate() {
            let Content::Sizes { packet_bytes } = greeting.content else {
                return Err(out_of_turn(peer));
            };
            if self.packet_bytes.is_some_and(|ours| ours != packet_bytes) {
                return Err(CollectiveError::Info {
                    rank: peer,
                    problem: format!(
                        "it has packets of {packet_bytes} bytes, this rank of {}: give all ranks the \
                         same packet_bytes, or none",
                        self.group.packet_bytes
                    ),
                });
            }
            least = least.min(packet_bytes);
        }
        if self.packet_bytes.is_none() {
            self.group.packets_per_segment = packets_per_segment(&self.group, least);
            self.group.packet_bytes = least;
        }
        let routes = Routes {
            keeper: self.keeper,
            rank: self.rank,
            watches: self.routes.iter().map(|_| GoneWatch::default()).collect(),
            routes: self.routes,
            packet_bytes: self.group.packet_bytes,
            looked_ns: 0,
        };
        let group = self.group.clone();
        let member = Member::new(self.endpoint, self.rank, self.ranks, self.group)?;
        Ok((member, routes, group))
    }

    fn message(&self, content: Content) -> Vec<u8> {
        let small = |rank: usize| u16::try_from(rank).expect("at most MAX_RANKS");
        debug_assert!(self.ranks <= MAX_RANKS);
        let (rank, ranks) = (small(self.rank), small(self.ranks));
        MeetingMessage {
            rank,
            ranks,
            content,
        }
        .encode()
    }

    /// Reads the messages of all ranks.
    ///
    /// # Errors
    /// [`CollectiveError::Info`] names the rank.
    fn read(&self, messages: &[Vec<u8>]) -> Result<Vec<MeetingMessage>, CollectiveError> {
        if messages.len() != self.ranks {
            return Err(CollectiveError::Argument {
                rank: self.rank,
                argument: "messages",
                value: messages.len().to_string(),
                expected: format!("one for each of {} ranks", self.ranks),
            });
        }
        let read = |(rank, bytes): (usize, &Vec<u8>)| {
            let problem = match MeetingMessage::decode(bytes) {
                Ok(greeting) if usize::from(greeting.rank) != rank => {
                    format!("its message says that it is rank {}", greeting.rank)
                }
                Ok(greeting) if usize::from(greeting.ranks) != self.ranks => format!(
                    "it has a group of {} ranks, this rank of {}",
                    greeting.ranks, self.ranks
                ),
                Ok(greeting) => return Ok(greeting),
                Err(problem) => problem,
            };
            Err(CollectiveError::Info { rank, problem })
        };
        messages.iter().enumerate().map(read).collect()
    }
}

/// The routes of a rank whose queue pairs exist.
pub(crate) struct Routes {
    keeper: RouteKeeper,
    rank: usize,
    routes: Vec<RouteId>,
    /// By route: whether its rank is gone.
    watches: Vec<GoneWatch>,
    packet_bytes: u32,
    /// When routes were last watched.
    looked_ns: u64,
}

impl Routes {
    /// Connects the queue pairs of a member over the routes.
    pub(crate) fn connect(
        &mut self,
        member: &mut Member<UdpFabric>,
        infos: &[Vec<u8>],
    ) -> Result<(), CollectiveError> {
        let Self {
            keeper,
            rank,
            routes,
            ..
        } = self;
        member.connect_with(infos, |endpoint, peer, qp, info| {
            let route = routes[index_of_peer(peer, *rank)];
            keeper.connect(endpoint, route, qp, info)
        })
    }

    /// Keeps the routes. Returns when to call it again.
    pub(crate) fn keep(
        &mut self,
        member: &mut Member<UdpFabric>,
    ) -> Result<Option<u64>, CollectiveError> {
        let next_ns = self.keeper.poll(member.endpoint_mut())?;
        let now_ns = member.endpoint_mut().fabric().now_ns();
        if now_ns >= self.looked_ns.saturating_add(WATCH_NS) {
            self.looked_ns = now_ns;
            self.watch_sizes(member)?;
            if member.needs_others() && self.watch_ranks(member) {
                return Ok(Some(now_ns));
            }
        }
        let look_ns = member
            .needs_others()
            .then(|| self.looked_ns.saturating_add(WATCH_NS));
        Ok(next_ns.into_iter().chain(look_ns).min())
    }

    /// Notices ranks whose processes have ended. Returns whether there is something to do at once.
    fn watch_ranks(&mut self, member: &mut Member<UdpFabric>) -> bool {
        let now_ns = self.looked_ns;
        let mut has_found = false;
        for (place, (route, watch)) in self.routes.iter().zip(&mut self.watches).enumerate() {
            let rank = place + usize::from(place >= self.rank);
            let refused = self.keeper.refused_since(member.endpoint_mut(), *route);
            let found = self.keeper.found(*route, Duration::MAX);
            let rtt = found
                .ok()
                .flatten()
                .map_or(Duration::ZERO, |found| found.rtt);
            let rtt_ns = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX);
            let finding = watch.look(now_ns, refused.is_some(), rtt_ns);
            if finding == Finding::Probe {
                self.keeper.probe(*route);
            }
            has_found |= finding != Finding::Nothing;
            member.set_gone(rank, finding == Finding::Gone);
        }
        has_found
    }

    fn watch_sizes(&mut self, member: &Member<UdpFabric>) -> Result<(), CollectiveError> {
        let (moved_ns, is_idle) = (member.moved_ns(), member.is_idle());
        let mtu = self.packet_bytes;
        for (place, route) in self.routes.iter().enumerate() {
            if let Some(shrunk) = self.keeper.watch_size(*route, moved_ns, is_idle, mtu) {
                return Err(CollectiveError::Route {
                    rank: place + usize::from(place >= self.rank),
                    problem: RouteError::Shrunk(shrunk),
                });
            }
        }
        Ok(())
    }
}

/// Packets of a segment of about the same number of bytes as with the default packet size.
fn packets_per_segment(group: &GroupOptions, packet_bytes: u32) -> u32 {
    let packets = group.segment_bytes() / packet_bytes.max(1);
    (packets / SEGMENT_UNIT * SEGMENT_UNIT).max(SEGMENT_UNIT)
}

fn out_of_turn(rank: usize) -> CollectiveError {
    CollectiveError::Info {
        rank,
        problem:
            "it sent the message of another round: pass the messages of one round to all ranks"
                .into(),
    }
}
