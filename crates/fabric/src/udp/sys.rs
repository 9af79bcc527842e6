//! System calls without a safe wrapper: batched sends and receives with control messages, four socket options, and
//! the time slice of a thread.
#![allow(unsafe_code)]

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::{mem, ptr};

use super::control::ControlBuffer;
use super::kernel_address::KernelAddress;

/// Largest number of datagrams of one call.
pub(super) const BATCH: usize = 16;

/// One datagram, or one GSO batch, to send.
pub(super) struct SendItem<'a> {
    pub(super) name: KernelAddress,
    pub(super) name_len: u32,
    pub(super) control: ControlBuffer,
    pub(super) parts: &'a [IoSlice<'a>],
}

/// Metadata of one received datagram.
#[derive(Clone, Copy)]
pub(super) struct RecvItem {
    pub(super) name: KernelAddress,
    pub(super) control: ControlBuffer,
    pub(super) len: usize,
    /// Whether the datagram or its control messages did not fit.
    pub(super) truncated: bool,
}

impl RecvItem {
    pub(super) const EMPTY: Self = Self {
        name: KernelAddress::EMPTY,
        control: ControlBuffer::EMPTY,
        len: 0,
        truncated: false,
    };
}

/// `setsockopt` of an integer.
///
/// # Errors
/// Those of the kernel.
pub(super) fn set_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer refers to a live `c_int`, 4 bytes on Linux, which the kernel only reads.
    let rc =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, ptr::from_ref(&value).cast(), 4) };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The shortest time slice that Linux gives. It raises shorter ones to this.
const SLICE_NS: u64 = 100_000;

/// Asks for short time slices for this thread, which it gets from Linux 6.12 on (`sched-eevdf.rst` of its
/// documentation). Of two threads that share a core, the one with the shorter slice runs sooner after it wakes up.
/// Neither gets more of the core. A thread with another policy than `SCHED_OTHER` or `SCHED_BATCH` stays as it is.
///
/// # Errors
/// Those of the kernel.
pub(super) fn shorten_slices() -> io::Result<()> {
    let mut thread = thread_attributes()?;
    let has_slices = [libc::SCHED_OTHER, libc::SCHED_BATCH]
        .iter()
        .any(|policy| thread.sched_policy == policy.unsigned_abs());
    if !has_slices {
        return Ok(());
    }
    thread.sched_runtime = SLICE_NS;
    // SAFETY: the kernel reads as many bytes as `thread` says that it has.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const thread, 0) })
}

/// How the kernel schedules this thread.
fn thread_attributes() -> io::Result<libc::sched_attr> {
    // SAFETY: all fields are integers, for which zeros are valid.
    let mut thread: libc::sched_attr = unsafe { mem::zeroed() };
    let size = mem::size_of_val(&thread);
    // SAFETY: the kernel writes at most `size` bytes to `thread`.
    check(unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut thread, size, 0) })?;
    Ok(thread)
}

fn check(result: libc::c_long) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends up to [`BATCH`] of `items` without blocking. Returns the number of items sent.
///
/// # Errors
/// The error of the kernel for the first item. The error of a later item is returned by the next
/// call.
pub(super) fn send_many(fd: BorrowedFd<'_>, items: &mut [SendItem<'_>]) -> io::Result<usize> {
    let mut headers = [empty_header(); BATCH];
    let mut count = 0;
    for (header, item) in headers.iter_mut().zip(items) {
        let h = &mut header.msg_hdr;
        h.msg_name = ptr::from_mut(&mut item.name).cast();
        h.msg_namelen = item.name_len;
        // `IoSlice` has the layout of `iovec` (std's guarantee), and a send does not write to it.
        h.msg_iov = item.parts.as_ptr().cast_mut().cast();
        h.msg_iovlen = item.parts.len() as _;
        if item.control.len() > 0 {
            h.msg_controllen = item.control.len() as _;
            h.msg_control = item.control.as_mut_ptr().cast();
        }
        count += 1;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the first `count` headers point into `items`, which outlives the call, and each has
    // the length of the memory that it points to. The kernel writes only to the headers' `msg_len`.
    let rc = unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, flags as _) };
    usize::try_from(rc).map_err(|_| io::Error::last_os_error())
}

/// Receives up to [`BATCH`] datagrams without blocking: the i-th into the i-th `stride` bytes of
/// `slab` and into the i-th of `items`. Returns their number.
///
/// # Errors
/// Those of the kernel; `WouldBlock` if nothing waits.
pub(super) fn recv_many(
    fd: BorrowedFd<'_>,
    items: &mut [RecvItem],
    slab: &mut [u8],
    stride: usize,
) -> io::Result<usize> {
    let mut headers = [empty_header(); BATCH];
    let mut iovecs = [libc::iovec {
        iov_base: ptr::null_mut(),
        iov_len: 0,
    }; BATCH];
    let mut count = 0;
    let slots = items.iter_mut().zip(slab.chunks_exact_mut(stride));
    for ((header, iovec), (item, buffer)) in headers.iter_mut().zip(&mut iovecs).zip(slots) {
        iovec.iov_base = buffer.as_mut_ptr().cast();
        iovec.iov_len = buffer.len();
        let h = &mut header.msg_hdr;
        h.msg_name = ptr::from_mut(&mut item.name).cast();
        h.msg_namelen = KernelAddress::SIZE;
        h.msg_iov = iovec;
        h.msg_iovlen = 1;
        h.msg_control = item.control.as_mut_ptr().cast();
        h.msg_controllen = ControlBuffer::SIZE as _;
        count += 1;
    }
    let (flags, wait) = (libc::MSG_DONTWAIT, ptr::null_mut());
    // SAFETY: the first `count` headers point into `items`, `iovecs` and `slab`, which outlive the
    // call and are borrowed exclusively, and each has the length of the memory that it points to.
    // recvmmsg(2) allows the null timeout.
    let rc = unsafe {
        libc::recvmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            count,
            flags as _,
            wait,
        )
    };
    let got = usize::try_from(rc).map_err(|_| io::Error::last_os_error())?;
    for (item, header) in items.iter_mut().zip(&headers).take(got) {
        item.len = header.msg_len as usize;
        item.control.set_len(header.msg_hdr.msg_controllen as _);
        let short = libc::MSG_TRUNC | libc::MSG_CTRUNC;
        item.truncated = header.msg_hdr.msg_flags & short != 0;
    }
    Ok(got)
}

fn empty_header() -> libc::mmsghdr {
    // SAFETY: `mmsghdr` consists of integers and raw pointers, for which all zeroes is a valid
    // value.
    unsafe { mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_short_time_slices() {
        let thread = std::thread::spawn(|| shorten_slices().and_then(|()| thread_attributes()));
        let thread = thread.join().expect("no panic").expect("allowed");
        // A kernel before Linux 6.12 ignores the request, and returns 0.
        assert!([SLICE_NS, 0].contains(&thread.sched_runtime));
    }
}
