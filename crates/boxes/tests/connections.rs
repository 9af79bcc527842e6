//! Reliable connections through two boxes, over a path that loses packets: all completes, and
//! memory is what was written.
#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

#[path = "common/network.rs"]
mod network;

use std::time::Duration;

use farwrite_boxes::Backpressure;
use farwrite_boxes::lowar::{Coding, Config, Shape};
use farwrite_net::{Loss, Payload};
use farwrite_rc::{Completion, QpConfig, Remote, Request};
use network::{Path, Setting};
use proptest::prelude::*;

const RKEY: u32 = 5;
const ADDR: u64 = 0x1000;
const MAX_ASKS: usize = 90;
/// Each request has a slot of memory that it alone writes: a READ that is repeated reads again.
const SLOT: usize = 6000;

fn coding(packets: u16, units: u8) -> Config {
    Config {
        key: Some([1; 32]),
        coding: Coding::Fixed(Shape::new(packets, units).unwrap()),
        ..Config::default()
    }
}

fn setting(loss_packet: f64, config: Config, seed: u64) -> Setting {
    Setting {
        rate_bps: 10_000_000_000,
        delay: Duration::from_micros(100),
        loss: Loss::Iid { loss_packet },
        seed,
        boxes: [Some(config.clone()), Some(config)],
        backpressure: Backpressure::default(),
    }
}

fn qp_config() -> QpConfig {
    QpConfig {
        mtu_bytes: 256,
        window_packets: 64,
        ack_timeout_ns: 5_000_000,
        retry_limit: 255,
        send_psn: 0xFF_FF80,
        recv_psn: 0xFF_FF80,
        ..QpConfig::new(2)
    }
}

#[derive(Clone, Debug)]
enum Ask {
    Write {
        bytes: usize,
    },
    Send {
        bytes: usize,
    },
    /// From the slot of an earlier request.
    Read {
        of: usize,
        bytes: usize,
    },
}

fn bytes(seed: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at * 7 + at / 256 + seed * 31) as u8)
        .collect()
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let length = prop_oneof![0usize..600, Just(256), Just(1024), 0usize..6000];
    let ask = (0..3, 0..MAX_ASKS, length).prop_map(|(kind, of, bytes)| match kind {
        0 => Ask::Write { bytes },
        1 => Ask::Send { bytes },
        _ => Ask::Read { of, bytes },
    });
    prop::collection::vec(ask, 1..60)
}

/// Posts the requests at host a, runs the network, and checks completions and memory. `faults` is
/// called between steps of time.
fn exchange(path: &mut Path, asks: &[Ask], mut faults: impl FnMut(&mut Path, u64)) {
    let qpn = path.connect(0, qp_config());
    let mut memory = vec![0; MAX_ASKS * SLOT];
    path.nic(1)
        .memory
        .register(RKEY, ADDR, memory.clone())
        .unwrap();
    for id in 0..asks.len() as u64 {
        path.nic(1).post_receive(qpn, id, 8192).unwrap();
    }
    let place = |at: usize| Remote {
        rkey: RKEY,
        addr: ADDR + at as u64,
    };
    let (mut asked, mut received) = (Vec::new(), Vec::new());
    for (id, ask) in (0..).zip(asks) {
        let seed = id as usize;
        let request = match *ask {
            Ask::Write { bytes: length } => {
                let at = seed * SLOT;
                let data = bytes(seed, length);
                memory[at..at + length].copy_from_slice(&data);
                asked.push(Completion::Acknowledged { id });
                Request::Write {
                    data: Payload::Bytes(data.into()),
                    to: place(at),
                    imm: None,
                }
            }
            Ask::Send { bytes: length } => {
                let data = Payload::Bytes(bytes(seed, length).into());
                asked.push(Completion::Acknowledged { id });
                received.push(Completion::Received {
                    id: received.len() as u64,
                    data: data.clone(),
                    imm: None,
                });
                Request::Send { data, imm: None }
            }
            Ask::Read { of, bytes: length } => {
                let at = of % (seed + 1) * SLOT;
                let data = Payload::Bytes(memory[at..at + length].into());
                asked.push(Completion::Read { id, data });
                Request::Read {
                    from: place(at),
                    bytes: u32::try_from(length).unwrap(),
                }
            }
        };
        path.nic(0).post(qpn, id, request).unwrap();
    }
    for step in 0..400 {
        path.network.run_until(step * 500_000);
        faults(path, step);
    }
    path.network.run_until(20_000_000_000);
    assert_eq!(path.completions(0, qpn), asked);
    assert_eq!(path.completions(1, qpn), received);
    assert_eq!(path.nic(1).memory.bytes(RKEY), Some(&memory[..]));
}

fn many() -> Vec<Ask> {
    let ask = |id: usize| match id % 3 {
        0 => Ask::Write {
            bytes: 300 * (id % 20),
        },
        1 => Ask::Send { bytes: id * 40 },
        _ => Ask::Read {
            of: id / 2,
            bytes: 250 * (id % 13),
        },
    };
    (0..MAX_ASKS).map(ask).collect()
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
        max_streams: 1,
        ..plain.clone()
    };
    for (seed, config) in [plain, small].into_iter().enumerate() {
        let mut setting = setting(0.0, config, seed as u64);
        setting.loss = burst;
        exchange(&mut Path::new(&setting), &many(), |path, step| {
            if step % 3 == 1 {
                path.lowar(usize::from(step % 2 == 0)).restart();
            }
        });
    }
}

#[test]
fn a_missing_box_changes_nothing() {
    for missing in 0..2 {
        let mut setting = setting(0.02, coding(4, 2), 3);
        setting.boxes[missing] = None;
        let mut path = Path::new(&setting);
        exchange(&mut path, &many(), |_, _| {});
        let counters = path.lowar(1 - missing).counters();
        assert_eq!((counters.repairs_sent, counters.recovered), (0, 0));
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
    assert_eq!(path.lowar(0).counters().repairs_sent, 0);
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
            let [a, b] = [0, 1].map(|at| path.lowar(at).counters());
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
    assert!(path.lowar(0).marked() > 0);
}

/// The most bytes that waited before the long cable.
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

/// What 300 ms over 1 Gbit/s and 4 ms bring, in messages of 100 KB.
fn goodput(loss: Loss, coding: Coding) -> u32 {
    let config = Config {
        coding,
        ..Config::default()
    };
    let mut path = Path::new(&Setting {
        rate_bps: 1_000_000_000,
        delay: Duration::from_millis(2),
        loss,
        seed: 2,
        boxes: [Some(config.clone()), Some(config)],
        backpressure: Backpressure::default(),
    });
    let config = QpConfig {
        mtu_bytes: 1024,
        window_packets: 4000,
        ack_timeout_ns: 20_000_000,
        retry_limit: 255,
        ..QpConfig::new(2)
    };
    let qpn = path.connect(0, config);
    path.nic(1).memory.register_ghost(RKEY, 0, 1 << 20).unwrap();
    for id in 0..1000 {
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
    // The first 100 ms are for learning.
    path.network.run_until(100_000_000);
    path.completions(0, qpn);
    path.network.run_until(400_000_000);
    u32::try_from(path.completions(0, qpn).len()).unwrap()
}

/// A bounded version of `examples/lowar.rs`, which measures longer: there, the adaptive controller
/// reaches 0.95 of the best fixed shape. So few losses as here vary more.
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
        let fixed = fixed.map(|(r, c)| goodput(loss, Coding::Fixed(Shape::new(r, c).unwrap())));
        let best = fixed.into_iter().max().unwrap();
        let adaptive = goodput(loss, Coding::Adaptive);
        assert!(20 * adaptive >= 17 * best, "{loss:?}: {adaptive} of {best}");
    }
}
