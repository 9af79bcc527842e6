//! The end of a case: checks that all ends fall silent and return all resources.

use farwrite::{DropReason, MemoryRegion};
use farwrite_link::LinkCounters;

use crate::plan::{Fault, SECOND};
use crate::violation::{Rule, Violation};
use crate::world::World;

/// Ends must fall silent within this time after their last message has ended.
const FALL_SILENT_NS: u64 = 6 * SECOND;
/// How long the silence is observed.
const WATCH_NS: u64 = 30 * SECOND;
/// Highest number of rounds in this time. The first round is not caused by a timer.
const MAX_IDLE_ROUNDS: u64 = 2;

/// Sums of the counters of links and hosts.
#[derive(Default)]
struct Sums {
    links: LinkCounters,
    /// Packets sent by all endpoints and on routes.
    sent: u64,
    arrived: u64,
}

impl World<'_> {
    /// Tears the case down, and checks what remains.
    pub(crate) fn close(&mut self) -> Result<(), Violation> {
        self.heal();
        self.end_host_faults();
        // An end whose peer is gone would announce forever that it gave up messages.
        self.give_up(u64::MAX)?;
        self.run_idle(FALL_SILENT_NS)?;
        let mut late = self.tap.borrow_mut().take_held(u64::MAX - 1);
        late.extend(self.tap.borrow_mut().take_all());
        for datagram in late {
            self.network.inject(datagram);
        }
        self.run_idle(FALL_SILENT_NS)?;
        // A control packet that was held back until now gives a correct sample of a long round
        // trip. The last report about a path is repeated up to two round trips later (P4.10).
        self.run_idle(3 * self.longest_rtt_ns())?;
        self.check_silence()?;
        self.check_outcomes()?;
        self.check_reports()?;
        self.check_windows()?;
        for pair in 0..self.pairs.len() {
            for end in 0..2 {
                self.destroy(pair, end)?;
            }
        }
        self.check_holdings()?;
        self.check_counters()
    }

    /// A copy of the bytes of a region.
    pub(crate) fn memory(&self, host: usize, region: MemoryRegion) -> Result<Vec<u8>, Violation> {
        let mut memory = vec![0; usize::try_from(region.length()).expect("it is in memory")];
        let read = self.hosts[host]
            .running()
            .read_memory(region, 0, &mut memory);
        read.map_err(|error| self.failed("memory", error))?;
        Ok(memory)
    }

    /// Advances time without actions of users. Returns the number of rounds.
    fn run_idle(&mut self, span_ns: u64) -> Result<u64, Violation> {
        let limit_ns = self.now_ns() + span_ns;
        let mut rounds = 0;
        loop {
            let wanted = self.poll_hosts()?;
            rounds += 1;
            let next = [wanted, self.network.next_ns()].into_iter().flatten().min();
            let next_ns = next.map_or(limit_ns, |at_ns| at_ns.max(self.now_ns() + 1));
            if next_ns >= limit_ns {
                self.network.advance_to(limit_ns);
                return Ok(rounds);
            }
            self.network.advance_to(next_ns);
        }
    }

    fn check_silence(&mut self) -> Result<(), Violation> {
        let before = self.tap.borrow().counts.sent;
        let rounds = self.run_idle(WATCH_NS)?;
        let packets = self.tap.borrow().counts.sent - before;
        if packets > 0 {
            let what = format!("{packets} packets were sent with all messages over");
            return Err(self.violation(Rule::Silence, what));
        }
        if rounds > MAX_IDLE_ROUNDS {
            let what = format!("timers ran {rounds} times with all messages over");
            return Err(self.violation(Rule::Silence, what));
        }
        Ok(())
    }

    /// Checks that no peer can write memory any more.
    fn check_windows(&self) -> Result<(), Violation> {
        for (number, host) in self.hosts.iter().enumerate() {
            let open = host.running().fabric().holdings.windows.len();
            if open > 0 {
                let what = format!("host {number} has {open} windows open");
                return Err(self.violation(Rule::Leak, what));
            }
        }
        Ok(())
    }

    /// Checks that no host holds resources of its fabric.
    fn check_holdings(&self) -> Result<(), Violation> {
        for (number, host) in self.hosts.iter().enumerate() {
            let held = &host.running().fabric().holdings;
            let counts = [
                held.regions.len(),
                held.window_sets.len(),
                held.windows.len(),
                held.queue_pairs.len(),
            ];
            if counts != [0; 4] {
                let what = format!(
                    "host {number} still has regions, window sets, windows, queue pairs: {counts:?}"
                );
                return Err(self.violation(Rule::Leak, what));
            }
        }
        Ok(())
    }

    fn check_counters(&mut self) -> Result<(), Violation> {
        let sums = self.sums()?;
        let tap = self.tap.borrow().counts;
        let Sums {
            links,
            sent,
            arrived,
        } = sums;
        let kept = tap.controls_held + tap.kept_back + tap.meddled;
        let passed = tap.sent - tap.controls_dropped - kept;
        let undeliverable = self.network.undeliverable();
        let counts = format!(
            "hosts sent {sent} and took in {arrived}, {undeliverable} had no receiver, \
             {links:?}, {tap:?}"
        );
        let delivered = links.delivered + tap.injected;
        // Unread packets of a host that restarted are lost without being counted.
        let restarted = !self.earlier.endpoints.is_empty();
        let adds_up = sent == tap.sent
            && links.offered == passed
            && (delivered == arrived + undeliverable
                || (restarted && delivered > arrived + undeliverable));
        if !adds_up {
            return Err(self.violation(Rule::Counters, counts));
        }
        if self.network.next_ns().is_some() {
            return Err(self.violation(Rule::Leak, "packets are still in flight".into()));
        }
        self.check_drops()?;
        self.cover(&links);
        Ok(())
    }

    fn sums(&self) -> Result<Sums, Violation> {
        let mut sums = Sums::default();
        let mut all_links = self.earlier.links.clone();
        for path in &self.plan.paths {
            let [a, b] = path.hosts.map(|host| self.hosts[host].seen_as);
            for (from, to) in [(a, b), (b, a)] {
                let counters = self.network.link_counters(from, to);
                all_links.push(counters.map_err(|error| self.failed("link_counters", error))?);
            }
        }
        for one in all_links {
            let sum = &mut sums.links;
            sum.offered += one.offered;
            sum.delivered += one.delivered;
            sum.lost += one.lost;
            sum.queue_dropped += one.queue_dropped;
            sum.policed += one.policed;
            sum.duplicated += one.duplicated;
            sum.corrupted += one.corrupted;
            sum.reordered += one.reordered;
        }
        let hosts = self.hosts.iter().map(|host| host.running().counters());
        for counters in hosts.chain(self.earlier.endpoints.iter().copied()) {
            sums.sent += counters.sent_packets;
            sums.arrived += counters.received_packets + counters.dropped.iter().sum::<u64>();
        }
        let [sent, arrived] = self.route_packets();
        sums.sent += sent;
        sums.arrived += arrived;
        Ok(sums)
    }

    /// Checks that the plan explains the reason of every dropped packet.
    fn check_drops(&mut self) -> Result<(), Violation> {
        let links = || self.plan.paths.iter().flat_map(|path| &path.links);
        let corrupts = links().any(|link| link.corrupt > 0.0);
        // A packet that arrives twice, or after 64 packets that were sent later, is refused (P4.2).
        let repeats = links().any(|link| link.duplicate > 0.0 || link.reorder.probability > 0.0)
            || self.tap.borrow().counts.controls_held > 0;
        let deserts = |fault: &Fault| matches!(fault, Fault::Restart { .. } | Fault::Close { .. });
        let deserted = self.plan.faults.iter().any(deserts);
        let lagging = self.plan.pairs.iter().any(|pair| pair.lag_ns > 0);
        let is_forged = self.tap.borrow().counts.forged > 0;
        for (number, host) in self.hosts.iter().enumerate() {
            for reason in DropReason::ALL {
                let is_explained = match reason {
                    DropReason::NullKey => true,
                    // Behind address translation, an end may seal for wrong addresses for a time.
                    DropReason::BadIcrc => corrupts || self.plan.translated,
                    DropReason::Malformed => corrupts,
                    // A flipped bit can create an unknown opcode, which is checked before the ICRC.
                    DropReason::UnsupportedOpcode => corrupts,
                    // A packet that is sent back may name a queue pair of another channel.
                    DropReason::UnknownQp => deserted || is_forged,
                    DropReason::Replayed => self.plan.is_sealed(),
                    DropReason::BadTag => is_forged,
                    // An end that is not connected has no peer yet. Behind address translation, an end connects when it has
                    // its route, which may be later than the other end's.
                    DropReason::Stranger => lagging || self.plan.translated,
                    _ => false,
                };
                let dropped = host.running().counters().dropped(reason);
                if dropped > 0 && !is_explained {
                    let what = format!("host {number} dropped {dropped} packets as {reason:?}");
                    return Err(self.violation(Rule::Counters, what));
                }
            }
        }
        for (pair, state) in self.pairs.iter().enumerate() {
            let refused: u64 = state.stats.iter().map(|stats| stats.refused_controls).sum();
            if refused > 0 && !repeats {
                let what =
                    format!("queue pair {pair} refused {refused} control packets or messages");
                return Err(self.violation(Rule::Counters, what));
            }
        }
        Ok(())
    }
}
