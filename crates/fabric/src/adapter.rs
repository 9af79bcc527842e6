//! A fabric whose ports are all driven by one thread.

use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::contract::{
    Completion, Departed, Fabric, FabricError, QpAttr, Qpn, RealTime, RxWorker, TxQueue, Window,
    WriteWr,
};

/// A fabric with the queues and workers of all its ports.
///
/// It dereferences to the control object. Queue pairs are made and ended here, so that it is known
/// which port they use.
pub struct Adapter<F: Fabric> {
    fabric: F,
    tx: Vec<F::Tx>,
    rx: Vec<F::Rx>,
    ports: HashMap<Qpn, u16>,
    /// Windows that were closed and not asked for.
    closed: HashSet<Window>,
}

impl<F: Fabric> Adapter<F> {
    /// Takes all queues and workers of a fabric.
    ///
    /// # Errors
    /// [`FabricError::InUse`] if one was taken before.
    pub fn new(mut fabric: F) -> Result<Self, FabricError> {
        let ports = 0..fabric.capabilities().ports;
        let tx = ports.clone().map(|port| fabric.take_tx(port));
        let tx = tx.collect::<Result<_, _>>()?;
        let rx = ports.map(|port| fabric.take_rx(port));
        let rx = rx.collect::<Result<_, _>>()?;
        Ok(Self {
            fabric,
            tx,
            rx,
            ports: HashMap::new(),
            closed: HashSet::new(),
        })
    }

    /// [`Fabric::create_qp`].
    ///
    /// # Errors
    /// The fabric's.
    pub fn create_qp(&mut self, attr: QpAttr) -> Result<Qpn, FabricError> {
        let qpn = self.fabric.create_qp(attr)?;
        self.ports.insert(qpn, attr.port);
        Ok(qpn)
    }

    /// [`Fabric::destroy_qp`].
    ///
    /// # Errors
    /// The fabric's.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        self.fabric.destroy_qp(qpn)?;
        self.ports.remove(&qpn);
        Ok(())
    }

    /// [`TxQueue::post_writes`] on the queue pair's port.
    ///
    /// # Errors
    /// The port's.
    pub fn post_writes(&mut self, qpn: Qpn, writes: &[WriteWr<'_>]) -> Result<usize, FabricError> {
        self.tx(qpn)?.post_writes(qpn, writes)
    }

    /// [`TxQueue::post_send`] on the queue pair's port.
    ///
    /// # Errors
    /// The port's.
    pub fn post_send(&mut self, qpn: Qpn, payload: &[u8]) -> Result<bool, FabricError> {
        self.tx(qpn)?.post_send(qpn, payload)
    }

    /// Polls the worker of every port; returns whether more may be waiting. The workers are then in
    /// a batch: see [`Adapter::end_batch`].
    ///
    /// # Errors
    /// The first port's that has one, after all ports were polled.
    pub fn poll(&mut self, arrived: &mut Vec<Completion>) -> Result<bool, FabricError> {
        let mut result = Ok(false);
        for rx in &mut self.rx {
            let polled = rx.poll(arrived);
            result = result.and_then(|more| Ok(more | polled?));
        }
        result
    }

    /// Ends the batch of every worker: the completions are handled. Windows that are closed are not
    /// reported before that.
    pub fn end_batch(&mut self) {
        self.rx.iter_mut().for_each(RxWorker::end_batch);
    }

    /// Polls the queue of every port.
    ///
    /// # Errors
    /// As [`Adapter::poll`].
    pub fn poll_departed(&mut self, departed: &mut Vec<Departed>) -> Result<(), FabricError> {
        let mut result = Ok(());
        for tx in &mut self.tx {
            result = result.and(tx.poll(departed));
        }
        result
    }

    /// Whether a window is closed, as [`Fabric::poll_closed`] reports it. Says so once: the caller
    /// must ask for every window that it closes.
    pub fn take_closed(&mut self, window: Window) -> bool {
        while let Some(closed) = self.fabric.poll_closed() {
            self.closed.insert(closed);
        }
        self.closed.remove(&window)
    }

    /// Hands the workers of all ports out, to be driven by threads of their own. From now on
    /// [`Adapter::poll`] brings nothing, and [`Adapter::wait`] does not wait for arrivals. Empty if
    /// they were handed out before.
    pub fn take_workers(&mut self) -> Vec<F::Rx> {
        std::mem::take(&mut self.rx)
    }

    fn tx(&mut self, qpn: Qpn) -> Result<&mut F::Tx, FabricError> {
        let port = self.ports.get(&qpn);
        let tx = port.and_then(|&port| self.tx.get_mut(usize::from(port)));
        tx.ok_or(FabricError::UnknownQp(qpn.0))
    }
}

impl<F: RealTime> Adapter<F> {
    /// [`RealTime::wait`] with all workers that the adapter has.
    ///
    /// # Errors
    /// The fabric's.
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
