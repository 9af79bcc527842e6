//! Input files of other simulators.

use crate::common;
use farwrite_experiment::other_simulators::{
    FileKind, HtsimTopology, Tier, connections, kind_of, ns3,
};
use farwrite_experiment::plan::Plan;
use farwrite_experiment::{Flow, FlowEnd, Start, Transport, TriggerKind, run};
use farwrite_net::{Loss, Options, Role};

const MATRIX: &str = "\
# four hosts
Nodes 4
Connections 3
Triggers 2
Failures 1

0->1 id 1 start 1500000 size 2000 send_done_trigger 7 prio 3
1->2 id 2 trigger 7 size 3000 recv_done_trigger 9
2->3 id 3 trigger 9 size 4000
trigger id 7 oneshot
trigger id 9 barrier count 1
failure switch_type AGG switch_id 1 link_id 0
";

#[test]
fn a_connection_matrix_becomes_flows_and_triggers() {
    let read = connections("x.cm", MATRIX).unwrap();
    assert_eq!(read.nodes, 4);
    assert_eq!(
        read.workload.flows,
        [
            Flow {
                when_sent: Some(0),
                ..Flow::new(0, 1, 2000, 1500)
            },
            Flow {
                start: Start::On(0),
                when_received: Some(1),
                ..Flow::new(1, 2, 3000, 0)
            },
            Flow {
                start: Start::On(1),
                ..Flow::new(2, 3, 4000, 0)
            },
        ]
    );
    let kinds: Vec<_> = read.workload.triggers.iter().map(|at| at.kind).collect();
    assert_eq!(kinds, [TriggerKind::OneShot, TriggerKind::Barrier(1)]);
    let failure = read.failures[0];
    assert_eq!(
        (failure.tier, failure.switch, failure.link),
        (Tier::Spine, 1, 0)
    );
    assert!(read.notes[0].contains("prio"));
}

/// In htsim, a flow of size 0 and one without a size send until the simulation ends. They keep their
/// starts and triggers, and flows with a size beside them end.
#[test]
fn flows_without_a_size_send_until_the_run_ends() {
    for size in ["size 0", ""] {
        let text = format!(
            "Nodes 4\nConnections 3\nTriggers 1\n0->1 id 1 start 0 size 100000 send_done_trigger 1\n\
             2->1 id 2 start 0 {size}\n3->0 id 3 trigger 1 {size}\ntrigger id 1 oneshot\n"
        );
        let read = connections("x.cm", &text).unwrap();
        let endless: Vec<_> = read.workload.flows.iter().map(Flow::is_endless).collect();
        assert_eq!(endless, [false, true, true]);
        let topology = common::star(4, 100, 1000);
        let options = Options::default();
        let transport = Transport::new("roce-nocc").unwrap();
        let mut setup = common::setup(&topology, &options, &read.workload, &transport);
        let refused = run(&setup).unwrap_err().to_string();
        assert!(refused.starts_with("flow 1 has no size"), "{refused}");
        assert!(refused.contains("until"), "{refused}");
        // Longer than a WRITE of 1 GiB takes.
        setup.until_ns = Some(100_000_000);
        let outcome = run(&setup).unwrap();
        assert_eq!((outcome.done(), outcome.end_ns), (1, 100_000_000));
        let [sized, early, triggered] = [0, 1, 2].map(|flow| outcome.flows[flow]);
        assert!(sized.time_ns().is_some());
        assert_eq!([early.end, triggered.end], [FlowEnd::Unfinished; 2]);
        assert_eq!(
            triggered.start_ns,
            sized.start_ns.zip(sized.time_ns()).map(|(a, b)| a + b)
        );
        for flow in [early, triggered] {
            // Both use their links almost alone: 1.25 GB in 100 ms.
            assert!(flow.packets * 4096 > 1 << 30, "{} packets", flow.packets);
            assert_eq!((flow.ideal_ns, flow.slowdown()), (None, None));
            let gbps = flow.endless_goodput_bps(outcome.end_ns).expect("no end") / 1e9;
            assert!((90.0..100.0).contains(&gbps), "{gbps} Gbit/s");
        }
        assert_eq!(sized.endless_goodput_bps(outcome.end_ns), None);
        let all_gbps = outcome.endless_goodput_bps().expect("two flows") / 1e9;
        assert!((180.0..200.0).contains(&all_gbps), "{all_gbps} Gbit/s");
    }
}

/// ns-3 reads as many lines as the first one announces. Published files have more.
#[test]
fn lines_beyond_the_announced_ones_are_noted() {
    let topology = "3 1 2\n0\n0 1 100Gbps 1us 0\n0 2 100Gbps 1us 0\n1 2 100Gbps 1us 0\n";
    let flows = "1\n1 2 3 100 9000 2\n2 1 3 100 9000 2\n\nFirst line: # of flows\n";
    let files = |name: &str| match name {
        "t.txt" => Ok(topology.to_owned()),
        _ => Ok(flows.to_owned()),
    };
    let text = "[topology.t]\nfile = \"t.txt\"\n[workload.f]\nfile = \"f.txt\"\n";
    let plan = Plan::read(text, &files).unwrap();
    let parts = plan.parts(&plan.cases()[0]).unwrap();
    assert_eq!(
        (parts.topology.cables().len(), parts.workload.flows.len()),
        (2, 1)
    );
    let is_ignored = "on are ignored, as in ns-3: the first line announces";
    assert_eq!(
        plan.notes(),
        [
            format!("t.txt: lines from 5 {is_ignored} 2 cables"),
            format!("f.txt: lines from 3 {is_ignored} 1 flows"),
        ]
    );
}

#[test]
fn a_byte_order_mark_is_ignored() {
    let marked = |text: &str| format!("\u{feff}{text}");
    assert_eq!(
        connections("x.cm", &marked(MATRIX)),
        connections("x.cm", MATRIX)
    );
    let files = |name: &str| match name {
        "t.topo" => Ok(marked(TREE)),
        _ => Ok(marked(
            "Nodes 16\nConnections 1\n0->1 id 1 start 0 size 2000\n",
        )),
    };
    let text = "[topology.t]\nfile = \"t.topo\"\n[workload.f]\nfile = \"f.cm\"\n";
    Plan::read(text, &files).unwrap();
}

#[test]
fn what_a_matrix_has_twice_is_refused() {
    for (from, to, want) in [
        (
            "id 2 trigger",
            "id 1 trigger",
            "x.cm:8: id 1 is that of another flow",
        ),
        (
            "size 2000",
            "size 2000 size 5",
            "x.cm:7: size is there twice: keep one",
        ),
        (
            "Nodes 4",
            "Nodes 4\nNodes 4",
            "x.cm:3: the line Nodes N is there twice: keep one",
        ),
    ] {
        assert!(MATRIX.contains(from), "{from}");
        let error = connections("x.cm", &MATRIX.replacen(from, to, 1)).unwrap_err();
        assert_eq!(error.to_string(), want);
    }
}

#[test]
fn errors_of_a_matrix_name_file_line_value_and_remedy() {
    let error = |text: &str| connections("x.cm", text).unwrap_err().to_string();
    let cases = [
        (
            "0->1 id 1",
            "0->9 id 1",
            "x.cm:7: \"0->9\": hosts are 0 to 3",
        ),
        (
            "size 2000",
            "size many",
            "x.cm:7: size is \"many\": a whole number of bytes, or 0 for a flow without an end",
        ),
        (
            "size 2000",
            "sice 2000",
            "x.cm:7: \"sice\" is no part of a flow: a flow is written",
        ),
        (
            "size 2000",
            "msg size 2000",
            "x.cm:7: msg: several messages",
        ),
        (
            "start 1500000",
            "",
            "x.cm:7: 0->1 has 0 of start and trigger, and needs one",
        ),
        (
            "start 1500000",
            "start -1",
            "x.cm:7: start is -1: picoseconds, from 0 to 8.64e16 (a day)",
        ),
        ("id 2 trigger", "id 0 trigger", "x.cm:8: id is 0"),
        (
            "trigger id 7 oneshot\n",
            "",
            "x.cm:11: Triggers is 2, and the file has 1",
        ),
        (
            "id 7 oneshot",
            "id 9 oneshot",
            "x.cm:11: trigger 9 is there twice",
        ),
        (
            "barrier count 1",
            "barrier",
            "x.cm:11: a barrier needs a count",
        ),
        (
            "Connections 3",
            "Connections 4",
            "x.cm:12: Connections is 4, and the file has 3",
        ),
        ("Nodes 4", "Nodes 1", "x.cm:2: Nodes is 1: at least 2"),
        (
            "AGG",
            "EDGE",
            "x.cm:12: switch_type is \"EDGE\": a failure is",
        ),
        ("Nodes 4", "Hosts 4", "x.cm:2: \"Hosts\" begins no line"),
    ];
    for (from, to, want) in cases {
        assert!(MATRIX.contains(from), "{from}");
        let got = error(&MATRIX.replacen(from, to, 1));
        assert!(got.starts_with(want), "{got}\nand not {want}");
    }
}

const TREE: &str = "\
Nodes 16
Tiers 3
Podsize 4
# hosts at 2 leaves of each pod
Tier 0
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 4
Downlink_Latency_ns 2000
Switch_Latency_ns 300
Queue_Down 100000
Queue_Up 50000
Tier 2
Downlink_speed_Gbps 100
Radix_Down 8
Downlink_Latency_ns 3000
Bundle 2
";

#[test]
fn a_tree_has_the_switches_that_its_ports_need() {
    let read = HtsimTopology::read("x.topo", TREE).unwrap();
    let built = read.build(&[], "").unwrap();
    let topology = built.topology;
    topology.validate().unwrap();
    assert_eq!(topology.hosts().count(), 16);
    // 4 pods of 2 leaves and 2 spines; each spine has 2 cables to each of its 2 cores.
    for (name, count) in [("leaf", 8), ("spine", 8), ("core", 4)] {
        let found = topology
            .nodes()
            .iter()
            .filter(|node| node.name.starts_with(name));
        assert_eq!(found.count(), count, "{name}");
    }
    assert_eq!(topology.cables().len(), 16 + 16 + 8 * 4);
    let spine = topology.find("spine0").unwrap();
    let own = built
        .switches
        .iter()
        .find(|(node, ..)| *node == spine)
        .unwrap();
    assert_eq!((own.1, own.2), (300, Some(2 * 100_000 + 4 * 50_000)));
    let core = topology.find("core0").unwrap();
    let long = topology.cables()[topology.cable_between(spine, core).unwrap().0 as usize];
    assert_eq!(
        (long.config.rate_bps, long.config.delay.as_nanos()),
        (100_000_000_000, 3000)
    );
}

#[test]
fn speeds_of_a_tree_may_have_decimals() {
    let text = TREE.replace("Gbps 200", "Gbps 12.5");
    let built = HtsimTopology::read("x.topo", &text)
        .unwrap()
        .build(&[], "")
        .unwrap();
    let rates = built.topology.cables().iter();
    let rates: Vec<_> = rates.map(|cable| cable.config.rate_bps).collect();
    assert_eq!(rates[0], 12_500_000_000);
}

#[test]
fn failed_cables_are_absent() {
    let read = HtsimTopology::read("x.topo", TREE).unwrap();
    let failures = connections("x.cm", MATRIX).unwrap().failures;
    let whole = read.build(&[], "").unwrap().topology;
    let built = read.build(&failures, "x.cm").unwrap().topology;
    assert_eq!(built.cables().len(), whole.cables().len() - 1);
    let beyond = [farwrite_experiment::other_simulators::CableFailure {
        switch: 8,
        ..failures[0]
    }];
    let error = read.build(&beyond, "x.cm").unwrap_err().to_string();
    assert!(
        error.starts_with("x.cm:12: the topology has no cable 0 up from switch 8"),
        "{error}"
    );
}

/// What in the tree becomes what, and the error.
const TREE_FAULTS: &[(&str, &str, &str)] = &[
    ("Tiers 3", "Tiers 4", "x.topo:22: Tiers is 4: 2 or 3"),
    (
        "Tiers 3",
        "Tiers 3\nTiers 2",
        "x.topo:3: the line Tiers N is there twice: keep one",
    ),
    (
        "Gbps 100",
        "Gbps -1",
        "x.topo:19: Downlink_speed_Gbps is -1: Gbit/s, from 0.001 to 1048576",
    ),
    (
        "Radix_Up 2",
        "Radix_Up 2 3",
        "x.topo:8: 3 words: a line is written KEY NUMBER",
    ),
    (
        "Podsize 4",
        "Podsize 5",
        "x.topo:5: Nodes is 16, which is no multiple of Podsize, 5",
    ),
    (
        "Radix_Down 8",
        "Radix_Down 4",
        "x.topo:18: Radix_Down is 4: 4 pods with 2 cables each need 8",
    ),
    (
        "Radix_Down 8",
        "Radix 8",
        "x.topo:20: Radix is no key of a tier",
    ),
    (
        "Radix_Up 2",
        "Radix_Up 1",
        "x.topo:5: 2 ports down of 200 Gbit/s and 1 up",
    ),
    (
        "Radix_Up 2\n",
        "",
        "x.topo:5: Radix_Up of this tier is missing",
    ),
    (
        "Nodes 16",
        "Nodes 1000000000",
        "x.topo:1: Nodes is 1000000000: at most 65536",
    ),
    (
        "Radix_Up 2",
        "Radix_Up 9000000",
        "x.topo:8: Radix_Up is 9000000: at most 1048576",
    ),
    (
        "Nodes 16",
        "Nodes x",
        "x.topo:1: Nodes is \"x\": a whole number",
    ),
    (
        "Nodes 16",
        "Nodes",
        "x.topo:1: Nodes has no value: KEY NUMBER",
    ),
    ("Bundle 2", "Bundle 0", "x.topo:22: Bundle is 0: at least 1"),
    (
        "Tier 2\n",
        "Tier 1\n",
        "x.topo:19: Downlink_speed_Gbps is there twice",
    ),
];

#[test]
fn errors_of_a_tree_name_file_line_value_and_remedy() {
    let error = |text: &str| HtsimTopology::read("x.topo", text).unwrap_err().to_string();
    for (from, to, want) in TREE_FAULTS {
        let got = error(&TREE.replacen(from, to, 1));
        assert!(got.starts_with(want), "{got}\nand not {want}");
    }
}

const NS3: &str = "5 2 4\n3 4\n0 3 100Gbps 1000ns 0\n1 4 25Gbps 0.001ms 0.01\n2 4 100Gbps 1us 0\n3 4 400Gbps 2us 0\n";

#[test]
fn a_topology_of_ns3_keeps_its_numbers() {
    let read = ns3::topology("t.txt", NS3).unwrap();
    assert_eq!(read.host_of, [Some(0), Some(1), Some(2), None, None]);
    assert_eq!(read.topology.with_role(Role::Switch).count(), 2);
    let cable = read.topology.cables()[1].config;
    assert_eq!(
        (cable.rate_bps, cable.delay.as_nanos()),
        (25_000_000_000, 1000)
    );
    assert_eq!(cable.loss, Loss::Iid { loss_packet: 0.01 });
}

#[test]
fn flows_of_both_ns3_trees_are_read() {
    let host_of = ns3::topology("t.txt", NS3).unwrap().host_of;
    let want = Flow {
        priority: Some(3),
        ..Flow::new(0, 2, 5000, 2_000_001_000)
    };
    for text in [
        "1\n0 2 3 5000 2.000001\n",
        "1\n0 2 3 100 5000 2.000001\nFirst line: count\n",
    ] {
        assert_eq!(ns3::flows("f.txt", text, &host_of).unwrap().flows, [want]);
    }
}

#[test]
fn errors_of_ns3_files_name_file_line_value_and_remedy() {
    let topology = |from, to| {
        let text = NS3.replacen(from, to, 1);
        ns3::topology("t.txt", &text).unwrap_err().to_string()
    };
    let want = "t.txt:4: rate \"25G\": a cable is written";
    assert!(topology("25Gbps", "25G").starts_with(want));
    assert!(topology("0.01", "2").starts_with("t.txt:4: loss 2: a probability"));
    let error = ns3::topology("t.txt", "0 0 1\n0 1 1Gbps 1ns 0\n").unwrap_err();
    assert_eq!(error.to_string(), "t.txt:1: 0 nodes: at least 1");
    assert!(topology("2 4 100", "2 9 100").starts_with("t.txt:5: node 9: nodes are 0 to 4"));
    let announced = topology("5 2 4", "5 2 5");
    assert!(
        announced.contains("5 cables, and the file has 4: make it 4"),
        "{announced}"
    );
    assert!(topology("5 2 4", "5 9 4").starts_with("t.txt:1: 5 nodes, 9 of them switches"));
    let host_of = ns3::topology("t.txt", NS3).unwrap().host_of;
    let flows = |text| ns3::flows("f.txt", text, &host_of).unwrap_err().to_string();
    assert!(flows("1\n0 3 3 5000 2\n").starts_with("f.txt:2: node 3 is a switch: choose a host"));
    assert!(flows("1\n0 9 3 5000 2\n").starts_with("f.txt:2: node 9: nodes are 0 to 4"));
    assert!(flows("1\n0 1 3 1 5000 2 9\n").starts_with("f.txt:2: 7 words: a flow is written"));
    assert!(flows("1\n0 1 3 0 2\n").starts_with("f.txt:2: the size is 0: at least 1 byte"));
    assert!(flows("1\n0 1 3 5000 -2\n").starts_with("f.txt:2: the start is -2: 0 to 1e9 seconds"));
    assert!(flows("1\n0 1 3 5000 1e300\n").starts_with("f.txt:2: the start is 1e300: 0 to 1e9"));
    assert!(flows("1\n0 1 9 5000 2\n").starts_with("f.txt:2: the priority is 9: 0 to 7"));
    assert!(
        flows("2\n0 1 3 5000 2\n").contains("announces 2 flows, and the file has 1: make it 1")
    );
    let sizes = ns3::sizes("s.txt", "0 0\n100 50\n50 100\n")
        .unwrap_err()
        .to_string();
    assert!(
        sizes.starts_with("s.txt:3: point 3: 50 bytes at 100 %"),
        "{sizes}"
    );
    for (text, want) in [
        (
            "0 1 0\n6 1 0.15\n9 1 1\n",
            "s.txt:1: 3 words: a point is written BYTES PERCENT. The files of ns-2",
        ),
        ("0 0\n9 100 # all\n", "s.txt:2: 4 words: "),
    ] {
        let got = ns3::sizes("s.txt", text).unwrap_err().to_string();
        assert!(got.starts_with(want), "{got}");
    }
    assert!(topology("0.01", "0.01 7").starts_with("t.txt:4: 6 words: a cable is written"));
    // The line of the point, not the last one.
    let falling = ns3::sizes("s.txt", "0 0\n\n100 50\n50 60\n200 100\n").unwrap_err();
    assert_eq!(falling.line, 4, "{falling}");
    let simai = ns3::topology("t.txt", "5 8 0 2 4 H100\n3 4\n")
        .unwrap_err()
        .to_string();
    assert!(
        simai.starts_with("t.txt:1: 6 words, as in SimAI's topologies"),
        "{simai}"
    );
}

/// Host 0 has cables to both switches, and host 1 to one of them.
#[test]
fn a_flow_that_its_first_cable_cannot_carry_is_refused() {
    let plan = "[topology.t]\nfile = \"t.txt\"\n[workload.f]\nfile = \"f.txt\"\n";
    let read = |cables: &str, flow: &str| {
        let files = |name: &str| match name {
            "t.txt" => Ok(format!("4 2 3\n2 3\n{cables}1 2 10Gbps 1us 0\n")),
            _ => Ok(format!("1\n{flow} 3 1000 0\n")),
        };
        Plan::read(plan, &files).map_err(|why| why.to_string())
    };
    let away = "0 3 10Gbps 1us 0\n0 2 10Gbps 1us 0\n";
    let toward = "0 2 10Gbps 1us 0\n0 3 10Gbps 1us 0\n";
    // Acknowledgements leave by the first cable too.
    for flow in ["0 1", "1 0"] {
        let refused = read(away, flow).unwrap_err();
        assert!(
            refused.contains(
                "sends by its first cable only, and that of host0 does not lead to host1"
            ),
            "{refused}"
        );
        read(toward, flow).unwrap();
    }
}

/// The second pair of hosts has a switch of its own, without a cable to the first.
#[test]
fn a_flow_without_a_path_is_refused() {
    let topology =
        "6 2 4\n4 5\n0 4 10Gbps 1us 0\n1 4 10Gbps 1us 0\n2 5 10Gbps 1us 0\n3 5 10Gbps 1us 0\n";
    let plan = "[topology.t]\nfile = \"t.txt\"\n[workload.f]\nfile = \"f.txt\"\n";
    let read = |topology: &str, flow: &str| {
        let files = |name: &str| match name {
            "t.txt" => Ok(topology.to_owned()),
            _ => Ok(format!("2\n0 1 3 1000 0\n{flow} 3 1000 0\n")),
        };
        Plan::read(plan, &files).map_err(|why| why.to_string())
    };
    read(topology, "2 3").unwrap();
    let refused = read(topology, "1 2").unwrap_err();
    assert!(
        refused.starts_with("workload.f: flow 1 leads from "),
        "{refused}"
    );
    assert!(
        refused.contains("no path joins them; add cables"),
        "{refused}"
    );
    let joined = topology.replace("6 2 4", "6 2 5") + "4 5 10Gbps 1us 0\n";
    read(&joined, "1 2").unwrap();
    // A host without a cable.
    read(&topology.replace("3 5 ", "4 5 "), "2 3").unwrap_err();
    let unknown = read("", "1 2").unwrap_err();
    assert!(
        unknown.starts_with("topology.t: t.txt: ") && unknown.contains("begins with Nodes"),
        "{unknown}"
    );
    // Two hosts with a cable and no switch.
    read(
        "5 1 3\n4\n0 4 1Gbps 1us 0\n1 4 1Gbps 1us 0\n2 3 1Gbps 1us 0\n",
        "2 3",
    )
    .unwrap();
}

#[test]
fn files_are_told_apart_by_their_first_word() {
    assert_eq!(kind_of(MATRIX), FileKind::Htsim);
    assert_eq!(kind_of(TREE), FileKind::Htsim);
    assert_eq!(kind_of(NS3), FileKind::Ns3);
    assert_eq!(kind_of("# a\n[topology]\n"), FileKind::Toml);
}

proptest::proptest! {
    /// For any content of a file, the reader returns a value or an error.
    #[test]
    fn no_text_makes_a_reader_panic(
        words in proptest::collection::vec(
            proptest::sample::select(vec![
                "Nodes", "Connections", "Triggers", "0->1", "start", "size", "trigger", "id", "1",
                "0", "-5", "99999999999999999999", "barrier", "count", "Tier", "Tiers", "Podsize",
                "Radix_Down", "Radix_Up", "Bundle", "Downlink_speed_Gbps", "Downlink_Latency_ns", "2",
                "100Gbps", "1us", "nan", "\n", "\n", "\n", "failure", "switch_type", "AGG",
            ]),
            0..60,
        )
    ) {
        let text = words.join(" ");
        let _ = connections("x", &text);
        if let Ok(tree) = HtsimTopology::read("x", &text) {
            let _ = tree.build(&[], "x");
        }
        let _ = ns3::topology("x", &text);
        let _ = ns3::flows("x", &text, &[Some(0), Some(1)]);
        let _ = ns3::sizes("x", &text);
    }
}
