//! One path of a keeper.

use std::time::Duration;

use farwrite_fabric::contract::QpPath;
use farwrite_fabric::udp::{PathDatagram, UdpFabric};
use farwrite_path::{Path, Route};

use super::size_watch::{Finding, SizeWatch};
use super::sizes::payload_bytes;
use super::{FoundPath, PathError, Sizes};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::handle::QueuePair;

/// The shortest time between two calls for a path to which nothing happens.
const LEAST_WAIT_NS: u64 = 1_000_000;

/// A path with its peer.
#[derive(Debug)]
pub(super) struct KeptPath {
    path: Path,
    /// The addresses in the offers of both ends.
    local: std::net::SocketAddr,
    peer: std::net::SocketAddr,
    sizes: Sizes,
    since_ns: u64,
    queue_pairs: Vec<QueuePair>,
    /// The route that the queue pairs were last moved to.
    route: Option<Route>,
    /// The packets that the queue pairs have sent and accepted, when last counted.
    traffic: [u64; 2],
    /// Path packets from the peer.
    heard_packets: u64,
    size: SizeWatch,
}

impl KeptPath {
    pub(super) fn new(
        path: Path,
        [local, peer]: [std::net::SocketAddr; 2],
        sizes: Sizes,
        now_ns: u64,
    ) -> Self {
        Self {
            path,
            local,
            peer,
            sizes,
            since_ns: now_ns,
            queue_pairs: Vec::new(),
            route: None,
            traffic: [0; 2],
            heard_packets: 0,
            size: SizeWatch::new(now_ns),
        }
    }

    /// Processes a path packet. Packets that are not from the peer change nothing. Returns whether
    /// the packet is from the peer.
    pub(super) fn receive(&mut self, now_ns: u64, packet: &PathDatagram) -> bool {
        let received = self
            .path
            .receive(now_ns, packet.src, packet.dst, &packet.bytes);
        self.heard_packets += u64::from(received.is_ok());
        received.is_ok()
    }

    /// Path packets that came from the peer.
    pub(super) fn heard_packets(&self) -> u64 {
        self.heard_packets
    }

    /// Probes the peer soon, unless something comes from it.
    pub(super) fn ask(&mut self, now_ns: u64) {
        self.path.note_sent(now_ns);
    }

    /// Sends due packets, and moves the queue pairs when the route has changed. Returns when to call
    /// again.
    pub(super) fn serve(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        now_ns: u64,
    ) -> Result<u64, Error> {
        while let Some(out) = self.path.poll_transmit(now_ns) {
            let fabric = endpoint.fabric();
            if !fabric.send_path_packet(0, out.from, out.to, &out.bytes)? {
                self.path.too_large(out.bytes.len());
            }
        }
        if let Some(route) = self.path.route()
            && self.route.replace(route) != Some(route)
        {
            self.move_queue_pairs(endpoint, route)?;
        }
        Ok(self.next_ns().max(now_ns + LEAST_WAIT_NS))
    }

    pub(super) fn next_ns(&self) -> u64 {
        self.path.next_ns()
    }

    fn move_queue_pairs(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        route: Route,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        self.queue_pairs.retain(|&qp| {
            match endpoint.set_paths(qp, &[qp_path(route)]) {
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
    pub(super) fn count_traffic(&mut self, endpoint: &Endpoint<UdpFabric>, now_ns: u64) -> bool {
        let mut sum = [0_u64; 2];
        self.queue_pairs.retain(|&qp| {
            let traffic = endpoint.traffic(qp);
            if let Ok(traffic) = &traffic {
                sum[0] = sum[0].wrapping_add(traffic[0]);
                sum[1] = sum[1].wrapping_add(traffic[1]);
            }
            traffic.is_ok()
        });
        let before = std::mem::replace(&mut self.traffic, sum);
        if sum[0] != before[0] {
            self.path.note_sent(now_ns);
        }
        if sum[1] != before[1] {
            self.path.note_heard(now_ns);
        }
        sum != before
    }

    /// Adds a queue pair that was connected over `route`.
    pub(super) fn add(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        qp: QueuePair,
        route: Route,
    ) -> Result<(), Error> {
        endpoint.set_paths(qp, &[qp_path(route)])?;
        self.queue_pairs.push(qp);
        Ok(())
    }

    pub(super) fn route(&self) -> Option<Route> {
        self.path.route()
    }

    /// What was found until `now_ns`.
    pub(super) fn found(
        &self,
        now_ns: u64,
        patience: Duration,
    ) -> Result<Option<FoundPath>, PathError> {
        let (path, peer) = (&self.path, self.peer);
        let least = self.sizes.least_bytes();
        if path.is_hopeless() || path.largest().is_some_and(|largest| largest < least) {
            let mtu = payload_bytes(least);
            return Err(PathError::TooLarge { peer, mtu });
        }
        let waited = Duration::from_nanos(now_ns.saturating_sub(self.since_ns));
        // A path that loses much answers late. What it has carried is then enough.
        let passed = path.largest_so_far().filter(|passed| *passed >= least);
        let is_enough = path.is_ready() || (waited >= patience && passed.is_some());
        if let (true, Some(route)) = (is_enough, path.route()) {
            return Ok(Some(FoundPath {
                peer: route.peer,
                mtu: path.largest().or(passed).map(payload_bytes),
                rtt: Duration::from_nanos(path.rtt_ns().unwrap_or(0)),
            }));
        }
        match path.elsewhere() {
            _ if waited < patience => Ok(None),
            Some(seen) => Err(PathError::PortRewritten { named: peer, seen }),
            None => Err(PathError::Blocked {
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
        let Self { size, path, .. } = self;
        size.look(path, (now_ns, moved), is_held_up, mtu)
    }
}

/// The path of a queue pair over a route.
fn qp_path(route: Route) -> QpPath {
    QpPath {
        destination: route.peer,
        source: route.peer,
        sealed_as: route.sealed_as,
    }
}
