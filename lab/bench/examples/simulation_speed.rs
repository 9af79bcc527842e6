//! Measures the speed and the memory of runs, on one core.
//!
//! `make -C lab bench-sim`
//!
//! A packet-hop is one packet, data or acknowledgement, that crosses one cable. Rates are per
//! second of processor time. Memory is the growth of the process at its peak.

use std::time::Duration;

use clap::Parser;
use farwrite_experiment::{
    Flow, Pattern, PatternNetwork, Recording, RunSetup, Transport, TransportSettings, Workload,
    memory_bytes, run,
};
use farwrite_net::{CableConfig, LeafSpine, Options, Pfc, Shape, SwitchConfig, Topology};

#[derive(Parser)]
struct Args {
    /// What is measured; without any, all
    #[arg(value_parser = ["memory", "pair", "clos", "tree", "endpoints"])]
    parts: Vec<String>,
    /// Prints the memory of one run, which has a process of its own: a transport, what there are many of,
    /// and their number
    #[arg(long, num_args = 3, value_names = ["TRANSPORT", "KIND", "COUNT"], hide = true)]
    grown: Option<Vec<String>>,
}

fn main() {
    let Args { parts, grown } = Args::parse();
    if let Some([transport, kind, count]) = grown.as_deref() {
        print_grown(transport, kind, count.parse().expect("a number"));
        return;
    }
    let wants = |name: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == name);
    if wants("memory") {
        memory();
    }
    let nics = TransportSettings::new("roce-nocc");
    if wants("pair") {
        pair("2 hosts, one switch, 2 GB", 2_000_000_000, &made(&nics));
    }
    if wants("clos") {
        // With one acknowledgement for each packet, the packets are those of htsim.
        for (mtu, ack_every) in [(4096, None), (4096, Some(1)), (1024, None)] {
            let nics = TransportSettings {
                mtu,
                ack_every,
                ..nics.clone()
            };
            let acks = ack_every.map_or_else(String::new, |every| format!(", ACK each {every}"));
            let name = format!("128 hosts, 25 MB each, MTU {mtu}{acks}");
            speed(&name, &clos(), &permutation(128, 25_000_000), &made(&nics));
        }
    }
    if wants("tree") {
        let name = "432 hosts, three tiers, permutation of 2 MB";
        speed(name, &tree(), &permutation(432, 2_000_000), &made(&nics));
    }
    if wants("endpoints") {
        for scheme in ["sr-nack", "ec-mds:32,8"] {
            let endpoints = made(&TransportSettings::new(&format!("farwrite-{scheme}")));
            let name = |of: &str| format!("{scheme}, {of}");
            pair(&name("2 hosts, 200 MB"), 200_000_000, &endpoints);
            let flows = permutation(128, 2_500_000);
            speed(&name("128 hosts, 2.5 MB"), &clos(), &flows, &endpoints);
            let flows = permutation(432, 200_000);
            speed(&name("432 hosts, 200 kB"), &tree(), &flows, &endpoints);
        }
    }
}

fn pair(name: &str, bytes: u64, transport: &Transport) {
    let flow = Workload::of(vec![Flow::new(0, 1, bytes, 0)]);
    speed(name, &star(2), &flow, transport);
}

fn cable() -> CableConfig {
    CableConfig::new(100_000_000_000, Duration::from_micros(1))
}

fn star(hosts: usize) -> Topology {
    let cable = cable();
    Shape::Star { hosts, cable }.build().expect("a valid shape")
}

fn clos() -> Topology {
    let clos = Shape::LeafSpine(LeafSpine {
        leaves: 16,
        spines: 8,
        hosts_per_leaf: 8,
        host_cable: cable(),
        spine_cable: cable(),
    });
    clos.build().expect("a valid shape")
}

fn tree() -> Topology {
    let tree = Shape::FatTree {
        k: 12,
        host_cable: cable(),
        pod_cable: cable(),
        core_cable: cable(),
    };
    tree.build().expect("a valid shape")
}

fn permutation(hosts: usize, size: u64) -> Workload {
    let network = PatternNetwork::uniform(hosts, 100_000_000_000);
    let pattern = Pattern::Permutation { size };
    let workload = pattern.build(&network, 1, &std::collections::BTreeMap::new());
    workload.expect("a valid pattern")
}

/// Switches for the transport: lossless ones for NICs, and ones that drop for endpoints.
fn options(transport: &Transport) -> Options {
    Options::with_switches(SwitchConfig {
        pfc: (!is_endpoint(transport)).then(|| Pfc::new(&[3])),
        ..SwitchConfig::default()
    })
}

fn made(settings: &TransportSettings) -> Transport {
    settings.transport().expect("valid settings")
}

fn is_endpoint(transport: &Transport) -> bool {
    matches!(transport, Transport::Endpoint { .. })
}

fn speed(name: &str, topology: &Topology, workload: &Workload, transport: &Transport) {
    let options = options(transport);
    let setup = setup(topology, &options, workload, transport);
    let begun = processor_time();
    let outcome = run(&setup).expect("a valid setup");
    let took = (processor_time() - begun).as_secs_f64();
    assert_eq!(
        outcome.done(),
        workload.flows.len(),
        "{name}: all flows end"
    );
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    let per_second = |count: u64| count as f64 / took / 1e6;
    println!(
        "{name:<44} {:>6.2} s: {:.2} M packet-hops/s, {:.2} M events/s, {} packet-hops, trace {:016x}",
        took,
        per_second(outcome.totals.transmitted),
        per_second(outcome.events),
        outcome.totals.transmitted,
        outcome.trace_hash,
    );
}

/// Prints the memory of one more host, flow and packet: growth from a large number to a larger one,
/// divided by the difference.
fn memory() {
    growth("roce-nocc", "host", [2_000, 30_000]);
    growth("roce-nocc", "flow", [10_000, 200_000]);
    growth("farwrite-sr-nack", "host", [1_000, 10_000]);
    for scheme in ["sr-rto", "sr-nack", "gbn", "ec-xor:32,8", "ec-mds:32,8"] {
        let transport = format!("farwrite-{scheme}");
        growth(&transport, "flow", [100, 1_000]);
        growth(&transport, "packet", [1 << 15, 1 << 18]);
    }
}

/// Prints how much memory one more item of a kind takes, and the estimate for the larger number.
/// Each number runs in its own process, because a process keeps the memory that it frees.
fn growth(transport: &str, kind: &str, counts: [usize; 2]) {
    let program = std::env::current_exe().expect("the name of this program");
    let [few, many] = counts.map(|count| {
        let count = count.to_string();
        let child = std::process::Command::new(&program)
            .args(["--grown", transport, kind, &count])
            .output();
        let output = child.expect("this program starts").stdout;
        let text = String::from_utf8(output).expect("text");
        let (taken, estimated) = text.trim().split_once(' ').expect("two numbers");
        let number = |text: &str| text.parse::<i64>().expect("a number");
        (number(taken), number(estimated))
    });
    let more = i64::try_from(counts[1] - counts[0]).expect("a small number");
    println!(
        "memory of a {kind:<6} of {transport:<20} {:>6} bytes; of {}: estimated {}, taken {}",
        (many.0 - few.0) / more,
        counts[1],
        many.1,
        many.0
    );
}

/// Prints the memory of a run and its estimate: for `count` hosts, or `count` flows of 10 kB from
/// 15 hosts to one, or `count` packets in one message.
fn print_grown(transport: &str, kind: &str, count: usize) {
    let mut settings = TransportSettings::new(transport);
    if is_endpoint(&made(&settings)) {
        settings.rate = Some(match kind {
            "packet" => 90_000_000_000,
            _ => 5_000_000_000,
        });
    }
    let transport = made(&settings);
    let one = |bytes| Workload::of(vec![Flow::new(0, 1, bytes, 0)]);
    let (taken, estimated) = match kind {
        "host" => grown(&star(count), &one(1000), &transport),
        "flow" => {
            let flows = (0..count).map(|number| Flow::new(number % 15, 15, 10_000, 0));
            grown(&star(16), &Workload::of(flows.collect()), &transport)
        }
        _ => {
            let bytes = count as u64 * u64::from(transport.mtu());
            grown(&star(2), &one(bytes), &transport)
        }
    };
    println!("{taken} {estimated}");
}

/// Growth of this process's memory at the peak of a run, and the estimate.
fn grown(topology: &Topology, workload: &Workload, transport: &Transport) -> (i64, u64) {
    let options = Options::with_switches(SwitchConfig {
        buffer_bytes: 4 << 30,
        ..options(transport).switch
    });
    let setup = setup(topology, &options, workload, transport);
    std::fs::write("/proc/self/clear_refs", "5").expect("Linux resets the peak");
    let before = status("VmRSS:");
    let outcome = run(&setup).expect("a valid setup");
    assert_eq!(outcome.done(), workload.flows.len(), "all flows end");
    (status("VmHWM:") - before, memory_bytes(&setup))
}

fn status(key: &str) -> i64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux says it here");
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok());
    kib.expect("a number of kB") * 1024
}

fn setup<'a>(
    topology: &'a Topology,
    options: &'a Options,
    workload: &'a Workload,
    transport: &'a Transport,
) -> RunSetup<'a> {
    RunSetup {
        topology,
        options,
        workload,
        transport,
        boxes: &[],
        changes: &[],
        seed: 1,
        until_ns: None,
        recording: Recording::default(),
    }
}

/// Processor time of this thread, so that other work on the machine does not count.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat");
    let text = text.expect("Linux says here how long a thread has run");
    let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.expect("the first number is in nanoseconds"))
}
