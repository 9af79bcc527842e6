//! The sending side of a port: requests that were posted and have not completed.
//!
//! The last request of each post is signalled, so one completion tells that all requests of the post
//! have left. Until then, the post holds the regions that it names.
#![allow(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farwrite_fabric::contract::{Departed, FabricError, Qpn, Sge, Table, WriteWr};

use crate::broken::Broken;
use crate::buffers::Buffers;
use crate::device::{
    Access, Armed, CompletionQueue, Completions, Finished, Peer, ProtectionDomain, Sends,
};
use crate::port::{Port, QueuePair};
use crate::receiving::Change;
use crate::regions::{self, MemoryRegion};

/// SENDs of a port that can be under way.
const SEND_BUFFERS: u32 = 64;
/// Completions that are taken at once.
const BATCH: usize = 64;

/// The sending side of a port. Its queue and the control object use it.
pub(crate) struct Sending {
    queue: Arc<CompletionQueue>,
    state: Mutex<State>,
}

struct State {
    queue_pairs: HashMap<u32, SendQp>,
    /// The queue pair of each connection that works.
    connections: HashMap<u64, u32>,
    next_id: u64,
    /// Completions for which the queue has room, and that no connection has.
    free: u32,
    /// Posts that have not completed.
    under_way: usize,
    departed: Vec<Departed>,
    buffers: Buffers,
    free_buffers: Vec<u32>,
    max_sge: usize,
    sends: Sends,
    completions: Option<Completions>,
    armed: Armed,
}

struct SendQp {
    qp: Arc<QueuePair>,
    mtu: u32,
    context: u64,
    connection: Option<Connection>,
}

struct Connection {
    /// Unique at the port. A queue pair that is connected again has another one.
    id: u64,
    peer: Peer,
    /// Requests that may be posted at a time.
    depth: u32,
    posted: u32,
    posts: VecDeque<Post>,
    broken: Option<Broken>,
}

/// Requests that were posted together.
struct Post {
    requests: u32,
    departures: Vec<u64>,
    _held: Vec<Arc<MemoryRegion>>,
    buffer: Option<u32>,
}

impl Sending {
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        queue: Arc<CompletionQueue>,
        completions: u32,
        mtu: u32,
        max_sge: usize,
    ) -> Result<Self, FabricError> {
        let state = State {
            queue_pairs: HashMap::new(),
            connections: HashMap::new(),
            next_id: 0,
            free: completions,
            under_way: 0,
            departed: Vec::new(),
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
        })
    }

    /// The queue of completions.
    pub(crate) fn queue(&self) -> &Arc<CompletionQueue> {
        &self.queue
    }

    pub(crate) fn create(&self, qpn: Qpn, qp: &Arc<QueuePair>, mtu: u32, context: u64) {
        let queue_pair = SendQp {
            qp: Arc::clone(qp),
            mtu,
            context,
            connection: None,
        };
        self.lock().queue_pairs.insert(qpn.0, queue_pair);
    }

    /// A queue pair can send. `depth` is the number of requests that its queue holds.
    pub(crate) fn connect(&self, qpn: Qpn, peer: Peer, depth: u32) -> Result<(), FabricError> {
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
                broken: None,
            });
        }
        Ok(())
    }

    /// A queue pair was reset, so the device has forgotten its requests. With `report`, they count as
    /// departed; without, they are discarded.
    pub(crate) fn disconnect(&self, qpn: Qpn, report: bool) {
        let mut state = self.lock();
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

    /// The device has broken a queue pair that receives.
    pub(crate) fn fail(&self, port: &Port, qpn: Qpn) -> Result<(), FabricError> {
        let mut state = self.lock();
        state.fail(qpn.0);
        state.mend(port, qpn)
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
        let State {
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
        let State {
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
        if state.under_way == 0 {
            return Ok(true);
        }
        while !state.armed.prepare(&self.queue)? {
            if state.drain(&self.queue)? > 0 {
                return Ok(false);
            }
        }
        Ok(state.departed.is_empty())
    }

    /// A sleep is over.
    pub(crate) fn woke(&self) {
        self.lock().armed.woke(&self.queue);
    }

    /// Readable when a request has left, after [`Sending::prepare_to_sleep`].
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        self.queue.events()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SendQp {
    fn id(&self, qpn: Qpn) -> Result<u64, FabricError> {
        let connection = self.connection.as_ref();
        Ok(connection.ok_or(FabricError::NotConnected(qpn.0))?.id)
    }
}

impl State {
    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Number of requests that a queue pair can take. Takes completions if there is no room, and
    /// mends a queue pair that is broken.
    fn room(&mut self, port: &Port, qpn: Qpn) -> Result<u32, FabricError> {
        let room = |state: &Self| {
            let connection = state.queue_pairs.get(&qpn.0)?.connection.as_ref()?;
            Some(connection.depth - connection.posted)
        };
        self.mend(port, qpn)?;
        let no_buffer = self.free_buffers.is_empty();
        if no_buffer || room(self).is_some_and(|room| room == 0) {
            self.drain(port.sending.queue())?;
        }
        Ok(room(self).unwrap_or(0))
    }

    /// Posts what `sends` has, and remembers it. While the queue pair is broken, it is lost.
    fn post(&mut self, port: &Port, qpn: Qpn, post: Post) -> Result<(), FabricError> {
        let Some(queue_pair) = self.queue_pairs.get_mut(&qpn.0) else {
            return Err(FabricError::UnknownQp(qpn.0));
        };
        let (qp, context) = (Arc::clone(&queue_pair.qp), queue_pair.context);
        self.under_way += 1;
        match &mut queue_pair.connection {
            Some(connection) if connection.broken.is_none() => {
                connection.posted += post.requests;
                connection.posts.push_back(post);
            }
            _ => {
                self.retire(qpn.0, context, post);
                return Ok(());
            }
        }
        // SAFETY: inline requests name bytes of regions that `post` holds.
        let posted = unsafe { qp.device.post_sends(&mut self.sends) };
        if posted.is_err() {
            self.fail(qpn.0);
            self.mend(port, qpn)?;
        }
        Ok(())
    }

    /// Connects a queue pair again that is broken, unless it is too early or not possible yet.
    fn mend(&mut self, port: &Port, qpn: Qpn) -> Result<(), FabricError> {
        let queue_pair = self.queue_pairs.get_mut(&qpn.0);
        let Some((qp, connection)) =
            queue_pair.and_then(|qp| Some((Arc::clone(&qp.qp), qp.connection.as_mut()?)))
        else {
            return Ok(());
        };
        let (Some(mut broken), peer) = (connection.broken.take(), connection.peer) else {
            return Ok(());
        };
        let works = broken.retry(|| {
            qp.device.reset()?;
            qp.device.prepare(peer.port)?;
            qp.device.connect(&peer)
        });
        connection.broken = Some(broken).filter(|_| !works);
        if works {
            let id = self.new_id();
            self.connections.insert(id, qpn.0);
            let queue_pair = self.queue_pairs.get_mut(&qpn.0);
            if let Some(connection) = queue_pair.and_then(|qp| qp.connection.as_mut()) {
                connection.id = id;
            }
            // The completions of the time before still use room.
            self.drain(port.sending.queue())?;
            port.receiving.push(Change::Refill(qpn));
        }
        Ok(())
    }

    /// Takes completions. Returns how many.
    fn drain(&mut self, queue: &CompletionQueue) -> Result<usize, FabricError> {
        let Some(mut buffer) = self.completions.take() else {
            return Ok(0);
        };
        let mut taken = 0;
        let result = loop {
            let polled = queue.poll(&mut buffer, |finished| self.finish(finished));
            match polled {
                Ok(count) => {
                    taken += count;
                    if count < buffer.len() {
                        break Ok(taken);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        self.completions = Some(buffer);
        if taken > 0 {
            self.armed.disarm();
        }
        result
    }

    fn finish(&mut self, finished: Finished) {
        let Some(&qpn) = self.connections.get(&finished.id) else {
            return;
        };
        if finished.result.is_err() {
            return self.fail(qpn);
        }
        let Some(queue_pair) = self.queue_pairs.get_mut(&qpn) else {
            return;
        };
        let context = queue_pair.context;
        let connection = queue_pair.connection.as_mut();
        if let Some((connection, post)) =
            connection.and_then(|c| c.posts.pop_front().map(|post| (c, post)))
        {
            connection.posted -= post.requests;
            self.retire(qpn, context, post);
        }
    }

    /// The device has broken a queue pair. Its requests count as departed.
    fn fail(&mut self, qpn: u32) {
        let Some(queue_pair) = self.queue_pairs.get_mut(&qpn) else {
            return;
        };
        // After this, the device does not read the memory of the requests. If the device is gone, it
        // does not read it either.
        let _ = queue_pair.qp.device.reset();
        let context = queue_pair.context;
        let Some(connection) = &mut queue_pair.connection else {
            return;
        };
        connection.broken.get_or_insert_with(Broken::new);
        connection.posted = 0;
        // Later completions of the connection mean nothing.
        self.connections.remove(&connection.id);
        for post in std::mem::take(&mut connection.posts) {
            self.retire(qpn, context, post);
        }
    }

    /// The requests of a post have left.
    fn retire(&mut self, qpn: u32, context: u64, post: Post) {
        self.under_way -= 1;
        self.free_buffers.extend(post.buffer);
        let departed = post.departures.into_iter().map(|wr_id| Departed {
            qpn: Qpn(qpn),
            context,
            wr_id,
        });
        self.departed.extend(departed);
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
