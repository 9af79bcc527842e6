//! The simulated network: hosts, links, one clock.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use farwrite_link::{ConfigError, Datagram, Link, LinkConfig, LinkCounters, Step};
use farwrite_wire::opcode::ROUTE_PACKET;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use super::{SimCarrier, SimClock, SimFabric};
use crate::nic::NicFabric;

/// Why a simulated network cannot do what was asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// Another end has the address.
    #[error("another end has the address {0}")]
    AddressTaken(SocketAddr),
    /// An end without ports, or with more ports than there are numbers after its first.
    #[error("{ports} ports from {addr} on: choose at least 1, with port numbers up to 65535")]
    Ports {
        /// Address of the first port.
        addr: SocketAddr,
        /// Number of ports.
        ports: u16,
    },
    /// No link joins the two addresses.
    #[error("no link leads from {from} to {to}")]
    NoLink {
        /// Address of the sender.
        from: IpAddr,
        /// Address of the receiver.
        to: IpAddr,
    },
    /// The configuration of a link is invalid.
    #[error(transparent)]
    Link(#[from] ConfigError),
}

/// What happens to a datagram that an end sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It enters its link.
    Pass,
    /// It is lost.
    Drop,
    /// It is kept for [`SimNetwork::take_held`].
    Hold,
}

type Tap = Box<dyn FnMut(&Datagram) -> Verdict>;

/// A simulated network of hosts. Clones are handles to the same network.
#[derive(Clone)]
pub struct SimNetwork {
    state: Rc<RefCell<NetworkState>>,
}

/// A datagram in an inbox, and its arrival time by the clock of its host.
pub(super) struct SimArrival {
    pub(super) at_ns: u64,
    pub(super) datagram: Datagram,
}

/// State that all ends of a network share.
pub(super) struct NetworkState {
    now_ns: u64,
    /// Generator of all further seeds.
    rng: ChaCha20Rng,
    /// Ordered, so that simultaneous arrivals have the same order in every run.
    links: BTreeMap<(IpAddr, IpAddr), Link>,
    /// The pairs of hosts that use the link of another pair.
    shared: BTreeMap<(IpAddr, IpAddr), (IpAddr, IpAddr)>,
    /// Datagrams that have arrived and were not polled yet, by socket.
    inboxes: BTreeMap<SocketAddr, VecDeque<SimArrival>>,
    /// The clocks of hosts that differ from the network's.
    clocks: BTreeMap<IpAddr, SimClock>,
    /// The hosts behind address translation: their own addresses, and those that the network sees.
    translations: Vec<[IpAddr; 2]>,
    /// Route packets that have arrived, by socket, of those that somebody asks for.
    route_packets: BTreeMap<SocketAddr, Vec<Datagram>>,
    tap: Option<Tap>,
    held: Vec<Datagram>,
    undeliverable: u64,
}

impl SimNetwork {
    /// A network without hosts, at time 0. All its faults, keys and numbers follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = NetworkState {
            now_ns: 0,
            rng: ChaCha20Rng::seed_from_u64(seed),
            links: BTreeMap::new(),
            shared: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            clocks: BTreeMap::new(),
            translations: Vec::new(),
            route_packets: BTreeMap::new(),
            tap: None,
            held: Vec::new(),
            undeliverable: 0,
        };
        Self {
            state: Rc::new(RefCell::new(state)),
        }
    }

    /// Adds an end with `ports` sockets: `addr`, and the port numbers after it. Several ends may
    /// share an IP address. Dropping the end frees its addresses.
    ///
    /// # Errors
    /// [`SimError::Ports`], [`SimError::AddressTaken`].
    pub fn endpoint(&self, addr: SocketAddr, ports: u16) -> Result<SimFabric, SimError> {
        let last = addr.port().checked_add(ports.saturating_sub(1));
        let last = last.filter(|_| ports > 0 && addr.port() > 0);
        let last = last.ok_or(SimError::Ports { addr, ports })?;
        let numbers = addr.port()..=last;
        let ports: Vec<_> = numbers
            .map(|port| SocketAddr::new(addr.ip(), port))
            .collect();
        let mut state = self.state.borrow_mut();
        if let Some(&taken) = ports.iter().find(|port| state.inboxes.contains_key(port)) {
            return Err(SimError::AddressTaken(taken));
        }
        state
            .inboxes
            .extend(ports.iter().map(|&port| (port, VecDeque::new())));
        let mut seed = [0; 32];
        state.rng.fill_bytes(&mut seed);
        let carrier = SimCarrier::new(Rc::clone(&self.state), ports);
        Ok(NicFabric::new(carrier, seed))
    }

    /// Joins two hosts by a link in each direction. Replaces earlier links; packets in flight there
    /// are lost.
    ///
    /// # Errors
    /// [`SimError::Link`].
    pub fn connect(
        &self,
        a: IpAddr,
        b: IpAddr,
        forward: LinkConfig,
        backward: LinkConfig,
    ) -> Result<(), SimError> {
        let mut state = self.state.borrow_mut();
        let forward = Link::new(forward, state.rng.next_u64())?;
        let backward = Link::new(backward, state.rng.next_u64())?;
        state.links.insert((a, b), forward);
        state.links.insert((b, a), backward);
        Ok(())
    }

    /// Sends what one host sends to another through the link of another pair of hosts, `of`: the
    /// rate and the queue of that link are common to both.
    ///
    /// # Errors
    /// [`SimError::NoLink`] if `of` has no link of its own.
    pub fn share_link(
        &self,
        from: IpAddr,
        to: IpAddr,
        of: (IpAddr, IpAddr),
    ) -> Result<(), SimError> {
        let mut state = self.state.borrow_mut();
        if !state.links.contains_key(&of) {
            let (from, to) = of;
            return Err(SimError::NoLink { from, to });
        }
        state.shared.insert((from, to), of);
        Ok(())
    }

    /// Replaces the link from one host to another by a link that changes at the times of `steps`.
    /// These times count from the creation of the network. Packets in flight on the old link are
    /// lost.
    ///
    /// # Errors
    /// [`SimError::NoLink`], [`SimError::Link`].
    pub fn set_link(
        &self,
        from: IpAddr,
        to: IpAddr,
        config: LinkConfig,
        steps: &[Step],
    ) -> Result<(), SimError> {
        let mut state = self.state.borrow_mut();
        let seed = state.rng.next_u64();
        let link = state.links.get_mut(&(from, to));
        *link.ok_or(SimError::NoLink { from, to })? = Link::with_steps(config, steps, seed)?;
        Ok(())
    }

    /// Gives a host a clock of its own. Arrivals have the time of this clock, so the ends of the host
    /// must be polled with its time too. Everything else has the time of the network.
    pub fn set_clock(&self, host: IpAddr, clock: SimClock) {
        self.state.borrow_mut().clocks.insert(host, clock);
    }

    /// Puts a host behind address translation (NAT). What it sends leaves with the address `outside`, and
    /// what is sent there arrives at the host; ports stay. Links and the tap know `outside` only.
    pub fn translate(&self, inside: IpAddr, outside: IpAddr) {
        let mut state = self.state.borrow_mut();
        state.translations.push([inside, outside]);
    }

    /// The current time, in nanoseconds since the creation of the network.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.state.borrow().now_ns
    }

    /// Time of the next arrival of a datagram; `None` if none is in flight.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.state.borrow().next().map(|(due_ns, _)| due_ns)
    }

    /// Moves the clock. Datagrams that arrive by then reach the inboxes of their ends, which
    /// receive them when polled. A time in the past changes nothing.
    pub fn advance_to(&self, now_ns: u64) {
        self.state.borrow_mut().advance_to(now_ns);
    }

    /// Cuts or restores the link from one host to another. Cutting loses all packets on it.
    ///
    /// # Errors
    /// [`SimError::NoLink`].
    pub fn set_down(&self, from: IpAddr, to: IpAddr, down: bool) -> Result<(), SimError> {
        let mut state = self.state.borrow_mut();
        let link = state.links.get_mut(&(from, to));
        link.ok_or(SimError::NoLink { from, to })?.set_down(down);
        Ok(())
    }

    /// The counters of the link from one host to another.
    ///
    /// # Errors
    /// [`SimError::NoLink`].
    pub fn link_counters(&self, from: IpAddr, to: IpAddr) -> Result<LinkCounters, SimError> {
        let state = self.state.borrow();
        let link = state.links.get(&(from, to));
        Ok(link.ok_or(SimError::NoLink { from, to })?.counters())
    }

    /// Bytes in the queue of the link from one host to another, including the packet in
    /// transmission.
    ///
    /// # Errors
    /// [`SimError::NoLink`].
    pub fn link_backlog_bytes(&self, from: IpAddr, to: IpAddr) -> Result<u64, SimError> {
        let state = self.state.borrow();
        let link = state.links.get(&(from, to));
        let link = link.ok_or(SimError::NoLink { from, to })?;
        Ok(link.queue_bytes(state.now_ns))
    }

    /// Sets a tap: a function that sees every datagram before its link and decides what happens to
    /// it. Replaces an earlier tap. The tap may use the network, but does not see what it sends
    /// itself.
    pub fn set_tap(&self, tap: impl FnMut(&Datagram) -> Verdict + 'static) {
        self.state.borrow_mut().tap = Some(Box::new(tap));
    }

    /// Removes the tap.
    pub fn clear_tap(&self) {
        self.state.borrow_mut().tap = None;
    }

    /// The datagrams that the tap held, in the order of sending.
    #[must_use]
    pub fn take_held(&self) -> Vec<Datagram> {
        std::mem::take(&mut self.state.borrow_mut().held)
    }

    /// Makes a datagram arrive at once, without tap and link. It may be held, copied or forged.
    pub fn inject(&self, datagram: Datagram) {
        self.state.borrow_mut().deliver(datagram);
    }

    /// Sends a datagram that no end sends, such as a route packet (P6.2), from the socket of an end.
    pub fn send(&self, datagram: Datagram) {
        transmit(&self.state, datagram);
    }

    /// Removes and returns the route packets (P6.2) that have arrived at a socket. From the first call on, the end
    /// at this socket does not get them.
    #[must_use]
    pub fn take_route_packets(&self, addr: SocketAddr) -> Vec<Datagram> {
        let mut state = self.state.borrow_mut();
        std::mem::take(state.route_packets.entry(addr).or_default())
    }

    /// Number of datagrams without a link or without a receiving end.
    #[must_use]
    pub fn undeliverable(&self) -> u64 {
        self.state.borrow().undeliverable
    }
}

/// Sends a datagram through the tap and the link.
pub(super) fn transmit(network: &RefCell<NetworkState>, mut datagram: Datagram) {
    network.borrow().rewrite(&mut datagram.src, [0, 1]);
    // Remove the tap while it runs, so that it can use the network.
    let tap = network.borrow_mut().tap.take();
    let verdict = match tap {
        None => Verdict::Pass,
        Some(mut tap) => {
            let verdict = tap(&datagram);
            network.borrow_mut().tap.get_or_insert(tap);
            verdict
        }
    };
    let mut state = network.borrow_mut();
    match verdict {
        Verdict::Pass => state.send(datagram),
        Verdict::Drop => {}
        Verdict::Hold => state.held.push(datagram),
    }
}

impl NetworkState {
    fn send(&mut self, datagram: Datagram) {
        let route = (datagram.src.ip(), datagram.dst.ip());
        let route = self.shared.get(&route).unwrap_or(&route);
        match self.links.get_mut(route) {
            Some(link) => link.send(self.now_ns, datagram),
            None => self.undeliverable += 1,
        }
    }

    /// Changes an address as translation does, `from` one of its two addresses `to` the other.
    fn rewrite(&self, addr: &mut SocketAddr, [from, to]: [usize; 2]) {
        let mut translations = self.translations.iter();
        if let Some(host) = translations.find(|host| host[from] == addr.ip()) {
            addr.set_ip(host[to]);
        }
    }

    fn deliver(&mut self, mut datagram: Datagram) {
        self.rewrite(&mut datagram.dst, [1, 0]);
        let clock = self.clocks.get(&datagram.dst.ip());
        let at_ns = clock.map_or(self.now_ns, |clock| clock.local_ns(self.now_ns));
        let is_route_packet = datagram.payload.first() == Some(&ROUTE_PACKET);
        if is_route_packet && let Some(packets) = self.route_packets.get_mut(&datagram.dst) {
            packets.push(datagram);
            return;
        }
        match self.inboxes.get_mut(&datagram.dst) {
            Some(inbox) => inbox.push_back(SimArrival { at_ns, datagram }),
            None => self.undeliverable += 1,
        }
    }

    /// Time and key of the link with the next delivery.
    fn next(&self) -> Option<(u64, (IpAddr, IpAddr))> {
        let links = self.links.iter();
        let due = links.filter_map(|(&route, link)| Some((link.next_ns()?, route)));
        due.min()
    }

    fn advance_to(&mut self, now_ns: u64) {
        while let Some((due_ns, route)) = self.next().filter(|(due_ns, _)| *due_ns <= now_ns) {
            self.now_ns = self.now_ns.max(due_ns);
            let link = self.links.get_mut(&route);
            if let Some(datagram) = link.and_then(|link| link.poll(due_ns)) {
                self.deliver(datagram);
            }
        }
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// Moves up to `most` datagrams out of a socket's inbox. Returns whether some are left.
    pub(super) fn take(
        &mut self,
        addr: SocketAddr,
        most: usize,
        out: &mut Vec<SimArrival>,
    ) -> bool {
        let Some(inbox) = self.inboxes.get_mut(&addr) else {
            return false;
        };
        out.extend(inbox.drain(..inbox.len().min(most)));
        !inbox.is_empty()
    }

    /// Datagrams in their inboxes are lost.
    pub(super) fn close(&mut self, ports: &[SocketAddr]) {
        for port in ports {
            self.inboxes.remove(port);
        }
    }
}
