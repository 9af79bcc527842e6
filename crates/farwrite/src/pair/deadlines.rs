//! Messages that end at their deadlines (P3.9).

use std::collections::BTreeSet;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::Fabric;
use farwrite_wire::control::{Outcome, Withdrawal};

use super::Pair;
use super::recv::OpenRecv;
use crate::error::Error;
use crate::registry::{Registry, TableArrivals};

/// The deadlines of open messages or writes.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    /// With the numbers of their messages, the earliest first. Each message has at most one.
    dated: BTreeSet<(u64, u64)>,
    /// Messages that get the default deadline at the next poll.
    undated: Vec<u64>,
}

impl Deadlines {
    pub(super) fn insert(&mut self, message: u64, deadline_ns: Option<u64>) {
        if let Some(deadline_ns) = deadline_ns {
            self.dated.insert((deadline_ns, message));
        }
    }

    /// Lets a message without a deadline get the default one.
    pub(super) fn date_later(&mut self, message: u64) {
        self.undated.push(message);
    }

    pub(super) fn remove(&mut self, message: u64, deadline_ns: Option<u64>) {
        if let Some(deadline_ns) = deadline_ns {
            self.dated.remove(&(deadline_ns, message));
        }
    }

    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<u64> {
        let due = self.next_ns().is_some_and(|at_ns| at_ns <= now_ns);
        let (_, message) = due.then(|| self.dated.pop_first())??;
        Some(message)
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.dated.first().map(|&(deadline_ns, _)| deadline_ns)
    }
}

impl Pair {
    /// Gives the default deadline to messages that were posted without one since the last poll.
    pub(super) fn date_messages(&mut self, now_ns: u64) {
        let limit = self.options.default_deadline;
        let limit_ns = limit.map_or(0, |limit| {
            u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)
        });
        let deadline_ns = now_ns.saturating_add(limit_ns);
        let deadlines = &mut self.send.deadlines;
        for message in std::mem::take(&mut deadlines.undated) {
            if let Some(send) = self.send.open.get_mut(&message) {
                send.deadline_ns = Some(deadline_ns);
                deadlines.insert(message, send.deadline_ns);
            }
        }
        let deadlines = &mut self.recv.deadlines;
        for message in std::mem::take(&mut deadlines.undated) {
            if let Some(recv) = self.recv.open.get_mut(&message) {
                recv.deadline_ns = Some(deadline_ns);
                deadlines.insert(message, recv.deadline_ns);
            }
        }
    }

    /// Ends the receives whose deadline has passed: as whole if all has arrived, otherwise as
    /// partial, or as failed if critical ranges are missing. Returns whether there were any.
    pub(super) fn expire_receives<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        now_ns: u64,
    ) -> Result<bool, Error> {
        let mut any = false;
        while let Some(message) = self.recv.deadlines.pop_due(now_ns) {
            self.end_recv_early(fabric, message)?;
            any = true;
        }
        Ok(any)
    }

    /// Ends a receive as at its deadline.
    fn end_recv_early<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        message: u64,
    ) -> Result<(), Error> {
        let received = self.sdr.received();
        let is_whole = received.is_complete(message) && received.immediate_is_whole(message);
        let outcome = match is_whole {
            true => Outcome::Whole,
            false if self.may_end_partial(message) => Outcome::Partial,
            false => Outcome::Failed,
        };
        self.complete_recv(fabric, message, outcome)
    }

    /// Ends the messages of bounded schemes as at their deadlines.
    pub(crate) fn end_bounded<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        known: &Registry,
    ) -> Result<(), Error> {
        let is_bounded = |recv: &OpenRecv| recv.repair.is_some_and(|repair| repair.is_bounded);
        let open = self.recv.open.iter().filter(|(_, recv)| is_bounded(recv));
        let received: Vec<u64> = open.map(|(message, _)| *message).collect();
        for message in received {
            self.end_recv_early(fabric, message)?;
        }
        let open = self.send.open.iter();
        let bounded = open.filter(|(_, send)| known.is_bounded(send.scheme));
        let sent: Vec<u64> = bounded.map(|(message, _)| *message).collect();
        for message in sent {
            self.end_send_early(message);
        }
        Ok(())
    }

    fn may_end_partial(&mut self, message: u64) -> bool {
        let Some(recv) = self.recv.open.get(&message) else {
            return false;
        };
        let receiver = recv.scheme().and_then(|tag| self.halves.receivers.get(tag));
        match receiver {
            Some(receiver) => {
                receiver.may_end_partial(message, &TableArrivals(self.sdr.received()))
            }
            None => !recv.awaits_exact_ranges(),
        }
    }

    /// Handles the news that the sender has ended a message.
    pub(super) fn handle_withdrawn<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        now_ns: u64,
        message: u64,
        withdrawal: Withdrawal,
    ) -> Result<(), Error> {
        let Some(recv) = self.recv.open.get(&message) else {
            return Ok(());
        };
        let scheme = recv
            .repair
            .filter(|repair| repair.is_bounded)
            .map(|repair| repair.scheme);
        let accepts_partial = recv.terms.accepts_partial;
        let view = self.receiver_view(now_ns);
        let bounded = scheme.and_then(|tag| self.halves.receivers.get(tag));
        match (withdrawal, bounded) {
            (Withdrawal::Refused(reason), _) => self.handle_read_refused(fabric, message, reason),
            (Withdrawal::Expired, Some(receiver)) => {
                receiver.handle_sender_done(&view, message);
                Ok(())
            }
            (Withdrawal::Expired, None) if accepts_partial => {
                self.expire_receive_now(now_ns, message);
                Ok(())
            }
            _ => self.complete_recv(fabric, message, Outcome::Failed),
        }
    }

    /// Ends a receive after the sender ended the message at its deadline, if the receiver accepts
    /// that. The receive ends in this poll, after everything that arrived with the news was
    /// processed.
    fn expire_receive_now(&mut self, now_ns: u64, message: u64) {
        if let Some(recv) = self.recv.open.get_mut(&message) {
            let before_ns = recv.deadline_ns.replace(now_ns);
            self.recv.deadlines.remove(message, before_ns);
            self.recv.deadlines.insert(message, Some(now_ns));
        }
    }

    /// Ends all sends if the peer has vanished: it has sent no control packet for
    /// [`QpOptions::vanished_after`](crate::QpOptions::vanished_after), although pings ask (P4.9.3).
    pub(super) fn expire_unanswered_sends(&mut self, now_ns: u64) {
        let Some(limit) = self.options.vanished_after else {
            return;
        };
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        if !self.control.packets.is_unanswered(now_ns, limit_ns) {
            return;
        }
        let open: Vec<u64> = self.send.open.keys().copied().collect();
        for message in open {
            self.stop_send(message, Outcome::Failed);
        }
    }

    /// Ends the sends whose deadline has passed: as partial if the receiver and the scheme accept
    /// that, otherwise as failed.
    pub(super) fn expire_sends(&mut self, now_ns: u64) {
        while let Some(message) = self.send.deadlines.pop_due(now_ns) {
            self.end_send_early(message);
        }
    }

    /// Ends a send as at its deadline.
    fn end_send_early(&mut self, message: u64) {
        let scheme = self.send.open.get(&message).map(|send| send.scheme);
        let sender = scheme.and_then(|tag| self.halves.senders.get(tag));
        let may_end = sender.is_none_or(|sender| sender.may_end_partial(message));
        let outcome = match may_end && self.sdr.accepts_partial(message) {
            true => Outcome::Partial,
            false => Outcome::Failed,
        };
        self.stop_send(message, outcome);
    }
}
