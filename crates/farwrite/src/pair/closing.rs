//! Receives that are over, until no worker can write into their memory.
#![allow(unsafe_code)]

use std::sync::Arc;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, Window};
use farwrite_sdr::ChunkBitmap;
use farwrite_wire::control::Outcome;

use super::Pair;
use super::parity::Lent;
use super::receiving::Recv;
use crate::handle::RecvShared;
use crate::partial::Partial;

/// A receive that is over, and of which the windows are closing.
pub(super) struct Closing {
    message: u64,
    /// Those that are not closed.
    windows: Vec<Window>,
    lent: Option<Lent>,
    shared: Arc<RecvShared>,
    outcome: Outcome,
    bitmap: ChunkBitmap,
    wants_immediate: bool,
}

impl Closing {
    pub(super) fn new(message: u64, recv: Recv, outcome: Outcome) -> Self {
        let windows = [Some(recv.window), recv.lent.map(|lent| lent.window)];
        Self {
            message,
            windows: windows.into_iter().flatten().collect(),
            lent: recv.lent,
            shared: recv.shared,
            outcome,
            bitmap: recv.bitmap,
            wants_immediate: recv.wants_immediate,
        }
    }

    pub(super) fn message(&self) -> u64 {
        self.message
    }

    /// The fabric has no such window, so there is none to wait for.
    pub(super) fn forget(&mut self, window: Window) {
        self.windows.retain(|&other| other != window);
    }
}

impl Pair {
    /// Ends the receives of which the windows are closed: now no packet changes their memory.
    pub(crate) fn settle_closing<F: Fabric>(&mut self, fabric: &mut Adapter<F>) {
        let (workshop, sdr) = (&mut self.workshop, &mut self.sdr);
        self.closing.retain_mut(|closing| {
            closing
                .windows
                .retain(|&window| !fabric.take_closed(window));
            if !closing.windows.is_empty() {
                return true;
            }
            if let Some(lent) = closing.lent {
                workshop.give_lent(lent.scratch);
            }
            // A worker sets the last bit before it keeps the last fragment.
            if closing.wants_immediate
                && let Some(immediate) = sdr.received().immediate(closing.message)
            {
                closing.shared.set_immediate(immediate);
            }
            // SAFETY: packets are taken in between the poll and the end of a batch of a receive
            // worker, on whichever thread (`Reception`). The receive was completed before its
            // windows were closed, and the fabric has reported these as closed: each worker has
            // left the batch that it was in then, and finds nothing at the slot in later ones.
            unsafe { sdr.release_recv(closing.message) };
            match closing.outcome {
                Outcome::Partial => {
                    let partial = Partial::of(&closing.bitmap);
                    closing.shared.finish_partial(partial);
                }
                outcome => closing.shared.finish(outcome),
            }
            false
        });
    }

    /// Waits for the windows of receives that are over: of one, or of all. No worker has long to
    /// its next batch, and one that is polled by this thread is in none.
    pub(crate) fn wait_closed<F: Fabric>(&mut self, fabric: &mut Adapter<F>, message: Option<u64>) {
        loop {
            self.settle_closing(fabric);
            let mut closing = self.closing.iter().map(|closing| closing.message);
            if !closing.any(|of| message.is_none_or(|message| of == message)) {
                return;
            }
            std::thread::yield_now();
        }
    }
}
