//! Round-trip times, ECN and NAT, measured with small questions on an idle path.

use std::time::{Duration, Instant};

use super::{ProbeStage, Session};
use crate::datagram::{Answer, MIN_BYTES};
use crate::estimate::RoundTrips;
use crate::findings::RoundTrip;
use crate::{Error, findings};

/// Share of a probe's duration for round trips.
const PART: f64 = 0.2;
/// Largest number of questions after the first answer.
const SAMPLES: u32 = 200;
/// Shortest time from a question to the next one. The questions take 40 kbit/s at most over IPv4: more would queue on
/// a path of 64 kbit/s, and the round trips would be those of that queue.
const LEAST_PERIOD: Duration = Duration::from_millis(20);
/// Timeout for the first answer, and interval between the questions until it arrives.
const FIRST: Duration = Duration::from_secs(3);
const AGAIN: Duration = Duration::from_millis(100);
/// Shortest and longest wait for the answers to the last questions.
const LEAST_WAIT: Duration = Duration::from_millis(50);
const MOST_WAIT: Duration = Duration::from_secs(1);

impl Session<'_> {
    /// Measures round trips, the treatment of ECN bits, and address translation.
    pub(super) fn find_trips(&mut self) -> Result<(), Error> {
        (self.host.observe)(ProbeStage::RoundTrips);
        self.reach()?;
        if self.is_cancelled() {
            return Ok(());
        }
        let time = self.settings.time.mul_f64(PART);
        let period = (time / SAMPLES).max(LEAST_PERIOD);
        let mut found = Found {
            first: self.asked,
            ..Found::default()
        };
        let start = Instant::now();
        let mut sent = 0;
        while period * sent < time && !self.is_cancelled() {
            let due = start + period * sent;
            let wait = due.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                self.collect(wait, &mut found)?;
                continue;
            }
            self.ask(MIN_BYTES)?;
            sent += 1;
        }
        let longest = found.times.iter().max().copied().unwrap_or_default();
        let end = Instant::now() + (longest * 2).clamp(LEAST_WAIT, MOST_WAIT);
        while found.times.len() < sent as usize {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.collect(left, &mut found)?;
        }
        if let (Some(nat), Some(seen)) = (&mut self.findings.nat, found.seen) {
            nat.ours_seen = seen;
        }
        self.findings.round_trip = Some(RoundTrip {
            sent,
            times: RoundTrips::new(found.times),
            ecn: found.ecn,
        });
        Ok(())
    }

    /// Sends questions until an answer arrives. The answer shows that UDP passes in both
    /// directions.
    fn reach(&mut self) -> Result<(), Error> {
        let start = Instant::now();
        let mut has_answer = false;
        while !has_answer && !self.is_cancelled() {
            if start.elapsed() > FIRST {
                let peer = self.findings.peer;
                let to = peer.unwrap_or_else(|| self.control.peer_addr());
                return Err(Error::NoUdp { to, after: FIRST });
            }
            self.ask(MIN_BYTES)?;
            let questions = self.questions;
            self.flows
                .answers(questions, AGAIN, |_, _, _| has_answer = true)?;
        }
        Ok(())
    }

    pub(super) fn ask(&mut self, payload_bytes: usize) -> Result<bool, Error> {
        let sequence = self.asked;
        self.asked += 1;
        self.flows.ask(self.questions, sequence, payload_bytes)
    }

    fn collect(&mut self, patience: Duration, found: &mut Found) -> Result<(), Error> {
        let flows = u32::from(self.questions.flows);
        let take = |sequence: u32, answer: Answer, round_trip| {
            if sequence < found.first {
                return;
            }
            found.times.push(round_trip);
            found.ecn[usize::from(answer.ecn_bits)] += 1;
            if sequence.is_multiple_of(flows) {
                found.seen = Some(answer.seen);
            }
        };
        self.flows.answers(self.questions, patience, take)
    }
}

/// Results from the answers.
#[derive(Default)]
struct Found {
    /// Number of the first question that is evaluated.
    first: u32,
    times: Vec<Duration>,
    ecn: [u32; 4],
    /// Source address of the first flow's questions, as the peer sees it.
    seen: Option<std::net::SocketAddr>,
}

impl findings::RoundTrip {
    /// Questions without answer: lost in one of the two directions.
    #[must_use]
    pub fn lost(&self) -> u32 {
        let answered = u32::try_from(self.times.samples()).unwrap_or(u32::MAX);
        self.sent.saturating_sub(answered)
    }
}
