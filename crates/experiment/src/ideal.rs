//! Ideal completion times: how long a flow takes on an empty network.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use farwrite_net::{CableConfig, NodeId, Options, Role, Topology};
use farwrite_rc::PathProfile;
use farwrite_units::show::real;

/// Bytes of IPv4 header, UDP header, BTH and ICRC.
pub(crate) const PACKET_HEADERS: u64 = 20 + 8 + 12 + 4;
/// Bytes of the RETH in the first packet of a WRITE, and of the AETH in an acknowledgement.
const RETH: u64 = 16;
const AETH: u64 = 4;

/// Ideal completion times on an empty network: from the start to the acknowledgement of the last
/// packet, over store-and-forward switches on the shortest path, at the rate of each cable. The
/// window does not limit the sender.
#[derive(Debug)]
pub struct Ideal {
    wire: PacketFormat,
    hosts: Vec<NodeId>,
    /// The cables at each node.
    cables: Vec<Vec<Hop>>,
    latency_ns: Vec<f64>,
    is_host: Vec<bool>,
    /// The paths from the source of the last query.
    from: Option<(usize, Vec<ShortestPath>)>,
}

/// Payload and overhead of packets on a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFormat {
    /// Bytes of payload in a packet.
    pub mtu: u32,
    /// Bytes of a frame beyond its IP datagram.
    pub framing: u32,
}

/// The way over a cable, and back.
#[derive(Clone, Copy, Debug)]
struct Hop {
    to: usize,
    rate_bps: u64,
    back_bps: u64,
    ns_per_byte: f64,
    back_ns_per_byte: f64,
    delay_ns: f64,
}

/// The path to a node: number of cables, time of a full packet in nanoseconds, and the last hop.
#[derive(Clone, Copy, Debug)]
struct ShortestPath {
    hops: u32,
    ns: u64,
    by: Option<(usize, Hop)>,
}

impl Ideal {
    /// Prepares the computation for a network.
    #[must_use]
    pub fn new(topology: &Topology, options: &Options, wire: PacketFormat) -> Self {
        let nodes = topology.nodes();
        let mut cables = vec![Vec::new(); nodes.len()];
        for cable in topology.cables() {
            let [a, b] = cable.ends.map(|end| end.0 as usize);
            let hop = |to, config: CableConfig| Hop {
                to,
                rate_bps: config.rate_bps,
                back_bps: config.back_bps(),
                ns_per_byte: 8e9 / real(config.rate_bps),
                back_ns_per_byte: 8e9 / real(config.back_bps()),
                delay_ns: config.delay.as_secs_f64() * 1e9,
            };
            cables[a].push(hop(b, cable.config));
            cables[b].push(hop(a, cable.config.reversed()));
        }
        let latency = |(node, at): (u32, &farwrite_net::Node)| {
            let own = options.exceptions.get(&NodeId(node));
            let switch = own.unwrap_or(&options.switch);
            match at.role {
                Role::Switch => switch.latency.as_secs_f64() * 1e9,
                Role::Host | Role::Box => 0.0,
            }
        };
        Self {
            wire,
            hosts: topology.hosts().collect(),
            cables,
            latency_ns: (0..).zip(nodes).map(latency).collect(),
            is_host: nodes.iter().map(|node| node.role == Role::Host).collect(),
            from: None,
        }
    }

    /// Completion time of a message in nanoseconds; `None` if no path leads to the receiver. The
    /// calculator caches the paths of one source, so query all flows of a source in a row.
    pub fn time_ns(&mut self, src: usize, dst: usize, bytes: u64) -> Option<f64> {
        let path = self.cables_to(src, dst)?;
        let ack = PACKET_HEADERS + AETH + u64::from(self.wire.framing);
        let back: f64 = path
            .iter()
            .map(|(hop, latency)| real(ack) * hop.back_ns_per_byte + hop.delay_ns + latency)
            .sum();
        Some(self.message_ns(&path, bytes) + back)
    }

    /// A time that no simulator of the same network can undercut, in nanoseconds: the payload at the rate of all
    /// cables of one host, and the delays of the cables of the path. `None` if no path leads to the receiver.
    pub fn least_ns(&mut self, src: usize, dst: usize, bytes: u64) -> Option<f64> {
        let path = self.cables_to(src, dst)?;
        let cables = |host: usize| self.cables[self.hosts[host].0 as usize].iter();
        let sent_bps: u64 = cables(src).map(|hop| hop.rate_bps).sum();
        let received_bps: u64 = cables(dst).map(|hop| hop.back_bps).sum();
        let delays: f64 = path.iter().map(|(hop, _)| hop.delay_ns).sum();
        Some(real(bytes) * 8e9 / real(sent_bps.min(received_bps)) + delays)
    }

    /// Properties of a flow's path with empty queues, for the NIC of its sender; `None` if no path leads there.
    pub fn path(&mut self, src: usize, dst: usize) -> Option<PathProfile> {
        let rtt_ns = self.time_ns(src, dst, u64::from(self.wire.mtu))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is positive; the cast saturates"
        )]
        Some(PathProfile {
            rate_bps: self.nic_rates_bps(src)[0],
            rtt_ns: rtt_ns as u64,
            mtu_bytes: self.wire.mtu,
            framing_bytes: self.wire.framing,
        })
    }

    /// Number of cables from one host to another; `None` if no path leads there.
    pub(crate) fn cables(&mut self, src: usize, dst: usize) -> Option<u64> {
        Some(self.cables_to(src, dst)?.len() as u64)
    }

    /// Rates of a host's first cable in bits per second, from the host and to the host; 1 if it has none.
    pub(crate) fn nic_rates_bps(&self, host: usize) -> [u64; 2] {
        let cables = &self.cables[self.hosts[host].0 as usize];
        let rates = |hop: &Hop| [hop.rate_bps, hop.back_bps];
        cables.first().map_or([1; 2], rates)
    }

    /// The cables of a path, each with the latency of the node after it.
    fn cables_to(&mut self, src: usize, dst: usize) -> Option<Vec<(Hop, f64)>> {
        if self.from.as_ref().is_none_or(|(host, _)| *host != src) {
            let start = self.hosts[src].0 as usize;
            self.from = Some((src, self.reach(start)));
        }
        let reached = &self.from.as_ref()?.1;
        let mut path = Vec::new();
        let mut at = self.hosts[dst].0 as usize;
        while let Some((before, hop)) = reached[at].by {
            path.push((hop, self.latency_ns[at]));
            at = before;
        }
        if path.is_empty() {
            return None;
        }
        path.reverse();
        Some(path)
    }

    /// Time until the last bit of a message has arrived.
    ///
    /// Packets of one length keep their order, so the last packet of a run leaves a cable after the
    /// slowest route through the grid of packets and cables: the first packet of the run crosses
    /// some cables, the whole run crosses one cable back to back, and the last packet crosses the
    /// rest.
    fn message_ns(&self, path: &[(Hop, f64)], bytes: u64) -> f64 {
        let mtu = u64::from(self.wire.mtu);
        let framed = |payload: u64| {
            let padded = payload.div_ceil(4) * 4;
            real(padded + PACKET_HEADERS + u64::from(self.wire.framing))
        };
        let packets = bytes.div_ceil(mtu).max(1);
        let last_payload = bytes - (packets - 1) * mtu;
        // Runs of equal packets: the first packet, the full ones after it, the last one.
        let runs = match packets {
            1 => vec![(1, framed(bytes) + real(RETH))],
            _ => vec![
                (1, framed(mtu) + real(RETH)),
                (packets - 2, framed(mtu)),
                (1, framed(last_payload)),
            ],
        };
        // Time at which the last packet so far has left each cable. Delays are added at the end:
        // all packets share them.
        let mut left = vec![0.0; path.len()];
        for (count, length) in runs.into_iter().filter(|(count, _)| *count > 0) {
            left = (0..path.len())
                .map(|end| {
                    let starts = 0..=end;
                    let times = starts.map(|start| {
                        let ns = |at: usize| path[at].0.ns_per_byte * length;
                        let slowest = (start..=end).map(ns).fold(0.0, f64::max);
                        let through: f64 = (start..=end).map(ns).sum();
                        left[start] + through + real(count - 1) * slowest
                    });
                    times.fold(0.0, f64::max)
                })
                .collect();
        }
        let delays: f64 = path
            .iter()
            .map(|(hop, latency)| hop.delay_ns + latency)
            .sum();
        left.last().copied().unwrap_or(0.0) + delays
    }

    /// The paths from a node with the fewest cables, and among those the fastest for one packet.
    fn reach(&self, start: usize) -> Vec<ShortestPath> {
        let unreached = ShortestPath {
            hops: u32::MAX,
            ns: u64::MAX,
            by: None,
        };
        let mut reached = vec![unreached; self.cables.len()];
        (reached[start].hops, reached[start].ns) = (0, 0);
        let mut heap = BinaryHeap::from([Reverse((0, 0, start))]);
        let packet = real(u64::from(self.wire.mtu) + PACKET_HEADERS);
        while let Some(Reverse((hops, ns, at))) = heap.pop() {
            let passes = at == start || !self.is_host[at];
            if (hops, ns) > (reached[at].hops, reached[at].ns) || !passes {
                continue;
            }
            for &hop in &self.cables[at] {
                let step = hop.delay_ns + self.latency_ns[hop.to] + packet * hop.ns_per_byte;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "only compared; casts saturate"
                )]
                let ns = ns.saturating_add(step as u64);
                let next = &mut reached[hop.to];
                if (hops + 1, ns) < (next.hops, next.ns) {
                    let by = Some((at, hop));
                    *next = ShortestPath {
                        hops: hops + 1,
                        ns,
                        by,
                    };
                    heap.push(Reverse((hops + 1, ns, hop.to)));
                }
            }
        }
        reached
    }
}
