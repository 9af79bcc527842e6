//! Invariants of the paths between endpoints.

use farwrite::{PeerStats, RateControl, packet_overhead_bytes};

use super::World;
use crate::plan::PairPlan;
use crate::violation::{Rule, Violation};

/// Observations of the path at one end of a queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathWatch {
    /// Statistics at the last check.
    seen: Option<PeerStats>,
    /// Data packets of open messages that the end had received when the links healed.
    received_at_heal: u64,
}

impl World<'_> {
    /// Checks the paths of a host that was just polled.
    pub(super) fn watch_paths(&mut self, host: usize) -> Result<(), Violation> {
        for pair in 0..self.pairs.len() {
            for end in 0..2 {
                if self.plan.host(pair, end) == host {
                    self.watch_path(pair, end)?;
                }
            }
        }
        Ok(())
    }

    fn watch_path(&mut self, pair: usize, end: usize) -> Result<(), Violation> {
        let Some(now) = self.peer_stats(pair, end) else {
            self.pairs[pair].watches[end].seen = None;
            return Ok(());
        };
        let before = self.pairs[pair].watches[end].seen.replace(now);
        let broken = |what| {
            let what = format!("path of end {end} of queue pair {pair}: {what}: {now:?}");
            Err(self.violation(Rule::Path, what))
        };
        if now.refused_feedback > 0 {
            return broken("a report of an honest peer was refused");
        }
        let path = &self.plan.paths[self.plan.pairs[pair].path];
        let shortest = path.links[0].delay + path.links[1].delay;
        if let Some(rtt_ns) = now.base_rtt_ns
            && u128::from(rtt_ns) < shortest.as_nanos()
        {
            return broken("a packet was acknowledged before it can have arrived");
        }
        // The controller may have lowered the window since the packets left.
        let before = before.unwrap_or(now);
        let windows = [before, now].map(|stats| stats.window_bytes.unwrap_or(u64::MAX));
        // Swift halves the window when a chunk is repeated, also in the turn that sends.
        let halvings = u64::from(matches!(path.rate_control, RateControl::Swift(_)));
        let windows = [windows[0], windows[1].saturating_mul(1 + halvings)];
        let packet_bytes = self.longest_packet(self.plan.pairs[pair].path);
        let most_bytes = windows[0].max(windows[1]).saturating_add(packet_bytes);
        if now.sent_bytes > before.sent_bytes && now.in_flight_bytes > most_bytes {
            return broken("more is in flight than the window allows");
        }
        Ok(())
    }

    /// Length of the longest packet that queue pairs of a path send.
    fn longest_packet(&self, path: usize) -> u64 {
        let pairs = self.plan.pairs.iter().filter(|pair| pair.path == path);
        let bytes = |pair: &PairPlan| pair.options.sdr.mtu + pair.options.sealing.reserved_bytes();
        let mtu = pairs.map(bytes).max().unwrap_or(0);
        // Over IPv6 the headers are longer.
        u64::from(mtu + packet_overhead_bytes(false))
    }

    pub(super) fn peer_stats(&self, pair: usize, end: usize) -> Option<PeerStats> {
        let qp = self.pairs[pair].ends[end]?;
        let endpoint = self.hosts[self.plan.host(pair, end)].running();
        endpoint.peer_stats(qp).ok()
    }

    /// The longest round-trip estimate of all ends.
    pub(crate) fn longest_rtt_ns(&self) -> u64 {
        let ends = (0..self.pairs.len()).flat_map(|pair| [(pair, 0), (pair, 1)]);
        let stats = ends.filter_map(|(pair, end)| self.peer_stats(pair, end));
        stats.map(|stats| stats.rtt_ns).max().unwrap_or(0)
    }

    /// Data packets received for messages, late ones included. Reports name these.
    fn received_packets(&self, pair: usize, end: usize) -> u64 {
        let endpoint = self.hosts[self.plan.host(pair, end)].running();
        let stats = self.pairs[pair].ends[end].and_then(|qp| endpoint.qp_stats(qp).ok());
        stats.map_or(0, |stats| stats.received_packets - stats.invalid_packets)
    }

    /// Records the counts at the time when links heal.
    pub(super) fn note_healed(&mut self) {
        for pair in 0..self.pairs.len() {
            for end in 0..2 {
                let received = self.received_packets(pair, end);
                self.pairs[pair].watches[end].received_at_heal = received;
            }
        }
    }

    /// Checks that packets received after the last fault were reported.
    pub(crate) fn check_reports(&self) -> Result<(), Violation> {
        for (pair, state) in self.pairs.iter().enumerate() {
            if state.ends.contains(&None) {
                continue;
            }
            for end in 0..2 {
                let before = state.watches[1 - end].received_at_heal;
                let has_received = self.received_packets(pair, 1 - end) > before;
                let stats = self.peer_stats(pair, end);
                let is_silent = stats.is_some_and(|stats| stats.delivered_bytes == 0);
                if has_received && is_silent {
                    let what = format!("end {end} of queue pair {pair} had no report: {stats:?}");
                    return Err(self.violation(Rule::Path, what));
                }
            }
        }
        Ok(())
    }
}
