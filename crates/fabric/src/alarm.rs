//! A clock that wakes a thread later, and that others may set again before that.

use std::io;
use std::time::Duration;

#[cfg(target_os = "linux")]
use rustix::{
    fd::OwnedFd,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};

/// Wakes a thread in [`Alarm::wait`] when the time of the last [`Alarm::set`] is over. To set it again costs a system
/// call and wakes nobody, unlike a condition variable whose waiter must learn of a new time.
#[derive(Debug)]
pub struct Alarm(#[cfg(target_os = "linux")] OwnedFd);

#[cfg(target_os = "linux")]
impl Alarm {
    /// Creates an alarm that is not set.
    ///
    /// # Errors
    /// Those of the operating system, which may open no more files.
    pub fn new() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        Ok(Self(timer))
    }

    /// Ends a wait after `delay`, of at least a nanosecond. An earlier setting that is not over counts no more.
    pub fn set(&self, delay: Duration) {
        let delay = delay.max(Duration::from_nanos(1));
        let value = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: delay.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: delay.subsec_nanos().into(),
            },
        };
        // The call fails only if the descriptor is no timer or the time is not valid.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &value);
    }

    /// Waits until the time that was set is over. May also end early after a signal.
    pub fn wait(&self) {
        // The read returns how often the alarm has ended since the last read, which is once.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// Only threads of fabrics in real time use an alarm, and other systems have no such fabric.
#[cfg(not(target_os = "linux"))]
impl Alarm {
    /// # Errors
    /// Always [`io::ErrorKind::Unsupported`].
    pub fn new() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Does nothing.
    pub fn set(&self, _delay: Duration) {}

    /// Returns at once.
    pub fn wait(&self) {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_last_time_that_was_set_counts() {
        let alarm = Alarm::new().expect("a timer");
        let start = Instant::now();
        alarm.set(Duration::from_secs(1000));
        alarm.set(Duration::from_millis(50));
        alarm.wait();
        assert!(start.elapsed() >= Duration::from_millis(50));
        alarm.set(Duration::ZERO);
        alarm.wait();
        assert!(start.elapsed() < Duration::from_secs(900));
    }
}
