//! The simulated network: hosts, links, one clock.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use farwrite_link::{ConfigError, Datagram, Link, LinkConfig, LinkCounters, Step};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use super::{SimCarrier, SimFabric};
use crate::nic::NicFabric;

/// Why a simulated network cannot be as asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimError {
    /// An end already has the address.
    #[error("{0} is taken by another end")]
    AddressTaken(SocketAddr),
    /// An end without ports, or with more than there are above its first.
    #[error("{ports} ports from {addr} on: 1 or more that end by 65535 are wanted")]
    Ports {
        /// The first.
        addr: SocketAddr,
        /// How many.
        ports: u16,
    },
    /// Two addresses that no link joins.
    #[error("no link leads from {from} to {to}")]
    NoLink {
        /// Where it would start.
        from: IpAddr,
        /// Where it would end.
        to: IpAddr,
    },
    /// A link cannot be so.
    #[error(transparent)]
    Link(#[from] ConfigError),
}

/// What becomes of a datagram that an end sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes to its link.
    Pass,
    /// It is gone.
    Drop,
    /// It is kept for [`SimNetwork::take_held`].
    Hold,
}

type Tap = Box<dyn FnMut(&Datagram) -> Verdict>;

/// A network of simulated hosts. Clones are handles to the same network.
#[derive(Clone)]
pub struct SimNetwork {
    state: Rc<RefCell<State>>,
}

/// A datagram in an inbox, and when it came.
pub(super) struct Arrived {
    pub(super) at_ns: u64,
    pub(super) datagram: Datagram,
}

/// Everything that the ends of a network share.
pub(super) struct State {
    now_ns: u64,
    /// Source of every further seed.
    rng: ChaCha20Rng,
    /// Ordered, so that simultaneous arrivals come in the same order in every run.
    links: BTreeMap<(IpAddr, IpAddr), Link>,
    /// What has arrived and was not polled yet, by socket.
    inboxes: BTreeMap<SocketAddr, VecDeque<Arrived>>,
    tap: Option<Tap>,
    held: Vec<Datagram>,
    undeliverable: u64,
}

impl SimNetwork {
    /// A network without hosts, at time 0. All its faults, keys and numbers follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = State {
            now_ns: 0,
            rng: ChaCha20Rng::seed_from_u64(seed),
            links: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            tap: None,
            held: Vec::new(),
            undeliverable: 0,
        };
        Self {
            state: Rc::new(RefCell::new(state)),
        }
    }

    /// A new end with `ports` sockets: `addr` and the port numbers that follow it. Several ends may
    /// share an IP address. Dropping the end frees them.
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

    /// Joins two hosts by a link each way; takes the place of earlier ones, with all in flight
    /// there.
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

    /// Replaces the link from one host to another, with all in flight there, by one that changes at
    /// the instants of `steps`, which count from when the network was made.
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

    /// Now, in nanoseconds since the network was made.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.state.borrow().now_ns
    }

    /// When the next datagram arrives somewhere, `None` if none is under way.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.state.borrow().next().map(|(due_ns, _)| due_ns)
    }

    /// Moves the clock, and all datagrams that arrive by then to the ends that they are for, which
    /// take them in when polled. A time that has passed already changes nothing.
    pub fn advance_to(&self, now_ns: u64) {
        self.state.borrow_mut().advance_to(now_ns);
    }

    /// Cuts the link from one host to another, with the loss of all that is on it, or mends it.
    ///
    /// # Errors
    /// [`SimError::NoLink`].
    pub fn set_down(&self, from: IpAddr, to: IpAddr, down: bool) -> Result<(), SimError> {
        let mut state = self.state.borrow_mut();
        let link = state.links.get_mut(&(from, to));
        link.ok_or(SimError::NoLink { from, to })?.set_down(down);
        Ok(())
    }

    /// What the link from one host to another has done.
    ///
    /// # Errors
    /// [`SimError::NoLink`].
    pub fn link_counters(&self, from: IpAddr, to: IpAddr) -> Result<LinkCounters, SimError> {
        let state = self.state.borrow();
        let link = state.links.get(&(from, to));
        Ok(link.ok_or(SimError::NoLink { from, to })?.counters())
    }

    /// Bytes that wait in the queue of the link from one host to another, the one that is being
    /// sent included.
    ///
    /// # Errors
    /// [`SimError::NoLink`].
    pub fn link_backlog_bytes(&self, from: IpAddr, to: IpAddr) -> Result<u64, SimError> {
        let state = self.state.borrow();
        let link = state.links.get(&(from, to));
        let link = link.ok_or(SimError::NoLink { from, to })?;
        Ok(link.queue_bytes(state.now_ns))
    }

    /// Shows every datagram to `tap` as it is sent, before its link, and does as it says. Takes the
    /// place of an earlier one. The tap may use the network, but what it sends is not shown to it.
    pub fn set_tap(&self, tap: impl FnMut(&Datagram) -> Verdict + 'static) {
        self.state.borrow_mut().tap = Some(Box::new(tap));
    }

    /// Shows datagrams to nobody any more.
    pub fn clear_tap(&self) {
        self.state.borrow_mut().tap = None;
    }

    /// The datagrams that a tap held, in the order of their sending.
    #[must_use]
    pub fn take_held(&self) -> Vec<Datagram> {
        std::mem::take(&mut self.state.borrow_mut().held)
    }

    /// Makes a datagram arrive at once, past tap and links: one held, copied or forged.
    pub fn inject(&self, datagram: Datagram) {
        self.state.borrow_mut().deliver(datagram);
    }

    /// Datagrams that no link or no end was there for.
    #[must_use]
    pub fn undeliverable(&self) -> u64 {
        self.state.borrow().undeliverable
    }
}

/// Sends a datagram through tap and link.
pub(super) fn transmit(network: &RefCell<State>, datagram: Datagram) {
    // The tap is taken out while it runs, so that it may use the network.
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

impl State {
    fn send(&mut self, datagram: Datagram) {
        let route = (datagram.src.ip(), datagram.dst.ip());
        match self.links.get_mut(&route) {
            Some(link) => link.send(self.now_ns, datagram),
            None => self.undeliverable += 1,
        }
    }

    fn deliver(&mut self, datagram: Datagram) {
        match self.inboxes.get_mut(&datagram.dst) {
            Some(inbox) => inbox.push_back(Arrived {
                at_ns: self.now_ns,
                datagram,
            }),
            None => self.undeliverable += 1,
        }
    }

    /// The link that delivers next, and when.
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

    /// Moves up to `most` datagrams out of a socket's inbox; returns whether some are left.
    pub(super) fn take(&mut self, addr: SocketAddr, most: usize, out: &mut Vec<Arrived>) -> bool {
        let Some(inbox) = self.inboxes.get_mut(&addr) else {
            return false;
        };
        out.extend(inbox.drain(..inbox.len().min(most)));
        !inbox.is_empty()
    }

    /// Closes sockets, with all that has arrived there.
    pub(super) fn close(&mut self, ports: &[SocketAddr]) {
        for port in ports {
            self.inboxes.remove(port);
        }
    }
}
