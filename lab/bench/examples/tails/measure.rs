//! Transports, their switches, and rows of results.

use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

use farwrite_experiment::{
    CompleteBy, Flow, Outcome, Pattern, PatternNetwork, QueuePairOf, Recording, Retries, RunError,
    RunSetup, Start, Transport, TransportSettings, Workload, parallel_map, run,
};
use farwrite_net::{CableConfig, Loss, MarkAt, Options, Pfc, Red, SwitchConfig, Topology};
use farwrite_units::stats::quantile;

/// Panels of the figures: the probability that a cable loses a packet.
pub(crate) const LOSSES: [(&str, f64); 2] = [("no loss", 0.0), ("loss of 1e-4", 1e-4)];

/// A cable of 1 us.
pub(crate) fn cable(rate_bps: u64, loss_packet: f64) -> CableConfig {
    let mut cable = CableConfig::new(rate_bps, Duration::from_micros(1));
    if loss_packet > 0.0 {
        cable.loss = Loss::Iid { loss_packet };
    }
    cable
}

/// The protocols with DCQCN, whose switches mark packets.
const MARKED: [&str; 6] = [
    "roce",
    "roce-lossy",
    "irn",
    "srnic",
    "farwrite-best-effort@dcqcn",
    "xp",
];

/// Endpoints whose messages end at a deadline: the name in the figure, the protocol, and whether
/// they have a fixed rate.
pub(crate) const BOUNDED: [(&str, &str, bool); 5] = [
    ("best effort", "farwrite-best-effort", false),
    ("best effort, fixed rate", "farwrite-best-effort", true),
    ("best effort, DCQCN", "farwrite-best-effort@dcqcn", false),
    ("best effort, Swift", "farwrite-best-effort@swift", false),
    ("best effort, EQDS", "farwrite-best-effort@eqds", false),
];

/// The traffic class of all packets.
pub(crate) const PRIORITY: u8 = 3;

/// A transport of the comparison.
pub(crate) struct Subject {
    /// The name in the figure.
    pub(crate) name: &'static str,
    pub(crate) transport: Transport,
    /// Whether switches mark packets, and whether they pause their neighbours.
    marks: bool,
    pauses: bool,
}

impl Subject {
    pub(crate) fn new(name: &'static str, protocol: &str) -> Self {
        Self::of(name, &TransportSettings::new(protocol))
    }

    /// A protocol of NICs that never gives up, with this ACK timeout or its own.
    pub(crate) fn patient(
        name: &'static str,
        protocol: &str,
        ack_timeout: Option<Duration>,
    ) -> Self {
        let settings = TransportSettings {
            timeout: ack_timeout,
            retries: Some(Retries::AtMost(u8::MAX)),
            ..TransportSettings::new(protocol)
        };
        Self::of(name, &settings)
    }

    fn of(name: &'static str, settings: &TransportSettings) -> Self {
        let protocol = settings.protocol.as_str();
        Self {
            name,
            transport: settings.transport().expect("valid settings"),
            marks: MARKED.contains(&protocol),
            pauses: protocol == "roce",
        }
    }

    /// The transports with whole messages.
    pub(crate) fn reliable() -> Vec<Self> {
        [
            ("RoCE", "roce"),
            ("RoCE, no PFC", "roce-lossy"),
            ("IRN", "irn"),
            ("SRNIC", "srnic"),
            ("Falcon", "falcon"),
            ("UCCL", "uccl"),
        ]
        .map(|(name, protocol)| Self::new(name, protocol))
        .into()
    }

    /// A member of [`BOUNDED`]. `rate_bps` is the fixed rate.
    pub(crate) fn bounded(
        (name, protocol, is_fixed): (&'static str, &str, bool),
        deadline_ns: u64,
        rate_bps: u64,
    ) -> Self {
        let settings = TransportSettings {
            deadline: Some(Duration::from_nanos(deadline_ns)),
            rate: is_fixed.then_some(rate_bps),
            ..TransportSettings::new(protocol)
        };
        Self::of(name, &settings)
    }

    /// XP whose messages share the queue pair of their hosts, so that a message ends the one before it.
    pub(crate) fn xp_of_hosts(
        name: &'static str,
        complete_by: CompleteBy,
        deadline_ns: u64,
    ) -> Self {
        let settings = TransportSettings {
            deadline: Some(Duration::from_nanos(deadline_ns)),
            queue_pair: Some(QueuePairOf::Hosts),
            complete_by: Some(complete_by),
            ..TransportSettings::new("xp")
        };
        Self::of(name, &settings)
    }

    /// RoCE, with PFC or without, that never gives up, with an ACK timeout of InfiniBand: 4.096 us, doubled as many
    /// times as the exponent says.
    pub(crate) fn patient_roce(name: &'static str, protocol: &str, exponent: u32) -> Self {
        Self::patient(
            name,
            protocol,
            Some(Duration::from_nanos(4_096 << exponent)),
        )
    }

    /// Switches with marks as in DCQCN's paper.
    pub(crate) fn options(&self, buffer_bytes: u64) -> Options {
        let red = Red {
            kmin_bytes: 5_000,
            kmax_bytes: 200_000,
            pmax: 0.01,
            at: MarkAt::Departure,
            rate_bps: None,
        };
        Options::with_switches(SwitchConfig {
            buffer_bytes,
            ecn: self.marks.then_some(red),
            pfc: self.pauses.then(|| Pfc::new(&[PRIORITY])),
            ..SwitchConfig::default()
        })
    }

    /// Runs a workload.
    fn run(
        &self,
        topology: &Topology,
        buffer_bytes: u64,
        workload: &Workload,
        seed: u64,
    ) -> Result<Outcome, RunError> {
        run(&RunSetup {
            topology,
            options: &self.options(buffer_bytes),
            workload,
            transport: &self.transport,
            boxes: &[],
            changes: &[],
            seed,
            until_ns: None,
            recording: Recording::default(),
        })
    }

    /// Runs each of `subjects` with the workload of each seed from 1 on, on all cores. Returns what `measured`
    /// makes of the outcomes, by subject.
    pub(crate) fn run_all<T: Send>(
        subjects: &[Self],
        topology: &Topology,
        buffer_bytes: u64,
        workloads: &[Workload],
        measured: impl Fn(&Outcome) -> Option<T> + Sync,
    ) -> Result<Vec<Vec<T>>, String> {
        let runs: Vec<_> = subjects
            .iter()
            .flat_map(|subject| (1..).zip(workloads).map(move |of| (subject, of)))
            .collect();
        let results = parallel_map(&runs, |&(subject, (seed, workload))| {
            let failed = |why: String| format!("{}, seed {seed}: {why}", subject.name);
            let outcome = subject.run(topology, buffer_bytes, workload, seed);
            let outcome = outcome.map_err(|error| failed(error.to_string()))?;
            measured(&outcome).ok_or_else(|| failed("a flow is not done".into()))
        });
        let mut results = results.into_iter();
        let of_subject = |_| results.by_ref().take(workloads.len()).collect();
        subjects.iter().map(of_subject).collect()
    }
}

/// Bursts between random hosts: exponential lengths, and exponential silences.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bursts {
    pub(crate) senders: usize,
    pub(crate) burst_bytes: u64,
    pub(crate) silence_ns: u64,
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
}

impl Bursts {
    /// The flows of the bursts.
    pub(crate) fn workload(
        &self,
        network: &PatternNetwork,
        seed: u64,
    ) -> Result<Workload, Box<dyn Error>> {
        if self.senders == 0 {
            return Ok(Workload::default());
        }
        let pattern = Pattern::OnOff {
            senders: self.senders,
            burst: self.burst_bytes,
            silence: Duration::from_nanos(self.silence_ns),
            until: Duration::from_nanos(self.until_ns - self.from_ns),
        };
        let mut workload = pattern.build(network, seed, &[].into())?;
        for flow in &mut workload.flows {
            if let Start::At(at_ns) = &mut flow.start {
                *at_ns += self.from_ns;
            }
        }
        Ok(workload)
    }
}

/// Each host sends to the next one.
pub(crate) fn to_the_next(hosts: usize, bytes: u64, start_ns: u64) -> Vec<Flow> {
    let flow = |src| Flow::new(src, (src + 1) % hosts, bytes, start_ns);
    (0..hosts).map(flow).collect()
}

/// Rows as `make -C lab figures` reads them (`lab/python/paper_figures/rows.py`).
pub(crate) struct Table {
    figure: &'static str,
    conditions: String,
    rows: String,
}

impl Table {
    pub(crate) fn new(conditions: String, figure: &'static str) -> Self {
        let rows = "figure,panel,series,x,measure,value,conditions\n".to_owned();
        Self {
            figure,
            conditions,
            rows,
        }
    }

    /// Lets the following rows belong to another figure.
    pub(crate) fn turn_to(&mut self, figure: &'static str, conditions: String) {
        (self.figure, self.conditions) = (figure, conditions);
    }

    pub(crate) fn add(&mut self, panel: &str, series: &str, x: f64, measure: &str, value: f64) {
        let (figure, conditions) = (self.figure, &self.conditions);
        let row =
            format!(r#"{figure},"{panel}","{series}",{x},{measure},{value:.6},"{conditions}""#);
        let _ = writeln!(self.rows, "{row}");
    }

    pub(crate) fn csv(&self) -> &str {
        &self.rows
    }
}

/// The value that a share of the sorted values do not exceed (nearest rank).
pub(crate) fn at(sorted: &[f64], share: f64) -> f64 {
    quantile(sorted, share).unwrap_or(f64::NAN)
}
