//! A member over UDP, with a thread that drives it.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use farwrite::deadline::Tally;
use farwrite::fabric::contract::Waker;
use farwrite::{Endpoint, RealTime, UdpConfig, UdpFabric};

use crate::buffer::Buffers;
use crate::error::CollectiveError;
use crate::member::{Member, OperationId};
use crate::operation::Operation;
use crate::options::{GroupOptions, OperationOptions};
use crate::plan::{self, Plan};
use crate::seal;
use crate::sizes::Place;
use crate::ticket::{Completion, Ticket};

/// Longest sleep of the thread. Packets, timers and calls end it at once.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// How a [`Communicator`] is made.
#[derive(Clone)]
pub struct CommunicatorOptions {
    /// Address of this rank, which the others send to: not the unspecified address. Port 0: a free
    /// one.
    pub address: SocketAddr,
    /// A secret of all ranks. With it, [`Communicator::info`] is encrypted and authenticated, so it
    /// can travel by a way that others read. Without it, the information must travel confidentially.
    pub key: Option<[u8; 32]>,
    /// How the group works.
    pub group: GroupOptions,
    /// How long dropping a communicator waits for other ranks to confirm the data that was sent to
    /// them.
    pub linger: Duration,
}

impl CommunicatorOptions {
    /// The defaults at an address: no key, 5 seconds to linger, and [`GroupOptions::loopback`] at a
    /// loopback address, else those of [`GroupOptions::default`].
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

/// One rank of one group over UDP sockets, with a thread of its own that makes progress.
///
/// Any thread may call it, and no call but [`Ticket::wait`] waits for another rank. Operations start
/// in the order of [`Communicator::submit`], which must be the same at all ranks; any number can be
/// in flight. Dropping it ends the operations that still run as failed, and waits up to
/// [`CommunicatorOptions::linger`] until the others have what was sent.
pub struct Communicator {
    place: Place,
    key: Option<[u8; 32]>,
    /// As it is given out.
    info: Vec<u8>,
    calls: Sender<Call>,
    waker: Waker,
    /// `None` once it is joined.
    thread: Option<JoinHandle<()>>,
}

/// What the thread is asked to do.
enum Call {
    Connect(Vec<Vec<u8>>, Sender<Result<(), CollectiveError>>),
    Start(Box<Start>),
    Tally(Sender<Tally>),
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
    /// Binds a socket and starts the thread. The group is usable after
    /// [`Communicator::connect`].
    ///
    /// # Errors
    /// [`CollectiveError::Argument`], [`CollectiveError::Endpoint`] where the socket or the thread
    /// cannot be had.
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
        let place = options.group.place(rank, size);
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
            place,
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
        self.place.rank
    }

    /// Ranks of the group.
    #[must_use]
    pub fn size(&self) -> usize {
        self.place.ranks
    }

    /// What the other ranks need to [connect](Communicator::connect). Without
    /// [`CommunicatorOptions::key`] it holds secrets: it must travel confidentially.
    ///
    /// # Errors
    /// None today; those of a fabric that makes its information late.
    pub fn info(&self) -> Result<Vec<u8>, CollectiveError> {
        Ok(self.info.clone())
    }

    /// Joins this rank to all others. `infos` has what [`Communicator::info`] of each rank gave, in
    /// the order of ranks, its own included. It does not wait for the others.
    ///
    /// # Errors
    /// [`CollectiveError::Info`] names the rank whose information will not do, and why;
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
            .unwrap_or_else(|_| Err(CollectiveError::stopped(self.place.rank)))
    }

    /// Starts an operation with the defaults: exact, with [`GroupOptions::timeout`].
    ///
    /// # Errors
    /// [`CollectiveError::Argument`]; the buffers are dropped then. All else that goes wrong is the
    /// ticket's outcome.
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
        let plan = plan::plan(&self.place, &operation, options, &buffers)?;
        let (completion, ticket) = Completion::new(self.place.rank);
        self.call(Call::Start(Box::new(Start {
            plan,
            buffers,
            timeout: options.timeout,
            completion,
        })));
        Ok(ticket)
    }

    /// How often the bounded operations of this rank were cut, and what that cost. Operations count
    /// that had a limit.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let (answer, answered) = mpsc::channel();
        self.call(Call::Tally(answer));
        answered.recv().unwrap_or_default()
    }

    /// Ends the group: operations that run, and those that are submitted later, fail with
    /// [`CollectiveError::Ended`] and this reason.
    pub fn abort(&self, reason: &str) {
        self.call(Call::Abort(reason.to_owned()));
    }

    fn call(&self, call: Call) {
        // A thread that has ended drops the call, which ends its ticket.
        let _ = self.calls.send(call);
        self.waker.wake();
    }
}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key and the information are secrets.
        f.debug_struct("Communicator")
            .field("rank", &self.place.rank)
            .field("size", &self.place.ranks)
            .finish_non_exhaustive()
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.call(Call::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic was reported on the thread itself.
            let _ = thread.join();
        }
    }
}

/// What runs on the thread.
struct Driver {
    member: Member<UdpFabric>,
    calls: Receiver<Call>,
    /// Of the operations that run.
    completions: Vec<(OperationId, Completion)>,
    linger: Duration,
}

impl Driver {
    fn run(mut self) {
        let mut end = None;
        loop {
            let now_ns = self.member.endpoint_mut().fabric().now_ns();
            self.take_calls(now_ns, &mut end);
            let next_ns = self.member.poll(now_ns);
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
