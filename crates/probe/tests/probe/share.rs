//! A probe uses no more of the path than it may.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use farwrite_emulator::udp::UdpEmulator;
use farwrite_probe::{Findings, ProbeHooks, ProbeStage, Settings, probe};

use crate::emulated::{emulator, path};
use crate::ends::{answering, ends};

const RATE_BPS: u64 = 80_000_000;

/// What a path carried in a part of a probe.
#[derive(Clone, Copy, Debug)]
struct Used {
    /// Bytes of IP packets, towards the responder and back.
    bytes: [u64; 2],
    time: Duration,
}

impl Used {
    /// The shares of a path of this rate, in both directions.
    fn shares(&self, rate_bps: f64) -> [f64; 2] {
        let bits_per_second = |bytes: u64| bytes as f64 * 8.0 / self.time.as_secs_f64();
        self.bytes.map(|bytes| bits_per_second(bytes) / rate_bps)
    }
}

/// Runs a probe over a path of `RATE_BPS`. Returns its findings, and what the path carried before
/// each stage (trials of losses are one stage) and in the end.
fn measure(settings: &Settings) -> (Findings, Vec<Used>) {
    let (prober, responder) = ends();
    let responder = answering(responder);
    let links = OnceLock::new();
    let redirect = |_, to: SocketAddr| {
        let links: &UdpEmulator =
            links.get_or_init(|| emulator([path(RATE_BPS, 10); 2], settings.flows, to));
        links.addresses()[0][0]
    };
    let start = Instant::now();
    let used = || {
        let counters = links.get().map(UdpEmulator::counters);
        let bytes = counters.map_or([0; 2], |counters| {
            [counters.forward, counters.backward].map(|way| way.link.delivered_bytes)
        });
        Used {
            bytes,
            time: start.elapsed(),
        }
    };
    let marks = RefCell::new(Vec::new());
    let is_counting = Cell::new(false);
    let observe = |stage| {
        let is_trial = matches!(stage, ProbeStage::Losses { .. });
        if !(is_trial && is_counting.replace(is_trial)) {
            marks.borrow_mut().push(used());
        }
    };
    let host = ProbeHooks {
        redirect: &redirect,
        cancelled: &|| false,
        observe: &observe,
    };
    let findings = probe(prober, settings, &host).expect("findings");
    let mut marks = marks.into_inner();
    marks.push(used());
    responder.join().expect("no panic").expect("answered");
    (findings, marks)
}

#[test]
fn a_whole_probe_stays_below_its_share() {
    let settings = Settings {
        flows: 1,
        share: 0.05,
        max_rate_bps: 1_000_000_000,
        time: Duration::from_secs(8),
        ..Settings::default()
    };
    let (findings, marks) = measure(&settings);
    let rate = findings.rate.expect("a rate");
    assert!(rate.trains >= 5, "{rate:?}");
    // The path is used at the share of what the probe takes for its rate. A busy machine compresses
    // trains, so that the path seems up to twice as fast.
    let rate_bps = rate.bps.max(RATE_BPS as f64);
    let whole = marks.last().expect("an end");
    let [forward, backward] = whole.shares(rate_bps);
    println!("{rate:?} {marks:#?}: {forward:.4} and {backward:.4} of the path");
    assert!(forward < settings.share, "{forward} {marks:?}");
    assert!(backward < settings.share, "{backward} {marks:?}");
    // The probe does not stay below its share by doing little. A busy machine finds a low rate.
    let [of_found, _] = whole.shares(rate.bps);
    assert!(of_found > settings.share / 4.0, "{of_found} {marks:?}");
    // Each stage stays below the share as well, except that a train may be compressed.
    for (before, after) in marks.iter().zip(&marks[1..]) {
        let stage = Used {
            bytes: [
                after.bytes[0] - before.bytes[0],
                after.bytes[1] - before.bytes[1],
            ],
            time: after.time - before.time,
        };
        let [share, _] = stage.shares(rate_bps);
        println!("{stage:?}: {share:.4}");
        assert!(share < 2.0 * settings.share, "{share} {stage:?}");
    }
}
