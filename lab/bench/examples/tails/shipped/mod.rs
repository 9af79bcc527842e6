//! Operations of `farwrite-collectives` beside the rings of flows of the other rows: the same hosts, switch and bursts.
//!
//! A group runs one operation after another, so its deadlines adapt. The first operations are warm-ups. Each round has
//! the bursts that the run of a ring of flows with the same number has.

mod group;

use std::error::Error;
use std::time::Duration;

use farwrite::Timing;
use farwrite_collectives::{
    Algorithm, Delivery, ElementType, GroupOptions, Operation, OperationOptions, Reduction, Report,
};
use farwrite_deadline::{Bounds, Policy};
use farwrite_experiment::{Ideal, PacketFormat, parallel_map};
use farwrite_net::Topology;
use farwrite_units::stats::mean;

use self::group::{Group, GroupStep, PanelPlace};
use crate::measure::{LOSSES, PRIORITY, Subject, Table, at};
use crate::optinic::{COLLECTIVES, Setting, topology};
use crate::sizes::SIZES_MB;

/// Bytes of a segment: the default of groups.
const SEGMENT_BYTES: u32 = 704 << 10;
/// Segments in flight to each rank. On the short paths of these networks, more bring nothing.
const SEGMENTS_IN_FLIGHT: u32 = 8;
/// The number of the first round of warm-ups. Measured rounds have the numbers from 1 on.
const FIRST_WARM_UP: u64 = 1_000_000;

/// The number of series that also run with losses: all before the one with many warm-ups, which takes most of
/// the processor time.
const SERIES_OF_LOSSES: usize = 3;

/// How the operations of a series run.
#[derive(Clone, Copy)]
pub(crate) struct Series {
    pub(crate) name: &'static str,
    delivery: Delivery,
    /// How contributions to bounded all-reduces travel, and whether their results are bounded too.
    algorithm: Algorithm,
    parts: Delivery,
    policy: Policy,
    /// Operations before the measured ones.
    warm_ups: u64,
}

/// The series of all-reduces.
pub(crate) const SERIES: [Series; 4] = [
    Series {
        name: "shipped, exact",
        delivery: Delivery::Exact,
        algorithm: Algorithm::Direct,
        parts: Delivery::Exact,
        policy: Policy::OptiNic,
        warm_ups: 2,
    },
    Series {
        name: "shipped, direct",
        delivery: Delivery::Bounded,
        algorithm: Algorithm::Direct,
        parts: Delivery::Exact,
        policy: Policy::OptiNic,
        warm_ups: 10,
    },
    Series {
        name: "shipped, ring",
        delivery: Delivery::Bounded,
        algorithm: Algorithm::Ring,
        parts: Delivery::Bounded,
        policy: Policy::OptiNic,
        warm_ups: 10,
    },
    Series {
        name: "shipped, ring, loss target",
        delivery: Delivery::Bounded,
        algorithm: Algorithm::Ring,
        parts: Delivery::Bounded,
        policy: Policy::LossTarget {
            target_ppm: 10_000,
            rtt_ns: 100_000,
        },
        warm_ups: 64,
    },
];

/// An operation of the figures, the number of steps of its ring, and its series.
pub(crate) struct Kind {
    pub(crate) operation: Operation,
    pub(crate) steps: usize,
    pub(crate) series: &'static [Series],
}

/// The operations of `optinic::COLLECTIVES`. A bounded all-gather is always direct.
pub(crate) fn kinds() -> [Kind; 2] {
    [
        Kind {
            operation: Operation::AllReduce {
                element: ElementType::F32,
                reduction: Reduction::Sum,
            },
            steps: COLLECTIVES[0].1,
            series: &SERIES,
        },
        Kind {
            operation: Operation::AllGather,
            steps: COLLECTIVES[1].1,
            series: &SERIES[..2],
        },
    ]
}

/// One operation.
struct Done {
    time_ms: f64,
    /// The share of the contributions of other ranks to the results that are missing.
    missing: f64,
    /// The share of the bytes of the results that lack a contribution.
    lacking: f64,
    limit_ms: Option<f64>,
}

impl Done {
    fn of(kind: &Kind, reports: &[Report]) -> Self {
        let ranks = reports.len() as f64;
        let time = reports.iter().map(|report| report.elapsed).max();
        let limit = reports.iter().filter_map(|report| report.limit).max();
        let bytes = reports.iter().map(|report| report.bytes).sum::<u64>() as f64;
        let contributions = match kind.operation {
            Operation::AllGather => bytes * (ranks - 1.0) / ranks,
            _ => bytes * (ranks - 1.0),
        };
        let missing = reports.iter().flat_map(|report| &report.missing);
        let missing =
            missing.map(|part| (part.range.end - part.range.start) * part.ranks.len() as u64);
        let lacking = reports.iter().map(|report| report.missing_bytes);
        Self {
            time_ms: time.unwrap_or_default().as_secs_f64() * 1e3,
            missing: missing.sum::<u64>() as f64 / contributions,
            lacking: lacking.sum::<u64>() as f64 / bytes,
            limit_ms: limit.map(|limit| limit.as_secs_f64() * 1e3),
        }
    }
}

/// The options of a group whose hosts send as `subject` does.
fn options(subject: &Subject, topology: &Topology, series: &Series) -> GroupOptions {
    let mtu = subject.transport.mtu();
    let network = subject.options(0);
    let format = PacketFormat {
        mtu,
        framing: network.framing_bytes,
    };
    let path = Ideal::new(topology, &network, format).path(0, 1);
    let path = path.expect("one switch joins all hosts");
    let control = subject.transport.rate_control(&path, path.rate_bps);
    let mut options = GroupOptions {
        packet_bytes: mtu,
        packets_per_segment: SEGMENT_BYTES / mtu,
        segments_in_flight: SEGMENTS_IN_FLIGHT,
        most_segments_in_flight: SEGMENTS_IN_FLIGHT,
        timing: Timing::datacenter(),
        initial_rtt: Duration::from_nanos(path.rtt_ns),
        rate_control: control.expect("a transport of endpoints"),
        ..GroupOptions::default()
    };
    options.bounded.algorithm = series.algorithm;
    options.bounded.parts = series.parts;
    options.bounded.policy = series.policy;
    options.bounded.bounds = Bounds {
        min_ns: 100_000,
        ..options.bounded.bounds
    };
    options
}

/// The measured operations of a series, and the packets that the network dropped meanwhile.
fn run(
    setting: &Setting,
    topology: &Topology,
    kind: &Kind,
    series: &Series,
) -> Result<(Vec<Done>, u64), Box<dyn Error>> {
    let subject = Subject::new(series.name, "farwrite-sr-nack@swift");
    let place = PanelPlace {
        topology,
        options: subject.options(setting.buffer_kb * 1_000),
        priority: PRIORITY,
        seed: 1,
    };
    let mut group = Group::new(&place, &options(&subject, topology, series))?;
    let mut operation = |number| {
        let (bursts, after_ns) = setting.bursts(kind.steps, number)?;
        let step = GroupStep {
            operation: &kind.operation,
            options: OperationOptions {
                delivery: series.delivery,
                ..OperationOptions::default()
            },
            bytes: usize::try_from(setting.tensor_bytes())?,
            after_ns,
            bursts: &bursts,
        };
        let reports = group.round(&step)?;
        Ok::<_, Box<dyn Error>>((Done::of(kind, &reports), group.dropped()))
    };
    let mut before = 0;
    for number in 0..series.warm_ups {
        (_, before) = operation(FIRST_WARM_UP + number)?;
    }
    let (mut done, mut dropped) = (Vec::new(), before);
    for number in 1..=setting.runs {
        let one;
        (one, dropped) = operation(number)?;
        done.push(one);
    }
    Ok((done, dropped - before))
}

/// Adds the rows of a series at a place: a panel, and an x in it.
fn write(
    table: &mut Table,
    (panel, x): (&str, f64),
    name: &str,
    (done, dropped): &(Vec<Done>, u64),
) {
    let mut times: Vec<_> = done.iter().map(|one| one.time_ms).collect();
    times.sort_by(f64::total_cmp);
    let percent = |share: fn(&Done) -> f64| mean(done.iter().map(share)) * 100.0;
    let limits: Vec<_> = done.iter().filter_map(|one| one.limit_ms).collect();
    let limit = (!limits.is_empty()).then(|| ("timeout_ms", mean(&limits)));
    let measures = [
        ("mean_ms", mean(&times)),
        ("median_ms", at(&times, 0.5)),
        ("p99_ms", at(&times, 0.99)),
        ("missing_percent", percent(|one| one.missing)),
        ("lacking_percent", percent(|one| one.lacking)),
        ("dropped", *dropped as f64),
    ];
    eprint!("{panel:<38} {x:>3} {name:<30}");
    for (measure, value) in measures.into_iter().chain(limit) {
        eprint!(" {measure} {value:.2}");
        table.add(panel, name, x, measure, value);
    }
    eprintln!();
}

/// A place in a figure, and what runs there.
struct Run<'a> {
    panel: String,
    x: f64,
    setting: Setting,
    topology: &'a Topology,
    kind: &'a Kind,
    series: &'a Series,
}

/// Runs all of them on all cores, and adds their rows.
fn write_all(table: &mut Table, runs: &[Run<'_>]) -> Result<(), Box<dyn Error>> {
    let results = parallel_map(runs, |place| {
        let ran = run(&place.setting, place.topology, place.kind, place.series);
        ran.map_err(|why| format!("{}, {}, {}: {why}", place.panel, place.x, place.series.name))
    });
    for (place, result) in runs.iter().zip(results) {
        write(table, (&place.panel, place.x), place.series.name, &result?);
    }
    Ok(())
}

/// The rows beside those of `optinic`. The series with the most warm-ups has only rows without loss.
pub(crate) fn measure(setting: Setting) -> Result<Table, Box<dyn Error>> {
    let tensor = format!("{} MB", setting.tensor_mb);
    let mut table = Table::new(setting.conditions(&tensor), "O6");
    let kinds = kinds();
    let topologies = [topology(LOSSES[0].1)?, topology(LOSSES[1].1)?];
    let mut runs = Vec::new();
    for ((loss, loss_packet), topology) in LOSSES.iter().zip(&topologies) {
        let most = if *loss_packet > 0.0 {
            SERIES_OF_LOSSES
        } else {
            usize::MAX
        };
        for (kind, (collective, _)) in kinds.iter().zip(COLLECTIVES) {
            runs.extend(kind.series.iter().take(most).map(|series| Run {
                panel: format!("{collective}, {loss}"),
                x: 0.0,
                setting,
                topology,
                kind,
                series,
            }));
        }
    }
    write_all(&mut table, &runs)?;
    Ok(table)
}

/// The rows beside those of `sizes`.
pub(crate) fn measure_sizes(setting: Setting) -> Result<Table, Box<dyn Error>> {
    let mut table = Table::new(setting.conditions("20 to 80 MB"), "O5");
    let kinds = kinds();
    let topology = topology(0.0)?;
    let mut runs = Vec::new();
    for (kind, (collective, _)) in kinds.iter().zip(COLLECTIVES) {
        let series = kind.series.iter().take(SERIES_OF_LOSSES);
        for (series, tensor_mb) in series.flat_map(|of| SIZES_MB.map(|size| (of, size))) {
            runs.push(Run {
                panel: collective.to_owned(),
                x: tensor_mb as f64,
                setting: Setting {
                    tensor_mb,
                    ..setting
                },
                topology: &topology,
                kind,
                series,
            });
        }
    }
    write_all(&mut table, &runs)?;
    Ok(table)
}
