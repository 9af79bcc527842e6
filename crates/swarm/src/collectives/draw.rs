//! How a seed draws a plan.

use std::time::Duration;

use farwrite::RateControl;
use farwrite::fabric::sim::{LinkConfig, Loss, SimClock};
use farwrite_collectives::{
    Algorithm, BoundedOptions, Delivery, ElementType, GroupOptions, Hadamard, Operation,
    OperationOptions, Reduction,
};
use farwrite_deadline::{Bounds, Policy};
use farwrite_rng::SplitMix;

use super::plan::{CollectivePlan, Fault, MS, Step};

const COUNTS: [usize; 7] = [0, 1, 7, 130, 700, 3_000, 9_000];
/// Faults begin within this time; most operations do too.
const BUSY_NS: u64 = 60 * MS;
/// Clocks differ by up to this time, which is longer than each timeout.
const MOST_OFFSET_NS: u64 = 100_000 * MS;

impl CollectivePlan {
    /// Draws the plan of a seed.
    pub(super) fn of_seed(seed: u64) -> Self {
        let rng = &mut SplitMix::new(seed);
        let ranks = 2 + rng.index(4);
        let link = link(rng);
        let steps = 2 + rng.index(8);
        let has_end = rng.percent(40);
        let mut options = options(rng, ranks, &link);
        if has_end {
            options.timeout = Duration::from_millis(rng.within(800..3_000));
        }
        let steps: Vec<Step> = match rng.percent(30) {
            true => repeated(rng, ranks, steps + 4),
            false => (0..steps).map(|_| step(rng, ranks, &options)).collect(),
        };
        let faults = match has_end {
            true => vec![fatal(rng, ranks, &steps, options.timeout)],
            false => (0..rng.index(4)).map(|_| passing(rng, ranks)).collect(),
        };
        let path_seed = rng.next();
        let clocks = clocks(rng, ranks);
        options.bounded.algorithm = rng.pick(&[Algorithm::Direct, Algorithm::Ring]);
        // Ranks that only stall, or are only cut off, are not dead.
        options.dead_after = Duration::from_millis(match has_end {
            true => rng.pick(&[500, 1_000, 2_000]),
            false => rng.pick(&[3_000, 5_000]),
        });
        Self {
            ranks,
            options,
            link,
            steps,
            faults,
            path_seed,
            clocks,
        }
    }
}

/// Half of the cases have clocks that differ by up to 100 s and 400 millionths.
fn clocks(rng: &mut SplitMix, ranks: usize) -> Vec<SimClock> {
    let has_skew = rng.percent(50);
    let clock = |_| match has_skew {
        true => SimClock {
            offset_ns: rng.below(MOST_OFFSET_NS),
            fast_ppm: i16::try_from(rng.below(401)).expect("small") - 200,
        },
        false => SimClock::default(),
    };
    (0..ranks).map(clock).collect()
}

fn link(rng: &mut SplitMix) -> LinkConfig {
    let loss_packet = rng.pick(&[0.0, 0.001, 0.01, 0.03]);
    let loss = match rng.below(4) {
        0 => Loss::Markov {
            p_good_to_bad: 0.002,
            p_bad_to_good: 0.1,
            loss_good: loss_packet / 4.0,
            loss_bad: 0.6,
        },
        _ if loss_packet > 0.0 => Loss::Iid { loss_packet },
        _ => Loss::None,
    };
    let mut link = LinkConfig {
        delay: Duration::from_micros(rng.within(20..4_000)),
        rate_bps: Some(rng.pick(&[100_000_000, 1_000_000_000, 10_000_000_000])),
        loss,
        ..LinkConfig::default()
    };
    if rng.percent(40) {
        link.duplicate = 0.01;
        link.corrupt = 0.002;
    }
    if rng.percent(40) {
        link.reorder.probability = 0.05;
        link.reorder.extra_delay = Duration::from_micros(rng.within(10..500));
    }
    link
}

fn options(rng: &mut SplitMix, ranks: usize, link: &LinkConfig) -> GroupOptions {
    let rate_bps = link.rate_bps.unwrap_or(1_000_000_000) / 2;
    let mut sites = Vec::new();
    if rng.percent(25) {
        sites = (0..ranks).map(|_| u32::from(rng.percent(50))).collect();
    }
    let scheme = rng.pick(&["sr-nack", "auto", "sr-rto", "ec-mds:4,2", "ec-xor:4,2"]);
    let segments_in_flight = rng.pick(&[1, 2, 4, 8]);
    GroupOptions {
        scheme: scheme.parse().expect("a scheme"),
        packet_bytes: rng.pick(&[256, 512, 1408]),
        packets_per_segment: rng.pick(&[4, 8, 16]),
        segments_in_flight,
        // Few slots, so that they are used again.
        most_segments_in_flight: 2 * segments_in_flight,
        initial_rtt: link.delay * 2,
        rate_control: match rng.percent(50) {
            true => RateControl::Fixed { rate_bps },
            false => RateControl::default(),
        },
        timeout: Duration::from_secs(40),
        sites,
        bounded: bounded(rng),
        ..GroupOptions::default()
    }
}

fn bounded(rng: &mut SplitMix) -> BoundedOptions {
    let target = |target_ppm| Policy::LossTarget {
        target_ppm,
        rtt_ns: 2 * MS,
    };
    let policies = [
        Policy::OptiNic,
        Policy::Celeris,
        target(1_000),
        target(50_000),
    ];
    let plain = "best-effort";
    let scheme = rng.pick(&[plain, plain, "best-effort+sr", "best-effort+ec-mds:4,2"]);
    let has_bounded_parts = rng.percent(30);
    let is_transformed = !has_bounded_parts && rng.percent(30);
    BoundedOptions {
        scheme: scheme.parse().expect("a scheme"),
        policy: rng.pick(&policies),
        bounds: Bounds {
            min_ns: rng.pick(&[10_000, MS]),
            max_ns: rng.pick(&[5 * MS, 1_000 * MS]),
        },
        hadamard: is_transformed.then(|| Hadamard {
            block: rng.pick(&[4, 64, 1024]),
            stride: rng.pick(&[0, 1, 4]),
        }),
        parts: match has_bounded_parts {
            true => Delivery::Bounded,
            false => Delivery::Exact,
        },
        ..BoundedOptions::default()
    }
}

/// The same bounded operation, again and again with pauses, as in training: so that timeouts adapt.
fn repeated(rng: &mut SplitMix, ranks: usize, steps: usize) -> Vec<Step> {
    let (element, reduction) = (ElementType::F32, Reduction::Mean);
    let operation = match rng.below(4) {
        0 => Operation::AllReduce { element, reduction },
        1 => Operation::ReduceScatter { element, reduction },
        2 => Operation::AllGather,
        _ => Operation::AllToAll {
            send_bytes: vec![],
            receive_bytes: vec![],
        },
    };
    let options = OperationOptions {
        delivery: Delivery::Bounded,
        ..OperationOptions::default()
    };
    let pause_ns = MS * rng.within(2..25);
    let count = rng.pick(&COUNTS[2..]);
    let step = |_| Step {
        operation: operation.clone(),
        sender: 0,
        options,
        count,
        gaps_ns: (0..ranks).map(|_| pause_ns + gap_ns(rng)).collect(),
    };
    (0..steps).map(step).collect()
}

fn step(rng: &mut SplitMix, ranks: usize, group: &GroupOptions) -> Step {
    let element = rng.pick(&ElementType::ALL);
    let reduction = rng.pick(&Reduction::ALL);
    let reduction = match reduction.supports(element) {
        true => reduction,
        false => Reduction::Max,
    };
    let root = rng.index(ranks);
    let mut options = OperationOptions::default();
    let mut sender = 0;
    let auto = Algorithm::Auto;
    let two = [auto, Algorithm::Ring, Algorithm::Direct];
    let (operation, algorithms): (_, &[Algorithm]) = match rng.below(13) {
        0..4 => (Operation::AllReduce { element, reduction }, &Algorithm::ALL),
        4 | 5 => (Operation::ReduceScatter { element, reduction }, &two),
        6 => (Operation::AllGather, &two),
        7 => (
            Operation::AllToAll {
                send_bytes: vec![],
                receive_bytes: vec![],
            },
            &[auto],
        ),
        8 => (Operation::Broadcast { root }, &[auto]),
        9 => (
            Operation::Reduce {
                root,
                element,
                reduction,
            },
            &[auto],
        ),
        10 => (
            match rng.percent(50) {
                true => Operation::Gather { root },
                false => Operation::Scatter { root },
            },
            &[auto],
        ),
        11 => (Operation::Barrier, &[auto]),
        _ => {
            sender = (root + 1 + rng.index(ranks - 1)) % ranks;
            let tag = u32::from(rng.percent(50));
            (Operation::Send { to: root, tag }, &[auto])
        }
    };
    options.algorithm = rng.pick(algorithms);
    let is_float = matches!(
        element,
        ElementType::F64 | ElementType::F32 | ElementType::F16 | ElementType::Bf16
    );
    let may_be_bounded = match operation {
        Operation::AllReduce { .. } | Operation::ReduceScatter { .. } => is_float,
        Operation::AllGather | Operation::AllToAll { .. } => true,
        _ => false,
    };
    if may_be_bounded && rng.percent(60) {
        options.delivery = Delivery::Bounded;
        options.algorithm = auto;
    }
    // Without a choice, sites decide the algorithm of a large operation.
    let is_exact_sum = matches!(operation, Operation::AllReduce { .. });
    if is_exact_sum && options.delivery == Delivery::Exact && !group.sites.is_empty() {
        options.algorithm = Algorithm::Hierarchical;
    }
    Step {
        operation,
        sender,
        options,
        count: rng.pick(&COUNTS),
        gaps_ns: (0..ranks).map(|_| gap_ns(rng)).collect(),
    }
}

/// Most ranks start soon. Some start late.
fn gap_ns(rng: &mut SplitMix) -> u64 {
    match rng.below(10) {
        0 => rng.below(100 * MS),
        1..4 => rng.below(5 * MS),
        _ => rng.below(MS / 2),
    }
}

/// Draws a fault after which all operations must succeed.
fn passing(rng: &mut SplitMix, ranks: usize) -> Fault {
    let rank = rng.index(ranks);
    let from_ns = rng.below(BUSY_NS);
    let to_ns = from_ns + rng.below(800 * MS);
    let (from, to) = (rank, (rank + 1 + rng.index(ranks - 1)) % ranks);
    match rng.below(3) {
        0 => Fault::Stall {
            rank,
            from_ns,
            to_ns,
        },
        1 => Fault::Cut {
            from,
            to,
            from_ns,
            to_ns,
        },
        _ => Fault::ControlCut {
            from,
            to,
            from_ns,
            to_ns,
        },
    }
}

/// Draws a fault that may end the group.
fn fatal(rng: &mut SplitMix, ranks: usize, steps: &[Step], timeout: Duration) -> Fault {
    let rank = rng.index(ranks);
    let at_ns = rng.below(BUSY_NS);
    let timeout_ns = u64::try_from(timeout.as_nanos()).expect("seconds");
    match rng.below(5) {
        0 => Fault::Death { rank, at_ns },
        1 => Fault::LateReturn {
            rank,
            from_ns: at_ns,
            to_ns: at_ns + 2 * timeout_ns + rng.below(timeout_ns),
        },
        2 => Fault::Leave { rank, at_ns },
        3 => Fault::Abort { rank, at_ns },
        _ => Fault::Differ {
            rank,
            step: rng.index(steps.len()),
        },
    }
}
