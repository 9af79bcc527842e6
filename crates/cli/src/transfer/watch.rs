//! Whether a transfer is alive.

use std::time::{Duration, Instant};

use crate::exit::{Exit, Failure};

/// After the peer's queue pair is known, its first packets must come within this time.
const FIRST_PACKET: Duration = Duration::from_secs(10);

/// What an end has seen so far; each number only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signs {
    /// UDP packets of the peer.
    pub(super) packets: u64,
    /// Messages of the peer on the channel.
    pub(super) words: u64,
    /// Anything that brings the transfer nearer its end.
    pub(super) moved: u64,
}

/// Ends a transfer that is dead.
#[derive(Debug)]
pub(super) struct Watch {
    timeout: Duration,
    /// For the line that says what may be blocked.
    ports: String,
    start: Instant,
    seen: Signs,
    heard_at: Instant,
    moved_at: Instant,
}

impl Watch {
    /// `ports` says between which UDP ports packets go.
    pub(super) fn new(timeout: Duration, ports: String, now: Instant) -> Self {
        Self {
            timeout,
            ports,
            start: now,
            seen: Signs::default(),
            heard_at: now,
            moved_at: now,
        }
    }

    /// Takes in what has been seen by `now`.
    ///
    /// # Errors
    /// [`Exit::Unreachable`] where no packet ever came, where nothing was heard for the timeout, or
    /// where nothing moved for as long.
    pub(super) fn look(&mut self, now: Instant, signs: Signs) -> Result<(), Failure> {
        if (signs.packets, signs.words) != (self.seen.packets, self.seen.words) {
            self.heard_at = now;
        }
        if signs.moved != self.seen.moved {
            self.moved_at = now;
        }
        self.seen = signs;
        let dead = |what: String| Err(Failure::new(Exit::Unreachable, what));
        if signs.packets == 0 && now - self.start >= FIRST_PACKET.min(self.timeout) {
            return dead(format!(
                "no UDP packet of the peer came within {} s, though TCP works: UDP seems to be \
                 blocked between {} (a firewall, or address translation)",
                (now - self.start).as_secs(),
                self.ports
            ));
        }
        if now - self.heard_at >= self.timeout {
            let after = self.timeout.as_secs_f64();
            return dead(format!("nothing was heard of the peer for {after} s"));
        }
        if now - self.moved_at >= self.timeout {
            let after = self.timeout.as_secs_f64();
            return dead(format!(
                "the peer answers, but nothing moved for {after} s: if small packets come through \
                 and large ones do not, a smaller --mtu helps"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn look(watch: &mut Watch, at_s: u64, packets: u64, words: u64, moved: u64) -> Option<String> {
        let now = watch.start + Duration::from_secs(at_s);
        let signs = Signs {
            packets,
            words,
            moved,
        };
        watch
            .look(now, signs)
            .err()
            .map(|failure| failure.to_string())
    }

    fn watch() -> Watch {
        Watch::new(TIMEOUT, "here and there".into(), Instant::now())
    }

    #[test]
    fn udp_that_never_comes_is_blocked() {
        let mut watch = watch();
        assert_eq!(look(&mut watch, 9, 0, 5, 0), None);
        let told = look(&mut watch, 10, 0, 9, 0).expect("blocked");
        assert!(told.contains("between here and there"), "{told}");
    }

    #[test]
    fn an_outage_shorter_than_the_timeout_is_survived() {
        let mut watch = watch();
        assert_eq!(look(&mut watch, 1, 1, 0, 1), None);
        assert_eq!(look(&mut watch, 60, 1, 0, 1), None);
        assert_eq!(look(&mut watch, 61 - 1, 2, 0, 2), None);
        let told = look(&mut watch, 120, 2, 0, 2).expect("lost");
        assert!(told.contains("nothing was heard"), "{told}");
    }

    #[test]
    fn a_peer_that_only_talks_is_stuck() {
        let mut watch = watch();
        for second in 0..60 {
            assert_eq!(look(&mut watch, second, second + 1, second, 0), None);
        }
        let told = look(&mut watch, 60, 70, 70, 0).expect("stuck");
        assert!(told.contains("--mtu"), "{told}");
    }
}
