//! Checks that everything moves again soon after an attacker has left a path.

use super::World;
use crate::plan::{Plan, Repair, SECOND};
use crate::violation::{Rule, Violation};

/// The time and the round trips within which everything moves again.
const TIME_NS: u64 = 5 * SECOND;
const ROUND_TRIPS: u32 = 10;

/// What had moved when the attacker left.
#[derive(Default)]
pub(super) struct Recovery {
    /// For each queue pair and sending end with an open message, a count that grows with what moves.
    before: Option<Vec<[Option<u64>; 2]>>,
    is_checked: bool,
}

/// When everything must move again, if there is an attacker.
pub(super) fn due_ns(plan: &Plan) -> Option<u64> {
    let left_ns = plan.attacker_leaves_ns()?;
    let rtts = plan
        .paths
        .iter()
        .map(|path| path.links[0].delay + path.links[1].delay);
    let longest = rtts.max().unwrap_or_default() * ROUND_TRIPS;
    Some(left_ns + TIME_NS + u64::try_from(longest.as_nanos()).expect("short"))
}

impl World<'_> {
    /// Checks the queue pairs once the time is over.
    pub(super) fn check_recovery(&mut self) -> Result<(), Violation> {
        let Some((left_ns, due_ns)) = self.plan.attacker_leaves_ns().zip(due_ns(self.plan)) else {
            return Ok(());
        };
        let now_ns = self.now_ns();
        if now_ns < left_ns || self.recovery.is_checked {
            return Ok(());
        }
        let moved = || {
            let pairs = 0..self.pairs.len();
            pairs.map(|pair| [0, 1].map(|from| self.moved(pair, from)))
        };
        let Some(before) = &self.recovery.before else {
            let before: Vec<_> = moved().collect();
            let is_any_open = before.as_flattened().iter().any(Option::is_some);
            self.coverage
                .saw_if("messages open when an attacker left", is_any_open);
            self.recovery.before = Some(before);
            return Ok(());
        };
        if now_ns < due_ns {
            return Ok(());
        }
        let stuck = moved().zip(before).position(|(now, before)| {
            (0..2).any(|from| before[from].is_some() && now[from] == before[from])
        });
        if let Some(pair) = stuck {
            let what = format!(
                "nothing of queue pair {pair} has moved since the attacker left: {}",
                self.describe_open()
            );
            return Err(self.violation(Rule::Recovery, what));
        }
        self.recovery.is_checked = true;
        Ok(())
    }

    /// A count that grows with each chunk that arrives and each outcome of one direction of a queue pair;
    /// `None` if it waits for nothing that a scheme moves.
    fn moved(&self, pair: usize, from: usize) -> Option<u64> {
        let state = &self.pairs[pair];
        if !state.opened || state.is_deserted() || !state.is_connected() {
            return None;
        }
        let mut count = 0;
        let mut is_open = false;
        for index in self.plan.course(pair, from) {
            let message = &self.messages[index];
            let recv = message.recv.as_ref();
            count += recv.map_or(0, |recv| recv.bitmap().count() as u64);
            count += u64::from(message.sent.is_some()) + u64::from(message.received.is_some());
            // Without a scheme, its users end it.
            let has_scheme = matches!(self.plan.messages[index].scheme, Repair::Scheme(_));
            let is_posted = recv.is_some() && (message.send.is_some() || self.plan.is_read(index));
            is_open |= has_scheme && is_posted && self.open.contains(&index);
        }
        is_open.then_some(count)
    }
}
