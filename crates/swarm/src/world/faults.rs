//! Applies the faults of the plan.

use farwrite_link::{LinkConfig, Loss, Reorder};

use super::World;
use crate::plan::Fault;
use crate::violation::Violation;

/// The times at which a fault begins or ends.
pub(super) fn instants(fault: &Fault) -> [u64; 2] {
    match fault {
        Fault::Cut { span, .. }
        | Fault::ControlLoss { span, .. }
        | Fault::ControlLate { span, .. }
        | Fault::Late { span, .. }
        | Fault::Replay { span, .. }
        | Fault::Forgery { span, .. }
        | Fault::Meddling { span, .. }
        | Fault::Pause { span, .. }
        | Fault::Full { span, .. } => [span.from_ns, span.until_ns],
        Fault::Restart {
            at_ns, grace_ns, ..
        }
        | Fault::Close {
            at_ns, grace_ns, ..
        } => [*at_ns, at_ns + grace_ns],
    }
}

/// A link without faults.
fn healed(link: LinkConfig) -> LinkConfig {
    LinkConfig {
        loss: Loss::None,
        reorder: Reorder::default(),
        duplicate: 0.0,
        corrupt: 0.0,
        queue_bytes: None,
        ..link
    }
}

impl World<'_> {
    /// Starts and ends the faults that are due.
    pub(super) fn apply_faults(&mut self) -> Result<(), Violation> {
        let now_ns = self.now_ns();
        let is_due = self.instants.first().is_some_and(|&at_ns| at_ns <= now_ns);
        if is_due || self.applied_ns.is_none() {
            while self.instants.first().is_some_and(|&at_ns| at_ns <= now_ns) {
                self.instants.pop_first();
            }
            self.apply_spans();
            self.apply_desertions(now_ns)?;
            if now_ns >= self.plan.heal_ns {
                self.heal();
            }
            self.applied_ns = Some(now_ns);
        }
        self.give_up(now_ns)
    }

    /// Sets links and hosts to the state that the plan has for this time.
    fn apply_spans(&mut self) {
        let (plan, now_ns) = (self.plan, self.now_ns());
        let were_paused: Vec<bool> = self.hosts.iter().map(|host| host.paused).collect();
        self.end_host_faults();
        let mut down = vec![[false; 2]; plan.paths.len()];
        for fault in &plan.faults {
            match fault {
                Fault::Cut { path, ways, span } if span.contains(now_ns) => {
                    for link in 0..2 {
                        down[*path][link] |= ways[link];
                    }
                    let is_one_way = ways.contains(&false);
                    self.coverage
                        .saw(if is_one_way { "cut one way" } else { "cut" });
                }
                Fault::Pause { host, span } if span.contains(now_ns) => {
                    self.hosts[*host].paused = true;
                    self.coverage.saw("pause");
                }
                Fault::Full { host, span, share } if span.contains(now_ns) => {
                    self.hosts[*host].fullness.borrow_mut().share = *share;
                }
                _ => {}
            }
        }
        for (host, was_paused) in self.hosts.iter_mut().zip(were_paused) {
            if was_paused && !host.paused {
                host.woke_ns = now_ns;
            }
        }
        for (path, down) in plan.paths.iter().zip(down) {
            let ips = path.hosts.map(|host| self.hosts[host].seen_as);
            for (link, down) in down.into_iter().enumerate() {
                let cut = self.network.set_down(ips[link], ips[1 - link], down);
                cut.expect("the path has links");
            }
        }
        self.say(|| "faults begin or end".into());
    }

    /// Closes ends and restarts hosts.
    fn apply_desertions(&mut self, now_ns: u64) -> Result<(), Violation> {
        // Apply each fault once, although several times may pass at once.
        let after_ns = self.applied_ns;
        let is_due = |at_ns: u64| at_ns <= now_ns && after_ns.is_none_or(|after| at_ns > after);
        for fault in &self.plan.faults {
            match *fault {
                Fault::Restart {
                    host,
                    at_ns,
                    grace_ns,
                } if is_due(at_ns) => self.restart(host, now_ns + grace_ns),
                Fault::Close {
                    pair,
                    end,
                    at_ns,
                    grace_ns,
                } if is_due(at_ns) && self.pairs[pair].ends[end].is_some() => {
                    self.say(|| format!("end {end} of queue pair {pair} closes"));
                    self.coverage.saw("close");
                    self.destroy(pair, end)?;
                    let gives_up_ns = now_ns + grace_ns;
                    self.pairs[pair].gives_up_ns.get_or_insert(gives_up_ns);
                    self.instants.insert(gives_up_ns);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Restarts a host, which loses all its state.
    fn restart(&mut self, host: usize, gives_up_ns: u64) {
        self.say(|| format!("host {host} restarts"));
        self.coverage.saw("restart");
        self.earlier
            .endpoints
            .push(self.hosts[host].running().counters());
        self.hosts[host].restart(&self.network);
        for pair in 0..self.pairs.len() {
            for end in 0..2 {
                if self.plan.host(pair, end) == host && self.pairs[pair].ends[end].is_some() {
                    self.lose_end(pair, end);
                    self.pairs[pair].gives_up_ns.get_or_insert(gives_up_ns);
                }
            }
        }
        self.instants.insert(gives_up_ns);
    }

    /// The users of an end lost all their handles and memory.
    fn lose_end(&mut self, pair: usize, end: usize) {
        self.pairs[pair].ends[end] = None;
        for from in 0..2 {
            for index in self.plan.course(pair, from) {
                let message = &mut self.messages[index];
                if from == end {
                    (message.send, message.source) = (None, None);
                } else {
                    (message.recv, message.target) = (None, None);
                }
                if message.is_decided() {
                    self.open.remove(&index);
                }
            }
        }
    }

    /// Closes the ends whose peers closed long enough before `now_ns`.
    pub(crate) fn give_up(&mut self, now_ns: u64) -> Result<(), Violation> {
        for pair in 0..self.pairs.len() {
            let gives_up_ns = self.pairs[pair].gives_up_ns;
            if gives_up_ns.is_none_or(|at_ns| at_ns > now_ns) {
                continue;
            }
            self.pairs[pair].gives_up_ns = None;
            for end in 0..2 {
                if self.pairs[pair].ends[end].is_some() {
                    self.say(|| format!("end {end} of queue pair {pair} gives up"));
                    self.pairs[pair].gave_up = true;
                    self.destroy(pair, end)?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn end_host_faults(&mut self) {
        for host in &mut self.hosts {
            host.paused = false;
            host.fullness.borrow_mut().share = 0.0;
        }
    }

    /// Ends the faults of links.
    pub(crate) fn heal(&mut self) {
        if self.healed {
            return;
        }
        self.healed = true;
        self.note_healed();
        self.say(|| "links heal".into());
        for path in &self.plan.paths {
            let [a, b] = path.hosts.map(|host| self.hosts[host].seen_as);
            for (from, to) in [(a, b), (b, a)] {
                let counters = self.network.link_counters(from, to);
                self.earlier
                    .links
                    .push(counters.expect("the path has links"));
            }
            let [forth, back] = path.links.map(healed);
            let joined = self.network.connect(a, b, forth, back);
            joined.expect("a healed link is a good one");
        }
    }
}
