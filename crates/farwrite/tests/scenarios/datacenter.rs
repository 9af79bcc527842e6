//! The datacenter profile on a path of 10 us there and back at 100 Gbit/s.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use farwrite::fabric::sim::Verdict;
use farwrite::{QpOptions, RateControl, Timing};
use farwrite_link::{LinkConfig, Loss};
use farwrite_rng::SplitMix;

use crate::parcel::Order;
use crate::world::{MS, SCHEMES, SECOND, Way, World, tag};

const US: u64 = 1_000;
const PACKET: usize = 4096;

fn rack() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(5),
        rate_bps: Some(100_000_000_000),
        ..LinkConfig::default()
    }
}

fn rack_options() -> QpOptions {
    QpOptions {
        rate_control: RateControl::Fixed {
            rate_bps: 90_000_000_000,
        },
        burst_bytes: 16 << 10,
        ..QpOptions::datacenter()
    }
}

/// Returns two ends that have measured the round trip.
fn warm(scheme: &str, options: QpOptions) -> World {
    let options = QpOptions {
        expected_scheme: tag(scheme),
        ..options
    };
    let mut world = World::new(1, rack(), &options);
    for _ in 0..5 {
        let parcel = world.ship(Order::new(SplitMix::new(2).bytes(20 * PACKET), tag(scheme)));
        world.deliver(std::slice::from_ref(&parcel), SECOND);
        world.run_for(options.timing.min_ping_ns);
    }
    world
}

/// Returns the number of parity packets of a message of `packets` data packets.
fn parity_of(scheme: &str, packets: u64) -> u64 {
    match scheme {
        "ec-xor:32,8" => packets.div_ceil(32) * packets.min(8),
        "ec-mds:32,8" => packets.div_ceil(32) * 8,
        _ => 0,
    }
}

/// Sends a message of `packets` packets, and drops the last data packet and `behind` packets after
/// it. Returns the time from the departure of the lost data packet until the receiver has the
/// message, in round trips.
fn repaired_after(scheme: &str, packets: u64, behind: u64, options: QpOptions) -> f64 {
    let mut world = warm(scheme, options);
    let [rtt_ns, at_receiver_ns] = [&world.a, &world.b].map(|end| end.stats().rtt_ns);
    for rtt_ns in [rtt_ns, at_receiver_ns] {
        assert!(rtt_ns.abs_diff(10 * US) < 2 * US, "{scheme}: {rtt_ns} ns");
    }
    assert_eq!(world.a.stats().sender.retransmitted_chunks, 0, "{scheme}");

    let lost = packets..=packets + behind;
    let departed_ns = Rc::new(Cell::new(0));
    let (departed, mut seen_packets) = (departed_ns.clone(), 0);
    world.traffic.filter(move |seen| {
        if !seen.is_data() || seen.way != Way::Forth {
            return Verdict::Pass;
        }
        seen_packets += 1;
        if seen_packets == *lost.start() {
            departed.set(seen.now_ns);
        }
        if lost.contains(&seen_packets) {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    });
    let bytes = usize::try_from(packets).expect("few") * PACKET;
    let parcel = world.ship(Order::new(SplitMix::new(3).bytes(bytes), tag(scheme)));
    let limit_ns = world.now_ns() + SECOND;
    let is_whole = world.run_until(limit_ns, |_| parcel.inn.recv.outcome().is_some());
    assert!(is_whole, "{scheme}: the message is not repaired");
    let took_ns = world.now_ns() - departed_ns.get();
    world.deliver(std::slice::from_ref(&parcel), SECOND);
    let repairs = world.a.stats().sender.retransmitted_chunks + world.b.stats().rebuilt_chunks;
    assert!(repairs > 0, "{scheme}: nothing was lost");
    world.finish(vec![parcel]);
    let round_trips =
        Duration::from_nanos(took_ns).as_secs_f64() / Duration::from_nanos(rtt_ns).as_secs_f64();
    println!(
        "{scheme}, {packets} packets, {behind} behind: {round_trips:.2} round trips of {rtt_ns} ns"
    );
    round_trips
}

fn check(scheme: &str, packets: u64, behind: u64) {
    let round_trips = repaired_after(scheme, packets, behind, rack_options());
    assert!(
        round_trips <= 4.0,
        "{scheme}, {packets} packets: repaired after {round_trips:.2} round trips"
    );
}

#[test]
fn a_lost_last_packet_is_repaired_within_four_round_trips() {
    for scheme in SCHEMES {
        for packets in [1, 2, 16, 64] {
            check(scheme, packets, 0);
        }
    }
    // Schemes with parity are left out: the parity of a long message alone exceeds this time on the
    // wire.
    for scheme in ["sr-rto", "sr-nack", "gbn"] {
        check(scheme, 500, 0);
    }
}

#[test]
fn so_is_one_whose_parity_is_lost_too() {
    for scheme in ["ec-xor:32,8", "ec-mds:32,8"] {
        for packets in [1, 2, 16, 64] {
            check(scheme, packets, parity_of(scheme, packets));
        }
    }
}

#[test]
fn the_wide_area_profile_waits_for_operating_systems() {
    let options = QpOptions {
        timing: Timing::wide_area(),
        ..rack_options()
    };
    let round_trips = repaired_after("sr-rto", 16, 0, options);
    // The repair waits 10 ms, which is 1000 round trips of 10 us.
    assert!((990.0..1_100.0).contains(&round_trips), "{round_trips:.2}");
}

#[test]
fn loss_costs_round_trips_and_not_milliseconds() {
    let lossy = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.01 },
        ..rack()
    };
    for scheme in SCHEMES {
        let options = QpOptions {
            expected_scheme: tag(scheme),
            ..rack_options()
        };
        for seed in 1..=10 {
            let mut world = World::new(seed, lossy, &options);
            let parcel = world.ship(Order::new(SplitMix::new(seed).bytes(1 << 20), tag(scheme)));
            let took_ns = world.deliver(std::slice::from_ref(&parcel), SECOND);
            println!("{scheme}, seed {seed}: {} us", took_ns / US);
            assert!(took_ns < MS, "{scheme}, seed {seed}: {took_ns} ns");
            world.finish(vec![parcel]);
        }
    }
}

#[test]
fn lost_control_packets_cost_round_trips_and_not_milliseconds() {
    for scheme in SCHEMES {
        for lost in [Way::Forth, Way::Back] {
            let options = QpOptions {
                expected_scheme: tag(scheme),
                ..rack_options()
            };
            let mut world = World::new(1, rack(), &options);
            world
                .traffic
                .drop_first(2, move |seen| !seen.is_data() && seen.way == lost);
            let parcel = world.ship(Order::new(SplitMix::new(4).bytes(64 * PACKET), tag(scheme)));
            let took_ns = world.deliver(std::slice::from_ref(&parcel), SECOND);
            println!("{scheme}, {lost:?}: {} us", took_ns / US);
            assert!(took_ns < MS / 2, "{scheme}, {lost:?}: {took_ns} ns");
            world.finish(vec![parcel]);
        }
    }
}
