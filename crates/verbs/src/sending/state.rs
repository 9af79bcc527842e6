//! Requests that were posted and have not completed, of all queue pairs of a port.
#![allow(unsafe_code)]

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farwrite_fabric::contract::{Departed, FabricError, Qpn, Waker};

use crate::broken::Broken;
use crate::buffers::Buffers;
use crate::device::{Armed, CompletionQueue, Completions, Finished, Peer, Sends};
use crate::port::{Port, QueuePair};
use crate::receiving::Change;
use crate::regions::MemoryRegion;

pub(super) struct SendState {
    pub(super) queue_pairs: HashMap<u32, SendQp>,
    /// The queue pair of each connection that works.
    pub(super) connections: HashMap<u64, u32>,
    pub(super) next_id: u64,
    /// Completions for which the queue has room, and that no connection has.
    pub(super) free: u32,
    /// Posts that have not completed.
    pub(super) under_way: usize,
    pub(super) departed: Vec<Departed>,
    /// Queue pairs that the device has broken. Some may work again.
    pub(super) broken: BTreeSet<u32>,
    /// Whether `broken` may have an entry.
    pub(super) any_broken: Arc<AtomicBool>,
    /// Wakes the worker of the port.
    pub(super) worker: Waker,
    pub(super) buffers: Buffers,
    pub(super) free_buffers: Vec<u32>,
    pub(super) max_sge: usize,
    pub(super) sends: Sends,
    pub(super) completions: Option<Completions>,
    pub(super) armed: Armed,
}

pub(super) struct SendQp {
    pub(super) qp: Arc<QueuePair>,
    pub(super) mtu: u32,
    pub(super) context: u64,
    pub(super) connection: Option<Connection>,
    /// The number of resets after which the device broke it before it had a connection here.
    pub(super) failed: Option<u64>,
}

pub(super) struct Connection {
    /// Unique at the port. A queue pair that is connected again has another one.
    pub(super) id: u64,
    pub(super) peer: Peer,
    /// Requests that may be posted at a time.
    pub(super) depth: u32,
    pub(super) posted: u32,
    pub(super) posts: VecDeque<Post>,
    pub(super) broken: Broken,
}

/// Requests that were posted together.
pub(super) struct Post {
    pub(super) requests: u32,
    pub(super) departures: Vec<u64>,
    pub(super) _held: Vec<Arc<MemoryRegion>>,
    pub(super) buffer: Option<u32>,
}

impl SendQp {
    pub(super) fn id(&self, qpn: Qpn) -> Result<u64, FabricError> {
        let connection = self.connection.as_ref();
        Ok(connection.ok_or(FabricError::NotConnected(qpn.0))?.id)
    }
}

impl SendState {
    pub(super) fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Number of requests that a queue pair can take. Takes completions if there is no room, and
    /// mends a queue pair that is broken.
    pub(super) fn room(&mut self, port: &Port, qpn: Qpn) -> Result<u32, FabricError> {
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
    pub(super) fn post(&mut self, port: &Port, qpn: Qpn, post: Post) -> Result<(), FabricError> {
        let Some(queue_pair) = self.queue_pairs.get_mut(&qpn.0) else {
            return Err(FabricError::UnknownQp(qpn.0));
        };
        let (qp, context) = (Arc::clone(&queue_pair.qp), queue_pair.context);
        self.under_way += 1;
        match &mut queue_pair.connection {
            Some(connection) if !connection.broken.is_broken() => {
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
    pub(super) fn mend(&mut self, port: &Port, qpn: Qpn) -> Result<(), FabricError> {
        let queue_pair = self.queue_pairs.get_mut(&qpn.0);
        let Some((qp, connection)) =
            queue_pair.and_then(|qp| Some((Arc::clone(&qp.qp), qp.connection.as_mut()?)))
        else {
            return Ok(());
        };
        let peer = connection.peer;
        let mut prepared = 0;
        let works = connection.broken.retry(|| {
            qp.device.reset()?;
            prepared = qp.device.prepare(peer.port)?;
            qp.device
                .connect(&peer)
                .inspect_err(|_| port.device.doubt_port())
        });
        if works {
            let id = self.new_id();
            self.connections.insert(id, qpn.0);
            let queue_pair = self.queue_pairs.get_mut(&qpn.0);
            if let Some(connection) = queue_pair.and_then(|qp| qp.connection.as_mut()) {
                connection.id = id;
            }
            // The completions of the time before still use room.
            self.drain(port.sending.queue())?;
            port.receiving.push(Change::Refill(qpn, prepared));
        }
        Ok(())
    }

    /// Takes completions. Returns how many.
    pub(super) fn drain(&mut self, queue: &CompletionQueue) -> Result<usize, FabricError> {
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

    pub(super) fn finish(&mut self, finished: Finished) {
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

    pub(super) fn is_broken(&self, qpn: u32) -> bool {
        let connection = self.queue_pairs.get(&qpn);
        let connection = connection.and_then(|qp| qp.connection.as_ref());
        connection.is_some_and(|connection| connection.broken.is_broken())
    }

    /// The device has broken a queue pair. Its requests count as departed.
    pub(super) fn fail(&mut self, qpn: u32) {
        let Some(queue_pair) = self.queue_pairs.get_mut(&qpn) else {
            return;
        };
        let context = queue_pair.context;
        let Some(connection) = &mut queue_pair.connection else {
            return;
        };
        // After this, the device does not read the memory of the requests. If the device is gone, it
        // does not read it either.
        let _ = queue_pair.qp.device.reset();
        if connection.broken.set() {
            self.broken.insert(qpn);
            self.any_broken.store(true, Ordering::Relaxed);
            self.worker.wake();
        }
        connection.posted = 0;
        // Later completions of the connection mean nothing.
        self.connections.remove(&connection.id);
        for post in std::mem::take(&mut connection.posts) {
            self.retire(qpn, context, post);
        }
    }

    /// The requests of a post have left.
    pub(super) fn retire(&mut self, qpn: u32, context: u64, post: Post) {
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
