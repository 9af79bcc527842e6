//! The largest packet that the path carries: questions of many sizes, none of which may be
//! fragmented. ICMP is not trusted: anyone can forge it (RFC 8899, section 4.6).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use farwrite_fabric::udp::path_mtu;

use super::rate::whole;
use super::{Event, Session};
use crate::Error;
use crate::datagram::MIN_BYTES;
use crate::findings::{Mtu, MtuLimit};

/// Largest IP packet that is tried: the jumbo frames that switches have in common.
const MOST_BYTES: u32 = 9216;
/// Sizes that are tried at a time, so that a round narrows the range by a factor of 17.
const SIZES: u32 = 16;
/// How often each is sent.
const TIMES: u32 = 3;
/// Slowest pace, in bits a second.
const LEAST_BPS: u64 = 1_000_000;
/// For the last answers of a round, beside two round trips.
const WAIT: Duration = Duration::from_millis(50);

impl Session<'_> {
    /// Finds the MTU.
    pub(super) fn find_mtu(&mut self) -> Result<(), Error> {
        (self.host.observe)(Event::Mtu);
        let local = self.findings.peer.and_then(|peer| path_mtu(peer).ok());
        let most = local.map_or(MOST_BYTES, |local| local.min(MOST_BYTES));
        let overhead = self.overhead_bytes;
        let smallest = self.ip_bytes(u32::try_from(MIN_BYTES).unwrap_or(u32::MAX));
        // The largest that is known to pass, and the smallest that is not.
        let (mut passes, mut fails) = (smallest, most.max(smallest) + 1);
        let mut tried = vec![most.max(smallest)];
        while fails > passes + 1 && !self.is_cancelled() {
            let answered = self.round(&tried)?;
            passes = answered.last().copied().unwrap_or(passes).max(passes);
            fails = tried
                .iter()
                .copied()
                .find(|size| *size > passes)
                .unwrap_or(fails);
            tried = between(passes, fails);
        }
        if self.is_cancelled() {
            return Ok(());
        }
        self.findings.mtu = Some(Mtu {
            ip_bytes: passes,
            payload_bytes: passes - overhead,
            limit: match local {
                _ if passes < most => MtuLimit::Path,
                Some(local) if passes == local => MtuLimit::Local,
                _ => MtuLimit::Tried,
            },
        });
        Ok(())
    }

    /// Asks questions of these sizes, as IP packets; the sizes that were answered.
    fn round(&mut self, sizes: &[u32]) -> Result<BTreeSet<u32>, Error> {
        let mut answered = BTreeSet::new();
        let share = self.findings.rate.map_or(0.0, |rate| rate.bps) * self.settings.share;
        let bps = whole(share).max(LEAST_BPS).min(self.settings.max_rate_bps);
        for &ip_bytes in sizes.iter().cycle().take(sizes.len() * TIMES as usize) {
            if answered.contains(&ip_bytes) || self.is_cancelled() {
                continue;
            }
            if self.ask((ip_bytes - self.overhead_bytes) as usize)? {
                let ns = u64::from(ip_bytes) * 8 * 1_000_000_000 / bps;
                self.listen(Duration::from_nanos(ns), sizes, &mut answered)?;
            }
        }
        self.listen(self.longest_trip() * 2 + WAIT, sizes, &mut answered)?;
        Ok(answered)
    }

    /// Waits for answers, until all sizes have one.
    fn listen(
        &mut self,
        patience: Duration,
        sizes: &[u32],
        answered: &mut BTreeSet<u32>,
    ) -> Result<(), Error> {
        let end = Instant::now() + patience;
        while answered.len() < sizes.len() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_cancelled() {
                break;
            }
            let overhead = self.overhead_bytes;
            self.flows.answers(self.questions, left, |answer| {
                let ip_bytes = answer.answer.question_bytes.saturating_add(overhead);
                if sizes.contains(&ip_bytes) {
                    answered.insert(ip_bytes);
                }
            })?;
        }
        Ok(())
    }
}

/// Sizes between one that passes and one that does not, in ascending order.
fn between(passes: u32, fails: u32) -> Vec<u32> {
    let room = fails - passes;
    let sizes = (1..=SIZES).map(|i| passes + room * i / (SIZES + 1));
    let sizes: BTreeSet<u32> = sizes.filter(|size| *size > passes).collect();
    sizes.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_rounds_find_any_size() {
        for mtu in [100, 1279, 1500, 8999, 9215, 9216] {
            let (mut passes, mut fails, mut rounds) = (100, MOST_BYTES + 1, 0);
            while fails > passes + 1 {
                let tried = between(passes, fails);
                passes = tried
                    .iter()
                    .copied()
                    .filter(|size| *size <= mtu)
                    .max()
                    .unwrap_or(passes);
                fails = tried
                    .iter()
                    .copied()
                    .find(|size| *size > passes)
                    .unwrap_or(fails);
                rounds += 1;
            }
            assert_eq!(passes, mtu);
            assert!(rounds <= 4, "{rounds} rounds for {mtu}");
        }
    }
}
