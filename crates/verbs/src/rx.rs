//! The receive worker of a port.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farwrite_fabric::contract::{Completion, Ecn, FabricError, RxWorker, SendArrival, Sender};
use farwrite_fabric::udp::WakeEvent;

use crate::broken::BETWEEN_ATTEMPTS;
use crate::device::{Armed, Completions, Finished, Received, Receives, WC_WR_FLUSH_ERR};
use crate::epochs::Worker;
use crate::port::{Port, ReceiveBuffers};
use crate::receiving::{Change, Connection, Requests, parts};

/// Completions that are taken in one batch.
const BATCH: usize = 64;

/// The receive worker of a port of a [`VerbsFabric`](crate::VerbsFabric).
pub struct VerbsRx {
    port: Arc<Port>,
    worker: Worker,
    connections: HashMap<u64, Connection>,
    /// Connections with spare requests.
    touched: Vec<u64>,
    /// Connections whose requests are gone.
    gone: Vec<u64>,
    /// Room of connections that have ended. Their last completions may still be in the queue.
    ending: u32,
    receives: Receives,
    completions: Completions,
    finished: Vec<Finished>,
    armed: Armed,
}

impl VerbsRx {
    pub(crate) fn new(port: Arc<Port>, worker: Worker) -> Self {
        Self {
            port,
            worker,
            connections: HashMap::new(),
            touched: Vec::new(),
            gone: Vec::new(),
            ending: 0,
            receives: Receives::default(),
            completions: Completions::new(BATCH),
            finished: Vec::with_capacity(BATCH),
            armed: Armed::default(),
        }
    }

    /// Wakes this worker.
    pub(crate) fn wake_event(&self) -> &Arc<WakeEvent> {
        &self.port.receiving.wake_event
    }

    /// Readable when something arrives, after [`VerbsRx::prepare_to_sleep`].
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        self.port.receiving.queue.events()
    }

    /// Prepares to sleep until something arrives. Returns false if the caller must poll first.
    pub(crate) fn prepare_to_sleep(&self) -> Result<bool, FabricError> {
        self.armed.prepare(&self.port.receiving.queue)
    }

    /// How long a sleep may be that is to last for `at_most`: shorter while a queue pair is broken.
    pub(crate) fn sleep_at_most(&self, at_most: Duration) -> Duration {
        match self.port.sending.is_broken() {
            true => at_most.min(BETWEEN_ATTEMPTS),
            false => at_most,
        }
    }

    /// A sleep is over.
    pub(crate) fn woke(&self) {
        self.armed.woke(&self.port.receiving.queue);
    }

    fn update(&mut self) {
        for change in self.port.receiving.take() {
            match change {
                Change::Connect(connection) => {
                    self.connections.insert(connection.id, *connection);
                }
                Change::Disconnect(id) => {
                    let gone = self.connections.remove(&id);
                    self.ending += gone.map_or(0, |connection| connection.depth);
                }
                Change::Refill(qpn, resets) => {
                    let mut all = self.connections.values_mut();
                    if let Some(connection) = all.find(|connection| connection.qpn == qpn) {
                        (connection.requests, connection.resets) = (Requests::Gone, resets);
                        self.gone.push(connection.id);
                    }
                }
            }
        }
    }

    fn complete(
        &mut self,
        finished: &Finished,
        out: &mut Vec<Completion>,
    ) -> Result<(), FabricError> {
        let (id, index) = parts(finished.id);
        if !self.connections.contains_key(&id) {
            // The connection may have been made after the last update.
            self.update();
        }
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(());
        };
        let counts = &self.port.counts;
        let (qpn, context) = (connection.qpn, connection.context);
        let received = match &finished.result {
            Ok(received) => *received,
            Err(status) => {
                // The device broke the queue pair, so all requests fail. They are posted again when
                // it is connected again.
                if *status != WC_WR_FLUSH_ERR {
                    // No request could hold what arrived.
                    counts.no_receive.fetch_add(1, Ordering::Relaxed);
                }
                if connection.requests == Requests::Posted {
                    connection.requests = Requests::Broken;
                    let port = &self.port;
                    port.sending.fail(port, qpn, connection.resets)?;
                }
                return Ok(());
            }
        };
        if connection.requests == Requests::Posted {
            connection.spare.push(index);
            self.touched.push(id);
        }
        let datagram = match received {
            Received::Write { imm, bytes } => {
                out.push(Completion::Write {
                    qpn,
                    context,
                    imm,
                    bytes,
                    ecn: Ecn::NotEct,
                    arrived_ns: None,
                });
                self.port.address.write_bytes(bytes.into())
            }
            Received::Other { bytes } => {
                let ReceiveBuffers::Own(buffers) = &connection.qp.buffers else {
                    counts.no_receive.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                };
                let payload = buffers.read(index.into(), bytes)?;
                out.push(Completion::Send(Box::new(SendArrival {
                    qpn,
                    context,
                    payload,
                    from: Sender::Validated,
                    ecn: Ecn::NotEct,
                    arrived_ns: None,
                })));
                self.port.address.send_bytes(bytes.into())
            }
        };
        counts.received_packets.fetch_add(1, Ordering::Relaxed);
        counts.received_bytes.fetch_add(datagram, Ordering::Relaxed);
        Ok(())
    }

    /// Posts requests again: those with buffers at once, others where a quarter of them is spare.
    fn refill(&mut self) {
        self.touched.sort_unstable();
        self.touched.dedup();
        let (connections, receives) = (&mut self.connections, &mut self.receives);
        self.touched.retain(|id| {
            let Some(connection) = connections.get_mut(id) else {
                return false;
            };
            let is_few = connection.spare.len() * 4 < connection.depth as usize;
            if connection.requests != Requests::Posted {
                return false;
            }
            if is_few && matches!(connection.qp.buffers, ReceiveBuffers::Shared(_)) {
                return true;
            }
            match connection.refill(receives) {
                // It was reset, and the worker will know.
                Ok(()) | Err(FabricError::NotConnected(_)) => false,
                Err(_) => true,
            }
        });
    }
}

impl RxWorker for VerbsRx {
    fn poll(&mut self, out: &mut Vec<Completion>) -> Result<bool, FabricError> {
        self.worker.begin_batch();
        self.update();
        self.port.device.check_works()?;
        self.port.sending.mend(&self.port)?;
        // Changes that are found later are for the next call.
        let (gone, ending) = (
            std::mem::take(&mut self.gone),
            std::mem::take(&mut self.ending),
        );
        let mut finished = std::mem::take(&mut self.finished);
        finished.clear();
        let queue = Arc::clone(&self.port.receiving.queue);
        let polled = queue.poll(&mut self.completions, |one| finished.push(one));
        let mut result = polled.map(|count| count == self.completions.len());
        for one in &finished {
            result = result.and_then(|more| self.complete(one, out).map(|()| more));
        }
        if !finished.is_empty() {
            self.armed.disarm();
            self.refill();
        }
        if matches!(result, Ok(false)) {
            // The queue is empty, so no completion of an earlier request is left.
            for id in gone {
                let connection = self.connections.get_mut(&id);
                if let Some(connection) = connection.filter(|c| c.requests == Requests::Gone) {
                    let filled = connection.fill(&mut self.receives);
                    // A queue pair that was reset again is filled after that.
                    if filled.is_err_and(|e| !matches!(e, FabricError::NotConnected(_))) {
                        connection.requests = Requests::Broken;
                        let (qpn, resets) = (connection.qpn, connection.resets);
                        self.port.sending.fail(&self.port, qpn, resets)?;
                    }
                }
            }
            self.port.receiving.release(ending);
        } else {
            self.gone.extend(gone);
            self.ending += ending;
        }
        self.finished = finished;
        result
    }

    fn end_batch(&mut self) {
        self.worker.end_batch();
    }
}
