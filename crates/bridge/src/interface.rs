//! A network interface: receives and sends frames through a packet socket.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use farwrite_trains::VNET_BYTES;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, sockopt};

use crate::queue::Outgoing;
use crate::sort::{CSUM_START, HEADERS};
use crate::sys::{self, Batch, Link, Tag};
use crate::{BridgeError, InterfaceTask};

/// Size of the kernel's receive buffer and send buffer.
const BUFFER_BYTES: usize = 16 << 20;
/// The priority of frames that are ahead, in the kernel's queue. It is the highest one that needs no
/// privilege.
const AHEAD_PRIORITY: i32 = 6;
/// Room for the longest train of packets, with IP and Ethernet headers.
const FRAME_BYTES: usize = VNET_BYTES + 18 + (1 << 16) + 512;

/// An open packet socket. It receives all frames that arrive at an interface, for any station, and
/// none of the frames that the machine sends.
#[derive(Debug)]
pub struct Interface {
    name: String,
    /// The kernel's index of the interface.
    index: u32,
    /// When it was opened.
    link: Link,
    socket: OwnedFd,
    dropped: u64,
}

/// Frames from an interface.
pub struct Received {
    batch: Batch,
}

impl Default for Received {
    fn default() -> Self {
        Self {
            batch: Batch::new(FRAME_BYTES),
        }
    }
}

/// How the bridge learns that the kernel accepts more frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// poll(2) reports the socket as writable.
    Signalled,
    /// The socket is writable, but the interface's queue is full: the bridge has to try again.
    Later,
}

/// A received frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// The kernel's header, which describes unfinished checksums and segments, and the frame.
    Frame([u8; VNET_BYTES], Vec<u8>),
    /// The frame was longer than a buffer, or too short for a header.
    Unreadable,
}

impl Received {
    /// Returns one of the frames of the last call. If the kernel removed a VLAN tag, it is put
    /// back.
    ///
    /// # Panics
    /// If the last call received fewer frames.
    #[must_use]
    pub fn get(&self, index: usize) -> Incoming {
        let Some((bytes, tag)) = self.batch.get(index) else {
            return Incoming::Unreadable;
        };
        match bytes.split_first_chunk() {
            Some((vnet, frame)) => with_tag(*vnet, frame, tag),
            None => Incoming::Unreadable,
        }
    }
}

/// Returns a frame, with the VLAN tag that the kernel removed put back behind the addresses.
fn with_tag(mut vnet: [u8; VNET_BYTES], frame: &[u8], tag: Option<Tag>) -> Incoming {
    let Some(((identifier, contents), at)) = tag.zip(frame.split_at_checked(12)) else {
        return Incoming::Frame(vnet, frame.to_vec());
    };
    let tag = [identifier.to_be_bytes(), contents.to_be_bytes()].concat();
    // The kernel's offsets do not count the tag. Unused fields are 0.
    for at in [HEADERS, CSUM_START] {
        let number = u16::from_ne_bytes([vnet[at], vnet[at + 1]]);
        if number > 0 {
            vnet[at..at + 2].copy_from_slice(&(number.saturating_add(4)).to_ne_bytes());
        }
    }
    Incoming::Frame(vnet, [at.0, &tag, at.1].concat())
}

impl Interface {
    /// Opens an interface by its name.
    ///
    /// # Errors
    /// [`BridgeError::NoInterface`], [`BridgeError::NotEthernet`], and [`BridgeError::Interface`],
    /// for example without the capability `CAP_NET_RAW`.
    pub fn open(name: &str) -> Result<Self, BridgeError> {
        let failed = |what| {
            move |source: io::Error| BridgeError::Interface {
                what,
                interface: name.to_owned(),
                source,
            }
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol, the socket receives no frame before it is bound to its interface.
        let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
            .map_err(|error| failed(InterfaceTask::Open)(error.into()))?;
        let index = netdevice::name_to_index(&socket, name)
            .map_err(|_| BridgeError::NoInterface(name.to_owned()))?;
        let link = sys::link(socket.as_fd(), name).map_err(failed(InterfaceTask::SetUp))?;
        if !link.is_ethernet {
            return Err(BridgeError::NotEthernet(name.to_owned()));
        }
        // Interface numbers are positive ints in the kernel.
        let number = i32::try_from(index).unwrap_or(i32::MAX);
        let fd = socket.as_fd();
        let options = [
            libc::PACKET_VNET_HDR,
            libc::PACKET_AUXDATA,
            libc::PACKET_IGNORE_OUTGOING,
        ];
        for option in options {
            sys::set_option(fd, option, 1).map_err(failed(InterfaceTask::SetUp))?;
        }
        // Exceed the system's limit if the process is privileged. Otherwise, use as much as the
        // system allows.
        let more = sockopt::set_socket_recv_buffer_size_force(fd, BUFFER_BYTES);
        let _ = more.or_else(|_| sockopt::set_socket_recv_buffer_size(fd, BUFFER_BYTES));
        let _ = sockopt::set_socket_send_buffer_size(fd, BUFFER_BYTES);
        sys::set_promiscuous(fd, number).map_err(failed(InterfaceTask::Promiscuous))?;
        sys::bind(fd, number).map_err(failed(InterfaceTask::Bind))?;
        Ok(Self {
            name: name.to_owned(),
            index,
            link,
            socket,
            dropped: 0,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the kernel knew about it when it was opened.
    pub(crate) fn link(&self) -> Link {
        self.link
    }

    /// Its Ethernet address; zeros if the system does not know it.
    #[must_use]
    pub fn address(&self) -> [u8; 6] {
        let path = format!("/sys/class/net/{}/address", self.name);
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut address = [0; 6];
        for (byte, digits) in address.iter_mut().zip(text.trim().split(':')) {
            *byte = u8::from_str_radix(digits, 16).unwrap_or(0);
        }
        address
    }

    /// Its speed in Mbit/s, if the system knows it.
    pub(crate) fn speed_mbps(&self) -> Option<u64> {
        let path = format!("/sys/class/net/{}/speed", self.name);
        fs::read_to_string(path).ok()?.trim().parse().ok()
    }

    /// Checks that the interface still exists. A receive error only says that it is down.
    ///
    /// # Errors
    /// [`BridgeError::Interface`] if it is not.
    pub(crate) fn check(&self) -> Result<(), BridgeError> {
        match netdevice::name_to_index(&self.socket, &self.name) {
            Ok(index) if index == self.index => Ok(()),
            _ => Err(self.failed(
                InterfaceTask::Use,
                io::Error::from_raw_os_error(libc::ENODEV),
            )),
        }
    }

    /// Receives the frames that wait, at most one batch. Returns their number.
    ///
    /// # Errors
    /// [`BridgeError::Interface`], for example when the interface is gone.
    pub fn receive(&self, received: &mut Received) -> Result<usize, BridgeError> {
        match received.batch.receive(self.socket.as_fd()) {
            Ok(count) => Ok(count),
            Err(error) if is_transient(&error) => Ok(0),
            Err(source) => Err(self.failed(InterfaceTask::Receive, source)),
        }
    }

    /// Sends as many frames of a queue as the kernel accepts now.
    ///
    /// # Errors
    /// [`BridgeError::Interface`], when the interface is gone.
    pub(crate) fn send(&self, queue: &mut Outgoing) -> Result<Room, BridgeError> {
        while !queue.is_empty() {
            match self.send_first(queue) {
                Ok(count) => queue.sent(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Room::Signalled);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_gone(&error) => {
                    return Err(self.failed(InterfaceTask::Send, error));
                }
                Err(error) if self.will_have_room(&error) => return Ok(Room::Later),
                // The interface is down, the frame is too long for it, or a filter drops the frame.
                Err(_) => queue.refused(),
            }
        }
        Ok(Room::Signalled)
    }

    /// Sends the first frames of a queue: those that are ahead, if there are any, so that they leave
    /// the kernel's queue first too. Returns their number.
    fn send_first(&self, queue: &Outgoing) -> io::Result<usize> {
        let (fd, ahead) = (self.socket.as_fd(), queue.ahead());
        if ahead == 0 {
            return sys::send_many(fd, queue.iter());
        }
        // Without priorities, the frames still leave before those that wait here.
        let _ = sys::set_priority(fd, AHEAD_PRIORITY);
        let sent = sys::send_many(fd, queue.iter().take(ahead));
        let _ = sys::set_priority(fd, 0);
        sent
    }

    /// Sends one finished frame.
    ///
    /// # Errors
    /// [`BridgeError::Interface`], also if the frame would have to wait.
    pub fn send_frame(&self, frame: &[u8]) -> Result<(), BridgeError> {
        self.send_frames(std::iter::once(frame)).map(drop)
    }

    /// Sends finished frames, as many as one system call takes. Returns their number.
    ///
    /// # Errors
    /// [`BridgeError::Interface`], also if the first frame would have to wait.
    pub fn send_frames<'a>(
        &self,
        frames: impl Iterator<Item = &'a [u8]>,
    ) -> Result<usize, BridgeError> {
        let frames = frames.map(|frame| [&[0; VNET_BYTES][..], frame]);
        let sent = sys::send_many(self.socket.as_fd(), frames);
        sent.map_err(|source| self.failed(InterfaceTask::Send, source))
    }

    /// Sends one finished frame. Returns `false` if the kernel will have room for it later.
    pub(crate) fn offer(&self, frame: &[u8]) -> bool {
        let frames = std::iter::once([&[0; VNET_BYTES][..], frame]);
        match sys::send_many(self.socket.as_fd(), frames) {
            Ok(_) => true,
            Err(error) => !is_busy(&error) && !self.will_have_room(&error),
        }
    }

    /// Whether the kernel refused a frame because the queue of the interface is full of frames of
    /// this socket. It has room when they have left. Filters of the interface give the same error,
    /// but do so when nothing is queued too.
    fn will_have_room(&self, error: &io::Error) -> bool {
        error.raw_os_error() == Some(libc::ENOBUFS) && self.queued_bytes() > 0
    }

    /// Bytes in the kernel's queue of the interface.
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        sys::queued_bytes(self.socket.as_fd()).unwrap_or(0)
    }

    /// Frames that the kernel dropped because they were not read in time.
    pub(crate) fn dropped(&mut self) -> u64 {
        // The kernel resets its counter at each call.
        self.dropped += sys::drops(self.socket.as_fd()).unwrap_or(0);
        self.dropped
    }

    fn failed(&self, what: InterfaceTask, source: io::Error) -> BridgeError {
        BridgeError::Interface {
            what,
            interface: self.name.clone(),
            source,
        }
    }
}

impl AsFd for Interface {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether the error is temporary: nothing waits, or the interface is down and may come up again.
fn is_transient(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(libc::ENETDOWN)
}

/// Whether the send buffer of the socket is full, or a signal interrupted the call.
fn is_busy(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_the_kernel_took_out_comes_back_behind_the_addresses() {
        let frame: Vec<u8> = (0..20).collect();
        let mut vnet = [1, 0, 0, 0, 0, 0, 0, 0, 6, 0];
        vnet[CSUM_START..][..2].copy_from_slice(&34u16.to_ne_bytes());
        let Incoming::Frame(moved, tagged) = with_tag(vnet, &frame, Some((0x88A8, 0x6005))) else {
            panic!("it is readable");
        };
        assert_eq!(&tagged[..12], &frame[..12]);
        assert_eq!(&tagged[12..16], [0x88, 0xA8, 0x60, 0x05]);
        assert_eq!(&tagged[16..], &frame[12..]);
        assert_eq!(moved[CSUM_START..][..2], 38u16.to_ne_bytes());
        assert_eq!(moved[HEADERS..][..2], [0, 0]);
        // No tag, and too short for addresses.
        for (frame, tag) in [(&frame[..], None), (&frame[..11], Some((0x8100, 1)))] {
            assert_eq!(
                with_tag(vnet, frame, tag),
                Incoming::Frame(vnet, frame.to_vec())
            );
        }
    }

    #[test]
    fn an_interface_that_does_not_exist_is_named() {
        // Without the capability to open packet sockets, the error is a different one.
        let error = Interface::open("fw-not-there").expect_err("no such interface");
        let text = error.to_string();
        assert!(text.contains("fw-not-there"), "{text}");
    }
}
