//! The plan of a case as a plain value, and how a seed draws it.

use std::time::Duration;

use farwrite_boxes::lowar::{self, BlockShape, Coding};
use farwrite_boxes::{Backpressure, netrt};

use super::headers::Headers;
use super::singles::SinglesPlan;
use super::traffic::{self, RequestPlan};
use farwrite_rng::SplitMix;

pub(crate) const RATE_BPS: u64 = 10_000_000_000;
const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// The plan of a case.
#[derive(Clone, Debug)]
pub struct BoxPlan {
    /// The boxes.
    pub boxes: Boxes,
    /// How the boxes slow their NICs down.
    pub backpressure: Backpressure,
    /// Delay from one box to the other.
    pub delay: Duration,
    /// The fault rates of the path.
    pub rates: Rates,
    /// When all faults end.
    pub faults_end_ns: u64,
    /// For each box, whether frames of its NIC, and frames to its NIC, take a way around it.
    pub around: [[bool; 2]; 2],
    /// The seed of foreign frames between the others; `None` without them.
    pub foreign_seed: Option<u64>,
    /// Restarts of boxes.
    pub restarts: Vec<Restart>,
    /// Whether messages are forged with the key of the boxes, or with a different key.
    pub key_is_known: bool,
    /// Payload length of a full packet.
    pub mtu_bytes: u32,
    /// The first PSN of all connections.
    pub first_psn: u32,
    /// The requests of both ends of each connection.
    pub(crate) requests: Vec<[Vec<RequestPlan>; 2]>,
    /// The seed that decides the faults of each frame.
    pub path_seed: u64,
    /// The headers of all frames.
    pub headers: Headers,
    /// The messages of one packet of each NIC.
    pub singles: [Option<SinglesPlan>; 2],
}

/// The boxes beside the NICs; `None` where one is missing.
#[derive(Clone, Debug)]
pub enum Boxes {
    /// LoWAR.
    Lowar([Option<lowar::Config>; 2]),
    /// NetRT.
    NetRt([Option<netrt::Config>; 2]),
}

/// The probabilities of the path's faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Highest number of further frames that are lost with it.
    pub burst: u64,
    /// Probability that a bit is changed.
    pub change: f64,
    /// Probability that a frame is delivered twice.
    pub double: f64,
    /// Probability that a frame is late, by up to `late_ns`.
    pub late: f64,
    /// Highest lateness in nanoseconds.
    pub late_ns: u64,
    /// Probability that a box message is forged from an earlier one.
    pub forge: f64,
}

/// A restart of a box.
#[derive(Clone, Copy, Debug)]
pub struct Restart {
    /// When.
    pub at_ns: u64,
    /// The NIC of the box, 0 or 1.
    pub at: usize,
}

impl BoxPlan {
    /// Draws the plan of a seed.
    pub(super) fn of_seed(seed: u64) -> Self {
        let mut rng = SplitMix::new(seed);
        let delay_ns = rng.pick(&[2 * US, 20 * US, 200 * US, 2 * MS]);
        let keys = draw_keys(&mut rng);
        let missing = rng.chance(0.1).then(|| rng.index(2));
        let mut configs = |config: &mut dyn FnMut(&mut SplitMix, usize)| {
            for at in (0..2).filter(|at| missing != Some(*at)) {
                config(&mut rng, at);
            }
        };
        let boxes = if seed.is_multiple_of(2) {
            let mut drawn = [None, None];
            configs(&mut |rng, at| drawn[at] = Some(draw_lowar(rng, keys[at])));
            Boxes::Lowar(drawn)
        } else {
            let mut drawn = [None, None];
            configs(&mut |rng, at| drawn[at] = Some(draw_netrt(rng, keys[at], delay_ns)));
            Boxes::NetRt(drawn)
        };
        let faults_end_ns = rng.pick(&[MS, 10 * MS, 100 * MS]);
        let mut restarts: Vec<_> = (0..rng.pick(&[0, 0, 1, 6]))
            .map(|_| Restart {
                at_ns: rng.within(0..faults_end_ns),
                at: rng.index(2),
            })
            .collect();
        restarts.sort_by_key(|restart| restart.at_ns);
        let connections = rng.pick(&[1, 1, 2, 4]);
        Self {
            boxes,
            backpressure: draw_backpressure(&mut rng),
            delay: Duration::from_nanos(delay_ns),
            rates: draw_rates(&mut rng),
            faults_end_ns,
            restarts,
            key_is_known: rng.chance(0.5),
            mtu_bytes: rng.pick(&[256, 512, 1024]),
            first_psn: rng.pick(&[0, 0x7F_FFF0, 0xFF_FFF0]),
            requests: (0..connections)
                .map(|_| [traffic::draw(&mut rng), traffic::draw(&mut rng)])
                .collect(),
            path_seed: rng.next(),
            headers: Headers {
                ipv6: rng.chance(0.4),
                tags: rng.pick(&[0, 0, 1, 2]),
            },
            singles: [SinglesPlan::draw(&mut rng), SinglesPlan::draw(&mut rng)],
            around: draw_around(&mut rng),
            foreign_seed: rng.chance(0.3).then(|| rng.next()),
        }
    }

    /// Whether no box of the case is missing.
    pub(crate) fn is_whole(&self) -> bool {
        match &self.boxes {
            Boxes::Lowar(configs) => configs.iter().all(Option::is_some),
            Boxes::NetRt(configs) => configs.iter().all(Option::is_some),
        }
    }

    pub(crate) fn keys(&self) -> Vec<Option<[u8; 32]>> {
        let keys: Vec<_> = match &self.boxes {
            Boxes::Lowar(configs) => configs.iter().flatten().map(|config| &config.key).collect(),
            Boxes::NetRt(configs) => configs.iter().flatten().map(|config| &config.key).collect(),
        };
        keys.into_iter()
            .map(|key| key.as_deref().copied())
            .collect()
    }
}

fn draw_keys(rng: &mut SplitMix) -> [Option<[u8; 32]>; 2] {
    let key = rng.chance(0.5).then_some([7; 32]);
    let other = if rng.chance(0.05) { Some([8; 32]) } else { key };
    [key, other]
}

fn draw_around(rng: &mut SplitMix) -> [[bool; 2]; 2] {
    if rng.chance(0.15) {
        [0, 1].map(|_| [0, 1].map(|_| rng.chance(0.4)))
    } else {
        Default::default()
    }
}

/// Draws settings. Often one of the limits is too low.
fn draw_lowar(rng: &mut SplitMix, key: Option<[u8; 32]>) -> lowar::Config {
    let shape = |packets, units| BlockShape::new(packets, units).expect("a shape");
    let shapes = [shape(1, 1), shape(4, 2), shape(8, 1), shape(16, 8)];
    lowar::Config {
        key: key.map(Into::into),
        coding: if rng.chance(0.3) {
            Coding::Adaptive
        } else {
            Coding::Fixed(rng.pick(&shapes))
        },
        path_mtu_bytes: rng.pick(&[1500, 1500, 1500, 300]),
        max_units: rng.pick(&[1024, 1024, 9, 1]),
        max_held: rng.pick(&[2048, 2048, 3, 0]),
        max_connections: rng.pick(&[512, 512, 512, 1, 0]),
        idle_ns: rng.pick(&[10_000 * MS, MS]),
        hold_ns: rng.pick(&[4 * MS, 300 * US]),
        peer_known: rng.chance(0.5),
        probe_ns: rng.pick(&[10 * MS, 100 * US]),
        silence_ns: rng.pick(&[1000 * MS, 20 * MS]),
        ..lowar::Config::default()
    }
}

fn draw_netrt(rng: &mut SplitMix, key: Option<[u8; 32]>, delay_ns: u64) -> netrt::Config {
    let plain = netrt::Config::new(RATE_BPS, 2 * delay_ns + 10 * US);
    netrt::Config {
        key: key.map(Into::into),
        pool_bytes: rng.pick(&[1 << 20, 60_000, 3_000, 0]),
        max_held: rng.pick(&[2048, 2048, 3, 0]),
        bitmap_bits: rng.pick(&[128, 128, 1, 300, 65_536]),
        max_connections: rng.pick(&[512, 512, 512, 1, 0]),
        idle_ns: rng.pick(&[10_000 * MS, MS]),
        request_delay_ns: rng.pick(&[0, 0, 30 * US]),
        request_ns: rng.pick(&[plain.request_ns, plain.request_ns, 0]),
        hold_ns: rng.pick(&[4 * MS, 300 * US]),
        mark_ns: rng.pick(&[plain.mark_ns, 10 * US]),
        ..plain
    }
}

fn draw_backpressure(rng: &mut SplitMix) -> Backpressure {
    rng.pick(&[
        Backpressure::default(),
        Backpressure::Pfc {
            stop_bytes: 3_000,
            resume_bytes: 1_000,
        },
        Backpressure::Ecn { mark_bytes: 20_000 },
    ])
}

/// Draws the faults. Each kind is either present or absent.
fn draw_rates(rng: &mut SplitMix) -> Rates {
    let mut rate = |rates: &[f64]| {
        let rate = rng.pick(rates);
        if rng.chance(0.6) { rate } else { 0.0 }
    };
    Rates {
        loss: rate(&[0.003, 0.03, 0.2]),
        change: rate(&[0.01, 0.1]),
        double: rate(&[0.02, 0.3]),
        late: rate(&[0.01, 0.2]),
        forge: rate(&[0.02, 0.3]),
        burst: rng.pick(&[0, 0, 3, 20]),
        late_ns: rng.pick(&[3 * US, 50 * US, 3 * MS]),
    }
}
