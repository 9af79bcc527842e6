//! The path between the UDP sockets of both ends: it is found before the first queue pair and
//! maintained during the transfer (P6.2, P7.6).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use farwrite::fabric::contract::{FabricError, QpPath};
use farwrite::{Endpoint, Fabric, QpInfo, QueuePair, RealTime, UdpConfig, UdpFabric};
use farwrite_path::{Config, Path, Role, Route, Search};
use farwrite_session::{Message, PathKey, PathOffer};

use crate::host::Cancel;
use crate::setup::Setup;
use crate::shape::{MIN_TRANSFER_MTU, candidates, datagram_bytes, payload_bytes};
use crate::shrunk::PathShrunk;
use crate::speaker::Outbox;
use crate::{Error, ErrorKind, Host};

/// The longest wait for packets between two checks of the channel.
pub(crate) const STEP: Duration = Duration::from_millis(1);
/// If neither end makes a step for this long, the packet size is tested. The signs of life that
/// report steps come once a second.
const STALLED: Duration = Duration::from_secs(3);

/// Maintains a path and the queue pairs on it.
pub(crate) struct PathKeeper {
    path: Path,
    /// The route that the queue pair was last moved to.
    route: Option<Route>,
    sent_packets: u64,
    received_packets: u64,
    size: SizeWatch,
}

/// Notices when packets of full size no longer arrive.
struct SizeWatch {
    moved: u64,
    moved_at: Instant,
    /// Whether the size is being tested.
    is_testing: bool,
}

/// An endpoint, and the path of its one channel to the peer.
pub(crate) struct Link {
    pub(crate) endpoint: Endpoint<UdpFabric>,
    /// `None` if the peer is an RDMA NIC, which does not answer path packets.
    pub(crate) keeper: Option<PathKeeper>,
    local: SocketAddr,
    /// The address of the peer, unless something changes it.
    peer: SocketAddr,
}

/// A local socket, and the offer that the peer gets of it.
pub(crate) struct Offered {
    endpoint: Endpoint<UdpFabric>,
    local: SocketAddr,
    key: [u8; 32],
}

impl Offered {
    /// Binds the socket and informs the peer.
    pub(crate) fn make(bind: SocketAddr, outbox: &Outbox, cancel: &Cancel) -> Result<Self, Error> {
        let endpoint = Endpoint::over_udp(&UdpConfig::new(bind));
        let endpoint = endpoint.map_err(|error| Error::of_endpoint(&error))?;
        let local = endpoint.fabric().local_addr(0);
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| {
            Error::new(
                ErrorKind::Other,
                format_args!("asking for randomness: {error}"),
            )
        })?;
        let offer = PathOffer {
            key: Some(PathKey(key)),
            addresses: vec![local.into()],
        };
        outbox.send_or_cancel(Message::Path(offer), cancel)?;
        Ok(Self {
            endpoint,
            local,
            key,
        })
    }

    /// Makes the link to a peer that has offered `theirs` and whose channel comes from `peer`.
    pub(crate) fn link(
        self,
        role: Role,
        theirs: &PathOffer,
        peer: SocketAddr,
        search: Option<Search>,
        host: &Host<'_>,
    ) -> Result<Link, Error> {
        let named = only_address(theirs)?;
        // The address as this end sees it includes the scope of a link-local address.
        let mut to = peer;
        to.set_port(named.port());
        if role == Role::Initiator && theirs.key.is_some() && peer.port() != named.port() {
            return Err(PortRewritten { named, seen: peer }.into());
        }
        let to = (host.route)(to)?;
        let now_ns = self.endpoint.fabric().now_ns();
        let keeper = theirs.key.as_ref().map(|key| {
            PathKeeper::new(Path::new(
                Config {
                    role,
                    number: 0,
                    send_key: key.0,
                    recv_key: self.key,
                    local: self.local,
                    peer: to,
                    search,
                },
                now_ns,
            ))
        });
        if keeper.is_none() && named.ip() != peer.ip() {
            return Err(NicTranslated { named, seen: peer }.into());
        }
        Ok(Link {
            endpoint: self.endpoint,
            keeper,
            local: self.local,
            peer: to,
        })
    }
}

fn only_address(offer: &PathOffer) -> Result<SocketAddr, Error> {
    let address = match offer.addresses[..] {
        [address] => SocketAddr::from(address),
        _ => {
            let what = format!("the peer has {} UDP sockets, want 1", offer.addresses.len());
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
    };
    if address.port() == 0 || address.ip().is_unspecified() {
        let what = format!("the peer calls its UDP socket {address}, which is no address");
        return Err(Error::new(ErrorKind::Mismatch, what));
    }
    Ok(address)
}

/// Address translation at the receiver changes its port.
#[derive(Debug)]
struct PortRewritten {
    named: SocketAddr,
    seen: SocketAddr,
}

impl From<PortRewritten> for Error {
    fn from(PortRewritten { named, seen }: PortRewritten) -> Self {
        Self::new(
            ErrorKind::Mismatch,
            format!(
                "the receiver's port is {named} to itself and {seen} to this end: address \
                 translation at the receiver must keep ports; forward TCP and UDP port {} to the \
                 same port number there, or have the receiver listen on {}",
                seen.port(),
                seen.port()
            ),
        )
    }
}

/// Address translation in front of an RDMA NIC. The NIC cannot answer path packets, and cannot seal
/// packets for addresses other than its own.
#[derive(Debug)]
struct NicTranslated {
    named: SocketAddr,
    seen: SocketAddr,
}

impl From<NicTranslated> for Error {
    fn from(NicTranslated { named, seen }: NicTranslated) -> Self {
        Self::new(
            ErrorKind::Mismatch,
            format!(
                "the peer calls itself {} and is {} seen from here: address translation before an \
                 RDMA NIC is not supported; run the ends where they see each other's own \
                 addresses, or without the NIC",
                named.ip(),
                seen.ip()
            ),
        )
    }
}

impl Link {
    /// Polls the endpoint and maintains the path, before there is a queue pair on it.
    pub(crate) fn step(&mut self) -> Result<(), Error> {
        let polled = self.endpoint.poll_and_wait(STEP);
        polled.map_err(|error| Error::of_endpoint(&error))?;
        self.keep(None)
    }

    /// The destination of packets to the peer: the validated address of the path, if there is one.
    pub(crate) fn peer(&self) -> SocketAddr {
        let route = self.keeper.as_ref().and_then(|keeper| keeper.path.route());
        route.map_or(self.peer, |route| route.peer)
    }

    /// Waits until the path is known. Returns the largest datagram that the path carries toward the
    /// peer, if a search took place. `fixed` is the payload size that the user requested.
    pub(crate) fn find(
        setup: &mut Setup<'_>,
        patience: Duration,
        fixed: Option<u32>,
    ) -> Result<Option<u32>, Error> {
        let start = Instant::now();
        let least = datagram_bytes(fixed.unwrap_or(MIN_TRANSFER_MTU));
        setup.until(|link| {
            let Some(keeper) = &link.keeper else {
                return Ok(Some(None));
            };
            let path = &keeper.path;
            if path.is_hopeless() || path.largest().is_some_and(|largest| largest < least) {
                return Err(link.too_large(fixed));
            }
            if path.is_ready() {
                return Ok(Some(path.largest()));
            }
            match path.elsewhere() {
                _ if start.elapsed() < patience => Ok(None),
                Some(seen) => {
                    let named = link.peer;
                    Err(PortRewritten { named, seen }.into())
                }
                None => Err(link.blocked(start.elapsed())),
            }
        })
    }

    fn too_large(&self, fixed: Option<u32>) -> Error {
        let peer = self.peer.ip();
        match fixed {
            Some(mtu) => Error::new(
                ErrorKind::Settings,
                format!(
                    "--mtu {mtu}: the path to {peer} does not carry packets of this size; give a \
                     smaller one, or leave it out"
                ),
            ),
            None => Error::new(
                ErrorKind::Unreachable,
                format!("the path to {peer} does not carry packets of {MIN_TRANSFER_MTU} bytes"),
            ),
        }
    }

    fn blocked(&self, waited: Duration) -> Error {
        Error::new(
            ErrorKind::Unreachable,
            format!(
                "no UDP packet of the peer came within {} s, though TCP works: UDP seems to be \
                 blocked between {} and {} (a firewall, or address translation)",
                waited.as_secs(),
                self.local,
                self.peer
            ),
        )
    }

    /// Connects a queue pair to the peer's, over the path.
    pub(crate) fn connect(&mut self, qp: QueuePair, mut theirs: QpInfo) -> Result<(), Error> {
        let addresses = theirs.channels.iter_mut().chain([&mut theirs.control]);
        let route = self.keeper.as_ref().and_then(|keeper| keeper.path.route());
        for address in addresses {
            match route {
                Some(route) => *address = route.peer,
                None => *address = at_nic(*address, self.peer)?,
            }
        }
        let connected = self.endpoint.connect_qp(qp, &theirs);
        connected.map_err(|error| Error::of_endpoint(&error))?;
        if let Some(keeper) = &mut self.keeper {
            // The route belongs to the queue pair that this one replaces.
            keeper.route = None;
        }
        self.keep(Some(qp))
    }

    /// Maintains the path and this queue pair on it.
    pub(crate) fn keep(&mut self, qp: Option<QueuePair>) -> Result<(), Error> {
        match &mut self.keeper {
            Some(keeper) => keeper.keep(&mut self.endpoint, qp),
            None => Ok(()),
        }
    }
}

/// The address of a NIC: the address at which this end sees it.
fn at_nic(named: SocketAddr, peer: SocketAddr) -> Result<SocketAddr, Error> {
    if named.ip() != peer.ip() {
        return Err(NicTranslated { named, seen: peer }.into());
    }
    // The address as this end sees it includes the scope of a link-local address.
    let mut seen = peer;
    seen.set_port(named.port());
    Ok(seen)
}

impl PathKeeper {
    fn new(path: Path) -> Self {
        Self {
            path,
            route: None,
            sent_packets: 0,
            received_packets: 0,
            size: SizeWatch {
                moved: 0,
                moved_at: Instant::now(),
                is_testing: false,
            },
        }
    }

    /// Tests the size of data packets if nothing has moved for some time. `moved` is a count that
    /// grows with every step of either end. `is_held_up` means that the transfer waits for another
    /// reason, such as a disk.
    ///
    /// Returns a value if small packets pass and packets with `mtu` bytes of payload do not.
    pub(crate) fn watch_size(
        &mut self,
        now: Instant,
        moved: u64,
        is_held_up: bool,
        mtu: u32,
    ) -> Option<PathShrunk> {
        let size = &mut self.size;
        if is_held_up || std::mem::replace(&mut size.moved, moved) != moved {
            size.moved_at = now;
            size.is_testing = false;
        }
        if now.saturating_duration_since(size.moved_at) < STALLED {
            return None;
        }
        let peer = self.path.route()?.peer;
        if !std::mem::replace(&mut size.is_testing, true) {
            let smaller = candidates(peer).into_iter();
            let full = datagram_bytes(mtu);
            let sizes = smaller.filter(|bytes| *bytes < full).chain([full]);
            self.path.search(Search::new(sizes));
            return None;
        }
        let carries = self.path.largest().map(payload_bytes)?;
        // If the size is not the cause, test again after the same time without movement.
        size.moved_at = now;
        size.is_testing = false;
        (carries < mtu).then_some(PathShrunk { peer, mtu, carries })
    }

    /// Processes received path packets, sends due packets, and moves the queue pair when the path
    /// has changed.
    fn keep(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        qp: Option<QueuePair>,
    ) -> Result<(), Error> {
        self.exchange(endpoint.fabric())
            .map_err(|error| Error::caused(ErrorKind::Unreachable, "keeping the path", &error))?;
        let route = self.path.route();
        if let (Some(qp), Some(route)) = (qp, route)
            && self.route.replace(route) != Some(route)
        {
            let path = QpPath {
                destination: route.peer,
                source: route.peer,
                sealed_as: route.sealed_as,
            };
            let moved = endpoint.set_paths(qp, &[path]);
            moved.map_err(|error| Error::of_endpoint(&error))?;
        }
        Ok(())
    }

    fn exchange(&mut self, fabric: &UdpFabric) -> Result<(), FabricError> {
        let now_ns = fabric.now_ns();
        for packet in fabric.take_path_packets() {
            // Packets that are not from the peer change nothing.
            let _ = self
                .path
                .receive(now_ns, packet.src, packet.dst, &packet.bytes);
        }
        let counters = fabric.counters();
        if std::mem::replace(&mut self.sent_packets, counters.sent_packets) != counters.sent_packets
        {
            self.path.note_sent(now_ns);
        }
        let received = counters.received_packets;
        if std::mem::replace(&mut self.received_packets, received) != received {
            self.path.note_heard(now_ns);
        }
        while let Some(out) = self.path.poll_transmit(now_ns) {
            if !fabric.send_path_packet(0, out.from, out.to, &out.bytes)? {
                self.path.too_large(out.bytes.len());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_offer_names_one_socket() {
        let offer = |addresses: &[SocketAddr]| PathOffer {
            key: None,
            addresses: addresses.iter().map(|&address| address.into()).collect(),
        };
        let good = addr("192.0.2.1:4792");
        assert_eq!(only_address(&offer(&[good])).expect("one"), good);
        for bad in ["192.0.2.1:0", "0.0.0.0:4792", "[::]:4792"] {
            let error = only_address(&offer(&[addr(bad)])).expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::Mismatch);
            assert!(error.to_string().contains(bad), "{error}");
        }
        for count in [0, 2, 1000] {
            let error = only_address(&offer(&vec![good; count])).expect_err("want 1");
            assert!(error.to_string().contains("want 1"), "{error}");
        }
    }

    #[test]
    fn a_nic_is_where_it_says() {
        let seen = addr("[fe80::7%3]:5000");
        assert_eq!(
            at_nic(addr("[fe80::7]:4791"), seen).expect("the same machine"),
            addr("[fe80::7%3]:4791")
        );
        let error = at_nic(addr("10.0.0.5:4791"), addr("192.0.2.1:5000")).expect_err("translated");
        let text = error.to_string();
        assert!(
            text.contains("10.0.0.5") && text.contains("192.0.2.1"),
            "{text}"
        );
    }
}
