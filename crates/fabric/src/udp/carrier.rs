//! The software NIC over UDP sockets.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Display;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

use farwrite_wire::icrc::Flow;

use super::UdpConfig;
use super::config::Granted;
use super::datagram::Outgoing;
use super::path::{self, source_for};
use super::runs::Runs;
use super::socket::UdpSocket;
use crate::contract::{Completion, FabricError};
use crate::nic::{Arrival, Burst, Carrier, Nic, Packet, Seal};

/// Largest payload of a packet: the 65,507 bytes of the largest UDP datagram over IPv4 less 32 of
/// headers and 4 of ICRC, as a multiple of 4. The path may carry less.
const MAX_MTU: u32 = (65_507 - 32 - 4) / 4 * 4;
/// Batches, or packets where batches do not work, that are sealed before they are handed to the
/// system: enough for a call to be worth its while, few enough (256 KiB) that the payload is still
/// in the cache when it is copied.
const BATCHES_AHEAD: usize = 4;
const SINGLES_AHEAD: usize = 64;
/// Moves packets through UDP sockets.
#[derive(Debug)]
pub struct UdpCarrier {
    ports: Vec<Port>,
    /// Where wildcard sockets send from, by peer.
    sources: HashMap<SocketAddr, Source>,
}

/// The local address that a peer knows us by. It stays the same while queue pairs are connected to
/// the peer, whatever becomes of the routes.
#[derive(Debug)]
struct Source {
    ip: IpAddr,
    /// Queue pairs that are connected to the peer.
    queue_pairs: usize,
}

#[derive(Debug)]
struct Port {
    socket: UdpSocket,
    /// The last send was cut short.
    full: bool,
}

impl UdpCarrier {
    pub(super) fn bind(config: &UdpConfig) -> Result<Self, FabricError> {
        let first = config.socket.bind.port();
        if config.ports == 0 || (first != 0 && first.checked_add(config.ports - 1).is_none()) {
            return Err(FabricError::BadAttribute {
                name: "ports",
                value: config.ports.to_string(),
                want: format!("at least 1, and port numbers from {first} to 65535 at most"),
            });
        }
        let bind = |index| {
            let mut socket = config.socket;
            if first != 0 {
                socket.bind.set_port(first + index);
            }
            let socket = UdpSocket::bind(&socket)?;
            Ok(Port {
                socket,
                full: false,
            })
        };
        Ok(Self {
            ports: (0..config.ports)
                .map(bind)
                .collect::<Result<_, FabricError>>()?,
            sources: HashMap::new(),
        })
    }

    /// The sockets, each with whether it was full when last sent to.
    pub(super) fn sockets(&self) -> impl Iterator<Item = (&UdpSocket, bool)> {
        self.ports.iter().map(|port| (&port.socket, port.full))
    }

    /// What the system granted to the socket of a port below [`Carrier::ports`].
    #[must_use]
    pub fn granted(&self, port: u16) -> Granted {
        self.ports[usize::from(port)].socket.granted()
    }

    /// The addresses that packets from `port` to `remote` have on the wire.
    fn flow(&self, port: u16, remote: SocketAddr) -> Result<Flow, FabricError> {
        let mut local = self.ports[usize::from(port)].socket.local_addr();
        let remote = path::canonical(remote);
        if self.wants_source(port, remote) {
            let known = self.sources.get(&remote).map(|source| source.ip);
            let ip = known.map_or_else(|| source_for(remote), Ok);
            local.set_ip(ip.map_err(|e| self.unreachable(port, remote, &e))?);
        }
        Flow::new(local, remote).map_err(|e| self.unreachable(port, remote, &e))
    }

    /// Whether the socket is a wildcard, which has no address of its own. An IPv6 one speaks IPv4
    /// too.
    fn wants_source(&self, port: u16, remote: SocketAddr) -> bool {
        let bound = self.ports[usize::from(port)].socket.local_addr();
        bound.ip().is_unspecified() && (bound.is_ipv6() || remote.is_ipv4())
    }

    fn unreachable(&self, port: u16, remote: SocketAddr, why: &dyn Display) -> FabricError {
        let bound = self.ports[usize::from(port)].socket.local_addr();
        FabricError::BadAttribute {
            name: "remote address",
            value: remote.to_string(),
            want: format!("an address that UDP {bound} can reach ({why})"),
        }
    }
}

impl Carrier for UdpCarrier {
    fn ports(&self) -> u16 {
        // As many as were asked for by a u16.
        u16::try_from(self.ports.len()).unwrap_or(u16::MAX)
    }

    fn max_mtu(&self) -> u32 {
        MAX_MTU
    }

    fn local_addr(&self, port: u16) -> SocketAddr {
        let mut local = self.ports[usize::from(port)].socket.local_addr();
        if local.ip().is_unspecified() {
            local.set_ip(path::outward(local.is_ipv6()));
        }
        local
    }

    fn join(&mut self, port: u16, remote: SocketAddr) -> Result<(), FabricError> {
        let flow = self.flow(port, remote)?;
        let remote = path::canonical(remote);
        if self.wants_source(port, remote) {
            let ip = flow.src().ip();
            let source = self.sources.entry(remote);
            let source = source.or_insert(Source { ip, queue_pairs: 0 });
            source.queue_pairs += 1;
        }
        Ok(())
    }

    fn part(&mut self, port: u16, remote: SocketAddr) {
        let remote = path::canonical(remote);
        if self.wants_source(port, remote)
            && let Entry::Occupied(mut source) = self.sources.entry(remote)
        {
            source.get_mut().queue_pairs -= 1;
            if source.get().queue_pairs == 0 {
                source.remove();
            }
        }
    }

    fn send(&mut self, burst: &Burst<'_>) -> Result<usize, FabricError> {
        let flow = self.flow(burst.port(), burst.remote())?;
        let port = &mut self.ports[usize::from(burst.port())];
        port.full = false;
        let dst = path::canonical(burst.remote());
        let packets: Vec<_> = burst.packets().collect();
        let mut rest = &packets[..];
        while !rest.is_empty() && !port.full {
            let (joined, ahead) = if port.socket.granted().gso {
                (true, BATCHES_AHEAD)
            } else {
                (false, SINGLES_AHEAD)
            };
            let runs: Vec<_> = Runs::new(rest, joined).take(ahead).collect();
            match send_runs(&mut port.socket, &flow, dst, &runs) {
                Ok(sent) => {
                    port.full = sent < runs.iter().map(|run| run.len()).sum();
                    rest = &rest[sent..];
                }
                // Told again with the next send.
                Err(_) if rest.len() < packets.len() => break,
                Err(e) => return Err(e),
            }
        }
        Ok(packets.len() - rest.len())
    }

    fn poll(&mut self, nic: &mut Nic, out: &mut Vec<Completion>) -> Result<bool, FabricError> {
        let mut any_more = false;
        for (number, port) in (0..).zip(&mut self.ports) {
            let (received, more) = port.socket.recv()?;
            any_more |= more;
            for batch in received {
                let Ok(flow) = Flow::new(batch.src, batch.dst) else {
                    continue;
                };
                for (payload, ipv4_id) in batch.segments().zip(0..) {
                    let arrival = Arrival {
                        payload,
                        flow: &flow,
                        port: number,
                        ipv4_id,
                    };
                    nic.receive(&arrival, out);
                }
            }
        }
        Ok(any_more)
    }

    fn socket_drops(&self) -> u64 {
        self.ports.iter().map(|port| port.socket.drops()).sum()
    }
}

/// Seals runs of packets and hands them to the system; returns how many packets it took. `dst` is
/// the flow's, with the interface of a link-local address.
fn send_runs(
    socket: &mut UdpSocket,
    flow: &Flow,
    dst: SocketAddr,
    runs: &[&[Packet<'_>]],
) -> Result<usize, FabricError> {
    // The kernel gives the packets of a run the identifications 0, 1, 2, ...
    let numbered = runs.iter().flat_map(|run| run.iter().zip(0..));
    let seals: Vec<Seal> = numbered.map(|(packet, id)| packet.seal(flow, id)).collect();
    let mut parts = Vec::with_capacity(3 * seals.len());
    let mut ends = Vec::with_capacity(runs.len());
    let mut sealed = seals.iter();
    for run in runs {
        for (packet, seal) in run.iter().zip(&mut sealed) {
            parts.push(IoSlice::new(seal.head()));
            parts.extend(packet.payload().map(IoSlice::new));
            parts.push(IoSlice::new(seal.tail()));
        }
        ends.push(parts.len());
    }
    let starts = std::iter::once(&0).chain(&ends);
    let messages: Vec<_> = runs
        .iter()
        .zip(starts.zip(&ends))
        .map(|(run, (&start, &end))| Outgoing {
            src: Some(flow.src().ip()),
            dst,
            segment_bytes: run[0].udp_bytes(),
            parts: &parts[start..end],
        })
        .collect();
    Ok(socket.send(&messages)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u16) -> SocketAddr {
        let [high, low] = number.to_be_bytes();
        SocketAddr::from(([127, 1, high, low], 5000))
    }

    #[test]
    fn a_source_is_kept_as_long_as_queue_pairs_are_connected_to_its_peer() {
        for wildcard in ["0.0.0.0:0", "[::]:0"] {
            let config = UdpConfig::new(wildcard.parse().unwrap());
            let mut carrier = UdpCarrier::bind(&config).unwrap();
            carrier.join(0, peer(0)).unwrap();
            carrier.join(0, peer(0)).unwrap();
            // The routes have changed since: another address would be found now.
            let pinned = IpAddr::from([127, 0, 0, 9]);
            carrier.sources.get_mut(&peer(0)).unwrap().ip = pinned;
            for number in 1..=5_000 {
                carrier.join(0, peer(number)).unwrap();
            }
            assert_eq!(carrier.flow(0, peer(0)).unwrap().src().ip(), pinned);
            assert_eq!(carrier.sources.len(), 5_001);
            for number in 0..=5_000 {
                carrier.part(0, peer(number));
            }
            assert_eq!(carrier.flow(0, peer(0)).unwrap().src().ip(), pinned);
            assert_eq!(carrier.sources.len(), 1);
            carrier.part(0, peer(0));
            assert_eq!(carrier.sources.len(), 0);
            assert_ne!(carrier.flow(0, peer(0)).unwrap().src().ip(), pinned);
        }
    }
}
