//! Drives all ports of a fabric from one thread.

use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::contract::{
    Completion, Departed, Fabric, FabricError, QpAttr, Qpn, RealTime, RxWorker, TxQueue, Window,
    WriteWr,
};

/// A fabric together with the queues and workers of all its ports.
///
/// It dereferences to the control object. It creates and destroys queue pairs itself, so that it knows the
/// port of each.
pub struct Adapter<F: Fabric> {
    tx: Vec<F::Tx>,
    fabric: F,
    rx: Vec<F::Rx>,
    ports: HashMap<Qpn, usize>,
    /// Windows that are closed and that the caller has not asked for yet.
    closed: HashSet<Window>,
}

impl<F: Fabric> Adapter<F> {
    /// Takes all queues and workers of a fabric.
    ///
    /// # Errors
    /// [`FabricError::InUse`] if a queue or worker was taken before.
    pub fn new(mut fabric: F) -> Result<Self, FabricError> {
        let ports = 0..fabric.capabilities().ports;
        let tx = ports.clone().map(|port| fabric.take_tx(port));
        let tx = tx.collect::<Result<_, _>>()?;
        let rx = ports.map(|port| fabric.take_rx(port));
        let rx = rx.collect::<Result<_, _>>()?;
        Ok(Self {
            tx,
            fabric,
            rx,
            ports: HashMap::new(),
            closed: HashSet::new(),
        })
    }

    /// Same as [`Fabric::create_qp`].
    ///
    /// # Errors
    /// Those of [`Fabric::create_qp`].
    pub fn create_qp(&mut self, attr: QpAttr) -> Result<Qpn, FabricError> {
        let port = usize::from(attr.port);
        let qpn = self.fabric.create_qp(attr)?;
        self.ports.insert(qpn, port);
        Ok(qpn)
    }

    /// Same as [`Fabric::destroy_qp`].
    ///
    /// # Errors
    /// Those of [`Fabric::destroy_qp`].
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        self.fabric.destroy_qp(qpn)?;
        self.ports.remove(&qpn);
        Ok(())
    }

    /// Calls [`TxQueue::post_writes`] on the queue pair's port.
    ///
    /// # Errors
    /// Those of [`TxQueue::post_writes`].
    pub fn post_writes(&mut self, qpn: Qpn, writes: &[WriteWr<'_>]) -> Result<usize, FabricError> {
        self.tx_of(qpn)?.post_writes(qpn, writes)
    }

    /// Calls [`TxQueue::post_send`] on the queue pair's port.
    ///
    /// # Errors
    /// Those of [`TxQueue::post_send`].
    pub fn post_send(&mut self, qpn: Qpn, payload: &[u8]) -> Result<bool, FabricError> {
        self.tx_of(qpn)?.post_send(qpn, payload)
    }

    /// Calls [`TxQueue::hold_send`] on the queue pair's port.
    ///
    /// # Errors
    /// Those of [`TxQueue::hold_send`].
    pub fn hold_send(&mut self, qpn: Qpn, payload: &[u8]) -> Result<bool, FabricError> {
        self.tx_of(qpn)?.hold_send(qpn, payload)
    }

    /// Calls [`TxQueue::flush`] on every port. Returns whether nothing is left.
    ///
    /// # Errors
    /// The first error of a port. All ports are flushed before it is returned.
    pub fn flush(&mut self) -> Result<bool, FabricError> {
        let mut result = Ok(true);
        for tx in &mut self.tx {
            let flushed = tx.flush();
            result = result.and_then(|all| Ok(all & flushed?));
        }
        result
    }

    /// Polls the worker of every port. Returns whether more packets may be waiting. The workers
    /// stay in their batches until [`Adapter::end_batch`].
    ///
    /// # Errors
    /// The first error of a port. All ports are polled before it is returned.
    pub fn poll(&mut self, arrived: &mut Vec<Completion>) -> Result<bool, FabricError> {
        let mut result = Ok(false);
        for rx in &mut self.rx {
            let polled = rx.poll(arrived);
            result = result.and_then(|more| Ok(more | polled?));
        }
        result
    }

    /// Ends the batch of every worker. Call this after handling the completions. Closed windows are
    /// not reported before.
    pub fn end_batch(&mut self) {
        self.rx.iter_mut().for_each(RxWorker::end_batch);
    }

    /// Polls the queue of every port.
    ///
    /// # Errors
    /// Same as [`Adapter::poll`].
    pub fn poll_departed(&mut self, departed: &mut Vec<Departed>) -> Result<(), FabricError> {
        let mut result = Ok(());
        for tx in &mut self.tx {
            result = result.and(tx.poll(departed));
        }
        result
    }

    /// Whether [`Fabric::poll_closed`] has reported a window as closed. Returns true once for each
    /// window, so the caller must ask for every window that it closes.
    pub fn take_closed(&mut self, window: Window) -> bool {
        while let Some(closed) = self.fabric.poll_closed() {
            self.closed.insert(closed);
        }
        self.closed.remove(&window)
    }

    /// Hands out the workers of all ports, to be driven by other threads. After that,
    /// [`Adapter::poll`] returns no completions, and [`Adapter::wait`] does not wait for arrivals.
    /// Empty if the workers were handed out before.
    pub fn take_workers(&mut self) -> Vec<F::Rx> {
        std::mem::take(&mut self.rx)
    }

    /// The transmit queue of a queue pair's port.
    fn tx_of(&mut self, qpn: Qpn) -> Result<&mut F::Tx, FabricError> {
        let port = self.ports.get(&qpn);
        let tx = port.and_then(|port| self.tx.get_mut(*port));
        tx.ok_or(FabricError::UnknownQp(qpn.0))
    }
}

impl<F: RealTime> Adapter<F> {
    /// Calls [`RealTime::wait`] with all workers that the adapter has.
    ///
    /// # Errors
    /// Those of [`RealTime::wait`].
    pub fn wait(&mut self, at_most: Duration) -> Result<(), FabricError> {
        self.fabric.wait(at_most, &self.rx)
    }
}

impl<F: Fabric> Deref for Adapter<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.fabric
    }
}

impl<F: Fabric> DerefMut for Adapter<F> {
    fn deref_mut(&mut self) -> &mut F {
        &mut self.fabric
    }
}
