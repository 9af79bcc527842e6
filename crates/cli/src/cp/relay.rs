//! Carries datagrams through a pipe, such as the standard input and output of ssh (P14.3). A transfer uses this
//! where its own packets do not pass.
//!
//! At the end that sends files, [`Relay::enter`] listens at a loopback address with the port of the receiver. The
//! transfer sends its datagrams there. All datagrams of one socket are one flow. At the end that receives files,
//! [`Relay::exit`] has one socket for each flow, so the receiver sees a different address for each flow.
//!
//! A thread of each end reads the sockets and writes frames. It reads no socket while the pipe is full.

mod out;
mod sources;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use farwrite::fabric::threads::lock;
use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::set_socket_recv_buffer_size;

pub(crate) use out::Out;
use sources::Sources;

/// The flows that a relay carries at a time: two of a transfer, and room for others.
const MAX_FLOWS: usize = 16;
/// The number of the flow, and the length of the datagram.
const HEAD_BYTES: usize = 3;
/// The most bytes of a datagram in a frame.
const MAX_DATAGRAM_BYTES: usize = u16::MAX as usize;
/// The most bytes that wait in the sockets of an end, with what the system adds to each datagram.
const MAX_WAITING_BYTES: usize = 256 << 10;
/// The most datagrams of a socket that go before those of the next one.
const TURN: usize = 64;

/// One end of a relay. Its sockets close when it is closed and nothing holds it any more.
pub(crate) struct Relay {
    out: Out,
    side: Side,
}

enum Side {
    Entrance {
        socket: UdpSocket,
        sources: Mutex<Sources>,
    },
    Exit {
        receiver: SocketAddr,
        /// By the number of the flow.
        sockets: [OnceLock<UdpSocket>; MAX_FLOWS],
    },
}

impl Relay {
    /// Brings what comes out of the pipe to the receiver at `port` of this machine.
    pub(crate) fn exit(out: Out, port: u16) -> io::Result<Arc<Self>> {
        let side = Side::Exit {
            receiver: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            sockets: [const { OnceLock::new() }; MAX_FLOWS],
        };
        Self::start(out, side)
    }

    /// Brings what this machine sends to the returned address through the pipe. The address has `port`,
    /// because a receiver states its port, and a sender expects to find it there.
    ///
    /// # Errors
    /// The address has no such port free, or the system has no descriptor or no thread left.
    pub(crate) fn enter(out: Out, port: u16) -> io::Result<(Arc<Self>, SocketAddr)> {
        let [a, b] = std::process::id().to_be_bytes()[2..]
            .try_into()
            .unwrap_or([7, 7]);
        // An address of its own: other programs most likely do not listen there.
        let at = SocketAddr::from((Ipv4Addr::new(127, 79, a, b.clamp(2, 254)), port));
        let socket = UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        share_waiting_bytes(&[&socket])?;
        let side = Side::Entrance {
            socket,
            sources: Mutex::default(),
        };
        Ok((Self::start(out, side)?, at))
    }

    fn start(out: Out, side: Side) -> io::Result<Arc<Self>> {
        let relay = Arc::new(Self { out, side });
        let of_thread = Arc::clone(&relay);
        // If the pipe is gone, so is the other end: the thread that reads the pipe notices.
        let carry = move || drop(of_thread.carry());
        thread::Builder::new().spawn(carry)?;
        Ok(relay)
    }

    /// Reads frames until the pipe ends. A datagram that cannot be delivered is lost, as on a network.
    ///
    /// # Errors
    /// The other end does not write frames, the pipe broke, or there is no socket for a new flow.
    pub(crate) fn read(&self, mut pipe: impl Read) -> io::Result<()> {
        let mut datagram = vec![0; MAX_DATAGRAM_BYTES];
        let mut head = [0; HEAD_BYTES];
        while begins(&mut pipe, &mut head[..1])? {
            pipe.read_exact(&mut head[1..]).map_err(cut)?;
            let [flow, high, low] = head;
            let datagram = &mut datagram[..usize::from(u16::from_be_bytes([high, low]))];
            pipe.read_exact(datagram).map_err(cut)?;
            self.deliver(flow, datagram)?;
        }
        Ok(())
    }

    /// Carries nothing more to the other end, and closes the pipe to it. A sender at an entrance then finds that
    /// nothing listens there.
    pub(crate) fn close(&self) {
        self.out.close();
    }

    fn deliver(&self, flow: u8, datagram: &[u8]) -> io::Result<()> {
        match &self.side {
            Side::Entrance { socket, sources } => {
                let source = lock(sources).answered(flow);
                let _ = socket.send_to(datagram, source.ok_or_else(|| unknown(flow))?);
            }
            Side::Exit { receiver, sockets } => {
                let socket = sockets.get(usize::from(flow));
                let socket = socket.ok_or_else(|| unknown(flow))?;
                if socket.get().is_none() {
                    let _ = socket.set(connected(*receiver)?);
                    share_waiting_bytes(&self.sockets())?;
                    self.out.wake();
                }
                if let Some(socket) = socket.get() {
                    let _ = socket.send(datagram);
                }
            }
        }
        Ok(())
    }

    /// Writes the datagrams of this machine into the pipe, until it is closed.
    fn carry(&self) -> io::Result<()> {
        let mut frame = vec![0; HEAD_BYTES + MAX_DATAGRAM_BYTES];
        loop {
            match &self.side {
                Side::Entrance { socket, sources } => {
                    let flow = |from| lock(sources).flow_of(from);
                    self.take_datagrams(socket, flow, &mut frame)?;
                }
                Side::Exit { sockets, .. } => {
                    for (flow, socket) in (0..).zip(sockets) {
                        if let Some(socket) = socket.get() {
                            self.take_datagrams(socket, |_| Some(flow), &mut frame)?;
                        }
                    }
                }
            }
            let sockets = self.sockets().into_iter();
            let readable = sockets.map(|socket| PollFd::new(socket, PollFlags::IN));
            self.out.wait_until(readable.collect())?;
        }
    }

    /// Writes those that wait in a socket, at most a turn.
    fn take_datagrams(
        &self,
        socket: &UdpSocket,
        flow: impl Fn(SocketAddr) -> Option<u8>,
        frame: &mut [u8],
    ) -> io::Result<()> {
        for _ in 0..TURN {
            match socket.recv_from(&mut frame[HEAD_BYTES..]) {
                Ok((count, from)) => {
                    let Some(flow) = flow(from) else { continue };
                    let length = u16::try_from(count).unwrap_or(u16::MAX);
                    let [high, low] = length.to_be_bytes();
                    frame[..HEAD_BYTES].copy_from_slice(&[flow, high, low]);
                    self.out.write(&frame[..HEAD_BYTES + usize::from(length)])?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // A datagram that left before has not found the receiver.
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn sockets(&self) -> Vec<&UdpSocket> {
        match &self.side {
            Side::Entrance { socket, .. } => vec![socket],
            Side::Exit { sockets, .. } => sockets.iter().filter_map(OnceLock::get).collect(),
        }
    }
}

/// A socket that exchanges datagrams with the receiver only.
fn connected(receiver: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(receiver)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Limits what waits in the sockets of an end.
fn share_waiting_bytes(sockets: &[&UdpSocket]) -> io::Result<()> {
    // Linux doubles what it is told, because it counts what it adds to each datagram (socket(7)).
    let bytes = MAX_WAITING_BYTES / 2 / sockets.len();
    let mut sockets = sockets.iter();
    sockets.try_for_each(|socket| Ok(set_socket_recv_buffer_size(socket, bytes)?))
}

/// Reads the first byte of a frame; false: the pipe has ended before it.
fn begins(pipe: &mut impl Read, byte: &mut [u8]) -> io::Result<bool> {
    loop {
        match pipe.read(byte) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read.map(|count| count > 0),
        }
    }
}

/// Says where the pipe has ended, if it has.
fn cut(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "ssh ended within a frame"),
        _ => error,
    }
}

fn unknown(flow: u8) -> io::Error {
    let what = format!("a frame of the unknown flow {flow} came through ssh");
    io::Error::new(ErrorKind::InvalidData, what)
}
