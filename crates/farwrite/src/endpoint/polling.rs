//! Polling of an endpoint.

use farwrite_fabric::contract::Fabric;
use farwrite_sdr::Timing;

use super::{Endpoint, peer_index};
use crate::completion_context::CompletionContext;
use crate::completions::{Event, Notice};
use crate::error::Error;
use crate::handle::QueuePair;
use crate::pair::Halt;
use crate::turns::Unserved;

/// Maximum number of queue pairs that a poll visits. The limit keeps the wait of arrivals short.
const MOST_VISITS: usize = 256;
/// The time after which control packets for which the fabric had no room are tried again.
const FLUSH_RETRY_NS: u64 = Timing::wide_area().fabric_retry_ns;

impl<F: Fabric> Endpoint<F> {
    /// Processes what has arrived, and sends what may be sent at `now_ns`. `now_ns` must not
    /// decrease between calls. Returns the latest time for the next call, if nothing arrives
    /// before. Returns `None` if only an arrival can bring new work.
    ///
    /// A poll visits the queue pairs that have work, and does a bounded amount of work. A failure
    /// of one queue pair does not affect the others: its messages fail, and calls that name it
    /// return [`Error::BrokenQueuePair`].
    ///
    /// # Errors
    /// [`Error::Fabric`] when the fabric has failed permanently.
    pub fn poll(&mut self, now_ns: u64) -> Result<Option<u64>, Error> {
        self.poll_by(|_| now_ns)
    }

    /// The same as [`poll`](Self::poll), by a clock. The clock is read after packets were taken
    /// from the fabric: if this thread is suspended between the two, an earlier time would make
    /// round trips shorter than the path, and the estimate keeps the shortest one.
    pub(crate) fn poll_by(&mut self, clock: impl FnOnce(&F) -> u64) -> Result<Option<u64>, Error> {
        let more = self.receiving.take(&mut self.fabric, &mut self.notices);
        let now_ns = clock(&self.fabric);
        self.now_ns = now_ns;
        self.take_departures()?;
        // This also runs when a port is broken: other ports may have received packets.
        self.handle_notices(now_ns);
        let next_coded = self.take_coded(now_ns)?;
        if self.reports_events {
            self.drop_events.report(now_ns, || self.fabric.counters());
        }
        let more = more?.then_some(now_ns);
        self.next_look_ns = next_coded.into_iter().chain(more).min();
        self.work(now_ns)
    }

    /// Does the part of a poll that looks for no arrivals. It follows a poll after which
    /// [`has_work`](Self::has_work) is true. It costs less than another poll, and what it sends leaves sooner.
    /// Returns the time of the next poll.
    ///
    /// # Errors
    /// [`Error::Fabric`] when the fabric has failed permanently.
    pub(crate) fn work_by(&mut self, clock: impl FnOnce(&F) -> u64) -> Result<Option<u64>, Error> {
        let now_ns = clock(&self.fabric);
        self.now_ns = now_ns;
        self.take_departures()?;
        self.work(now_ns)
    }

    /// Whether there is work that waits neither for a time nor for an arrival: packets that were posted have left, or
    /// the user has called queue pairs since the last poll.
    pub(crate) fn has_work(&self) -> bool {
        self.has_posted || self.schedule.ready_count() > 0
    }

    /// Visits queue pairs, lets them send in turn, and sends control packets. Returns when to continue.
    fn work(&mut self, now_ns: u64) -> Result<Option<u64>, Error> {
        self.schedule.expire(now_ns);
        self.serve_peers(now_ns);
        for _ in 0..self.schedule.ready_count().min(MOST_VISITS) {
            if let Some(index) = self.schedule.take_ready() {
                self.visit(index, now_ns)?;
            }
        }
        let next_turn = self.take_turns(now_ns)?;
        // Control packets that no data followed.
        let held = !self.fabric.flush()?;
        let next = [
            next_turn,
            held.then(|| now_ns.saturating_add(FLUSH_RETRY_NS)),
            self.next_look_ns,
            self.coding.has_grants().then_some(now_ns),
            self.schedule.next_ns(now_ns),
            self.peer_schedule.next_ns(now_ns),
        ];
        Ok(next.into_iter().flatten().min())
    }

    /// Does all work of a queue pair except sending and encoding.
    fn visit(&mut self, index: u32, now_ns: u64) -> Result<(), Error> {
        let Some(pair) = self.queue_pairs.live(index) else {
            return Ok(());
        };
        let number = pair.peer_number();
        let peer = number.map(|number| self.peers.get_mut(number));
        let polled = pair.poll(
            &mut self.fabric,
            peer,
            &self.known,
            &mut self.coding,
            now_ns,
        );
        if let Some(number) = number {
            let peer = self.peers.get_mut(number);
            if let Some(probed_ns) = pair.probed_ns() {
                peer.note_probe(probed_ns);
            }
            let next_ns = peer.next_ns(now_ns);
            self.peer_schedule.set_timer(peer_index(number), next_ns);
        }
        let next_ns = pair.next_ns(now_ns);
        self.schedule.set_timer(index, next_ns);
        self.users.wake(index);
        self.turns.join(index);
        self.break_if_failed(index, polled)
    }

    /// Wakes the queue pairs that may send again to their peers, or whose control packets have to
    /// carry a message to the peer.
    fn serve_peers(&mut self, now_ns: u64) {
        self.peer_schedule.expire(now_ns);
        while let Some(index) = self.peer_schedule.take_ready() {
            self.peers.grant(now_ns, index as usize);
            let Some(peer) = self.peers.live(index as usize) else {
                continue;
            };
            for carrier in peer.carriers(now_ns) {
                self.schedule.wake(carrier);
            }
            if let Some(first) = peer.sending.release(now_ns) {
                self.turns.join(first);
            }
            self.peer_schedule.set_timer(index, peer.next_ns(now_ns));
        }
    }

    /// Lets queue pairs send and encode in turn, up to a limit. Returns when to continue.
    fn take_turns(&mut self, now_ns: u64) -> Result<Option<u64>, Error> {
        self.has_posted = false;
        let mut retry_ns = u64::MAX;
        self.turns.begin();
        while let Some(index) = self.turns.next() {
            let Some(pair) = self.queue_pairs.live(index) else {
                continue;
            };
            let number = pair.peer_number();
            let peer = number.map(|number| self.peers.get_mut(number));
            let turn = pair.take_turn(&mut self.fabric, peer, now_ns);
            // While the pace or the fabric holds packets back, there is time to encode.
            let turn = turn.and_then(|turn| {
                let encoded_bytes = pair.encode(&mut self.fabric, &mut self.coding, now_ns)?;
                Ok((turn, encoded_bytes))
            });
            let (turn, encoded_bytes) = match turn {
                Ok(done) => done,
                Err(error) => {
                    self.break_if_failed(index, Err(error))?;
                    continue;
                }
            };
            let next_ns = pair.next_ns(now_ns);
            self.schedule.set_timer(index, next_ns);
            // Sends may have left.
            self.users.wake(index);
            self.has_posted |= turn.halt == Halt::Idle { posted: true };
            retry_ns = retry_ns.min(pair.fabric_retry_ns());
            self.turns.note(index, &turn, encoded_bytes);
            if let Some(number) = number {
                self.let_next_send(number, now_ns);
            }
        }
        Ok(match self.turns.end() {
            Unserved::More => Some(now_ns),
            // Most fabrics know at the next poll that the packets have left. The timeouts of the
            // packets begin then.
            _ if self.has_posted => Some(now_ns),
            // No timer knows when a full fabric has room again.
            Unserved::Full => Some(now_ns.saturating_add(retry_ns)),
            Unserved::Empty => None,
        })
    }

    /// After a turn to a peer, gives a turn to the next queue pair that waits for one.
    fn let_next_send(&mut self, number: usize, now_ns: u64) {
        let peer = self.peers.get_mut(number);
        if let Some(first) = peer.sending.release(now_ns) {
            self.turns.admit(first);
        }
        let next_ns = peer.next_ns(now_ns);
        self.peer_schedule.set_timer(peer_index(number), next_ns);
    }

    /// # Errors
    /// The errors that end the whole endpoint.
    fn break_if_failed(&mut self, index: u32, result: Result<(), Error>) -> Result<(), Error> {
        let Err(error) = result else {
            return Ok(());
        };
        if error.is_of_endpoint() {
            return Err(error);
        }
        if let Some(pair) = self.queue_pairs.break_at(index, error) {
            // This may return an error, because the queue pair's own resources in the fabric may be
            // broken.
            let _ = self.end_pair(index, pair);
        }
        Ok(())
    }

    pub(super) fn take_departures(&mut self) -> Result<(), Error> {
        self.fabric.poll_departed(&mut self.departed)?;
        for departed in self.departed.drain(..) {
            let name = CompletionContext::decode(departed.context).pair;
            if let Ok(pair) = self.queue_pairs.get_mut(name) {
                pair.handle_departed(self.now_ns, departed.qpn, departed.wr_id);
                self.schedule.wake(name.index);
            }
        }
        Ok(())
    }

    /// Returns when to ask again.
    fn take_coded(&mut self, now_ns: u64) -> Result<Option<u64>, Error> {
        let mut coded = std::mem::take(&mut self.coded);
        let next_ns = self.coding.take(now_ns, &mut coded)?;
        for pair in self.coding.grant() {
            self.schedule.wake(pair);
        }
        let mut taken = Ok(());
        for coded in coded.drain(..) {
            let QueuePair { index, serial } = coded.about.pair;
            if let Some(pair) = self.queue_pairs.live(index)
                && pair.name.serial == serial
            {
                let handled = pair.handle_coded(&mut self.fabric, &coded, now_ns);
                self.schedule.wake(index);
                // The results of other queue pairs are taken all the same.
                taken = taken.and(self.break_if_failed(index, handled));
            }
            self.coding.recycle(coded.output);
        }
        self.coded = coded;
        taken.map(|()| next_ns)
    }

    fn handle_notices(&mut self, now_ns: u64) {
        let mut notices = std::mem::take(&mut self.notices);
        for notice in notices.drain(..) {
            self.handle_notice(now_ns, notice);
        }
        self.notices = notices;
    }

    fn handle_notice(&mut self, now_ns: u64, notice: Notice) {
        let Ok(pair) = self.queue_pairs.get_mut(notice.pair) else {
            return;
        };
        let event = notice.event;
        if !matches!(event, Event::Arrived) {
            pair.receive.took_notice();
        }
        match event {
            Event::Arrived => {}
            Event::Duplicate { message, imm } => pair.handle_duplicate(now_ns, message, imm),
            Event::Late { message, imm } => pair.handle_late(now_ns, message, imm),
            Event::Control(packet) => {
                if let Some(number) = pair.peer_number() {
                    let peer = self.peers.get_mut(number);
                    pair.handle_control_packet(now_ns, &packet, peer);
                    // A report may have opened the window.
                    self.peer_schedule.wake(peer_index(number));
                }
            }
        }
        self.schedule.wake(notice.pair.index);
    }
}
