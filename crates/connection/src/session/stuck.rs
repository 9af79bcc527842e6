//! Notices that a peer lives and acknowledges nothing of what was sent: the path has begun to drop large packets,
//! while those of the route and control packets still pass.

use farwrite::QueuePair;
use farwrite::routes::{RouteId, RouteShrunk};

use super::{Shared, nanoseconds};
use crate::error::Ended;

/// The shortest time between two looks. They cost something for each queue pair.
const LOOK_NS: u64 = 250_000_000;
/// Chunks that wait for so long make the packet size suspect, if the connection can go on with smaller packets. If it
/// cannot, so does half of the time limit. The route then waits for 3 s (P6), so the search begins after 4 s.
const SUSPECT_NS: u64 = 1_000_000_000;
/// The longest time between two looks at queue pairs that wait for nothing.
const IDLE_NS: u64 = 15_000_000_000;
/// How long the search for the packet size may take beyond the time limit.
const SEARCH_NS: u64 = 20_000_000_000;

/// Watches the queue pairs of a session.
#[derive(Default)]
pub(super) struct StuckWatch {
    next_ns: u64,
    /// What the search for the packet size has found.
    pub(super) shrunk: Option<RouteShrunk>,
}

impl StuckWatch {
    /// Looks at `pairs`, whose packets have at most `mtu` bytes of payload. Returns when to look again, and what the
    /// search for the packet size has found in this call. If the connection `can_go_on` with smaller packets, the search
    /// begins soon.
    ///
    /// # Errors
    /// [`Ended::Stuck`].
    pub(super) fn look(
        &mut self,
        shared: &mut Shared<'_>,
        (route, mtu, can_go_on): (RouteId, u32, bool),
        pairs: impl Iterator<Item = QueuePair>,
    ) -> Result<(u64, Option<RouteShrunk>), Ended> {
        let now_ns = shared.now_ns;
        if now_ns < self.next_ns {
            return Ok((self.next_ns, None));
        }
        // A queue pair that is broken has an error of its own.
        let since = pairs.filter_map(|qp| shared.endpoint.unacknowledged_since(qp).ok()?);
        let since_ns = since.min();
        let limit_ns = nanoseconds(shared.options.silence_limit);
        let waited_ns = since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        // The search needs some time before the limit.
        let least_ns = if can_go_on { SUSPECT_NS } else { u64::MAX };
        let suspect_ns = least_ns.min(limit_ns / 2);
        let is_suspect = waited_ns >= suspect_ns;
        let moved = since_ns.unwrap_or(0);
        let found = shared.keeper.watch_size(route, moved, !is_suspect, mtu);
        self.shrunk = found.or(self.shrunk.take().filter(|_| is_suspect));
        if found.is_some() {
            // What can go on does so before the next look.
            self.next_ns = now_ns + LOOK_NS;
            return Ok((self.next_ns, found));
        }
        let is_searched = self.shrunk.is_some() || waited_ns >= limit_ns.saturating_add(SEARCH_NS);
        if waited_ns >= limit_ns && is_searched {
            return Err(Ended::Stuck {
                within: shared.options.silence_limit,
                shrunk: self.shrunk,
            });
        }
        let pause_ns = match since_ns {
            _ if is_suspect => 0,
            Some(_) => suspect_ns - waited_ns,
            // An idle connection costs little.
            None => IDLE_NS.min(limit_ns / 4),
        };
        self.next_ns = now_ns + pause_ns.max(LOOK_NS);
        Ok((self.next_ns, None))
    }
}
