//! A member over UDP, with a thread that runs it.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use farwrite::fabric::contract::Waker;
use farwrite::fabric::threads;
use farwrite::{Endpoint, RealTime, UdpConfig};
use farwrite_deadline::CutCounts;

use crate::binding::Binding;
use crate::buffer::Buffers;
use crate::driver::{self, Call, Start};
use crate::error::CollectiveError;
use crate::group_view::GroupView;
use crate::operation::Operation;
use crate::options::{GroupOptions, OperationOptions};
use crate::plan;
use crate::rendezvous::{Rendezvous, Terms};
use crate::seal;
use crate::ticket::{Completion, Ticket};

/// How a [`Communicator`] is created.
#[derive(Clone)]
pub struct CommunicatorOptions {
    /// The address of this rank on its machine. It must not be the unspecified address. Port 0
    /// selects a free port.
    pub address: SocketAddr,
    /// The address at which the other ranks reach this rank, if its machine does not have this
    /// address itself: the public address of 1:1 address translation, which must keep ports.
    pub advertised: Option<IpAddr>,
    /// The payload size of a packet in bytes: a multiple of 8. `None` selects the largest packets
    /// that all paths of the group carry, and a number of packets in a segment that keeps the size
    /// of segments. It replaces [`GroupOptions::packet_bytes`]. A path that does not carry packets of
    /// this size is an error.
    pub packet_bytes: Option<u32>,
    /// A secret that all ranks share. With it, the messages of [`Communicator::meet`] are encrypted
    /// and authenticated, so they can travel over a channel that others can read, and so are all data
    /// packets, as with [`GroupOptions::sealed`]. Without it, the messages must travel confidentially.
    pub key: Option<[u8; 32]>,
    /// Identifies this group among all others. It contains, for example, the names of the job and of the
    /// group. All ranks must have the same bytes. With a key, a rank refuses the messages of
    /// [`Communicator::meet`] that belong to another group, or to an earlier attempt to make this one.
    pub context: Vec<u8>,
    /// How the group works.
    pub group: GroupOptions,
    /// How long the drop of a communicator waits for other ranks to confirm the data that it sent
    /// to them; at most one second if the group has ended with an error.
    pub linger: Duration,
}

impl CommunicatorOptions {
    /// The defaults for an address: no key, and a linger time of 5 seconds. For a loopback address,
    /// [`GroupOptions::loopback`] with its packet size, otherwise [`GroupOptions::default`] with the
    /// largest packets that the paths carry.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        let (group, packet_bytes) = match address.ip().is_loopback() {
            true => {
                let group = GroupOptions::loopback();
                let packet_bytes = group.packet_bytes;
                (group, Some(packet_bytes))
            }
            false => (GroupOptions::default(), None),
        };
        Self {
            address,
            advertised: None,
            packet_bytes,
            key: None,
            context: Vec::new(),
            group,
            linger: Duration::from_secs(5),
        }
    }
}

impl std::fmt::Debug for CommunicatorOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommunicatorOptions")
            .field("address", &self.address)
            .field("advertised", &self.advertised)
            .field("packet_bytes", &self.packet_bytes)
            .field("key", &self.key.map(|_| "secret"))
            .field("context", &self.context)
            .field("group", &self.group)
            .field("linger", &self.linger)
            .finish()
    }
}

/// One rank of one group over UDP sockets, with its own thread that makes progress.
///
/// Any thread may call it. No call except [`Communicator::meet`] and [`Ticket::wait`] waits for
/// another rank. Operations start in the order of [`Communicator::submit`], which must be the same at
/// all ranks. Any number of operations can be in flight. Dropping the communicator ends the
/// operations that still run as failed. The drop waits up to [`CommunicatorOptions::linger`] until
/// the other ranks have received what this rank sent.
pub struct Communicator {
    rank: usize,
    ranks: usize,
    /// The options of the group, once its packet size is known.
    agreed: OnceLock<Agreed>,
    key: Option<[u8; 32]>,
    binding: Mutex<Binding>,
    calls: Sender<Call>,
    waker: Waker,
    /// `None` after the thread is joined.
    thread: Option<JoinHandle<()>>,
}

/// What the ranks have agreed on.
struct Agreed {
    view: GroupView,
    packet_bytes: u32,
}

impl Communicator {
    /// Binds a socket and starts the thread. The group is usable after [`Communicator::meet`].
    ///
    /// # Errors
    /// [`CollectiveError::Argument`], or [`CollectiveError::Endpoint`] if the socket or the thread
    /// cannot be created.
    pub fn new(
        rank: usize,
        size: usize,
        options: CommunicatorOptions,
    ) -> Result<Self, CollectiveError> {
        let CommunicatorOptions {
            address,
            advertised,
            packet_bytes,
            key,
            context,
            mut group,
            linger,
        } = options;
        group.sealed |= key.is_some();
        let addresses = [("address", Some(address.ip())), ("advertised", advertised)];
        for (argument, ip) in addresses {
            if let Some(ip) = ip.filter(IpAddr::is_unspecified) {
                return Err(CollectiveError::Argument {
                    rank,
                    argument,
                    value: ip.to_string(),
                    expected: "an address that the other ranks can send to".into(),
                });
            }
        }
        let mut terms = Terms {
            rank,
            ranks: size,
            group,
            packet_bytes,
        };
        terms.check()?;
        let mut endpoint = Endpoint::over_udp(&UdpConfig::new(address))?;
        let waker = endpoint.fabric_mut().waker();
        let rendezvous = Rendezvous::new(endpoint, terms, advertised);
        let (calls, received) = mpsc::channel();
        let name = format!("farwrite-rank-{rank}");
        let thread = threads::spawn(name, move || driver::run(rendezvous, received, linger));
        let thread = thread.map_err(CollectiveError::thread)?;
        Ok(Self {
            rank,
            ranks: size,
            agreed: OnceLock::new(),
            key,
            binding: Mutex::new(Binding::new(rank, &context)),
            calls,
            waker,
            thread: Some(thread),
        })
    }

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of ranks in the group.
    #[must_use]
    pub fn size(&self) -> usize {
        self.ranks
    }

    /// The payload size of packets in bytes, once the ranks have agreed on it.
    #[must_use]
    pub fn packet_bytes(&self) -> Option<u32> {
        Some(self.agreed.get()?.packet_bytes)
    }

    /// Joins this rank to all others, in rounds. In each round, a rank gives a message to all others.
    /// `messages` holds the messages of all ranks in the last round, in the order of ranks, including
    /// this rank; nothing in the first call. Returns the message of this rank in the next round, or
    /// `None` when the rank is joined, which is after the same number of rounds at all ranks.
    ///
    /// One call waits for packets of the other ranks: their paths are found, for at most 10 seconds,
    /// across address translation. Of two ranks, the one with the lower number must be reachable at
    /// its address. The other one may be behind any address translation.
    ///
    /// Without [`CommunicatorOptions::key`], messages contain secrets and must travel confidentially.
    ///
    /// # Errors
    /// [`CollectiveError::Info`] names the rank whose message is invalid, and the reason;
    /// [`CollectiveError::Route`] names the rank to which there is no path;
    /// [`CollectiveError::Argument`].
    pub fn meet(&self, messages: Vec<Vec<u8>>) -> Result<Option<Vec<u8>>, CollectiveError> {
        let open = |(rank, message): (usize, Vec<u8>)| match &self.key {
            Some(key) => {
                seal::open(key, &message).map_err(|problem| CollectiveError::Info { rank, problem })
            }
            None => Ok(message),
        };
        let messages: Result<Vec<_>, _> = messages.into_iter().enumerate().map(open).collect();
        let mut binding = self.binding.lock().unwrap_or_else(PoisonError::into_inner);
        let messages = binding.open(&messages?)?;
        let (answer, answered) = mpsc::channel();
        self.call(Call::Meet(messages, answer));
        let stopped = |_| Err(CollectiveError::stopped(self.rank));
        let answer = answered.recv().unwrap_or_else(stopped)?;
        if let Some(group) = answer.agreed {
            let (view, packet_bytes) = (group.view(self.rank, self.ranks), group.packet_bytes);
            // A second agreement would be the same.
            let _ = self.agreed.set(Agreed { view, packet_bytes });
        }
        let message = answer.message.map(|message| binding.bind(&message));
        match (message, &self.key) {
            (Some(message), Some(key)) => seal::seal(key, &message).map(Some),
            (message, _) => Ok(message),
        }
    }

    /// Starts an operation with the default options: exact, with [`GroupOptions::timeout`].
    ///
    /// # Errors
    /// [`CollectiveError::Argument`], and [`CollectiveError::NotConnected`] before the group has met;
    /// the buffers are dropped in these cases. Every other failure is the outcome of the ticket.
    pub fn submit(
        &self,
        operation: Operation,
        buffers: Buffers,
    ) -> Result<Ticket, CollectiveError> {
        self.submit_with(operation, OperationOptions::default(), buffers)
    }

    /// Starts an operation.
    ///
    /// # Errors
    /// As [`Communicator::submit`].
    pub fn submit_with(
        &self,
        operation: Operation,
        options: OperationOptions,
        buffers: Buffers,
    ) -> Result<Ticket, CollectiveError> {
        let agreed = self.agreed.get().ok_or(CollectiveError::NotConnected)?;
        let plan = plan::plan(&agreed.view, &operation, options, &buffers);
        let plan = plan.inspect_err(|error| {
            if operation.is_collective() {
                self.refuse(error.to_string());
            }
        })?;
        let (completion, ticket) = Completion::new(self.rank);
        self.call(Call::Start(Box::new(Start {
            plan,
            buffers,
            timeout: options.timeout,
            completion,
        })));
        Ok(ticket)
    }

    /// How often a deadline cut the bounded operations of this rank, and how much data that cost.
    /// Only operations that had a limit count.
    #[must_use]
    pub fn cut_counts(&self) -> CutCounts {
        let (answer, answered) = mpsc::channel();
        self.call(Call::CutCounts(answer));
        answered.recv().unwrap_or_default()
    }

    /// Notes that the next collective operation cannot start at this rank, for a reason that a
    /// caller has found before [`Communicator::submit`]; see [`Member::refuse`](crate::Member::refuse).
    pub fn refuse(&self, reason: String) {
        self.call(Call::Refuse(reason));
    }

    /// Whether this rank asks the others for signs of life even if no operation runs, until the next call; see
    /// [`Member::watch`](crate::Member::watch). Returns why the group cannot continue; `None` while
    /// it can.
    pub fn watch(&self, watches: bool) -> Option<CollectiveError> {
        self.failure_after(Some(watches))
    }

    /// Why the group cannot continue; `None` while it can.
    pub fn failure(&self) -> Option<CollectiveError> {
        self.failure_after(None)
    }

    fn failure_after(&self, watches: Option<bool>) -> Option<CollectiveError> {
        let (answer, answered) = mpsc::channel();
        self.call(Call::Watch(watches, answer));
        let stopped = |_| Some(CollectiveError::stopped(self.rank));
        answered.recv().unwrap_or_else(stopped)
    }

    /// Ends the group. Operations that run, and operations that are submitted later, fail with
    /// [`CollectiveError::Ended`] and this reason. An operation that has ended at this rank can
    /// still end at the others: this rank sends what it owes them until it is dropped, and the
    /// others wait for it for up to one second.
    pub fn abort(&self, reason: &str) {
        self.call(Call::Abort(reason.to_owned()));
    }

    /// Leaves the group, as the drop of the communicator does, but does not wait. No operation can
    /// start after that. What was sent still reaches the other ranks, for at most
    /// [`CommunicatorOptions::linger`].
    pub fn leave(&self) {
        self.call(Call::Stop);
    }

    fn call(&self, call: Call) {
        // If the thread has ended, the call is dropped, which ends its ticket.
        let _ = self.calls.send(call);
        self.waker.wake();
    }
}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key is a secret.
        f.debug_struct("Communicator")
            .field("rank", &self.rank)
            .field("size", &self.ranks)
            .finish_non_exhaustive()
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.call(Call::Stop);
        if let Some(thread) = self.thread.take() {
            // The thread itself has already reported a panic.
            let _ = thread.join();
        }
    }
}
