//! An attacker who has captured one data packet, and repeats it all the time.
//!
//! Nothing else happens to the packets of the two ends. The receiver cannot tell a repeat of the
//! attacker from one of the sender or of the network.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use farwrite::fabric::sim::{Datagram, Verdict};
use farwrite::{PeerStats, QpOptions, QpStats, RateControl, Sealing, SwiftOptions};
use farwrite_link::{LinkConfig, Loss};
use farwrite_rng::SplitMix;
use farwrite_wire::control::Control;

use crate::parcel::Order;
use crate::world::{MS, SECOND, Way, World, options, tag};

const BYTES: usize = 1 << 20;
const MESSAGES: u64 = 7;
const DELAY: u64 = 20 * MS;
const RATE_BPS: u64 = 16_000_000;
/// Bits of the TOS byte: congestion experienced.
const CE: u8 = 3;

fn path(loss: f64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_nanos(DELAY),
        rate_bps: Some(RATE_BPS),
        queue_bytes: Some(80_000),
        loss: Loss::Iid { loss_packet: loss },
        ..LinkConfig::default()
    }
}

fn with(rate_control: RateControl) -> QpOptions {
    QpOptions {
        rate_control,
        ..options()
    }
}

/// What the attacker does.
#[derive(Clone, Copy, Debug, Default)]
struct Attack {
    /// Copies that arrive each millisecond.
    copies: u64,
    /// Whether they carry a congestion mark.
    marked: bool,
}

/// A transfer that has ended.
struct Done {
    /// When the last message ended.
    at_ns: u64,
    copies: u64,
    sender: PeerStats,
    receiver: QpStats,
}

/// Sends messages under an attack. In the span `cut`, the path loses all data packets.
fn transfer(
    scheme: &str,
    options: &QpOptions,
    attack: Attack,
    loss: f64,
    cut: std::ops::Range<u64>,
) -> Done {
    let mut world = World::with_links(3, path(loss), path(0.0), options);
    let captured: Rc<RefCell<Option<(u64, Datagram)>>> = Rc::default();
    let out = Rc::clone(&captured);
    world.traffic.filter(move |seen| {
        if seen.way == Way::Forth && seen.is_data() {
            out.borrow_mut()
                .get_or_insert_with(|| (seen.now_ns, seen.datagram.clone()));
            if cut.contains(&seen.now_ns) {
                return Verdict::Drop;
            }
        }
        Verdict::Pass
    });
    let order = |number| Order::new(SplitMix::new(number).bytes(BYTES), tag(scheme));
    let parcels: Vec<_> = (0..MESSAGES).map(|n| world.ship(order(n))).collect();
    let mut copies = 0;
    let mut at_ns = None;
    while at_ns.is_none_or(|at_ns| world.now_ns() < at_ns + SECOND) {
        assert!(
            world.now_ns() < 300 * SECOND,
            "a message is open: {attack:?}"
        );
        world.run_for(MS);
        let is_done = parcels.iter().all(|p| p.out.send.outcome().is_some());
        at_ns = at_ns.or(is_done.then_some(world.now_ns()));
        let Some((left_ns, mut copy)) = captured.borrow().clone() else {
            continue;
        };
        // The attack begins when the packet has arrived, and ends with the transfer, so that the reports
        // of its end are seen.
        if world.now_ns() < left_ns + 2 * DELAY || at_ns.is_some() {
            continue;
        }
        if attack.marked {
            copy.tos |= CE;
        }
        for _ in 0..attack.copies {
            world.network.inject(copy.clone());
            copies += 1;
        }
    }
    parcels.iter().for_each(|parcel| world.check(parcel));
    let stats = world.a.endpoint.peer_stats(world.a.qp);
    Done {
        at_ns: at_ns.expect("the loop ends then"),
        copies,
        sender: stats.expect("connected"),
        receiver: world.b.stats(),
    }
}

fn swift() -> RateControl {
    let target_ns = 60 * MS;
    RateControl::Swift(SwiftOptions {
        base_target_ns: target_ns,
        endpoint_target_ns: target_ns,
        ..SwiftOptions::new(1_000_000_000, 1, 0)
    })
}

/// The transfers end in about their usual time, whatever the attacker repeats. Not one report is
/// refused, and nothing stays in flight.
#[test]
fn one_packet_repeated_all_the_time_delays_no_transfer() {
    let adaptive = RateControl::default();
    for (scheme, rate_control, attacks) in [
        ("sr-nack", adaptive, &[(1, false), (20, true)][..]),
        ("ec-mds:32,8", adaptive, &[(1, true), (20, false)]),
        ("sr-nack", swift(), &[(1, true)]),
    ] {
        let options = with(rate_control);
        let alone = transfer(scheme, &options, Attack::default(), 0.0, 0..0);
        for &(copies, marked) in attacks {
            let attack = Attack { copies, marked };
            let attacked = transfer(scheme, &options, attack, 0.0, 0..0);
            let Done {
                sender, receiver, ..
            } = &attacked;
            let times = format!(
                "{scheme} {rate_control} {attack:?}: {} ms instead of {} ms",
                attacked.at_ns / MS,
                alone.at_ns / MS
            );
            println!("{times}, {} copies", attacked.copies);
            let most_ns = alone.at_ns + alone.at_ns / 8;
            assert!(attacked.at_ns < most_ns, "{times}: {sender:?}");
            assert_eq!(sender.refused_feedback, 0, "{sender:?}");
            assert_eq!(sender.in_flight_bytes, 0, "{sender:?}");
            let stale = receiver.duplicate_packets + receiver.late_packets;
            assert_eq!(sender.stale_packets, stale, "{sender:?}");
            assert!(stale >= attacked.copies, "{receiver:?}");
            assert!(sender.delivered_bytes <= sender.sent_bytes, "{sender:?}");
        }
    }
}

/// The reports about repeated packets do not keep a sender waiting for packets that were lost.
#[test]
fn an_outage_ends_while_a_packet_is_repeated() {
    for rate_control in [RateControl::default(), swift()] {
        let options = with(rate_control);
        let times = [0, 20].map(|copies| {
            let attack = Attack {
                copies,
                marked: false,
            };
            transfer("sr-nack", &options, attack, 0.001, SECOND..2 * SECOND).at_ns
        });
        println!("{rate_control}: {times:?}");
        assert!(times[1] < times[0] / 8 * 9, "{times:?}");
    }
}

/// A peer of an older version gets reports without the count of packets that brought nothing new.
#[test]
fn an_older_peer_gets_the_short_report() {
    for reads_stale in [false, true] {
        let links = [path(0.0); 2];
        let mut world = World::with_infos(1, links, &options(), |info| {
            info.reads_stale = reads_stale;
        });
        let counts = Rc::new(RefCell::new([0, 0]));
        let out = Rc::clone(&counts);
        world.traffic.filter(move |seen| {
            for said in seen.control.iter().flatten() {
                if let Control::PeerFeedback(report) = said {
                    out.borrow_mut()[usize::from(report.stale.packets > 0)] += 1;
                }
            }
            Verdict::Pass
        });
        // Its parity arrives late.
        let parcel = world.ship(Order::new(SplitMix::new(1).bytes(700), tag("ec-mds:32,8")));
        world.run_for(SECOND);
        world.check(&parcel);
        let stats = world.a.endpoint.peer_stats(world.a.qp).expect("connected");
        assert_eq!(stats.in_flight_bytes, 0, "{stats:?}");
        assert_eq!(stats.refused_feedback, 0, "{stats:?}");
        assert_eq!(stats.stale_packets > 0, reads_stale, "{stats:?}");
        let [short, long] = *counts.borrow();
        assert!(short > 0 && (long > 0) == reads_stale, "{short} {long}");
    }
}

/// Repeats of sealed packets are dropped before anything counts them (P2.7).
#[test]
fn sealed_packets_that_are_repeated_change_no_time_and_no_counter() {
    for (scheme, rate_control) in [
        ("sr-nack", RateControl::default()),
        ("ec-mds:32,8", RateControl::default()),
        ("sr-nack", swift()),
    ] {
        let options = QpOptions {
            sealing: Sealing::Required,
            ..with(rate_control)
        };
        let [alone, attacked] = [0, 20].map(|copies| {
            let attack = Attack {
                copies,
                marked: true,
            };
            transfer(scheme, &options, attack, 0.0, 0..0)
        });
        assert!(attacked.copies > 60_000, "{}", attacked.copies);
        assert_eq!(attacked.at_ns, alone.at_ns, "{scheme} {rate_control}");
        let (ours, theirs) = (attacked.sender, alone.sender);
        assert_eq!(
            format!("{ours:?}"),
            format!("{theirs:?}"),
            "{scheme} {rate_control}"
        );
        let (ours, theirs) = (attacked.receiver, alone.receiver);
        assert_eq!(
            format!("{ours:?}"),
            format!("{theirs:?}"),
            "{scheme} {rate_control}"
        );
    }
}
