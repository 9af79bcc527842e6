//! Receives that are over, and telling their sender so (P3.8).

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};

use farwrite_wire::control::{Control, Outcome};

use crate::repeat::Waits;

/// How often an end is told without being asked for. A sender that missed it would find out by a
/// timeout only, and send the whole message again.
const UNASKED: u8 = 3;

/// A receive that is over, kept until the sender cannot be busy with it any more.
#[derive(Clone, Copy)]
struct Ended {
    message: u64,
    outcome: Outcome,
    queued: bool,
    sent_ns: Option<u64>,
    /// Times that it was told.
    told: u8,
}

pub(crate) struct Ends {
    /// By message modulo their number, which is two a slot: the sender is done with older ones.
    ended: Box<[Option<Ended>]>,
    /// Messages whose end is to be told; each at most once.
    telling: VecDeque<u64>,
    /// When to tell which end again, unasked; each at most once.
    echoes: BTreeSet<(u64, u64)>,
}

impl Ends {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            ended: (0..2 * slots).map(|_| None).collect(),
            telling: VecDeque::new(),
            echoes: BTreeSet::new(),
        }
    }

    fn get_mut(&mut self, message: u64) -> Option<&mut Ended> {
        let index = usize::try_from(message % self.ended.len() as u64).ok()?;
        let ended = self.ended.get_mut(index)?.as_mut()?;
        (ended.message == message).then_some(ended)
    }

    /// A receive is over.
    pub(crate) fn add(&mut self, message: u64, outcome: Outcome) {
        let index = usize::try_from(message % self.ended.len() as u64).ok();
        if let Some(ended) = index.and_then(|index| self.ended.get_mut(index)) {
            *ended = Some(Ended {
                message,
                outcome,
                queued: true,
                sent_ns: None,
                told: 0,
            });
            self.telling.push_back(message);
        }
    }

    /// Says a message's end again, if it is over.
    pub(crate) fn ask(&mut self, message: u64) {
        if let Some(ended) = self.get_mut(message).filter(|ended| !ended.queued) {
            ended.queued = true;
            self.telling.push_back(message);
        }
    }

    /// The next end to tell now.
    pub(crate) fn poll(&mut self, now_ns: u64, waits: &Waits) -> Option<Control> {
        let interval_ns = waits.first_ns;
        while let Some(&(due_ns, message)) = self.echoes.first()
            && due_ns <= now_ns
        {
            self.echoes.pop_first();
            if let Some(ended) = self.get_mut(message) {
                ended.sent_ns = None;
            }
            self.ask(message);
        }
        while let Some(message) = self.telling.pop_front() {
            let Some(ended) = self.get_mut(message) else {
                continue;
            };
            ended.queued = false;
            // Packets that were under way when it was told say nothing about whether it was heard.
            let again_ns = ended.sent_ns.map(|sent| sent.saturating_add(interval_ns));
            if again_ns.is_some_and(|again| now_ns < again) {
                continue;
            }
            ended.sent_ns = Some(now_ns);
            ended.told = ended.told.saturating_add(1);
            let (outcome, told) = (ended.outcome, ended.told);
            if told < UNASKED {
                self.echoes
                    .insert((echo_ns(now_ns, interval_ns, told), message));
            }
            return Some(Control::ReceiveComplete { message, outcome });
        }
        None
    }

    pub(crate) fn next_timeout(&self) -> Option<u64> {
        if self.telling.is_empty() {
            self.echoes.first().map(|&(due_ns, _)| due_ns)
        } else {
            Some(0)
        }
    }
}

/// When to tell an end again that was told `told` times: first after an eighth of the interval, for
/// the sender has nothing else to wait for, then after two; at a multiple of a half of that, so that
/// many ends share a packet.
fn echo_ns(now_ns: u64, interval_ns: u64, told: u8) -> u64 {
    let wait_ns = match told {
        1 => interval_ns / 8,
        _ => interval_ns.saturating_mul(2),
    };
    let at_ns = now_ns.saturating_add(wait_ns);
    let grain_ns = (wait_ns / 2).max(1);
    at_ns.checked_next_multiple_of(grain_ns).unwrap_or(at_ns)
}
