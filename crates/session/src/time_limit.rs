//! Waits for sockets: one limit covers a whole operation with any number of waits.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::{Activity, Error};

/// The longest wait before the next check of whether the caller has cancelled.
const SLICE: Duration = Duration::from_millis(50);

/// The total time limit of an operation. It begins when the limit is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimit {
    start: Instant,
    total: Option<Duration>,
}

impl TimeLimit {
    /// A limit that begins now; `None` never expires.
    pub(crate) fn new(total: Option<Duration>) -> Self {
        Self {
            start: Instant::now(),
            total,
        }
    }

    pub(crate) fn total(&self) -> Option<Duration> {
        self.total
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The remaining time; `None` without a limit.
    pub(crate) fn left(&self) -> Option<Duration> {
        let total = self.total?;
        Some(total.saturating_sub(self.start.elapsed()))
    }

    /// A part of this limit, at most `total` long, that begins now.
    pub(crate) fn part(&self, total: Duration) -> Self {
        Self::new(Some(self.left().map_or(total, |left| left.min(total))))
    }

    /// [`Error::Timeout`] when no time is left. The error names the operation (`doing`).
    pub(crate) fn check(&self, doing: Activity) -> Result<(), Error> {
        match self.total {
            Some(after) if self.start.elapsed() >= after => Err(Error::Timeout { doing, after }),
            _ => Ok(()),
        }
    }

    /// Waits until the socket has one of the events, has failed, or was shut down.
    pub(crate) fn wait(
        &self,
        socket: impl AsFd,
        events: PollFlags,
        doing: Activity,
    ) -> Result<(), Error> {
        loop {
            self.check(doing)?;
            let mut polled = [PollFd::from_borrowed_fd(socket.as_fd(), events)];
            let ready = poll(&mut polled, self.left());
            if ready.map_err(|source| Error::Io { doing, source })? {
                return Ok(());
            }
        }
    }
}

/// A limit, with a caller that may cancel earlier.
#[derive(Clone, Copy)]
pub(crate) struct CancellableLimit<'a> {
    limit: TimeLimit,
    cancelled: &'a dyn Fn() -> bool,
}

impl<'a> CancellableLimit<'a> {
    pub(crate) fn new(limit: TimeLimit, cancelled: &'a dyn Fn() -> bool) -> Self {
        Self { limit, cancelled }
    }

    pub(crate) fn limit(&self) -> TimeLimit {
        self.limit
    }

    pub(crate) fn cancelled(&self) -> &'a dyn Fn() -> bool {
        self.cancelled
    }

    /// A part of it, like [`TimeLimit::part`].
    pub(crate) fn part(&self, total: Duration) -> Self {
        Self::new(self.limit.part(total), self.cancelled)
    }

    /// [`Error::Cancelled`], or [`Error::Timeout`] like [`TimeLimit::check`].
    pub(crate) fn check(&self, doing: Activity) -> Result<(), Error> {
        if (self.cancelled)() {
            return Err(Error::Cancelled);
        }
        self.limit.check(doing)
    }

    /// The longest time that may pass before the next [`CancellableLimit::check`].
    pub(crate) fn slice(&self) -> Duration {
        self.limit.left().map_or(SLICE, |left| left.min(SLICE))
    }

    /// Like [`TimeLimit::wait`], in slices.
    pub(crate) fn wait(
        &self,
        socket: impl AsFd,
        events: PollFlags,
        doing: Activity,
    ) -> Result<(), Error> {
        loop {
            self.check(doing)?;
            let slice = TimeLimit::new(Some(self.slice()));
            match slice.wait(socket.as_fd(), events, doing) {
                Err(Error::Timeout { .. }) => {}
                result => return result,
            }
        }
    }

    /// Sleeps for a time, in slices.
    pub(crate) fn pause(&self, time: Duration) -> Result<(), Error> {
        let pause = self.part(time);
        loop {
            match pause.check(Activity::Connecting) {
                Ok(()) => std::thread::sleep(pause.slice()),
                Err(Error::Timeout { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Waits until one of the sockets is ready, at most `time`. Returns whether one is ready. A signal
/// may end the wait early.
pub(crate) fn poll(
    sockets: &mut [PollFd<'_>],
    time: Option<Duration>,
) -> Result<bool, std::io::Error> {
    // If the time is too long for the system call, wait without a limit.
    let time = time.and_then(|time| Timespec::try_from(time).ok());
    match rustix::event::poll(sockets, time.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
