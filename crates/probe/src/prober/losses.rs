//! Loss by packet size and rate: the measurement of the SDR-RDMA paper's Fig. 2.

use std::time::Duration;

use farwrite_units::show::real;

use super::rate::whole;
use super::{ProbeStage, Session};
use crate::datagram::MIN_BYTES;
use crate::message::{self, MAX_PACKETS, MAX_TRIAL_FLOWS, MAX_TRIALS};
use crate::settings::{RATE_PARTS, SIZES};
use crate::{Error, findings};

/// Shortest duration of a trial.
const SHORTEST: Duration = Duration::from_millis(20);
/// Smallest number of packets of a trial.
const MIN_PACKETS: u64 = 10;
/// All trials together take at most this many times the duration of a probe, or [`SHORTEST`] each. On a thin path,
/// the smallest number of packets takes long, so fewer trials are sent.
const MOST_DURATIONS: u32 = 2;
/// Time reserved for the last packets and the counts.
const END: Duration = Duration::from_millis(50);
/// Number of questions after the last trial. With them, the responder's socket reports its drops.
const LAST_QUESTIONS: u32 = 3;

/// A trial before it is sent.
struct Planned {
    trial: message::Trial,
    payload_bytes: u32,
    rate_bps: u64,
    round: u32,
}

impl Session<'_> {
    /// Sends all trials, then requests their counts.
    pub(super) fn count_losses(&mut self) -> Result<(), Error> {
        let plan = self.plan()?;
        self.open(plan.iter().map(|planned| planned.trial).collect())?;
        let all = plan.len() as u64;
        let mut sent = Vec::new();
        for (planned, done) in plan.iter().zip(0..) {
            (self.host.observe)(ProbeStage::Losses { done, all });
            let size = (planned.payload_bytes, self.ip_bytes(planned.payload_bytes));
            let how = self
                .flows
                .send_trial(planned.trial, size, planned.rate_bps, self.host)?;
            if how.packets < planned.trial.packets {
                break;
            }
            sent.push((planned, how));
        }
        let longest_trip = self.longest_trip();
        std::thread::sleep(longest_trip + END);
        for _ in 0..LAST_QUESTIONS {
            self.ask(MIN_BYTES)?;
        }
        std::thread::sleep(longest_trip);
        let ids: Vec<_> = sent.iter().map(|(planned, _)| planned.trial.id).collect();
        let counts = self.close(&ids)?;
        let trials = sent.into_iter().zip(counts);
        self.findings.trials = trials
            .map(|((planned, how), counts)| findings::TrialFindings {
                payload_bytes: planned.payload_bytes,
                rate_bps: planned.rate_bps,
                round: planned.round,
                packets: how.packets,
                unsent: how.unsent,
                waits: how.waits,
                elapsed: how.elapsed,
                counts,
            })
            .collect();
        Ok(())
    }

    /// Plans trials of equal duration that fill the remaining time. Sizes and rates alternate, so
    /// that a change of the path affects all of them.
    fn plan(&mut self) -> Result<Vec<Planned>, Error> {
        let (sizes, rates) = (self.sizes()?, self.rates()?);
        let flows = self.flows.count();
        let most = (MAX_TRIALS - 1).min(MAX_TRIAL_FLOWS / usize::from(flows) - 1);
        let cells = sizes.len() * rates.len();
        let rounds = (self.settings.trials as usize)
            .min(most / cells.max(1))
            .max(1);
        let count = u32::try_from((cells * rounds).min(most)).unwrap_or(u32::MAX);
        let end = END + self.longest_trip() * 3;
        let left = self
            .settings
            .time
            .saturating_sub(self.started.elapsed() + end);
        let length = (left / count.max(1)).max(SHORTEST);
        let most_packets = (MAX_PACKETS - u64::from(self.questions.packets)) / u64::from(count);
        let mut plan = Vec::new();
        for round in 0..u32::try_from(rounds).unwrap_or(u32::MAX) {
            // If there is no time for all trials, those of the highest rate take the least time.
            for &rate_bps in rates.iter().rev() {
                for &payload_bytes in &sizes {
                    let bits = u128::from(self.ip_bytes(payload_bytes)) * 8;
                    let packets = u128::from(rate_bps) * length.as_nanos() / 1_000_000_000 / bits;
                    let packets = u64::try_from(packets).unwrap_or(u64::MAX);
                    let packets = packets.max(MIN_PACKETS).min(most_packets);
                    let trial = self.trial(u32::try_from(packets).unwrap_or(u32::MAX), flows);
                    plan.push(Planned {
                        trial,
                        payload_bytes,
                        rate_bps,
                        round,
                    });
                }
            }
        }
        plan.truncate(most);
        self.fit_into_time(&mut plan);
        Ok(plan)
    }

    /// Leaves out the last trials of a plan that would take too long, and counts them. One trial remains.
    fn fit_into_time(&mut self, plan: &mut Vec<Planned>) {
        let planned = plan.len();
        let most = (self.settings.time * MOST_DURATIONS)
            .max(SHORTEST * u32::try_from(planned).unwrap_or(u32::MAX));
        let mut total = Duration::ZERO;
        let fits = plan.iter().take_while(|planned| {
            let bits = u64::from(self.ip_bytes(planned.payload_bytes))
                * 8
                * u64::from(planned.trial.packets);
            total += Duration::from_secs_f64(real(bits) / real(planned.rate_bps.max(1)));
            total <= most
        });
        let fits = fits.count().max(1);
        plan.truncate(fits);
        self.findings.trials_left_out = planned.saturating_sub(fits);
    }

    /// The sizes that fit the path's MTU.
    fn sizes(&self) -> Result<Vec<u32>, Error> {
        let Some(mtu) = self.findings.mtu else {
            return Ok(vec![SIZES[0]]);
        };
        let fits = |size: &u32| *size <= mtu.payload_bytes;
        let Some(asked) = &self.settings.sizes else {
            let mut sizes: Vec<_> = SIZES.into_iter().filter(fits).collect();
            if sizes.len() < SIZES.len() && !sizes.contains(&mtu.payload_bytes) {
                // Fig. 2 compares sizes, so the largest size that the path carries is added.
                sizes.push(mtu.payload_bytes);
            }
            return Ok(sizes);
        };
        match asked.iter().find(|size| !fits(size)) {
            Some(&payload_bytes) => Err(Error::Size {
                payload_bytes,
                mtu: mtu.ip_bytes,
                largest_bytes: mtu.payload_bytes,
            }),
            None => Ok(asked.clone()),
        }
    }

    fn rates(&self) -> Result<Vec<u64>, Error> {
        let share = self.settings.share;
        let path_bps = self.findings.rate.map_or(0.0, |rate| rate.bps);
        let allowed = (path_bps * share).min(real(self.settings.max_rate_bps));
        let Some(asked) = &self.settings.rates_bps else {
            let mut rates = RATE_PARTS.map(|part| whole(allowed * part)).to_vec();
            rates.dedup();
            return Ok(rates);
        };
        match asked.iter().find(|rate| real(**rate) > allowed) {
            Some(&rate_bps) => Err(Error::Rate {
                rate_bps,
                allowed_bps: whole(allowed),
                share,
            }),
            None => Ok(asked.clone()),
        }
    }
}
