//! The heap memory of a queue pair.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use farwrite_sdr::{EndpointId, Place, QpConfig, QpInfo, SdrQp, SendSpec, Terms, Timing};
use farwrite_wire::control::{MessageId, Outcome};

thread_local! {
    static ALLOCATED: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator. It counts the allocated bytes of each thread.
struct Counting;

fn count(bytes: usize, sign: isize) {
    let bytes = isize::try_from(bytes).unwrap_or(isize::MAX);
    ALLOCATED.with(|allocated| allocated.set(allocated.get() + sign * bytes));
}

// SAFETY: every call goes to the system's allocator unchanged, and counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller keeps the contract of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(bytes, 1);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the bytes that this thread has allocated, minus those that it has freed. It may also
/// have freed bytes of other threads.
fn allocated() -> isize {
    ALLOCATED.get()
}

const RTT_NS: u64 = 20_000_000;
const LENGTH: u64 = 64 << 10;
const PARITY_BYTES: u64 = LENGTH / 4;
/// Upper bound of the memory of an idle queue pair.
const MOST_IDLE_BYTES: usize = 3 << 10;

/// Returns two queue pairs that are connected to each other. They are boxed, so that all their
/// bytes count.
fn pair(config: QpConfig) -> [Box<SdrQp>; 2] {
    let address = "192.0.2.1:4791".parse().unwrap();
    let info = QpInfo {
        config,
        control: address,
        channels: vec![address; config.channels.into()],
        control_qpn: 0x11,
        data_qpns: (0..u32::from(config.generations))
            .map(|generation| vec![0x12 + generation])
            .collect(),
        control_key: [7; 32],
        timing: Timing::wide_area(),
        endpoint: EndpointId([9; 16]),
        grants_credit: false,
        answers_reads: true,
        reads_stale: true,
        seals: false,
        requires_sealing: false,
        has_aes: false,
        omits_icrc: false,
    };
    [(), ()].map(|()| {
        let mut qp = Box::new(SdrQp::new(config, Timing::wide_area()).unwrap());
        qp.connect(&info).unwrap();
        qp
    })
}

/// Carries all control messages in both directions, and drops all events.
fn tell([a, b]: &mut [Box<SdrQp>; 2], now_ns: u64) {
    while let Some(control) = a.poll_control(now_ns, RTT_NS) {
        b.handle_control(now_ns, &control).unwrap();
    }
    while let Some(control) = b.poll_control(now_ns, RTT_NS) {
        a.handle_control(now_ns, &control).unwrap();
    }
    for qp in [a, b] {
        while qp.poll_event().is_some() {}
    }
}

fn post(qp: &mut SdrQp, has_parity: bool) {
    let place = qp.next_recv().unwrap();
    let target = |slot, length| Place {
        rkey: 1,
        base: qp.geometry().slot_base(slot),
        length,
    };
    let (data, parity) = (target(place.slot, LENGTH), target(0, PARITY_BYTES));
    qp.post_recv(place, data, Terms::default()).unwrap();
    if has_parity {
        qp.post_parity(place.message.data(), parity).unwrap();
    }
}

/// Lets all packets of a message and of its parity arrive, and ends the receive.
fn receive(sender: &SdrQp, receiver: &mut SdrQp, message: u64) {
    let data = MessageId::new(message);
    for number in [data, data.parity()] {
        for write in sender.writes(number, 0..u32::MAX) {
            let table = receiver.table();
            table.handle_packet(write.generation, write.imm, write.bytes);
        }
    }
    assert!(receiver.received().is_complete(message));
    receiver.complete_recv(message, Outcome::Whole).unwrap();
    // SAFETY: only this thread handles packets.
    unsafe { receiver.release_recv(message) };
}

#[test]
fn a_queue_pair_at_rest_costs_three_kib() {
    for has_parity in [false, true] {
        let default = QpConfig::default();
        let config = QpConfig {
            parity: has_parity,
            // Miri is a thousand times slower.
            slots: if cfg!(miri) { 16 } else { default.slots },
            ..default
        };
        let before = allocated();
        let mut pair = pair(config);
        let per_pair = |bytes: isize| usize::try_from(bytes - before).unwrap() / 2;
        let new_bytes = per_pair(allocated());
        let slots = u64::from(config.slots);
        for qp in &mut pair {
            (0..slots).for_each(|_| post(qp, has_parity));
        }
        tell(&mut pair, 0);
        for qp in &mut pair {
            for _ in 0..slots {
                let spec = SendSpec {
                    length: Some(LENGTH),
                    parity_bytes: if has_parity { PARITY_BYTES } else { 0 },
                    ..SendSpec::default()
                };
                qp.start_send(spec).unwrap();
            }
        }
        tell(&mut pair, 1);
        let busy_bytes = per_pair(allocated());
        let [a, b] = &mut pair;
        for message in 0..slots {
            receive(a, b, message);
            receive(b, a, message);
        }
        let timeout = |pair: &[Box<SdrQp>; 2]| pair.iter().filter_map(|qp| qp.next_timeout()).min();
        let mut now_ns = 2;
        while let Some(timeout_ns) = timeout(&pair) {
            now_ns = now_ns.max(timeout_ns);
            tell(&mut pair, now_ns);
        }
        let idle_bytes = per_pair(allocated());
        // All slots are free again.
        assert_eq!(pair[0].next_recv().unwrap().message, slots);
        assert_eq!(pair[1].start_send(SendSpec::default()), Ok(slots));
        println!(
            "a queue pair with parity {has_parity}: {new_bytes} bytes new, {busy_bytes} with \
             {slots} messages each way, {idle_bytes} at rest"
        );
        assert!(new_bytes <= MOST_IDLE_BYTES, "{new_bytes} bytes new");
        assert!(idle_bytes <= MOST_IDLE_BYTES, "{idle_bytes} bytes at rest");
    }
}
