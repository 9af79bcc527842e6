//! Paths on which packets overtake each other, and paths on which they keep their order.

use std::time::Duration;

use farwrite::{QpOptions, RateControl};
use farwrite_link::{LinkConfig, Loss, Reorder};
use farwrite_rng::SplitMix;

use crate::flows::{Flows, MESSAGE, adaptive};
use crate::parcel::Order;
use crate::world::{MS, RTT, SCHEMES, SECOND, World, long_haul, options, tag};

const RATE_BPS: u64 = 50_000_000;
const NEVER: Reorder = Reorder {
    probability: 0.0,
    extra_delay: Duration::ZERO,
};

fn reorder(probability: f64, ms: u64) -> Reorder {
    Reorder {
        probability,
        extra_delay: Duration::from_millis(ms),
    }
}

/// What sending 20 MiB costs.
#[derive(Debug)]
struct Cost {
    took_ns: u64,
    repeated_chunks: u64,
    lost_chunks: u64,
}

/// Sends over a path of 50 Mbit/s that was not known before.
fn transfer(rtt: Duration, reorder: Reorder) -> Cost {
    let bdp_bytes = u128::from(RATE_BPS / 8) * rtt.as_millis() / 1000;
    let forth = LinkConfig {
        delay: rtt / 2,
        rate_bps: Some(RATE_BPS),
        queue_bytes: Some(u64::try_from(bdp_bytes).expect("few")),
        reorder,
        ..LinkConfig::default()
    };
    let mut flows = Flows::new([forth, forth]);
    flows.add(1, adaptive());
    let sends: Vec<_> = (0..5).map(|_| flows.flows[0].send(0, MESSAGE)).collect();
    let is_done = |_: &mut Flows| sends.iter().all(|send| send.outcome().is_some());
    assert!(flows.run_until(60 * SECOND, is_done));
    let flow = &flows.flows[0];
    let [qa, qb] = flow.pairs[0];
    let sender = flow.tx.qp_stats(qa).expect("own").sender;
    let loss = flow.rx.qp_stats(qb).expect("own").receive_loss;
    Cost {
        took_ns: flows.now_ns(),
        repeated_chunks: sender.retransmitted_chunks,
        lost_chunks: loss.lost_chunks(),
    }
}

/// With a window that does not follow, these took a third and a fifth longer, and 260 and 93 chunks
/// were repeated.
#[test]
fn late_packets_cost_few_repeats_and_little_time() {
    for (rtt_ms, late) in [(20, reorder(0.05, 8)), (50, reorder(0.02, 10))] {
        let rtt = Duration::from_millis(rtt_ms);
        let (in_order, found) = (transfer(rtt, NEVER), transfer(rtt, late));
        println!("{rtt_ms} ms: {in_order:?} {found:?}");
        assert!(found.took_ns < in_order.took_ns * 11 / 10, "{found:?}");
        assert!(found.repeated_chunks < 10, "{found:?}");
        assert!(found.lost_chunks < 10, "{found:?}");
        assert_eq!((in_order.repeated_chunks, in_order.lost_chunks), (0, 0));
    }
}

fn slow() -> QpOptions {
    QpOptions {
        rate_control: RateControl::Fixed {
            rate_bps: 200_000_000,
        },
        burst_bytes: 8192,
        ..options()
    }
}

/// Packets are later than an eighth of the round trip, but not as late as a repair would be. Of
/// go-back-N, a receiver cannot tell late packets from repeats, because it repeats so much.
#[test]
fn schemes_wait_for_late_packets() {
    for scheme in SCHEMES.into_iter().filter(|scheme| *scheme != "gbn") {
        let forth = LinkConfig {
            reorder: reorder(0.05, 8),
            ..long_haul()
        };
        let options = QpOptions {
            expected_scheme: tag(scheme),
            ..slow()
        };
        let mut world = World::with_links(1, forth, long_haul(), &options);
        let parcels: Vec<_> = (0..4)
            .map(|_| world.ship(Order::new(SplitMix::new(1).bytes(4 << 20), tag(scheme))))
            .collect();
        world.deliver(&parcels, 60 * SECOND);
        world.run_for(SECOND);
        let (sender, receiver) = (world.a.stats(), world.b.stats());
        let again = sender.sender.retransmitted_chunks;
        let lost = receiver.receive_loss;
        println!("{scheme}: {again} again, {lost:?}");
        assert!(again < 10, "{scheme}: {again}");
        // What counted as lost is taken back, except before the round trip is measured.
        assert!(lost.lost_chunks() < 5, "{scheme} {lost:?}");
        assert_eq!(sender.send_loss, lost, "{scheme}");
        let window_ns = receiver.reordering_window_ns;
        assert!((8 * MS..RTT).contains(&window_ns), "{scheme} {window_ns}");
        // Nothing is late on the way back.
        assert_eq!(sender.reordering_window_ns, sender.rtt_ns / 8, "{scheme}");
    }
}

/// Repairs and parity never look like late packets: with losses of all kinds, pauses of the sender,
/// and queues that come and go.
#[test]
fn the_window_stays_where_packets_keep_their_order() {
    let bursts = Loss::Markov {
        p_good_to_bad: 0.005,
        p_bad_to_good: 0.05,
        loss_good: 0.0,
        loss_bad: 1.0,
    };
    let iid = Loss::Iid { loss_packet: 0.1 };
    let controls = [slow().rate_control, RateControl::default()];
    for (seed, scheme) in (1..).zip(SCHEMES) {
        for (loss, control) in [iid, bursts].into_iter().zip(controls) {
            let link = LinkConfig {
                rate_bps: Some(250_000_000),
                queue_bytes: Some(400_000),
                loss,
                ..long_haul()
            };
            let options = QpOptions {
                rate_control: control,
                expected_scheme: tag(scheme),
                ..slow()
            };
            let mut world = World::new(seed, link, &options);
            let mut rng = SplitMix::new(seed);
            let mut late = 0;
            for _ in 0..60 {
                let bytes = 1 + rng.below(300_000);
                let bytes = vec![0; usize::try_from(bytes).expect("few")];
                world.ship(Order::new(bytes, tag(scheme)));
                let limit_ns = world.now_ns() + rng.below(2 * RTT);
                world.run_until(limit_ns, |world| {
                    let stats = world.b.stats();
                    late += u64::from(stats.reordering_window_ns != stats.rtt_ns / 8);
                    false
                });
            }
            assert!(world.b.stats().receive_loss.lost_chunks() > 50, "{scheme}");
            assert_eq!(late, 0, "{scheme} {loss:?}");
        }
    }
}
