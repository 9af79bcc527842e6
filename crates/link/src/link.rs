//! One direction of a path.

use alloc::collections::{BTreeMap, VecDeque};

use crate::queue::{Admitted, Queue};
use crate::schedule::Schedule;
use crate::steps::Schedules;
use crate::wire::{Journey, Passage, Wire};
use crate::{ConfigError, Datagram, Dice, LinkConfig, LinkCounters, Packet, Step};

/// When a datagram arrives: the instant, then the order of sending among equals.
type Due = (u64, u64);

/// One direction of a path: takes datagrams in at one end and hands them out, when due, at the
/// other.
///
/// Call [`send`](Self::send) as datagrams come, and [`poll`](Self::poll) until it answers `None`
/// whenever [`next_ns`](Self::next_ns) is reached. `now_ns` may not run backward.
#[derive(Clone, Debug)]
pub struct Link<P = Datagram> {
    /// None: no rate, nothing waits.
    queue: Option<Queue>,
    wire: Wire,
    delay_ns: Schedule<u64>,
    down: bool,
    sequence: u64,
    /// On their way in order: the bottleneck lets nothing out before what came earlier.
    in_order: VecDeque<(Due, P)>,
    /// On their way, held back, or overtaking after a change to a shorter delay.
    out_of_order: BTreeMap<Due, P>,
    counters: LinkCounters,
}

impl<P: Packet> Link<P> {
    /// An idle link that is up.
    ///
    /// # Errors
    /// [`ConfigError`], as [`LinkConfig::validate`] gives it.
    pub fn new(config: LinkConfig, seed: u64) -> Result<Self, ConfigError> {
        Self::with_steps(config, &[], seed)
    }

    /// An idle link that is up and that changes at the instants of `steps`, which come in any order.
    ///
    /// # Errors
    /// [`ConfigError`] for a configuration or a step that is out of its range, or for a step of the
    /// rate where there is none.
    pub fn with_steps(config: LinkConfig, steps: &[Step], seed: u64) -> Result<Self, ConfigError> {
        let wire = Wire::new(config, seed)?;
        let Schedules { rate_bps, delay_ns } = Schedules::new(&config, steps)?;
        // The wire has the first two streams of the seed.
        let marking = Dice::new(seed).split().split();
        Ok(Self {
            queue: rate_bps.map(|rate_bps| Queue::new(&config, rate_bps, marking)),
            wire,
            delay_ns,
            down: false,
            sequence: 0,
            in_order: VecDeque::new(),
            out_of_order: BTreeMap::new(),
            counters: LinkCounters::default(),
        })
    }

    /// Offers a datagram.
    pub fn send(&mut self, now_ns: u64, mut datagram: P) {
        self.counters.offered += 1;
        if self.down {
            self.counters.lost += 1;
            return;
        }
        let admitted = match &mut self.queue {
            Some(queue) => queue.offer(now_ns, datagram.ip_bytes()),
            None => Some(Admitted {
                departure_ns: now_ns,
                marked: false,
            }),
        };
        let Some(Admitted {
            departure_ns,
            marked,
        }) = admitted
        else {
            self.counters.queue_dropped += 1;
            return;
        };
        self.counters.marked += u64::from(marked && datagram.mark());
        self.wire.set_delay_ns(self.delay_ns.at(departure_ns).0);
        match self.wire.carry(datagram.payload_bytes()) {
            Passage::Lost => self.counters.lost += 1,
            Passage::Once(journey) => self.travel(departure_ns, journey, datagram),
            Passage::Twice(journey, copy) => {
                self.counters.duplicated += 1;
                self.travel(departure_ns, journey, datagram.clone());
                self.travel(departure_ns, copy, datagram);
            }
        }
    }

    /// The next datagram that has arrived by `now_ns`.
    pub fn poll(&mut self, now_ns: u64) -> Option<P> {
        let due = self.next_due()?;
        if due.0 > now_ns {
            return None;
        }
        let datagram = match self.out_of_order.remove(&due) {
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
            self.out_of_order.clear();
            if let Some(queue) = &mut self.queue {
                queue.clear();
            }
        }
    }

    /// Bytes of IP datagrams that wait to be sent or are under way into the link; 0 without a rate.
    #[must_use]
    pub fn queue_bytes(&self, now_ns: u64) -> u64 {
        let queue = self.queue.as_ref();
        queue.map_or(0, |queue| queue.backlog_bytes(now_ns))
    }

    /// Datagrams taken in, not lost, and not handed out yet: queued ones and copies count.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        (self.in_order.len() + self.out_of_order.len()) as u64
    }

    /// What the link has done.
    #[must_use]
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    fn next_due(&self) -> Option<Due> {
        let in_order = self.in_order.front().map(|(due, _)| *due);
        let out_of_order = self.out_of_order.first_key_value().map(|(due, _)| *due);
        match (in_order, out_of_order) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Sends a datagram on its way, with what happens to it there.
    fn travel(&mut self, departure_ns: u64, journey: Journey, mut datagram: P) {
        if let Some(bit) = journey.flipped_bit {
            datagram.flip(bit);
            self.counters.corrupted += 1;
        }
        let due = (departure_ns.saturating_add(journey.delay_ns), self.sequence);
        self.sequence += 1;
        self.counters.reordered += u64::from(journey.held_back);
        let overtakes = self.in_order.back().is_some_and(|(last, _)| due < *last);
        if journey.held_back || overtakes {
            self.out_of_order.insert(due, datagram);
        } else {
            self.in_order.push_back((due, datagram));
        }
    }
}
