//! An open socket that several fabrics of this process share.
//!
//! The kernel gives each datagram of a stranger to one socket of a port. So fabrics at one address cannot
//! have an open socket each: they share one, and the fabric that reads it gives each datagram to the others. A fabric
//! that awaits strangers, as a listener does, reads all open sockets of its port, and waits for all of them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::datagram::ReceivedBatch;
use super::owners_packets::OwnersPacket;
use super::peers::Peers;
use super::real_time::now_ns;
use super::receiver::Buffers;
use super::reserved_port::ReservedPort;
use super::rx::STRANGERS_NS;
use super::socket::SharedSocket;
use super::wake_event::WakeEvent;
use crate::contract::{Ecn, FabricError};

/// The largest number of bytes that wait for a fabric that reads slowly. Further datagrams are dropped; the
/// network could drop them as well.
const MOST_BYTES: usize = 1 << 20;
/// The same for a fabric whose peers all have sockets of their own: a flood of strangers should cost little.
const MOST_STRANGERS_BYTES: usize = 16 << 10;
/// What a waiting datagram takes besides its payload.
const OVERHEAD_BYTES: usize = 128;

/// An open socket, and the fabrics that share it.
#[derive(Debug)]
pub(super) struct SharedOpen {
    socket: Arc<SharedSocket>,
    /// The port, whose other sockets may receive datagrams for these fabrics, and the other way round.
    held: Option<ReservedPort>,
    /// The time of the last read. Locked by the one that reads.
    read_ns: Mutex<u64>,
    inboxes: Mutex<Vec<Arc<Inbox>>>,
}

/// What one fabric gets of the socket when another one reads it.
#[derive(Debug)]
pub(super) struct Inbox {
    /// Tells whether packets of peers may arrive at the open socket.
    peers: Arc<Peers>,
    /// Wake the fabric, whether its owner or a worker receives.
    wake_events: [Arc<WakeEvent>; 2],
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    batches: VecDeque<Batch>,
    bytes: usize,
    /// Whether a batch has come for which the fabric was not woken.
    is_new: bool,
    woken_ns: u64,
}

/// A [`ReceivedBatch`] that waits.
#[derive(Debug)]
struct Batch {
    src: SocketAddr,
    dst: SocketAddr,
    ecn: Ecn,
    received_ns: Option<u64>,
    segment_bytes: usize,
    bytes: Box<[u8]>,
}

/// The membership of one fabric, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct SharedReader {
    open: Arc<SharedOpen>,
    inbox: Arc<Inbox>,
    /// The other open sockets of the port, if this fabric awaits strangers.
    others: Vec<Arc<SharedOpen>>,
    /// The number of open sockets that the port had had when `others` was made.
    known_opens: u64,
}

impl SharedOpen {
    pub(super) fn new(socket: Arc<SharedSocket>, held: Option<ReservedPort>) -> Self {
        Self {
            socket,
            held,
            read_ns: Mutex::default(),
            inboxes: Mutex::default(),
        }
    }

    pub(super) fn socket(&self) -> &Arc<SharedSocket> {
        &self.socket
    }

    pub(super) fn reader(
        self: &Arc<Self>,
        peers: &Arc<Peers>,
        wake_events: [&Arc<WakeEvent>; 2],
    ) -> SharedReader {
        let inbox = Arc::new(Inbox {
            peers: Arc::clone(peers),
            wake_events: wake_events.map(Arc::clone),
            waiting: Mutex::default(),
        });
        self.inboxes().push(Arc::clone(&inbox));
        SharedReader {
            open: Arc::clone(self),
            inbox,
            others: Vec::new(),
            known_opens: 0,
        }
    }

    /// Takes datagrams in that another socket of the port has received: the system prefers one at an exact address to
    /// one at all addresses.
    /// `reader` has them already.
    pub(super) fn take_in(&self, batch: &ReceivedBatch<'_>, reader: Option<&Arc<Inbox>>) {
        let now_ns = now_ns();
        let is_other = |inbox: &&Arc<Inbox>| reader.is_none_or(|it| !Arc::ptr_eq(inbox, it));
        for inbox in self.inboxes().iter().filter(is_other) {
            inbox.push(batch);
            inbox.wake(now_ns);
        }
    }

    /// As [`SharedOpen::take_in`], of this socket. Wakes nobody.
    fn hand_out(&self, batch: &ReceivedBatch<'_>, reader: &Arc<Inbox>) {
        let is_other = |inbox: &&Arc<Inbox>| !Arc::ptr_eq(inbox, reader);
        for inbox in self.inboxes().iter().filter(is_other) {
            inbox.push(batch);
        }
    }

    /// Wakes the fabrics that read all open sockets of the port: there is another one.
    pub(super) fn wake_listeners(&self) {
        let inboxes = self.inboxes();
        for inbox in inboxes.iter().filter(|it| it.peers.awaits_strangers()) {
            inbox.wake_fabric();
        }
    }

    fn inboxes(&self) -> MutexGuard<'_, Vec<Arc<Inbox>>> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedReader {
    /// Whether the port has open sockets that this fabric must read, and has not seen yet.
    pub(super) fn is_stale(&self) -> bool {
        let held = self.open.held.as_ref();
        self.inbox.peers.awaits_strangers()
            && held.is_some_and(|held| held.opens() != self.known_opens)
    }

    /// The other open sockets of the port that this fabric reads.
    pub(super) fn others(&self) -> impl Iterator<Item = &Arc<SharedSocket>> {
        self.others.iter().map(|open| open.socket())
    }

    /// Passes what has arrived at the socket to `each`, and returns whether more may wait. Without
    /// `is_awaited`, only strangers send to the socket, and it is read now and then.
    pub(super) fn recv(
        &mut self,
        is_awaited: bool,
        buffers: &mut Buffers,
        mut each: impl FnMut(ReceivedBatch<'_>),
    ) -> Result<bool, FabricError> {
        for mut batch in self.inbox.take() {
            each(batch.as_received());
        }
        if self.is_stale()
            && let Some(held) = &self.open.held
        {
            self.known_opens = held.opens();
            self.others = held.open_besides(&self.open);
        }
        let mut more = self.read(&self.open, is_awaited, buffers, &mut each)?;
        for open in &self.others {
            more |= self.read(open, is_awaited, buffers, &mut each)?;
        }
        Ok(more)
    }

    fn read(
        &self,
        open: &Arc<SharedOpen>,
        is_awaited: bool,
        buffers: &mut Buffers,
        each: &mut impl FnMut(ReceivedBatch<'_>),
    ) -> Result<bool, FabricError> {
        // The fabric that holds the lock reads for this fabric too, and wakes it.
        let mut read_ns = match open.read_ns.try_lock() {
            Ok(read_ns) => read_ns,
            // The one that panicked reads no more.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(false),
        };
        let now_ns = now_ns();
        if !is_awaited && now_ns < *read_ns + STRANGERS_NS {
            return Ok(false);
        }
        *read_ns = now_ns;
        let (received, is_full) = buffers.recv(&open.socket)?;
        for batch in received {
            // A peer of this fabric is no peer of another one. The others get the bytes before they are opened here.
            if !self.inbox.peers.knows(&batch) {
                open.hand_out(&batch, &self.inbox);
                if let Some(held) = &open.held {
                    held.pass_from(Some(open), &batch, Some(&self.inbox));
                }
            }
            each(batch);
        }
        for inbox in &*open.inboxes() {
            inbox.wake(now_ns);
        }
        Ok(is_full && is_awaited)
    }
}

impl Drop for SharedReader {
    fn drop(&mut self) {
        let is_other = |inbox: &Arc<Inbox>| !Arc::ptr_eq(inbox, &self.inbox);
        self.open.inboxes().retain(is_other);
    }
}

impl Inbox {
    /// Adds the datagrams that may be for this fabric: those for its owner, and others if a peer has no socket
    /// of its own.
    fn push(&self, batch: &ReceivedBatch<'_>) {
        if self.peers.shares() {
            self.keep(batch, batch.bytes, MOST_BYTES);
        } else {
            self.push_owners(batch);
        }
    }

    /// Adds the datagrams for the owner of this fabric. Only one that awaits strangers takes packets of handshakes.
    fn push_owners(&self, batch: &ReceivedBatch<'_>) {
        let is_for_owner = |kind| match kind {
            OwnersPacket::Route => true,
            OwnersPacket::Handshake => self.peers.awaits_strangers(),
        };
        for bytes in batch.segments() {
            if OwnersPacket::of(bytes).is_some_and(is_for_owner) {
                self.keep(batch, bytes, MOST_STRANGERS_BYTES);
            }
        }
    }

    /// Adds one datagram of a batch, or all, unless `most` bytes wait already. So one of any size has room.
    fn keep(&self, batch: &ReceivedBatch<'_>, bytes: &[u8], most: usize) {
        let mut waiting = self.waiting();
        if waiting.bytes >= most {
            return;
        }
        waiting.bytes += bytes.len() + OVERHEAD_BYTES;
        waiting.is_new = true;
        waiting.batches.push_back(Batch {
            src: batch.src,
            dst: batch.dst,
            ecn: batch.ecn,
            received_ns: batch.received_ns,
            segment_bytes: batch.segment_bytes,
            bytes: bytes.into(),
        });
    }

    /// Wakes the fabric, if something has come since it was woken last. Strangers wake a fabric that does not await
    /// them now and then only, however often another one reads the socket.
    fn wake(&self, now_ns: u64) {
        let mut waiting = self.waiting();
        let is_due = self.peers.shares() || now_ns >= waiting.woken_ns + STRANGERS_NS;
        if !waiting.is_new || !is_due {
            return;
        }
        (waiting.is_new, waiting.woken_ns) = (false, now_ns);
        drop(waiting);
        self.wake_fabric();
    }

    fn wake_fabric(&self) {
        for wake_event in &self.wake_events {
            wake_event.waker().wake();
        }
    }

    fn take(&self) -> VecDeque<Batch> {
        std::mem::take(&mut *self.waiting()).batches
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Batch {
    fn as_received(&mut self) -> ReceivedBatch<'_> {
        ReceivedBatch {
            src: self.src,
            dst: self.dst,
            ecn: self.ecn,
            received_ns: self.received_ns,
            segment_bytes: self.segment_bytes,
            bytes: &mut self.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use farwrite_wire::opcode::{HANDSHAKE_PACKET, ROUTE_PACKET};

    use super::super::config::SocketConfig;
    use super::*;
    use crate::nic::Ends;

    #[test]
    fn strangers_fill_little_of_a_fabric_whose_peers_have_sockets() {
        let addr = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = SocketConfig::new(addr);
        let socket = Arc::new(SharedSocket::bind(&config, None).expect("a socket"));
        let peers = Arc::new(Peers::new(Arc::clone(&socket), config, None));
        let open = Arc::new(SharedOpen::new(socket, None));
        let wake_event = WakeEvent::new().expect("an event");
        let SharedReader { inbox, .. } = &open.reader(&peers, [&wake_event, &wake_event]);
        let mut bytes = [[7; 100], [HANDSHAKE_PACKET; 100], [ROUTE_PACKET; 100]].concat();
        bytes.push(ROUTE_PACKET);
        let mut flood = |times| {
            for _ in 0..times {
                let batch = ReceivedBatch {
                    src: addr,
                    dst: addr,
                    ecn: Ecn::NotEct,
                    received_ns: None,
                    segment_bytes: 100,
                    bytes: &mut bytes,
                };
                open.take_in(&batch, None);
            }
            inbox.take()
        };
        let whole = flood(1);
        assert_eq!(whole[0].bytes.len(), 301, "any of them may be of a peer");
        peers.join(Ends {
            local: [127, 0, 0, 1].into(),
            peer: SocketAddr::from(([127, 0, 0, 1], 9)),
        });
        assert!(!peers.shares());
        let ours = flood(1);
        let lengths: Vec<_> = ours.iter().map(|batch| batch.bytes.len()).collect();
        assert_eq!(lengths, [100, 1], "it awaits no strangers");
        let kept: usize = flood(10_000).iter().map(|batch| batch.bytes.len()).sum();
        assert!((1000..MOST_STRANGERS_BYTES).contains(&kept), "{kept}");
    }

    #[test]
    fn a_fabric_reads_after_another_one_has_panicked() {
        let addr = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = SocketConfig::new(addr);
        let socket = Arc::new(SharedSocket::bind(&config, None).expect("a socket"));
        let peers = Arc::new(Peers::new(Arc::clone(&socket), config, None));
        let local = socket.local;
        let open = Arc::new(SharedOpen::new(socket, None));
        let wake_event = WakeEvent::new().expect("an event");
        let mut reader = open.reader(&peers, [&wake_event, &wake_event]);
        let of_thread_too = Arc::clone(&open);
        let panics = std::thread::spawn(move || {
            let _reading = of_thread_too.read_ns.lock();
            panic!("while it reads");
        });
        panics.join().expect_err("it panics");
        let stranger = std::net::UdpSocket::bind(addr).expect("a socket");
        stranger.send_to(&[1], local).expect("sent");
        let mut buffers = Buffers::new();
        let start = std::time::Instant::now();
        let mut came = 0;
        while came == 0 && start.elapsed() < std::time::Duration::from_secs(60) {
            let read = reader.recv(true, &mut buffers, |_| came += 1);
            read.expect("no error");
        }
        assert_eq!(came, 1);
    }
}
