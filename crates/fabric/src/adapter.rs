//! Drives all ports of a fabric from one thread.

use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::contract::{
    Capability, Completion, Departed, Fabric, FabricError, QpAttr, QpRoute, QpSealing, Qpn,
    RealTime, RealTimeTx, RemoteQp, RxWorker, TxQueue, Waker, Window, WriteWr,
};
use crate::sending::SendThread;

/// A fabric together with the queues and workers of all its ports.
///
/// It dereferences to the control object. It creates, changes and destroys queue pairs itself, so that it
/// knows the port of each, and a thread that sends hears of them.
pub struct Adapter<F: Fabric> {
    /// Dropped before `fabric`: threads send from registered memory, so they end first.
    tx: Vec<Sending<F::Tx>>,
    fabric: F,
    rx: Vec<F::Rx>,
    queue_pairs: HashMap<Qpn, Placed>,
    /// Windows that are closed and that the caller has not asked for yet.
    closed: HashSet<Window>,
}

/// Who sends the packets of a port.
enum Sending<T> {
    /// The caller, when it posts.
    Here(T),
    Thread(SendThread),
}

/// What the adapter knows of a queue pair.
#[derive(Clone, Copy)]
struct Placed {
    port: u16,
    /// [`QpAttr::context`].
    context: u64,
}

impl<F: Fabric> Adapter<F> {
    /// Takes all queues and workers of a fabric.
    ///
    /// # Errors
    /// [`FabricError::InUse`] if a queue or worker was taken before.
    pub fn new(mut fabric: F) -> Result<Self, FabricError> {
        let ports = 0..fabric.capabilities().ports;
        let tx = ports
            .clone()
            .map(|port| fabric.take_tx(port).map(Sending::Here));
        let tx = tx.collect::<Result<_, _>>()?;
        let rx = ports.map(|port| fabric.take_rx(port));
        let rx = rx.collect::<Result<_, _>>()?;
        Ok(Self {
            fabric,
            tx,
            rx,
            queue_pairs: HashMap::new(),
            closed: HashSet::new(),
        })
    }

    /// Same as [`Fabric::create_qp`].
    ///
    /// # Errors
    /// Those of [`Fabric::create_qp`].
    pub fn create_qp(&mut self, attr: QpAttr) -> Result<Qpn, FabricError> {
        let qpn = self.fabric.create_qp(attr)?;
        let (port, context) = (attr.port, attr.context);
        self.queue_pairs.insert(qpn, Placed { port, context });
        self.update_thread(qpn);
        Ok(qpn)
    }

    /// Same as [`Fabric::seal_qp`].
    ///
    /// # Errors
    /// Those of [`Fabric::seal_qp`].
    pub fn seal_qp(&mut self, qpn: Qpn, sealing: Option<QpSealing>) -> Result<(), FabricError> {
        self.fabric.seal_qp(qpn, sealing)?;
        self.update_thread(qpn);
        Ok(())
    }

    /// Same as [`Fabric::connect_qp`].
    ///
    /// # Errors
    /// Those of [`Fabric::connect_qp`].
    pub fn connect_qp(&mut self, qpn: Qpn, remote: RemoteQp) -> Result<(), FabricError> {
        self.fabric.connect_qp(qpn, remote)?;
        self.update_thread(qpn);
        Ok(())
    }

    /// Same as [`Fabric::set_route`].
    ///
    /// # Errors
    /// Those of [`Fabric::set_route`].
    pub fn set_route(&mut self, qpn: Qpn, route: QpRoute) -> Result<(), FabricError> {
        self.fabric.set_route(qpn, route)?;
        self.update_thread(qpn);
        Ok(())
    }

    /// Same as [`Fabric::destroy_qp`].
    ///
    /// # Errors
    /// Those of [`Fabric::destroy_qp`].
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        self.discard(qpn);
        self.fabric.destroy_qp(qpn)?;
        self.update_thread(qpn);
        self.queue_pairs.remove(&qpn);
        Ok(())
    }

    /// Same as [`Fabric::disconnect_qp`].
    ///
    /// # Errors
    /// Those of [`Fabric::disconnect_qp`].
    pub fn disconnect_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        self.discard(qpn);
        self.fabric.disconnect_qp(qpn)?;
        self.update_thread(qpn);
        Ok(())
    }

    /// Makes the thread of a queue pair's port, if it has one, drop the writes that it has not sent.
    fn discard(&self, qpn: Qpn) {
        if let Some(thread) = self.thread(qpn) {
            thread.discard(qpn);
        }
    }

    /// Makes the thread of a queue pair's port, if it has one, apply a change of the queue pair.
    fn update_thread(&self, qpn: Qpn) {
        if let Some(thread) = self.thread(qpn) {
            thread.update();
        }
    }

    fn thread(&self, qpn: Qpn) -> Option<&SendThread> {
        match &self.tx[self.port(qpn).ok()?] {
            Sending::Thread(thread) => Some(thread),
            Sending::Here(_) => None,
        }
    }

    /// Calls [`TxQueue::post_writes`] on the queue pair's port. If a thread sends, most errors come later, with
    /// [`Adapter::take_broken`].
    ///
    /// # Errors
    /// Those of [`TxQueue::post_writes`].
    pub fn post_writes(&mut self, qpn: Qpn, writes: &[WriteWr<'_>]) -> Result<usize, FabricError> {
        let port = self.port(qpn)?;
        match &mut self.tx[port] {
            Sending::Here(tx) => tx.post_writes(qpn, writes),
            Sending::Thread(thread) => {
                thread.post_writes(qpn, writes, |lkey| self.fabric.reader(lkey))
            }
        }
    }

    /// Calls [`TxQueue::post_send`] on the queue pair's port. If a thread sends, most errors come later, with
    /// [`Adapter::take_broken`].
    ///
    /// # Errors
    /// Those of [`TxQueue::post_send`].
    pub fn post_send(&mut self, qpn: Qpn, payload: &[u8]) -> Result<bool, FabricError> {
        let port = self.port(qpn)?;
        match &mut self.tx[port] {
            Sending::Here(tx) => tx.post_send(qpn, payload),
            Sending::Thread(thread) => Ok(thread.post_send(qpn, payload)),
        }
    }

    /// Calls [`TxQueue::hold_send`] on the queue pair's port. A thread that sends holds nothing.
    ///
    /// # Errors
    /// Those of [`TxQueue::hold_send`].
    pub fn hold_send(&mut self, qpn: Qpn, payload: &[u8]) -> Result<bool, FabricError> {
        let port = self.port(qpn)?;
        match &mut self.tx[port] {
            Sending::Here(tx) => tx.hold_send(qpn, payload),
            Sending::Thread(thread) => Ok(thread.post_send(qpn, payload)),
        }
    }

    /// Calls [`TxQueue::flush`] on every port. Returns whether nothing is left.
    ///
    /// # Errors
    /// The first error of a port. All ports are flushed before it is returned.
    pub fn flush(&mut self) -> Result<bool, FabricError> {
        let mut result = Ok(true);
        for sending in &mut self.tx {
            if let Sending::Here(tx) = sending {
                let flushed = tx.flush();
                result = result.and_then(|all| Ok(all & flushed?));
            }
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
    /// Same as [`Adapter::poll`]. If threads send, [`Adapter::check_send_threads`] returns their errors.
    pub fn poll_departed(&mut self, departed: &mut Vec<Departed>) -> Result<(), FabricError> {
        let mut result = Ok(());
        for sending in &mut self.tx {
            result = result.and(match sending {
                Sending::Here(tx) => tx.poll(departed),
                Sending::Thread(thread) => {
                    thread.take_departed(departed);
                    Ok(())
                }
            });
        }
        result
    }

    /// Checks that no thread that sends has failed. Memory can be deregistered all the same.
    ///
    /// # Errors
    /// [`FabricError::Io`] if the port of a thread has failed permanently.
    pub fn check_send_threads(&self) -> Result<(), FabricError> {
        let mut threads = self.tx.iter().filter_map(|sending| match sending {
            Sending::Thread(thread) => Some(thread),
            Sending::Here(_) => None,
        });
        threads.try_for_each(SendThread::check)
    }

    /// Whether threads send. Then the caller need not poll to learn that packets have left, or that there is room
    /// again: the threads wake it.
    pub fn has_send_threads(&self) -> bool {
        let is_thread = |sending: &Sending<_>| matches!(sending, Sending::Thread(_));
        self.tx.iter().any(is_thread)
    }

    /// Takes a queue pair whose packets a thread cannot send: its [`QpAttr::context`], and the error that the
    /// post would have returned without the thread.
    pub fn take_broken(&mut self) -> Option<(u64, FabricError)> {
        for sending in &self.tx {
            if let Sending::Thread(thread) = sending
                && let Some((qpn, error)) = thread.take_broken()
                && let Some(placed) = self.queue_pairs.get(&qpn)
            {
                return Some((placed.context, error));
            }
        }
        None
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

    /// The port of a queue pair, which has a place in `tx`.
    fn port(&self, qpn: Qpn) -> Result<usize, FabricError> {
        let placed = self.queue_pairs.get(&qpn);
        let port = placed.map(|placed| usize::from(placed.port));
        port.filter(|&port| port < self.tx.len())
            .ok_or(FabricError::UnknownQp(qpn.0))
    }
}

impl<F: Fabric<Tx: RealTimeTx + 'static>> Adapter<F> {
    /// Moves the queue of each port to a thread of its own. Posts then cost their copies; the threads seal
    /// packets and make the system calls. `owner` wakes the caller when packets have left, or there is room
    /// again. A second call does nothing.
    ///
    /// Changes of a route then also apply to packets that were posted before and have not left.
    ///
    /// # Errors
    /// [`FabricError::Unsupported`] if the fabric sends beside its caller without threads.
    /// [`FabricError::Io`] when the operating system cannot start a thread, or a port has failed
    /// permanently. The fabric then sends nothing, and later calls fail.
    pub fn start_send_threads(&mut self, owner: &Waker) -> Result<(), FabricError> {
        let is_slow = |sending: &Sending<F::Tx>| match sending {
            Sending::Here(tx) => tx.sends_in_posts(),
            Sending::Thread(_) => true,
        };
        if !self.tx.iter().all(is_slow) {
            return Err(FabricError::Unsupported(Capability::SendThreads));
        }
        if self.tx.is_empty() {
            return Err(FabricError::Io {
                what: "starting threads that send".into(),
                source: std::io::Error::other("an earlier call has failed"),
            });
        }
        let ports = std::mem::take(&mut self.tx).into_iter().enumerate();
        let started = ports.map(|(port, sending)| match sending {
            Sending::Here(tx) => SendThread::start(port, tx, owner).map(Sending::Thread),
            thread @ Sending::Thread(_) => Ok(thread),
        });
        // After an error, no port is left: they would send some packets of a queue pair, and not others.
        self.tx = started.collect::<Result<_, _>>()?;
        Ok(())
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
