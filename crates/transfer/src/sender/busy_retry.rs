//! Waits for a receiver that is busy with another sender. At the receiver, `admission.rs` refuses this one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use farwrite_keys::Key;

use crate::channel::Channel;
use crate::connect::{busy_note, connect};
use crate::hooks::CANCEL_PERIOD;
use crate::{Error, ErrorKind, TransferHooks};

/// The pause before this end connects again. The receiver itself keeps a sender waiting for some seconds
/// before it answers that it is busy.
const PAUSE: Duration = Duration::from_millis(500);

pub(super) struct BusyRetry {
    start: Instant,
    limit: Duration,
    is_noted: bool,
}

impl BusyRetry {
    /// Waits for at most `limit` from now on. A code serves one connection.
    pub(super) fn new(key: &Key, limit: Duration) -> Self {
        Self {
            start: Instant::now(),
            limit: match key {
                Key::Code(_) => Duration::ZERO,
                _ => limit,
            },
            is_noted: false,
        }
    }

    /// How long this end may still wait, if the transfer ended because the receiver is busy.
    pub(super) fn time_left(&self, error: &Error) -> Option<Duration> {
        let left = self.limit.saturating_sub(self.start.elapsed());
        let left = left.saturating_sub(PAUSE);
        (error.kind() == ErrorKind::Busy && !left.is_zero()).then_some(left)
    }

    /// Connects to the receiver again, after a pause.
    pub(super) fn connect(
        &mut self,
        to: SocketAddr,
        key: &Key,
        left: Duration,
        hooks: &TransferHooks<'_>,
    ) -> Result<Channel, Error> {
        if !std::mem::replace(&mut self.is_noted, true) {
            hooks.note(busy_note(self.limit));
        }
        let pause = Instant::now();
        while pause.elapsed() < PAUSE {
            hooks.cancel.check()?;
            std::thread::sleep(CANCEL_PERIOD);
        }
        connect(&to.into(), key, left, hooks.cancel, hooks.observer)
    }
}
