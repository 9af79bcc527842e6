//! The thread of a communicator: first it meets the other ranks, then it runs operations.

use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use farwrite::{RealTime, UdpFabric};
use farwrite_deadline::CutCounts;

use crate::buffer::Buffers;
use crate::error::CollectiveError;
use crate::member::{Member, OperationId, REPAIR_NS};
use crate::options::GroupOptions;
use crate::plan::Plan;
use crate::rendezvous::{Rendezvous, Routes};
use crate::ticket::Completion;

/// The longest sleep of the thread. Packets, timers and calls end the sleep at once.
const MAX_SLEEP: Duration = Duration::from_secs(1);
/// Replaces a time that is too long for the clock.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A request to the thread.
pub(crate) enum Call {
    /// The messages of all ranks in the last round, and where the answer goes.
    Meet(Vec<Vec<u8>>, Answer),
    Start(Box<Start>),
    CutCounts(Sender<CutCounts>),
    Refuse(String),
    /// Whether to ask the other ranks for signs of life while no operation runs (`None`: as before); the
    /// answer is why the group cannot continue.
    Watch(Option<bool>, Sender<Option<CollectiveError>>),
    Abort(String),
    Stop,
}

/// Where the answer to one round of [`Communicator::meet`](crate::Communicator::meet) goes.
pub(crate) type Answer = Sender<Result<RoundAnswer, CollectiveError>>;

/// The answer to one round.
pub(crate) struct RoundAnswer {
    /// The message of this rank in the next round; `None` after the last one.
    pub(crate) message: Option<Vec<u8>>,
    /// The options of the group, when the ranks have just agreed on them.
    pub(crate) agreed: Option<GroupOptions>,
}

/// An operation to start.
pub(crate) struct Start {
    pub(crate) plan: Plan,
    pub(crate) buffers: Buffers,
    pub(crate) timeout: Option<Duration>,
    pub(crate) completion: Completion,
}

/// The thread.
pub(crate) fn run(rendezvous: Rendezvous, calls: Receiver<Call>, linger: Duration) {
    if let Some((member, routes)) = meet(rendezvous, &calls) {
        let driver = Driver {
            member,
            routes,
            calls,
            completions: Vec::new(),
            linger,
        };
        driver.run();
    }
}

/// Meets the other ranks until the queue pairs exist. Returns `None` after an error, or if the owner
/// stops the thread before.
fn meet(mut rendezvous: Rendezvous, calls: &Receiver<Call>) -> Option<(Member<UdpFabric>, Routes)> {
    // Who waits until the routes are known.
    let mut waiting: Option<Answer> = None;
    loop {
        for call in calls.try_iter() {
            match call {
                Call::Meet(messages, answer) if rendezvous.is_sized() => {
                    return create(rendezvous, &messages, &answer);
                }
                Call::Meet(messages, answer) => match rendezvous.next(&messages) {
                    // The caller waits for the answer.
                    Ok(Some(message)) => {
                        let _ = answer.send(Ok(round_answer(message)));
                    }
                    Ok(None) => waiting = Some(answer),
                    Err(error) => {
                        let _ = answer.send(Err(error));
                        return None;
                    }
                },
                Call::Start(start) => {
                    let error = Err(CollectiveError::NotConnected);
                    start.completion.complete(error, start.buffers);
                }
                Call::CutCounts(answer) => {
                    let _ = answer.send(CutCounts::default());
                }
                Call::Watch(_, answer) => {
                    let _ = answer.send(None);
                }
                // No operation can start, so none is refused.
                Call::Refuse(_) => {}
                Call::Abort(_) | Call::Stop => return None,
            }
        }
        match (rendezvous.step(MAX_SLEEP), waiting.take()) {
            (Ok(Some(message)), Some(answer)) => {
                let _ = answer.send(Ok(round_answer(message)));
            }
            (Ok(_), answer) => waiting = answer,
            (Err(error), answer) => {
                if let Some(answer) = answer {
                    let _ = answer.send(Err(error));
                }
                return None;
            }
        }
    }
}

fn round_answer(message: Vec<u8>) -> RoundAnswer {
    RoundAnswer {
        message: Some(message),
        agreed: None,
    }
}

/// Creates the queue pairs, and answers with their information.
fn create(
    rendezvous: Rendezvous,
    messages: &[Vec<u8>],
    answer: &Answer,
) -> Option<(Member<UdpFabric>, Routes)> {
    let create = || {
        let (member, routes, group) = rendezvous.create(messages)?;
        let info = member.info()?;
        Ok((member, routes, group, info))
    };
    match create() {
        Ok((member, routes, group, info)) => {
            let _ = answer.send(Ok(RoundAnswer {
                message: Some(info),
                agreed: Some(group),
            }));
            Some((member, routes))
        }
        Err(error) => {
            let _ = answer.send(Err(error));
            None
        }
    }
}

/// Runs the operations of a member.
struct Driver {
    member: Member<UdpFabric>,
    routes: Routes,
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
            let kept = self.routes.keep(&mut self.member);
            let keep_ns = kept.unwrap_or_else(|error| {
                // The next poll informs the other ranks, unless the endpoint itself is broken.
                let again = matches!(error, CollectiveError::Route { .. }).then_some(now_ns);
                self.member.fail(error);
                again
            });
            self.complete();
            let left = end.map(|end: Instant| end.saturating_duration_since(Instant::now()));
            let all_sent = self.member.in_flight(now_ns) == 0;
            if left.is_some_and(|left| all_sent || left.is_zero()) {
                break;
            }
            let at_most = left.unwrap_or(MAX_SLEEP).min(MAX_SLEEP);
            let next_ns = next_ns.into_iter().chain(keep_ns).min();
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
                Call::Meet(messages, answer) => {
                    let connected = self.routes.connect(&mut self.member, &messages);
                    // The caller waits for the answer.
                    let _ = answer.send(connected.map(|()| RoundAnswer {
                        message: None,
                        agreed: None,
                    }));
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
                Call::CutCounts(answer) => {
                    let _ = answer.send(self.member.cut_counts());
                }
                Call::Watch(watches, answer) => {
                    if let Some(watches) = watches {
                        self.member.watch(watches);
                    }
                    let _ = answer.send(self.member.failure().cloned());
                }
                Call::Refuse(reason) => self.member.refuse(reason),
                Call::Abort(reason) => {
                    let rank = self.member.rank();
                    self.member.fail(CollectiveError::Ended { rank, reason });
                }
                Call::Stop => {
                    let has_ended = self.member.failure().is_some() || !self.member.is_idle();
                    let most = if has_ended {
                        Duration::from_nanos(REPAIR_NS)
                    } else {
                        CENTURY
                    };
                    let linger = self.linger.min(most);
                    self.member.leave();
                    let now = Instant::now();
                    end.get_or_insert(now.checked_add(linger).unwrap_or(now + CENTURY));
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
