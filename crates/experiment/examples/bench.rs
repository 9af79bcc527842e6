//! How fast runs are, and what memory they take, on one core.
//!
//! `make bench-sim`
//!
//! A packet-hop is one packet, data or acknowledgement, that crosses one cable. Rates are per
//! second of processor time. Memory is what the process grows by at its peak.

use std::time::Duration;

use farwrite_experiment::{Flow, Pattern, Place, Scene, Transport, Workload, memory_bytes, run};
use farwrite_net::{CableConfig, LeafSpine, Options, Pfc, Shape, SwitchConfig, Topology};

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    if wants("memory") {
        memory();
    }
    let mut transport = Transport::new("roce-nocc");
    if wants("pair") {
        let flow = Workload::of(vec![Flow::new(0, 1, 2_000_000_000, 0)]);
        speed("2 hosts, one switch, 2 GB", &star(2), &flow, &transport);
    }
    if wants("clos") {
        for mtu in [4096, 1024] {
            transport.mtu = mtu;
            let name = format!("128 hosts, permutation of 25 MB, MTU {mtu}");
            speed(&name, &clos(), &permutation(128, 25_000_000), &transport);
        }
        transport.mtu = 4096;
    }
    if wants("tree") {
        let name = "432 hosts, three tiers, permutation of 2 MB";
        speed(name, &tree(), &permutation(432, 2_000_000), &transport);
    }
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
    let place = Place {
        hosts,
        rate_bps: 100_000_000_000,
    };
    let pattern = Pattern::Permutation { size };
    let workload = pattern.build(place, 1, &std::collections::BTreeMap::new());
    workload.expect("a valid pattern")
}

fn options() -> Options {
    Options::with_switches(SwitchConfig {
        pfc: Some(Pfc::new(&[3])),
        ..SwitchConfig::default()
    })
}

fn speed(name: &str, topology: &Topology, workload: &Workload, transport: &Transport) {
    let options = options();
    let scene = scene(topology, &options, workload, transport);
    let begun = processor_time();
    let outcome = run(&scene).expect("a valid scene");
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

/// The growth from many to very many of a kind, over their number.
fn memory() {
    let transport = Transport::new("roce-nocc");
    let flows = |count: usize| {
        let flows = (0..count).map(|number| Flow::new(number % 15, 15, 10_000, 0));
        grown(&star(16), &Workload::of(flows.collect()), &transport)
    };
    let hosts = |count: usize| {
        let workload = Workload::of(vec![Flow::new(0, 1, 1000, 0)]);
        grown(&star(count), &workload, &transport)
    };
    let [few, many] = [hosts(2_000), hosts(30_000)];
    println!("memory per host: {} bytes", (many.0 - few.0) / 28_000);
    println!("  estimated {}, taken {}", many.1, many.0);
    let [few, many] = [flows(10_000), flows(200_000)];
    println!("memory per flow: {} bytes", (many.0 - few.0) / 190_000);
    println!("  estimated {}, taken {}", many.1, many.0);
}

/// What a run adds to this process's memory at its peak, and the estimate.
fn grown(topology: &Topology, workload: &Workload, transport: &Transport) -> (i64, u64) {
    let options = Options::with_switches(SwitchConfig {
        buffer_bytes: 4 << 30,
        ..options().switch
    });
    let scene = scene(topology, &options, workload, transport);
    std::fs::write("/proc/self/clear_refs", "5").expect("Linux resets the peak");
    let before = status("VmRSS:");
    let outcome = run(&scene).expect("a valid scene");
    assert_eq!(outcome.done(), workload.flows.len(), "all flows end");
    (status("VmHWM:") - before, memory_bytes(&scene))
}

fn status(key: &str) -> i64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux says it here");
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok());
    kib.expect("a number of kB") * 1024
}

fn scene<'a>(
    topology: &'a Topology,
    options: &'a Options,
    workload: &'a Workload,
    transport: &'a Transport,
) -> Scene<'a> {
    Scene {
        topology,
        options,
        workload,
        transport,
        seed: 1,
        until_ns: None,
        keeps_ports: false,
    }
}

/// Processor time of this thread, so that other work on the machine does not count.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat");
    let text = text.expect("Linux says here how long a thread has run");
    let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.expect("the first number is in nanoseconds"))
}
