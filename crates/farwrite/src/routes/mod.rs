//! The routes between the UDP socket of one endpoint and its peers (P6.2): across address
//! translation, with the largest packets that each path carries.
//!
//! 1. For each peer, [`RouteKeeper::offer`] returns what the peer must know. It travels over an
//!    authenticated and confidential channel, like [`QpInfo`].
//! 2. [`RouteKeeper::join`] takes the peer's offer. One end of a route is the initiator: it sends to
//!    the address in the peer's offer only. The responder follows the initiator to the address that
//!    its packets come from. So the initiator may be behind any address translation, and the
//!    responder behind one that keeps ports.
//! 3. [`RouteKeeper::poll`] follows each poll of the endpoint. [`RouteKeeper::found`] returns the
//!    result when the route is known, or why there is none.
//! 4. [`RouteKeeper::connect`] connects a queue pair over a route. From then on, the keeper moves the
//!    queue pair when the peer's address changes, and keeps mappings of translators alive.
//!
//! ```
//! use std::net::{Ipv4Addr, SocketAddr};
//! use std::time::Duration;
//! use farwrite::routes::{RouteKeeper, Role, Sizes};
//! use farwrite::{Endpoint, QpConfig, QpOptions, UdpConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
//! let mut a = Endpoint::over_udp(&UdpConfig::new(loopback))?;
//! let mut b = Endpoint::over_udp(&UdpConfig::new(loopback))?;
//! let (mut of_a, mut of_b) = (RouteKeeper::new(), RouteKeeper::new());
//! let (to_b, offer_a) = of_a.offer(&a)?;
//! let (to_a, offer_b) = of_b.offer(&b)?;
//! let sizes = Sizes::Largest { least_mtu: 1024, largest_mtu: None };
//! of_a.join(&a, to_b, Role::Initiator, &offer_b, sizes)?;
//! of_b.join(&b, to_a, Role::Responder, &offer_a, Sizes::Untested)?;
//! let patience = Duration::from_secs(10);
//! let found = loop {
//!     a.poll_now()?;
//!     of_a.poll(&mut a)?;
//!     b.poll_now()?;
//!     of_b.poll(&mut b)?;
//!     if let (Some(found), Some(_)) = (of_a.found(to_b, patience)?, of_b.found(to_a, patience)?) {
//!         break found;
//!     }
//! };
//! let mtu = found.mtu.expect("sizes were tested");
//! let sdr = QpConfig { mtu, ..QpConfig::default() };
//! let options = QpOptions { sdr, ..QpOptions::default() };
//! let (qa, qb) = (a.create_qp(options.clone())?, b.create_qp(options)?);
//! let (info_a, info_b) = (a.qp_info(qa)?, b.qp_info(qb)?);
//! of_a.connect(&mut a, to_b, qa, &info_b)?;
//! of_b.connect(&mut b, to_a, qb, &info_a)?;
//! # Ok(())
//! # }
//! ```
//!
//! Queue pairs have one channel and use the first port of the endpoint. The fabric must have sockets
//! ([`HasSockets`]): no route is found without them.

mod error;
mod kept_route;
mod offer;
mod refusals;
mod size_watch;
mod sizes;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use farwrite_fabric::udp::{HasSockets, UdpFabric};
use farwrite_route::{Config, LOOK_NS, Route, stated_index};
use farwrite_wire::Secret;
use slab::Slab;

use self::kept_route::KeptRoute;
use self::size_watch::Finding;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::handle::QueuePair;
use crate::options::Sealing;
use crate::real_time::random_bytes;
use farwrite_sdr::QpInfo;

pub use error::{RouteError, RouteShrunk};
pub use farwrite_route::Role;
pub use offer::RouteOffer;
pub use sizes::{Sizes, payload_bytes, payload_in};

/// The highest number of routes: packets name a route by 16 bits.
const MOST: usize = 1 << 16;
/// How long a route is held: as long as the timeout of the first probe.
const HOLD_NS: u64 = 200_000_000;

/// Names a route of a [`RouteKeeper`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteId {
    index: u16,
    /// Distinguishes the routes that have successively had this index.
    serial: u32,
}

/// A route that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundRoute {
    /// The address to which packets are sent, and from which they come.
    pub peer: SocketAddr,
    /// The largest MTU that was tested and that the path to the peer carries; `None` if no sizes
    /// were tested ([`Sizes::Untested`]).
    pub mtu: Option<u32>,
    /// The round trip of the route packets.
    pub rtt: Duration,
}

/// Finds the routes of one endpoint to its peers, and keeps them.
#[derive(Debug, Default)]
pub struct RouteKeeper {
    routes: Slab<Entry>,
    made: u32,
    /// When each route with a peer has work.
    due: BTreeSet<(u64, u16)>,
    /// The time of the last poll.
    now_ns: u64,
    /// The packets of the endpoint at the last look at the traffic, and the time of that look.
    looked: (u64, u64),
    /// Bytes of a packet that sealing takes, in addition to the MTU.
    reserved_bytes: u32,
}

#[derive(Debug)]
struct Entry {
    serial: u32,
    key: Secret,
    local: SocketAddr,
    /// The route after [`RouteKeeper::join`], and when it has work.
    joined: Option<(u64, KeptRoute)>,
}

impl RouteKeeper {
    /// A keeper without routes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A keeper without routes, for queue pairs with this choice. All its MTUs leave room for what
    /// sealing adds to a packet.
    #[must_use]
    pub fn with_sealing(sealing: Sealing) -> Self {
        Self {
            reserved_bytes: sealing.reserved_bytes(),
            ..Self::default()
        }
    }

    /// Begins a route to one more peer. Returns what this peer must know, and no other peer: the
    /// offer contains a key.
    ///
    /// # Errors
    /// [`RouteError::TooMany`], or [`Error::Fabric`] if there is no randomness.
    pub fn offer<F: HasSockets>(
        &mut self,
        endpoint: &Endpoint<F>,
    ) -> Result<(RouteId, RouteOffer), Error> {
        let too_many = RouteError::TooMany { most: MOST };
        let index = u16::try_from(self.routes.vacant_key()).map_err(|_| too_many)?;
        let key = random_bytes()?;
        let local = endpoint.fabric().local_addr(0);
        self.made = self.made.wrapping_add(1);
        let serial = self.made;
        self.routes.insert(Entry {
            serial,
            key: key.into(),
            local,
            joined: None,
        });
        let offer = RouteOffer {
            address: local,
            key,
            index,
        };
        Ok((RouteId { index, serial }, offer))
    }

    /// Starts to look for the route to a peer. `theirs` is the peer's offer; its address may be
    /// replaced by the one at which this end sees the peer. The peer has the other role.
    ///
    /// # Errors
    /// [`RouteError::NoSuchRoute`], [`RouteError::Joined`], [`RouteError::NoAddress`].
    pub fn join<F: HasSockets>(
        &mut self,
        endpoint: &Endpoint<F>,
        id: RouteId,
        role: Role,
        theirs: &RouteOffer,
        sizes: Sizes,
    ) -> Result<(), Error> {
        let now_ns = endpoint.fabric().now_ns();
        // A route knows payloads, which sealing makes longer.
        let sizes = sizes.and(self.reserved_bytes);
        let RouteOffer {
            address,
            key,
            index,
        } = *theirs;
        if address.port() == 0 || address.ip().is_unspecified() {
            return Err(RouteError::NoAddress { address }.into());
        }
        let entry = self.entry_mut(id)?;
        if entry.joined.is_some() {
            return Err(RouteError::Joined(id.serial).into());
        }
        let config = Config {
            role,
            number: 0,
            send_key: key.into(),
            send_index: index,
            recv_key: entry.key.clone(),
            recv_index: id.index,
            local: entry.local,
            peer: address,
            search: sizes.search(address),
        };
        let route = Route::new(config, now_ns);
        let kept = KeptRoute::new(route, [entry.local, address], sizes, now_ns);
        entry.joined = Some((now_ns, kept));
        self.due.insert((now_ns, id.index));
        self.now_ns = now_ns;
        Ok(())
    }

    /// Takes what a handshake over these sockets has shown, after [`RouteKeeper::join`]: the peer receives at the address
    /// that was given there, and this end's packets reach it from the first address of `flow` to the second. The route
    /// needs no probes then, except for sizes. `rtt` is about the round trip.
    ///
    /// # Errors
    /// [`RouteError::NoSuchRoute`], [`RouteError::NotFound`] without a peer, and [`RouteError::NoAddress`] for addresses
    /// that no packet can have.
    pub fn know(
        &mut self,
        id: RouteId,
        flow: (SocketAddr, SocketAddr),
        rtt: Duration,
    ) -> Result<(), RouteError> {
        match self.joined_mut(id)?.know(flow, rtt) {
            true => Ok(()),
            false => Err(RouteError::NoAddress { address: flow.0 }),
        }
    }

    /// Sets the IP address of this end on a route. An endpoint at a wildcard address
    /// ([`UdpFabric::is_wildcard`]) has several: before [`RouteKeeper::join`], set the one that the peer
    /// names or that packets to it leave from. Later, set the new one when this machine has moved. The
    /// initiator of a route may move at any time. The peer of a responder does not follow it.
    ///
    /// # Errors
    /// [`RouteError::NoSuchRoute`].
    pub fn set_local(&mut self, id: RouteId, ip: IpAddr) -> Result<(), RouteError> {
        let entry = self.entry_mut(id)?;
        if entry.local.ip() == ip {
            return Ok(());
        }
        entry.local.set_ip(ip);
        let local = entry.local;
        if let Some((_, kept)) = &mut entry.joined {
            kept.set_local(local);
            self.set_due(id.index, self.now_ns);
        }
        Ok(())
    }

    /// Forgets a route. Queue pairs on it stay where they are.
    ///
    /// # Errors
    /// [`RouteError::NoSuchRoute`].
    pub fn remove(&mut self, id: RouteId) -> Result<(), RouteError> {
        self.entry(id)?;
        if let Some((due_ns, _)) = self.routes.remove(id.index.into()).joined {
            self.due.remove(&(due_ns, id.index));
        }
        Ok(())
    }

    /// Processes route packets that the endpoint has received, sends those that are due, and moves
    /// queue pairs to the current address of their peer. Call it after each poll of the endpoint.
    /// Returns when to call it again if nothing arrives earlier.
    ///
    /// # Errors
    /// Why a route has failed, of the first one if several have. An owner of several routes calls
    /// [`RouteKeeper::poll_each`].
    pub fn poll<F: HasSockets>(
        &mut self,
        endpoint: &mut Endpoint<F>,
    ) -> Result<Option<u64>, Error> {
        let mut served = Vec::new();
        let next_ns = self.poll_each(endpoint, &mut served);
        let failed = served.into_iter().find_map(|(_, served)| served.err());
        failed.map_or(Ok(next_ns), Err)
    }

    /// As [`RouteKeeper::poll`], and adds the routes that it has served to `served`, each with the error if
    /// it has failed. Nothing has changed on others. A route that has failed has no more work: remove it. An
    /// address that the system sends nothing to is a reason. A port that is permanently broken is another
    /// one, which a poll of the endpoint reports too.
    pub fn poll_each<F: HasSockets>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        served: &mut Vec<(RouteId, Result<(), Error>)>,
    ) -> Option<u64> {
        let now_ns = endpoint.fabric().now_ns();
        self.now_ns = now_ns;
        let sockets = endpoint.fabric().sockets();
        let packets = sockets.map(UdpFabric::take_route_packets);
        for packet in packets.into_iter().flatten() {
            // Only the index selects the key: the address may be new, and to try all keys would let
            // anyone make this end compute as many hashes as it has peers.
            let index = stated_index(&packet.bytes);
            let kept = index.and_then(|index| Some((index, self.kept(index)?)));
            if let Some((index, kept)) = kept
                && kept.receive(now_ns, &packet)
            {
                self.set_due(index, now_ns);
            }
        }
        let look_ns = self.look_at_traffic(endpoint, now_ns);
        while let Some(&(due_ns, index)) = self.due.first()
            && due_ns <= now_ns
        {
            let entry = self.routes.get(index.into());
            let serial = entry.map_or(0, |entry| entry.serial);
            let kept = self.kept(index);
            let next = kept.map_or(Ok(u64::MAX), |kept| kept.serve(endpoint, now_ns));
            self.set_due(index, *next.as_ref().unwrap_or(&u64::MAX));
            served.push((RouteId { index, serial }, next.map(drop)));
        }
        let first = self.due.first().map(|(due_ns, _)| *due_ns);
        first.into_iter().chain(look_ns).min()
    }

    /// Returns the route if it is known: its addresses, and the sizes if they are tested. `patience` is
    /// how long this may take after [`RouteKeeper::join`].
    ///
    /// # Errors
    /// [`RouteError::PortRewritten`], [`RouteError::Blocked`] or [`RouteError::TooLarge`] if there is
    /// no route of use; [`RouteError::NoSuchRoute`], [`RouteError::NotFound`] without a peer.
    pub fn found(&self, id: RouteId, patience: Duration) -> Result<Option<FoundRoute>, RouteError> {
        let reserved_bytes = self.reserved_bytes;
        match self.joined(id)?.found(self.now_ns, patience) {
            Ok(found) => Ok(found.map(|found| FoundRoute {
                mtu: found.mtu.map(|mtu| mtu.saturating_sub(reserved_bytes)),
                ..found
            })),
            Err(RouteError::TooLarge { peer, mtu }) => {
                let mtu = mtu.saturating_sub(reserved_bytes);
                Err(RouteError::TooLarge { peer, mtu })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the address of this end on a route, as the peer knows it unless it is translated.
    #[must_use]
    pub fn local(&self, id: RouteId) -> Option<SocketAddr> {
        Some(self.entry(id).ok()?.local)
    }

    /// Returns the address of the peer, if the route is known. It changes when the peer moves.
    #[must_use]
    pub fn peer(&self, id: RouteId) -> Option<SocketAddr> {
        Some(self.joined(id).ok()?.route.addresses()?.peer)
    }

    /// Connects a queue pair to the peer's over a route that was found. The addresses in `theirs` do
    /// not matter. The keeper moves the queue pair with its peer until it is destroyed.
    ///
    /// # Errors
    /// [`RouteError::NotFound`], [`RouteError::NoSuchRoute`], and those of [`Endpoint::connect_qp`].
    pub fn connect<F: HasSockets>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        id: RouteId,
        qp: QueuePair,
        theirs: &QpInfo,
    ) -> Result<(), Error> {
        let kept = self.joined_mut(id)?;
        let addresses = kept.route.addresses();
        let addresses = addresses.ok_or(RouteError::NotFound(id.serial))?;
        let mut theirs = theirs.clone();
        let named = theirs.channels.iter_mut().chain([&mut theirs.control]);
        named.for_each(|address| *address = addresses.peer);
        endpoint.connect_qp(qp, &theirs)?;
        kept.add(endpoint, qp, addresses)
    }

    /// Tests the size of data packets on a route if nothing has moved for 3 seconds. Call it
    /// regularly. `moved` is a count of the program that grows with every step of either end.
    /// `is_held_up` means that nothing has to move now. Returns a value if small packets pass and
    /// packets of this `mtu` do not.
    pub fn watch_size(
        &mut self,
        id: RouteId,
        moved: u64,
        is_held_up: bool,
        mtu: u32,
    ) -> Option<RouteShrunk> {
        let (now_ns, reserved_bytes) = (self.now_ns, self.reserved_bytes);
        let kept = self.joined_mut(id).ok()?;
        match kept.watch_size(now_ns, moved, is_held_up, mtu + reserved_bytes) {
            Finding::Nothing => None,
            Finding::Tests => {
                self.set_due(id.index, now_ns);
                None
            }
            Finding::Shrunk(shrunk) => Some(RouteShrunk {
                mtu,
                carries: shrunk.carries.saturating_sub(reserved_bytes),
                ..shrunk
            }),
        }
    }

    /// Whether the last test of sizes on a route has found that the path loses packets that are larger than those that
    /// it carries. `false` if this machine refuses to send larger ones, and while the test runs.
    #[must_use]
    pub fn is_narrow(&self, id: RouteId) -> bool {
        let joined = self.joined(id);
        joined.is_ok_and(|kept| kept.route.largest().is_some() && kept.route.is_narrow())
    }

    /// Returns how many route packets came from the peer. It answers probes even while no queue pair has
    /// packets to send.
    #[must_use]
    pub fn heard_packets(&self, id: RouteId) -> u64 {
        self.joined(id).map_or(0, |kept| kept.heard_packets)
    }

    /// Returns when something came from the peer: a route packet, or packets of the queue pairs. Those are
    /// counted every 100 ms.
    #[must_use]
    pub fn heard_ns(&self, id: RouteId) -> Option<u64> {
        self.joined(id).ok()?.heard_ns
    }

    /// Returns when the peer has last answered a probe, which shows that packets pass in both directions. Before
    /// the first answer, it is when the peer joined.
    #[must_use]
    pub fn answered_ns(&self, id: RouteId) -> Option<u64> {
        Some(self.joined(id).ok()?.route.answered_ns())
    }

    /// Returns when this end has first noticed that ICMP says that nobody is at the port of the peer, if nothing came
    /// from the peer since then. Call it regularly while the peer is silent.
    ///
    /// The peer may be alive: anyone can forge ICMP, and it may be about an old address. So ask for a sign of life.
    pub fn refused_since<F: HasSockets>(
        &mut self,
        endpoint: &Endpoint<F>,
        id: RouteId,
    ) -> Option<u64> {
        let now_ns = self.now_ns;
        let kept = self.joined_mut(id).ok()?;
        let peer = kept.route.addresses()?.peer;
        let refusals = endpoint.fabric().sockets()?.refusals(0, peer);
        kept.refused_since(now_ns, refusals)
    }

    /// Sends nothing on a route that was just joined for 200 ms, unless a packet of the peer comes or
    /// [`RouteKeeper::begin`] is called. The first probe to a peer that has not joined yet would be lost, and
    /// the next one would leave after that time.
    pub fn hold(&mut self, id: RouteId) {
        self.set_due(id.index, self.now_ns + HOLD_NS);
    }

    /// Sends the first probes on a route of which the peer is known to have joined it.
    pub fn begin(&mut self, id: RouteId) {
        self.set_due(id.index, self.now_ns);
    }

    /// Probes the peer within half a second or four round trips, unless something comes from it. A program
    /// that misses signs of the peer elsewhere calls this, since an idle route is probed seldom.
    pub fn ask(&mut self, id: RouteId) {
        let now_ns = self.now_ns;
        if let Ok(kept) = self.joined_mut(id) {
            kept.route.ask(now_ns);
            let due_ns = kept.route.next_ns();
            self.set_due(id.index, due_ns);
        }
    }

    /// Probes the peer at once.
    pub fn probe(&mut self, id: RouteId) {
        let now_ns = self.now_ns;
        if let Ok(kept) = self.joined_mut(id) {
            kept.route.probe_now(now_ns);
            self.set_due(id.index, now_ns);
        }
    }

    /// Informs the routes of the packets of their queue pairs. Returns when to do so again, if
    /// packets are not counted yet. An endpoint without traffic costs nothing.
    fn look_at_traffic<F: HasSockets>(
        &mut self,
        endpoint: &Endpoint<F>,
        now_ns: u64,
    ) -> Option<u64> {
        let counters = endpoint.counters();
        let packets = counters
            .sent_packets
            .wrapping_add(counters.received_packets);
        let (counted, looked_ns) = self.looked;
        if packets == counted {
            return None;
        }
        let due_ns = looked_ns.saturating_add(LOOK_NS);
        if now_ns < due_ns {
            return Some(due_ns);
        }
        self.looked = (packets, now_ns);
        let mut changed = Vec::new();
        for (index, entry) in &mut self.routes {
            if let (Ok(index), Some((_, kept))) = (u16::try_from(index), &mut entry.joined)
                && kept.count_traffic(endpoint, now_ns)
            {
                changed.push((index, kept.route.next_ns()));
            }
        }
        for (index, next_ns) in changed {
            self.set_due(index, next_ns);
        }
        None
    }

    fn set_due(&mut self, index: u16, next_ns: u64) {
        if let Some(entry) = self.routes.get_mut(index.into())
            && let Some((due_ns, _)) = &mut entry.joined
        {
            let before_ns = std::mem::replace(due_ns, next_ns);
            self.due.remove(&(before_ns, index));
            self.due.insert((next_ns, index));
        }
    }

    fn kept(&mut self, index: u16) -> Option<&mut KeptRoute> {
        let (_, kept) = self.routes.get_mut(index.into())?.joined.as_mut()?;
        Some(kept)
    }

    fn joined(&self, id: RouteId) -> Result<&KeptRoute, RouteError> {
        let joined = self.entry(id)?.joined.as_ref();
        let joined = joined.map(|(_, kept)| kept);
        joined.ok_or(RouteError::NotFound(id.serial))
    }

    fn joined_mut(&mut self, id: RouteId) -> Result<&mut KeptRoute, RouteError> {
        let joined = self.entry_mut(id)?.joined.as_mut();
        let joined = joined.map(|(_, kept)| kept);
        joined.ok_or(RouteError::NotFound(id.serial))
    }

    fn entry(&self, id: RouteId) -> Result<&Entry, RouteError> {
        let entry = self.routes.get(id.index.into());
        let entry = entry.filter(|entry| entry.serial == id.serial);
        entry.ok_or(RouteError::NoSuchRoute(id.serial))
    }

    fn entry_mut(&mut self, id: RouteId) -> Result<&mut Entry, RouteError> {
        let entry = self.routes.get_mut(id.index.into());
        let entry = entry.filter(|entry| entry.serial == id.serial);
        entry.ok_or(RouteError::NoSuchRoute(id.serial))
    }
}
