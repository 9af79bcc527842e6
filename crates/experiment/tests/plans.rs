//! Plans and sweeps.

use farwrite_experiment::plan::{Plan, sweep};

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

/// The files that the plans of these tests name.
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
    let outcomes = sweep(&plan, 1, Some(0), |_| true);
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
        "topology.rack: cable = (table): \"fast\": not a rate",
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
        "[transport.t]\nprotocol = \"irn\"\ndcqcn = \"fast\"\n[topology.rack]",
        "transport.t: dcqcn = \"fast\": unknown variant `fast`, expected",
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

#[test]
fn a_run_says_what_memory_it_needs() {
    let plan = read(FIRST).unwrap();
    let needed = plan.memory_bytes(1).unwrap();
    assert!((10_000..100_000_000).contains(&needed), "{needed}");
    let plan = read(&format!("seeds = 9\n{FIRST}")).unwrap();
    assert_eq!(plan.memory_bytes(4).unwrap(), 4 * needed);
}
