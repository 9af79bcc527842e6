//! Finds the largest packet that the path carries, by questions of many sizes that must not be
//! fragmented. The search is the one for transfers (P6.2), continued until the exact byte is known.
//!
//! Only answers count. The kernel also keeps a path MTU from ICMP messages, but anyone can forge them.

use std::time::{Duration, Instant};

use farwrite_route::SizeSearch;

use super::{ProbeStage, Session};
use crate::Error;
use crate::datagram::MIN_BYTES;
use crate::findings::{Mtu, MtuLimit};

/// Largest IP packet that is tried: the jumbo frame size that most switches support.
const MOST_BYTES: u32 = 9216;
/// Time for an answer, besides one and a half round trips.
const WAIT: Duration = Duration::from_millis(20);

impl Session<'_> {
    pub(super) fn find_mtu(&mut self) -> Result<(), Error> {
        (self.host.observe)(ProbeStage::Mtu);
        let least = u32::try_from(MIN_BYTES).unwrap_or(u32::MAX);
        let most = MOST_BYTES.saturating_sub(self.overhead_bytes).max(least);
        let mut search = SizeSearch::up_to(most);
        // Questions of this size have been answered already.
        search.pass(least);
        let mut refused = u32::MAX;
        while search.outcome().is_none() && !self.is_cancelled() {
            let smallest = self.ask_sizes(&mut search, most)?;
            refused = refused.min(smallest.unwrap_or(u32::MAX));
        }
        let Some(passes) = search.outcome() else {
            return Ok(());
        };
        self.findings.mtu = Some(Mtu {
            ip_bytes: self.ip_bytes(passes),
            payload_bytes: passes,
            limit: if passes == most {
                MtuLimit::Tried
            } else if passes + 1 == refused {
                MtuLimit::Local
            } else {
                MtuLimit::Path
            },
        });
        Ok(())
    }

    /// Sends questions of the sizes that are due, and waits until more are due. Returns the smallest
    /// size that this machine refused to send.
    fn ask_sizes(&mut self, search: &mut SizeSearch, most: u32) -> Result<Option<u32>, Error> {
        let path_bps = self.findings.rate.map_or(0.0, |rate| rate.bps);
        let timeout_ns = ns(self.longest_trip() * 3 / 2 + WAIT);
        let mut refused = None;
        while let Some(bytes) = search.probe(ns(self.started.elapsed()), timeout_ns) {
            if self.is_cancelled() {
                return Ok(refused);
            }
            if self.ask(bytes as usize)? {
                let turn = self.turn(self.ip_bytes(bytes).into(), path_bps);
                self.receive_sizes(turn, search, most)?;
            } else {
                search.too_large(bytes);
                refused = Some(refused.map_or(bytes, |least: u32| least.min(bytes)));
            }
        }
        let due_ns = search.next_ns(timeout_ns).unwrap_or(0);
        let wait_ns = due_ns.saturating_sub(ns(self.started.elapsed()));
        self.receive_sizes(Duration::from_nanos(wait_ns), search, most)?;
        Ok(refused)
    }

    /// Receives answers for a time, or until the search is complete.
    fn receive_sizes(
        &mut self,
        patience: Duration,
        search: &mut SizeSearch,
        most: u32,
    ) -> Result<(), Error> {
        let end = Instant::now() + patience;
        while search.outcome().is_none() && !self.is_cancelled() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.flows.answers(self.questions, left, |_, answer, _| {
                // Limit the reported size: no larger one was asked.
                if answer.question_bytes <= most {
                    search.pass(answer.question_bytes);
                }
            })?;
        }
        Ok(())
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
