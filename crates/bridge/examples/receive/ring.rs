//! Frames from a ring that a packet socket shares with the kernel (packet(7), `PACKET_RX_RING`).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{mem, ptr};

use libc::{tpacket_block_desc, tpacket_versions, tpacket2_hdr, tpacket3_hdr};

/// Room for the longest train of packets and its header, in whole pages.
const SLOT_BYTES: usize = 17 << 12;
const BLOCK_BYTES: usize = 1 << 20;
/// About as much memory as the buffer of the bridge's sockets.
const RING_BYTES: usize = 16 << 20;
/// The shortest time after which the kernel hands over a block that is not full.
const RETIRE_MS: u32 = 1;

/// How the kernel lays frames out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `TPACKET_V2`: slots of equal length, each handed over by itself.
    Slots,
    /// `TPACKET_V3`: blocks of frames, handed over when they are full or `RETIRE_MS` old.
    Blocks,
}

/// A ring of one packet socket.
pub(crate) struct Ring {
    socket: OwnedFd,
    layout: Layout,
    memory: *mut u8,
    /// Size of a slot or a block.
    unit_bytes: usize,
    units: usize,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone, and does not depend on a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Sets up a ring for a socket that is not bound yet.
    pub(crate) fn new(socket: OwnedFd, layout: Layout) -> io::Result<Self> {
        let (version, unit_bytes) = match layout {
            Layout::Slots => (tpacket_versions::TPACKET_V2, SLOT_BYTES),
            Layout::Blocks => (tpacket_versions::TPACKET_V3, BLOCK_BYTES),
        };
        let units = RING_BYTES / unit_bytes;
        let number = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        set(&socket, libc::PACKET_VERSION, &(version as libc::c_int))?;
        set(&socket, libc::PACKET_VNET_HDR, &1i32)?;
        match layout {
            Layout::Slots => {
                let request = libc::tpacket_req {
                    tp_block_size: number(unit_bytes),
                    tp_block_nr: number(units),
                    tp_frame_size: number(unit_bytes),
                    tp_frame_nr: number(units),
                };
                set(&socket, libc::PACKET_RX_RING, &request)?;
            }
            Layout::Blocks => {
                let request = libc::tpacket_req3 {
                    tp_block_size: number(unit_bytes),
                    tp_block_nr: number(units),
                    tp_frame_size: number(unit_bytes),
                    tp_frame_nr: number(units),
                    tp_retire_blk_tov: RETIRE_MS,
                    tp_sizeof_priv: 0,
                    tp_feature_req_word: 0,
                };
                set(&socket, libc::PACKET_RX_RING, &request)?;
            }
        }
        // SAFETY: a new shared mapping of the socket's ring, whose length is the one that was asked
        // for; the kernel chooses the address.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                units * unit_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            socket,
            layout,
            memory: memory.cast(),
            unit_bytes,
            units,
            next: 0,
        })
    }

    /// Binds the socket to an interface.
    pub(crate) fn bind(&self, interface: &str) -> io::Result<()> {
        bind(&self.socket, interface)
    }

    /// Calls `take` with each frame that is available. Returns their number.
    pub(crate) fn receive(&mut self, mut take: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        loop {
            // SAFETY: `next` is below `units`, so the unit lies in the mapping.
            let unit = unsafe { self.memory.add(self.next * self.unit_bytes) };
            // SAFETY: both headers have a 32-bit status, aligned in the page-aligned unit, which the
            // kernel and this program change in turn.
            let status = unsafe { AtomicU32::from_ptr(unit.add(self.status_offset()).cast()) };
            if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                return count;
            }
            // SAFETY: the kernel has handed the unit over.
            count += unsafe { self.frames(unit, &mut take) };
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % self.units;
        }
    }

    fn status_offset(&self) -> usize {
        match self.layout {
            Layout::Slots => mem::offset_of!(tpacket2_hdr, tp_status),
            Layout::Blocks => {
                mem::offset_of!(tpacket_block_desc, hdr)
                    + mem::offset_of!(libc::tpacket_hdr_v1, block_status)
            }
        }
    }

    /// # Safety
    /// The unit has been handed over by the kernel, which has filled it in.
    unsafe fn frames(&self, unit: *mut u8, take: &mut impl FnMut(&[u8])) -> usize {
        match self.layout {
            Layout::Slots => {
                // SAFETY: a slot begins with this header, whose fields are integers.
                let header = unsafe { &*unit.cast::<tpacket2_hdr>() };
                let (start, bytes) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
                // SAFETY: the frame lies in the slot.
                take(unsafe { std::slice::from_raw_parts(unit.add(start), bytes) });
                1
            }
            Layout::Blocks => {
                // SAFETY: a block begins with this description; version 1 of its union is the only one.
                let block = unsafe { (*unit.cast::<tpacket_block_desc>()).hdr.bh1 };
                let mut at = block.offset_to_first_pkt as usize;
                for _ in 0..block.num_pkts {
                    // SAFETY: each frame's header says where in the block the next one begins.
                    let header = unsafe { &*unit.add(at).cast::<tpacket3_hdr>() };
                    let (start, bytes) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
                    // SAFETY: the frame lies in the block.
                    take(unsafe { std::slice::from_raw_parts(unit.add(at + start), bytes) });
                    at += header.tp_next_offset as usize;
                }
                block.num_pkts as usize
            }
        }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this length, and nothing borrows from it.
        unsafe { libc::munmap(self.memory.cast(), self.units * self.unit_bytes) };
    }
}

/// A packet socket that receives nothing until it is bound.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(
        AddressFamily::PACKET,
        SocketType::RAW,
        flags,
        None,
    )?)
}

/// Binds a packet socket to all frames that arrive at an interface.
fn bind(socket: &OwnedFd, interface: &str) -> io::Result<()> {
    set(socket, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
    let index = rustix::net::netdevice::name_to_index(socket, interface)?;
    // SAFETY: `sockaddr_ll` is integers, for which all zeroes is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or(0);
    address.sll_protocol = u16::try_from(libc::ETH_P_ALL).unwrap_or(0).to_be();
    address.sll_ifindex = i32::try_from(index).unwrap_or(0);
    // SAFETY: the pointer is to a live address of the length that is given.
    let rc = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            ptr::from_ref(&address).cast(),
            libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).unwrap_or(0),
        )
    };
    check(rc)
}

fn set<T>(socket: &OwnedFd, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: the pointer is to a live value of the length that is given, which the kernel only
    // reads.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            name,
            ptr::from_ref(value).cast(),
            libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0),
        )
    };
    check(rc)
}

fn check(rc: i32) -> io::Result<()> {
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
