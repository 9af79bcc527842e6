//! The writing end of the pipe.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use super::lock;

/// What a pipe takes without blocking if it takes anything: a page (pipe(7)).
const PIECE_BYTES: usize = 4096;

/// The writing end of the pipe, for one relay. Every copy can close it, also while the relay waits for the pipe.
#[derive(Clone)]
pub(crate) struct Out(Arc<Pipe>);

struct Pipe {
    /// `None` once it is closed.
    end: Mutex<Option<Arc<OwnedFd>>>,
    /// Ends a wait of the relay's thread.
    bell: OwnedFd,
}

impl Out {
    pub(crate) fn new(pipe: impl Into<OwnedFd>) -> io::Result<Self> {
        Ok(Self(Arc::new(Pipe {
            end: Mutex::new(Some(Arc::new(pipe.into()))),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })))
    }

    /// Closes the pipe. A frame that the pipe has not taken as a whole is cut.
    pub(crate) fn close(&self) {
        drop(lock(&self.0.end).take());
        self.wake();
    }

    /// Ends the wait of the relay's thread, or its next one.
    pub(super) fn wake(&self) {
        let _ = rustix::io::write(&self.0.bell, &1_u64.to_ne_bytes());
    }

    /// Waits until one of `descriptors` is ready, or until it is woken.
    ///
    /// # Errors
    /// The pipe is closed.
    pub(super) fn wait_until<'a>(&'a self, descriptors: Vec<PollFd<'a>>) -> io::Result<()> {
        self.end()?;
        self.wait(descriptors).map(drop)
    }

    /// Writes all bytes, and waits while the pipe is full.
    ///
    /// # Errors
    /// The pipe is closed, or its other end is.
    pub(super) fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let pipe = self.end()?;
            if !self.wait(vec![PollFd::new(&*pipe, PollFlags::OUT)])? {
                continue;
            }
            let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
            match rustix::io::write(&*pipe, piece) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn end(&self) -> io::Result<Arc<OwnedFd>> {
        let end = lock(&self.0.end).clone();
        end.ok_or_else(|| io::Error::new(io::ErrorKind::BrokenPipe, "the pipe is closed"))
    }

    /// Returns whether one of the descriptors is ready. The caller looks again at all that others change.
    fn wait<'a>(&'a self, mut descriptors: Vec<PollFd<'a>>) -> io::Result<bool> {
        descriptors.push(PollFd::new(&self.0.bell, PollFlags::IN));
        match poll(&mut descriptors, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = |descriptor: &PollFd<'_>| !descriptor.revents().is_empty();
        if descriptors.pop().as_ref().is_some_and(ready) {
            let _ = rustix::io::read(&self.0.bell, &mut [0; 8]);
        }
        Ok(descriptors.iter().any(ready))
    }
}
