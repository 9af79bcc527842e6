//! Completion queues.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;

use farwrite_fabric::contract::FabricError;

use super::{Device, borrow, check, ffi, make_nonblocking, not_null};

/// A completion queue with a channel for its events.
pub(crate) struct CompletionQueue {
    cq: *mut ffi::IbvCq,
    channel: *mut ffi::IbvChannel,
    device: Arc<Device>,
}

// SAFETY: same as for `Device`.
unsafe impl Send for CompletionQueue {}
// SAFETY: same as for `Device`.
unsafe impl Sync for CompletionQueue {}

/// The end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    pub(crate) id: u64,
    /// What arrived, for a receive request; or the status of a request that failed.
    pub(crate) result: Result<Received, u32>,
}

/// What arrived at a receive request. It means nothing for the request of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A write with this immediate value, of so many bytes.
    Write { imm: u32, bytes: u32 },
    /// A SEND of so many bytes, or a request that was sent.
    Other { bytes: u32 },
}

impl CompletionQueue {
    /// Makes a queue for `depth` completions. The device does not put more into it than its users
    /// have requests.
    pub(crate) fn new(device: &Arc<Device>, depth: u32) -> Result<Arc<Self>, FabricError> {
        let functions = device.functions();
        // SAFETY: the context is open.
        let channel = unsafe { (functions.ibv_create_comp_channel)(device.context) };
        let channel = not_null(channel, || "making a completion channel".into())?;
        let depth = i32::try_from(depth).unwrap_or(i32::MAX);
        // SAFETY: the context is open, and the channel belongs to it.
        let cq = unsafe {
            (functions.ibv_create_cq)(device.context, depth, ptr::null_mut(), channel, 0)
        };
        let made = not_null(cq, || format!("making a queue for {depth} completions"));
        let cq = made.inspect_err(|_| {
            // SAFETY: no queue uses the channel.
            unsafe { (functions.ibv_destroy_comp_channel)(channel) };
        })?;
        let queue = Self {
            cq,
            channel,
            device: Arc::clone(device),
        };
        make_nonblocking(queue.events())?;
        Ok(Arc::new(queue))
    }

    /// Takes completions, at most as many as the buffer has. Returns how many.
    pub(crate) fn poll(
        &self,
        buffer: &mut Completions,
        mut each: impl FnMut(Finished),
    ) -> Result<usize, FabricError> {
        let most = i32::try_from(buffer.0.len()).unwrap_or(i32::MAX);
        // SAFETY: the queue exists, and the buffer has room for `most` completions.
        let count =
            unsafe { ((*self.device.context).ops.poll_cq)(self.cq, most, buffer.0.as_mut_ptr()) };
        check(count.min(0), || "polling a completion queue".into())?;
        let count = usize::try_from(count).unwrap_or(0);
        for completion in &buffer.0[..count] {
            each(finished(completion));
        }
        Ok(count)
    }

    /// Asks for an event with the next completion. Completions that are in the queue already make
    /// none, so poll it after this.
    pub(crate) fn request_event(&self) -> Result<(), FabricError> {
        // SAFETY: the queue exists.
        let code = unsafe { ((*self.device.context).ops.req_notify_cq)(self.cq, 0) };
        check(code, || "asking for an event of a completion queue".into())
    }

    /// The descriptor that is readable when there is an event.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the library made the structure, and does not change it.
        borrow(unsafe { (*self.channel).fd }, self)
    }

    /// Returns whether there was an event.
    fn take_events(&self) -> bool {
        let mut taken = false;
        let functions = self.device.functions();
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel exists, and both pointers are writable. Each event is acknowledged
        // once.
        unsafe {
            while (functions.ibv_get_cq_event)(self.channel, &raw mut cq, &raw mut context) == 0 {
                (functions.ibv_ack_cq_events)(cq, 1);
                taken = true;
            }
        }
        taken
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::IbvCq {
        self.cq
    }
}

fn finished(completion: &ffi::WorkCompletion) -> Finished {
    let bytes = completion.byte_len;
    let result = match (completion.status, completion.opcode) {
        (ffi::WC_SUCCESS, ffi::WC_RECV_RDMA_WITH_IMM) => Ok(Received::Write {
            imm: u32::from_be(completion.imm_data),
            bytes,
        }),
        (ffi::WC_SUCCESS, _) => Ok(Received::Other { bytes }),
        (status, _) => Err(status),
    };
    Finished {
        id: completion.wr_id,
        result,
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        let functions = self.device.functions();
        // SAFETY: queue pairs hold their queues, so none is left. All events are acknowledged.
        unsafe {
            (functions.ibv_destroy_cq)(self.cq);
            (functions.ibv_destroy_comp_channel)(self.channel);
        }
    }
}

/// A buffer for completions.
pub(crate) struct Completions(Box<[ffi::WorkCompletion]>);

impl Completions {
    pub(crate) fn new(count: usize) -> Self {
        Self(vec![ffi::WorkCompletion::default(); count].into())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Whether a completion queue makes an event with the next completion. One thread waits for it.
#[derive(Default)]
pub(crate) struct Armed(Cell<bool>);

impl Armed {
    /// Prepares to sleep. Returns false if the queue must be polled first.
    pub(crate) fn prepare(&self, queue: &CompletionQueue) -> Result<bool, FabricError> {
        if !self.0.replace(true) {
            queue.take_events();
            queue.request_event()?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Completions came, so the event is used up.
    pub(crate) fn disarm(&self) {
        self.0.set(false);
    }

    /// A sleep is over. An event that came is used up.
    pub(crate) fn woke(&self, queue: &CompletionQueue) {
        if queue.take_events() {
            self.disarm();
        }
    }
}
