//! Targets of the experiment and net crates: plans, and files of other simulators.

use farwrite_experiment::other_simulators::{self, HtsimTopology, ns3};
use farwrite_experiment::plan::Plan;
use farwrite_units::parse::parse_simulated;
use toml::{Table, Value};

/// Larger networks and workloads are possible and only take longer: an input with a number from the first of
/// these on is skipped, unless the number is so large that it is refused.
const LARGE_NETWORK: i64 = 9;
const LARGE_WORKLOAD: i64 = 1000;
const REFUSED: i64 = 1 << 24;
/// Most settings of a plan that is not skipped.
const SETTINGS: usize = 8;

/// A plan, and the files that it names: files are separated by bytes of 0, and their names are numbers from 1
/// on. What a plan needs can be estimated.
pub fn plan(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let files: Vec<&str> = text.split('\0').collect();
    let is_small = |text: &&str| text.parse().is_ok_and(|table| is_small_plan(&table));
    if files
        .iter()
        .any(|text| !is_small(text) && !is_small_file(text))
    {
        return;
    }
    let read_file = |name: &str| {
        let number = name.parse().unwrap_or(0_usize);
        let file = files.get(number).filter(|_| number > 0);
        file.map(|text| (*text).to_owned())
            .ok_or_else(|| format!("{name}: there is no such file"))
    };
    if let Ok(plan) = Plan::read(files[0], &read_file) {
        plan.sweep_bytes(2, None).expect("it was checked");
    }
}

/// A network in a TOML file. What was read is valid.
pub fn network(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let topology = text.parse::<Table>().ok();
    let topology = topology.and_then(|mut table| table.remove("topology"));
    if topology.is_some_and(|topology| has_number(&topology, LARGE_NETWORK)) {
        return;
    }
    if let Ok((topology, _)) = farwrite_net::read_toml(&text) {
        assert_eq!(topology.validate(), Ok(()));
    }
}

/// A topology of htsim. It is built if it is small.
pub fn htsim_topology(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(read) = HtsimTopology::read("file", &text) else {
        return;
    };
    if read.hosts() <= 256 {
        let built = read.build(&[], "").expect("nothing failed");
        assert_eq!(built.topology.hosts().count(), read.hosts());
    }
}

/// A connection matrix of htsim. Its flows are between its hosts.
pub fn htsim_connections(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(read) = other_simulators::connections("file", &text) else {
        return;
    };
    assert_eq!(read.workload.flows.len(), read.ids.len());
    let ends = read
        .workload
        .flows
        .iter()
        .flat_map(|flow| [flow.src, flow.dst]);
    assert!(ends.into_iter().all(|host| host < read.nodes));
    let _ = read.workload.validate(read.nodes);
}

/// A topology of ns-3. Its nodes are hosts and switches.
pub fn ns3_topology(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(read) = ns3::topology("file", &text) else {
        return;
    };
    assert_eq!(read.host_of.len(), read.topology.nodes().len());
    let hosts = read.host_of.iter().flatten().count();
    assert_eq!(hosts, read.topology.hosts().count());
    let _ = read.topology.validate();
}

/// Nodes for the files that name them: hosts 0 to 5, and a switch.
const NODES: [Option<usize>; 7] = [Some(0), Some(1), Some(2), Some(3), Some(4), Some(5), None];

/// Flows of ns-3. They are between hosts.
pub fn ns3_flows(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(workload) = ns3::flows("file", &text, &NODES) {
        assert!(
            workload
                .flows
                .iter()
                .all(|flow| flow.src < 6 && flow.dst < 6)
        );
        let _ = workload.validate(6);
    }
}

/// A size distribution of ns-3.
pub fn ns3_sizes(data: &[u8]) {
    let _ = ns3::sizes("file", &String::from_utf8_lossy(data));
}

/// Completion times that another simulator has written. They are matched with two flows.
pub fn peer_times(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(read) = other_simulators::completion_times("file", &text, &NODES) else {
        return;
    };
    let flows = ns3::flows("flows", "2\n0 1 3 1000 0\n1 2 3 1000 1e-6", &NODES);
    let flows = flows.expect("valid").flows;
    let matching = other_simulators::match_flows(&flows, &[Some(1), None], &read);
    assert_eq!(
        matching.pairs.len() + matching.only_theirs.len(),
        read.len()
    );
}

/// Whether a plan has few settings, and its networks and workloads are small.
fn is_small_plan(plan: &Table) -> bool {
    let entries = |key: &str| match plan.get(key) {
        Some(Value::Table(table)) => table.len().max(1),
        Some(Value::Array(list)) => list.len().max(1),
        _ => 1,
    };
    let settings = ["topology", "workload", "switch", "transport", "loss"].map(entries);
    let settings = settings.into_iter().fold(1, usize::saturating_mul);
    let is_large = |key, from| plan.get(key).is_some_and(|value| has_number(value, from));
    let is_long = plan.get("workload").is_some_and(has_long_bursts);
    settings <= SETTINGS
        && !is_long
        && !is_large("topology", LARGE_NETWORK)
        && !is_large("workload", LARGE_WORKLOAD)
}

/// Whether there is a number that is large and not refused.
fn has_number(value: &Value, from: i64) -> bool {
    match value {
        Value::Integer(number) => (from..=REFUSED).contains(number),
        Value::Array(list) => list.iter().any(|value| has_number(value, from)),
        Value::Table(table) => table.iter().any(|(_, value)| has_number(value, from)),
        _ => false,
    }
}

/// Whether there is a pattern of bursts with many bursts.
fn has_long_bursts(value: &Value) -> bool {
    let time = |value: Option<&Value>| parse_simulated(value?.as_str()?).ok();
    match value {
        Value::Table(table) => {
            let times = time(table.get("until")).zip(time(table.get("silence")));
            times.is_some_and(|(until, silence)| until > silence.saturating_mul(1000))
                || table.iter().any(|(_, value)| has_long_bursts(value))
        }
        Value::Array(list) => list.iter().any(has_long_bursts),
        _ => false,
    }
}

/// Whether a file of another simulator is a small topology, or no topology.
fn is_small_file(text: &str) -> bool {
    let htsim = HtsimTopology::read("", text).map_or(0, |topology| topology.hosts());
    let ns3 = ns3::topology("", text).map_or(0, |topology| topology.host_of.len());
    htsim.max(ns3) <= 64
}
