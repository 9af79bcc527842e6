//! The socket that both halves of a channel share, and the handle that ends it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// The socket of a channel. It does not block: its users wait with a
/// [`TimeLimit`](crate::time_limit::TimeLimit).
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    closed: AtomicBool,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            closed: AtomicBool::new(false),
        }
    }

    /// Reads the available bytes. The error kind is `WouldBlock` when there are none.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        (&self.stream).read(bytes)
    }

    /// Writes what fits. The error kind is `WouldBlock` when nothing fits.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        (&self.stream).write(bytes)
    }

    /// Ends the connection in both directions. Threads that wait for this socket wake up at once.
    pub(crate) fn shut_down(&self) {
        // This fails only on a connection that has already ended.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Returns whether a [`CloseHandle`] ended the connection.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Ends a [`Channel`](crate::Channel) from any thread. A close handle does not keep the connection open:
/// the connection also ends when both halves of the channel are dropped.
#[derive(Clone, Debug)]
pub struct CloseHandle(Weak<Socket>);

impl CloseHandle {
    pub(crate) fn new(socket: &Arc<Socket>) -> Self {
        Self(Arc::downgrade(socket))
    }

    /// Shuts the connection down. Calls of [`Reader::recv`](crate::Reader::recv) and
    /// [`Writer::send`](crate::Writer::send) that wait in other threads return
    /// [`Error::Over`](crate::Error::Over) at once, and so do all later calls.
    pub fn close(&self) {
        if let Some(socket) = self.0.upgrade() {
            socket.closed.store(true, Ordering::Release);
            socket.shut_down();
        }
    }
}
