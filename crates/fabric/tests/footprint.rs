//! Memory of idle queue pairs after use.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, Lkey, QpAttr, Qpn, Region, RemoteQp};
use farwrite_fabric::sim::{SimFabric, SimNetwork};

/// Upper bound of the fabric's memory for an idle SDR queue pair with default options, in bytes.
/// All allocated bytes count, whether they were touched or not.
const MOST_BYTES: usize = 15 << 8;
/// An SDR queue pair has a queue pair and a window set for each generation, and a queue pair for
/// control.
const GENERATIONS: usize = 4;
const SLOTS: u32 = 1024;
const SLOT_BYTES: u64 = 1 << 30;

/// Allocated bytes.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with a counter.
struct Counting;

// SAFETY: all calls go to the system's allocator. The default methods call these two.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Makes the fabric's part of an SDR queue pair, and uses every slot once.
fn make_and_use(end: &mut Adapter<SimFabric>, lkey: Lkey) {
    let addr = "10.0.0.2:5000".parse().unwrap();
    let mut qpns = Vec::new();
    for recv_buffers in [0, 0, 0, 0, SLOTS] {
        let attr = QpAttr {
            mtu: 4096,
            port: 0,
            context: 0,
            recv_buffers,
        };
        let qpn = end.create_qp(attr).unwrap();
        let remote = RemoteQp { addr, qpn: Qpn(77) };
        end.connect_qp(qpn, remote).unwrap();
        qpns.push(qpn);
    }
    for &qpn in &qpns[..GENERATIONS] {
        let set = end.create_windows(&[qpn], SLOTS, SLOT_BYTES).unwrap();
        let open = |slot| end.open_window(set, slot, lkey, 0, 8).unwrap().0;
        let windows: Vec<_> = (0..SLOTS).map(open).collect();
        for window in windows {
            end.close_window(window).unwrap();
        }
        while end.poll_closed().is_some() {}
    }
    // The port applies its updates.
    end.poll(&mut Vec::new()).unwrap();
    end.end_batch();
    end.poll_departed(&mut Vec::new()).unwrap();
}

#[test]
fn an_idle_queue_pair_costs_little() {
    let addr = "10.0.0.1:5000".parse().unwrap();
    let mut end = Adapter::new(SimNetwork::new(1).endpoint(addr, 1).unwrap()).unwrap();
    let lkey = end.register(Region::owned(vec![0; 8])).unwrap();
    make_and_use(&mut end, lkey);
    let before = ALLOCATED.load(Ordering::Relaxed);
    // Tables double when they are full, so some of these counts are among the worst cases.
    let mut worst = 0;
    for count in 1..=400 {
        make_and_use(&mut end, lkey);
        let bytes = (ALLOCATED.load(Ordering::Relaxed) - before) / count;
        if count >= 50 {
            worst = worst.max(bytes);
        }
        if [50, 100, 200, 400].contains(&count) {
            println!("{count} queue pairs of SDR: {bytes} bytes each");
        }
    }
    println!("at worst {worst} bytes each");
    assert!(worst <= MOST_BYTES, "{worst} bytes");
}
