//! The sending side of a port: requests that were posted and have not completed.
//!
//! The last request of each post is signalled, so one completion tells that all requests of the post
//! have left. Until then, the post holds the regions that it names.

mod state;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farwrite_fabric::contract::{Departed, FabricError, Qpn, Sge, Table, Waker, WriteWr};

use self::state::{Connection, Post, SendQp, SendState};
use crate::broken::Broken;
use crate::buffers::Buffers;
use crate::device::{Access, Armed, CompletionQueue, Completions, Peer, ProtectionDomain, Sends};
use crate::port::{Port, QueuePair};
use crate::regions;

/// SENDs of a port that can be under way.
const SEND_BUFFERS: u32 = 64;
/// Completions that are taken at once.
const BATCH: usize = 64;

/// The sending side of a port. Its queue and the control object use it.
pub(crate) struct Sending {
    queue: Arc<CompletionQueue>,
    state: Mutex<SendState>,
    is_broken: Arc<AtomicBool>,
}

impl Sending {
    /// `worker` wakes the worker of the port, which calls [`Sending::mend`].
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        queue: Arc<CompletionQueue>,
        completions: u32,
        mtu: u32,
        max_sge: usize,
        worker: Waker,
    ) -> Result<Self, FabricError> {
        let is_broken = Arc::new(AtomicBool::new(false));
        let state = SendState {
            queue_pairs: HashMap::new(),
            connections: HashMap::new(),
            next_id: 0,
            free: completions,
            under_way: 0,
            departed: Vec::new(),
            broken: BTreeSet::new(),
            any_broken: Arc::clone(&is_broken),
            worker,
            buffers: Buffers::new(domain, SEND_BUFFERS, mtu, Access::Send)?,
            free_buffers: (0..SEND_BUFFERS).collect(),
            max_sge,
            sends: Sends::default(),
            completions: Some(Completions::new(BATCH)),
            armed: Armed::default(),
        };
        Ok(Self {
            queue,
            state: Mutex::new(state),
            is_broken,
        })
    }

    pub(crate) fn queue(&self) -> &Arc<CompletionQueue> {
        &self.queue
    }

    pub(crate) fn create(&self, qpn: Qpn, qp: &Arc<QueuePair>, mtu: u32, context: u64) {
        let queue_pair = SendQp {
            qp: Arc::clone(qp),
            mtu,
            context,
            connection: None,
            failed: None,
        };
        self.lock().queue_pairs.insert(qpn.0, queue_pair);
    }

    /// A queue pair can send. `depth` is the number of requests that its queue holds, and `resets`
    /// what it returned when it was prepared.
    pub(crate) fn connect(
        &self,
        qpn: Qpn,
        peer: Peer,
        depth: u32,
        resets: u64,
    ) -> Result<(), FabricError> {
        let mut state = self.lock();
        let id = state.new_id();
        // Half of the room, so that it never ends at once.
        let depth = depth.min(state.free / 2);
        if depth < 16 {
            return Err(FabricError::OutOfResources(Table::QueuePair));
        }
        state.free -= depth;
        state.connections.insert(id, qpn.0);
        if let Some(queue_pair) = state.queue_pairs.get_mut(&qpn.0) {
            queue_pair.connection = Some(Connection {
                id,
                peer,
                depth,
                posted: 0,
                posts: VecDeque::new(),
                broken: Broken::default(),
            });
            if queue_pair.failed.take() == Some(resets) {
                state.fail(qpn.0);
            }
        }
        Ok(())
    }

    /// Resets a connected queue pair, so that the device forgets its requests. With `report`, they
    /// count as departed; without, they are discarded.
    pub(crate) fn disconnect(&self, qpn: Qpn, report: bool) {
        let mut state = self.lock();
        let queue_pair = state.queue_pairs.get(&qpn.0);
        if let Some(queue_pair) = queue_pair.filter(|qp| qp.connection.is_some()) {
            // Within the lock, so that nobody connects it again at the same time. A device that is
            // gone has forgotten everything too.
            let _ = queue_pair.qp.device.reset();
        }
        // Completions of the connection that are in the queue already use room until they are taken.
        let _ = state.drain(&self.queue);
        let queue_pair = state.queue_pairs.get_mut(&qpn.0);
        let Some((connection, context)) =
            queue_pair.and_then(|qp| Some((qp.connection.take()?, qp.context)))
        else {
            return;
        };
        state.connections.remove(&connection.id);
        state.free += connection.depth;
        for post in connection.posts {
            state.retire(qpn.0, context, post);
        }
        if !report {
            state.departed.retain(|departed| departed.qpn != qpn);
        }
    }

    pub(crate) fn destroy(&self, qpn: Qpn) {
        self.disconnect(qpn, false);
        self.lock().queue_pairs.remove(&qpn.0);
    }

    /// The device has broken a queue pair, after this number of resets. Nothing happens if it was
    /// reset again since then.
    pub(crate) fn fail(&self, port: &Port, qpn: Qpn, resets: u64) -> Result<(), FabricError> {
        let mut state = self.lock();
        let Some(queue_pair) = state.queue_pairs.get_mut(&qpn.0) else {
            return Ok(());
        };
        if queue_pair.qp.device.resets() != resets {
            return Ok(());
        }
        if queue_pair.connection.is_none() {
            // It is about to be connected.
            queue_pair.failed = Some(resets);
            return Ok(());
        }
        state.fail(qpn.0);
        state.mend(port, qpn)
    }

    /// Connects queue pairs again that are broken, also those that only receive. It costs one atomic
    /// load if there are none.
    pub(crate) fn mend(&self, port: &Port) -> Result<(), FabricError> {
        if !self.is_broken() {
            return Ok(());
        }
        let mut state = self.lock();
        for qpn in std::mem::take(&mut state.broken) {
            state.mend(port, Qpn(qpn))?;
            if state.is_broken(qpn) {
                state.broken.insert(qpn);
            }
        }
        let is_broken = !state.broken.is_empty();
        self.is_broken.store(is_broken, Ordering::Relaxed);
        Ok(())
    }

    /// Whether [`Sending::mend`] must be called again soon.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Takes completions, so that regions are let go of.
    pub(crate) fn drain(&self) -> Result<usize, FabricError> {
        self.lock().drain(&self.queue)
    }

    /// Posts writes, as many as there is room for.
    pub(crate) fn post_writes(
        &self,
        port: &Port,
        regions: &regions::Table,
        qpn: Qpn,
        writes: &[WriteWr<'_>],
    ) -> Result<usize, FabricError> {
        let mut state = self.lock();
        let room = state.room(port, qpn)?;
        let SendState {
            queue_pairs,
            sends,
            max_sge,
            ..
        } = &mut *state;
        let unknown = FabricError::UnknownQp(qpn.0);
        let queue_pair = queue_pairs.get_mut(&qpn.0).ok_or(unknown)?;
        let (id, mtu) = (queue_pair.id(qpn)?, queue_pair.mtu);
        let inline_bytes = queue_pair.qp.device.inline_bytes();
        let taken = writes.len().min(room as usize);
        let (mut held, mut bytes) = (Vec::new(), 0);
        sends.clear();
        // All are checked, also those without room: nothing is posted if one of them is wrong.
        for (index, write) in writes.iter().enumerate() {
            let length = check(write.local, *max_sge, mtu)?;
            let posted = index < taken;
            if posted {
                sends.write(id, write.remote_addr, write.rkey.0, write.imm);
                bytes += port.address.write_bytes(length.into());
            }
            for sge in write.local {
                let region = regions.get(sge.lkey)?;
                let place = region.place(sge.offset, sge.length.into())?;
                if let Some((key, addr)) = place.filter(|_| posted && sge.length > 0) {
                    sends.add(addr, sge.length, key);
                    if held.last().is_none_or(|last| !Arc::ptr_eq(last, region)) {
                        held.push(Arc::clone(region));
                    }
                }
            }
            // The library reads the bytes of inline requests.
            if posted && length <= inline_bytes && length > 0 {
                sends.make_inline();
            }
        }
        if taken == 0 {
            return Ok(0);
        }
        sends.signal();
        let cut = (taken < writes.len()).then_some(taken);
        let departs = (1..=taken).zip(writes);
        let departs = departs.filter(|(index, write)| write.signaled || cut == Some(*index));
        let post = Post {
            requests: u32::try_from(taken).unwrap_or(u32::MAX),
            departures: departs.map(|(_, write)| write.wr_id).collect(),
            _held: held,
            buffer: None,
        };
        state.post(port, qpn, post)?;
        port.counts
            .sent_packets
            .fetch_add(taken as u64, Ordering::Relaxed);
        port.counts.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(taken)
    }

    /// Posts a SEND, if there is room.
    pub(crate) fn post_send(
        &self,
        port: &Port,
        qpn: Qpn,
        payload: &[u8],
    ) -> Result<bool, FabricError> {
        let mut state = self.lock();
        let room = state.room(port, qpn)?;
        let SendState {
            queue_pairs,
            sends,
            buffers,
            free_buffers,
            ..
        } = &mut *state;
        let unknown = FabricError::UnknownQp(qpn.0);
        let queue_pair = queue_pairs.get_mut(&qpn.0).ok_or(unknown)?;
        let id = queue_pair.id(qpn)?;
        check_length(payload.len() as u64, queue_pair.mtu)?;
        if room == 0 {
            return Ok(false);
        }
        let Some(buffer) = free_buffers.pop() else {
            return Ok(false);
        };
        sends.clear();
        sends.send(id);
        if !payload.is_empty() {
            buffers.write(buffer, payload)?;
            let (addr, _, key) = buffers.place(buffer);
            sends.add(addr, u32::try_from(payload.len()).unwrap_or(0), key);
        }
        sends.signal();
        let post = Post {
            requests: 1,
            departures: Vec::new(),
            _held: Vec::new(),
            buffer: Some(buffer),
        };
        state.post(port, qpn, post)?;
        let bytes = port.address.send_bytes(payload.len() as u64);
        port.counts.sent_packets.fetch_add(1, Ordering::Relaxed);
        port.counts.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(true)
    }

    /// Appends the departures since the last call.
    pub(crate) fn poll(&self, out: &mut Vec<Departed>) -> Result<(), FabricError> {
        let mut state = self.lock();
        state.drain(&self.queue)?;
        out.append(&mut state.departed);
        Ok(())
    }

    /// Prepares to sleep until a request has left. Returns false if the caller must not sleep.
    pub(crate) fn prepare_to_sleep(&self) -> Result<bool, FabricError> {
        let mut state = self.lock();
        if !state.departed.is_empty() {
            return Ok(false);
        }
        if state.under_way == 0 {
            return Ok(true);
        }
        while !state.armed.prepare(&self.queue)? {
            if state.drain(&self.queue)? > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A sleep is over.
    pub(crate) fn woke(&self) {
        self.lock().armed.woke(&self.queue);
    }

    /// Readable when a request has left, after [`Sending::prepare_to_sleep`].
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        self.queue.events()
    }

    fn lock(&self) -> MutexGuard<'_, SendState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks the entries of a write. Returns the length of their bytes.
fn check(local: &[Sge], max_sge: usize, mtu: u32) -> Result<u32, FabricError> {
    if local.len() > max_sge {
        return Err(FabricError::BadAttribute {
            name: "scatter entries",
            value: local.len().to_string(),
            want: format!("at most {max_sge}"),
        });
    }
    let length = local.iter().map(|sge| u64::from(sge.length)).sum();
    check_length(length, mtu)
}

fn check_length(length: u64, mtu: u32) -> Result<u32, FabricError> {
    match u32::try_from(length) {
        Ok(fits) if fits <= mtu => Ok(fits),
        _ => Err(FabricError::OutOfBounds {
            offset: 0,
            length,
            limit: mtu.into(),
        }),
    }
}
