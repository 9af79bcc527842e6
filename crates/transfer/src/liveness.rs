//! Checks whether a transfer is alive. `channel_writer.rs` sends the signs of life of this end.
//!
//! A slow disk, at either end, never ends a transfer: the end reports it in its signs of life, and
//! both wait. A transfer ends if a peer is silent, or if almost nothing moves on the path.

use std::time::{Duration, Instant};

use crate::progress_counts::{FILE_STEPS, OwnCounts, PeerCounts};
use crate::{Error, ErrorKind};

/// After the peer's queue pair is known, its first packets must come within this time.
const FIRST_PACKET: Duration = Duration::from_secs(10);
/// A disk operation that has taken this long delays the transfer. Signs of life may come only
/// once a second (P8.13), so a shorter operation may have ended already.
const HELD_UP: Duration = Duration::from_secs(1);

/// The steps that one end must make in the time limit, in bytes. A trickle of fewer is no progress:
/// it would keep a transfer of a megabyte alive for hours.
const LEAST_STEPS: u64 = FILE_STEPS;
/// Rate in bits per second of the slowest paths that transfers must survive, whatever their time
/// limit.
const SLOWEST_BPS: u64 = 8_000;
/// A transfer that makes one part in this number of what the rate allows makes progress.
const LEAST_SHARE: u64 = 10;

/// Returns how many steps an end must make in the time limit: a tenth of what the path may carry in
/// that time, at most [`LEAST_STEPS`]. `rate_bps` is the highest rate that the user allows.
pub(crate) fn least_steps(timeout: Duration, rate_bps: Option<u64>) -> u64 {
    let rate_bps = rate_bps.unwrap_or(SLOWEST_BPS).min(SLOWEST_BPS);
    let bits = timeout.as_millis().saturating_mul(rate_bps.into()) / 1000;
    let bytes = u64::try_from(bits / 8).unwrap_or(u64::MAX);
    (bytes / LEAST_SHARE).clamp(1, LEAST_STEPS)
}

/// If nothing is heard for longer than this, signs of life are missing: a peer sends at least two in this time.
const SILENT: Duration = Duration::from_secs(1);
/// The time between two probes while nothing shows that packets pass in both directions.
const PROBE_PERIOD: Duration = Duration::from_millis(500);
/// If two checks are further apart than this, the process was stopped or the machine was asleep.
const STOPPED: Duration = Duration::from_secs(1);

/// The observations of an end so far. Each count only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LifeSigns {
    /// UDP packets from the peer: of queue pairs, and of the route (P6.2).
    pub(crate) packets: [u64; 2],
    /// Messages and notices from the peer.
    pub(crate) messages: u64,
    /// When the peer has last answered a probe of the route, on the clock of the endpoint.
    pub(crate) answered_ns: u64,
    /// The steps of this end, and of the peer, toward the end of the transfer, in bytes (P8.13).
    pub(crate) moved: [u64; 2],
    /// How long the current disk operation at this end has taken.
    pub(crate) own_disk: Duration,
    /// The same at the peer, according to its last report.
    pub(crate) peer_disk: Duration,
    /// Whether this end does not read the channel because it waits for its disk.
    pub(crate) is_deaf: bool,
}

impl LifeSigns {
    /// Collects the observations at `now`.
    pub(crate) fn read(
        now: Instant,
        (packets, answered_ns): ([u64; 2], u64),
        own: &OwnCounts,
        peer: &PeerCounts,
    ) -> Self {
        let told = peer.progress();
        Self {
            packets,
            answered_ns,
            messages: peer.messages.get(),
            moved: [own.moved(), told.moved],
            own_disk: own.disk_busy(now),
            peer_disk: Duration::from_millis(told.disk_ms),
            is_deaf: peer.is_held_up(),
        }
    }

    /// Returns a count that grows with every step of either end.
    pub(crate) fn all_moved(&self) -> u64 {
        self.moved[0].saturating_add(self.moved[1])
    }

    /// Returns which disk delays the transfer, and for how long.
    pub(crate) fn slow_disk(&self) -> Option<(&'static str, Duration)> {
        let own = ("this machine's disk", self.own_disk);
        let peer = ("the peer's disk", self.peer_disk);
        let longest = if own.1 >= peer.1 { own } else { peer };
        (longest.1 >= HELD_UP).then_some(longest)
    }
}

/// Warns of a disk that delays a transfer, once for each delay.
#[derive(Debug)]
pub(crate) struct SlowDisk {
    /// How long one operation may take without a warning.
    after: Duration,
    has_warned: bool,
}

impl SlowDisk {
    pub(crate) fn new(after: Duration) -> Self {
        Self {
            after,
            has_warned: false,
        }
    }

    /// Processes the current value of [`LifeSigns::slow_disk`], and returns the warning when it is due.
    pub(crate) fn warning(&mut self, slow: Option<(&'static str, Duration)>) -> Option<String> {
        let Some((disk, busy)) = slow.filter(|(_, busy)| *busy >= self.after) else {
            self.has_warned &= slow.is_some();
            return None;
        };
        let is_first = !std::mem::replace(&mut self.has_warned, true);
        is_first.then(|| {
            format!(
                "{disk} has not finished one operation for {} s; the transfer waits for it",
                busy.as_secs()
            )
        })
    }
}

/// Ends a transfer that is dead.
#[derive(Debug)]
pub(crate) struct Liveness {
    timeout: Duration,
    /// The steps that this end or the peer must make in this time.
    least: [u64; 2],
    /// For the message about what may be blocked.
    ports: String,
    /// The time from which packets are expected.
    since: Instant,
    seen: LifeSigns,
    heard_at: Instant,
    /// When something last showed that packets pass in both directions, and the last probe since then.
    passed_at: Instant,
    probed_at: Instant,
    /// When the transfer last made progress, and the steps until then.
    moved_at: Instant,
    moved: [u64; 2],
    /// How long the peer was silent since then.
    silent: Duration,
    looked_at: Instant,
    slow_disk: SlowDisk,
}

impl Liveness {
    /// `least` has the steps that this end and the peer must make in the timeout; one of the two is
    /// enough. `ports` names the UDP ports of both ends.
    pub(crate) fn new(timeout: Duration, least: [u64; 2], ports: String, now: Instant) -> Self {
        Self {
            timeout,
            least,
            ports,
            since: now,
            seen: LifeSigns::default(),
            heard_at: now,
            passed_at: now,
            probed_at: now,
            moved_at: now,
            moved: [0; 2],
            silent: Duration::ZERO,
            looked_at: now,
            slow_disk: SlowDisk::new(timeout),
        }
    }

    /// Processes the observations at `now`. Returns a warning, once, when a disk has delayed the
    /// transfer for as long as a peer may be silent.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] if no packet ever came, if the peer was silent for the timeout,
    /// or if less than the least moved in that time.
    pub(crate) fn look(&mut self, now: Instant, signs: LifeSigns) -> Result<Option<String>, Error> {
        self.skip_pause(now);
        let heard = (signs.packets, signs.messages) != (self.seen.packets, self.seen.messages);
        if heard || signs.is_deaf {
            let silent = now.saturating_duration_since(self.heard_at);
            if silent > SILENT {
                self.silent += silent;
            }
            self.heard_at = now;
        }
        // The peer reports its steps, which need packets of this end.
        if signs.answered_ns != self.seen.answered_ns || signs.moved[1] != self.seen.moved[1] {
            self.passed_at = now;
        }
        let slow_disk = signs.slow_disk();
        if slow_disk.is_some() {
            self.since = now;
        }
        let made = self.made(signs.moved);
        if slow_disk.is_some() || made[0] >= self.least[0] || made[1] >= self.least[1] {
            self.moved_at = now;
            self.moved = signs.moved;
            self.silent = Duration::ZERO;
        }
        self.seen = signs;
        self.check(now)?;
        Ok(self.slow_disk.warning(slow_disk))
    }

    /// When the peer was last heard. While this end waits for its disk, this is the present time.
    pub(crate) fn heard_at(&self) -> Instant {
        self.heard_at
    }

    /// For how long nothing was heard of the peer, if that is longer than signs of life are apart.
    pub(crate) fn silence(&self, now: Instant) -> Option<Duration> {
        let silence = now.saturating_duration_since(self.heard_at);
        (silence > SILENT).then_some(silence)
    }

    /// For how long nothing has shown that packets pass in both directions.
    pub(crate) fn blocked(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.passed_at)
    }

    /// Whether to probe the route now, so that packets that pass show it.
    pub(crate) fn wants_probe(&mut self, now: Instant) -> bool {
        let is_due = now.saturating_duration_since(self.probed_at) >= PROBE_PERIOD;
        let wants = is_due && self.blocked(now) >= PROBE_PERIOD;
        if wants {
            self.probed_at = now;
        }
        wants
    }

    /// Returns the steps of both ends since the last progress.
    fn made(&self, moved: [u64; 2]) -> [u64; 2] {
        [0, 1].map(|end| moved[end].saturating_sub(self.moved[end]))
    }

    /// Excludes a time in which this process did not run from the peer's silence.
    fn skip_pause(&mut self, now: Instant) {
        let pause = now.saturating_duration_since(self.looked_at);
        self.looked_at = now;
        if pause >= STOPPED {
            self.since += pause;
            self.heard_at += pause;
            self.passed_at += pause;
            self.moved_at += pause;
        }
    }

    fn check(&self, now: Instant) -> Result<(), Error> {
        let dead = |what: String| Err(Error::new(ErrorKind::Unreachable, what));
        let awaited = now.saturating_duration_since(self.since);
        if self.seen.packets[0] == 0 && awaited >= FIRST_PACKET.min(self.timeout) {
            return dead(format!(
                "no packet of the peer's data came within {} s, though the connection works: UDP \
                 seems to be blocked between {} (a firewall, or address translation)",
                awaited.as_secs(),
                self.ports
            ));
        }
        let after_s = self.timeout.as_secs_f64();
        if now - self.heard_at >= self.timeout {
            return dead(format!("nothing was heard of the peer for {after_s} s"));
        }
        // The last packet of a peer that stops can be later than the last movement. Such a peer
        // does not answer: its silence ends the transfer shortly after.
        let answers = now - self.heard_at < self.timeout / 2;
        // After an outage, both ends need some time before they move data again. So the silence of the peer
        // does not count as time without movement, up to one time limit.
        let patience = self.timeout + self.silent.min(self.timeout);
        if answers && now - self.moved_at >= patience {
            return dead(match self.made(self.seen.moved) {
                [0, 0] => format!(
                    "the peer answers, but nothing moved for {after_s} s, and neither end waits for \
                     its disk: if small packets come through and large ones do not, a smaller --mtu \
                     helps"
                ),
                made => format!(
                    "the peer answers, but only {} bytes moved in {after_s} s, and neither end waits \
                     for its disk; {} are expected in that time. On a path that is so slow, a longer \
                     --timeout helps",
                    made[0].max(made[1]),
                    self.least[0]
                ),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Checks at `at_s`, and every half second until then.
    fn look(
        liveness: &mut Liveness,
        start: Instant,
        at_s: u64,
        signs: LifeSigns,
    ) -> Option<String> {
        let until = start + Duration::from_secs(at_s);
        let mut now = liveness.looked_at;
        let before = liveness.seen;
        while now < until {
            now = until.min(now + Duration::from_millis(500));
            let seen = if now == until { signs } else { before };
            if let Err(error) = liveness.look(now, seen) {
                return Some(error.to_string());
            }
        }
        None
    }

    fn signs(packets: u64, messages: u64, moved: u64) -> LifeSigns {
        LifeSigns {
            packets: [packets, 0],
            messages,
            moved: [moved, 0],
            ..LifeSigns::default()
        }
    }

    fn liveness() -> (Liveness, Instant) {
        let now = Instant::now();
        let liveness = Liveness::new(TIMEOUT, [1, 1], "here and there".into(), now);
        (liveness, now)
    }

    #[test]
    fn udp_that_never_comes_is_blocked() {
        let (mut liveness, start) = liveness();
        assert_eq!(look(&mut liveness, start, 9, signs(0, 5, 0)), None);
        let error = look(&mut liveness, start, 10, signs(0, 9, 0)).expect("blocked");
        assert!(error.contains("between here and there"), "{error}");
    }

    #[test]
    fn an_outage_shorter_than_the_timeout_is_survived() {
        let (mut liveness, start) = liveness();
        assert_eq!(look(&mut liveness, start, 1, signs(1, 0, 1)), None);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(liveness.silence(at(2)), None);
        assert_eq!(liveness.silence(at(13)), Some(Duration::from_secs(12)));
        assert_eq!(look(&mut liveness, start, 60, signs(2, 0, 2)), None);
        let error = look(&mut liveness, start, 120, signs(2, 0, 2)).expect("lost");
        assert!(error.contains("nothing was heard"), "{error}");
    }

    #[test]
    fn packets_pass_while_probes_are_answered_or_the_peer_reports_steps() {
        let (mut liveness, start) = liveness();
        let at = |seconds| start + Duration::from_secs(seconds);
        let seen = |packets, answered_ns, of_peer| LifeSigns {
            packets: [packets, 0],
            answered_ns,
            moved: [0, of_peer],
            ..LifeSigns::default()
        };
        assert_eq!(look(&mut liveness, start, 5, seen(1, 1, 0)), None);
        assert_eq!(liveness.blocked(at(5)), Duration::ZERO);
        assert!(!liveness.wants_probe(at(5)));
        // Packets of the peer alone do not show that those of this end pass.
        assert_eq!(look(&mut liveness, start, 20, seen(9, 1, 0)), None);
        assert_eq!(liveness.blocked(at(20)), Duration::from_secs(15));
        assert!(liveness.wants_probe(at(20)), "no answer");
        assert!(!liveness.wants_probe(at(20)), "it was just probed");
        assert_eq!(look(&mut liveness, start, 21, seen(9, 1, 5)), None);
        assert_eq!(liveness.blocked(at(22)), Duration::from_secs(1));
        assert_eq!(look(&mut liveness, start, 30, seen(9, 2, 5)), None);
        assert_eq!(liveness.blocked(at(30)), Duration::ZERO);
    }

    #[test]
    fn a_peer_that_only_talks_is_stuck() {
        let (mut liveness, start) = liveness();
        for second in 0..60 {
            let signs = signs(second + 1, second, 0);
            assert_eq!(look(&mut liveness, start, second, signs), None);
        }
        let error = look(&mut liveness, start, 60, signs(70, 70, 0)).expect("stuck");
        assert!(error.contains("--mtu"), "{error}");
    }

    /// Checks each second, while `bytes` arrive in each. Returns when the transfer ended, in seconds.
    fn trickle(timeout: u64, rate_bps: Option<u64>, bytes: u64) -> Option<u64> {
        let timeout = Duration::from_secs(timeout);
        let least = least_steps(timeout, rate_bps);
        for end in 0..2 {
            let start = Instant::now();
            let mut liveness = Liveness::new(timeout, [least; 2], String::new(), start);
            for half_second in 1..1_000_u64 {
                let mut signs = signs(half_second, half_second, 0);
                signs.moved[end] = half_second / 2 * bytes;
                let now = start + Duration::from_millis(500 * half_second);
                if let Err(error) = liveness.look(now, signs) {
                    let error = error.to_string();
                    assert!(error.contains(&format!("{least} are expected")), "{error}");
                    return Some(half_second / 2);
                }
            }
        }
        None
    }

    #[test]
    fn a_trickle_is_no_progress() {
        // 4096 bytes in 60 s are 68 in a second.
        assert_eq!(trickle(60, None, 67), Some(60));
        assert_eq!(trickle(60, None, 69), None);
        assert_eq!(trickle(60, Some(1_000_000_000), 67), Some(60));
        // A tenth of 1 kbit/s is 12.5 bytes in a second.
        assert_eq!(trickle(60, Some(1_000), 12), Some(60));
        assert_eq!(trickle(60, Some(1_000), 13), None);
    }

    #[test]
    fn a_path_of_8_kbit_a_second_lives_whatever_the_time_limit() {
        for timeout in [2, 5, 30, 60, 600] {
            assert_eq!(trickle(timeout, None, 800), None, "{timeout} s");
        }
    }

    #[test]
    fn files_that_end_are_progress_whatever_their_size() {
        let (timeout, start) = (TIMEOUT, Instant::now());
        let least = [least_steps(timeout, None); 2];
        let mut liveness = Liveness::new(timeout, least, String::new(), start);
        for minute in 0..5 {
            let signs = signs(minute + 1, minute + 1, minute * FILE_STEPS);
            let at_s = if minute == 0 { 1 } else { 59 * minute };
            assert_eq!(look(&mut liveness, start, at_s, signs), None);
        }
    }

    #[test]
    fn a_peer_that_stops_after_a_last_notice_is_silent() {
        let (mut liveness, start) = liveness();
        assert_eq!(look(&mut liveness, start, 1, signs(1, 1, 1)), None);
        assert_eq!(look(&mut liveness, start, 3, signs(2, 1, 1)), None);
        assert_eq!(look(&mut liveness, start, 62, signs(2, 1, 1)), None);
        let error = look(&mut liveness, start, 63, signs(2, 1, 1)).expect("lost");
        assert!(error.contains("nothing was heard"), "{error}");
    }

    /// The channel of a path that was dead for 50 s can be silent for as long again.
    #[test]
    fn an_outage_is_no_time_without_movement() {
        let (mut liveness, start) = liveness();
        assert_eq!(look(&mut liveness, start, 1, signs(1, 1, 1)), None);
        let answers = |second| LifeSigns {
            packets: [1, second],
            ..signs(1, 1, 1)
        };
        for second in 51..110 {
            assert_eq!(look(&mut liveness, start, second, answers(second)), None);
        }
        let error = look(&mut liveness, start, 112, answers(112)).expect("stuck");
        assert!(error.contains("nothing moved for 60 s"), "{error}");
        // A peer that answers now and then, and does not go on, is given up too.
        let (mut liveness, start) = self::liveness();
        let gave_up = (1..50).find(|round| {
            let at_s = 5 * round;
            look(&mut liveness, start, at_s, signs(at_s, 1, 0)).is_some()
        });
        assert_eq!(gave_up, Some(24), "twice the time limit");
    }

    #[test]
    fn a_slow_disk_is_waited_for_and_named_once() {
        for is_own in [true, false] {
            let (mut liveness, start) = liveness();
            let mut warnings = Vec::new();
            for half_second in 2..800 {
                let busy = Duration::from_millis(500 * half_second);
                let signs = LifeSigns {
                    own_disk: if is_own { busy } else { Duration::ZERO },
                    peer_disk: if is_own { Duration::ZERO } else { busy },
                    ..signs(0, half_second, 0)
                };
                let now = start + busy;
                warnings.extend(liveness.look(now, signs).expect("it waits"));
            }
            let name = if is_own {
                "this machine's"
            } else {
                "the peer's"
            };
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            assert!(warnings[0].contains(name), "{warnings:?}");
        }
    }

    #[test]
    fn a_slow_disk_does_not_hide_a_lost_peer() {
        let (mut liveness, start) = liveness();
        assert_eq!(look(&mut liveness, start, 1, signs(1, 1, 1)), None);
        let busy = LifeSigns {
            own_disk: Duration::from_secs(62),
            ..signs(1, 1, 1)
        };
        assert_eq!(look(&mut liveness, start, 2, busy), None);
        let error = look(&mut liveness, start, 62, busy).expect("lost");
        assert!(error.contains("nothing was heard"), "{error}");
    }

    #[test]
    fn silence_proves_nothing_while_the_disk_keeps_this_end_from_listening() {
        let (mut liveness, start) = liveness();
        let deaf = LifeSigns {
            own_disk: Duration::from_secs(5),
            is_deaf: true,
            ..signs(1, 1, 1)
        };
        assert_eq!(look(&mut liveness, start, 1, deaf), None);
        assert_eq!(look(&mut liveness, start, 300, deaf), None);
    }

    #[test]
    fn a_pause_of_this_process_is_not_held_against_the_peer() {
        let (mut liveness, start) = liveness();
        assert_eq!(look(&mut liveness, start, 5, signs(1, 1, 1)), None);
        let later = start + Duration::from_secs(3600);
        liveness.look(later, signs(1, 1, 1)).expect("it was asleep");
        let error = look(&mut liveness, start, 3600 + 60, signs(1, 1, 1)).expect("lost");
        assert!(error.contains("nothing was heard"), "{error}");
    }
}
