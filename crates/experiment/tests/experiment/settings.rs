//! Settings of transports in plans, and what they change.

use farwrite_experiment::plan::{Plan, sweep};

use crate::plans::{FIRST, read};

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
        ("roce", "dcqcn", "{}", "{ var_win = \"20kB\" }"),
        (
            "roce",
            "dcqcn",
            "{ ns3_timing = false }",
            "{ preset = \"ns3\", ns3_timing = true }",
        ),
        ("falcon", "swift", swift, "{ base_target = \"200us\" }"),
        ("falcon", "swift", "{}", "{ beta = 0.2, max_mdf = 0.1 }"),
        ("irn", "irn", irn, "{ RTO_low = \"5us\", N = 100000 }"),
        ("eqds", "eqds", "{}", "{ first_window = \"200kB\" }"),
        (
            "farwrite-sr-nack@eqds",
            "eqds",
            "{}",
            "{ first_window = \"200kB\" }",
        ),
        (
            "farwrite-sr-nack@dcqcn",
            "dcqcn",
            paper,
            "{ N = \"0us\", g = 0.25 }",
        ),
        (
            "farwrite-sr-nack@swift",
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

/// With a window that follows the rate of DCQCN, no flow has more in flight than a bandwidth-delay product and one
/// packet, so the buffer holds at most that much of each flow.
#[test]
fn the_window_of_dcqcn_bounds_bytes_in_flight() {
    let peak = |dcqcn: &str| {
        let plan = format!(
            "framing_bytes = 0\n{}[switch.marks]\nbuffer = \"64MiB\"\n\
             ecn = {{ kmin = \"100kB\", kmax = \"400kB\", pmax = 0.2, rate = \"25Gbit\" }}\n\
             [transport.t]\nprotocol = \"roce-lossy\"\nmtu = 1024\ndcqcn = {dcqcn}\n",
            FIRST.replace("50kB", "2MB")
        );
        let outcomes = sweep(&read(&plan).unwrap(), 1, None, |_| true);
        let outcome = outcomes[0].outcome.as_ref().unwrap();
        assert_eq!((outcome.done(), outcome.totals.all_dropped()), (7, 0));
        outcome.totals.peak_queued_bytes
    };
    // Of a path with two cables of 100 Gbit/s and 1 us: delays, and the times of a full packet and its
    // acknowledgement.
    let round_trip_ns = 4 * 1000 + 2 * (1084 + 64) * 8 / 100;
    let window_bytes = round_trip_ns * 100 / 8;
    let most = 7 * (window_bytes + 1084);
    let with_window = peak("\"ns3-vwin\"");
    assert!(
        (most / 2..=most).contains(&with_window),
        "{with_window} of {most}"
    );
    let given = peak(&format!(
        "{{ preset = \"ns3\", var_win = \"{}\" }}",
        window_bytes / 2
    ));
    assert!(given <= most / 2 + 7 * 1084, "{given} of {most}");
    let without = peak("\"ns3\"");
    assert!(without > 2 * most, "{without} without a window");
}

/// Plans of the last release work as they did, with one note.
#[test]
fn a_control_of_the_rate_after_a_plus_is_noted_once() {
    let with = |names: &str| read(&format!("transport = {names}\n{FIRST}")).unwrap();
    let old = with("[\"farwrite-sr-nack+dcqcn\", \"farwrite-gbn+eqds\"]");
    let [note] = old.notes() else {
        panic!("{:?}", old.notes());
    };
    assert!(
        note.starts_with("farwrite-sr-nack+dcqcn is now written farwrite-sr-nack@dcqcn"),
        "{note}"
    );
    let new = with("[\"farwrite-sr-nack@dcqcn\", \"farwrite-gbn@eqds\"]");
    assert!(new.notes().is_empty());
    let hashes = |plan| {
        let outcomes = sweep(plan, 1, None, |_| true).into_iter();
        outcomes
            .map(|case| case.outcome.unwrap().trace_hash)
            .collect::<Vec<_>>()
    };
    assert_eq!(hashes(&old), hashes(&new));
}
