//! One rank of a group, for `farwrite.torch`.
#![allow(unsafe_code)]

use std::mem::take;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use farwrite_collectives as collectives;
use farwrite_collectives::{
    Buffer, Buffers, CommunicatorOptions, Delivery, Missing, OperationOptions, Report,
};
use farwrite_deadline::RepairChoice;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::forked::Owner;
use crate::group_options::Settings;
use crate::operation;

pyo3::create_exception!(
    farwrite.torch,
    CollectiveError,
    PyRuntimeError,
    "An operation or its group has failed. The message names the rank."
);

/// Longest wait between two checks for signals, such as that of Ctrl-C.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// One rank of a group, which communicates over UDP.
#[pyclass(frozen, module = "farwrite._native")]
pub(crate) struct Communicator {
    rank: usize,
    owner: Owner,
    /// `None` after this rank has left the group.
    inner: Mutex<Option<Arc<collectives::Communicator>>>,
    /// The memory of operations that may still run.
    memory: Mutex<Vec<Arc<OperationMemory>>>,
    /// Why the group could not continue when this rank left it.
    failure: OnceLock<collectives::CollectiveError>,
}

/// Memory that an operation uses until its ticket is done. The views keep the memory at its address.
struct OperationMemory {
    owner: Owner,
    ticket: collectives::Ticket,
    views: Mutex<Vec<PyBuffer<u8>>>,
}

impl OperationMemory {
    /// Releases the memory of an operation that has ended.
    fn release(&self) {
        let views = take(&mut *lock(&self.views));
        // The lock is released first: dropping the views can run Python code, which may use this ticket.
        drop(views);
    }
}

#[pymethods]
impl Communicator {
    #[new]
    #[pyo3(signature = (rank, size, *, address, key, context, settings, advertised=None, packet_bytes=None, ports=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        rank: usize,
        size: usize,
        address: IpAddr,
        key: Option<[u8; 32]>,
        context: Vec<u8>,
        settings: Settings,
        advertised: Option<IpAddr>,
        packet_bytes: Option<u32>,
        ports: Option<(u16, u16)>,
    ) -> PyResult<Self> {
        let mut options = CommunicatorOptions::new(SocketAddr::new(address, 0));
        options.advertised = advertised;
        options.packet_bytes = packet_bytes.or(options.packet_bytes);
        options.key = key;
        options.context = context;
        let group = std::mem::take(&mut options.group);
        options.group = settings.options(rank, group)?;
        let inner = match ports {
            None => collectives::Communicator::new(rank, size, options).map_err(exception)?,
            Some(ports) => on_free_port(rank, size, &options, ports)?,
        };
        Ok(Self {
            rank,
            owner: Owner::current(rank),
            inner: Mutex::new(Some(Arc::new(inner))),
            memory: Mutex::default(),
            failure: OnceLock::new(),
        })
    }

    /// The bytes of data in a packet, on which the replay of an operation depends. None until the ranks
    /// have agreed on this size.
    #[getter]
    fn packet_bytes(&self) -> PyResult<Option<u32>> {
        Ok(self.open()?.packet_bytes())
    }

    /// Does one round of joining this rank to all other ranks. `messages` are the messages of all ranks in
    /// the round before, in the order of ranks. Returns the message of this rank in the next round; None
    /// after the last round.
    fn meet<'py>(
        &self,
        py: Python<'py>,
        messages: Vec<Vec<u8>>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let inner = self.open()?;
        let said = py.detach(|| inner.meet(messages)).map_err(exception)?;
        Ok(said.map(|said| PyBytes::new(py, &said)))
    }

    /// Starts an operation. It uses the memory of `input` and `output` until its ticket is done. `peer` is
    /// the root, or the other rank of a send or a receive. `timeout_s` replaces the timeout of the group.
    #[pyo3(signature = (
        operation, *, input=None, output=None, peer=0, tag=0, element=None, reduction=None,
        send_bytes=Vec::new(), receive_bytes=Vec::new(), bounded=false, timeout_s=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn submit(
        &self,
        operation: &str,
        input: Option<PyBuffer<u8>>,
        output: Option<PyBuffer<u8>>,
        peer: usize,
        tag: u32,
        element: Option<&str>,
        reduction: Option<&str>,
        send_bytes: Vec<u64>,
        receive_bytes: Vec<u64>,
        bounded: bool,
        timeout_s: Option<f64>,
    ) -> PyResult<Ticket> {
        let operation = operation::parse(
            operation,
            (element, reduction),
            (peer, tag),
            (send_bytes, receive_bytes),
        )?;
        let buffers = Buffers {
            input: input.as_ref().map(readable).transpose()?,
            output: output.as_ref().map(writable).transpose()?,
        };
        let delivery = match bounded {
            true => Delivery::Bounded,
            false => Delivery::Exact,
        };
        let timeout = timeout_s.map(|timeout| seconds("timeout_s", timeout));
        let options = OperationOptions {
            delivery,
            timeout: timeout.transpose()?,
            ..OperationOptions::default()
        };
        let ticket = self
            .open()?
            .submit_with(operation, options, buffers)
            .map_err(exception)?;
        let memory = Arc::new(OperationMemory {
            owner: self.owner,
            ticket,
            views: Mutex::new(input.into_iter().chain(output).collect()),
        });
        self.release_ended();
        lock(&self.memory).push(Arc::clone(&memory));
        Ok(Ticket(memory))
    }

    /// Notes that the next collective operation cannot start at this rank. The operation fails with this
    /// reason at ranks that wait for it, unless this rank has started it when they ask.
    fn refuse(&self, reason: String) {
        // After this rank has left the group, there is no next operation.
        if let Ok(inner) = self.open() {
            inner.refuse(reason);
        }
    }

    /// Ends the operations of all ranks with an error that contains the reason. Does nothing after `close`.
    fn abort(&self, reason: &str) {
        if let Ok(inner) = self.open() {
            inner.abort(reason);
        }
    }

    /// Why the group cannot continue: `timeout`, `remote` if another rank has ended it, or else `local`. None
    /// while it can.
    fn failure(&self, py: Python<'_>) -> Option<&'static str> {
        let failure = match self.open() {
            Ok(inner) => py.detach(|| inner.failure()),
            Err(_) => Some(self.closed()),
        };
        use collectives::CollectiveError::{Ended, Timeout};
        failure.map(|error| match error {
            Timeout { .. } => "timeout",
            Ended { rank, .. } if rank != self.rank => "remote",
            _ => "local",
        })
    }

    /// Sets whether this rank asks the other ranks for signs of life while no operation runs. Returns the
    /// reason why the group cannot continue; None while it can.
    fn watch(&self, py: Python<'_>, watches: bool) -> Option<String> {
        let failure = match self.open() {
            Ok(inner) => py.detach(|| inner.watch(watches)),
            Err(error) => return Some(error.value(py).to_string()),
        };
        failure.map(|error| error.to_string())
    }

    /// Leaves the group without waiting for the other ranks.
    fn leave(&self) {
        if let Ok(inner) = self.open() {
            inner.leave();
        }
    }

    /// Leaves the group. Waits for a limited time until the other ranks have what this rank sent to them. Does
    /// nothing in a process that was forked from this one.
    fn close(&self, py: Python<'_>) {
        if self.owner.check().is_err() {
            return;
        }
        py.detach(|| {
            let inner = lock(&self.inner).clone();
            if let Some(failure) = inner.and_then(|inner| inner.failure()) {
                // Two threads can close it at once.
                let _ = self.failure.set(failure);
            }
            let inner = lock(&self.inner).take();
            drop(inner);
        });
        // The thread of the group has ended, and so all operations have ended.
        self.release_ended();
    }
}

impl Communicator {
    fn open(&self) -> PyResult<Arc<collectives::Communicator>> {
        self.owner.check()?;
        let inner = lock(&self.inner).clone();
        inner.ok_or_else(|| exception(self.closed()))
    }

    /// The error of calls after `close`.
    fn closed(&self) -> collectives::CollectiveError {
        let left = || collectives::CollectiveError::Ended {
            rank: self.rank,
            reason: "the group was shut down".into(),
        };
        self.failure.get().cloned().unwrap_or_else(left)
    }

    /// Releases the memory of operations that have ended.
    fn release_ended(&self) {
        let mut memory = lock(&self.memory);
        let ended: Vec<_> = memory
            .extract_if(.., |memory| memory.ticket.is_done())
            .collect();
        // Releasing memory can run Python code, which may start operations, so the lock is released first.
        drop(memory);
        for memory in ended {
            memory.release();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if self.owner.check().is_err() {
            // Dropping it would wait for its thread, which a forked process does not have.
            let inner = self.inner.get_mut();
            std::mem::forget(inner.unwrap_or_else(PoisonError::into_inner).take());
            return;
        }
        // The group is closed before `memory` is released, because operations use the memory until then.
        Python::attach(|py| self.close(py));
    }
}

/// The results of an operation at this rank, which [`Ticket::wait`] returns.
#[pyclass(frozen, get_all, module = "farwrite._native")]
pub(crate) struct Ended {
    /// The number of the operation in the group.
    operation: u64,
    /// For a receive: the rank that has sent.
    source: Option<usize>,
    result_bytes: u64,
    missing_bytes: u64,
    elapsed_s: f64,
    /// The deadline of a bounded operation, or the timeout of an exact one, in seconds.
    timeout_s: f64,
    /// The scheme that carried a bounded operation.
    scheme: Option<String>,
    /// The schemes of the exact segments that this rank sent.
    exact_schemes: Vec<String>,
    /// The least share that would be missing, if the loss target cannot be met.
    least_missing_share: Option<f64>,
    /// Whether the deadline of a bounded operation came before everything had arrived.
    was_cut: bool,
    /// Ranges of bytes of the result: start, end, and the ranks whose contributions the range lacks.
    missing: Vec<(u64, u64, Vec<usize>)>,
    /// For each rank, the seconds after which its first and its last exact segment arrived.
    arrivals: Vec<(usize, f64, f64)>,
    /// For each rank, the round trip to it in seconds, the rate in bits per second, and the numbers of chunks
    /// that were judged and that were lost since the group began.
    peers: Vec<(usize, f64, u64, u64, u64)>,
}

impl From<Report> for Ended {
    fn from(report: Report) -> Self {
        let limit = report.limit.unwrap_or(report.timeout);
        let least_missing_share = match report.repair {
            Some((_, RepairChoice::CannotBeMet { least_ppm })) => Some(f64::from(least_ppm) / 1e6),
            _ => None,
        };
        let arrivals = report.arrivals.iter();
        let arrivals = arrivals.map(|a| (a.rank, a.first.as_secs_f64(), a.last.as_secs_f64()));
        let peers = report.peers.iter().map(|peer| {
            let rtt_s = peer.rtt.as_secs_f64();
            let (judged, lost) = (peer.judged_chunks, peer.lost_chunks);
            (peer.rank, rtt_s, peer.rate_bps, judged, lost)
        });
        let (arrivals, peers) = (arrivals.collect(), peers.collect());
        let missing = report.missing.into_iter();
        let missing = missing.map(|Missing { range, ranks }| (range.start, range.end, ranks));
        Self {
            operation: report.operation,
            source: report.source,
            result_bytes: report.bytes,
            missing_bytes: report.missing_bytes,
            elapsed_s: report.elapsed.as_secs_f64(),
            timeout_s: limit.as_secs_f64(),
            scheme: report.repair.map(|(scheme, _)| scheme.to_string()),
            exact_schemes: report.schemes.iter().map(ToString::to_string).collect(),
            least_missing_share,
            was_cut: report.was_cut,
            missing: missing.collect(),
            arrivals,
            peers,
        }
    }
}

/// An operation that has been started.
#[pyclass(frozen, module = "farwrite._native")]
pub(crate) struct Ticket(Arc<OperationMemory>);

#[pymethods]
impl Ticket {
    /// Whether the operation has ended.
    fn is_done(&self) -> PyResult<bool> {
        self.0.owner.check()?;
        Ok(self.0.ticket.is_done())
    }

    /// Waits for the end of the operation without the interpreter's lock, and releases its memory.
    fn wait(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<Ended> {
        self.0.owner.check()?;
        let timeout = timeout_s.map(|timeout| seconds("timeout_s", timeout));
        let end = timeout.transpose()?.map(|timeout| Instant::now() + timeout);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let slice = left.map_or(SIGNALS_EVERY, |left| left.min(SIGNALS_EVERY));
            let waited = py.detach(|| self.0.ticket.wait(slice));
            if matches!(waited, Err(collectives::CollectiveError::StillRunning))
                && left != Some(Duration::ZERO)
            {
                py.check_signals()?;
                continue;
            }
            if self.0.ticket.is_done() {
                self.0.release();
            }
            return Ok(waited.map_err(exception)?.into());
        }
    }
}

/// Memory that an operation reads.
fn readable(view: &PyBuffer<u8>) -> PyResult<Buffer> {
    raw_buffer("input", view)
}

/// Memory that an operation writes.
fn writable(view: &PyBuffer<u8>) -> PyResult<Buffer> {
    if view.readonly() {
        return Err(PyBufferError::new_err("output: must be writable memory"));
    }
    raw_buffer("output", view)
}

fn raw_buffer(argument: &str, view: &PyBuffer<u8>) -> PyResult<Buffer> {
    if !view.is_c_contiguous() {
        let why = format!("{argument}: must be contiguous memory");
        return Err(PyBufferError::new_err(why));
    }
    // SAFETY: the view is contiguous, so its `len_bytes` bytes follow each other from `buf_ptr` on. The
    // caller keeps the view, and so the bytes, in an `OperationMemory` until the ticket is done. `writable`
    // checks that an output may be written; an input is only read. The user of `submit` does not access the
    // memory until the ticket is done.
    Ok(unsafe { Buffer::from_raw_parts(view.buf_ptr().cast(), view.len_bytes()) })
}

pub(crate) fn seconds(argument: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|why| value_error(format!("{argument} = {value} s: {why}")))
}

pub(crate) fn value_error(why: impl ToString) -> PyErr {
    PyValueError::new_err(why.to_string())
}

/// Creates a communicator on the first port of a range that no other program uses.
fn on_free_port(
    rank: usize,
    size: usize,
    options: &CommunicatorOptions,
    (first, last): (u16, u16),
) -> PyResult<collectives::Communicator> {
    for port in first..=last {
        let mut options = options.clone();
        options.address.set_port(port);
        match collectives::Communicator::new(rank, size, options) {
            Err(error) if is_in_use(&error) => {}
            made => return made.map_err(exception),
        }
    }
    Err(CollectiveError::new_err(format!(
        "rank {rank}: other programs use all ports from {first} to {last} of {}: a range needs one port for \
         each group of each rank on this machine",
        options.address.ip()
    )))
}

fn is_in_use(error: &collectives::CollectiveError) -> bool {
    use farwrite::fabric::contract::FabricError;
    let collectives::CollectiveError::Endpoint(error) = error else {
        return false;
    };
    matches!(&**error, farwrite::Error::Fabric(FabricError::Io { source, .. })
        if source.kind() == std::io::ErrorKind::AddrInUse)
}

pub(crate) fn exception(error: collectives::CollectiveError) -> PyErr {
    let message = error.to_string();
    match error {
        collectives::CollectiveError::Argument { .. } => PyValueError::new_err(message),
        collectives::CollectiveError::StillRunning => PyTimeoutError::new_err(message),
        _ => CollectiveError::new_err(message),
    }
}
