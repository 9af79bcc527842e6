//! Plans and sweeps.

use farwrite_experiment::plan::{Plan, sweep};
use farwrite_experiment::{FlowEnd, Recording};
use farwrite_net::FrameDrop;

/// Records the queues of ports.
const PORTS: Recording = Recording {
    ports: true,
    host: None,
};

const FIRST: &str = r#"
[topology.rack]
shape = "star"
hosts = 8
cable = { rate = "100Gbit", delay = "1us" }

[workload.incast]
pattern = "incast"
senders = 7
size = "50kB"
"#;

const MATRIX: &str = "Nodes 8\nConnections 2\n0->1 start 0 size 20000\n2->1 start 0 size 20000\n";

/// Returns the files that the plans of these tests name.
fn files(name: &str) -> Result<String, String> {
    match name {
        "two.cm" => Ok(MATRIX.to_owned()),
        "sizes.txt" => Ok("0 0\n1000 100\n".to_owned()),
        _ => Err(format!("{name}: no such file")),
    }
}

fn read(text: &str) -> Result<Plan, String> {
    Plan::read(text, &files).map_err(|why| why.to_string())
}

#[test]
fn nine_lines_are_a_plan() {
    let plan = read(FIRST).unwrap();
    let outcomes = sweep(&plan, 1, Some((0, PORTS)), |_| true);
    assert_eq!(outcomes.len(), 1);
    let outcome = outcomes[0].outcome.as_ref().unwrap();
    assert_eq!((outcome.done(), outcome.totals.all_dropped()), (7, 0));
    // The queue before the receiver, which is a port of the only switch.
    let depths = &outcome.depths;
    assert_eq!(depths.ports.len(), 8);
    let deepest = depths.samples.iter().map(|depth| depth.deepest).max();
    assert_eq!(depths.ports[7].bytes.iter().copied().max(), deepest);
}

#[test]
fn a_capture_changes_nothing_and_has_each_packet() {
    for transport in ["roce", "farwrite-sr-nack"] {
        let plan = read(&format!("transport = [\"{transport}\"]\n{FIRST}")).unwrap();
        let of_host = |host| Recording { host, ports: false };
        let outcome = |host| {
            let mut outcomes = sweep(&plan, 1, Some((0, of_host(host))), |_| true);
            outcomes.remove(0).outcome.unwrap()
        };
        let mut captured = outcome(Some(7));
        let capture = captured.capture.take().unwrap();
        assert_eq!(captured, outcome(None));
        // The receiver gets all packets, and answers.
        assert!(capture.packets() > captured.packets(), "{transport}");
        assert_eq!(capture.left_out(), 0);
    }
    let plan = read(FIRST).unwrap();
    let recording = Recording {
        host: Some(8),
        ports: false,
    };
    let outcomes = sweep(&plan, 1, Some((0, recording)), |_| true);
    let why = outcomes[0].outcome.as_ref().unwrap_err();
    assert!(
        why.contains("host 8 cannot be captured: the hosts are 0 to 7"),
        "{why}"
    );
}

#[test]
fn a_plan_runs_each_combination_of_its_parts() {
    let more = r#"
        seeds = 3
        first_seed = 10
        loss = [0, 0.001]
    "#;
    let rest = r#"
        [workload.file]
        file = "two.cm"
        [workload.small]
        pattern = "poisson"
        load = 0.3
        sizes = "sizes.txt"
        flows = 50
        [transport.roce]
        protocol = "roce"
        [transport.short]
        protocol = "roce"
        mtu = 1024
    "#;
    let plan = read(&format!("{more}{FIRST}{rest}")).unwrap();
    let outcomes = sweep(&plan, 4, None, |_| true);
    // 3 workloads, 2 transports, 2 losses, 3 seeds.
    assert_eq!(outcomes.len(), 36);
    assert!(
        outcomes
            .iter()
            .zip(0..)
            .all(|(outcome, number)| outcome.case.number == number)
    );
    assert_eq!(
        outcomes.iter().map(|outcome| outcome.case.seed).max(),
        Some(12)
    );
    let done = outcomes
        .iter()
        .map(|outcome| outcome.outcome.as_ref().unwrap().done());
    assert_eq!(done.sum::<usize>(), 12 * (7 + 2 + 50));
    // The results are the same with another number of threads.
    let again = sweep(&plan, 1, None, |_| true);
    for (one, other) in outcomes.iter().zip(&again) {
        assert_eq!(one.outcome, other.outcome);
    }
}

#[test]
fn a_list_of_transports_runs_them_side_by_side() {
    let plan = read(&format!(
        "transport = [\"roce\", \"roce-nocc\", \"irn\", \"eqds\"]\n{FIRST}"
    ))
    .unwrap();
    assert!(plan.notes().is_empty(), "{:?}", plan.notes());
    let outcomes = sweep(&plan, 2, None, |_| true);
    let names: Vec<_> = outcomes
        .iter()
        .map(|outcome| plan.names(&outcome.case).transport)
        .collect();
    assert_eq!(names, ["roce", "roce-nocc", "irn", "eqds"]);
    let runs: Vec<_> = outcomes
        .iter()
        .map(|outcome| outcome.outcome.as_ref().unwrap())
        .collect();
    assert!(runs.iter().all(|run| run.done() == 7));
    // Each transport has the switches that it needs.
    let marked = runs.iter().map(|run| run.totals.marked > 0);
    assert!(marked.eq([true, false, true, false]));
    let trimmed = runs.iter().map(|run| run.totals.trimmed > 0);
    assert!(trimmed.eq([false, false, false, true]));
}

#[test]
fn switches_that_do_not_suit_a_transport_are_noted() {
    let plan = read(&format!(
        "transport = [\"eqds\", \"irn\", \"roce-nocc\"]\n{FIRST}\n[switch.plain]\nbuffer = \"9MB\"\n"
    ))
    .unwrap();
    let [eqds, irn] = plan.notes() else {
        panic!("{:?}", plan.notes());
    };
    assert!(eqds.starts_with("transport.eqds with switch.plain: the switches do not trim"));
    assert!(irn.starts_with("transport.irn with switch.plain: the switches do not mark"));
}

#[test]
fn a_sweep_can_be_stopped() {
    let plan = read(&format!("seeds = 50\n{FIRST}")).unwrap();
    let outcomes = sweep(&plan, 1, None, |_| false);
    assert!(outcomes.len() < 50);
}

/// The second run would take hours: 8 hosts send 1 TB each.
#[test]
fn a_stopped_sweep_keeps_finished_runs_and_does_not_wait_for_others() {
    let long = "[workload.long]\npattern = \"permutation\"\nsize = \"1TB\"\n";
    let plan = read(&format!("{FIRST}{long}")).unwrap();
    let mut ended = Vec::new();
    let outcomes = sweep(&plan, 1, None, |outcome| match outcome {
        Some(outcome) => {
            ended.push(outcome.case.number);
            true
        }
        // Nothing ended for a while: the long run is in progress.
        None => ended.is_empty(),
    });
    assert_eq!(ended, [0]);
    assert_eq!(outcomes.len(), 1);
    assert_eq!(outcomes[0].outcome.as_ref().map(|run| run.done()), Ok(7));
}

/// A text of the first plan, its replacement, and the resulting error.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "hosts = 8",
        "hosts = \"8\"",
        "topology.rack: hosts = \"8\": invalid type",
    ),
    (
        "hosts = 8",
        "host = 8",
        "topology.rack: host = 8: unknown field `host`, expected",
    ),
    ("hosts = 8", "", "topology.rack: missing field `hosts`"),
    (
        "hosts = 8",
        "hosts = 0",
        "topology.rack: hosts = 0: 1 to 65536",
    ),
    (
        "star",
        "ring",
        "topology.rack: shape = \"ring\": unknown variant `ring`, expected",
    ),
    (
        "100Gbit",
        "fast",
        "topology.rack: cable.rate = \"fast\": not a rate",
    ),
    (
        "delay = \"1us\"",
        "delay = \"soon\"",
        "topology.rack: cable.delay = \"soon\": not a time",
    ),
    (
        "shape",
        "shappe",
        "topology.rack: shappe: unknown field `shappe`; missing field `shape`",
    ),
    (
        "pattern",
        "patern",
        "workload.incast: patern: unknown field `patern`; missing field `pattern`",
    ),
    (
        "[topology.rack]",
        "[switch.s]\necn = { kmin = \"few\", kmax = \"9kB\", pmax = 1 }\n[topology.rack]",
        "switch.s: ecn.kmin = \"few\": not a size",
    ),
    (
        "[topology.rack]",
        "[switch.s]\nbuffer = \"1kB\"\n[topology.rack]",
        "topology.rack with switch.s: the buffer of switch0 has 1000 bytes beside its headroom, and \
         cannot hold a frame of 4178 bytes of transport.roce; give it more",
    ),
    (
        "[topology.rack]",
        "[switch.s]\nbuffer = \"200kB\"\npfc = { priorities = [3], xoff = { alpha = 1 }, headroom = \"24999\" \
         }\n[topology.rack]",
        "topology.rack with switch.s: the buffer of switch0 has 8 bytes beside its headroom",
    ),
    (
        "senders = 7",
        "senders = 8",
        "workload.incast: senders = 8: 1 to 7 on this topology",
    ),
    (
        "50kB",
        "0",
        "workload.incast: size = \"0\": a message has at least 1 byte",
    ),
    (
        "50kB",
        "99EB",
        "workload.incast: size = \"99EB\": a number of bytes is at most 9223372036854775808",
    ),
    (
        "50kB",
        "9999TB",
        "workload.incast: flow 0 has 9999000000000000 bytes; a run that has no end takes at most",
    ),
    (
        "shape = \"star\"",
        "file = \"x\"",
        "topology.rack: cable: an entry with a file has no other",
    ),
    (
        "[topology.rack]",
        "seeds = 0\n[topology.rack]",
        "seeds: 0: 1 to 100000",
    ),
    (
        "[topology.rack]",
        "loss = [2]\n[topology.rack]",
        "loss: 2: a probability from 0 to 0.5",
    ),
    (
        "[topology.rack]",
        "[switch.s]\nalpha = -1\n[topology.rack]",
        "switch.s: switch alpha = -1",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"tcp\"\n[topology.rack]",
        "transport.t: protocol = \"tcp\": choose one of roce",
    ),
    (
        "[topology.rack]",
        "transport = [\"tcp\"]\n[topology.rack]",
        "transport: protocol = \"tcp\": choose one of roce, roce-nocc, roce-lossy, irn, eqds, srnic, \
         falcon, uccl",
    ),
    (
        "[topology.rack]",
        "transport = \"irn\"\n[topology.rack]",
        "transport: \"irn\": write a list of protocols, such as",
    ),
    (
        "[topology.rack]",
        "transport = [\"irn\", \"irn\"]\n[topology.rack]",
        "transport: \"irn\" is in the list twice",
    ),
    (
        "[topology.rack]",
        "transport = []\n[topology.rack]",
        "transport: the list is empty",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"eqds\"\ndcqcn = \"ns3\"\n[topology.rack]",
        "transport.t: dcqcn: eqds has no such setting",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"farwrite-sr-nack\"\nwindow = 7\n[topology.rack]",
        "transport.t: window: farwrite-sr-nack has no such setting",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"irn\"\nnak_every = \"4us\"\n[topology.rack]",
        "transport.t: nak_every: irn has no such setting",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"roce-nocc\"\ngap_is_cnp = true\n[topology.rack]",
        "transport.t: gap_is_cnp: roce-nocc has no such setting",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"irn\"\nrate = \"1Gbit\"\n[topology.rack]",
        "transport.t: rate: irn has no such setting",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"farwrite-sr-nack\"\nrate = \"fast\"\n[topology.rack]",
        "transport.t: rate = \"fast\": ",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"farwrite-sr-nack\"\nport = 0\n[topology.rack]",
        "transport.t: port = 0: a port is a number from 1 to 65535",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"farwrite-sr-nack\"\nport = 65536\n[topology.rack]",
        "transport.t: port = 65536: a port is a number from 1 to 65535",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"irn\"\ndcqcn = \"fast\"\n[topology.rack]",
        "transport.t: dcqcn = \"fast\": unknown variant `fast`, expected",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"irn\"\ndcqcn = { g = 0.3 }\n[topology.rack]",
        "transport.t: dcqcn.g = 0.3: a power of two from 2^-16 to 1, such as 0.00390625",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"irn\"\ndcqcn = { K = \"0us\" }\n[topology.rack]",
        "transport.t: dcqcn.K = \"0us\": a time above 0",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"irn\"\ndcqcn = { F = 5000 }\n[topology.rack]",
        "transport.t: dcqcn.F = 5000: a number of steps from 0 to 1000",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"roce\"\ndcqcn = { preset = \"paper\", R_AL = \"1Mbit\" }\n[topology.rack]",
        "transport.t: dcqcn.R_AL = \"1Mbit\": unknown field `R_AL`, expected one of `preset`, `g`, `K`",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"falcon\"\nswift = { max_mdf = 1.5 }\n[topology.rack]",
        "transport.t: swift.max_mdf = 1.5: a number from 0 to 0.999999",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"falcon\"\nswift = { fs_min_cwnd = 200 }\n[topology.rack]",
        "transport.t: swift.fs_min_cwnd = 200 is not below swift.fs_max_cwnd = 100",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"roce\"\nswift = { ai = 1 }\n[topology.rack]",
        "transport.t: swift: roce has no such setting",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"irn\"\ntimeout = \"1ms\"\nirn = { RTO_high = \"1ms\" }\n[topology.rack]",
        "transport.t: timeout and irn.RTO_high are the same setting: give one of them",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"irn\"\nirn = { RTO_low = \"1ms\", RTO_high = \"500us\" }\n[topology.rack]",
        "transport.t: irn.RTO_low = 1ms is above RTO_high = 500us",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"farwrite-sr-nack+swift\"\neqds = { first_window = \"1kB\" }\n[topology.rack]",
        "transport.t: eqds: farwrite-sr-nack+swift has no such setting",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"eqds\"\neqds = { first_window = \"0B\" }\n[topology.rack]",
        "transport.t: eqds.first_window = \"0B\": at least 1 byte",
    ),
    (
        "hosts = 8",
        "hosts = 1",
        "topology.rack: hosts = 1: a workload needs at least 2 hosts",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"eqds\"\npaths = 0\n[topology.rack]",
        "transport.t: paths = 0: 1 to 16384",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"uccl\"\npaths = 16385\n[topology.rack]",
        "transport.t: paths = 16385: 1 to 16384",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"irn\"\npaths = 4\n[topology.rack]",
        "transport.t: paths: irn has no such setting; leave the key out",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"farwrite-sr-nack+eqds\"\npaths = 4\n[topology.rack]",
        "transport.t: paths: farwrite-sr-nack+eqds has no such setting; leave the key out",
    ),
    (
        "[topology.rack]",
        "[switch.s]\nbuffer = \"10kB\"\npfc = { priorities = [3], xoff = { alpha = 0.1 } }\n[topology.rack]",
        "topology.rack with switch.s: ",
    ),
];

#[test]
fn errors_name_the_key_the_value_and_what_would_do() {
    let error = |from: &str, to: &str| {
        assert!(FIRST.contains(from), "{from}");
        read(&FIRST.replacen(from, to, 1)).unwrap_err()
    };
    for (from, to, want) in WRONG {
        let got = error(from, to);
        assert!(got.starts_with(want), "{got}\nand not {want}");
    }
    let unknown = error("[workload.incast]", "[workloads.incast]");
    assert!(unknown.contains("unknown field `workloads`"), "{unknown}");
    let missing = read(&FIRST.replace(
        "[workload.incast]",
        "[workload.incast]\nfile = \"no.cm\"\n#",
    ));
    assert!(missing.unwrap_err().starts_with("workload.incast: "));
}

/// The plans for files that htsim publishes: each matrix with each number of paths.
#[test]
fn plans_for_published_files_are_valid() {
    let plans = [
        (16, 12, include_str!("../../plans/htsim-validate-16.toml")),
        (128, 2, include_str!("../../plans/htsim-validate-128.toml")),
        (
            1024,
            2,
            include_str!("../../plans/htsim-validate-1024.toml"),
        ),
        (432, 28, include_str!("../../plans/htsim-spray-432.toml")),
        (1024, 28, include_str!("../../plans/htsim-spray-1024.toml")),
    ];
    for (hosts, runs, text) in plans {
        // A matrix for as many hosts as the tree has.
        let matrix = format!(
            "Nodes {hosts}\nConnections 1\n{}->0 start 0 size 1000\n",
            hosts - 1
        );
        let plan = Plan::read(text, &|_: &str| Ok(matrix.clone())).unwrap();
        assert_eq!(plan.cases().len(), runs);
        assert!(plan.notes().is_empty(), "{:?}", plan.notes());
    }
}

/// With `paths`, the source ports of the senders choose paths, and the switches only hash them. Flows
/// of one path share cables while others are idle, so they end later and more of their packets are
/// trimmed.
#[test]
fn paths_spread_the_packets_of_a_flow() {
    let plan = read(
        r#"
        [topology.leaves]
        shape = "leaf-spine"
        leaves = 4
        spines = 4
        hosts_per_leaf = 4
        host_cable = { rate = "100Gbit", delay = "1us" }
        spine_cable = { rate = "100Gbit", delay = "1us" }
        [workload.all]
        pattern = "permutation"
        size = "1MB"
        [transport.1]
        protocol = "eqds"
        paths = 1
        [transport.2]
        protocol = "eqds"
        paths = 64
        [transport.3]
        protocol = "falcon"
        paths = 1
        [transport.4]
        protocol = "falcon"
        [transport.5]
        protocol = "eqds"
        "#,
    )
    .unwrap();
    let outcomes = sweep(&plan, 2, None, |_| true);
    let runs: Vec<_> = outcomes
        .into_iter()
        .map(|case| case.outcome.unwrap())
        .collect();
    assert!(runs.iter().all(|run| run.done() == 16));
    let [one, many, falcon_one, falcon, sprayed] = &runs[..] else {
        panic!("five transports");
    };
    // A source port has one path, unless the switches spray.
    assert_eq!([one, many].map(|run| run.totals.path_changes), [0, 0]);
    assert!(sprayed.totals.path_changes > 1000);
    for (one, many) in [(one, many), (falcon_one, falcon)] {
        assert!(many.last_done_ns() < one.last_done_ns());
    }
    assert!(many.totals.trimmed < one.totals.trimmed);
}

/// The values of the defaults change nothing, and others do.
#[test]
fn parameters_have_the_names_of_their_papers() {
    let hash = |protocol: &str, parameters: &str| {
        let transport = format!("[transport.t]\nprotocol = \"{protocol}\"\n{parameters}\n");
        let plan = read(&FIRST.replace("50kB", "2MB").replacen(
            "[topology.rack]",
            &format!("{transport}[topology.rack]"),
            1,
        ));
        let outcomes = sweep(&plan.unwrap(), 1, None, |_| true);
        outcomes[0].outcome.as_ref().unwrap().trace_hash
    };
    let paper = "{ g = 0.00390625, K = \"55us\", T = \"55us\", B = \"10MB\", F = 5, R_AI = \"40Mbit\", \
                 R_HAI = \"400Mbit\", N = \"50us\", min_rate = \"10Mbit\" }";
    let swift = "{ fs_range = \"100us\", fs_min_cwnd = 0.1, fs_max_cwnd = 100, ai = 1, beta = 0.8, \
                 max_mdf = 0.5, min_cwnd = 0.001, retx_reset_threshold = 5 }";
    let irn = "{ RTO_low = \"100us\", RTO_high = \"320us\", N = 3 }";
    for (protocol, key, defaults, other) in [
        ("roce", "dcqcn", paper, "{ T = \"5us\", F = 1 }"),
        ("roce", "dcqcn", "\"paper\"", "\"ns3\""),
        (
            "roce",
            "dcqcn",
            "{ preset = \"paper\" }",
            "{ preset = \"ns3\" }",
        ),
        (
            "roce",
            "dcqcn",
            "{ g = 0.00390625 }",
            "{ g = 0.25, K = \"10us\" }",
        ),
        ("falcon", "swift", swift, "{ base_target = \"200us\" }"),
        ("falcon", "swift", "{}", "{ beta = 0.2, max_mdf = 0.1 }"),
        ("irn", "irn", irn, "{ RTO_low = \"5us\", N = 100000 }"),
        ("eqds", "eqds", "{}", "{ first_window = \"200kB\" }"),
        (
            "farwrite-sr-nack+eqds",
            "eqds",
            "{}",
            "{ first_window = \"200kB\" }",
        ),
        (
            "farwrite-sr-nack+dcqcn",
            "dcqcn",
            paper,
            "{ N = \"0us\", g = 0.25 }",
        ),
        (
            "farwrite-sr-nack+swift",
            "swift",
            swift,
            "{ base_target = \"200us\" }",
        ),
    ] {
        let plain = hash(protocol, "");
        let set = |values: &str| hash(protocol, &format!("{key} = {values}"));
        assert_eq!(set(defaults), plain, "{protocol} {defaults}");
        assert_ne!(set(other), plain, "{protocol} {other}");
    }
}

#[test]
fn a_run_says_what_memory_it_needs() {
    let plan = read(FIRST).unwrap();
    let needed = plan.memory_bytes(1).unwrap();
    assert!((10_000..100_000_000).contains(&needed), "{needed}");
    let plan = read(&format!("seeds = 9\n{FIRST}")).unwrap();
    assert_eq!(plan.memory_bytes(4).unwrap(), 4 * needed);
}

/// A leaf-spine network with two hosts on each side, whose cables change.
fn changing(spines: u32, changes: &str) -> String {
    format!(
        r#"
        transport = ["irn"]
        [topology.fabric]
        shape = "leaf-spine"
        leaves = 2
        spines = {spines}
        hosts_per_leaf = 2
        host_cable = {{ rate = "10Gbit", delay = "1us" }}
        spine_cable = {{ rate = "10Gbit", delay = "1us" }}
        {changes}
        [workload.some]
        pattern = "flows"
        flows = [
            {{ src = 0, dst = 2, size = "5MB" }},
            {{ src = 1, dst = 3, size = "5MB" }},
        ]
        "#
    )
}

/// A change of the cable between the first leaf and the first spine.
fn change(keys: &str) -> String {
    format!("[[topology.fabric.changes]]\ncable = [\"leaf0\", \"spine0\"]\n{keys}\n")
}

/// The time until all flows are done, in microseconds, and the frames that were lost on a cable that
/// was down. `None` instead of the time if a flow fails.
fn outcome(plan: &Plan) -> (Option<u64>, u64) {
    let outcomes = sweep(plan, 1, Some((0, PORTS)), |_| true);
    let outcome = outcomes[0].outcome.as_ref().unwrap();
    let ends = outcome.flows.iter().map(|flow| match flow.end {
        FlowEnd::Done { at_ns } => Some(at_ns / 1_000),
        _ => None,
    });
    let ends: Option<Vec<_>> = ends.collect();
    let down = outcome.totals.dropped_for(FrameDrop::CableDown);
    (ends.and_then(|ends| ends.into_iter().max()), down)
}

#[test]
fn a_cable_that_is_down_for_a_while_delays_flows_by_that_time() {
    let run = |changes: &str| outcome(&read(&changing(1, changes)).unwrap());
    let (undisturbed, lost) = run("");
    let undisturbed = undisturbed.unwrap();
    // 10 MB over 10 Gbit/s.
    assert!((8_000..9_500).contains(&undisturbed), "{undisturbed} us");
    assert_eq!(lost, 0);
    let down = change("at = \"2ms\"\nstate = \"down\"") + &change("at = \"4ms\"\nstate = \"up\"");
    let (delayed, lost) = run(&down);
    let delayed = delayed.expect("the cable comes back");
    assert!(delayed >= undisturbed + 1_900, "{delayed} us");
    assert!(lost > 0);
    // Half of the bytes have passed when the rate falls to a half. A later change of the delay
    // keeps the rate.
    let slower =
        change("at = \"4ms\"\nrate = \"5Gbit\"") + &change("at = \"5ms\"\ndelay = \"2us\"");
    let (slowed, _) = run(&slower);
    let slowed = slowed.unwrap();
    assert!((11_000..14_000).contains(&slowed), "{slowed} us");
}

#[test]
fn switches_avoid_a_cable_that_is_down_once_they_have_new_routes() {
    let down = change("at = \"1ms\"\nstate = \"down\"");
    let text = changing(2, &down);
    let keeping = read(&text).unwrap();
    let note = "topology.fabric: cables go down or up, and switches keep their routes";
    assert!(
        keeping.notes()[0].starts_with(note),
        "{:?}",
        keeping.notes()
    );
    let moving = read(&format!("reroute = \"100us\"\n{text}")).unwrap();
    assert_eq!(moving.notes(), [] as [&str; 0]);
    let (time, lost) = outcome(&moving);
    // Both flows share the spine that is left, or have used it before.
    assert!(time.expect("there is another path") < 12_000, "{time:?} us");
    let (never, more_lost) = outcome(&keeping);
    // With the first seed, a flow hashes to the spine that is cut off.
    assert!(never.is_none(), "{never:?}");
    assert!(more_lost > lost && lost > 0, "{more_lost}, {lost}");
}

#[test]
fn changes_of_cables_are_refused_by_key_and_value() {
    for (changes, expected) in [
        (
            change("at = \"1ms\""),
            "topology.fabric: changes[0]: nothing changes; set state",
        ),
        (change("state = \"down\""), "changes[0]: missing field `at`"),
        (
            change("at = \"1ms\"\nstate = \"broken\""),
            "state = \"broken\": unknown variant",
        ),
        (change("at = \"1ms\"\nloss = 2.0"), "changes[0]: "),
        (
            change("at = \"1ms\"\nspeed = 2"),
            "speed = 2: unknown field",
        ),
        (
            change("at = \"1ms\"\nstate = \"up\"").replace("spine0", "spine9"),
            "the topology has no node \"spine9\"",
        ),
        (
            change("at = \"1ms\"\nstate = \"up\"").replace("spine0", "leaf1"),
            "no cable joins \"leaf0\" and \"leaf1\"",
        ),
    ] {
        let why = read(&changing(1, &changes)).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
}
