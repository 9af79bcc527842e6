//! The receiving half of a port. It reads the port's sockets in turn.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use farwrite_wire::icrc::Flow;
use rustix::event::{PollFd, PollFlags};

use super::datagram::ReceivedBatch;
use super::owners_packets::{OwnersDatagram, OwnersPacket, OwnersPackets, SharedOwnersPackets};
use super::peers::{KnownSockets, Peers};
use super::real_time::{Instants, now_ns};
use super::receiver::Buffers;
use super::shared_open::SharedReader;
use super::socket::SharedSocket;
use super::wake_event::WakeEvent;
use crate::contract::FabricError;
use crate::nic::{Arrival, CarrierRx};

/// Shortest interval between reads of a socket that only strangers send to, so that a flood costs
/// little. Packets of a peer at a new address also arrive through that socket.
pub(super) const STRANGERS_NS: u64 = 1_000_000;

/// The receiving half of a port.
#[derive(Debug)]
pub struct UdpRx {
    port: u16,
    /// The socket that is not connected.
    open: Arc<SharedSocket>,
    /// Reads `open`, if other fabrics use it too.
    shared: Option<SharedReader>,
    connected: KnownSockets,
    /// When only strangers send to `open`: the time before which it is not read again.
    next_open_ns: Cell<u64>,
    /// Whether the last read of `open` found datagrams.
    strangers_came: bool,
    buffers: Buffers,
    wake_event: Arc<WakeEvent>,
    owners_packets: SharedOwnersPackets,
}

impl UdpRx {
    pub(super) fn new(
        port: u16,
        open: &Arc<SharedSocket>,
        peers: &Arc<Peers>,
        shared: Option<SharedReader>,
        wake_event: &Arc<WakeEvent>,
        owners_packets: SharedOwnersPackets,
    ) -> Self {
        Self {
            port,
            open: Arc::clone(open),
            shared,
            connected: KnownSockets::new(Arc::clone(peers)),
            next_open_ns: Cell::new(0),
            strangers_came: false,
            buffers: Buffers::new(),
            wake_event: Arc::clone(wake_event),
            owners_packets,
        }
    }

    /// Wakes the worker of the port.
    pub(super) fn wake_event(&self) -> &Arc<WakeEvent> {
        &self.wake_event
    }

    /// Whether there are new sockets that this half has not seen yet. The worker must not sleep
    /// then.
    pub(super) fn is_stale(&self) -> bool {
        let reader = self.shared.as_ref();
        self.connected.is_stale() || reader.is_some_and(SharedReader::is_stale)
    }

    /// How long the worker may sleep: less than `at_most` while strangers send, since
    /// [`UdpRx::when_readable`] omits the open socket until it may be read again.
    pub(super) fn longest_wait(&self, at_most: Duration) -> Duration {
        if self.waits_for_strangers() || self.shared.is_some() {
            return at_most;
        }
        let left_ns = self.next_open_ns.get().saturating_sub(now_ns());
        at_most.min(Duration::from_nanos(left_ns))
    }

    /// Whether a datagram of a stranger ends a sleep. It does not during a flood, nor if another fabric
    /// reads the socket too.
    fn waits_for_strangers(&self) -> bool {
        !self.strangers_came && self.shared.is_none()
    }

    /// The sockets to wait for until a datagram arrives.
    pub(super) fn when_readable(&self) -> impl Iterator<Item = PollFd<'_>> {
        let KnownSockets {
            sockets, readable, ..
        } = &self.connected;
        let each = sockets.iter().filter(|_| readable.is_none());
        let shares = self.connected.shares();
        let waits = shares || self.waits_for_strangers();
        if waits {
            // What ends the sleep is read at once.
            self.next_open_ns.set(0);
        }
        let open = Some(&self.open).filter(|_| waits);
        let others = self.shared.iter().flat_map(SharedReader::others);
        let all = each.chain(open).chain(others).map(AsFd::as_fd);
        all.chain(readable.as_ref().map(AsFd::as_fd))
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
    }
}

impl CarrierRx for UdpRx {
    fn recv(&mut self, mut each: impl FnMut(&mut Arrival<'_>)) -> Result<bool, FabricError> {
        self.connected.refresh();
        let mut hand_on = |mut batch: ReceivedBatch<'_>, read: &mut Option<Instants>| {
            // The clocks are read once for all datagrams of one system call, after the call.
            let read = read.get_or_insert_with(Instants::now);
            let arrived_ns = read.arrived_ns(batch.received_ns);
            hand_on(
                &mut batch,
                arrived_ns,
                self.port,
                &self.owners_packets,
                &mut each,
            );
        };
        let (mut more, to_read) = self.connected.sockets_to_read()?;
        for socket in to_read {
            let (received, is_full) = self.buffers.recv(socket)?;
            let mut read = None;
            received.for_each(|batch| hand_on(batch, &mut read));
            more |= is_full;
        }
        let shares = self.connected.shares();
        if let Some(shared) = &mut self.shared {
            let mut read = None;
            let each = |batch: ReceivedBatch<'_>| hand_on(batch, &mut read);
            return Ok(more | shared.recv(shares, &mut self.buffers, each)?);
        }
        if !shares {
            let now_ns = now_ns();
            if now_ns < self.next_open_ns.get() {
                return Ok(more);
            }
            self.next_open_ns.set(now_ns + STRANGERS_NS);
        }
        let (received, is_full) = self.buffers.recv(&self.open)?;
        let mut read = None;
        received.for_each(|batch| hand_on(batch, &mut read));
        self.strangers_came = !shares && read.is_some();
        Ok(more | (is_full && shares))
    }
}

fn hand_on(
    batch: &mut ReceivedBatch<'_>,
    arrived_ns: u64,
    port: u16,
    owners_packets: &OwnersPackets,
    each: &mut impl FnMut(&mut Arrival<'_>),
) {
    let Ok(flow) = Flow::new(batch.src, batch.dst) else {
        return;
    };
    let (src, dst, ecn) = (batch.src, batch.dst, batch.ecn);
    for (payload, ipv4_id) in batch.segments_mut().zip(0..) {
        if let Some(kind) = OwnersPacket::of(payload) {
            let datagram = OwnersDatagram {
                port,
                src,
                dst,
                bytes: payload.to_vec(),
            };
            owners_packets.push(kind, datagram);
            continue;
        }
        each(&mut Arrival {
            payload,
            flow: &flow,
            ipv4_id,
            ecn,
            arrived_ns: Some(arrived_ns),
        });
    }
}
