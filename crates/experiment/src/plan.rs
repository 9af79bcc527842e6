//! Plans: TOML files that describe many runs.

mod entries;
mod memory;
mod own_switches;
mod paths;
mod read;
mod sweep;
mod without_effect;
mod work;

pub use memory::PlanMemory;
pub use read::{PlanError, ReadFile};
pub use sweep::{CaseOutcome, SweepProgress, run_case_while, sweep};

use std::collections::BTreeMap;
use std::time::Duration;

use farwrite_net::{Network, Options, Role, SwitchConfig, Topology};
use farwrite_rc::Nic;

use crate::changes::{self, PlannedChange};
use crate::run::problem_of_boxes;
use crate::units::nanoseconds;
use crate::{
    CableChange, Extensions, PatternError, PatternNetwork, PlacedBox, Recording, RunSetup,
    Transport, Workload,
};
use entries::{PlannedTopology, WorkloadSource};
use read::Measure;
use work::Work;

/// The most runs of a plan.
const MOST_RUNS: usize = 1_000_000;
/// The most bytes of the text of a plan.
pub const MOST_BYTES: u64 = 16 << 20;
/// The most bytes of a file that a plan names, or of the results of another simulator.
pub const MOST_FILE_BYTES: u64 = 256 << 20;

/// A plan: topologies, switches, workloads, transports, losses and seeds. Each combination is a
/// run.
#[derive(Debug)]
pub struct Plan {
    topologies: Vec<(String, PlannedTopology)>,
    workloads: Vec<(String, WorkloadSource)>,
    /// If empty: the switches of the topology, or else those that the transport needs.
    switches: Vec<(String, SwitchConfig)>,
    transports: Vec<(String, Transport)>,
    /// Loss of each cable; `None`: the loss of the topology.
    losses: Vec<Option<f64>>,
    seeds: Vec<u64>,
    framing_bytes: Option<u32>,
    /// Buffer of all switches; `None`: that of their settings.
    buffer_bytes: Option<u64>,
    reroute: Option<Duration>,
    until: Option<Duration>,
    measure: Measure,
    notes: Vec<String>,
}

/// One run of a plan, by the indices of its parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// Index among all cases.
    pub number: usize,
    /// Index of the setting, from 0. Cases that differ only in the seed have the same setting.
    pub setting: usize,
    topology: usize,
    workload: usize,
    switch: Option<usize>,
    transport: usize,
    /// Loss of each cable; `None`: the loss of the topology.
    pub loss: Option<f64>,
    /// The seed.
    pub seed: u64,
}

/// The names of a case's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaseNames<'a> {
    /// Name of the topology.
    pub topology: &'a str,
    /// Name of the workload.
    pub workload: &'a str,
    /// Name of the switches; `default` if the plan has none.
    pub switch: &'a str,
    /// Name of the transport.
    pub transport: &'a str,
}

/// The values that a case needs to run.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseParts {
    /// Nodes and cables.
    pub topology: Topology,
    /// The boxes of the topology.
    pub boxes: Vec<PlacedBox>,
    /// The changes of its cables.
    pub changes: Vec<CableChange>,
    /// Switches and other options of the network.
    pub options: Options,
    /// Flows and triggers.
    pub workload: Workload,
    /// The transport of the hosts.
    pub transport: Transport,
    /// For each node number of a peer's topology, the index among the hosts; `None` for a switch.
    pub host_of: Vec<Option<usize>>,
    seed: u64,
    until_ns: Option<u64>,
}

impl Plan {
    /// Reads a plan and checks all combinations of its parts. `read_file` reads the files that the
    /// plan names.
    ///
    /// # Errors
    /// [`PlanError`] names the key, the value and what is accepted.
    pub fn read(text: &str, read_file: ReadFile<'_>) -> Result<Self, PlanError> {
        Self::read_with(text, read_file, &Extensions::new())
    }

    /// The same, with the controllers, load balancers and repairs of a program.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn read_with(
        text: &str,
        read_file: ReadFile<'_>,
        extensions: &Extensions,
    ) -> Result<Self, PlanError> {
        let mut plan = read::read(text, read_file, extensions)?;
        let notes = plan.check()?;
        plan.notes.extend(notes);
        Ok(plan)
    }

    /// Removes the workloads for whose names `keep` returns false.
    pub fn keep_workloads(&mut self, keep: impl Fn(&str) -> bool) {
        self.workloads.retain(|(name, _)| keep(name));
    }

    /// Notes, one line each: parts of input files that were ignored, and transports that do not
    /// work as intended with the switches of the plan.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// All runs. The runs of one setting, with their seeds, are adjacent.
    #[must_use]
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for (setting, blank) in self.settings().into_iter().enumerate() {
            for &seed in &self.seeds {
                cases.push(Case {
                    number: cases.len(),
                    setting,
                    seed,
                    ..blank
                });
            }
        }
        cases
    }

    /// One case of each setting.
    fn settings(&self) -> Vec<Case> {
        let switches: Vec<_> = match self.switches.len() {
            0 => vec![None],
            count => (0..count).map(Some).collect(),
        };
        let mut settings = Vec::new();
        for topology in 0..self.topologies.len() {
            for workload in 0..self.workloads.len() {
                for &switch in &switches {
                    for transport in 0..self.transports.len() {
                        settings.extend(self.losses.iter().map(|&loss| Case {
                            number: 0,
                            setting: 0,
                            topology,
                            workload,
                            switch,
                            transport,
                            loss,
                            seed: self.seeds[0],
                        }));
                    }
                }
            }
        }
        settings
    }

    /// The names of a case's parts.
    #[must_use]
    pub fn names(&self, case: &Case) -> CaseNames<'_> {
        let switch = case.switch.map(|at| self.switches[at].0.as_str());
        CaseNames {
            topology: &self.topologies[case.topology].0,
            workload: &self.workloads[case.workload].0,
            switch: switch.unwrap_or("default"),
            transport: &self.transports[case.transport].0,
        }
    }

    /// Builds what a case needs.
    ///
    /// # Errors
    /// [`PlanError`] where the parts do not fit together.
    pub fn parts(&self, case: &Case) -> Result<CaseParts, PlanError> {
        let (name, site) = &self.topologies[case.topology];
        let (workload_name, flows) = &self.workloads[case.workload];
        let (transport_name, transport) = &self.transports[case.transport];
        let place_error = |why: String| PlanError::at(&format!("topology.{name}"), why);
        let flow_error = |why: String| PlanError::at(&format!("workload.{workload_name}"), why);
        let laid = site.build(flows.failures()).map_err(place_error)?;
        let hosts = laid.topology.hosts().count();
        if hosts < 2 {
            return Err(place_error(PatternError::FewHosts { hosts }.to_string()));
        }
        let network = PatternNetwork {
            rates_bps: host_rates(&laid.topology),
        };
        let workload = flows
            .build(&network, case.seed, &laid.host_of)
            .map_err(flow_error)?;
        workload
            .validate(hosts)
            .map_err(|why| flow_error(why.to_string()))?;
        paths::check(&laid.topology, &workload.flows).map_err(flow_error)?;
        let until_ns = self.until.map(nanoseconds);
        workload
            .check_end(until_ns)
            .map_err(|why| flow_error(why.to_string()))?;
        let carried = transport.check_flows(&workload.flows);
        carried.map_err(|why| flow_error(format!("with transport.{transport_name}: {why}")))?;
        let are_default = case.switch.is_none() && laid.options.is_none();
        let mut options = self.options(case, laid.options, &workload);
        entries::adopt(&mut options, &laid.switches);
        if let Some(bytes) = self.buffer_bytes {
            let of_files = options.exceptions.values_mut();
            for switch in of_files.chain([&mut options.switch]) {
                switch.buffer_bytes = bytes;
            }
        }
        let mut topology = laid.topology;
        if let Some(loss) = case.loss {
            entries::set_loss(&mut topology, loss);
        }
        let boxes = site.place_boxes(&mut topology).map_err(place_error)?;
        if are_default && self.buffer_bytes.is_none() {
            entries::enlarge_buffers(&mut options, &topology);
        }
        own_switches::apply(&site.switches, &topology, &mut options).map_err(place_error)?;
        let changes = changes::resolve(&site.changes, &topology).map_err(place_error)?;
        Ok(CaseParts {
            topology,
            boxes,
            changes,
            options,
            workload,
            transport: transport.clone(),
            host_of: laid.host_of,
            seed: case.seed,
            until_ns,
        })
    }

    /// The switches of the plan, those of the topology's file, or those that the transport needs for
    /// the workload. Other options of the file hold unless the plan has them too.
    fn options(&self, case: &Case, of_file: Option<Options>, workload: &Workload) -> Options {
        let has_file = of_file.is_some();
        let mut options = of_file.unwrap_or_default();
        options.framing_bytes = self.framing_bytes.unwrap_or(options.framing_bytes);
        options.reroute = self.reroute.or(options.reroute);
        if let Some(at) = case.switch {
            options.switch = self.switches[at].1.clone();
            options.exceptions.clear();
        } else if !has_file {
            let transport = &self.transports[case.transport].1;
            options.switch = entries::switch_for(transport, workload, options.framing_bytes);
        }
        options
    }

    /// What endpoints do at the start of a flow that `farwrite plan` does not count: the name of each
    /// transport, and a text.
    #[must_use]
    pub fn start_costs(&self) -> Vec<(&str, String)> {
        let transports = self.transports.iter();
        let costs = transports
            .filter_map(|(name, transport)| Some((name.as_str(), transport.start_costs()?)));
        costs.collect()
    }

    /// The `id` of each flow in the connection matrix of a case; empty for other workloads.
    #[must_use]
    pub fn flow_ids(&self, case: &Case) -> &[Option<u64>] {
        self.workloads[case.workload].1.flow_ids()
    }

    /// Refuses plans of very many runs before they are listed.
    fn check_runs(&self) -> Result<(), PlanError> {
        let parts = [
            ("topologies", self.topologies.len()),
            ("workloads", self.workloads.len()),
            ("switches", self.switches.len().max(1)),
            ("transports", self.transports.len()),
            ("losses", self.losses.len()),
            ("seeds", self.seeds.len()),
        ];
        let runs = parts
            .iter()
            .fold(1, |runs: usize, (_, count)| runs.saturating_mul(*count));
        if runs <= MOST_RUNS {
            return Ok(());
        }
        let parts = parts
            .map(|(name, count)| format!("{count} {name}"))
            .join(", ");
        let why = format!("{runs} ({parts}): a plan has at most {MOST_RUNS}");
        Err(PlanError::at("runs", why))
    }

    /// Builds each setting once, up to a network that could run. Returns the notes.
    fn check(&self) -> Result<Vec<String>, PlanError> {
        self.check_runs()?;
        let mut checked: BTreeMap<_, Vec<Options>> = BTreeMap::new();
        let mut notes = Vec::new();
        let mut work = Work::default();
        let seeds = self.seeds.len() as u64;
        for case in self.settings() {
            let parts = self.parts(&case)?;
            work.add(parts.work().times(seeds));
            let unstarted = parts.workload.never_start();
            if let [first, ..] = unstarted[..] {
                notes.push(format!(
                    "workload.{}: {} of {} flows never start, the first one is flow {first}: they wait \
                     for a trigger that no flow activates, or too few for its count",
                    self.names(&case).workload,
                    unstarted.len(),
                    parts.workload.flows.len()
                ));
            }
            notes.extend(without_effect::notes(
                &parts,
                self.names(&case),
                self.measure,
            ));
            // Default switches depend on the workload.
            let loss = case.loss.map(f64::to_bits);
            let key = (case.topology, case.switch, case.transport, loss);
            let options = checked.entry(key).or_default();
            if options.contains(&parts.options) {
                continue;
            }
            options.push(parts.options.clone());
            let names = self.names(&case);
            if let Some(lack) = parts.transport.lacks(&parts.options.switch) {
                let at = format!("transport.{} with switch.{}", names.transport, names.switch);
                notes.push(format!("{at}: {lack}"));
            }
            let site = &self.topologies[case.topology].1;
            let moves_routes = site.changes.iter().any(PlannedChange::moves_routes);
            if moves_routes && parts.options.reroute.is_none() {
                notes.push(format!(
                    "topology.{}: cables go down or up, and switches keep their routes; set reroute, \
                     the time until they have new ones",
                    names.topology
                ));
            }
            if let Some(note) = problem_of_boxes(&parts.setup(Recording::default())) {
                let at = format!(
                    "topology.{} with transport.{}",
                    names.topology, names.transport
                );
                notes.push(format!("{at}: {note}"));
            }
            let nic = |node, _: &farwrite_net::Node| Nic::new(node);
            let error = |why: String| {
                let at = format!("topology.{} with switch.{}", names.topology, names.switch);
                PlanError::at(&at, why)
            };
            let network = Network::new(&parts.topology, &parts.options, 0, nic);
            let network = network.map_err(|why| error(why.to_string()))?;
            parts.check_buffers(&network).map_err(|why| {
                error(format!(
                    "{why} of transport.{}; give it more",
                    names.transport
                ))
            })?;
        }
        notes.extend(work.note(self.cases().len()));
        notes.sort_unstable();
        notes.dedup();
        Ok(notes)
    }
}

impl CaseParts {
    /// Checks that each switch can hold a frame of the transport. Otherwise, no flow could end.
    fn check_buffers(&self, network: &Network<Nic>) -> Result<(), String> {
        let need = self.transport.frame_bytes(self.options.framing_bytes);
        let exceptions = self.options.exceptions.values();
        let mut switches = exceptions.chain([&self.options.switch]);
        let trims = switches.find_map(|switch| switch.trim.filter(|at| at.queue_bytes < need));
        if let Some(trim) = trims {
            let bytes = trim.queue_bytes;
            return Err(format!(
                "trim.queue = {bytes} cannot hold a frame of {need} bytes"
            ));
        }
        for switch in self.topology.with_role(Role::Switch) {
            let bytes = network.shared_buffer_bytes(switch);
            if bytes < need {
                let name = &self.topology.nodes()[switch.0 as usize].name;
                return Err(format!(
                    "the buffer of {name} has {bytes} bytes beside its headroom, and cannot hold a \
                     frame of {need} bytes"
                ));
            }
        }
        Ok(())
    }

    /// The setup to run. `recording` is the field of [`RunSetup`].
    #[must_use]
    pub fn setup(&self, recording: Recording) -> RunSetup<'_> {
        RunSetup {
            topology: &self.topology,
            options: &self.options,
            workload: &self.workload,
            transport: &self.transport,
            boxes: &self.boxes,
            changes: &self.changes,
            seed: self.seed,
            until_ns: self.until_ns,
            recording,
        }
    }
}

/// Rate of each host's first cable in bits per second; 1 if it has none.
fn host_rates(topology: &Topology) -> Vec<u64> {
    let mut rates = vec![None; topology.nodes().len()];
    for cable in topology.cables() {
        for end in cable.ends {
            rates[end.0 as usize].get_or_insert(cable.seen_from(end).rate_bps);
        }
    }
    let of_hosts = topology.hosts().map(|host| rates[host.0 as usize]);
    of_hosts.map(|rate| rate.unwrap_or(1)).collect()
}
