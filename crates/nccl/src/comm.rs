//! A connection of NCCL: messages one way, over a queue pair of a connection of its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use farwrite::fabric::contract::FabricError;
use farwrite::{MemoryRegion, QpOptions, QpWaker};
use farwrite_choice::{SchemePicker, SchemeSetting};
use farwrite_connection::{Connection, OpenedQueuePair};

use crate::abi::MAX_REQUESTS;
use crate::failure::Failure;
use crate::logger;
use crate::memory::{self, Access};
use crate::request::Request;
use crate::table::next_number;
use crate::task::{Flow, Poster};

/// Bytes of the longest message: what NCCL assumes of plugins before version 9.
pub(crate) const LONGEST_BYTES: usize = 1 << 30;
/// The most chunks of a group of a code.
const MOST_GROUP: u64 = 256;
/// Requests that may wait to be posted. NCCL has at most 32.
const MOST_WAITING: usize = 4 * MAX_REQUESTS as usize;
/// How long the fabric may hold packets of a message that was cancelled, before the queue pair is closed for it.
const DEPARTURE_LIMIT: Duration = Duration::from_secs(5);
/// How long the peer may take to learn that the connection has ended.
const FAREWELL: Duration = Duration::from_secs(3);

/// The way of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// NCCL's `sendComm`.
    Send,
    /// NCCL's `recvComm`.
    Receive,
}

/// What `sendComm` and `recvComm` name.
pub(crate) struct Comm {
    pub(crate) direction: Direction,
    /// Where it goes, for people.
    way: String,
    pair: OpenedQueuePair,
    flow: Arc<Flow>,
    waker: QpWaker,
    registered: Mutex<HashMap<usize, Registered>>,
    /// Empty messages come from it.
    empty: MemoryRegion,
    /// Whether its failure was said.
    is_said: AtomicBool,
}

#[derive(Clone, Copy)]
struct Registered {
    base: usize,
    region: MemoryRegion,
}

/// The shape of queue pairs on a connection. Both ends have the same.
pub(crate) fn queue_pair(connection: &Connection, scheme: SchemeSetting) -> QpOptions {
    let mut options = QpOptions::default();
    options.sdr.mtu = connection.mtu();
    // A code has at most as much parity as data, and groups are not cut.
    options.sdr.max_message_bytes = LONGEST_BYTES as u64 + MOST_GROUP * u64::from(connection.mtu());
    // A slot is posted again only after the sender has used it (P3.6), so there are more slots than requests.
    options.sdr.slots = 4 * MAX_REQUESTS;
    options.sdr.split.id_bits = 8;
    options.sdr.split.offset_bits = 24;
    options.sdr.split.user_bits = 0;
    options.expected_scheme = scheme.most_parity().tag();
    options
}

impl Comm {
    /// Carries messages over a queue pair that both ends have opened.
    pub(crate) fn new(
        direction: Direction,
        pair: OpenedQueuePair,
        options: &QpOptions,
        scheme: SchemeSetting,
    ) -> Result<Self, Failure> {
        let registered = pair.call(|endpoint, _| endpoint.register(vec![0_u8; 1]));
        let empty = registered.map_err(remote)?.map_err(remote)?;
        let flow = Arc::<Flow>::default();
        let picker = match direction {
            Direction::Send => Some(SchemePicker::new(scheme, options, MAX_REQUESTS)),
            Direction::Receive => None,
        };
        let thread = pair.connection().thread();
        let qp = pair.queue_pair();
        let mut poster = Poster::new(Arc::clone(&flow), qp, picker);
        let added = thread.add_task_of(qp, move |endpoint| poster.run(endpoint));
        added.map_err(remote)?;
        let waker = thread.waker_of(qp);
        let at = pair.connection().peer_addr();
        let at = at.map_or_else(|| "a peer".into(), |at| at.to_string());
        let way = match direction {
            Direction::Send => format!("to {at}"),
            Direction::Receive => format!("from {at}"),
        };
        Ok(Self {
            direction,
            way,
            pair,
            flow,
            waker,
            registered: Mutex::default(),
            empty,
            is_said: AtomicBool::new(false),
        })
    }

    fn registered(&self) -> MutexGuard<'_, HashMap<usize, Registered>> {
        self.registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers memory. Returns its number.
    pub(crate) fn register(&self, base: usize, bytes: usize) -> Result<usize, Failure> {
        let region = if bytes == 0 {
            self.empty
        } else if base == 0 {
            return Err(Failure::argument("the address of the memory is NULL"));
        } else {
            let access = match self.direction {
                Direction::Send => Access::Read,
                Direction::Receive => Access::Write,
            };
            let region = memory::region(base, bytes, access);
            let registered = self
                .pair
                .call(move |endpoint, _| endpoint.register_region(region));
            let registered = registered.map_err(|_| self.failure())?;
            registered.map_err(|error| Failure::system(error.to_string()))?
        };
        let number = next_number();
        self.registered()
            .insert(number, Registered { base, region });
        Ok(number)
    }

    /// Ends a registration. When this returns, no packet comes from the memory or changes it.
    pub(crate) fn deregister(&self, number: usize) -> Result<(), Failure> {
        if !self.registered().contains_key(&number) {
            // The connection was closed before.
            return Ok(());
        }
        let cancelled = self.cancel(move |request| request.memory == number);
        cancelled.and(self.release(number))
    }

    /// Ends open requests, and waits until they have ended. Closes the queue pair if they do not end in time.
    fn cancel(&self, is_meant: impl Fn(&Request) -> bool + Send + 'static) -> Result<(), Failure> {
        let flow = Arc::clone(&self.flow);
        let cancelled = self
            .pair
            .call(move |endpoint, _| flow.cancel(endpoint, is_meant));
        let Ok(cancelled) = cancelled else {
            // Without its thread, the endpoint does nothing.
            return Ok(());
        };
        let have_ended = || {
            let mut requests = cancelled.iter();
            requests
                .all(|request| request.ending().is_some())
                .then_some(())
        };
        let thread = self.pair.connection().thread();
        match thread.wait(DEPARTURE_LIMIT, have_ended) {
            Ok(None) => Err(self.give_up()),
            Ok(Some(())) | Err(_) => Ok(()),
        }
    }

    /// Closes the queue pair, whose packets did not leave in time. Its messages end, and it sends and receives nothing
    /// more. What other threads do for it at the moment ends soon.
    fn give_up(&self) -> Failure {
        self.pair.close();
        Failure::internal(format!(
            "packets of a cancelled message have not left within {} s, so the connection {} is closed",
            DEPARTURE_LIMIT.as_secs(),
            self.way
        ))
    }

    /// Deregisters memory of which no message is open, and forgets its number. The fabric can hold packets of it for a
    /// moment, and this waits for them: at the limit it closes the queue pair, so they leave.
    fn release(&self, number: usize) -> Result<(), Failure> {
        let found = self.registered().get(&number).copied();
        let region = found.map(|registered| registered.region);
        let mut result = Ok(());
        if let Some(region) = region.filter(|region| *region != self.empty) {
            let start = Instant::now();
            while !self.try_release(region)? {
                if result.is_ok() && start.elapsed() >= DEPARTURE_LIMIT {
                    result = Err(self.give_up());
                }
                // No event says when they have left.
                sleep(Duration::from_millis(1));
            }
        }
        self.registered().remove(&number);
        result
    }

    /// Deregisters memory unless something uses it. Returns false if something does.
    fn try_release(&self, region: MemoryRegion) -> Result<bool, Failure> {
        // Dropping the region does not free the memory.
        let freed = self
            .pair
            .call(move |endpoint, _| endpoint.deregister(region).map(drop));
        match freed {
            Ok(Err(farwrite::Error::Fabric(FabricError::InUse(_)))) => Ok(false),
            // Without its thread, the endpoint does nothing.
            Ok(Ok(())) | Err(_) => Ok(true),
            Ok(Err(error)) => Err(Failure::system(error.to_string())),
        }
    }

    /// Starts a message of `bytes` bytes at `base`, in the registered memory `number`. Returns `None` if NCCL must ask
    /// again.
    pub(crate) fn start(
        &self,
        base: usize,
        bytes: usize,
        number: usize,
    ) -> Result<Option<Arc<Request>>, Failure> {
        if bytes > LONGEST_BYTES {
            return Err(Failure::argument(format!(
                "a message of {bytes} bytes: the longest has {LONGEST_BYTES}"
            )));
        }
        let bytes = bytes as u64;
        let slice = match bytes {
            0 => self.empty.slice(0..0),
            _ => {
                let registered = self.registered().get(&number).copied();
                let registered = registered.ok_or_else(|| {
                    Failure::argument(format!("{number} is no registered memory"))
                })?;
                let offset = base
                    .checked_sub(registered.base)
                    .map(|offset| offset as u64);
                let end = offset.and_then(|offset| offset.checked_add(bytes));
                match (offset, end) {
                    (Some(offset), Some(end)) if end <= registered.region.length() => {
                        registered.region.slice(offset..end)
                    }
                    _ => {
                        return Err(Failure::argument(format!(
                            "{bytes} bytes at {base:#x} leave the registered {} bytes at {:#x}",
                            registered.region.length(),
                            registered.base
                        )));
                    }
                }
            }
        };
        let request = Arc::new(Request::new(slice, number));
        if !self.flow.add(&request, MOST_WAITING) {
            return Ok(None);
        }
        self.waker.wake();
        Ok(Some(request))
    }

    /// Why a request has failed. NCCL is told once.
    pub(crate) fn failure(&self) -> Failure {
        let why = match (self.pair.connection().ended(), self.flow.failure()) {
            (Some(ended), _) => ended.to_string(),
            (None, Some(why)) => why.to_string(),
            (None, None) => "the peer has given a message up".into(),
        };
        self.fail(format!("the connection {} has failed: {why}", self.way))
    }

    /// A failure of this connection, with a text if none was said before.
    pub(crate) fn fail(&self, text: String) -> Failure {
        let is_said = self.is_said.swap(true, Ordering::Relaxed);
        Failure::remote(if is_said { String::new() } else { text })
    }

    /// Logs what was measured of the path. Only the end that sends knows it.
    fn report(&self) {
        let stats = self.pair.connection().peer_stats();
        if let (Direction::Send, Ok(stats)) = (self.direction, stats) {
            logger::info(&format!(
                "the connection {} ends: round trip {:.1} ms, pace {} Mbit/s, {} MB sent to this peer, {} packets \
                 dropped by its socket",
                self.way,
                Duration::from_nanos(stats.rtt_ns).as_secs_f64() * 1e3,
                stats.pace_bps / 1_000_000,
                stats.sent_bytes / 1_000_000,
                stats.peer_socket_drops
            ));
        }
    }

    /// Ends the connection. When this returns, nothing uses NCCL's memory. [`Comm::leave`] must follow.
    pub(crate) fn close(&self) -> Result<(), Failure> {
        self.report();
        self.flow.fail("NCCL has closed the connection");
        self.waker.wake();
        let cancelled = self.cancel(|_| true);
        let numbers: Vec<_> = self.registered().keys().copied().collect();
        let released = numbers.into_iter().map(|number| self.release(number));
        released.fold(cancelled, Result::and)
    }

    /// Ends the connection, and waits until the peer has acknowledged the end. The peer may still miss an
    /// acknowledgement of data. Only this end can repeat it, so this end must not leave earlier.
    pub(crate) fn leave(&self) {
        self.pair.connection().finish(FAREWELL);
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        let empty = self.empty;
        let thread = self.pair.connection().thread();
        // What the endpoint still holds goes with it.
        thread.post(move |endpoint| drop(endpoint.deregister(empty)));
    }
}

fn remote(error: impl std::fmt::Display) -> Failure {
    Failure::remote(error.to_string())
}
