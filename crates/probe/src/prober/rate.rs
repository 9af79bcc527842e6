//! Finds the rate that the path carries. Packet trains, each four times as fast as the one before,
//! look for the limit until one of them arrives more slowly than it was sent. Longer trains at the
//! rate of that arrival confirm it. A train has to be as fast as the path, so a pause follows each
//! one: both together stay below the share of the path that the probe may use.

use std::time::{Duration, Instant};

use farwrite_units::show::real;

use super::{ProbeStage, Session};
use crate::Error;
use crate::datagram::MIN_BYTES;
use crate::estimate::{Spread, rate_bps};
use crate::findings::{Rate, RateLimit};
use crate::message::{Trial, TrialCounts};
use crate::prober::flows::Sent;

/// Payload of a train's packets. Every path that carries IPv6 carries this size.
const PAYLOAD_BYTES: u32 = 1200;
/// Rate of the first train in bits per second, and the factor from each train to the next.
const FIRST_BPS: u64 = 4_000_000;
const STEP: u64 = 4;
/// Duration of a train that looks for the rate, and of one that confirms it.
const LOOK: Duration = Duration::from_millis(20);
const CONFIRM: Duration = Duration::from_millis(100);
/// Smallest and largest number of packets of a train.
const MIN_PACKETS: u64 = 16;
const MAX_PACKETS: u64 = 1 << 18;
/// Slowest mean rate of trains and of questions of many sizes, in bits per second. With less, a
/// probe of a slow path would not end.
pub(super) const LEAST_BPS: u64 = 64_000;
/// Number of rates to confirm, each lower than the one before, until one is carried.
const CONFIRMATIONS: u32 = 3;
/// Number of trains at one rate, until one is carried. The path may lose much of a short train by
/// chance or delay its last packet, and this machine may be busy.
const ATTEMPTS: u32 = 3;
/// If a train was sent at less than this share of its rate, this machine was the limit.
const KEPT: f64 = 0.75;
/// During a pause, the user's wish to end the probe is looked at this often.
const LOOK_UP: Duration = Duration::from_millis(50);
/// During a long pause, a question at this interval keeps the responder from giving up.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The trains sent so far.
#[derive(Default)]
struct Trains {
    count: u32,
    /// Highest rate at which one of them arrived, in bits per second. The path carries at least
    /// this.
    carried_bps: f64,
}

impl Session<'_> {
    pub(super) fn find_rate(&mut self) -> Result<(), Error> {
        (self.host.observe)(ProbeStage::Rate);
        let most_bps = self.settings.max_rate_bps;
        let mut bps = FIRST_BPS.min(most_bps);
        let mut trains = Trains::default();
        let (mut carried_bps, mut limit) = loop {
            let Some(spread) = self.trains(bps, LOOK, &mut trains)? else {
                return Ok(());
            };
            if !spread.is_carried() {
                break (spread.carried_bps(), RateLimit::Path);
            }
            if !left_in_time(&spread, bps) {
                break (spread.offered_bps, RateLimit::Sender);
            }
            if bps == most_bps {
                break (real(bps), RateLimit::Asked);
            }
            bps = bps.saturating_mul(STEP).min(most_bps);
        };
        for _ in 0..CONFIRMATIONS {
            let Some(spread) = self.trains(whole(carried_bps), CONFIRM, &mut trains)? else {
                return Ok(());
            };
            if spread.is_carried() {
                break;
            }
            carried_bps = spread.carried_bps();
            limit = RateLimit::Path;
        }
        self.findings.rate = Some(Rate {
            bps: carried_bps,
            limit,
            trains: trains.count,
        });
        Ok(())
    }

    /// Sends trains at one rate until one is sent on time and is carried. Returns the train with
    /// the best arrival rate; `None` if the user ends the probe.
    fn trains(
        &mut self,
        bps: u64,
        time: Duration,
        trains: &mut Trains,
    ) -> Result<Option<Spread>, Error> {
        let mut best: Option<Spread> = None;
        for _ in 0..ATTEMPTS {
            if self.is_cancelled() {
                return Ok(None);
            }
            let spread = self.train(bps, time, trains)?;
            if best.is_none_or(|best| spread.carried_bps() > best.carried_bps()) {
                best = Some(spread);
            }
            if spread.is_carried() && left_in_time(&spread, bps) {
                return Ok(Some(spread));
            }
        }
        Ok(best)
    }

    /// Sends a train, waits until the path has had time for other traffic, and returns the rates of
    /// the train at both ends.
    fn train(&mut self, bps: u64, time: Duration, trains: &mut Trains) -> Result<Spread, Error> {
        let ip_bytes = self.ip_bytes(PAYLOAD_BYTES);
        let packets = u128::from(bps) * time.as_nanos() / 8_000_000_000 / u128::from(ip_bytes);
        let packets = u64::try_from(packets).unwrap_or(MAX_PACKETS);
        let packets = u32::try_from(packets.clamp(MIN_PACKETS, MAX_PACKETS)).unwrap_or(u32::MAX);
        // One flow, as in a transfer. Paths with several links carry each flow on one of them.
        let trial = self.trial(packets, 1);
        self.open(vec![trial])?;
        let size = (PAYLOAD_BYTES, ip_bytes);
        let start = Instant::now();
        let sent = self.flows.send_trial(trial, size, bps, self.host)?;
        // At a quarter of the rate, the train takes four times as long to arrive.
        std::thread::sleep(self.longest_trip() + sent.elapsed * 3 + Duration::from_millis(10));
        let counts = self.close(&[trial.id])?;
        let spread = spread(trial, ip_bytes, bps, &sent, &counts[0]);
        trains.count += 1;
        trains.carried_bps = trains.carried_bps.max(spread.carried_bps());
        let bytes = u64::from(sent.packets) * u64::from(ip_bytes);
        self.rest(start + self.turn(bytes, trains.carried_bps))?;
        Ok(spread)
    }

    /// The time that `bytes` take at the share of a path of `path_bps` that the probe may use.
    pub(super) fn turn(&self, bytes: u64, path_bps: f64) -> Duration {
        let allowed_bps = whole(path_bps * self.settings.share).max(LEAST_BPS);
        Duration::from_secs_f64(real(bytes) * 8.0 / real(allowed_bps))
    }

    /// Sends nothing but questions until `end`, or until the user ends the probe.
    fn rest(&mut self, end: Instant) -> Result<(), Error> {
        let mut asked = Instant::now();
        while !self.is_cancelled() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(LOOK_UP));
            if asked.elapsed() > KEEP_ALIVE {
                self.ask(MIN_BYTES)?;
                asked = Instant::now();
            }
        }
        Ok(())
    }
}

/// Whether a train was sent at about its planned rate.
fn left_in_time(spread: &Spread, bps: u64) -> bool {
    spread.offered_bps >= KEPT * real(bps)
}

fn spread(trial: Trial, ip_bytes: u32, bps: u64, sent: &Sent, counts: &TrialCounts) -> Spread {
    let bytes = |packets: u32| u64::from(packets) * u64::from(ip_bytes);
    // The first packet does not take part of the measured time.
    let left_bps = rate_bps(bytes(sent.packets.saturating_sub(1)), sent.elapsed);
    let between = counts.last.0.saturating_sub(counts.first.0);
    let time = Duration::from_nanos(counts.last.1.saturating_sub(counts.first.1));
    Spread {
        offered_bps: left_bps.min(real(bps)),
        // All packets arrived at one clock value: the train was too short for this clock.
        arrived_bps: match time.is_zero() && counts.received > 1 {
            true => real(bps),
            false => rate_bps(bytes(between), time),
        },
        received: f64::from(counts.received) / f64::from(trial.packets.max(1)),
    }
}

/// Converts to whole bits per second, at least 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 1 and the highest rate that was asked for"
)]
pub(super) fn whole(bps: f64) -> u64 {
    bps.max(1.0) as u64
}
