//! One route of a keeper.

use std::time::Duration;

use farwrite_fabric::contract::QpRoute;
use farwrite_fabric::udp::{HasSockets, OwnersDatagram};
use farwrite_route::{Addresses, LEAST_WAIT_NS, Route, RouteUsers};
use std::net::{IpAddr, SocketAddr};

use super::refusals::Refusals;
use super::size_watch::{Finding, SizeWatch};
use super::sizes::payload_bytes;
use super::{FoundRoute, RouteError, Sizes};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::handle::QueuePair;

/// A route with its peer.
#[derive(Debug)]
pub(super) struct KeptRoute {
    pub(super) route: Route,
    /// The addresses in the offers of both ends.
    local: SocketAddr,
    peer: SocketAddr,
    sizes: Sizes,
    since_ns: u64,
    queue_pairs: Vec<QueuePair>,
    users: RouteUsers,
    /// Route packets from the peer.
    pub(super) heard_packets: u64,
    /// When a route packet or packets of queue pairs came from the peer.
    pub(super) heard_ns: Option<u64>,
    refusals: Refusals,
    size: SizeWatch,
}

impl KeptRoute {
    pub(super) fn new(
        route: Route,
        [local, peer]: [SocketAddr; 2],
        sizes: Sizes,
        now_ns: u64,
    ) -> Self {
        Self {
            route,
            local,
            peer,
            sizes,
            since_ns: now_ns,
            queue_pairs: Vec::new(),
            users: RouteUsers::default(),
            heard_packets: 0,
            heard_ns: None,
            refusals: Refusals::default(),
            size: SizeWatch::new(now_ns),
        }
    }

    /// Processes a route packet. Packets that are not from the peer change nothing. Returns whether
    /// the packet is from the peer.
    pub(super) fn receive(&mut self, now_ns: u64, packet: &OwnersDatagram) -> bool {
        let received = self
            .route
            .receive(now_ns, packet.src, packet.dst, &packet.bytes);
        if received.is_ok() {
            self.heard_packets += 1;
            self.heard_ns = Some(now_ns);
        }
        received.is_ok()
    }

    /// As [`Route::know`].
    pub(super) fn know(&mut self, flow: (SocketAddr, SocketAddr), rtt: Duration) -> bool {
        let rtt_ns = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX);
        self.route.know(flow, rtt_ns)
    }

    /// Moves this end to another local address, with the queue pairs.
    pub(super) fn set_local(&mut self, local: SocketAddr) {
        self.local = local;
        self.route.set_local(local);
        // The queue pairs look up the source of their packets again, even if the peer sees the same
        // address of a translator as before.
        self.users.move_again();
    }

    /// Since when ICMP says that nobody is at the peer's port, by the count of such messages.
    pub(super) fn refused_since(&mut self, now_ns: u64, count: u64) -> Option<u64> {
        let heard_ns = self.heard_ns.unwrap_or(0);
        self.refusals.look(now_ns, heard_ns, count)
    }

    /// Sends due packets, and moves the queue pairs when the addresses have changed. Returns when to call
    /// again.
    pub(super) fn serve<F: HasSockets>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        now_ns: u64,
    ) -> Result<u64, Error> {
        while let Some(sockets) = endpoint.fabric().sockets()
            && let Some(out) = self.route.poll_transmit(now_ns)
        {
            if !sockets.send_owners_packet(0, out.from, out.to, &out.bytes)? {
                self.route.too_large(out.bytes.len());
            }
        }
        if let Some(addresses) = self.users.follow(&self.route) {
            self.move_queue_pairs(endpoint, addresses)?;
        }
        Ok(self.route.next_ns().max(now_ns + LEAST_WAIT_NS))
    }

    fn move_queue_pairs<F: HasSockets>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        addresses: Addresses,
    ) -> Result<(), Error> {
        let route = qp_route(self.local.ip(), addresses);
        let mut result = Ok(());
        self.queue_pairs.retain(|&qp| {
            match endpoint.set_routes(qp, &[route]) {
                Ok(()) => true,
                // Its owner has destroyed it, or learns the reason from it.
                Err(Error::NoSuchQueuePair(_) | Error::BrokenQueuePair { .. }) => false,
                Err(error) => {
                    result = Err(error);
                    true
                }
            }
        });
        result
    }

    /// Records whether packets of queue pairs left and arrived since the last call. Returns whether
    /// some did.
    pub(super) fn count_traffic<F: HasSockets>(
        &mut self,
        endpoint: &Endpoint<F>,
        now_ns: u64,
    ) -> bool {
        let mut sum = [0_u64; 2];
        self.queue_pairs.retain(|&qp| {
            let traffic = endpoint.traffic(qp);
            if let Ok(traffic) = &traffic {
                sum[0] = sum[0].wrapping_add(traffic[0]);
                sum[1] = sum[1].wrapping_add(traffic[1]);
            }
            traffic.is_ok()
        });
        let changed = self.users.note_traffic(&mut self.route, now_ns, sum);
        if changed[1] {
            self.heard_ns = Some(now_ns);
        }
        changed != [false; 2]
    }

    /// Adds a queue pair that was connected with `addresses`.
    pub(super) fn add<F: HasSockets>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        qp: QueuePair,
        addresses: Addresses,
    ) -> Result<(), Error> {
        endpoint.set_routes(qp, &[qp_route(self.local.ip(), addresses)])?;
        self.queue_pairs.push(qp);
        Ok(())
    }

    /// What was found until `now_ns`.
    pub(super) fn found(
        &self,
        now_ns: u64,
        patience: Duration,
    ) -> Result<Option<FoundRoute>, RouteError> {
        let (route, peer) = (&self.route, self.peer);
        let least = self.sizes.least_bytes();
        if route.is_hopeless() || route.largest().is_some_and(|largest| largest < least) {
            let mtu = payload_bytes(least);
            return Err(RouteError::TooLarge { peer, mtu });
        }
        let waited = Duration::from_nanos(now_ns.saturating_sub(self.since_ns));
        // A path that loses much answers late. What it has carried is then enough.
        let passed = route.largest_so_far().filter(|passed| *passed >= least);
        let is_enough = route.is_ready() || (waited >= patience && passed.is_some());
        if let (true, Some(addresses)) = (is_enough, route.addresses()) {
            return Ok(Some(FoundRoute {
                peer: addresses.peer,
                mtu: route.largest().or(passed).map(payload_bytes),
                rtt: Duration::from_nanos(route.rtt_ns().unwrap_or(0)),
            }));
        }
        match route.elsewhere() {
            _ if waited < patience => Ok(None),
            Some(seen) => Err(RouteError::PortRewritten { named: peer, seen }),
            None => Err(RouteError::Blocked {
                local: self.local,
                peer,
                waited,
            }),
        }
    }

    pub(super) fn watch_size(
        &mut self,
        now_ns: u64,
        moved: u64,
        is_held_up: bool,
        mtu: u32,
    ) -> Finding {
        let Self { size, route, .. } = self;
        size.look(route, (now_ns, moved), is_held_up, mtu)
    }
}

/// The route of a queue pair with these addresses.
fn qp_route(local: IpAddr, addresses: Addresses) -> QpRoute {
    QpRoute {
        destination: addresses.peer,
        source: addresses.peer,
        local: (!local.is_unspecified()).then_some(local),
        sealed_as: addresses.sealed_as,
    }
}
