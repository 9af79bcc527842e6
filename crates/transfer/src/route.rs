//! The route between the UDP sockets of both ends: it is found before the first queue pair and
//! maintained during the transfer (P6.2, P8.12).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::task::Waker;
use std::time::{Duration, Instant};

use farwrite::fabric::nic::ROCE_PORT;
use farwrite::fabric::udp::HasSockets;
use farwrite::routes::{
    FoundRoute, Role, RouteError, RouteId, RouteKeeper, RouteOffer, RouteShrunk, Sizes,
};
use farwrite::{Endpoint, Fabric, QpInfo, QpOptions, QueuePair, RealTime, Sealing};
use farwrite_files::{Message, OfferedSockets, RouteKey};
use farwrite_verbs::AnyFabric;

use crate::channel::Reader;
use crate::channel_writer::Outbox;
use crate::device::{open_device, open_for_device, open_socket};
use crate::hooks::CANCEL_PERIOD;
use crate::liveness::Liveness;
use crate::shape::MIN_TRANSFER_MTU;
use crate::waking::task_waker;
use crate::{Error, ErrorKind, TransferHooks};

/// An endpoint, and the route of its one channel to the peer.
pub(crate) struct RoutedEndpoint {
    pub(crate) endpoint: Endpoint<AnyFabric>,
    keeper: RouteKeeper,
    /// `None` if an end is an RDMA NIC, which does not answer route packets.
    route: Option<RouteId>,
    /// The address of the peer, unless something changes it.
    peer: SocketAddr,
    /// The address of this machine.
    local: SocketAddr,
    /// Ends the sleep of this endpoint's thread.
    waker: Waker,
}

/// A local socket or RDMA device, and the offer that the peer gets of it.
pub(crate) struct Offered {
    endpoint: Endpoint<AnyFabric>,
    keeper: RouteKeeper,
    /// `None` for a device.
    route: Option<RouteId>,
    local: SocketAddr,
}

impl Offered {
    /// Binds the socket, or opens the device, and informs the peer.
    pub(crate) fn make(
        bind: SocketAddr,
        sealing: Sealing,
        outbox: &Outbox,
        hooks: &TransferHooks<'_>,
    ) -> Result<Self, Error> {
        let mut keeper = RouteKeeper::with_sealing(sealing);
        let (endpoint, route) = match hooks.device {
            Some(device) => (open_device(device, bind.ip())?, None),
            None => {
                let endpoint = open_socket(bind, hooks.port)?;
                let offered = keeper.offer(&endpoint)?;
                (endpoint, Some(offered))
            }
        };
        if let Some(sockets) = endpoint.fabric().sockets().filter(|_| route.is_some()) {
            // Route packets show which sizes no longer pass, even if the reason is this machine's
            // interface.
            sockets.lose_too_large();
        }
        // The first route of a keeper has index 0, as a session requires (P6.2).
        debug_assert!(route.as_ref().is_none_or(|(_, ours)| ours.index == 0));
        let offer = OfferedSockets {
            key: route.as_ref().map(|(_, ours)| RouteKey(ours.key)),
            addresses: vec![endpoint.fabric().local_addr(0).into()],
        };
        outbox.send_or_cancel(Message::Route(offer), hooks.cancel)?;
        Ok(Self {
            endpoint,
            keeper,
            route: route.map(|(route, _)| route),
            local: bind,
        })
    }

    /// Looks for the route to a peer that has offered `theirs` and whose channel comes from `peer`.
    pub(crate) fn join(
        mut self,
        role: Role,
        theirs: &OfferedSockets,
        peer: SocketAddr,
        sizes: Sizes,
        hooks: &TransferHooks<'_>,
    ) -> Result<RoutedEndpoint, Error> {
        let named = only_address(theirs)?;
        // The address as this end sees it includes the scope of a link-local address.
        let mut to = peer;
        to.set_port(named.port());
        if role == Role::Initiator && theirs.key.is_some() && peer.port() != named.port() {
            let seen = peer;
            return Err(Error::of_route(RouteError::PortRewritten { named, seen }));
        }
        let to = (hooks.redirect)(to)?;
        let route = match (self.route, &theirs.key) {
            (Some(route), Some(key)) => {
                let theirs = RouteOffer {
                    address: to,
                    key: key.0,
                    index: 0,
                };
                let (keeper, endpoint) = (&mut self.keeper, &self.endpoint);
                keeper.join(endpoint, route, role, &theirs, sizes)?;
                if let Some(sockets) = self.endpoint.fabric().sockets() {
                    sockets.expect_peer(0, self.local.ip(), to);
                }
                Some(route)
            }
            _ => {
                at_nic(named, peer)?;
                if theirs.key.is_none() && named.port() == ROCE_PORT {
                    self.be_at_port_of_roce()?;
                }
                None
            }
        };
        Ok(RoutedEndpoint {
            waker: task_waker(self.endpoint.fabric().waker()),
            endpoint: self.endpoint,
            keeper: self.keeper,
            route,
            peer: to,
            local: self.local,
        })
    }

    /// A device sends to one port only, so this end binds its socket to that port. The peer learns that with the address
    /// of the queue pair.
    fn be_at_port_of_roce(&mut self) -> Result<(), Error> {
        let bound = self.endpoint.fabric().local_addr(0);
        if self.route.is_some() && bound.port() != ROCE_PORT {
            self.endpoint = open_for_device(bound.ip())?;
        }
        Ok(())
    }
}

fn only_address(offer: &OfferedSockets) -> Result<SocketAddr, Error> {
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

impl RoutedEndpoint {
    /// Makes a queue pair, and returns it with what the peer has to know of it.
    pub(crate) fn make_queue_pair(
        &mut self,
        options: QpOptions,
    ) -> Result<(QueuePair, QpInfo), Error> {
        let qp = self.endpoint.create_qp(options)?;
        Ok((qp, self.endpoint.qp_info(qp)?))
    }

    /// Polls the endpoint and maintains the route. Where this hears nothing, sleeps, for a moment at most, until there is
    /// more to do or `reader` has something, and polls again. So the caller sees all that has come before the next
    /// sleep.
    pub(crate) fn step(&mut self, reader: &Reader) -> Result<(), Error> {
        let before = self.heard_packets();
        let next_ns = self.poll()?;
        if reader.is_ready(&self.waker) || self.heard_packets() != before {
            return Ok(());
        }
        self.wait(next_ns)?;
        self.poll().map(drop)
    }

    /// Sleeps until `next_ns`, as [`RoutedEndpoint::poll`] returns it, but for a moment at most. What arrives ends the
    /// sleep early, and so do the other threads of the transfer.
    pub(crate) fn wait(&mut self, next_ns: Option<u64>) -> Result<(), Error> {
        Ok(self.endpoint.wait_until(next_ns, CANCEL_PERIOD)?)
    }

    /// Polls the endpoint and maintains the route. Returns when to call again.
    pub(crate) fn poll(&mut self) -> Result<Option<u64>, Error> {
        let next_ns = self.endpoint.poll_now()?;
        let kept = self.keeper.poll(&mut self.endpoint);
        let failed = |error| Error::caused(ErrorKind::Unreachable, "keeping the route", &error);
        let keep_ns = kept.map_err(failed)?;
        Ok([next_ns, keep_ns].into_iter().flatten().min())
    }

    /// The largest packets of this end.
    pub(crate) fn max_mtu(&self) -> u32 {
        self.endpoint.fabric().capabilities().max_mtu
    }

    /// The destination of packets to the peer: the validated address of the route, if there is one.
    pub(crate) fn peer(&self) -> SocketAddr {
        let known = self.route.and_then(|route| self.keeper.peer(route));
        known.unwrap_or(self.peer)
    }

    /// What is known of the route; `None` if that is not enough yet. With an RDMA NIC, there is no route. `fixed` is
    /// the MTU that the user requested. When no time is `left`, what was found is enough.
    pub(crate) fn found(
        &mut self,
        left: Duration,
        fixed: Option<u32>,
    ) -> Result<Option<Option<FoundRoute>>, Error> {
        let Some(route) = self.route else {
            return Ok(Some(None));
        };
        let patience = match left.is_zero() {
            true => Duration::ZERO,
            false => Duration::MAX,
        };
        match self.keeper.found(route, patience) {
            Ok(found) => Ok(found.map(Some)),
            Err(RouteError::TooLarge { peer, .. }) => Err(too_large(peer, fixed)),
            Err(error) => Err(Error::of_route(error)),
        }
    }

    /// Connects a queue pair to the peer's, over the route.
    pub(crate) fn connect(&mut self, qp: QueuePair, mut theirs: QpInfo) -> Result<(), Error> {
        let endpoint = &mut self.endpoint;
        match self.route {
            Some(route) => self.keeper.connect(endpoint, route, qp, &theirs)?,
            None => {
                let addresses = theirs.channels.iter_mut().chain([&mut theirs.control]);
                for address in addresses {
                    *address = at_nic(*address, self.peer)?;
                }
                endpoint.connect_qp(qp, &theirs)?;
            }
        }
        Ok(())
    }

    /// Packets from the peer: those of queue pairs, and those of the route.
    pub(crate) fn heard_packets(&self) -> [u64; 2] {
        let of_route = self
            .route
            .map_or(0, |route| self.keeper.heard_packets(route));
        [self.endpoint.counters().received_packets, of_route]
    }

    /// When the peer has last answered a probe of the route; 0 without a route.
    pub(crate) fn answered_ns(&self) -> u64 {
        let answered_ns = self.route.and_then(|route| self.keeper.answered_ns(route));
        answered_ns.unwrap_or(0)
    }

    /// The route sends a probe if one is due. The program learns how long ago packets last passed in both directions.
    ///
    /// # Errors
    /// That of the program.
    pub(crate) fn watch_passage(
        &mut self,
        now: Instant,
        liveness: &mut Liveness,
        hooks: &TransferHooks<'_>,
    ) -> Result<(), Error> {
        let Some((route, when_blocked)) = self.route.zip(hooks.when_blocked) else {
            return Ok(());
        };
        if liveness.wants_probe(now) {
            self.keeper.probe(route);
        }
        when_blocked(liveness.blocked(now))
    }

    /// Checks that this machine still has the address that the channel uses. Otherwise the peer cannot be heard
    /// again.
    ///
    /// # Errors
    /// [`ErrorKind::Moved`].
    pub(crate) fn check_address(&self) -> Result<(), Error> {
        let mut any_port = self.local;
        any_port.set_port(0);
        match UdpSocket::bind(any_port) {
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                let what = format!("this machine no longer has the address {}", self.local.ip());
                Err(Error::new(ErrorKind::Moved, what))
            }
            _ => Ok(()),
        }
    }

    /// Asks the peer for a sign of life over the route, since none comes.
    pub(crate) fn ask(&mut self) {
        if let Some(route) = self.route {
            self.keeper.ask(route);
        }
    }

    /// Tests the size of data packets if nothing has moved for some time. `moved` is a count that
    /// grows with every step of either end. `is_held_up` means that the transfer waits for another
    /// reason, such as a disk.
    ///
    /// Returns a value if small packets pass and packets with `mtu` bytes of payload do not.
    pub(crate) fn watch_size(
        &mut self,
        moved: u64,
        is_held_up: bool,
        mtu: u32,
    ) -> Option<RouteShrunk> {
        let route = self.route?;
        self.keeper.watch_size(route, moved, is_held_up, mtu)
    }

    /// As [`RouteKeeper::is_narrow`].
    pub(crate) fn is_narrow(&self) -> bool {
        self.route.is_some_and(|route| self.keeper.is_narrow(route))
    }
}

fn too_large(peer: SocketAddr, fixed: Option<u32>) -> Error {
    let peer = peer.ip();
    match fixed {
        Some(mtu) => {
            let what = format!(
                "--mtu {mtu}: the path to {peer} does not carry packets of this size; give a \
                 smaller one, or leave it out"
            );
            Error::new(ErrorKind::Settings, what)
        }
        None => {
            let what =
                format!("the path to {peer} does not carry packets of {MIN_TRANSFER_MTU} bytes");
            Error::new(ErrorKind::Unreachable, what)
        }
    }
}

/// The address of a NIC: the address at which this end sees it. A NIC behind address translation is
/// refused, because packets to the address that it names would not arrive. It cannot answer route packets, and
/// cannot seal packets for addresses other than its own.
fn at_nic(named: SocketAddr, peer: SocketAddr) -> Result<SocketAddr, Error> {
    if named.ip() != peer.ip() {
        let what = format!(
            "the peer calls itself {} and is {} seen from here: address translation before an RDMA NIC is \
             not supported; run the ends where they see each other's own addresses, or without the NIC",
            named.ip(),
            peer.ip()
        );
        return Err(Error::new(ErrorKind::Mismatch, what));
    }
    // The address as this end sees it includes the scope of a link-local address.
    let mut seen = peer;
    seen.set_port(named.port());
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_offer_names_one_socket() {
        let offer = |addresses: &[SocketAddr]| OfferedSockets {
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
