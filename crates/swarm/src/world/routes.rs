//! The routes between hosts behind address translation (P6.2). A route keeper does the same with sockets.

use std::net::SocketAddr;

use farwrite::fabric::contract::QpRoute;
use farwrite::fabric::sim::Datagram;
use farwrite::{QpInfo, QueuePair};
use farwrite_route::{
    Addresses, Config, LEAST_WAIT_NS, LOOK_NS, Role, Route, RouteUsers, stated_index,
};

use super::{FIRST_PORT, Host, World};
use crate::plan::Plan;
use crate::violation::Violation;
use farwrite_rng::mix;

/// One end of the route of a path.
pub(super) struct RouteEnd {
    route: Route,
    users: RouteUsers,
    /// The addresses that its packets have at the peer.
    right: (SocketAddr, SocketAddr),
    /// What its queue pairs had sent and verified at the last look, and the time of that look.
    looked: ([u64; 2], u64),
    /// Route packets that it sent and got.
    packets: [u64; 2],
}

/// Both ends of the routes of all paths; none if hosts know each other's addresses.
pub(super) fn of(plan: &Plan, hosts: &[Host]) -> Vec<[RouteEnd; 2]> {
    let paths = plan.paths.iter().enumerate().filter(|_| plan.translated);
    let both = |(index, path): (usize, &crate::plan::PathPlan)| {
        [0, 1].map(|end| {
            let [here, there] = [end, 1 - end].map(|end| &hosts[path.hosts[end]]);
            RouteEnd::new(plan, index, end, here, there)
        })
    };
    paths.map(both).collect()
}

impl RouteEnd {
    fn new(plan: &Plan, path: usize, end: usize, here: &Host, there: &Host) -> Self {
        let index = u16::try_from(path).expect("few paths");
        let key = |end: usize| {
            let word = mix(plan.seed ^ mix(u64::from(index) * 2 + end as u64));
            let mut key = [0; 32];
            key[..8].copy_from_slice(&word.to_le_bytes());
            key
        };
        let peer = SocketAddr::new(there.seen_as, FIRST_PORT);
        let config = Config {
            role: [Role::Initiator, Role::Responder][end],
            number: 0,
            send_key: key(1 - end).into(),
            send_index: index,
            recv_key: key(end).into(),
            recv_index: index,
            local: here.addr,
            peer,
            search: None,
        };
        Self {
            route: Route::new(config, 0),
            users: RouteUsers::default(),
            right: (SocketAddr::new(here.seen_as, FIRST_PORT), there.addr),
            looked: ([0; 2], 0),
            packets: [0; 2],
        }
    }

    /// Looks at what its queue pairs have sent and verified. Returns when to look again, if there is something
    /// to see.
    fn look(&mut self, now_ns: u64, traffic: [u64; 2]) -> Option<u64> {
        let (before, looked_ns) = self.looked;
        if traffic == before {
            return None;
        }
        let due_ns = looked_ns + LOOK_NS;
        if now_ns < due_ns {
            return Some(due_ns);
        }
        self.looked = (traffic, now_ns);
        self.users.note_traffic(&mut self.route, now_ns, traffic);
        None
    }
}

impl World<'_> {
    /// Delivers route packets, and sends those that are due. Returns when to poll the routes next.
    pub(super) fn poll_routes(&mut self) -> Result<Option<u64>, Violation> {
        let mut next: Option<u64> = None;
        for path in 0..self.routes.len() {
            for end in 0..2 {
                let host = self.plan.paths[path].hosts[end];
                if self.hosts[host].paused {
                    continue;
                }
                self.receive_route_packets(host);
                let due_ns = self.poll_route(path, end)?;
                next = Some(next.map_or(due_ns, |next| next.min(due_ns)));
            }
        }
        Ok(next)
    }

    fn receive_route_packets(&mut self, host: usize) {
        let now_ns = self.now_ns();
        let addr = self.hosts[host].addr;
        for packet in self.network.take_route_packets(addr) {
            let path = stated_index(&packet.payload).map_or(0, usize::from);
            let hosts = self.plan.paths.get(path).map(|path| path.hosts);
            let end = hosts.and_then(|hosts| hosts.iter().position(|&there| there == host));
            // A damaged packet may state any index. It counts for the first route, which refuses it.
            let (path, end) = end.map_or((0, 0), |end| (path, end));
            let it = &mut self.routes[path][end];
            it.packets[1] += 1;
            // It refuses packets that are damaged, repeated or late.
            let _ = it
                .route
                .receive(now_ns, packet.src, packet.dst, &packet.payload);
        }
    }

    fn poll_route(&mut self, path: usize, end: usize) -> Result<u64, Violation> {
        let now_ns = self.now_ns();
        let traffic = self.route_traffic(path, end);
        let it = &mut self.routes[path][end];
        let look_ns = it.look(now_ns, traffic);
        while let Some(out) = it.route.poll_transmit(now_ns) {
            it.packets[0] += 1;
            self.network.send(Datagram {
                src: SocketAddr::new(out.from, FIRST_PORT),
                dst: out.to,
                tos: 0,
                id: 0,
                payload: out.bytes,
            });
        }
        let moved = it.users.follow(&it.route);
        let next_ns = it.route.next_ns().max(now_ns + LEAST_WAIT_NS);
        if let Some(addresses) = moved {
            if addresses.sealed_as != Some(it.right) {
                self.coverage.saw("an end that sealed for wrong addresses");
            }
            self.say(|| format!("end {end} of path {path} has the route {addresses:?}"));
            for pair in 0..self.pairs.len() {
                if self.plan.pairs[pair].path == path {
                    self.follow_route(pair, end)?;
                }
            }
        }
        Ok(look_ns.map_or(next_ns, |at_ns| at_ns.min(next_ns)))
    }

    /// The packets that the queue pairs at one end of a path have sent, and verified.
    fn route_traffic(&self, path: usize, end: usize) -> [u64; 2] {
        let endpoint = self.hosts[self.plan.paths[path].hosts[end]].running();
        let mut sum = [0_u64; 2];
        for (pair, state) in self.pairs.iter().enumerate() {
            if self.plan.pairs[pair].path == path
                && let Some(qp) = state.ends[end]
                && let Ok([sent, verified]) = endpoint.traffic(qp)
            {
                sum = [sum[0].wrapping_add(sent), sum[1].wrapping_add(verified)];
            }
        }
        sum
    }

    fn addresses(&self, pair: usize, end: usize) -> Option<Addresses> {
        let both = self.routes.get(self.plan.pairs[pair].path)?;
        both[end].users.addresses()
    }

    /// Whether an end knows the addresses of its queue pair's peer.
    pub(super) fn is_route_known(&self, pair: usize, end: usize) -> bool {
        self.routes.is_empty() || self.addresses(pair, end).is_some()
    }

    /// Replaces the addresses that a peer has named by those that were found.
    pub(super) fn name_peer(&self, pair: usize, end: usize, peer: &mut QpInfo) {
        if let Some(found) = self.addresses(pair, end) {
            let named = peer.channels.iter_mut().chain([&mut peer.control]);
            named.for_each(|address| *address = found.peer);
        }
    }

    /// Moves an end of a queue pair to the addresses that its route has found, if it is connected.
    pub(super) fn follow_route(&mut self, pair: usize, end: usize) -> Result<(), Violation> {
        let qp: Option<QueuePair> = self.pairs[pair].ends[end];
        let is_connected = self.pairs[pair].peers[end].is_none();
        let (Some(qp), Some(found)) = (qp.filter(|_| is_connected), self.addresses(pair, end))
        else {
            return Ok(());
        };
        let route = QpRoute {
            destination: found.peer,
            source: found.peer,
            local: None,
            sealed_as: found.sealed_as,
        };
        let host = self.plan.host(pair, end);
        let moved = self.hosts[host].endpoint().set_routes(qp, &[route]);
        moved.map_err(|error| self.failed("set_routes", error))
    }

    /// Route packets that were sent, and that arrived.
    pub(crate) fn route_packets(&self) -> [u64; 2] {
        let ends = self.routes.iter().flatten();
        let mut sum = ends.fold([0; 2], |sum, end| {
            [sum[0] + end.packets[0], sum[1] + end.packets[1]]
        });
        // Those that arrived after the last poll.
        for host in &self.hosts {
            sum[1] += self.network.take_route_packets(host.addr).len() as u64;
        }
        sum
    }
}
