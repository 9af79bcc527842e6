//! Notices that packets of full size no longer arrive.

use std::net::SocketAddr;

use farwrite_route::{Route, SizeSearch};

use super::RouteShrunk;
use super::sizes::{candidates, datagram_bytes, payload_bytes};

/// If neither end makes a step for this long, the packet size is tested. It is longer than the time
/// between two reports of steps, which programs may send once a second.
const STALLED_NS: u64 = 3_000_000_000;
/// The smallest MTU that is tested.
const LEAST_MTU: u32 = 256;

/// Tests the packet size of one route when nothing moves.
#[derive(Debug)]
pub(super) struct SizeWatch {
    moved: u64,
    moved_ns: u64,
    /// Tests since the last movement, with the one in progress.
    tests: u8,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Nothing,
    /// A test has begun: the route has probes to send.
    Tests,
    Shrunk(RouteShrunk),
}

impl SizeWatch {
    pub(super) fn new(now_ns: u64) -> Self {
        Self {
            moved: 0,
            moved_ns: now_ns,
            tests: 0,
        }
    }

    /// Begins a test if `moved` has not changed for some time, and ends it when its result is known. A
    /// second test confirms that the path carries less, because the change cannot be undone.
    pub(super) fn look(
        &mut self,
        route: &mut Route,
        (now_ns, moved): (u64, u64),
        is_held_up: bool,
        mtu: u32,
    ) -> Finding {
        if is_held_up || std::mem::replace(&mut self.moved, moved) != moved {
            self.moved_ns = now_ns;
            self.tests = 0;
        }
        let Some(addresses) = route.addresses() else {
            return Finding::Nothing;
        };
        if now_ns.saturating_sub(self.moved_ns) < STALLED_NS {
            return Finding::Nothing;
        }
        if self.tests == 0 {
            return self.test(route, addresses.peer, mtu);
        }
        let Some(carries) = route.largest().map(payload_bytes) else {
            return Finding::Nothing;
        };
        if carries < mtu && self.tests < 2 {
            return self.test(route, addresses.peer, mtu);
        }
        // If the size is not the cause, test again after the same time without movement.
        self.moved_ns = now_ns;
        self.tests = 0;
        if carries >= mtu {
            return Finding::Nothing;
        }
        Finding::Shrunk(RouteShrunk {
            peer: addresses.peer,
            mtu,
            carries,
        })
    }

    /// Starts a search for the largest packet that the path carries.
    fn test(&mut self, route: &mut Route, peer: SocketAddr, mtu: u32) -> Finding {
        let smaller = candidates(peer, LEAST_MTU, None).into_iter();
        let full = datagram_bytes(mtu);
        let sizes = smaller.filter(|bytes| *bytes < full).chain([full]);
        route.search(SizeSearch::new(sizes));
        self.tests += 1;
        Finding::Tests
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use farwrite_route::{Config, Role, Transmit};
    use farwrite_wire::Secret;

    use super::*;

    const MS: u64 = 1_000_000;
    const MTU: u32 = 8936;
    const DELAY_MS: u64 = 15;

    /// One end of a path that loses packets at random.
    fn end(role: Role) -> Route {
        let [near, far] = [1, 2].map(|host| SocketAddr::from(([127, 0, 0, host], 4792)));
        let (local, peer, send_key, recv_key) = match role {
            Role::Initiator => (near, far, [1; 32], [2; 32]),
            Role::Responder => (far, near, [2; 32], [1; 32]),
        };
        let config = Config {
            role,
            number: 0,
            send_key: Secret::from(send_key),
            send_index: 0,
            recv_key: Secret::from(recv_key),
            recv_index: 0,
            local,
            peer,
            search: None,
        };
        Route::new(config, 0)
    }

    /// Watches a path on which nothing moves, and which loses 40 % of the packets in each direction.
    /// It carries `carries` bytes of UDP payload, and the machines send `sends`. Returns when the watch has found that it
    /// shrank, the MTU, and whether the path loses larger packets.
    fn found(seed: u64, [sends, carries]: [usize; 2], seconds: u64) -> Option<(u64, u32, bool)> {
        let mut state = seed;
        let mut is_lost = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state >> 57 >= 77
        };
        let mut ends = [Role::Initiator, Role::Responder].map(end);
        let mut watch = SizeWatch::new(0);
        let mut under_way = VecDeque::<(u64, usize, Transmit)>::new();
        for ms in 0..seconds * 1000 {
            while let Some((_, to, out)) = under_way.pop_front_if(|(due, ..)| *due <= ms) {
                let src = SocketAddr::new(out.from, 4792);
                // The other end forgets probes that it has given up.
                let _ = ends[to].receive(ms * MS, src, out.to, &out.bytes);
            }
            if let Finding::Shrunk(shrunk) = watch.look(&mut ends[0], (ms * MS, 7), false, MTU) {
                return Some((ms, shrunk.carries, ends[0].is_narrow()));
            }
            for (from, end) in ends.iter_mut().enumerate() {
                while let Some(out) = end.poll_transmit(ms * MS) {
                    if out.bytes.len() > sends {
                        end.too_large(out.bytes.len());
                    } else if !is_lost() && out.bytes.len() <= carries {
                        under_way.push_back((ms + DELAY_MS, 1 - from, out));
                    }
                }
            }
        }
        None
    }

    #[test]
    fn much_loss_is_not_taken_for_a_path_that_shrank() {
        for seed in 0..20 {
            // About twenty tests.
            assert_eq!(found(seed, [9000, 9000], 100), None, "{seed}");
            for (sizes, want) in [([9000, 1472], true), ([1472, 9000], false)] {
                let (at_ms, carries, is_narrow) = found(seed, sizes, 100).expect("it shrank");
                assert!((1356..=1436).contains(&carries), "{seed}: {carries}");
                assert!(at_ms < 20_000, "{seed}: after {at_ms} ms");
                assert_eq!(is_narrow, want, "{seed}: {sizes:?}");
            }
        }
    }
}
