//! Effects of the path: delay, rate, loss, cuts. Lower bounds of times are strict; upper bounds
//! leave room for a busy machine.

use std::time::{Duration, Instant};

use farwrite_emulator::udp::UdpEmulatorConfig;
use farwrite_link::{Datagram, Link, LinkConfig, Loss};

use crate::end::{Setup, set_up, wait_until};

const BIND: &str = "127.0.0.1:0";
const SILENCE: Duration = Duration::from_millis(50);

fn delayed(delay: Duration) -> LinkConfig {
    LinkConfig {
        delay,
        ..LinkConfig::default()
    }
}

#[test]
fn the_round_trip_takes_both_delays_and_little_more() {
    let Setup {
        a,
        b,
        a_side,
        b_side,
        emulator,
    } = set_up(
        BIND,
        UdpEmulatorConfig {
            forward: delayed(Duration::from_millis(4)),
            backward: delayed(Duration::from_millis(8)),
            ..UdpEmulatorConfig::default()
        },
    );
    let mut best = Duration::MAX;
    for number in 0..20 {
        let start = Instant::now();
        a.send(a_side, number, 64);
        b.receive();
        let there = start.elapsed();
        b.send(b_side, number, 64);
        a.receive();
        let rtt = start.elapsed();
        assert!(there >= Duration::from_millis(4), "{there:?}");
        assert!(rtt - there >= Duration::from_millis(8), "{rtt:?}");
        best = best.min(rtt);
    }
    // Packets that pass the delay twice take 24 ms.
    assert!(best < Duration::from_millis(24), "{best:?}");
    let counters = emulator.stop().unwrap();
    assert!(
        counters.backward.worst_lateness_ns > 0,
        "nothing is on time to the nanosecond"
    );
}

#[test]
fn a_burst_takes_its_bytes_over_the_rate() {
    let Setup {
        a,
        b,
        a_side,
        emulator,
        ..
    } = set_up(
        BIND,
        UdpEmulatorConfig {
            forward: LinkConfig {
                rate_bps: Some(20_000_000),
                ..LinkConfig::default()
            },
            ..UdpEmulatorConfig::default()
        },
    );
    let start = Instant::now();
    for number in 0..100 {
        a.send(a_side, number, 1000);
    }
    for number in 0..100 {
        assert_eq!(b.receive().number(), number);
    }
    let took = start.elapsed();
    let bytes = emulator.stop().unwrap().forward.link.delivered_bytes;
    assert_eq!(bytes, 100 * (20 + 8 + 12 + 1000 + 4));
    let wire = Duration::from_secs_f64(bytes as f64 * 8.0 / 20e6);
    assert!(
        took >= wire && took < wire + Duration::from_secs(5),
        "{took:?} for {wire:?}"
    );
}

/// The seed alone decides which packets are lost, as on a link in virtual time.
#[test]
fn losses_are_those_of_the_link_and_its_seed() {
    const COUNT: u32 = 4000;
    let loss = Loss::Iid { loss_packet: 0.1 };
    let forward = LinkConfig {
        loss,
        ..LinkConfig::default()
    };
    let Setup {
        a,
        b,
        a_side,
        b_side,
        emulator,
    } = set_up(
        BIND,
        UdpEmulatorConfig {
            forward,
            seed: 77,
            ..UdpEmulatorConfig::default()
        },
    );
    let mut model = Link::new(forward, 77).unwrap();
    let mut lost = 0;
    for number in 0..COUNT {
        a.send(a_side, number, 64);
        model.send(
            0,
            Datagram {
                src: a.addr(),
                dst: b.addr(),
                tos: 0,
                id: 0,
                payload: Vec::new(),
            },
        );
        if model.poll(0).is_some() {
            let arrival = b.receive();
            assert_eq!((arrival.number(), arrival.is_sealed), (number, true));
        } else {
            lost += 1;
        }
    }
    // Nothing follows the last forward packet; the backward path has no loss.
    b.send(b_side, 0, 64);
    assert_eq!(a.receive().number(), 0);
    assert!(b.try_receive(SILENCE).is_none());
    let counters = emulator.stop().unwrap();
    assert_eq!(
        (counters.forward.link.lost, counters.backward.link.lost),
        (lost, 0)
    );
    // 6.5 standard deviations of a binomial count, 19 each.
    assert!(lost.abs_diff(400) < 124, "{lost} of {COUNT} lost");
}

#[test]
fn a_cut_link_carries_nothing_until_it_is_mended() {
    // The first packet must still be in flight when the link is cut.
    let delay = Duration::from_secs(3);
    let Setup {
        a,
        b,
        a_side,
        b_side,
        emulator,
    } = set_up(
        BIND,
        UdpEmulatorConfig {
            forward: delayed(delay),
            backward: delayed(delay),
            ..UdpEmulatorConfig::default()
        },
    );
    a.send(a_side, 1, 64);
    wait_until("it is in flight", || {
        emulator.counters().forward.link.offered == 1
    });
    emulator.set_down(true);
    a.send(a_side, 2, 64);
    b.send(b_side, 3, 64);
    assert!(
        b.try_receive(delay + Duration::from_secs(1)).is_none() && a.try_receive(SILENCE).is_none()
    );
    assert_eq!(emulator.counters().forward.link.lost, 2);
    assert_eq!(emulator.counters().backward.link.lost, 1);

    emulator.set_down(false);
    a.send(a_side, 4, 64);
    assert_eq!(b.receive().number(), 4);
    b.send(b_side, 5, 64);
    assert_eq!(a.receive().number(), 5);
}

#[test]
fn counters_are_live() {
    let Setup {
        a,
        b,
        a_side,
        emulator,
        ..
    } = set_up(BIND, UdpEmulatorConfig::default());
    for number in 0..10 {
        a.send(a_side, number, 64);
        b.receive();
    }
    // The thread publishes the counters after it has sent.
    wait_until("ten are counted", || {
        emulator.counters().forward.link.delivered == 10
    });
    let counters = emulator.counters().forward;
    assert_eq!(
        (counters.socket_drops, counters.unsent, counters.strangers),
        (0, 0, 0)
    );
}
