//! Messages arrive whole over all kinds of paths.

use std::time::Duration;

use farwrite_link::{LinkConfig, Loss, Reorder};
use farwrite_rng::SplitMix;

use crate::parcel::Order;
use crate::seeds;
use crate::world::{MS, RTT, SCHEMES, SECOND, World, long_haul, options, tag};

/// Sends 2 MiB with every scheme over this path, once for every seed. Returns the longest time.
fn cross(test: &str, forth: LinkConfig, back: LinkConfig) -> u64 {
    let mut longest_ns = 0;
    for scheme in SCHEMES {
        seeds::each(test, 3, |seed| {
            let mut world = World::with_links(seed, forth, back, &options());
            let bytes = SplitMix::new(seed).bytes(2 << 20);
            let parcel = world.ship(Order::new(bytes, tag(scheme)));
            let took_ns = world.deliver(std::slice::from_ref(&parcel), 600 * SECOND);
            let (stats, tally) = (world.a.stats().sender, world.traffic.tally());
            println!("{scheme}: {} us, {stats:?}, {tally:?}", took_ns / 1000);
            longest_ns = longest_ns.max(took_ns);
            world.finish(vec![parcel]);
        });
    }
    longest_ns
}

fn iid(loss_packet: f64) -> LinkConfig {
    LinkConfig {
        loss: Loss::Iid { loss_packet },
        ..long_haul()
    }
}

#[test]
fn without_loss_a_message_takes_its_injection_and_two_round_trips() {
    for scheme in SCHEMES {
        let mut world = World::new(1, long_haul(), &options());
        let bytes = SplitMix::new(1).bytes(8 << 20);
        let parcel = world.ship(Order::new(bytes, tag(scheme)));
        let took_ns = world.deliver(std::slice::from_ref(&parcel), 10 * SECOND);
        let stats = world.a.stats();
        println!("{scheme}: {} us, {stats:?}", took_ns / 1000);
        // 8 MiB in packets of 4096 + 64 bytes at 9 Gbit/s. The clear-to-send was sent when the
        // receive was posted, so it arrives within half a round trip.
        let injection_ns = 7_580_000;
        assert!(took_ns <= injection_ns + RTT / 2 + RTT + MS, "{took_ns}");
        assert_eq!(stats.sender.retransmitted_chunks, 0, "{scheme}");
        world.finish(vec![parcel]);
    }
}

#[test]
fn loss_up_to_a_fifth() {
    for loss_packet in [0.001, 0.01, 0.05, 0.2] {
        println!("loss {loss_packet}");
        cross("loss_up_to_a_fifth", iid(loss_packet), iid(loss_packet));
    }
}

#[test]
fn loss_of_data_alone_and_of_control_alone() {
    cross("data_alone", iid(0.1), long_haul());
    cross("control_alone", long_haul(), iid(0.3));
}

#[test]
fn bursts_of_loss() {
    // The path is in the bad state a tenth of the time, for 50 packets on average.
    let link = LinkConfig {
        loss: Loss::Markov {
            p_good_to_bad: 0.002,
            p_bad_to_good: 0.02,
            loss_good: 0.0001,
            loss_bad: 0.5,
        },
        ..long_haul()
    };
    cross("bursts_of_loss", link, link);
}

#[test]
fn reordering_within_the_window_costs_nothing() {
    let link = LinkConfig {
        reorder: Reorder {
            probability: 0.05,
            extra_delay: Duration::from_millis(1),
        },
        ..long_haul()
    };
    for scheme in SCHEMES {
        let mut world = World::new(1, link, &options());
        let parcel = world.ship(Order::new(SplitMix::new(1).bytes(2 << 20), tag(scheme)));
        world.deliver(std::slice::from_ref(&parcel), 10 * SECOND);
        assert_eq!(world.a.stats().sender.retransmitted_chunks, 0, "{scheme}");
        world.finish(vec![parcel]);
    }
}

#[test]
fn reordering_beyond_the_window() {
    let link = LinkConfig {
        reorder: Reorder {
            probability: 0.05,
            extra_delay: Duration::from_millis(40),
        },
        ..long_haul()
    };
    cross("reordering_beyond_the_window", link, link);
}

#[test]
fn duplication() {
    let link = LinkConfig {
        duplicate: 0.3,
        ..long_haul()
    };
    cross("duplication", link, link);
}

#[test]
fn corruption_is_loss() {
    let link = LinkConfig {
        corrupt: 0.05,
        ..long_haul()
    };
    cross("corruption_is_loss", link, link);
}

#[test]
fn a_queue_shorter_than_a_burst() {
    let link = LinkConfig {
        rate_bps: Some(2_000_000_000),
        queue_bytes: Some(100_000),
        ..long_haul()
    };
    cross("a_queue_shorter_than_a_burst", link, link);
}
