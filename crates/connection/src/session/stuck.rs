//! Notices that a peer lives and acknowledges nothing of what was sent: the path has begun to drop large packets,
//! while those of the route and control packets still pass.

use farwrite::QueuePair;
use farwrite::routes::{RouteId, RouteShrunk};

use super::{Shared, nanoseconds};
use crate::error::Ended;

/// The shortest time between two looks. They cost something for each queue pair.
const LOOK_NS: u64 = 250_000_000;
/// How long the search for the packet size may take beyond the time limit.
const SEARCH_NS: u64 = 20_000_000_000;

/// Watches the queue pairs of a session.
#[derive(Default)]
pub(super) struct StuckWatch {
    next_ns: u64,
    /// What the search for the packet size has found.
    shrunk: Option<RouteShrunk>,
}

impl StuckWatch {
    /// Looks at `pairs`, whose packets have at most `mtu` bytes of payload. Returns when to look again.
    ///
    /// # Errors
    /// [`Ended::Stuck`].
    pub(super) fn look(
        &mut self,
        shared: &mut Shared<'_>,
        (route, mtu): (RouteId, u32),
        pairs: impl Iterator<Item = QueuePair>,
    ) -> Result<u64, Ended> {
        let now_ns = shared.now_ns;
        if now_ns < self.next_ns {
            return Ok(self.next_ns);
        }
        // A queue pair that is broken has an error of its own.
        let since = pairs.filter_map(|qp| shared.endpoint.unacknowledged_since(qp).ok()?);
        let since_ns = since.min();
        let limit_ns = nanoseconds(shared.options.silence_limit);
        let waited_ns = since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        // The search needs some time before the limit.
        let is_suspect = waited_ns >= limit_ns / 2;
        let moved = since_ns.unwrap_or(0);
        let found = shared.keeper.watch_size(route, moved, !is_suspect, mtu);
        self.shrunk = found.or(self.shrunk.take().filter(|_| is_suspect));
        let is_searched = self.shrunk.is_some() || waited_ns >= limit_ns.saturating_add(SEARCH_NS);
        if waited_ns >= limit_ns && is_searched {
            return Err(Ended::Stuck {
                within: shared.options.silence_limit,
                shrunk: self.shrunk,
            });
        }
        // A message that does not wait yet waits for half of the limit before anything follows from it.
        let pause_ns = if is_suspect { 0 } else { limit_ns / 4 };
        self.next_ns = now_ns + pause_ns.max(LOOK_NS);
        Ok(self.next_ns)
    }
}
