//! An attacker who repeats one captured data packet all the time, and does nothing else.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use farwrite::RateControl;
use farwrite::fabric::sim::{Datagram, LinkConfig, Verdict};
use farwrite_collectives::{
    Algorithm, Buffers, ElementType, GroupOptions, Operation, OperationOptions, Reduction,
};

use crate::world::{MS, World, address, options, values};

const RANKS: usize = 3;
const VALUES: usize = 100_000;
const OPERATIONS: usize = 10;
const DELAY: u64 = 5 * MS;
/// Data packets are longer than this, and others shorter.
const PAYLOAD: usize = 1_024;
const SUM: Operation = Operation::AllReduce {
    element: ElementType::F32,
    reduction: Reduction::Sum,
};

/// Runs all-reduces, in each of which a data packet from rank 0 to rank 1 arrives again `copies` times a
/// millisecond. Returns the outputs, the time of all in nanoseconds, and the number of copies.
fn all_reduces(copies: u64) -> (Vec<Vec<u8>>, u64, u64) {
    let link = LinkConfig {
        delay: Duration::from_nanos(DELAY),
        rate_bps: Some(50_000_000),
        ..LinkConfig::default()
    };
    let options = GroupOptions {
        packet_bytes: u32::try_from(PAYLOAD).expect("short"),
        packets_per_segment: 256,
        rate_control: RateControl::default(),
        ..options()
    };
    let ring = OperationOptions {
        algorithm: Algorithm::Ring,
        ..OperationOptions::default()
    };
    let mut world = World::new(1, RANKS, link, &options);
    let captured: Rc<RefCell<Option<(u64, Datagram)>>> = Rc::default();
    let (tap, network) = (Rc::clone(&captured), world.network.clone());
    world.network.set_tap(move |datagram| {
        let ends = [datagram.src.ip(), datagram.dst.ip()];
        if datagram.payload.len() > PAYLOAD && ends == [address(0).ip(), address(1).ip()] {
            let mut captured = tap.borrow_mut();
            captured.get_or_insert_with(|| (network.now_ns(), datagram.clone()));
        }
        Verdict::Pass
    });
    let (mut outputs, mut injected) = (Vec::new(), 0);
    for _ in 0..OPERATIONS {
        // A copy that arrives when its slot has the same generation again would be a forged packet.
        captured.borrow_mut().take();
        for rank in 0..RANKS {
            let buffers = Buffers::in_place(values(ElementType::F32, rank, VALUES));
            world.start(rank, &SUM, ring, buffers);
        }
        let is_over = |world: &World| (0..RANKS).all(|rank| world.finished(rank) > 0);
        while !world.run(MS, is_over) {
            let captured = captured.borrow();
            let Some((left_ns, datagram)) = captured.as_ref() else {
                continue;
            };
            if world.network.now_ns() > left_ns + 2 * DELAY {
                injected += copies;
                (0..copies).for_each(|_| world.network.inject(datagram.clone()));
            }
        }
        for rank in 0..RANKS {
            let ended = world.take(rank).remove(0).expect("the operation succeeds");
            outputs.push(ended.1);
        }
    }
    let time_ns = world.network.now_ns();
    world.network.clear_tap();
    (outputs, time_ns, injected)
}

#[test]
fn one_packet_repeated_all_the_time_delays_no_all_reduce() {
    let (usual, usual_ns, _) = all_reduces(0);
    for copies in [1, 50] {
        let (outputs, time_ns, injected) = all_reduces(copies);
        println!("{time_ns} ns instead of {usual_ns} ns, {injected} copies");
        assert!(outputs == usual, "the copies changed a result");
        assert!(
            time_ns < usual_ns + usual_ns / 8,
            "{copies}: {time_ns} ns instead of {usual_ns} ns, {injected} copies"
        );
    }
}
