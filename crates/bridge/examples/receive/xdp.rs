//! Frames from an `AF_XDP` socket in copy mode (the kernel's `Documentation/networking/af_xdp.rst`).
#![allow(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "sizes and offsets are small"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc,
    XdpDescOptions, XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use crate::redirect::{Mode, Redirect};
use crate::ring;

/// The largest chunk that the kernel accepts is a page. A longer frame takes several chunks.
const CHUNK_BYTES: usize = 4096;
/// About as much memory as the other ways have. A power of two, as rings need.
const CHUNKS: u32 = 4096;

/// An `AF_XDP` socket that receives all frames of an interface.
pub(crate) struct Xdp {
    // Fields are dropped in this order: no frames come when the memory goes.
    _redirect: Redirect,
    socket: OwnedFd,
    received: RingMap,
    free: RingMap,
    chunks: Mapping,
}

impl Xdp {
    pub(crate) fn open(interface: &str, mode: Mode) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
        let bytes = CHUNKS as usize * CHUNK_BYTES;
        let chunks = Mapping::new(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)?;
        sockopt::set_xdp_umem_reg(
            &socket,
            XdpUmemReg {
                addr: chunks.memory as u64,
                len: bytes as u64,
                chunk_size: CHUNK_BYTES as u32,
                headroom: 0,
                flags: XdpUmemRegFlags::empty(),
                tx_metadata_len: 0,
            },
        )?;
        sockopt::set_xdp_umem_fill_ring_size(&socket, CHUNKS)?;
        sockopt::set_xdp_umem_completion_ring_size(&socket, CHUNKS)?;
        sockopt::set_xdp_rx_ring_size(&socket, CHUNKS)?;
        let offsets = sockopt::xdp_mmap_offsets(&socket)?;
        let free = RingMap::new(
            &socket,
            &offsets.fr,
            size_of::<u64>(),
            XDP_UMEM_PGOFF_FILL_RING,
        )?;
        let received = RingMap::new(
            &socket,
            &offsets.rx,
            size_of::<XdpDesc>(),
            XDP_PGOFF_RX_RING,
        )?;
        for chunk in 0..CHUNKS {
            // SAFETY: an entry of the fill ring is the address of a chunk; the kernel does not read
            // this entry before the producer counter covers it.
            unsafe {
                free.entry::<u64>(chunk)
                    .write(u64::from(chunk) * CHUNK_BYTES as u64);
            }
        }
        free.producer().store(CHUNKS, Ordering::Release);
        // An AF_XDP socket does not answer this question.
        let index = rustix::net::netdevice::name_to_index(ring::socket()?, interface)?;
        let flags = SocketAddrXdpFlags::XDP_COPY | SocketAddrXdpFlags::XDP_USE_SG;
        let address = SocketAddrXdp::new(flags, index, 0);
        // The kernel frees the queue some time after the last socket was closed.
        let mut tries = 0;
        while let Err(error) = bind(&socket, &address) {
            if error != rustix::io::Errno::BUSY || tries == 100 {
                return Err(error.into());
            }
            tries += 1;
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self {
            _redirect: Redirect::attach(&socket, index, mode)?,
            socket,
            received,
            free,
            chunks,
        })
    }

    /// Calls `take` with each piece of the frames that are available. Returns the number of frames.
    pub(crate) fn receive(&mut self, mut take: impl FnMut(&[u8])) -> usize {
        let first = self.received.consumer().load(Ordering::Relaxed);
        let end = self.received.producer().load(Ordering::Acquire);
        let mut freed = self.free.producer().load(Ordering::Relaxed);
        let mut count = 0;
        let mut next = first;
        while next != end {
            // SAFETY: the kernel has filled in the entries before `end`.
            let piece = unsafe { self.received.entry::<XdpDesc>(next).read() };
            // SAFETY: the kernel gives chunks of our memory, which are ours until they are freed.
            take(unsafe {
                let start = self.chunks.memory.add(piece.addr as usize);
                std::slice::from_raw_parts(start, piece.len as usize)
            });
            count += usize::from(!piece.options.contains(XdpDescOptions::XDP_PKT_CONTD));
            let chunk = piece.addr - piece.addr % CHUNK_BYTES as u64;
            // SAFETY: the fill ring has room for all chunks, and this one is not in it.
            unsafe { self.free.entry::<u64>(freed).write(chunk) };
            next = next.wrapping_add(1);
            freed = freed.wrapping_add(1);
        }
        self.received.consumer().store(next, Ordering::Release);
        self.free.producer().store(freed, Ordering::Release);
        count
    }
}

impl AsFd for Xdp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A ring of the socket, of `CHUNKS` entries.
struct RingMap {
    mapping: Mapping,
    offset: XdpRingOffset,
    entry_bytes: usize,
}

impl RingMap {
    fn new(
        socket: &OwnedFd,
        offset: &XdpRingOffset,
        entry_bytes: usize,
        page: u64,
    ) -> io::Result<Self> {
        let bytes = offset.desc as usize + CHUNKS as usize * entry_bytes;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Ok(Self {
            mapping: Mapping::new(bytes, flags, socket.as_raw_fd(), page as i64)?,
            offset: *offset,
            entry_bytes,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        self.counter(self.offset.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.counter(self.offset.consumer)
    }

    fn counter(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel places a 32-bit counter at this offset of the mapping, and changes it
        // atomically.
        unsafe { AtomicU32::from_ptr(self.mapping.memory.add(offset as usize).cast()) }
    }

    /// The place of entry `number`, modulo the length of the ring.
    fn entry<T>(&self, number: u32) -> *mut T {
        debug_assert_eq!(size_of::<T>(), self.entry_bytes);
        let place = self.offset.desc as usize + (number % CHUNKS) as usize * self.entry_bytes;
        // SAFETY: the mapping has `CHUNKS` entries from `desc` on.
        unsafe { self.mapping.memory.add(place).cast() }
    }
}

/// Memory that is shared with the kernel.
struct Mapping {
    memory: *mut u8,
    bytes: usize,
}

// SAFETY: a mapping belongs to one value alone, and does not depend on a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(bytes: usize, flags: i32, fd: i32, offset: i64) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, whose address the kernel chooses.
        let memory = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, fd, offset) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            memory: memory.cast(),
            bytes,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this length, and nothing borrows from it.
        unsafe { libc::munmap(self.memory.cast(), self.bytes) };
    }
}
