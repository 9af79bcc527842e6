//! Receives that have ended but whose memory a worker may still write.
#![allow(unsafe_code)]

use std::sync::Arc;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, Window};
use farwrite_sdr::ChunkBitmap;
use farwrite_wire::control::Outcome;

use super::OpenRecv;
use crate::handle::RecvShared;
use crate::pair::Pair;
use crate::pair::parity::ParityRegion;
use crate::partial::Partial;

/// A receive that has ended and whose windows are closing.
pub(in crate::pair) struct Closing {
    pub(in crate::pair) message: u64,
    /// The windows that are not closed yet.
    windows: Vec<Window>,
    region: Option<ParityRegion>,
    shared: Arc<RecvShared>,
    outcome: Outcome,
    bitmap: ChunkBitmap,
    wants_immediate: bool,
}

impl Closing {
    pub(in crate::pair) fn new(message: u64, recv: OpenRecv, outcome: Outcome) -> Self {
        let windows = [Some(recv.window), recv.region.map(|region| region.window)];
        Self {
            message,
            windows: windows.into_iter().flatten().collect(),
            region: recv.region,
            shared: recv.shared,
            outcome,
            bitmap: recv.bitmap,
            wants_immediate: recv.wants_immediate,
        }
    }

    /// Stops waiting for a window, because the fabric does not have it.
    pub(in crate::pair) fn forget(&mut self, window: Window) {
        self.windows.retain(|&other| other != window);
    }
}

impl Pair {
    /// Ends the receives whose windows are closed. No packet changes their memory any more.
    pub(crate) fn settle_closing<F: Fabric>(&mut self, fabric: &mut Adapter<F>) {
        let (parity_memory, sdr) = (&mut self.parity_memory, &mut self.sdr);
        self.recv.closing.retain_mut(|closing| {
            closing
                .windows
                .retain(|&window| !fabric.take_closed(window));
            if !closing.windows.is_empty() {
                return true;
            }
            if let Some(region) = closing.region {
                parity_memory.give_lent(region.scratch);
            }
            // A worker sets the last bit before it stores the last fragment, so only now are all
            // fragments stored.
            if closing.wants_immediate
                && let Some(immediate) = sdr.received().immediate(closing.message)
            {
                closing.shared.set_immediate(immediate);
            }
            // SAFETY: packets are processed between the poll and the end of a batch of a receive
            // worker, on whichever thread (`Receiving`). The receive was completed before its
            // windows were closed, and the fabric has reported these windows as closed: each worker
            // has left the batch that it was in at that time, and finds nothing at the slot in
            // later batches.
            unsafe { sdr.release_recv(closing.message) };
            match closing.outcome {
                Outcome::Partial => closing.shared.finish_partial(Partial::of(&closing.bitmap)),
                outcome => closing.shared.finish(outcome),
            }
            false
        });
    }

    /// Waits for the windows of ended receives to close: those of one message, or those of all. The
    /// wait is short, because a worker soon reaches its next batch, and a worker that this thread
    /// polls is not in a batch.
    pub(crate) fn wait_closed<F: Fabric>(&mut self, fabric: &mut Adapter<F>, message: Option<u64>) {
        loop {
            self.settle_closing(fabric);
            let mut closing = self.recv.closing.iter().map(|closing| closing.message);
            if !closing.any(|of| message.is_none_or(|message| of == message)) {
                return;
            }
            std::thread::yield_now();
        }
    }
}
