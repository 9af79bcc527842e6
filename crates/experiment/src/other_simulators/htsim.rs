//! Topologies of htsim.

use std::collections::BTreeMap;
use std::time::Duration;

use farwrite_net::{CableConfig, MAX_CABLES, MAX_NODES, NodeId, Role, Topology};

use super::words::{Line, at_end, lines};
use super::{CableFailure, ImportedTopology, InputError, Tier};

/// A topology of two or three tiers from a `.topo` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HtsimTopology {
    hosts: usize,
    pod_hosts: usize,
    tiers: Vec<Settings>,
}

/// One tier: its switches and the cables below them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Settings {
    line: usize,
    /// In bits per second.
    speed: Option<usize>,
    radix_down: Option<usize>,
    radix_up: Option<usize>,
    oversubscribed: Option<usize>,
    bundle: Option<usize>,
    delay_ns: Option<usize>,
    switch_latency_ns: Option<usize>,
    queue_down: Option<usize>,
    queue_up: Option<usize>,
}

/// Number of switches in each tier.
struct Counts {
    leaves: usize,
    leaves_per_pod: usize,
    spines: usize,
    spines_per_pod: usize,
    cores: usize,
}

impl HtsimTopology {
    /// Reads a `.topo` file.
    ///
    /// # Errors
    /// [`InputError`]: a line that cannot be read, a key that is missing, or tiers that do not fit
    /// together.
    pub fn read(file: &str, text: &str) -> Result<Self, InputError> {
        let mut header = [None; 3];
        let mut tiers: Vec<Option<Settings>> = vec![None; 3];
        let mut tier = None;
        for line in lines(file, text) {
            let key = line.words[0].to_ascii_lowercase();
            if line.words.len() == 1 {
                let what = format!("{} has no value: KEY NUMBER", line.words[0]);
                return Err(line.error(what));
            }
            if line.words.len() > 2 {
                let count = line.words.len();
                return Err(line.error(format!("{count} words: a line is written KEY NUMBER")));
            }
            let value: usize = match key.as_str() {
                "downlink_speed_gbps" => speed_bps(&line)?,
                _ => line.number(1, line.words[0], "a whole number from 0 on")?,
            };
            match key.as_str() {
                "nodes" | "podsize" if value > MAX_NODES => {
                    let what = format!("{} is {value}: at most {MAX_NODES}", line.words[0]);
                    return Err(line.error(what));
                }
                "nodes" => line.store(&mut header[0], positive(&line, value)?)?,
                "tiers" => line.store(&mut header[1], positive(&line, value)?)?,
                "podsize" => line.store(&mut header[2], positive(&line, value)?)?,
                "tier" => {
                    if value > 2 {
                        return Err(line.error(format!("Tier is {value}: 0, 1 or 2")));
                    }
                    tier = Some(value);
                    tiers[value].get_or_insert_default().line = line.number;
                }
                _ => {
                    let Some(settings) = tier.and_then(|tier| tiers[tier].as_mut()) else {
                        let what = format!("{} comes before a line Tier N", line.words[0]);
                        return Err(line.error(what));
                    };
                    settings.take(&line, &key, value)?;
                }
            }
        }
        let missing = |name: &str| at_end(file, text, format!("the line {name} N is missing"));
        let [hosts, count, pod] = header;
        let count = count.ok_or_else(|| missing("Tiers"))?;
        if !(2..=3).contains(&count) {
            return Err(at_end(file, text, format!("Tiers is {count}: 2 or 3")));
        }
        let mut found = Vec::new();
        for (number, settings) in tiers.into_iter().take(count).enumerate() {
            let missing = || at_end(file, text, format!("the line Tier {number} is missing"));
            found.push(settings.ok_or_else(missing)?);
        }
        let topology = Self {
            hosts: hosts.ok_or_else(|| missing("Nodes"))?,
            pod_hosts: pod.ok_or_else(|| missing("Podsize"))?,
            tiers: found,
        };
        topology.counts().map_err(|(tier, what)| InputError {
            file: file.to_owned(),
            line: topology.tiers[tier].line,
            what,
        })?;
        Ok(topology)
    }

    /// Number of hosts.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.hosts
    }

    /// Builds the nodes and cables, without the failed cables. `file` is the name of the file with
    /// the failures, for errors.
    ///
    /// # Errors
    /// [`InputError`] for a failure of a cable that the topology does not have.
    pub fn build(
        &self,
        failures: &[CableFailure],
        file: &str,
    ) -> Result<ImportedTopology, InputError> {
        // `read` has already checked the counts.
        let counts = self.counts().unwrap_or(Counts {
            leaves: 0,
            leaves_per_pod: 1,
            spines: 0,
            spines_per_pod: 1,
            cores: 0,
        });
        let mut wiring = Wiring {
            tree: self,
            topology: Topology::new(),
            failures: BTreeMap::new(),
        };
        for failure in failures {
            let key = (failure.tier, failure.switch, failure.link);
            wiring.failures.entry(key).or_default().push(failure.line);
        }
        let hosts = wiring.add(Role::Host, "host", self.hosts);
        let leaves = wiring.add(Role::Switch, "leaf", counts.leaves);
        let spines = wiring.add(Role::Switch, "spine", counts.spines);
        let cores = wiring.add(Role::Switch, "core", counts.cores);
        let per_leaf = self.tiers[0].radix_down.unwrap_or(1);
        for (at, &host) in hosts.iter().enumerate() {
            wiring
                .topology
                .connect(host, leaves[at / per_leaf], self.cable(0));
        }
        for (at, &leaf) in leaves.iter().enumerate() {
            let pod = at / counts.leaves_per_pod;
            let above = &spines[pod * counts.spines_per_pod..][..counts.spines_per_pod];
            for (link, &spine) in above.iter().enumerate() {
                wiring.connect(leaf, spine, (Tier::Leaf, at, link));
            }
        }
        for (at, &spine) in spines.iter().enumerate() {
            let index = at % counts.spines_per_pod;
            let above = cores.iter().skip(index).step_by(counts.spines_per_pod);
            for (link, &core) in above.enumerate() {
                wiring.connect(spine, core, (Tier::Spine, at, link));
            }
        }
        wiring.check(file)?;
        let tiers = [(leaves, 0), (spines, 1), (cores, 2)];
        let tiers = tiers.into_iter().filter(|(nodes, _)| !nodes.is_empty());
        let switches = tiers.flat_map(|(nodes, tier)| {
            let settings = self.tiers[tier];
            let latency = settings.switch_latency_ns.unwrap_or(0) as u64;
            nodes
                .into_iter()
                .map(move |node| (node, latency, settings.buffer()))
        });
        Ok(ImportedTopology {
            switches: switches.collect(),
            topology: wiring.topology,
            host_of: (0..self.hosts).map(Some).collect(),
            notes: self.notes(),
        })
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        let has_queues = self.tiers.iter().any(|tier| tier.queue_down.is_some());
        let note = "Queue_Down and Queue_Up count as one buffer that the ports of a switch share, and \
                    only without PFC";
        has_queues.then(|| note.to_owned()).into_iter().collect()
    }

    fn cable(&self, tier: usize) -> CableConfig {
        let settings = self.tiers[tier];
        let bps = settings.speed.unwrap_or(1) as u64;
        let delay = Duration::from_nanos(settings.delay_ns.unwrap_or(0) as u64);
        CableConfig::new(bps, delay)
    }

    /// The number of switches in each tier, computed from the port counts in the file. The error
    /// has the tier whose keys do not fit, and the reason.
    fn counts(&self) -> Result<Counts, (usize, String)> {
        for (tier, settings) in self.tiers.iter().enumerate() {
            settings
                .check(tier + 1 == self.tiers.len())
                .map_err(|what| (tier, what))?;
        }
        let [down0, up0] = self.ports(0);
        let [down1, up1] = self.ports(1);
        let fits = |tier, names: [&str; 2], whole: usize, part: usize| match part {
            1.. if whole.is_multiple_of(part) => Ok(whole / part),
            _ => {
                let [of, by] = names;
                Err((
                    tier,
                    format!("{of} is {whole}, which is no multiple of {by}, {part}"),
                ))
            }
        };
        let pods = fits(0, ["Nodes", "Podsize"], self.hosts, self.pod_hosts)?;
        let leaves_per_pod = fits(0, ["Podsize", "Radix_Down"], self.pod_hosts, down0)?;
        let bundle1 = self.tiers[1].bundle.unwrap_or(1);
        let spines_per_pod = fits(0, ["Radix_Up", "the Bundle of tier 1"], up0, bundle1)?;
        let wanted = leaves_per_pod * bundle1;
        if down1 != wanted {
            let what = format!(
                "Radix_Down is {down1}: {leaves_per_pod} switches below with {bundle1} cables each need {wanted}"
            );
            return Err((1, what));
        }
        let oversubscribed = self.tiers[0].oversubscribed.unwrap_or(1);
        let speeds = [0, 1].map(|tier| self.tiers[tier].speed.unwrap_or(1));
        if down0 * speeds[0] != oversubscribed * up0 * speeds[1] {
            let speeds = speeds.map(|bps| farwrite_units::show::real(bps as u64) / 1e9);
            let what = format!(
                "{down0} ports down of {} Gbit/s and {up0} up of {} Gbit/s are not oversubscribed \
                 {oversubscribed} times: change Oversubscribed, Radix_Down or Radix_Up",
                speeds[0], speeds[1]
            );
            return Err((0, what));
        }
        let spines = spines_per_pod.saturating_mul(pods);
        let leaves = leaves_per_pod * pods;
        let mut cores = 0;
        if self.tiers.len() == 3 {
            let bundle2 = self.tiers[2].bundle.unwrap_or(1);
            let cores_per_spine = fits(1, ["Radix_Up", "the Bundle of tier 2"], up1, bundle2)?;
            cores = cores_per_spine.saturating_mul(spines_per_pod);
            let down2 = self.ports(2)[0];
            if down2 != pods * bundle2 {
                let what = format!(
                    "Radix_Down is {down2}: {pods} pods with {bundle2} cables each need {}",
                    pods * bundle2
                );
                return Err((2, what));
            }
        } else if pods != 1 {
            let what = format!(
                "Podsize is {}: with two tiers, make it Nodes, {}",
                self.pod_hosts, self.hosts
            );
            return Err((0, what));
        }
        let counts = Counts {
            leaves,
            leaves_per_pod,
            spines,
            spines_per_pod,
            cores,
        };
        self.check_sizes(&counts).map_err(|what| (0, what))?;
        Ok(counts)
    }

    /// Checks the numbers of nodes and cables before [`Self::build`] makes them.
    fn check_sizes(&self, counts: &Counts) -> Result<(), String> {
        let Counts {
            leaves,
            spines,
            cores,
            ..
        } = *counts;
        let nodes = [self.hosts, leaves, spines, cores].into_iter();
        let nodes = nodes.fold(0, usize::saturating_add);
        if nodes > MAX_NODES {
            return Err(format!(
                "hosts and switches are {nodes}: at most {MAX_NODES}"
            ));
        }
        let [up0, up1] = [0, 1].map(|tier| self.ports(tier)[1]);
        let cables = leaves.saturating_mul(up0).max(spines.saturating_mul(up1));
        if cables > MAX_CABLES {
            return Err(format!(
                "a tier has {cables} cables up: at most {MAX_CABLES}"
            ));
        }
        Ok(())
    }

    /// Ports of a switch of a tier: down and up.
    fn ports(&self, tier: usize) -> [usize; 2] {
        let settings = self.tiers[tier];
        [settings.radix_down, settings.radix_up].map(|ports| ports.unwrap_or(0))
    }
}

/// A topology under construction, and the failures that have not matched a cable yet.
struct Wiring<'a> {
    tree: &'a HtsimTopology,
    topology: Topology,
    /// The lines of the failures of each bundle.
    failures: BTreeMap<Bundle, Vec<usize>>,
}

/// A bundle of cables: the tier and index of the lower switch, and the index of the bundle there.
type Bundle = (Tier, usize, usize);

impl Wiring<'_> {
    fn add(&mut self, role: Role, name: &str, count: usize) -> Vec<NodeId> {
        let names = (0..count).map(|number| format!("{name}{number}"));
        names.map(|name| self.topology.add(role, name)).collect()
    }

    /// Connects two switches by a bundle of cables, without as many cables as have failed.
    fn connect(&mut self, lower: NodeId, upper: NodeId, key: Bundle) {
        let tier = if key.0 == Tier::Leaf { 1 } else { 2 };
        let failed = self.failures.remove(&key).map_or(0, |lines| lines.len());
        let cables = self.tree.tiers[tier].bundle.unwrap_or(1);
        let cables = cables.saturating_sub(failed);
        for _ in 0..cables {
            self.topology.connect(lower, upper, self.tree.cable(tier));
        }
    }

    /// Checks that all failures matched a cable.
    fn check(&self, file: &str) -> Result<(), InputError> {
        let first = self.failures.iter().min_by_key(|(_, lines)| lines[0]);
        let Some((&(_, switch, link), lines)) = first else {
            return Ok(());
        };
        Err(InputError {
            file: file.to_owned(),
            line: lines[0],
            what: format!(
                "the topology has no cable {link} up from switch {switch} of that type: choose one \
                 of TOR or AGG that it has"
            ),
        })
    }
}

impl Settings {
    fn take(&mut self, line: &Line<'_>, key: &str, value: usize) -> Result<(), InputError> {
        let field = match key {
            "downlink_speed_gbps" => &mut self.speed,
            "radix_down" => &mut self.radix_down,
            "radix_up" => &mut self.radix_up,
            "oversubscribed" => &mut self.oversubscribed,
            "bundle" => &mut self.bundle,
            "downlink_latency_ns" => &mut self.delay_ns,
            "switch_latency_ns" => &mut self.switch_latency_ns,
            "queue_down" => &mut self.queue_down,
            "queue_up" => &mut self.queue_up,
            _ => {
                let what = format!(
                    "{} is no key of a tier: Downlink_speed_Gbps, Radix_Down, Radix_Up, \
                     Oversubscribed, Bundle, Downlink_Latency_ns, Switch_Latency_ns, Queue_Down and \
                     Queue_Up are",
                    line.words[0]
                );
                return Err(line.error(what));
            }
        };
        let may_be_0 = ["switch_latency_ns", "downlink_latency_ns"].contains(&key);
        let value = if may_be_0 {
            value
        } else {
            positive(line, value)?
        };
        let is_small = !key.ends_with("_ns") && !key.starts_with("queue_");
        let most = match key {
            "downlink_speed_gbps" => usize::MAX,
            _ if is_small => 1 << 20,
            _ => 1_000_000_000,
        };
        if value > most {
            return Err(line.error(format!("{} is {value}: at most {most}", line.words[0])));
        }
        if field.replace(value).is_some() {
            return Err(line.error(format!("{} is there twice in this tier", line.words[0])));
        }
        Ok(())
    }

    fn check(&self, is_top: bool) -> Result<(), String> {
        let needed = [
            ("Downlink_speed_Gbps", self.speed, true),
            ("Radix_Down", self.radix_down, true),
            ("Downlink_Latency_ns", self.delay_ns, true),
            ("Radix_Up", self.radix_up, !is_top),
        ];
        for (name, value, needed) in needed {
            if needed && value.is_none() {
                return Err(format!("{name} of this tier is missing"));
            }
        }
        Ok(())
    }

    /// The total capacity of the queues of all ports.
    fn buffer(&self) -> Option<u64> {
        let down = self.queue_down? as u64 * self.radix_down.unwrap_or(0) as u64;
        let up = self.queue_up.unwrap_or(0) as u64 * self.radix_up.unwrap_or(0) as u64;
        Some(down + up)
    }
}

/// A speed in bits per second, from Gbit/s.
fn speed_bps(line: &Line<'_>) -> Result<usize, InputError> {
    const WANT: &str = "Gbit/s, from 0.001 to 1048576, such as 100 or 12.5";
    let gbps: f64 = line.number(1, line.words[0], WANT)?;
    if !(0.001..=1_048_576.0).contains(&gbps) {
        return Err(line.error(format!("{} is {gbps}: {WANT}", line.words[0])));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked just above"
    )]
    Ok((gbps * 1e9).round() as usize)
}

fn positive(line: &Line<'_>, value: usize) -> Result<usize, InputError> {
    match value {
        0 => Err(line.error(format!("{} is 0: at least 1", line.words[0]))),
        value => Ok(value),
    }
}
