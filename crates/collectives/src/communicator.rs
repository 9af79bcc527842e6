//! A member over UDP, with a thread that runs it.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use farwrite::deadline::Tally;
use farwrite::fabric::contract::Waker;
use farwrite::{Endpoint, RealTime, UdpConfig, UdpFabric};

use crate::buffer::Buffers;
use crate::error::CollectiveError;
use crate::group_view::GroupView;
use crate::member::{Member, OperationId};
use crate::operation::Operation;
use crate::options::{GroupOptions, OperationOptions};
use crate::plan::{self, Plan};
use crate::seal;
use crate::ticket::{Completion, Ticket};

/// The longest sleep of the thread. Packets, timers and calls end the sleep at once.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// How a [`Communicator`] is created.
#[derive(Clone)]
pub struct CommunicatorOptions {
    /// The address of this rank, to which the other ranks send. It must not be the unspecified
    /// address. Port 0 selects a free port.
    pub address: SocketAddr,
    /// A secret that all ranks share. With it, [`Communicator::info`] is encrypted and
    /// authenticated, so it can travel over a channel that others can read. Without it, the
    /// information must travel confidentially.
    pub key: Option<[u8; 32]>,
    /// How the group works.
    pub group: GroupOptions,
    /// How long the drop of a communicator waits for other ranks to confirm the data that it sent
    /// to them.
    pub linger: Duration,
}

impl CommunicatorOptions {
    /// The defaults for an address: no key, a linger time of 5 seconds, and
    /// [`GroupOptions::loopback`] for a loopback address, otherwise [`GroupOptions::default`].
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        let group = match address.ip().is_loopback() {
            true => GroupOptions::loopback(),
            false => GroupOptions::default(),
        };
        Self {
            address,
            key: None,
            group,
            linger: Duration::from_secs(5),
        }
    }
}

impl std::fmt::Debug for CommunicatorOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommunicatorOptions")
            .field("address", &self.address)
            .field("key", &self.key.map(|_| "secret"))
            .field("group", &self.group)
            .field("linger", &self.linger)
            .finish()
    }
}

/// One rank of one group over UDP sockets, with its own thread that makes progress.
///
/// Any thread may call it. No call except [`Ticket::wait`] waits for another rank. Operations start
/// in the order of [`Communicator::submit`], which must be the same at all ranks. Any number of
/// operations can be in flight. Dropping the communicator ends the operations that still run as
/// failed. The drop waits up to [`CommunicatorOptions::linger`] until the other ranks have received
/// what this rank sent.
pub struct Communicator {
    view: GroupView,
    key: Option<[u8; 32]>,
    /// The information as [`Communicator::info`] returns it.
    info: Vec<u8>,
    calls: Sender<Call>,
    waker: Waker,
    /// `None` after the thread is joined.
    thread: Option<JoinHandle<()>>,
}

/// A request to the thread.
enum Call {
    Connect(Vec<Vec<u8>>, Sender<Result<(), CollectiveError>>),
    Start(Box<Start>),
    Tally(Sender<Tally>),
    Refuse(String),
    Abort(String),
    Stop,
}

struct Start {
    plan: Plan,
    buffers: Buffers,
    timeout: Option<Duration>,
    completion: Completion,
}

impl Communicator {
    /// Binds a socket and starts the thread. The group is usable after [`Communicator::connect`].
    ///
    /// # Errors
    /// [`CollectiveError::Argument`], or [`CollectiveError::Endpoint`] if the socket or the thread
    /// cannot be created.
    pub fn new(
        rank: usize,
        size: usize,
        options: CommunicatorOptions,
    ) -> Result<Self, CollectiveError> {
        if options.address.ip().is_unspecified() {
            return Err(CollectiveError::Argument {
                rank,
                argument: "address",
                value: options.address.to_string(),
                expected: "an address that the other ranks can send to".into(),
            });
        }
        let mut endpoint = Endpoint::over_udp(&UdpConfig::new(options.address))?;
        let waker = endpoint.fabric_mut().waker();
        let view = options.group.view(rank, size);
        let member = Member::new(endpoint, rank, size, options.group)?;
        let info = member.info()?;
        let info = match &options.key {
            Some(key) => seal::seal(key, &info)?,
            None => info,
        };
        let (calls, received) = mpsc::channel();
        let driver = Driver {
            member,
            calls: received,
            completions: Vec::new(),
            linger: options.linger,
        };
        let builder = Builder::new().name(format!("farwrite-rank-{rank}"));
        let thread = builder.spawn(move || driver.run());
        let thread = thread.map_err(CollectiveError::thread)?;
        Ok(Self {
            view,
            key: options.key,
            info,
            calls,
            waker,
            thread: Some(thread),
        })
    }

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.view.rank
    }

    /// The number of ranks in the group.
    #[must_use]
    pub fn size(&self) -> usize {
        self.view.ranks
    }

    /// The information that the other ranks need to [connect](Communicator::connect). Without
    /// [`CommunicatorOptions::key`] it contains secrets and must travel confidentially.
    ///
    /// # Errors
    /// None today. The result allows for a fabric that creates its information late.
    pub fn info(&self) -> Result<Vec<u8>, CollectiveError> {
        Ok(self.info.clone())
    }

    /// Joins this rank to all others. `infos` holds the result of [`Communicator::info`] of each
    /// rank, in the order of ranks, including this rank. The call does not wait for the others.
    ///
    /// # Errors
    /// [`CollectiveError::Info`] names the rank whose information is invalid, and the reason;
    /// [`CollectiveError::Argument`].
    pub fn connect(&self, infos: Vec<Vec<u8>>) -> Result<(), CollectiveError> {
        let open = |(rank, info): (usize, Vec<u8>)| match &self.key {
            Some(key) => {
                seal::open(key, &info).map_err(|problem| CollectiveError::Info { rank, problem })
            }
            None => Ok(info),
        };
        let infos: Result<Vec<_>, _> = infos.into_iter().enumerate().map(open).collect();
        let (answer, answered) = mpsc::channel();
        self.call(Call::Connect(infos?, answer));
        answered
            .recv()
            .unwrap_or_else(|_| Err(CollectiveError::stopped(self.view.rank)))
    }

    /// Starts an operation with the default options: exact, with [`GroupOptions::timeout`].
    ///
    /// # Errors
    /// [`CollectiveError::Argument`]; the buffers are dropped in this case. Every other failure is
    /// the outcome of the ticket.
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
        let plan = plan::plan(&self.view, &operation, options, &buffers);
        let plan = plan.inspect_err(|error| {
            if operation.is_collective() {
                self.refuse(error.to_string());
            }
        })?;
        let (completion, ticket) = Completion::new(self.view.rank);
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
    pub fn tally(&self) -> Tally {
        let (answer, answered) = mpsc::channel();
        self.call(Call::Tally(answer));
        answered.recv().unwrap_or_default()
    }

    /// Notes that the next collective operation cannot start at this rank, for a reason that a
    /// caller has found before [`Communicator::submit`]; see [`Member::refuse`].
    pub fn refuse(&self, reason: String) {
        self.call(Call::Refuse(reason));
    }

    /// Ends the group. Operations that run, and operations that are submitted later, fail with
    /// [`CollectiveError::Ended`] and this reason.
    pub fn abort(&self, reason: &str) {
        self.call(Call::Abort(reason.to_owned()));
    }

    fn call(&self, call: Call) {
        // If the thread has ended, the call is dropped, which ends its ticket.
        let _ = self.calls.send(call);
        self.waker.wake();
    }
}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key and the information are secrets.
        f.debug_struct("Communicator")
            .field("rank", &self.view.rank)
            .field("size", &self.view.ranks)
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

/// The state of the thread.
struct Driver {
    member: Member<UdpFabric>,
    calls: Receiver<Call>,
    /// The completions of the operations that run.
    completions: Vec<(OperationId, Completion)>,
    linger: Duration,
}

impl Driver {
    fn run(mut self) {
        let mut end = None;
        loop {
            let now_ns = self.member.endpoint_mut().fabric().now_ns();
            self.take_calls(now_ns, &mut end);
            let next_ns = self.member.poll_now();
            self.complete();
            let left = end.map(|end: Instant| end.saturating_duration_since(Instant::now()));
            let all_sent = self.member.in_flight(now_ns) == 0;
            if left.is_some_and(|left| all_sent || left.is_zero()) {
                break;
            }
            let at_most = left.unwrap_or(MAX_SLEEP).min(MAX_SLEEP);
            if let Err(error) = self.member.endpoint_mut().wait_until(next_ns, at_most) {
                self.member.fail(error.into());
                self.complete();
                break;
            }
        }
    }

    fn take_calls(&mut self, now_ns: u64, end: &mut Option<Instant>) {
        for call in self.calls.try_iter() {
            match call {
                Call::Connect(infos, answer) => {
                    // The caller waits for the answer.
                    let _ = answer.send(self.member.connect(&infos));
                }
                Call::Start(start) => {
                    let Start {
                        plan,
                        buffers,
                        timeout,
                        completion,
                    } = *start;
                    let id = self.member.start_plan(now_ns, plan, timeout, buffers);
                    self.completions.push((id, completion));
                }
                Call::Tally(answer) => {
                    let _ = answer.send(self.member.tally());
                }
                Call::Refuse(reason) => self.member.refuse(reason),
                Call::Abort(reason) => {
                    let rank = self.member.rank();
                    self.member.fail(CollectiveError::Ended { rank, reason });
                }
                Call::Stop => {
                    self.member.leave();
                    *end = Some(Instant::now() + self.linger);
                }
            }
        }
    }

    fn complete(&mut self) {
        while let Some(finished) = self.member.take_finished() {
            let place = self
                .completions
                .iter()
                .position(|(id, _)| *id == finished.id);
            if let Some(place) = place {
                let (_, completion) = self.completions.swap_remove(place);
                completion.complete(finished.result, finished.buffers);
            }
        }
    }
}
