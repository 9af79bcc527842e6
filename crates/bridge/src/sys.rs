//! System calls for which there is no safe wrapper: of packet sockets (packet(7)), of priorities, and of
//! users of a whole process.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::{mem, ptr};

/// Highest number of frames per call.
pub(crate) const BATCH: usize = 64;
/// Room for one control message with a [`libc::tpacket_auxdata`].
const CONTROL_BYTES: usize = 64;
/// `AF_PACKET` as a 16-bit field.
const ADDRESS_FAMILY: u16 = 17;
/// All protocols (`ETH_P_ALL`) as a 16-bit field.
const ALL_PROTOCOLS: u16 = 3;

/// Frames from a socket, at most [`BATCH`].
pub(crate) struct Batch {
    /// A buffer of `stride` bytes for each frame.
    slab: Vec<u8>,
    stride: usize,
    frames: [FrameInfo; BATCH],
}

/// A VLAN tag: its identifier (TPID) and its contents (TCI).
pub(crate) type Tag = (u16, u16);

#[derive(Clone, Copy, Default)]
struct FrameInfo {
    bytes: usize,
    truncated: bool,
    /// The VLAN tag that the kernel removed from the frame.
    tag: Option<Tag>,
}

impl Batch {
    /// Buffers for frames of up to `stride` bytes.
    pub(crate) fn new(stride: usize) -> Self {
        Self {
            slab: vec![0; stride * BATCH],
            stride,
            frames: [FrameInfo::default(); BATCH],
        }
    }

    /// Returns a frame of the last call with the kernel's header in front, and the VLAN tag that
    /// belongs at byte 12 of the Ethernet frame. `None` if the frame was longer than its buffer.
    pub(crate) fn get(&self, index: usize) -> Option<(&[u8], Option<Tag>)> {
        let arrival = self.frames[index];
        let start = index * self.stride;
        let frame = &self.slab[start..start + arrival.bytes.min(self.stride)];
        (!arrival.truncated).then_some((frame, arrival.tag))
    }

    /// Receives without blocking. Returns the number of frames.
    ///
    /// # Errors
    /// The kernel's, `WouldBlock` if none waits.
    pub(crate) fn receive(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let mut headers = [empty_header(); BATCH];
        let mut controls = [[0u64; CONTROL_BYTES / 8]; BATCH];
        let mut parts = [libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        }; BATCH];
        let buffers = self.slab.chunks_exact_mut(self.stride);
        let mut places = 0;
        let parts = parts.iter_mut().zip(&mut controls).zip(buffers);
        for (header, ((part, control), buffer)) in headers.iter_mut().zip(parts) {
            part.iov_base = buffer.as_mut_ptr().cast();
            part.iov_len = buffer.len();
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = control.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
            places += 1;
        }
        let (flags, wait) = (libc::MSG_DONTWAIT, ptr::null_mut());
        // SAFETY: the headers point into `parts`, `controls` and `slab`, all of which outlive the
        // call and are borrowed exclusively, each with the length of what it points to; the first
        // `places` of them do. recvmmsg(2) allows the null timeout.
        let count = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                headers.as_mut_ptr(),
                places,
                flags as _,
                wait,
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for (arrival, header) in self.frames.iter_mut().zip(&headers).take(count) {
            *arrival = FrameInfo {
                bytes: header.msg_len as usize,
                truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
                tag: stripped_tag(&header.msg_hdr),
            };
        }
        Ok(count)
    }
}

/// The VLAN tag that the kernel removed from a frame (`PACKET_AUXDATA`).
fn stripped_tag(header: &libc::msghdr) -> Option<Tag> {
    // SAFETY: the kernel has filled in the control buffer, which is alive in the caller, and its
    // length. CMSG_FIRSTHDR returns null or a header that lies in it.
    let first = unsafe { libc::CMSG_FIRSTHDR(header).as_ref() }?;
    // SAFETY: this only computes a number.
    let want = unsafe { libc::CMSG_LEN(size_of::<libc::tpacket_auxdata>()) };
    let is_auxdata = first.cmsg_level == libc::SOL_PACKET
        && first.cmsg_type == libc::PACKET_AUXDATA
        && first.cmsg_len as usize >= want as usize;
    if !is_auxdata {
        return None;
    }
    // SAFETY: the message has at least CMSG_LEN of this struct, which is integers, so any bytes are
    // a valid value. The address may be unaligned.
    let auxdata: libc::tpacket_auxdata =
        unsafe { ptr::read_unaligned(libc::CMSG_DATA(first).cast()) };
    let valid = auxdata.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
    let identifier = if auxdata.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
        auxdata.tp_vlan_tpid
    } else {
        0x8100
    };
    valid.then_some((identifier, auxdata.tp_vlan_tci))
}

/// Sends the first [`BATCH`] frames, each in two parts, without blocking. Returns the number of
/// frames sent.
///
/// # Errors
/// The kernel's error for the first frame. The next call returns the error of a later frame.
pub(crate) fn send_many<'a>(
    fd: BorrowedFd<'_>,
    frames: impl Iterator<Item = [&'a [u8]; 2]>,
) -> io::Result<usize> {
    let mut headers = [empty_header(); BATCH];
    let mut parts = [[libc::iovec {
        iov_base: ptr::null_mut(),
        iov_len: 0,
    }; 2]; BATCH];
    let mut count = 0;
    for ((header, parts), frame) in headers.iter_mut().zip(&mut parts).zip(frames) {
        for (part, bytes) in parts.iter_mut().zip(frame) {
            part.iov_base = bytes.as_ptr().cast_mut().cast();
            part.iov_len = bytes.len();
        }
        header.msg_hdr.msg_iov = parts.as_mut_ptr();
        header.msg_hdr.msg_iovlen = 2;
        count += 1;
    }
    // SAFETY: the first `count` headers point into `parts`, and these into frames that are borrowed
    // for longer than the call, each with its length. A send writes only `msg_len`.
    let sent = unsafe {
        libc::sendmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            count,
            libc::MSG_DONTWAIT as _,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Sets an option of packet sockets that is an integer.
///
/// # Errors
/// The kernel's.
pub(crate) fn set_option(fd: BorrowedFd<'_>, name: i32, value: i32) -> io::Result<()> {
    set(fd, libc::SOL_PACKET, name, &value)
}

/// Sets the priority of the frames that a socket sends from now on, 0 to 6 (socket(7)). Queueing
/// disciplines such as `pfifo_fast` and `prio` send those with a high one first.
///
/// # Errors
/// The kernel's.
pub(crate) fn set_priority(fd: BorrowedFd<'_>, priority: i32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, &priority)
}

/// Makes an interface also deliver frames for other stations, as long as the socket is open.
///
/// # Errors
/// The kernel's.
pub(crate) fn set_promiscuous(fd: BorrowedFd<'_>, interface: i32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: interface,
        // One of 0 to 10 in the kernel's headers.
        mr_type: u16::try_from(libc::PACKET_MR_PROMISC).unwrap_or(0),
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
}

fn set<T>(fd: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: the pointer is to a live value of the length that is given, which the kernel only
    // reads.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            ptr::from_ref(value).cast(),
            size_of::<T>(),
        )
    };
    check(rc)
}

/// Binds a packet socket to all frames of an interface.
///
/// # Errors
/// The kernel's.
pub(crate) fn bind(fd: BorrowedFd<'_>, interface: i32) -> io::Result<()> {
    // SAFETY: `sockaddr_ll` is integers, for which all zeroes is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = ADDRESS_FAMILY;
    address.sll_protocol = ALL_PROTOCOLS.to_be();
    address.sll_ifindex = interface;
    // SAFETY: the pointer is to a live address of the length that is given.
    let rc = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            ptr::from_ref(&address).cast(),
            size_of::<libc::sockaddr_ll>(),
        )
    };
    check(rc)
}

/// Gives the calling thread the lowest real-time priority (sched(7)): it gets a core whenever it has work,
/// before all threads without such priority. Threads that it starts inherit it.
///
/// # Errors
/// The kernel's, if the process may not do this.
pub(crate) fn raise_priority() -> io::Result<()> {
    set_scheduler(libc::SCHED_RR, 1)
}

/// # Errors
/// The kernel's.
pub(crate) fn lower_priority() -> io::Result<()> {
    set_scheduler(libc::SCHED_OTHER, 0)
}

fn set_scheduler(policy: i32, sched_priority: i32) -> io::Result<()> {
    // SAFETY: `sched_param` is a struct of integers, of which the C library of musl has more than glibc.
    let mut parameters: libc::sched_param = unsafe { mem::zeroed() };
    parameters.sched_priority = sched_priority;
    // `sched_setscheduler` would do it too, but not with musl, which leaves that function out.
    // SAFETY: the calling thread exists, and the function only reads the parameters during the call.
    match unsafe {
        libc::pthread_setschedparam(libc::pthread_self(), policy, &raw const parameters)
    } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Makes all threads of the process run as a user and the group of the same number, and in no other group. If
/// root calls it, they lose all capabilities.
///
/// # Errors
/// The kernel's, for example if the process may not do this. Then it may already have another group.
pub(crate) fn become_user(id: u32) -> io::Result<()> {
    // The user comes last: it takes away the right to change the groups.
    // SAFETY: a length of 0 makes setgroups(2) ignore the pointer.
    check(unsafe { libc::setgroups(0, ptr::null()) })?;
    // SAFETY: the call takes numbers only. The C library applies it to all threads.
    check(unsafe { libc::setresgid(id, id, id) })?;
    // SAFETY: as above.
    check(unsafe { libc::setresuid(id, id, id) })
}

/// What the kernel knows about an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) is_ethernet: bool,
    pub(crate) is_up: bool,
    pub(crate) mtu_bytes: usize,
}

/// Returns what the kernel knows about the interface of this name (netdevice(7)).
///
/// # Errors
/// The kernel's.
pub(crate) fn link(fd: BorrowedFd<'_>, name: &str) -> io::Result<Link> {
    // SAFETY: `ifreq` is integers and a pointer, for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays 0.
    let bytes = name.bytes().take(libc::IFNAMSIZ - 1);
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    // The C libraries differ in the types of requests and of their constants.
    let mut ask = |code: libc::c_ulong| {
        // SAFETY: these requests read and write one `ifreq`, which is live.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), code as libc::Ioctl, &raw mut request) })?;
        Ok::<_, io::Error>(request.ifr_ifru)
    };
    let (kind, flags, mtu) = (
        ask(libc::SIOCGIFHWADDR)?,
        ask(libc::SIOCGIFFLAGS)?,
        ask(libc::SIOCGIFMTU)?,
    );
    // SAFETY: each request has written the field that is named after it.
    let (kind, flags, mtu) = unsafe { (kind.ifru_hwaddr, flags.ifru_flags, mtu.ifru_mtu) };
    Ok(Link {
        is_ethernet: kind.sa_family == libc::ARPHRD_ETHER,
        is_up: libc::c_int::from(flags) & libc::IFF_UP != 0,
        mtu_bytes: usize::try_from(mtu).unwrap_or(0),
    })
}

/// Bytes that a socket has sent and the interface has not. The kernel includes its own bookkeeping.
///
/// # Errors
/// The kernel's.
pub(crate) fn queued_bytes(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (TIOCOUTQ) writes one `int` to the pointer, which is live.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Number of frames that the kernel dropped since the last call because they were not read in time.
///
/// # Errors
/// The kernel's.
pub(crate) fn drops(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut stats = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    let mut length = size_of::<libc::tpacket_stats>();
    // SAFETY: both pointers are to live values, and the second has the length of the first.
    let rc = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            ptr::from_mut(&mut stats).cast(),
            &raw mut length,
        )
    };
    check(rc)?;
    Ok(stats.tp_drops.into())
}

fn size_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(mem::size_of::<T>()).unwrap_or(0)
}

fn check(rc: i32) -> io::Result<()> {
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn empty_header() -> libc::mmsghdr {
    // SAFETY: `mmsghdr` is integers and raw pointers, for which all zeroes is a valid value.
    unsafe { mem::zeroed() }
}
