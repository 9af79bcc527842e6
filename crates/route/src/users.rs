//! What a route and the queue pairs on it must know of each other.

use crate::{Addresses, Route};

/// The shortest time between two looks at what the queue pairs have sent and verified, in nanoseconds. It is short
/// against the silence after which an end asks for a sign of life (P6.2).
pub const LOOK_NS: u64 = 100_000_000;
/// The shortest time between two calls of [`Route::poll_transmit`] for a route to which nothing happens.
pub const LEAST_WAIT_NS: u64 = 1_000_000;

/// The queue pairs on one route. Their packets show whether the route works, and they move with it.
#[derive(Debug, Default)]
pub struct RouteUsers {
    /// The packets that they had sent and verified at the last look.
    traffic: [u64; 2],
    /// The addresses that they have.
    addresses: Option<Addresses>,
}

impl RouteUsers {
    /// Tells the route about the packets that the queue pairs have sent, and those that they have received and
    /// verified: sums of all since the beginning, modulo 2^64. Returns which of the two have changed since the last
    /// call.
    pub fn note_traffic(
        &mut self,
        route: &mut Route,
        now_ns: u64,
        [sent, verified]: [u64; 2],
    ) -> [bool; 2] {
        let before = core::mem::replace(&mut self.traffic, [sent, verified]);
        let changed = [sent != before[0], verified != before[1]];
        if changed[0] {
            route.note_sent(now_ns);
        }
        if changed[1] {
            route.note_heard(now_ns);
        }
        changed
    }

    /// Returns the addresses that the queue pairs must move to, if those of the route have changed since the last
    /// call.
    pub fn follow(&mut self, route: &Route) -> Option<Addresses> {
        let addresses = route.addresses()?;
        let before = self.addresses.replace(addresses);
        (before != Some(addresses)).then_some(addresses)
    }

    /// The addresses that the queue pairs have.
    #[must_use]
    pub fn addresses(&self) -> Option<Addresses> {
        self.addresses
    }

    /// Moves the queue pairs at the next call of [`RouteUsers::follow`], even to the same addresses: this end
    /// sends from another one, which they must look up.
    pub fn move_again(&mut self) {
        self.addresses = None;
    }
}
