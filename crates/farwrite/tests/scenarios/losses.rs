//! Compares the losses that both ends report with the actual losses of the path.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use farwrite::fabric::sim::Verdict;
use farwrite::{ChunkLoss, QpOptions, RateControl, SchemeTag};
use farwrite_link::{LinkConfig, Loss, Reorder};
use farwrite_rng::SplitMix;
use farwrite_wire::packet::Packet;

use crate::parcel::Order;
use crate::world::{SCHEMES, SECOND, Way, World, addr, long_haul, options, tag};

const MESSAGES: usize = 4;
const BYTES: usize = 4 << 20;
const CHUNKS: u64 = (MESSAGES * BYTES / 4096) as u64;

fn slow() -> QpOptions {
    QpOptions {
        rate_control: RateControl::Fixed {
            rate_bps: 200_000_000,
        },
        burst_bytes: 8192,
        ..options()
    }
}

/// Bursts of four losses on average.
fn bursts(loss_packet: f64) -> Loss {
    Loss::Markov {
        p_good_to_bad: loss_packet / (1.0 - loss_packet) / 4.0,
        p_bad_to_good: 0.25,
        loss_good: 0.0,
        loss_bad: 1.0,
    }
}

/// Sends messages one after the other. Returns the loss that both ends report once the sender knows
/// that all messages arrived.
fn deliver(world: &mut World, scheme: &str) -> ChunkLoss {
    let bytes = || SplitMix::new(1).bytes(BYTES);
    let parcels: Vec<_> = (0..MESSAGES)
        .map(|_| world.ship(Order::new(bytes(), tag(scheme))))
        .collect();
    world.deliver(&parcels, 600 * SECOND);
    let (sender, receiver) = (world.a.stats(), world.b.stats());
    assert_eq!(sender.send_loss, receiver.receive_loss, "{scheme}");
    // Nothing was sent in the other direction.
    assert_eq!(sender.receive_loss, ChunkLoss::default(), "{scheme}");
    assert_eq!(receiver.send_loss, ChunkLoss::default(), "{scheme}");
    receiver.receive_loss
}

#[test]
fn both_ends_find_the_loss_of_the_link() {
    for scheme in SCHEMES {
        for (loss, loss_packet, burst) in [
            (Loss::Iid { loss_packet: 0.03 }, 0.03, 1.0 / 0.97),
            (bursts(0.05), 0.05, 4.0),
        ] {
            let forth = LinkConfig {
                loss,
                ..long_haul()
            };
            let mut world = World::with_links(5, forth, long_haul(), &slow());
            let found = deliver(&mut world, scheme);
            // Repairs and control packets are lost too.
            let link = world.network.link_counters(addr(1).ip(), addr(2).ip());
            assert!(found.lost_chunks() < link.expect("a link").lost, "{scheme}");
            assert!(
                found.judged_chunks() > CHUNKS * 9 / 10,
                "{scheme} {found:?}"
            );
            // The tolerances cover nearly all draws of a link of this kind.
            let near = |got: Option<f64>, want: f64, share: f64| {
                let got = got.expect("losses");
                assert!(
                    (got / want - 1.0).abs() < share,
                    "{scheme} {got} for {want}"
                );
            };
            near(found.loss_chunk(), loss_packet, 0.3);
            near(found.mean_burst_chunks(), burst, 0.25);
            let markov = found.markov().expect("losses");
            near(Some(markov.p_bad_to_good), 1.0 / burst, 0.25);
        }
    }
}

#[test]
fn a_clean_path_has_no_loss() {
    for scheme in SCHEMES {
        let found = deliver(&mut World::new(1, long_haul(), &slow()), scheme);
        // A coded message can end before a later chunk passes the last of its parity.
        let least = if scheme.starts_with("ec") {
            CHUNKS * 3 / 4
        } else {
            CHUNKS - 1
        };
        assert!(found.judged_chunks() >= least, "{scheme} {found:?}");
        assert_eq!(found.lost_chunks(), 0, "{scheme} {found:?}");
    }
}

#[test]
fn a_path_that_reorders_has_no_loss() {
    for scheme in SCHEMES {
        let forth = LinkConfig {
            reorder: Reorder {
                probability: 0.2,
                extra_delay: Duration::from_millis(2),
            },
            ..long_haul()
        };
        let mut world = World::with_links(1, forth, long_haul(), &slow());
        let parcels: Vec<_> = (0..MESSAGES)
            .map(|_| world.ship(Order::new(SplitMix::new(1).bytes(BYTES), tag(scheme))))
            .collect();
        world.deliver(&parcels, 600 * SECOND);
        world.run_for(SECOND);
        let found = world.b.stats().receive_loss;
        assert!(found.judged_chunks() > CHUNKS / 2, "{scheme} {found:?}");
        assert_eq!(found.lost_chunks(), 0, "{scheme} {found:?}");
        // The sender also gets the corrections.
        assert_eq!(world.a.stats().send_loss, found, "{scheme}");
    }
}

/// Drops data packets, and records for each, in order, whether its first copy was dropped.
fn drop_and_keep(world: &World, seed: u64, loss_packet: f64, burst: f64) -> Rc<RefCell<Vec<bool>>> {
    let truth = Rc::new(RefCell::new(Vec::new()));
    let kept = Rc::clone(&truth);
    let mut rng = SplitMix::new(seed);
    let mut sent = HashSet::new();
    let mut bad = false;
    let leave = 1.0 / burst;
    let enter = leave * loss_packet / (1.0 - loss_packet);
    world.traffic.filter(move |seen| {
        if !(seen.is_data() && seen.way == Way::Forth) {
            return Verdict::Pass;
        }
        bad = rng.unit() < if bad { 1.0 - leave } else { enter };
        let packet = Packet::parse(&seen.datagram.payload).expect("whole packets");
        if sent.insert((packet.bth().dest_qp, packet.imm())) {
            kept.borrow_mut().push(bad);
        }
        if bad { Verdict::Drop } else { Verdict::Pass }
    });
    truth
}

/// Returns the numbers of judged and lost chunks, the number of bursts, and the longest burst.
fn numbers(lost: &[bool]) -> [u64; 4] {
    let runs = lost.chunk_by(|a, b| a == b).filter(|run| run[0]);
    let runs: Vec<u64> = runs.map(|run| run.len() as u64).collect();
    let longest = runs.iter().max().copied().unwrap_or(0);
    [
        lost.len() as u64,
        runs.iter().sum(),
        runs.len() as u64,
        longest,
    ]
}

#[test]
fn first_sendings_alone_are_counted() {
    for scheme in SCHEMES {
        for (seed, loss_packet, burst) in [(1, 0.01, 1.0), (2, 0.03, 3.0), (3, 0.2, 1.25)] {
            let mut world = World::new(1, long_haul(), &slow());
            let truth = drop_and_keep(&world, seed, loss_packet, burst);
            let found = deliver(&mut world, scheme).counts();
            let found = [
                found.judged_chunks,
                found.lost_chunks,
                found.bursts,
                found.longest_burst_chunks,
            ];
            // No chunk follows the last one, so it is not judged.
            let truth = truth.borrow();
            let truth = numbers(&truth[..truth.len() - 1]);
            if scheme.starts_with("sr") {
                assert_eq!(found, truth, "{scheme} {loss_packet}");
            }
            if scheme.starts_with("ec") {
                // A message can end before a later chunk passes the last of its parity.
                let share = |[judged, lost, ..]: [u64; 4]| lost as f64 / judged as f64;
                let error = share(found) / share(truth) - 1.0;
                assert!(error.abs() < 0.2, "{scheme} {found:?} of {truth:?}");
                assert!(found[0] > truth[0] * 4 / 5, "{scheme} {found:?}");
                continue;
            }
            // The other schemes leave some chunks unjudged, at pauses and when they end early.
            for (found, truth) in found.into_iter().zip(truth) {
                let most = truth - truth / 8..=truth;
                let rare = truth < 20;
                assert!(rare || most.contains(&found), "{scheme} {found} of {truth}");
            }
        }
    }
}

#[test]
fn each_direction_is_told_of_by_itself() {
    let loss = |loss_packet| LinkConfig {
        loss: Loss::Iid { loss_packet },
        ..long_haul()
    };
    let mut world = World::with_links(3, loss(0.02), loss(0.1), &slow());
    let parcels = [Way::Forth, Way::Back].map(|way| {
        let order = Order::new(SplitMix::new(1).bytes(BYTES), tag("sr-nack"));
        world.ship(Order { way, ..order })
    });
    world.deliver(&parcels, 60 * SECOND);
    world.run_for(SECOND);
    let (a, b) = (world.a.stats(), world.b.stats());
    assert_eq!(a.send_loss, b.receive_loss);
    assert_eq!(b.send_loss, a.receive_loss);
    let shares = [b, a].map(|end| end.receive_loss.loss_chunk().expect("chunks"));
    assert!((0.01..0.03).contains(&shares[0]), "{shares:?}");
    assert!((0.07..0.13).contains(&shares[1]), "{shares:?}");
}

/// Go-back-N sends runs in which some chunks are new and some are repeats.
#[test]
fn a_send_is_injected_when_each_chunk_has_left_once() {
    let link = LinkConfig {
        delay: Duration::from_micros(20),
        loss: Loss::Iid { loss_packet: 0.01 },
        ..long_haul()
    };
    for scheme in ["gbn", "sr-nack", "ec-xor:8,2"] {
        for seed in 1..4 {
            let mut world = World::new(seed, link, &options());
            let order = Order::new(SplitMix::new(1).bytes(BYTES), tag(scheme));
            let parcel = world.ship(order);
            world.deliver(std::slice::from_ref(&parcel), 60 * SECOND);
            assert!(parcel.out.send.is_injected(), "{scheme}, seed {seed}");
        }
    }
}

#[test]
fn what_has_no_scheme_is_not_judged() {
    let mut world = World::new(1, long_haul(), &slow());
    let parcel = world.ship(Order::new(vec![1; BYTES], SchemeTag::NONE));
    world.run_for(SECOND);
    assert!(parcel.out.send.is_injected());
    assert_eq!(world.b.stats().receive_loss, ChunkLoss::default());
}
