//! Frames cross the network without allocations.
#![allow(unsafe_code, reason = "an allocator that counts")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use common::{cable, frame, hosts, network, send};
use farwrite_net::{Options, Pfc, Policy, Shape, SwitchConfig};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged, and that allocator keeps the
// contract. Counting touches only the counter.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System.alloc` with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// This file has one test only: allocations of other tests would be counted too.
#[test]
fn a_hop_allocates_nothing() {
    let shape = Shape::FatTree {
        k: 4,
        host_cable: cable(100, 1000),
        pod_cable: cable(100, 1000),
        core_cable: cable(100, 1000),
    };
    let topology = shape.build().unwrap();
    let ends = hosts(&topology);
    let switch = SwitchConfig {
        pfc: Some(Pfc::new(&[0])),
        routing: Policy::Drill { d: 2, m: 1 },
        ..SwitchConfig::default()
    };
    let mut network = network(&topology, &Options::with_switches(switch), 1);
    for (at, &src) in ends.iter().enumerate() {
        let dst = ends[(at + 5) % ends.len()];
        let frames = (0..3000).map(|psn| frame(src, dst, psn, 1000));
        send(&mut network, 0, frames);
    }
    network.run_until(100_000);
    let before = (
        ALLOCATIONS.load(Ordering::Relaxed),
        network.totals().transmitted,
    );
    network.run_until(200_000);
    let after = (
        ALLOCATIONS.load(Ordering::Relaxed),
        network.totals().transmitted,
    );
    let (allocations, hops) = (after.0 - before.0, after.1 - before.1);
    assert!(hops > 80_000, "{hops}");
    // Two kinds of lists grow occasionally: those of the event queue, and those in which hosts
    // record frames.
    assert!(allocations < 200, "{allocations} for {hops} hops");
    println!("{allocations} allocations for {hops} hops");
}
