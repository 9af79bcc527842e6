//! The measured work: tasks that run on the thread of the endpoint, after each of its polls.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use farwrite::fabric::threads::lock;
use farwrite::{
    Endpoint, Error, ExposedRegion, Fabric, MemoryRegion, Outcome, QueuePair, ReadOptions,
    RecvHandle, RecvOptions, SchemeTag, SendHandle, SendOptions, TaskState,
};

use super::control::Arrived;

/// The highest number of completions whose times are kept.
pub(super) const MOST_TIMES: usize = 20_000;

/// Work that a task does with the endpoint.
pub(super) trait Work: Send {
    /// Does what can be done now. Returns whether anything was posted.
    fn step<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Result<bool, Error>;
}

/// Work, shared between the thread of the endpoint and the one that waits for it.
pub(super) struct Shared<W>(Arc<Mutex<Held<W>>>);

pub(super) struct Held<W> {
    pub(super) work: W,
    pub(super) error: Option<Error>,
    stopped: bool,
}

impl<W: Work + 'static> Shared<W> {
    pub(super) fn new(work: W) -> Self {
        Self(Arc::new(Mutex::new(Held {
            work,
            error: None,
            stopped: false,
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Held<W>> {
        lock(&self.0)
    }

    /// The task that follows each poll of the endpoint.
    pub(super) fn task<F: Fabric + 'static>(
        &self,
    ) -> impl FnMut(&mut Endpoint<F>) -> TaskState + Send + use<F, W> + 'static {
        let shared = Self(Arc::clone(&self.0));
        move |endpoint| {
            let mut held = shared.lock();
            if held.stopped || held.error.is_some() {
                return TaskState::Done;
            }
            match held.work.step(endpoint) {
                Ok(true) => TaskState::Worked,
                Ok(false) => TaskState::Idle,
                Err(error) => {
                    held.error = Some(error);
                    TaskState::Done
                }
            }
        }
    }

    pub(super) fn stop(&self) {
        self.lock().stopped = true;
    }
}

/// When a measurement ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Goal {
    /// After this number of messages of each queue pair.
    Messages(u64),
    /// After this time.
    Time(Duration),
}

impl Goal {
    fn is_met(self, messages: u64, passed: Duration) -> bool {
        match self {
            Self::Messages(most) => messages >= most,
            Self::Time(most) => passed >= most,
        }
    }
}

/// A message or a read under way.
enum Posted {
    Send(SendHandle),
    Read(RecvHandle),
}

impl Posted {
    fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Send(send) => send.outcome(),
            Self::Read(read) => read.outcome(),
        }
    }
}

/// A queue pair of [`Asking::Load`], and its memory.
pub(super) struct Flow {
    pub(super) qp: QueuePair,
    pub(super) memory: MemoryRegion,
    /// For reads: the memory of the server.
    pub(super) source: Option<ExposedRegion>,
    in_flight: VecDeque<Posted>,
    posted: u64,
}

impl Flow {
    pub(super) fn new(qp: QueuePair, memory: MemoryRegion, source: Option<ExposedRegion>) -> Self {
        Self {
            qp,
            memory,
            source,
            in_flight: VecDeque::new(),
            posted: 0,
        }
    }

    fn post<F: Fabric>(
        &self,
        endpoint: &mut Endpoint<F>,
        bytes: u64,
        scheme: SchemeTag,
    ) -> Result<Posted, Error> {
        let slice = self.memory.slice(0..bytes);
        match self.source {
            Some(source) => {
                let options = ReadOptions {
                    scheme,
                    ..ReadOptions::default()
                };
                endpoint
                    .post_read(self.qp, slice, source, 0, options)
                    .map(Posted::Read)
            }
            None => {
                let sent = endpoint.post_send(self.qp, slice, repaired_by(scheme));
                sent.map(Posted::Send)
            }
        }
    }
}

/// The options of a message whose losses this scheme repairs.
fn repaired_by(scheme: SchemeTag) -> SendOptions {
    SendOptions {
        scheme,
        ..SendOptions::default()
    }
}

/// The client of a test.
pub(super) struct Client {
    asking: Asking,
    scheme: SchemeTag,
    round: Option<Round>,
}

/// What the client of a test does.
pub(super) enum Asking {
    /// For bandwidth: it keeps this number of messages in flight on each queue pair.
    Load { flows: Vec<Flow>, depth: usize },
    /// For latency: it sends one message at a time, whose answer it awaits.
    PingPong(PingPong),
}

/// One size.
pub(super) struct Round {
    bytes: u64,
    goal: Goal,
    /// When the first message could be posted.
    started: Option<Instant>,
    /// When the work saw that the goal is met, and that nothing is in flight.
    pub(super) ended: Option<Instant>,
    /// Of [`Asking::Load`], messages and reads that are over, whether they have failed or not. Of [`PingPong`], 0.
    pub(super) completed: u64,
    /// How many of these have failed.
    pub(super) failed: u64,
    /// Of [`Asking::Load`], times of the first completions since the start. Of [`PingPong`], halves of round trips.
    pub(super) times: Vec<Duration>,
}

impl Round {
    fn new(bytes: u64, goal: Goal) -> Self {
        Self {
            bytes,
            goal,
            started: None,
            ended: None,
            completed: 0,
            failed: 0,
            times: Vec::new(),
        }
    }

    /// The time from the start until `now`; 0 before the start.
    fn passed(&self, now: Instant) -> Duration {
        self.started.map_or(Duration::ZERO, |start| now - start)
    }

    /// The time from the start to the end; 0 before the end.
    pub(super) fn time(&self) -> Duration {
        self.ended.map_or(Duration::ZERO, |end| self.passed(end))
    }
}

impl Client {
    pub(super) fn new(asking: Asking, scheme: SchemeTag) -> Self {
        Self {
            asking,
            scheme,
            round: None,
        }
    }

    pub(super) fn begin(&mut self, bytes: u64, goal: Goal) {
        self.round = Some(Round::new(bytes, goal));
    }

    /// The measurement, if it has ended.
    pub(super) fn take_ended(&mut self) -> Option<Round> {
        self.round.take_if(|round| round.ended.is_some())
    }
}

impl Work for Client {
    fn step<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Result<bool, Error> {
        let Some(round) = self.round.as_mut().filter(|round| round.ended.is_none()) else {
            return Ok(false);
        };
        let now = Instant::now();
        round.started.get_or_insert(now);
        match &mut self.asking {
            Asking::Load { flows, depth } => {
                load(endpoint, (flows, *depth), self.scheme, (round, now))
            }
            Asking::PingPong(pings) => pings.step(endpoint, self.scheme, (round, now)),
        }
    }
}

/// Does what can be done now for bandwidth. Returns whether anything was posted.
fn load<F: Fabric>(
    endpoint: &mut Endpoint<F>,
    (flows, depth): (&mut [Flow], usize),
    scheme: SchemeTag,
    (round, now): (&mut Round, Instant),
) -> Result<bool, Error> {
    let passed = round.passed(now);
    let (mut has_posted, mut is_over) = (false, true);
    for flow in &mut *flows {
        while let Some(outcome) = flow.in_flight.front().and_then(Posted::outcome) {
            flow.in_flight.pop_front();
            round.completed += 1;
            round.failed += u64::from(outcome == Outcome::Failed);
            if round.times.len() < MOST_TIMES {
                round.times.push(passed);
            }
        }
        while flow.in_flight.len() < depth && !round.goal.is_met(flow.posted, passed) {
            match flow.post(endpoint, round.bytes, scheme) {
                Ok(posted) => flow.in_flight.push_back(posted),
                Err(Error::Retry { .. }) => break,
                Err(error) => return Err(error),
            }
            flow.posted += 1;
            has_posted = true;
        }
        is_over &= flow.in_flight.is_empty() && round.goal.is_met(flow.posted, passed);
    }
    if is_over {
        round.ended = Some(now);
        flows.iter_mut().for_each(|flow| flow.posted = 0);
    }
    Ok(has_posted)
}

/// A queue pair of the server, and its buffers.
pub(super) struct Inbox {
    pub(super) qp: QueuePair,
    pub(super) buffers: Vec<MemoryRegion>,
    posted: VecDeque<RecvHandle>,
    /// Receives that were ever posted.
    count: usize,
    answers: VecDeque<u64>,
    answering: VecDeque<SendHandle>,
}

impl Inbox {
    pub(super) fn new(qp: QueuePair, buffers: Vec<MemoryRegion>) -> Self {
        Self {
            qp,
            buffers,
            posted: VecDeque::new(),
            count: 0,
            answers: VecDeque::new(),
            answering: VecDeque::new(),
        }
    }
}

/// The server of messages: it keeps receives posted, and answers each message if asked to.
pub(super) struct Receiver {
    pub(super) inboxes: Vec<Inbox>,
    /// Receives that are posted on each queue pair.
    pub(super) depth: usize,
    pub(super) scheme: SchemeTag,
    /// Whether each message is answered by one of the same length.
    pub(super) answers: bool,
    pub(super) arrived: Arrived,
}

/// Keeps `depth` receives posted, in turns onto the buffers.
fn post_receives<F: Fabric>(
    endpoint: &mut Endpoint<F>,
    inbox: &mut Inbox,
    depth: usize,
) -> Result<bool, Error> {
    let before = inbox.posted.len();
    let options = RecvOptions {
        accept_partial: true,
        ..RecvOptions::default()
    };
    while inbox.posted.len() < depth {
        let buffer = inbox.buffers[inbox.count % inbox.buffers.len()];
        match endpoint.post_recv_with(inbox.qp, buffer.whole(), options) {
            Ok(recv) => inbox.posted.push_back(recv),
            Err(Error::Retry { .. }) => break,
            Err(error) => return Err(error),
        }
        inbox.count += 1;
    }
    Ok(inbox.posted.len() > before)
}

impl Receiver {
    /// Counts the messages that have ended.
    pub(super) fn count(&mut self) {
        for inbox in &mut self.inboxes {
            while let Some(recv) = inbox.posted.front()
                && let Some(outcome) = recv.outcome()
            {
                let length = recv.length().unwrap_or(0);
                let arrived = &mut self.arrived;
                match outcome {
                    Outcome::Whole => {
                        arrived.whole += 1;
                        arrived.bytes += length;
                    }
                    Outcome::Partial => {
                        arrived.partial += 1;
                        arrived.bytes += recv.partial().map_or(0, |partial| partial.bytes());
                    }
                    Outcome::Failed => arrived.failed += 1,
                }
                if self.answers {
                    inbox.answers.push_back(length.max(1));
                }
                inbox.posted.pop_front();
            }
        }
    }
}

impl Work for Receiver {
    fn step<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Result<bool, Error> {
        let mut has_posted = false;
        self.count();
        for inbox in &mut self.inboxes {
            has_posted |= post_receives(endpoint, inbox, self.depth)?;
            inbox.answering.retain(|send| send.outcome().is_none());
            while let Some(&bytes) = inbox.answers.front() {
                let answer = inbox.buffers[0].slice(0..bytes);
                match endpoint.post_send(inbox.qp, answer, repaired_by(self.scheme)) {
                    Ok(send) => inbox.answering.push_back(send),
                    Err(Error::Retry { .. }) => break,
                    Err(error) => return Err(error),
                }
                inbox.answers.pop_front();
                has_posted = true;
            }
        }
        Ok(has_posted)
    }
}

/// The client of a latency test.
pub(super) struct PingPong {
    inbox: Inbox,
    out: MemoryRegion,
    /// When the message was posted whose answer is awaited.
    asked: Option<Instant>,
    sending: VecDeque<SendHandle>,
}

impl PingPong {
    pub(super) fn new(inbox: Inbox, out: MemoryRegion) -> Self {
        Self {
            inbox,
            out,
            asked: None,
            sending: VecDeque::new(),
        }
    }

    /// Does what can be done now. Returns whether anything was posted.
    fn step<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        scheme: SchemeTag,
        (round, now): (&mut Round, Instant),
    ) -> Result<bool, Error> {
        let mut has_posted = post_receives(endpoint, &mut self.inbox, 2)?;
        self.sending.retain(|send| send.outcome().is_none());
        let answer = self.inbox.posted.front().and_then(RecvHandle::outcome);
        if let Some(asked) = self.asked
            && answer.is_some()
        {
            self.inbox.posted.pop_front();
            round.times.push((now - asked) / 2);
            self.asked = None;
        }
        if self.asked.is_none() {
            let passed = round.passed(now);
            if round.goal.is_met(round.times.len() as u64, passed) {
                round.ended = Some(now);
                return Ok(has_posted);
            }
            let question = self.out.slice(0..round.bytes);
            match endpoint.post_send(self.inbox.qp, question, repaired_by(scheme)) {
                Ok(send) => {
                    self.sending.push_back(send);
                    self.asked = Some(now);
                    has_posted = true;
                }
                Err(Error::Retry { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(has_posted)
    }
}
