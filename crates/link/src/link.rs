//! One direction of a path.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;

use crate::queue::{Admitted, Queue};
use crate::steps::{Schedules, WireSchedules};
use crate::wire::{Journey, Passage, Wire};
use crate::{
    ConfigError, Datagram, DeliveryTrace, LinkConfig, LinkCounters, Packet, Rng, Serialiser, Step,
};

/// When a datagram arrives: the time, then the order of sending among datagrams with equal times.
type Due = (u64, u64);

/// One direction of a path: accepts datagrams at one end, and delivers them at the other end when
/// they are due.
///
/// Call [`send`](Self::send) for each datagram. Whenever [`next_ns`](Self::next_ns) is reached,
/// call [`poll`](Self::poll) until it returns `None`. `now_ns` must not run backward.
#[derive(Clone, Debug)]
pub struct Link<P = Datagram> {
    /// `None` without a rate: then no datagram waits.
    queue: Option<Queue>,
    wire: Wire,
    changes: WireSchedules,
    down: bool,
    sequence: u64,
    /// Datagrams on the wire that arrive in the order of sending.
    in_order: VecDeque<(Due, P)>,
    /// Datagrams on the wire that are held back, or that overtake others after a change to a
    /// shorter delay or by a delay that varies.
    out_of_order: BTreeMap<Due, P>,
    counters: LinkCounters,
}

impl<P: Packet> Link<P> {
    /// An idle link that is up.
    ///
    /// # Errors
    /// [`ConfigError`], as [`LinkConfig::validate`] returns it.
    pub fn new(config: LinkConfig, seed: u64) -> Result<Self, ConfigError> {
        Self::with_steps(config, &[], seed)
    }

    /// An idle link that is up, and that changes at the times of `steps`. They may be in any order.
    ///
    /// # Errors
    /// [`ConfigError`] for a configuration or a step that is out of range, or for a step of the
    /// rate of an unlimited link.
    pub fn with_steps(config: LinkConfig, steps: &[Step], seed: u64) -> Result<Self, ConfigError> {
        let Schedules { rate_bps, wire } = Schedules::new(&config, steps)?;
        let serialiser = rate_bps.map(Serialiser::scheduled);
        Self::behind(serialiser, config, wire, seed)
    }

    /// As [`with_steps`](Self::with_steps), with a trace as its rate: a datagram leaves the queue at
    /// the opportunity that carries its last byte.
    ///
    /// # Errors
    /// As [`with_steps`](Self::with_steps), and for a configuration or a step with a rate.
    pub fn traced(
        config: LinkConfig,
        trace: Arc<DeliveryTrace>,
        steps: &[Step],
        seed: u64,
    ) -> Result<Self, ConfigError> {
        let rates = steps.iter().filter_map(|step| step.rate_bps);
        if let Some(value) = config.rate_bps.into_iter().chain(rates).next() {
            return Err(ConfigError::TracedRate { value });
        }
        let changes = Schedules::new(&config, steps)?.wire;
        Self::behind(Some(Serialiser::traced(trace)), config, changes, seed)
    }

    fn behind(
        serialiser: Option<Serialiser>,
        config: LinkConfig,
        changes: WireSchedules,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        let wire = Wire::new(config, seed)?;
        // The wire uses the other streams of the seed.
        let marking = Rng::new(seed).split().split();
        Ok(Self {
            queue: serialiser.map(|serialiser| Queue::new(&config, serialiser, marking)),
            wire,
            changes,
            down: false,
            sequence: 0,
            in_order: VecDeque::new(),
            out_of_order: BTreeMap::new(),
            counters: LinkCounters::default(),
        })
    }

    /// Sends a datagram into the link.
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
        self.change_wire(departure_ns);
        let (ip_bytes, payload_bytes) = (datagram.ip_bytes(), datagram.payload_bytes());
        match self.wire.carry(departure_ns, ip_bytes, payload_bytes) {
            Passage::Policed => self.counters.policed += 1,
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

    /// Takes the link down or up. Taking it down loses all datagrams that are queued or in flight.
    /// While it is down, it loses all datagrams sent.
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

    /// Bytes of IP datagrams in the queue, including the datagram that is being sent; 0 without a
    /// rate.
    #[must_use]
    pub fn queue_bytes(&self, now_ns: u64) -> u64 {
        let queue = self.queue.as_ref();
        queue.map_or(0, |queue| queue.backlog_bytes(now_ns))
    }

    /// Datagrams accepted, not lost, and not yet delivered, including queued ones and copies.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        (self.in_order.len() + self.out_of_order.len()) as u64
    }

    /// The counters of the link.
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

    /// Gives the wire the values of a time, which must not run backward.
    fn change_wire(&mut self, now_ns: u64) {
        let WireSchedules {
            delay_ns,
            variation,
            policer,
        } = &self.changes;
        self.wire.set_delay_ns(delay_ns.at(now_ns).0);
        self.wire.set_variation(variation.at(now_ns).0);
        self.wire.set_policer(policer.at(now_ns).0);
    }

    /// Puts a datagram on the wire, with the faults of its journey.
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
