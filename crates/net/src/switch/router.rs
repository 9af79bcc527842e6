//! The choice of a path among equal ones.

use std::sync::Arc;

use farwrite_link::Rng;

use super::balancer::{Balancer, NamedBalancer, PortChoice};
use super::config::Policy;
use super::last_ports::LastPorts;
use crate::arena::FlowKey;

/// The ports on shortest paths from one switch, grouped: hosts with the same ports share a group.
#[derive(Clone, Debug, Default)]
pub(crate) struct PortGroups {
    /// The route to each host.
    of_host: Vec<Route>,
    /// Ports of each group, ascending. A group without ports means that no path exists.
    ports: Vec<Vec<u16>>,
}

impl PortGroups {
    /// Adds a group, and returns its number.
    pub(crate) fn add_group(&mut self, ports: Vec<u16>) -> u32 {
        self.ports.push(ports);
        crate::ids::next_id(self.ports.len() - 1)
    }

    /// Adds the next host, with its group.
    pub(crate) fn add_host(&mut self, group: u32) {
        let ports = &self.ports[group as usize];
        self.of_host.push(Route {
            group,
            first: ports.first().copied(),
            has_choice: ports.len() > 1,
        });
    }

    /// The ports to a host.
    #[cfg(test)]
    pub(crate) fn ports_to(&self, host: usize) -> &[u16] {
        &self.ports[self.group_of(host) as usize]
    }

    /// The group of a host that was added.
    pub(crate) fn group_of(&self, host: usize) -> u32 {
        self.of_host[host].group
    }
}

/// A switch's choice among the ports of a group.
pub(crate) struct Router {
    policy: Policy,
    /// A load balancer in place of the policy.
    own: Option<Box<dyn Balancer>>,
    /// The table, which networks of one topology share.
    groups: Arc<PortGroups>,
    /// Makes the hashes of different switches differ. Otherwise, all frames that one switch sends
    /// to another would hash alike there.
    salt: u64,
    rng: Rng,
    /// The least loaded ports of each group, as DRILL remembers them.
    remembered: Vec<Vec<u16>>,
    /// The port of the last frame to each host, as DRILL in ns-3 remembers it.
    remembered_of_host: Vec<Option<u16>>,
    /// The ports that DRILL in ns-3 draws from. Kept, so that no frame allocates memory.
    drawn_from: Vec<u16>,
    /// The turn of each group, with round robin.
    turns: Vec<usize>,
    flowlets: Vec<Flowlet>,
    /// The last ports of flows to hosts with a choice.
    last_ports: LastPorts,
}

/// What a switch knows of the way to a host.
#[derive(Clone, Copy, Debug, Default)]
struct Route {
    group: u32,
    /// The first port of the group; `None` if no path exists.
    first: Option<u16>,
    /// Whether several paths lead to the host, or did before a change of the tables.
    has_choice: bool,
}

/// The choice of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) port: u16,
    /// Whether the previous frame of the flow took another port.
    pub(crate) is_change: bool,
}

/// A flowlet: a run of frames of a flow without a gap.
#[derive(Clone, Copy, Debug)]
struct Flowlet {
    port: u16,
    /// The flowlet ends at this time unless another frame arrives first.
    until_ns: u64,
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl Router {
    /// A router with a load balancer of another crate, if there is one.
    pub(crate) fn with(policy: Policy, balancer: Option<&NamedBalancer>, rng: &mut Rng) -> Self {
        let flows = match policy {
            Policy::Flowlet { flows, .. } => flows,
            _ => 0,
        };
        let over = Flowlet {
            port: 0,
            until_ns: 0,
        };
        let (salt, rng) = (rng.bits(), Rng::new(rng.bits()));
        let own = balancer.and_then(|own| own.make(salt));
        Self {
            policy,
            own,
            groups: Arc::default(),
            salt,
            rng,
            remembered: Vec::new(),
            remembered_of_host: Vec::new(),
            drawn_from: Vec::new(),
            turns: Vec::new(),
            flowlets: vec![over; flows],
            last_ports: LastPorts::default(),
        }
    }

    /// Replaces the tables. DRILL forgets its remembered ports.
    pub(crate) fn set_groups(&mut self, mut groups: Arc<PortGroups>) {
        self.remembered = vec![Vec::new(); groups.ports.len()];
        if matches!(self.policy, Policy::DrillNs3 { .. }) {
            self.remembered_of_host = vec![None; groups.of_host.len()];
        }
        if self.policy == Policy::RoundRobin {
            // Otherwise all switches would begin with their first ports.
            let ports = groups.ports.iter().map(|ports| ports.len().max(1));
            self.turns = ports.map(|ports| self.rng.below(ports)).collect();
        }
        let before = &self.groups.of_host;
        if !before.is_empty() {
            let routes = &mut Arc::make_mut(&mut groups).of_host;
            for (route, before) in routes.iter_mut().zip(before) {
                route.has_choice |= before.has_choice;
            }
        }
        self.groups = groups;
    }

    /// Chooses the port for a frame to a host; `None` if no path leads there. `queued_bytes`
    /// returns the bytes in the queues of a port.
    pub(crate) fn choose(
        &mut self,
        flow: FlowKey,
        host: usize,
        now_ns: u64,
        queued_bytes: impl Fn(u16) -> u64,
    ) -> Option<Choice> {
        let route = self.groups.of_host.get(host)?;
        if !route.has_choice {
            let (port, is_change) = (route.first?, false);
            return Some(Choice { port, is_change });
        }
        let group = route.group as usize;
        let ports = &self.groups.ports[group];
        let hash = self.hash(flow);
        let port = match (&ports[..], self.policy) {
            ([], _) => return None,
            (&[only], _) => only,
            (ports, _) if self.own.is_some() => {
                let choice = PortChoice {
                    now_ns,
                    src: flow.src,
                    dst: flow.dst,
                    src_port: flow.src_port,
                    ports,
                    queued_bytes: &queued_bytes,
                };
                let chosen = self.own.as_mut().map_or(0, |own| own.choose(&choice));
                ports[chosen % ports.len()]
            }
            (ports, Policy::Ecmp) => ports[scale(hash, ports.len())],
            (ports, Policy::Spray) => ports[self.rng.below(ports.len())],
            (ports, Policy::RoundRobin) => {
                let turn = &mut self.turns[group];
                *turn = (*turn + 1) % ports.len();
                ports[*turn]
            }
            (_, Policy::Drill { d, m }) => self.drill(group, d, m, queued_bytes),
            (_, Policy::DrillNs3 { d }) => self.drill_ns3(group, host, d, queued_bytes),
            (_, Policy::Flowlet { gap, .. }) => {
                let gap_ns = u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX);
                self.flowlet(group, hash, now_ns, gap_ns)
            }
        };
        let before = self.last_ports.replace(hash, port);
        let is_change = before.is_some_and(|before| before != port);
        Some(Choice { port, is_change })
    }

    /// The choice of DRILL: the least loaded of `d` random ports and the remembered ports.
    /// Remembers the `m` least loaded of these for the next frame.
    fn drill(&mut self, group: usize, d: usize, m: usize, bytes: impl Fn(u16) -> u64) -> u16 {
        let ports = &self.groups.ports[group];
        let seen = &mut self.remembered[group];
        // Drawn ports come before remembered ones, so a drawn port wins a tie. Otherwise all frames
        // would stay on one port while all ports are idle.
        let known = seen.len();
        for _ in 0..d {
            seen.push(ports[self.rng.below(ports.len())]);
        }
        seen.rotate_left(known);
        seen.sort_by_key(|&port| bytes(port));
        let best = seen[0];
        // A port that was drawn twice, or drawn and remembered, must be remembered only once.
        let mut kept = 0;
        for at in 0..seen.len() {
            if kept < m && !seen[..kept].contains(&seen[at]) {
                seen[kept] = seen[at];
                kept += 1;
            }
        }
        seen.truncate(kept);
        best
    }

    /// The choice of DRILL in the RDMA trees of ns-3: the port of the last frame to this host,
    /// unless one of `d` other random ports has a shorter queue.
    fn drill_ns3(
        &mut self,
        group: usize,
        host: usize,
        d: usize,
        bytes: impl Fn(u16) -> u64,
    ) -> u16 {
        self.drawn_from.clone_from(&self.groups.ports[group]);
        let mut best = self.remembered_of_host[host].map(|port| (bytes(port), port));
        for at in 0..d.min(self.drawn_from.len()) {
            let left = self.drawn_from.len() - at;
            self.drawn_from.swap(at, at + self.rng.below(left));
            let port = self.drawn_from[at];
            let load = bytes(port);
            if best.is_none_or(|(least, _)| load < least) {
                best = Some((load, port));
            }
        }
        // A group of several ports has a port to draw, and `d` is at least 1.
        let port = best.map_or(self.drawn_from[0], |(_, port)| port);
        self.remembered_of_host[host] = Some(port);
        port
    }

    fn flowlet(&mut self, group: usize, hash: u64, now_ns: u64, gap_ns: u64) -> u16 {
        let ports = &self.groups.ports[group];
        let index = scale(hash, self.flowlets.len());
        let flowlet = &mut self.flowlets[index];
        if now_ns >= flowlet.until_ns || !ports.contains(&flowlet.port) {
            flowlet.port = ports[self.rng.below(ports.len())];
        }
        flowlet.until_ns = now_ns.saturating_add(gap_ns);
        flowlet.port
    }

    fn hash(&self, flow: FlowKey) -> u64 {
        let hosts = u64::from(flow.src.0) << 32 | u64::from(flow.dst.0);
        mix(mix(hosts ^ self.salt) ^ u64::from(flow.src_port))
    }
}

/// Scales a hash to the range `0..limit`.
fn scale(hash: u64, limit: usize) -> usize {
    // The upper half of the product is below `limit`, so it fits.
    #[allow(clippy::cast_possible_truncation)]
    let scaled = ((u128::from(hash) * limit as u128) >> 64) as usize;
    scaled
}

/// Mixes all bits of a number (the finalizer of `SplitMix`: Steele, Lea and Flood, OOPSLA 2014).
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;
    use std::time::Duration;

    fn flow(src_port: u16) -> FlowKey {
        FlowKey {
            src: NodeId(1),
            dst: NodeId(2),
            src_port,
        }
    }

    /// Tables of hosts behind the same ports.
    fn groups(hosts: usize, ports: Vec<u16>) -> Arc<PortGroups> {
        let mut groups = PortGroups::default();
        let group = groups.add_group(ports);
        (0..hosts).for_each(|_| groups.add_host(group));
        Arc::new(groups)
    }

    fn router(policy: Policy, ports: u16) -> Router {
        let mut router = Router::with(policy, None, &mut Rng::new(7));
        router.set_groups(groups(1, (0..ports).collect()));
        router
    }

    #[test]
    fn ecmp_keeps_each_flow_and_spreads_flows() {
        let mut router = router(Policy::Ecmp, 8);
        let mut flows = [0; 8];
        for src_port in 0..8000 {
            let port = router.choose(flow(src_port), 0, 0, |_| 0).unwrap();
            let again = router.choose(flow(src_port), 0, 9, |p| p.into()).unwrap();
            assert_eq!(again, port);
            let port = port.port;
            flows[usize::from(port)] += 1;
        }
        // The expected count is 1000 each, with a standard deviation of 30.
        assert!(flows.iter().all(|n| (850..1150).contains(n)), "{flows:?}");
    }

    #[test]
    fn spraying_is_even() {
        let mut router = router(Policy::Spray, 8);
        let mut frames = [0; 8];
        for _ in 0..80_000 {
            let port = router.choose(flow(1), 0, 0, |_| 0).unwrap().port;
            frames[usize::from(port)] += 1;
        }
        // The expected count is 10,000 each, with a standard deviation of 94.
        assert!(
            frames.iter().all(|n| (9_500..10_500).contains(n)),
            "{frames:?}"
        );
    }

    /// DRILL(1, 1): once the least loaded port is drawn, it is remembered as long as it stays the
    /// least loaded. No other drawn port is better.
    #[test]
    fn drill_finds_the_least_loaded_port_and_remembers_it() {
        let mut router = router(Policy::Drill { d: 1, m: 1 }, 8);
        let load = |port: u16| if port == 5 { 0 } else { 1000 };
        let mut choices = (0..1000).map(|_| router.choose(flow(1), 0, 0, load).unwrap().port);
        assert!(choices.any(|port| port == 5));
        assert!(choices.all(|port| port == 5));
        // Now another port is the least loaded: the memory follows.
        let load = |port: u16| if port == 2 { 0 } else { 1000 };
        let mut choices = (0..1000).map(|_| router.choose(flow(1), 0, 0, load).unwrap().port);
        assert!(choices.any(|port| port == 2));
        assert!(choices.all(|port| port == 2));
    }

    /// DRILL(2, 0) takes the better of two draws. It takes the worst of n ports only if both draws
    /// give that port, with probability 1 / n^2.
    #[test]
    fn drill_without_memory_takes_the_better_of_its_draws() {
        let mut router = router(Policy::Drill { d: 2, m: 0 }, 4);
        let mut frames = [0; 4];
        for _ in 0..16_000 {
            let port = router.choose(flow(1), 0, 0, u64::from).unwrap().port;
            frames[usize::from(port)] += 1;
        }
        for (count, want) in frames.into_iter().zip([7000, 5000, 3000, 1000]) {
            assert!((want - 250..want + 250).contains(&count), "{frames:?}");
        }
    }

    /// With two hosts behind the same ports, each host keeps its port while no queue is shorter.
    #[test]
    fn drill_of_ns3_keeps_the_port_of_a_host_at_a_tie() {
        let mut router = router(Policy::DrillNs3 { d: 2 }, 8);
        router.set_groups(groups(2, (0..8).collect()));
        let mut next =
            |host, load: fn(u16) -> u64| router.choose(flow(1), host, 0, load).unwrap().port;
        let first = [0, 1].map(|host| next(host, |_| 0));
        for _ in 0..200 {
            assert_eq!([0, 1].map(|host| next(host, |_| 0)), first);
        }
        // A shorter queue is found by a draw, and kept.
        let short = |port: u16| if port == 5 { 0 } else { 1000 };
        assert!((0..200).any(|_| next(0, short) == 5));
        assert!((0..200).all(|_| next(0, short) == 5));
        assert_eq!(next(1, |_| 0), first[1]);
    }

    /// The draws are different ports: two draws of two find the shorter queue at once.
    #[test]
    fn drill_of_ns3_draws_different_ports() {
        for _ in 0..50 {
            let mut router = router(Policy::DrillNs3 { d: 2 }, 2);
            let port = router.choose(flow(1), 0, 0, |port| u64::from(port == 0));
            assert_eq!(port.unwrap().port, 1);
        }
    }

    #[test]
    fn a_flowlet_keeps_its_port_until_a_gap() {
        let gap = Duration::from_nanos(100);
        let mut router = router(Policy::Flowlet { gap, flows: 64 }, 8);
        let mut now_ns = 1000;
        let mut ports = Vec::new();
        for _ in 0..200 {
            let port = router.choose(flow(1), 0, now_ns, |_| 0).unwrap().port;
            for _ in 0..5 {
                now_ns += 99;
                let is_change = false;
                let same = Choice { port, is_change };
                assert_eq!(router.choose(flow(1), 0, now_ns, |_| 0), Some(same));
            }
            now_ns += 100;
            ports.push(port);
        }
        for port in 0..8 {
            assert!(ports.contains(&port), "{port} of {ports:?}");
        }
    }

    /// Under ECMP, a flow changes its path once when its port is no longer on a shortest path, even
    /// if only one path is left.
    #[test]
    fn a_flow_that_takes_another_port_has_changed_its_path() {
        let mut router = router(Policy::Ecmp, 2);
        let changes = |router: &mut Router| {
            let choices = (0..100).map(|src_port| router.choose(flow(src_port), 0, 0, |_| 0));
            choices.flatten().filter(|choice| choice.is_change).count()
        };
        assert_eq!((changes(&mut router), changes(&mut router)), (0, 0));
        router.set_groups(groups(1, vec![1]));
        let moved = changes(&mut router);
        assert!((30..70).contains(&moved), "{moved}");
        assert_eq!(changes(&mut router), 0);
    }

    #[test]
    fn no_path_is_no_port() {
        let mut router = router(Policy::Spray, 0);
        assert_eq!(router.choose(flow(1), 0, 0, |_| 0), None);
        assert_eq!(router.choose(flow(1), 1, 0, |_| 0), None);
    }
}
