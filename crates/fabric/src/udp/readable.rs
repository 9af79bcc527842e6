//! Finds those of many sockets that have datagrams.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::socket::SharedSocket;

/// Sockets that one call returns. The system puts them behind the others, so that no socket waits
/// for long.
const AT_ONCE: usize = 16;

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// A set of sockets. One system call returns those that have datagrams, so the cost of a poll does
/// not grow with the number of silent sockets.
#[derive(Debug)]
pub(super) struct Readable {
    set: OwnedFd,
    /// The positions of the sockets that had datagrams at the last look.
    indices: Vec<usize>,
}

impl Readable {
    /// # Errors
    /// Those of the operating system, for example if the process has no descriptor left.
    pub(super) fn new(sockets: &[Arc<SharedSocket>]) -> io::Result<Self> {
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        for (socket, index) in sockets.iter().zip(0..) {
            epoll::add(&set, socket, EventData::new_u64(index), EventFlags::IN)?;
        }
        Ok(Self {
            set,
            indices: Vec::with_capacity(AT_ONCE),
        })
    }

    /// Looks which sockets have datagrams now. Returns whether there may be more of them than
    /// [`Readable::indices`] returns.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(super) fn look(&mut self) -> io::Result<bool> {
        let none = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let mut events = [none; AT_ONCE];
        let ready = match epoll::wait(&self.set, &mut events[..], Some(&NOW)) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        self.indices.clear();
        let indices = events[..ready].iter().map(|event| event.data.u64());
        self.indices
            .extend(indices.filter_map(|index| usize::try_from(index).ok()));
        Ok(ready == AT_ONCE)
    }

    /// The positions of the sockets that had datagrams at the last look.
    pub(super) fn indices(&self) -> impl Iterator<Item = usize> {
        self.indices.iter().copied()
    }
}

/// Readable while one of the sockets is.
impl AsFd for Readable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}
