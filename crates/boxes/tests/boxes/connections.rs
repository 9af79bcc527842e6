//! Reliable connections through two LoWAR boxes, over a path that loses packets: all requests
//! complete, and memory has the right contents.
#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

use crate::exchange;
use crate::network;
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use exchange::{RKEY, asks, exchange, many, qp_config};
use farwrite_boxes::lowar::{BlockShape, Coding, Config, Lowar};
use farwrite_boxes::{Backpressure, ReceiveTimes};
use farwrite_net::{Loss, Payload};
use farwrite_rc::{QpConfig, Remote, Request};
use proptest::prelude::*;

type Path = network::Path<Lowar>;
type Setting = network::Setting<Config>;

fn coding(packets: u16, units: u8) -> Config {
    Config {
        key: Some([1; 32].into()),
        coding: Coding::Fixed(BlockShape::new(packets, units).unwrap()),
        ..Config::default()
    }
}

fn setting(loss_packet: f64, config: Config, seed: u64) -> Setting {
    Setting {
        rate_bps: 10_000_000_000,
        near_factor: 1,
        delay: Duration::from_micros(100),
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
        (packets, units) in prop_oneof![Just((1u16, 1u8)), Just((4, 2)), Just((8, 1)), Just((32, 8))],
        adaptive: bool,
        seed: u64,
    ) {
        let mut config = coding(packets, units);
        if adaptive {
            config.coding = Coding::Adaptive;
        }
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
    let plain = coding(8, 4);
    let small = Config {
        max_units: 5,
        max_held: 3,
        max_connections: 1,
        ..plain.clone()
    };
    for (seed, config) in [plain, small].into_iter().enumerate() {
        let mut setting = setting(0.0, config, seed as u64);
        setting.loss = burst;
        exchange(&mut Path::new(&setting), &many(), |path, step| {
            if step % 3 == 1 {
                path.path_box(usize::from(step % 2 == 0)).restart();
            }
        });
    }
}

/// A connection has requests and READ responses in each direction. It counts once.
#[test]
fn one_place_is_enough_for_a_connection() {
    let mut config = coding(8, 1);
    config.max_connections = 1;
    let mut path = Path::new(&setting(0.01, config, 7));
    exchange(&mut path, &many(), |_, _| {});
    for at in 0..2 {
        let counters = path.path_box(at).counters();
        assert!(counters.recovered > 0, "{counters:?}");
        assert_eq!(counters.connections_full, 0);
    }
}

#[test]
fn a_missing_box_changes_nothing() {
    for missing in 0..2 {
        let mut setting = setting(0.02, coding(4, 2), 3);
        setting.boxes[missing] = None;
        let mut path = Path::new(&setting);
        exchange(&mut path, &many(), |_, _| {});
        let counters = path.path_box(1 - missing).counters();
        assert_eq!((counters.repairs_sent, counters.recovered), (0, 0));
    }
}

/// The first window of a stream, which the sender has sent before any answer of the other box can be back.
#[test]
fn a_known_peer_repairs_the_first_window() {
    let repeated = |peer_known| {
        let config = Config {
            peer_known,
            ..coding(8, 1)
        };
        let lost = [0, 11, 39].into();
        let mut path = Path::with_lost(&setting(0.0, config, 1), lost);
        let qpn = write_much(&mut path, 1);
        let repeated = path.nic(0).qp_counters(qpn).unwrap().repeated;
        (path.path_box(1).counters().recovered, repeated)
    };
    assert_eq!(repeated(true), (3, 0));
    let (recovered, repeated) = repeated(false);
    assert!(recovered == 0 && repeated > 0, "{repeated}");
}

/// The receive path takes a time for each frame, and another one for each frame that has waited.
#[test]
fn a_box_inside_a_nic_takes_the_time_of_its_receive_path() {
    let done_ns = |times, lost| {
        let config = Config {
            peer_known: true,
            ..coding(8, 1)
        };
        let mut path = Path::with_shims(&setting(0.0, config, 1), times, Some(lost));
        let qpn = path.connect(0, qp_config());
        path.nic(1).memory.register_ghost(RKEY, 0, 2048).unwrap();
        let request = Request::Write {
            data: Payload::Ghost(2048),
            to: Remote {
                rkey: RKEY,
                addr: 0,
            },
            imm: None,
        };
        path.nic(0).post(qpn, 0, request).unwrap();
        while path.completions(0, qpn).is_empty() {
            let now_ns = path.network.now_ns();
            assert!(now_ns < 1_000_000, "{times:?}");
            path.network.run_until(now_ns + 1);
        }
        assert_eq!(path.nic(0).qp_counters(qpn).unwrap().repeated, 0);
        path.network.now_ns()
    };
    let times = |frame_ns, drain_ns| ReceiveTimes { frame_ns, drain_ns };
    let none = BTreeSet::new;
    let at_once = done_ns(times(0, 0), none());
    // An announcement before the packets, and the acknowledgement.
    assert_eq!(done_ns(times(10, 10), none()) - at_once, 20);
    let recovered = done_ns(times(0, 0), [0].into());
    // The repair packet shows the first packet, and seven have waited for it.
    assert!(recovered > at_once);
    assert_eq!(done_ns(times(0, 1000), [0].into()) - recovered, 8000);
    assert_eq!(done_ns(times(10, 1000), [0].into()) - recovered, 8020);
    // A burst in another block takes as long as one loss.
    assert_eq!(done_ns(times(0, 1000), [3].into()) - recovered, 5000);
}

/// An unmodified NIC gets the repair packets of a box that relies on another one, and drops them.
#[test]
fn a_peer_that_is_not_there_gets_repairs_for_a_while() {
    let known = Config {
        peer_known: true,
        silence_ns: 2_000_000,
        ..coding(4, 2)
    };
    for missing in 0..2 {
        let mut setting = setting(0.02, known.clone(), 3);
        setting.boxes[missing] = None;
        let mut path = Path::new(&setting);
        exchange(&mut path, &many(), |_, _| {});
        let counters = path.path_box(1 - missing).counters();
        assert!(counters.repairs_sent > 0 && counters.recovered == 0);
    }
}

/// Routes that differ by direction: frames from a NIC, or frames to it, bypass the box beside it.
/// This includes messages of the other box.
#[test]
fn packets_that_go_around_boxes_damage_nothing() {
    for around in 0..16u32 {
        let around = [0, 2].map(|end| [0, 1].map(|way| around >> (end + way) & 1 == 1));
        let mut path = Path::with_detours(&setting(0.02, coding(4, 2), 3), around);
        exchange(&mut path, &many(), |_, _| {});
        let [a, b] = [0, 1].map(|at| path.path_box(at).counters());
        let [[a_out, a_in], [b_out, b_in]] = around;
        // Whether packets from host a pass both boxes, and answers of the other box come back.
        let protects = !(a_out || b_in || a_in);
        assert_eq!((a.repairs_sent > 0, b.recovered > 0), (protects, protects));
        let protects = !(b_out || a_in || b_in);
        assert_eq!((b.repairs_sent > 0, a.recovered > 0), (protects, protects));
    }
}

#[test]
fn boxes_with_different_keys_do_not_know_each_other() {
    let mut setting = setting(0.02, coding(4, 2), 3);
    setting.boxes[1] = Some(Config {
        key: None,
        ..coding(4, 2)
    });
    let mut path = Path::new(&setting);
    exchange(&mut path, &many(), |_, _| {});
    assert_eq!(path.path_box(0).counters().repairs_sent, 0);
}

#[test]
fn nics_behind_boxes_repeat_next_to_nothing() {
    let repeated = |boxes: bool| {
        let mut setting = setting(0.002, coding(8, 4), 11);
        if !boxes {
            setting.boxes = [None, None];
        }
        let mut path = Path::new(&setting);
        let qpn = write_much(&mut path, 60);
        let counters = path.nic(0).qp_counters(qpn).unwrap();
        if boxes {
            let [a, b] = [0, 1].map(|at| path.path_box(at).counters());
            assert!(b.recovered > 20 && a.not_verified + b.not_verified == 0);
        }
        counters.repeated
    };
    let (with, without) = (repeated(true), repeated(false));
    assert!(
        10 * with < without,
        "{with} packets repeated, {without} without boxes"
    );
}

/// LoWAR(4, 4) doubles the packets.
#[test]
fn a_box_stops_its_sender_and_drops_nothing() {
    let (stop_bytes, resume_bytes) = (20_000, 10_000);
    let mut setting = setting(0.0, coding(4, 4), 1);
    setting.backpressure = Backpressure::Pfc {
        stop_bytes,
        resume_bytes,
    };
    let mut path = Path::new(&setting);
    write_much(&mut path, 8);
    let queue = peak_queue(&path);
    assert!(queue > stop_bytes && queue < stop_bytes + 5000, "{queue}");
    assert_eq!(path.network.totals().all_dropped(), 0);
    setting.backpressure = Backpressure::Ecn { mark_bytes: 20_000 };
    let mut path = Path::new(&setting);
    write_much(&mut path, 8);
    assert!(peak_queue(&path) > 100_000);
    assert!(path.path_box(0).marked() > 0);
}

/// LoWAR(4, 4) doubles the packets, and nothing slows the NIC: half of what the box sends is too
/// much for its port.
#[test]
fn a_full_port_drops_repairs_and_keeps_data() {
    let mut setting = setting(0.0, coding(4, 4), 1);
    setting.backpressure = Backpressure::Ecn {
        mark_bytes: u64::MAX,
    };
    setting.buffer = Some(100_000);
    let mut path = Path::new(&setting);
    let qpn = write_much(&mut path, 40);
    let sent = path.path_box(0).counters().repairs_sent;
    let (repairs, refused) = path.path_box(0).dropped();
    assert!(2 * repairs > sent, "{repairs} of {sent}");
    assert_eq!(refused, 0);
    assert_eq!(path.nic(0).qp_counters(qpn).unwrap().repeated, 0);
    let arrived = path.path_box(1).counters().repairs_received;
    assert_eq!(arrived, sent - repairs);
}

/// Peak queue in front of the long cable, in bytes.
fn peak_queue(path: &Path) -> u64 {
    let far = path.network.counters(path.boxes[0]).nth(1).unwrap();
    far.peak_queued_bytes
}

/// Writes messages of 100 KB.
fn write_much(path: &mut Path, messages: u64) -> u32 {
    let config = QpConfig {
        window_packets: 2000,
        ..qp_config()
    };
    let qpn = path.connect(0, config);
    path.nic(1).memory.register_ghost(RKEY, 0, 1 << 20).unwrap();
    for id in 0..messages {
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
    path.network.run_until(1_000_000_000);
    assert_eq!(path.completions(0, qpn).len() as u64, messages);
    qpn
}

/// Returns the number of messages of 100 KB that complete in a second over 1 Gbit/s and 4 ms.
fn goodput(loss: Loss, coding: Coding) -> u32 {
    let config = Config {
        coding,
        ..Config::default()
    };
    let mut path = Path::new(&Setting {
        rate_bps: 1_000_000_000,
        near_factor: 1,
        delay: Duration::from_millis(2),
        loss,
        seed: 2,
        boxes: [Some(config.clone()), Some(config)],
        backpressure: Backpressure::default(),
        buffer: None,
    });
    let config = QpConfig {
        mtu_bytes: 1024,
        window_packets: 4000,
        ack_timeout_ns: 20_000_000,
        retry_limit: Some(255),
        ..QpConfig::new(2)
    };
    let qpn = path.connect(0, config);
    path.nic(1).memory.register_ghost(RKEY, 0, 1 << 20).unwrap();
    for id in 0..2500 {
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
    // In the first 200 ms, the controller learns.
    path.network.run_until(200_000_000);
    path.completions(0, qpn);
    path.network.run_until(1_200_000_000);
    u32::try_from(path.completions(0, qpn).len()).unwrap()
}

/// A short version of the example `lowar` of crate `bench`. The example measures longer, and there the adaptive
/// controller reaches 0.95 of the best fixed shape. Here there are fewer losses, so the results
/// vary more.
#[test]
fn the_controller_comes_near_the_best_fixed_shape() {
    let iid = |loss_packet| Loss::Iid { loss_packet };
    let burst = Loss::Markov {
        p_good_to_bad: 0.001,
        p_bad_to_good: 0.25,
        loss_good: 0.0,
        loss_bad: 1.0,
    };
    for loss in [Loss::None, iid(1e-3), iid(1e-2), burst] {
        let fixed = [(128, 1), (32, 1), (6, 1), (128, 16)];
        let fixed = fixed.map(|(r, c)| Coding::Fixed(BlockShape::new(r, c).unwrap()));
        let (best, adaptive) = thread::scope(|scope| {
            let runs = fixed.map(|coding| scope.spawn(move || goodput(loss, coding)));
            let adaptive = goodput(loss, Coding::Adaptive);
            let goodputs = runs.map(|run| run.join().unwrap());
            (goodputs.into_iter().max().unwrap(), adaptive)
        });
        assert!(10 * adaptive >= 9 * best, "{loss:?}: {adaptive} of {best}");
    }
}
