//! One direction of a path.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use crate::dice::Dice;
use crate::loss::LossProcess;
use crate::serialiser::Serialiser;
use crate::{ConfigError, Datagram, LinkConfig, LinkCounters};

/// When a datagram arrives: the instant, then the order of sending among equals.
type Due = (u64, u64);

/// One direction of a path: takes datagrams in at one end and hands them out, when due, at the
/// other.
///
/// Call [`send`](Self::send) as datagrams come, and [`poll`](Self::poll) until it answers `None`
/// whenever [`next_ns`](Self::next_ns) is reached. `now_ns` may not run backward.
#[derive(Clone, Debug)]
pub struct Link {
    config: LinkConfig,
    delay_ns: u64,
    extra_delay_ns: u64,
    bottleneck: Option<Serialiser>,
    /// Draws apart from the other faults: a seed loses the same datagrams whatever else happens to
    /// them.
    loss: LossProcess,
    dice: Dice,
    down: bool,
    sequence: u64,
    /// On their way in order: the bottleneck lets nothing out before what came earlier.
    in_order: VecDeque<(Due, Datagram)>,
    /// On their way, held back.
    held_back: BTreeMap<Due, Datagram>,
    counters: LinkCounters,
}

impl Link {
    /// An idle link that is up.
    ///
    /// # Errors
    /// [`ConfigError`], as [`LinkConfig::validate`] gives it.
    pub fn new(config: LinkConfig, seed: u64) -> Result<Self, ConfigError> {
        config.validate()?;
        let dice = Dice::new(seed);
        Ok(Self {
            config,
            delay_ns: nanoseconds(config.delay),
            extra_delay_ns: nanoseconds(config.reorder.extra_delay),
            bottleneck: config.rate_bps.map(Serialiser::new),
            loss: LossProcess::new(config.loss, dice.split()),
            dice,
            down: false,
            sequence: 0,
            in_order: VecDeque::new(),
            held_back: BTreeMap::new(),
            counters: LinkCounters::default(),
        })
    }

    /// Offers a datagram.
    pub fn send(&mut self, now_ns: u64, datagram: Datagram) {
        self.counters.offered += 1;
        if self.down {
            self.counters.lost += 1;
            return;
        }
        let Some(departure_ns) = self.depart(now_ns, datagram.ip_bytes()) else {
            self.counters.queue_dropped += 1;
            return;
        };
        if self.loss.next_is_lost() {
            self.counters.lost += 1;
            return;
        }
        let due_ns = departure_ns.saturating_add(self.delay_ns);
        let copy = self
            .dice
            .chance(self.config.duplicate)
            .then(|| datagram.clone());
        self.carry(due_ns, datagram);
        if let Some(copy) = copy {
            self.counters.duplicated += 1;
            self.carry(due_ns, copy);
        }
    }

    /// The next datagram that has arrived by `now_ns`.
    pub fn poll(&mut self, now_ns: u64) -> Option<Datagram> {
        let due = self.next_due()?;
        if due.0 > now_ns {
            return None;
        }
        let datagram = match self.held_back.remove(&due) {
            Some(datagram) => datagram,
            None => self.in_order.pop_front()?.1,
        };
        self.counters.delivered += 1;
        self.counters.delivered_bytes += datagram.ip_bytes();
        Some(datagram)
    }

    /// When the next datagram arrives, `None` if none is in flight.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.next_due().map(|(due_ns, _)| due_ns)
    }

    /// Cuts the link or mends it. Cutting loses all that is queued and in flight, and all that is
    /// offered until it is mended.
    pub fn set_down(&mut self, down: bool) {
        self.down = down;
        if down {
            self.counters.lost += self.in_flight();
            self.in_order.clear();
            self.held_back.clear();
            if let Some(bottleneck) = &mut self.bottleneck {
                bottleneck.clear();
            }
        }
    }

    /// Bytes of IP datagrams that wait to be sent or are under way into the link; 0 without a rate.
    #[must_use]
    pub fn queue_bytes(&self, now_ns: u64) -> u64 {
        self.bottleneck
            .as_ref()
            .map_or(0, |bottleneck| bottleneck.backlog_bytes(now_ns))
    }

    /// Datagrams taken in, not lost, and not handed out yet: queued ones and copies count.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        (self.in_order.len() + self.held_back.len()) as u64
    }

    /// What the link has done.
    #[must_use]
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    fn next_due(&self) -> Option<Due> {
        let in_order = self.in_order.front().map(|(due, _)| *due);
        let held_back = self.held_back.first_key_value().map(|(due, _)| *due);
        match (in_order, held_back) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Passes `bytes` through the bottleneck: when they are out, `None` if the queue is full.
    fn depart(&mut self, now_ns: u64, bytes: u64) -> Option<u64> {
        let Some(bottleneck) = &mut self.bottleneck else {
            return Some(now_ns);
        };
        if let Some(limit) = self.config.queue_bytes {
            let backlog = bottleneck.backlog_bytes(now_ns);
            if backlog > 0 && backlog.saturating_add(bytes) > limit {
                return None;
            }
        }
        Some(bottleneck.accept(now_ns, bytes))
    }

    /// Sends a datagram on its way, with what happens to it there.
    fn carry(&mut self, due_ns: u64, mut datagram: Datagram) {
        if !datagram.payload.is_empty() && self.dice.chance(self.config.corrupt) {
            let bit = self.dice.below(datagram.payload.len() * 8);
            if let Some(byte) = datagram.payload.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
            self.counters.corrupted += 1;
        }
        let sequence = self.sequence;
        self.sequence += 1;
        if self.dice.chance(self.config.reorder.probability) {
            self.counters.reordered += 1;
            let due_ns = due_ns.saturating_add(self.extra_delay_ns);
            self.held_back.insert((due_ns, sequence), datagram);
        } else {
            self.in_order.push_back(((due_ns, sequence), datagram));
        }
    }
}

/// A validated delay in nanoseconds.
fn nanoseconds(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)
}
