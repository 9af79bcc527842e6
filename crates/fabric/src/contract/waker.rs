//! Ending a wait from another thread.

use std::fmt;
use std::sync::Arc;

/// Ends a wait of its owner, from any thread. The owner is the control object of a fabric
/// ([`RealTime::waker`]) or a receive worker ([`RealTimeRx::waker`]). Clones have the same owner.
///
/// [`RealTime::waker`]: super::RealTime::waker
/// [`RealTimeRx::waker`]: super::RealTimeRx::waker
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    /// A waker that calls `wake`. The function must behave as [`Waker::wake`] describes.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }

    /// Ends the owner's wait at once. If the owner does not wait now, its next wait ends at once.
    /// Several wakes between two waits count as one. After the wait, the owner sees everything that
    /// this thread did before the wake.
    pub fn wake(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}
