//! The receiving half of a port: its sockets, read in turn.

use std::os::fd::AsFd;
use std::sync::Arc;

use farwrite_wire::icrc::Flow;
use rustix::event::{PollFd, PollFlags};

use super::aside::{Aside, PathDatagram, SharedAside};
use super::bell::Bell;
use super::datagram::Received;
use super::peers::{Known, Peers};
use super::real_time::now_ns;
use super::receiver::Buffers;
use super::socket::Shared;
use crate::contract::FabricError;
use crate::nic::{Arrival, CarrierRx};

/// Between two looks at a socket that only strangers send to, so that a flood of them costs little.
/// Packets of a peer at a new address come this way too.
const STRANGERS_NS: u64 = 1_000_000;

/// The receiving half of a port.
#[derive(Debug)]
pub struct UdpRx {
    port: u16,
    /// The socket that is not connected.
    open: Arc<Shared>,
    connected: Known,
    /// When `open` was last read.
    open_read_ns: u64,
    buffers: Buffers,
    bell: Arc<Bell>,
    aside: SharedAside,
}

impl UdpRx {
    pub(super) fn new(
        port: u16,
        open: &Arc<Shared>,
        peers: &Arc<Peers>,
        bell: &Arc<Bell>,
        aside: SharedAside,
    ) -> Self {
        Self {
            port,
            open: Arc::clone(open),
            connected: Known::new(Arc::clone(peers)),
            open_read_ns: 0,
            buffers: Buffers::new(),
            bell: Arc::clone(bell),
            aside,
        }
    }

    /// What the port's worker sleeps by.
    pub(super) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Whether there are sockets that this half has not seen yet: it must not sleep then.
    pub(super) fn is_stale(&self) -> bool {
        self.connected.is_stale()
    }

    /// The sockets that peers send to, until something has arrived.
    pub(super) fn when_readable(&self) -> impl Iterator<Item = PollFd<'_>> {
        let open = Some(&self.open).filter(|_| self.connected.shares());
        let sockets = self.connected.sockets.iter().chain(open);
        sockets.map(|socket| PollFd::from_borrowed_fd(socket.socket.as_fd(), PollFlags::IN))
    }
}

impl CarrierRx for UdpRx {
    fn recv(&mut self, mut each: impl FnMut(&Arrival<'_>)) -> Result<bool, FabricError> {
        self.connected.refresh();
        let mut arrived_ns = None;
        let mut hand_on = |batch: Received<'_>| {
            // One look at the clock serves all that came with one call.
            let arrived_ns = *arrived_ns.get_or_insert_with(now_ns);
            hand_on(&batch, arrived_ns, self.port, &self.aside, &mut each);
        };
        let mut more = false;
        for socket in &self.connected.sockets {
            let (received, is_full) = self.buffers.recv(socket)?;
            received.for_each(&mut hand_on);
            more |= is_full;
        }
        let shares = self.connected.shares();
        if !shares {
            let now_ns = now_ns();
            if now_ns < self.open_read_ns + STRANGERS_NS {
                return Ok(more);
            }
            self.open_read_ns = now_ns;
        }
        let (received, is_full) = self.buffers.recv(&self.open)?;
        received.for_each(&mut hand_on);
        Ok(more | (is_full && shares))
    }
}

fn hand_on(
    batch: &Received<'_>,
    arrived_ns: u64,
    port: u16,
    aside: &Aside,
    each: &mut impl FnMut(&Arrival<'_>),
) {
    let Ok(flow) = Flow::new(batch.src, batch.dst) else {
        return;
    };
    for (payload, ipv4_id) in batch.segments().zip(0..) {
        if Aside::takes(payload) {
            aside.push(PathDatagram {
                port,
                src: batch.src,
                dst: batch.dst,
                bytes: payload.to_vec(),
            });
            continue;
        }
        each(&Arrival {
            payload,
            flow: &flow,
            ipv4_id,
            ecn: batch.ecn,
            arrived_ns: Some(arrived_ns),
        });
    }
}
