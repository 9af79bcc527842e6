//! DCQCN and Swift on a path of 10 us there and back at 10 Gbit/s, whose queue marks packets.

use std::time::Duration;

use farwrite::{DcqcnOptions, PeerStats, QpOptions, RateControl, SwiftOptions};
use farwrite_link::{LinkConfig, Loss, Ramp};
use farwrite_rng::SplitMix;

use crate::parcel::Order;
use crate::world::{MS, SECOND, World, tag};

pub(crate) const US: u64 = 1_000;
pub(crate) const PACKET: usize = 4096;
pub(crate) const RATE_BPS: u64 = 10_000_000_000;
const QUEUE_BYTES: u64 = 1_000_000;

fn links(loss: Loss) -> [LinkConfig; 2] {
    let back = LinkConfig {
        delay: Duration::from_micros(5),
        ..LinkConfig::default()
    };
    let forth = LinkConfig {
        rate_bps: Some(RATE_BPS),
        queue_bytes: Some(QUEUE_BYTES),
        ecn: Some(Ramp::step(100_000)),
        loss,
        ..back
    };
    [forth, back]
}

/// Controllers of a port with four times the rate of the path.
fn controls() -> [RateControl; 2] {
    let line_bps = 4 * RATE_BPS;
    [
        RateControl::Dcqcn(DcqcnOptions::paper(line_bps)),
        RateControl::Swift(SwiftOptions::new(line_bps, 1, 2)),
    ]
}

fn world(seed: u64, loss: Loss, rate_control: RateControl) -> World {
    let options = QpOptions {
        rate_control,
        ..QpOptions::datacenter()
    };
    let [forth, back] = links(loss);
    World::with_links(seed, forth, back, &options)
}

pub(crate) fn peer_stats(world: &World) -> PeerStats {
    let stats = world.a.endpoint.peer_stats(world.a.qp);
    stats.expect("a connected queue pair")
}

/// Sends `packets` packets. Returns the time, and what is known of the path then.
pub(crate) fn ship(mut world: World, packets: usize) -> (u64, PeerStats) {
    let bytes = SplitMix::new(1).bytes(packets * PACKET);
    let parcel = world.ship(Order::new(bytes, tag("sr-nack")));
    let took_ns = world.deliver(std::slice::from_ref(&parcel), SECOND);
    let stats = peer_stats(&world);
    world.finish(vec![parcel]);
    (took_ns, stats)
}

#[test]
fn a_flow_slows_down_before_the_queue_is_full() {
    for control in controls() {
        let packets = 5_000;
        let (took_ns, stats) = ship(world(1, Loss::None, control), packets);
        let share = (packets * PACKET) as f64 * 8e9 / RATE_BPS as f64 / took_ns as f64;
        println!("{control}: {share:.2} of the path, {stats:?}");
        assert!(share > 0.5, "{control}: {share:.2}");
        assert_eq!(stats.delivered_bytes, stats.reported_bytes, "{control}");
        let is_dcqcn = matches!(control, RateControl::Dcqcn(_));
        assert_eq!(stats.marked_packets > 0, is_dcqcn, "{control}");
    }
}

#[test]
fn losses_are_repaired() {
    for control in controls() {
        for seed in 1..=5 {
            let loss = Loss::Iid { loss_packet: 0.01 };
            let (took_ns, _) = ship(world(seed, loss, control), 250);
            println!("{control}, seed {seed}: {} us", took_ns / US);
            assert!(took_ns < 10 * MS, "{control}, seed {seed}: {took_ns} ns");
        }
    }
}

#[test]
fn a_flow_goes_on_after_an_outage() {
    for control in controls() {
        let mut world = world(1, Loss::None, control);
        let bytes = SplitMix::new(1).bytes(1_000 * PACKET);
        let parcel = world.ship(Order::new(bytes, tag("sr-nack")));
        world.run_for(MS);
        world.set_down(true);
        world.run_for(5 * MS);
        world.set_down(false);
        let took_ns = world.deliver(std::slice::from_ref(&parcel), SECOND);
        println!("{control}: {} us", took_ns / US);
        assert!(took_ns < 100 * MS, "{control}: {took_ns} ns");
        world.finish(vec![parcel]);
    }
}
