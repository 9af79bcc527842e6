//! The gate that controls final names.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::locks::lock;

/// Decides whether files may still get their final names. All clones share one gate.
///
/// A [`Sink`](super::Sink) passes the gate for each final name that it gives. Another thread closes
/// the gate to end a transfer. After that, the directory does not change.
#[derive(Clone, Debug, Default)]
pub struct CommitGate(Arc<SharedGate>);

#[derive(Debug, Default)]
struct SharedGate {
    state: Mutex<GateState>,
    /// Signals that `passing` became 0.
    empty: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    closed: bool,
    /// The number of final names that are being given now.
    passing: usize,
}

impl CommitGate {
    /// Closes the gate permanently, and waits up to `patience` for a final name that is being given
    /// at this moment. Returns whether that wait succeeded. After `true`, no more files get their
    /// final names. After `false`, only the file that was waited for may still get it.
    #[must_use]
    pub fn close(&self, patience: Duration) -> bool {
        let mut state = lock(&self.0.state);
        state.closed = true;
        let waited = self
            .0
            .empty
            .wait_timeout_while(state, patience, |state| state.passing > 0);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.passing == 0
    }

    /// Returns whether the gate is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        lock(&self.0.state).closed
    }

    /// Keeps the gate open until the pass is dropped. Returns `None` if the gate is already closed.
    pub(super) fn pass(&self) -> Option<Pass<'_>> {
        let mut state = lock(&self.0.state);
        if state.closed {
            return None;
        }
        state.passing += 1;
        Some(Pass(self))
    }
}

/// Holds a [`CommitGate`] open.
#[derive(Debug)]
pub(super) struct Pass<'a>(&'a CommitGate);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.0.state);
        state.passing -= 1;
        if state.passing == 0 {
            self.0.0.empty.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn close_waits_for_what_is_passing() {
        let gate = CommitGate::default();
        let done = AtomicBool::new(false);
        let (entered, is_in) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let pass = gate.pass().expect("open");
                entered.send(()).expect("heard");
                // Pass until the gate is closed, so that `close` has something to wait for.
                while gate.pass().is_some() {
                    thread::yield_now();
                }
                done.store(true, Ordering::SeqCst);
                drop(pass);
            });
            is_in.recv().expect("entered");
            assert!(gate.close(Duration::from_secs(60)));
            assert!(done.load(Ordering::SeqCst), "the pass ended first");
        });
    }

    #[test]
    fn close_gives_up_when_its_patience_ends() {
        let gate = CommitGate::default();
        let pass = gate.pass().expect("open");
        assert!(!gate.close(Duration::from_millis(10)));
        assert!(gate.pass().is_none(), "closed all the same");
        drop(pass);
        assert!(gate.close(Duration::ZERO), "again");
    }

    /// In no interleaving does a thread pass after `close` has returned `true`.
    #[test]
    fn nothing_passes_after_close_returned() {
        for _ in 0..200 {
            let gate = CommitGate::default();
            let closed = AtomicBool::new(false);
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        while let Some(pass) = gate.pass() {
                            assert!(!closed.load(Ordering::SeqCst));
                            drop(pass);
                        }
                    });
                }
                assert!(gate.close(Duration::from_secs(60)));
                closed.store(true, Ordering::SeqCst);
            });
        }
    }
}
