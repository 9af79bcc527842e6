//! Carries one TCP connection and the datagrams beside it through a pipe, such as the standard input and
//! output of ssh (P14.3). A transfer uses this where its own packets do not pass.
//!
//! The end that sends files has an [`entrance`](Relay::enter): an address of loopback with the port of the
//! receiver, at which the transfer finds the receiver. The end that receives files has an
//! [`exit`](Relay::exit), which brings to the receiver what comes out of the pipe.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// The most bytes of a frame's content: those of a UDP datagram.
const MAX_CONTENT_BYTES: usize = u16::MAX as usize;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Datagram = 0,
    /// A connection begins, in place of the one before.
    Open = 1,
    Bytes = 2,
    /// The connection has no more bytes.
    End = 3,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [Self::Datagram, Self::Open, Self::Bytes, Self::End]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// The writing end of the pipe. A frame is written as a whole.
#[derive(Clone)]
pub(crate) struct Out(Arc<Mutex<Option<Box<dyn Write + Send>>>>);

impl Out {
    pub(crate) fn new(pipe: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(pipe)))))
    }

    /// Closes the pipe.
    pub(crate) fn close(&self) {
        drop(lock(&self.0).take());
    }

    fn write(&self, kind: Kind, content: &[u8]) {
        let length = u16::try_from(content.len()).unwrap_or(u16::MAX);
        let [high, low] = length.to_be_bytes();
        let mut frame = Vec::with_capacity(3 + content.len());
        frame.extend_from_slice(&[kind as u8, high, low]);
        frame.extend_from_slice(&content[..usize::from(length)]);
        if let Some(pipe) = lock(&self.0).as_mut() {
            // If the pipe is gone, so is the other end: the thread that reads notices.
            let _ = pipe.write_all(&frame).and_then(|()| pipe.flush());
        }
    }
}

/// One end of a relay.
pub(crate) struct Relay {
    out: Out,
    udp: UdpSocket,
    /// Where datagrams from the pipe go, and where all others come from: the receiver, or the sender once it
    /// has sent one.
    local: Mutex<Option<SocketAddr>>,
    tcp: Mutex<Option<TcpStream>>,
    /// The number of connections so far.
    connections: AtomicU64,
    /// At an exit, the port of the receiver.
    receiver: Option<u16>,
}

impl Relay {
    /// Brings what comes out of the pipe to the receiver at `port` of this machine.
    ///
    /// # Errors
    /// There is no socket.
    pub(crate) fn exit(out: Out, port: u16) -> io::Result<Arc<Self>> {
        let receiver = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        Ok(Self::start(out, udp, Some(receiver)))
    }

    /// Brings what this machine sends to the returned address through the pipe. The address has `port`,
    /// because a sender refuses a receiver that states another port than the one it is at (P7.6).
    ///
    /// # Errors
    /// No address of loopback has this port free.
    pub(crate) fn enter(out: Out, port: u16) -> io::Result<(Arc<Self>, SocketAddr)> {
        let [a, b] = std::process::id().to_be_bytes()[2..]
            .try_into()
            .unwrap_or([7, 7]);
        // An address of its own: other programs most likely do not listen there.
        let at = SocketAddr::from((Ipv4Addr::new(127, 79, a, b.clamp(2, 254)), port));
        let (tcp, udp) = (TcpListener::bind(at)?, UdpSocket::bind(at)?);
        let relay = Self::start(out, udp, None);
        let accepting = Arc::clone(&relay);
        // One connection at a time: a second one would be of another user of this machine. A sender connects
        // again, after it has closed its connection, if the receiver was busy.
        thread::spawn(move || {
            while let Ok((stream, _)) = tcp.accept() {
                if let Some(reader) = accepting.connected(stream) {
                    let _ = reader.join();
                }
            }
        });
        Ok((relay, at))
    }

    fn start(out: Out, udp: UdpSocket, receiver: Option<SocketAddr>) -> Arc<Self> {
        let relay = Arc::new(Self {
            out,
            udp,
            local: Mutex::new(receiver),
            tcp: Mutex::new(None),
            connections: AtomicU64::new(0),
            receiver: receiver.map(|at| at.port()),
        });
        let of_thread = Arc::clone(&relay);
        thread::spawn(move || of_thread.take_datagrams());
        relay
    }

    /// Reads frames until the pipe ends.
    ///
    /// # Errors
    /// The other end does not write frames, or the pipe broke.
    pub(crate) fn read(self: &Arc<Self>, mut pipe: impl Read) -> io::Result<()> {
        let mut content = vec![0; MAX_CONTENT_BYTES];
        loop {
            let mut head = [0; 3];
            match pipe.read_exact(&mut head) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
            let [kind, high, low] = head;
            let kind = Kind::of(kind).ok_or_else(|| {
                let what = format!("a frame of the unknown kind {kind} came through ssh");
                io::Error::new(io::ErrorKind::InvalidData, what)
            })?;
            let content = &mut content[..usize::from(u16::from_be_bytes([high, low]))];
            pipe.read_exact(content)?;
            self.take(kind, content);
        }
    }

    /// Ends the connection, after the pipe has ended.
    pub(crate) fn close(&self) {
        self.out.close();
        if let Some(stream) = lock(&self.tcp).take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Handles a frame. What cannot be delivered is lost, as on a network: the transfer repairs datagrams,
    /// and notices the end of its connection.
    fn take(self: &Arc<Self>, kind: Kind, content: &[u8]) {
        match (kind, self.receiver) {
            (Kind::Datagram, _) => {
                if let Some(to) = *lock(&self.local) {
                    let _ = self.udp.send_to(content, to);
                }
            }
            (Kind::Open, Some(port)) => match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                Ok(stream) => {
                    self.connected(stream);
                }
                Err(_) => self.out.write(Kind::End, &[]),
            },
            (Kind::Open, None) => {}
            (Kind::Bytes, _) => {
                let stream = lock(&self.tcp).as_ref().map(TcpStream::try_clone);
                if let Some(Ok(mut stream)) = stream {
                    let _ = stream.write_all(content);
                }
            }
            (Kind::End, _) => {
                if let Some(stream) = lock(&self.tcp).as_ref() {
                    let _ = stream.shutdown(Shutdown::Write);
                }
            }
        }
    }

    /// Begins to carry a connection, in place of the one before. Returns the thread that reads it.
    fn connected(self: &Arc<Self>, stream: TcpStream) -> Option<JoinHandle<()>> {
        let mut reading = stream.try_clone().ok()?;
        let _ = reading.set_nodelay(true);
        let number = self.connections.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(before) = lock(&self.tcp).replace(stream) {
            let _ = before.shutdown(Shutdown::Both);
        }
        if self.receiver.is_none() {
            self.out.write(Kind::Open, &[]);
        }
        let relay = Arc::clone(self);
        Some(thread::spawn(move || {
            // The other end takes frames for those of the newest connection.
            let is_newest = || relay.connections.load(Ordering::SeqCst) == number;
            let mut bytes = vec![0; MAX_CONTENT_BYTES];
            while let Ok(count @ 1..) = reading.read(&mut bytes)
                && is_newest()
            {
                relay.out.write(Kind::Bytes, &bytes[..count]);
            }
            if is_newest() {
                relay.out.write(Kind::End, &[]);
            }
        }))
    }

    /// Takes the datagrams of this machine. While the pipe is full, the socket drops them, so that the
    /// rate control of the sender notices.
    fn take_datagrams(&self) {
        let mut bytes = vec![0; MAX_CONTENT_BYTES];
        while let Ok((count, from)) = self.udp.recv_from(&mut bytes) {
            // The receiver at an exit, and at an entrance the socket that has sent the first datagram.
            if *lock(&self.local).get_or_insert(from) != from {
                continue;
            }
            self.out.write(Kind::Datagram, &bytes[..count]);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is locked is valid even after a panic of another thread.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
