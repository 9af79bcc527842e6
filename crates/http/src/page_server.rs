//! The thread that serves connections.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::listener::Listener;
use crate::{Address, Exchange, Page, Wants};

/// The pause after each turn. In a turn, the page is made at most once, and a bounded number of
/// connections is accepted and served. So strangers get a bounded share of the processor.
const PAUSE: Duration = Duration::from_millis(10);
/// The most connections that are accepted in a turn.
const ACCEPTED: usize = 64;
/// The most reads and writes of a connection in a turn.
const STEPS: usize = 6;

/// What clients can cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most connections at a time. A further one replaces the oldest.
    pub connections: usize,
    /// The time of a connection, from its beginning to its end.
    pub time: Duration,
}

impl Default for Limits {
    /// 16 connections of 10 s, which is how long Prometheus waits for an answer.
    fn default() -> Self {
        Self {
            connections: 16,
            time: Duration::from_secs(10),
        }
    }
}

/// Answers requests for a page from a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct PageServer {
    local: Option<SocketAddr>,
    /// Wakes the thread when it is shut down.
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl PageServer {
    /// Listens at `address`. The thread is named `name`, and calls `page` when there are requests, at
    /// most 100 times a second. If `page` panics, the server ends, and nothing else.
    ///
    /// # Errors
    /// The errors of the operating system. [`io::ErrorKind::AddrInUse`] or
    /// [`io::ErrorKind::AlreadyExists`] if something else has the address.
    pub fn start(
        address: &Address,
        name: &str,
        limits: Limits,
        page: impl Fn() -> Page + Send + 'static,
    ) -> io::Result<Self> {
        let listener = Listener::bind(address)?;
        let local = listener.local;
        let (stop, stopped) = UnixStream::pair()?;
        let mut server = Connections {
            listener,
            stopped,
            limits,
            connections: VecDeque::new(),
        };
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || while server.turn(&page) {})?;
        Ok(Self {
            local,
            stop,
            thread: Some(thread),
        })
    }

    /// The address and port of a TCP socket.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        let _ = self.stop.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported.
            let _ = thread.join();
        }
    }
}

struct Connections {
    listener: Listener,
    stopped: UnixStream,
    limits: Limits,
    /// From the oldest to the newest.
    connections: VecDeque<Connection>,
}

struct Connection {
    socket: OwnedFd,
    exchange: Exchange,
    end: Instant,
}

impl Connections {
    /// Returns false when the server was dropped.
    fn turn(&mut self, page: &impl Fn() -> Page) -> bool {
        if self.wait() {
            return false;
        }
        let made = OnceCell::new();
        let page = &|| made.get_or_init(page).clone();
        let now = Instant::now();
        self.connections
            .retain_mut(|connection| connection.serve(page) && now < connection.end);
        for _ in 0..ACCEPTED {
            let Some(socket) = self.listener.accept() else {
                break;
            };
            let mut connection = Connection {
                socket,
                exchange: Exchange::default(),
                end: now + self.limits.time,
            };
            // A client that sends its request at once gets its answer before another one can replace
            // it.
            if !connection.serve(page) {
                continue;
            }
            if self.connections.len() == self.limits.connections {
                self.connections.pop_front();
            }
            self.connections.push_back(connection);
        }
        thread::sleep(PAUSE);
        true
    }

    /// Returns whether the server was dropped.
    fn wait(&self) -> bool {
        let mut sockets = vec![
            PollFd::new(&self.stopped, PollFlags::IN),
            PollFd::new(&self.listener.socket, PollFlags::IN),
        ];
        sockets.extend(self.connections.iter().map(|connection| {
            let events = match connection.exchange.wants() {
                Wants::Write => PollFlags::OUT,
                Wants::Read | Wants::Close => PollFlags::IN,
            };
            PollFd::new(&connection.socket, events)
        }));
        let oldest = self.connections.front();
        let time = oldest.map(|oldest| oldest.end.saturating_duration_since(Instant::now()));
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        // After an error, the connections are looked at all the same, at most once in each pause.
        let ready = rustix::event::poll(&mut sockets, time.as_ref());
        ready.is_ok() && !sockets[0].revents().is_empty()
    }
}

impl Connection {
    /// Reads and writes what is possible at once. Returns whether more can follow.
    fn serve(&mut self, page: &impl Fn() -> Page) -> bool {
        for _ in 0..STEPS {
            let done = match self.exchange.wants() {
                Wants::Read => self.read(page),
                Wants::Write => self.write(),
                Wants::Close => return false,
            };
            match done {
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                // The connection is lost.
                Err(_) => return false,
            }
        }
        true
    }

    fn read(&mut self, page: &impl Fn() -> Page) -> rustix::io::Result<()> {
        let mut bytes = [0; 4096];
        let (count, _) = rustix::net::recv(&self.socket, &mut bytes, RecvFlags::empty())?;
        self.exchange.received(&bytes[..count], page);
        Ok(())
    }

    fn write(&mut self) -> rustix::io::Result<()> {
        let count = rustix::net::send(&self.socket, self.exchange.unsent(), SendFlags::NOSIGNAL)?;
        self.exchange.sent(count);
        if self.exchange.wants() == Wants::Read {
            rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write)?;
        }
        Ok(())
    }
}
