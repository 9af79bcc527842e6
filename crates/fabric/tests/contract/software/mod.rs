//! Tests for software NICs only: which packets they drop, and why.

pub(crate) mod addresses;
pub(crate) mod drops;
pub(crate) mod windows;

use std::net::SocketAddr;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Counters, DropReason, Fabric};
use farwrite_wire::icrc::{Flow, Icrc};
use farwrite_wire::request::WriteImm;

use crate::suite::{PATIENCE, Pair, World, pattern};

/// A world that can send arbitrary bytes.
pub(crate) trait SoftwareWorld: World {
    /// Sends a UDP payload, valid or not, from [`World::stranger`], with these ECN bits.
    fn forge(&mut self, to: SocketAddr, payload: &[u8], tos: u8);
}

/// Makes a test of every function of the suite that applies to software NICs.
macro_rules! software_tests {
    ($world:expr) => {
        mod software {
            $crate::suite::contract_tests! {
                @each software, $world,
                drops: [
                    unknown_queue_pair, stranger, other_port, not_connected, bad_icrc,
                    truncated, empty, trailing_bytes, unsupported_opcodes, too_long, no_receive,
                    wrong_length_in_reth, first_fault_counts, counters_agree,
                ],
                addresses: [
                    a_send_from_elsewhere_is_marked, a_permitted_source_can_change,
                    sealed_for_other_addresses, congestion_bits, times_of_arrival,
                ],
                windows: [
                    out_of_bounds, unknown_key, revoked_key, foreign_key, null_key,
                    no_worker_to_wait_for,
                ],
            }
        }
    };
}
pub(crate) use software_tests;

/// The state of `b` before an action that must not change it.
pub(crate) struct Before {
    counters: Counters,
    target: Vec<u8>,
}

impl<W: World> Pair<'_, W> {
    /// Records the current state of `b`.
    pub(crate) fn before(&self) -> Before {
        Before {
            counters: self.b.counters(),
            target: self.target(),
        }
    }

    /// Waits until `b` has dropped `count` more packets for `reason` than `before`. Checks that
    /// nothing completed, nothing else was dropped, and the target did not change.
    #[track_caller]
    pub(crate) fn all_dropped(&mut self, before: &Before, reason: DropReason, count: u64) {
        let mut completions = Vec::new();
        let mut want = before.counters.dropped;
        want[reason as usize] += count;
        for _ in 0..PATIENCE {
            if self.b.counters().dropped(reason) >= want[reason as usize] {
                break;
            }
            self.world.step();
            self.b.poll(&mut completions).unwrap();
        }
        let counters = self.b.counters();
        assert_eq!(counters.dropped, want, "of {:?}", DropReason::ALL);
        assert_eq!(counters.received_packets, before.counters.received_packets);
        assert_eq!(completions, []);
        assert!(
            self.target() == before.target,
            "a packet dropped as {reason:?} changed memory"
        );
    }
}

/// Waits until a fabric has dropped one packet for `reason`, and checks that nothing completes.
#[track_caller]
fn one_dropped<W: World>(world: &mut W, end: &mut Adapter<W::Fabric>, reason: DropReason) {
    let mut completions = Vec::new();
    for _ in 0..PATIENCE {
        if end.counters().dropped(reason) == 1 {
            assert_eq!(completions, []);
            return;
        }
        world.step();
        end.poll(&mut completions).unwrap();
    }
    panic!("{:?}", end.counters());
}

/// Returns a write after `change`, with a valid ICRC.
fn forged(
    from: SocketAddr,
    to: SocketAddr,
    write: WriteImm,
    change: impl Fn(&mut Vec<u8>),
) -> Vec<u8> {
    let mut bytes = write.header().to_vec();
    bytes.extend(pattern(write.payload_bytes as usize));
    change(&mut bytes);
    sealed(from, to, bytes)
}

/// Appends a valid ICRC to the bytes of a packet.
fn sealed(from: SocketAddr, to: SocketAddr, mut bytes: Vec<u8>) -> Vec<u8> {
    let flow = Flow::new(from, to).unwrap();
    let icrc = Icrc::new(&flow, 0, bytes.len() + 4).update(&bytes).finish();
    bytes.extend(icrc.to_le_bytes());
    bytes
}
