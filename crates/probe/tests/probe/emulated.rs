//! A probe finds the properties of an emulated path.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use farwrite_emulator::udp::{PortPair, Side, UdpEmulator, UdpEmulatorConfig};
use farwrite_link::{LinkConfig, Loss, Reorder};
use farwrite_probe::{
    EcnFindings, Error, Findings, MtuLimit, ProbeHooks, ProbeStage, ResponderSummary, Settings,
    probe,
};

use crate::ends::{PATIENCE, answering, ends, ends_through};

/// Starts an emulated path to `to`, with `channels` channels that behave like a NAT.
pub(crate) fn emulator(
    [forward, backward]: [LinkConfig; 2],
    channels: u16,
    to: SocketAddr,
) -> UdpEmulator {
    let ports = PortPair {
        a: Side::learning(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        b: Side::facing(to),
    };
    let config = UdpEmulatorConfig {
        forward,
        backward,
        seed: 7,
        channels: vec![ports; channels.into()],
        verbatim: true,
    };
    UdpEmulator::start(&config).expect("emulator")
}

/// Runs a probe over an emulated path, with one channel of the emulator for each flow.
fn probe_across(
    forward: LinkConfig,
    backward: LinkConfig,
    settings: &Settings,
) -> (Findings, ResponderSummary) {
    let (prober, responder) = ends();
    let responder = answering(responder);
    let path = OnceLock::new();
    let redirect = |flow: usize, to: SocketAddr| {
        let path = path.get_or_init(|| emulator([forward, backward], settings.flows, to));
        path.addresses()[flow][0]
    };
    let host = ProbeHooks {
        redirect: &redirect,
        cancelled: &|| false,
        observe: &|_| {},
    };
    let findings = probe(prober, settings, &host).expect("findings");
    let answered = responder.join().expect("no panic").expect("answered");
    println!("{findings:#?}\n{answered:?}");
    (findings, answered)
}

/// Returns a path with this rate in bits per second and this one-way delay.
pub(crate) fn path(rate_bps: u64, delay_ms: u64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(delay_ms),
        rate_bps: Some(rate_bps),
        queue_bytes: Some(rate_bps / 8 / 20),
        ..LinkConfig::default()
    }
}

#[test]
fn the_numbers_are_those_of_the_path() {
    let forward = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.05 },
        ..path(80_000_000, 10)
    };
    let settings = Settings {
        flows: 4,
        sizes: Some(vec![1024, 4096]),
        trials: 3,
        share: 0.25,
        max_rate_bps: 1_000_000_000,
        time: Duration::from_secs(6),
        ..Settings::default()
    };
    let (findings, answered) = probe_across(forward, path(80_000_000, 10), &settings);
    let trip = findings.round_trip.as_ref().expect("round trips");
    let least = trip.times.percentile(0).expect("samples");
    // This is the minimum of all samples. A packet that passes the delay twice takes 40 ms.
    assert!((20..40).contains(&least.as_millis()), "{least:?}");
    let rate = findings.rate.expect("a rate");
    // On a busy machine, trains may show a lower rate, or be compressed.
    assert!((20e6..160e6).contains(&rate.bps), "{rate:?}");
    let mtu = findings.mtu.expect("an MTU");
    assert_eq!((mtu.ip_bytes, mtu.limit), (9216, MtuLimit::Tried));
    assert_eq!(findings.trials.len(), 2 * 2 * 3);
    assert_eq!(answered.trials, 12 + rate.trains);
    let all = findings.direction();
    let loss = all.loss.expect("packets");
    // Which packets are lost depends on how many trains came before. The interval misses one of 20
    // such draws; two and a half times as wide, one of a million.
    let width = loss.high - loss.low;
    assert!((loss.share - 0.05).abs() < 2.5 * width / 2.0, "{loss:?}");
    assert!(width < 0.04, "{loss:?}");
    let bursts = all.bursts.expect("losses");
    assert!((1.0..1.4).contains(&bursts.mean_packets), "{bursts:?}");
    assert_eq!(all.reordered, 0);
    // The emulator's sockets send ECT(0), as the prober's do.
    assert_eq!(all.ecn, EcnFindings::Kept);
    // The emulator rewrites addresses, like a NAT.
    let nat = findings.nat.expect("addresses");
    assert!(nat.is_ours_changed() && !nat.is_theirs_changed(), "{nat:?}");
}

#[test]
fn a_thin_path_is_measured_without_a_queue_and_in_bounded_time() {
    let thin = LinkConfig {
        queue_bytes: Some(20_000),
        ..path(256_000, 50)
    };
    let settings = Settings {
        flows: 1,
        sizes: Some(vec![256]),
        time: Duration::from_secs(2),
        ..Settings::default()
    };
    let (findings, _) = probe_across(thin, thin, &settings);
    // A full queue alone takes 625 ms.
    let trip = findings.round_trip.as_ref().expect("round trips");
    let middle = trip.times.percentile(50).expect("samples");
    assert!((100..250).contains(&middle.as_millis()), "{middle:?}");
    // Ten packets at 13 kbit/s take 1.8 s, and ten trials at this rate or twice as much 13 s.
    let (sent, left_out) = (findings.trials.len(), findings.trials_left_out);
    assert!(
        sent > 0 && left_out > 0 && sent + left_out == 10,
        "{sent} and {left_out}"
    );
}

#[test]
fn bursts_and_order_are_found() {
    let forward = LinkConfig {
        loss: Loss::Markov {
            p_good_to_bad: 0.01,
            p_bad_to_good: 0.2,
            loss_good: 0.0,
            loss_bad: 1.0,
        },
        reorder: Reorder {
            probability: 0.02,
            extra_delay: Duration::from_millis(8),
        },
        ..path(100_000_000, 2)
    };
    let settings = Settings {
        flows: 1,
        sizes: Some(vec![512]),
        rates_bps: None,
        trials: 2,
        share: 0.3,
        max_rate_bps: 100_000_000,
        time: Duration::from_secs(5),
    };
    let (findings, _) = probe_across(forward, path(100_000_000, 2), &settings);
    let rate = findings.rate.expect("a rate");
    assert!((20e6..110e6).contains(&rate.bps), "{rate:?}");
    let all = findings.direction();
    let loss = all.loss.expect("packets").share;
    assert!((0.02..0.09).contains(&loss), "{loss}");
    let bursts = all.bursts.expect("losses");
    // Bursts have five packets on average. With independent losses, the mean would be one.
    assert!((3.0..8.0).contains(&bursts.mean_packets), "{bursts:?}");
    assert!((0.12..0.34).contains(&bursts.p_bad_to_good), "{bursts:?}");
    assert!(all.reordered > 0 && all.extent_packets > 1, "{all:?}");
    // This is the maximum of all samples. If a thread stops for a moment while it holds a packet
    // back, the extent grows by that moment.
    let extent = all.extent.as_millis();
    assert!((4..2000).contains(&extent), "{all:?}");
}

/// Forwards datagrams of up to `payload_bytes` between a prober with one flow and a responder,
/// through sockets that do not send ECT(0).
fn narrow(to: SocketAddr, payload_bytes: usize) -> SocketAddr {
    let [near, far] = [0, 1].map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("port"));
    let addr = near.local_addr().expect("address");
    let prober = Arc::new(OnceLock::new());
    let forward = move |from: &UdpSocket, by: &UdpSocket, to: &dyn Fn(SocketAddr) -> SocketAddr| {
        let mut buffer = [0; 65_536];
        while let Ok((bytes, src)) = from.recv_from(&mut buffer) {
            let to = to(src);
            if bytes <= payload_bytes {
                let _ = by.send_to(&buffer[..bytes], to);
            }
        }
    };
    for socket in [&near, &far] {
        // The threads end after a long time without packets.
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    }
    let [near_too, far_too] = [&near, &far].map(|socket| socket.try_clone().expect("clone"));
    let prober_too = Arc::clone(&prober);
    thread::spawn(move || {
        forward(&near, &far, &|src| {
            prober.get_or_init(|| src);
            to
        });
    });
    thread::spawn(move || {
        forward(&far_too, &near_too, &|_| {
            *prober_too.get().expect("it asked first")
        });
    });
    addr
}

#[test]
fn large_packets_that_vanish_show_the_mtu() {
    let probe_narrow = |sizes| {
        // The control crosses such a path too.
        let (prober, responder) = ends_through(|to| narrow(to, 1372));
        let responder = answering(responder);
        let host = ProbeHooks {
            redirect: &|_, to| narrow(to, 1372),
            cancelled: &|| false,
            observe: &|_| {},
        };
        let settings = Settings {
            flows: 1,
            sizes,
            trials: 1,
            max_rate_bps: 50_000_000,
            time: Duration::from_secs(3),
            ..Settings::default()
        };
        let findings = probe(prober, &settings, &host);
        (findings, responder.join().expect("no panic"))
    };
    let (findings, answered) = probe_narrow(None);
    let findings = findings.expect("findings");
    answered.expect("answered");
    let mtu = findings.mtu.expect("an MTU");
    assert_eq!(
        (mtu.ip_bytes, mtu.payload_bytes, mtu.limit),
        (1400, 1372, MtuLimit::Path)
    );
    let mut sizes: Vec<_> = findings
        .trials
        .iter()
        .map(|trial| trial.payload_bytes)
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    assert_eq!(sizes, [1024, 1372]);
    assert_eq!(findings.direction().ecn, EcnFindings::Bleached);

    let (findings, answered) = probe_narrow(Some(vec![1024, 2048]));
    let error = findings.expect_err("too large").to_string();
    assert!(
        error.contains("2048 bytes do not fit into the path's MTU of 1400"),
        "{error}"
    );
    let told = answered.expect_err("it ended").to_string();
    assert!(told.contains("2048"), "{told}");
}

#[test]
fn a_path_without_udp_is_named() {
    let (prober, responder) = ends();
    let responder = answering(responder);
    // No program answers at this address.
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("port");
    let silent = silent.local_addr().expect("address");
    let host = ProbeHooks {
        redirect: &|_, _| silent,
        cancelled: &|| false,
        observe: &|_| {},
    };
    let error = probe(prober, &Settings::default(), &host).expect_err("no UDP");
    assert!(matches!(error, Error::NoUdp { .. }), "{error}");
    assert!(error.to_string().contains("open UDP"), "{error}");
    let told = responder.join().expect("no panic").expect_err("it ended");
    assert!(matches!(told, Error::Aborted { .. }), "{told}");
}

/// The control of a probe crosses the path that it measures.
#[test]
fn a_path_that_loses_a_third_of_all_packets_is_measured() {
    let lossy = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.3 },
        ..path(80_000_000, 10)
    };
    let mut of_control = None;
    let (prober, responder) = ends_through(|to| {
        let emulator = of_control.insert(emulator([lossy; 2], 1, to));
        emulator.addresses()[0][0]
    });
    let responder = answering(responder);
    let links = OnceLock::new();
    let settings = Settings {
        flows: 1,
        sizes: Some(vec![1024]),
        trials: 2,
        max_rate_bps: 100_000_000,
        time: Duration::from_secs(4),
        ..Settings::default()
    };
    let redirect = |_, to: SocketAddr| {
        let links = links.get_or_init(|| emulator([lossy; 2], 1, to));
        links.addresses()[0][0]
    };
    let host = ProbeHooks {
        redirect: &redirect,
        cancelled: &|| false,
        observe: &|_| {},
    };
    let findings = probe(prober, &settings, &host).expect("findings");
    responder.join().expect("no panic").expect("answered");
    assert_eq!(findings.trials.len(), 4);
    let loss = findings.direction().loss.expect("packets");
    assert!((loss.share - 0.3).abs() < 0.15, "{loss:?}");
}

#[test]
fn ctrl_c_leaves_what_is_known() {
    let (prober, responder) = ends();
    let responder = answering(responder);
    let is_counting = Cell::new(false);
    let host = ProbeHooks {
        redirect: &|_, to| to,
        cancelled: &|| is_counting.get(),
        observe: &|event| {
            if let ProbeStage::Losses { done: 5, .. } = event {
                is_counting.set(true);
            }
        },
    };
    let settings = Settings {
        time: Duration::from_secs(4),
        max_rate_bps: 100_000_000,
        ..Settings::default()
    };
    let findings = probe(prober, &settings, &host).expect("findings");
    assert!(findings.interrupted);
    assert!(findings.rate.is_some() && findings.mtu.is_some());
    assert_eq!(findings.trials.len(), 5);
    responder.join().expect("no panic").expect("answered");
}
