//! Requests to post together.
#![allow(unsafe_code)]

use std::ptr;

use super::ffi;

/// A request that can be linked to others.
pub(super) trait Request {
    fn entries(&self) -> usize;
    fn link(&mut self, entries: *mut ffi::ScatterEntry, next: *mut Self);
}

impl Request for ffi::SendRequest {
    fn entries(&self) -> usize {
        usize::try_from(self.num_sge).unwrap_or(0)
    }

    fn link(&mut self, entries: *mut ffi::ScatterEntry, next: *mut Self) {
        (self.sg_list, self.next) = (entries, next);
    }
}

impl Request for ffi::RecvRequest {
    fn entries(&self) -> usize {
        usize::try_from(self.num_sge).unwrap_or(0)
    }

    fn link(&mut self, entries: *mut ffi::ScatterEntry, next: *mut Self) {
        (self.sg_list, self.next) = (entries, next);
    }
}

/// Requests to post together. The memory is reused.
pub(super) struct List<R> {
    pub(super) requests: Vec<R>,
    entries: Vec<ffi::ScatterEntry>,
}

// SAFETY: pointers in the requests are set and used only while a post borrows the list.
unsafe impl<R> Send for List<R> {}

impl<R> Default for List<R> {
    fn default() -> Self {
        Self {
            requests: Vec::new(),
            entries: Vec::new(),
        }
    }
}

impl<R: Request> List<R> {
    fn clear(&mut self) {
        self.requests.clear();
        self.entries.clear();
    }

    /// Number of requests before one of them; 0 if it is not in the list.
    pub(super) fn before(&self, request: *const R) -> usize {
        let mut all = self.requests.iter();
        all.position(|one| ptr::eq(one, request)).unwrap_or(0)
    }

    /// Links the requests and their entries. Returns the first request.
    pub(super) fn link(&mut self) -> *mut R {
        let count = self.requests.len();
        let (requests, mut entries) = (self.requests.as_mut_ptr(), self.entries.as_mut_ptr());
        for index in 0..count {
            let next = match index + 1 < count {
                true => requests.wrapping_add(index + 1),
                false => ptr::null_mut(),
            };
            // SAFETY: the list has `count` requests, and nobody else uses them.
            let request = unsafe { &mut *requests.add(index) };
            request.link(entries, next);
            entries = entries.wrapping_add(request.entries());
        }
        match count {
            0 => ptr::null_mut(),
            _ => requests,
        }
    }
}

/// Send requests to post together.
#[derive(Default)]
pub(crate) struct Sends(pub(super) List<ffi::SendRequest>);

impl Sends {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Begins a write with immediate. [`Sends::add`] adds its bytes.
    pub(crate) fn write(&mut self, id: u64, remote_addr: u64, rkey: u32, imm: u32) {
        self.0.requests.push(ffi::SendRequest {
            opcode: ffi::WR_RDMA_WRITE_WITH_IMM,
            imm_data: imm.to_be(),
            remote_addr,
            rkey,
            ..ffi::SendRequest::empty(id)
        });
    }

    /// Begins a SEND. [`Sends::add`] adds its bytes.
    pub(crate) fn send(&mut self, id: u64) {
        self.0.requests.push(ffi::SendRequest {
            opcode: ffi::WR_SEND,
            ..ffi::SendRequest::empty(id)
        });
    }

    /// Adds bytes to the last request.
    pub(crate) fn add(&mut self, addr: u64, length: u32, lkey: u32) {
        self.0
            .entries
            .push(ffi::ScatterEntry { addr, length, lkey });
        if let Some(request) = self.0.requests.last_mut() {
            request.num_sge += 1;
        }
    }

    /// Copies the bytes of the last request when it is posted.
    pub(crate) fn make_inline(&mut self) {
        self.flag_last(ffi::SEND_INLINE);
    }

    /// Makes the last request complete.
    pub(crate) fn signal(&mut self) {
        self.flag_last(ffi::SEND_SIGNALED);
    }

    fn flag_last(&mut self, flag: u32) {
        if let Some(request) = self.0.requests.last_mut() {
            request.send_flags |= flag;
        }
    }
}

/// Receive requests to post together.
#[derive(Default)]
pub(crate) struct Receives(pub(super) List<ffi::RecvRequest>);

impl Receives {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a request, with a buffer for a SEND. A write takes only its identifier.
    pub(crate) fn push(&mut self, wr_id: u64, addr: u64, length: u32, lkey: u32) {
        self.0
            .entries
            .push(ffi::ScatterEntry { addr, length, lkey });
        self.0.requests.push(ffi::RecvRequest {
            wr_id,
            next: ptr::null_mut(),
            sg_list: ptr::null_mut(),
            num_sge: 1,
        });
    }
}
