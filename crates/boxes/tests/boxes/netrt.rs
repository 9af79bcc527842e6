//! Reliable connections through two NetRT boxes, over a path that loses packets: all requests
//! complete, and memory has the right contents.

use crate::exchange;
use crate::network;
use std::time::Duration;

use exchange::{RKEY, asks, exchange, many, qp_config};
use farwrite_boxes::Backpressure;
use farwrite_boxes::netrt::{Config, NetRt};
use farwrite_net::{Loss, Payload};
use farwrite_rc::{Completion, QpConfig, Remote, Request};
use proptest::prelude::*;

type Path = network::Path<NetRt>;
type Setting = network::Setting<Config>;

const RATE_BPS: u64 = 10_000_000_000;
const DELAY: Duration = Duration::from_micros(20);

fn config() -> Config {
    Config {
        key: Some([1; 32].into()),
        ..Config::new(RATE_BPS, 43_000)
    }
}

fn setting(loss_packet: f64, config: Config, seed: u64) -> Setting {
    Setting {
        rate_bps: RATE_BPS,
        near_factor: 1,
        delay: DELAY,
        loss: Loss::Iid { loss_packet },
        seed,
        boxes: [Some(config.clone()), Some(config)],
        backpressure: Backpressure::default(),
        buffer: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn random_traffic_completes(
        asks in asks(),
        loss in prop_oneof![Just(0.0), Just(0.003), Just(0.03), Just(0.15)],
        pool_bytes in prop_oneof![Just(0usize), Just(2000), Just(60_000), Just(1_000_000)],
        delay in prop_oneof![Just(0u64), Just(50_000)],
        seed: u64,
    ) {
        let config = Config { pool_bytes, request_delay_ns: delay, ..config() };
        exchange(&mut Path::new(&setting(loss, config, seed)), &asks, |_, _| {});
    }
}

#[test]
fn bursts_restarts_and_full_memory_damage_nothing() {
    let burst = Loss::Markov {
        p_good_to_bad: 0.01,
        p_bad_to_good: 0.2,
        loss_good: 0.0,
        loss_bad: 0.7,
    };
    let small = Config {
        pool_bytes: 3000,
        max_held: 3,
        max_connections: 1,
        ..config()
    };
    for (config, seed) in [config(), small].into_iter().zip(0..) {
        let mut setting = setting(0.0, config, seed);
        setting.loss = burst;
        exchange(&mut Path::new(&setting), &many(), |path, step| {
            if step % 3 == 1 {
                path.path_box(usize::from(step % 2 == 0)).restart();
            }
        });
    }
}

#[test]
fn without_memory_packets_pass_and_counters_say_so() {
    let run = |change: fn(&mut Config)| {
        let mut config = config();
        change(&mut config);
        let mut path = Path::new(&setting(0.02, config, 5));
        exchange(&mut path, &many(), |_, _| {});
        let counters = [0, 1].map(|at| path.path_box(at).counters());
        for at in 0..2 {
            assert_eq!(path.path_box(at).inner().held_bytes(), 0);
        }
        counters
    };
    let [a, b] = run(|config| config.pool_bytes = 0);
    assert!(a.copied == 0 && a.repeated == 0 && a.notices_sent > 0);
    assert!(b.given_up > 0 && b.recovered == 0);
    let [_, b] = run(|config| config.max_held = 0);
    assert!(b.held_full > 0 && b.held == 0);
    let [a, b] = run(|config| config.max_connections = 0);
    assert!(a.connections_full > 0 && a.starts_sent == 0);
    assert_eq!((b.held, b.requests_sent), (0, 0));
}

#[test]
fn a_missing_box_changes_nothing() {
    for missing in 0..2 {
        let mut setting = setting(0.02, config(), 3);
        setting.boxes[missing] = None;
        let mut path = Path::new(&setting);
        exchange(&mut path, &many(), |_, _| {});
        let counters = path.path_box(1 - missing).counters();
        assert_eq!((counters.held, counters.repeated), (0, 0));
    }
}

/// Routes that differ by direction: frames from a NIC, or frames to it, bypass the box beside it.
/// This includes messages of the other box.
#[test]
fn packets_that_go_around_boxes_damage_nothing() {
    for around in 0..16u32 {
        let around = [0, 2].map(|end| [0, 1].map(|way| around >> (end + way) & 1 == 1));
        let mut path = Path::with_detours(&setting(0.02, config(), 3), around);
        exchange(&mut path, &many(), |_, _| {});
        let [a, b] = [0, 1].map(|at| path.path_box(at).counters());
        let [[a_out, a_in], [b_out, b_in]] = around;
        // Whether packets from host a pass both boxes, and answers of the other box come back.
        let protects = !(a_out || b_in || a_in);
        assert_eq!((a.repeated > 0, b.recovered > 0), (protects, protects));
        let protects = !(b_out || a_in || b_in);
        assert_eq!((b.repeated > 0, a.recovered > 0), (protects, protects));
    }
}

#[test]
fn boxes_with_different_keys_do_not_know_each_other() {
    let mut setting = setting(0.02, config(), 3);
    setting.boxes[1] = Some(Config {
        key: None,
        ..config()
    });
    let mut path = Path::new(&setting);
    exchange(&mut path, &many(), |_, _| {});
    let [a, b] = [0, 1].map(|at| path.path_box(at).counters());
    assert_eq!((a.requests_received, b.held), (0, 0));
}

/// Runs writes. Returns the NIC's repeated packets and timeouts, and the path.
fn write_much(setting: &Setting) -> (u64, u64, Path) {
    let mut path = Path::new(setting);
    let config = QpConfig {
        window_packets: 2000,
        ..qp_config()
    };
    let qpn = path.connect(0, config);
    path.nic(1).memory.register_ghost(RKEY, 0, 1 << 20).unwrap();
    for id in 0..60 {
        let request = Request::Write {
            data: Payload::Ghost(100_000),
            to: Remote {
                rkey: RKEY,
                addr: 0,
            },
            imm: None,
        };
        path.nic(0).post(qpn, id, request).unwrap();
    }
    path.network.run_until(2_000_000_000);
    let done = path.completions(0, qpn);
    let good = |done: &Completion| matches!(done, Completion::Acknowledged { .. });
    assert!(done.len() == 60 && done.iter().all(good));
    let counters = path.nic(0).qp_counters(qpn).unwrap();
    (counters.repeated, counters.timeouts, path)
}

/// Each write has a queue pair of its own and ends before the next one. A write with a loss leaves
/// copies of a flow with a request.
#[test]
fn flows_that_have_ended_leave_room_for_copies_of_later_flows() {
    let mut path = Path::new(&setting(1e-3, config(), 7));
    path.nic(1).memory.register_ghost(RKEY, 0, 1 << 20).unwrap();
    for number in 0..60u32 {
        let config = QpConfig {
            mtu_bytes: 1024,
            window_packets: 1000,
            ..qp_config()
        };
        let qpn = path.connect(number, config);
        let to = Remote {
            rkey: RKEY,
            addr: 0,
        };
        let data = Payload::Ghost(1_000_000);
        let request = Request::Write {
            data,
            to,
            imm: None,
        };
        path.nic(0).post(qpn, 0, request).unwrap();
        path.network.run_until(u64::from(number + 1) * 5_000_000);
        let done = path.completions(0, qpn);
        assert_eq!(done, [Completion::Acknowledged { id: 0 }], "{number}");
    }
    let [a, b] = [0, 1].map(|at| path.path_box(at).counters());
    // The pool holds a round trip of copies. If a request or a repeat is lost too, they are gone.
    assert!(b.recovered > 40 && b.given_up < 10, "{a:?} {b:?}");
}

#[test]
fn nics_behind_boxes_repeat_nothing() {
    for loss in [0.001, 0.01, 0.05] {
        // If repeats are lost too, the pool must cover several round trips.
        let config = Config {
            pool_bytes: 1 << 20,
            ..config()
        };
        let mut setting = setting(loss, config, 11);
        let (repeated, timeouts, mut path) = write_much(&setting);
        let [a, b] = [0, 1].map(|at| path.path_box(at).counters());
        assert_eq!((repeated, timeouts), (0, 0), "{loss} {a:?} {b:?}");
        assert!(b.recovered > 10 && a.notices_sent == 0 && b.given_up == 0);
        // Few repeats are unnecessary.
        assert!(b.copies_dropped <= b.recovered / 10, "{b:?}");
        setting.boxes = [None, None];
        assert!(write_much(&setting).0 > 1000);
    }
}
