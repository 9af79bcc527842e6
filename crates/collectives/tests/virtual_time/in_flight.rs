//! The number of segments in flight, which follows the product of rate and round trip.

use std::time::Duration;

use farwrite::RateControl;
use farwrite::fabric::sim::LinkConfig;
use farwrite_collectives::{
    Buffers, ElementType, GroupOptions, Operation, OperationOptions, Reduction,
};

use crate::world::{World, options, values};

/// The round trip of the path.
const RTT: Duration = Duration::from_millis(300);
/// The values of an all-reduce. The first segments in flight carry a tenth of what a rank sends.
const VALUES: usize = 500_000;

/// The duration of the second of two all-reduces between two ranks at this rate.
fn duration(rate_bps: u64, buffer_growth_bytes: u64) -> Duration {
    let link = LinkConfig {
        delay: RTT / 2,
        rate_bps: Some(rate_bps),
        ..LinkConfig::default()
    };
    // 16 segments of 11 KiB last a round trip at 5 Mbit/s.
    let options = GroupOptions {
        packet_bytes: 1408,
        packets_per_segment: 8,
        segments_in_flight: 16,
        most_segments_in_flight: 256,
        buffer_growth_bytes,
        initial_rtt: RTT,
        rate_control: RateControl::Fixed {
            rate_bps: rate_bps * 95 / 100,
        },
        ..options()
    };
    let sum = Operation::AllReduce {
        element: ElementType::F32,
        reduction: Reduction::Sum,
    };
    let mut world = World::new(1, 2, link, &options);
    let mut last = Duration::ZERO;
    for _ in 0..2 {
        for rank in 0..2 {
            let input = Buffers::in_place(values(ElementType::F32, rank, VALUES));
            world.start(rank, &sum, OperationOptions::default(), input);
        }
        world.run_until_over(1);
        let [first, second] = [0, 1].map(|rank| world.take(rank).remove(0).expect("it succeeds"));
        assert!(first.1 == second.1);
        last = first.0.elapsed;
    }
    last
}

#[test]
fn a_far_all_reduce_takes_less_time_at_a_higher_rate_if_there_is_memory() {
    let mbit = |mbit: u64, bytes| duration(mbit * 1_000_000, bytes);
    let (none, some, all) = (0, 1 << 18, 1 << 24);
    // Without more segments, the rate does not matter.
    let (slow, fast) = (mbit(20, none), mbit(40, none));
    assert!(slow < fast + RTT / 2, "{slow:?}, {fast:?}");
    // A rank sends 2 MB in each direction, in two phases that wait for a round trip each: 0.8 s at
    // 20 Mbit/s, and 0.4 s at 40 Mbit/s.
    let (slow_grown, grown) = (mbit(20, all), mbit(40, all));
    assert!(slow_grown < Duration::from_millis(1200), "{slow_grown:?}");
    assert!(grown < Duration::from_millis(800), "{grown:?}");
    let partly = mbit(40, some);
    assert!(grown + RTT < partly && partly + RTT < fast, "{partly:?}");
}
