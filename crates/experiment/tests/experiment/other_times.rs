//! Completion times of other simulators, and the flows that they belong to.

use farwrite_experiment::other_simulators::{
    OtherFlow, OtherTime, completion_times, connections, match_flows, ns3, planned_ns,
};
use farwrite_experiment::{Flow, Start};

/// Three hosts with the nodes 1 to 3, at switch 0.
const HOST_OF: [Option<usize>; 4] = [None, Some(0), Some(1), Some(2)];

/// The same flows as HPCC and as `ConWeave` write them.
const HPCC: &str = "0b000101 0b000301 10000 100 9000 2000000000 5400 5000\n\
                    0b000201 0b000301 10000 100 700 2000001500 3100 2900\n";
const CONWEAVE: &str =
    "1 3 10000 100 9000 2000000000 5400 5000\n2 3 10000 100 700 2000001500 3100 2900\n";

#[test]
fn both_ns3_trees_write_the_same_flows() {
    let hpcc = completion_times("fct.txt", HPCC, &HOST_OF).unwrap();
    let first = OtherFlow {
        line: 1,
        src: 0,
        dst: 2,
        bytes: Some(9000),
        id: None,
        order: Some(10_000),
        start_ns: Some(2e9),
        time: OtherTime::Duration(5400.0),
    };
    assert_eq!(hpcc[0], first);
    assert_eq!((hpcc[1].src, hpcc[1].line, hpcc.len()), (1, 2, 2));
    assert_eq!(
        completion_times("out_fct.txt", CONWEAVE, &HOST_OF).unwrap(),
        hpcc
    );
    assert_eq!(hpcc[1].time_ns(None), Some(3100.0));
}

/// The form of HPCC before June 2020.
#[test]
fn the_ideal_time_may_be_absent() {
    let without = HPCC.replace(" 5000\n", "\n").replace(" 2900\n", "\n");
    let of_text = |text| completion_times("fct.txt", text, &HOST_OF).unwrap();
    assert_eq!(of_text(&without), of_text(HPCC));
}

/// Node 256 has the address 11.1.0.1.
#[test]
fn addresses_have_two_bytes_of_a_node_number() {
    let mut host_of = vec![None; 300];
    (host_of[256], host_of[299]) = (Some(0), Some(1));
    let text = "0b010001 0b012b01 1 2 3 4 5 6\n";
    let flow = completion_times("fct.txt", text, &host_of).unwrap()[0];
    assert_eq!((flow.src, flow.dst), (0, 1));
}

const LOG: &str = "\
Loading connection matrix from  incast.cm
startflow Roce_0_2 at 10
startflow Roce_1_2 at 12.5
Flow Roce_1_2 17 finished at 1186.35 total bytes 9000
Flow Roce_0_2 13 finished at 1190.1 total bytes 9000
Flow Eqds_0_1 flowId 4 eqdsSrc 3 finished at 20 total packets 7 RTS 0 total bytes 24516
New: 12 Rtx: 0
";

#[test]
fn a_log_of_htsim_has_ends_and_some_starts() {
    let hosts = [Some(0), Some(1), Some(2)];
    let flows = completion_times("log.txt", LOG, &hosts).unwrap();
    let ends: Vec<_> = flows
        .iter()
        .map(|flow| (flow.src, flow.dst, flow.line))
        .collect();
    assert_eq!(ends, [(1, 2, 4), (0, 2, 5), (0, 1, 6)]);
    assert_eq!((flows[0].id, flows[0].order), (None, Some(17)));
    assert_eq!((flows[2].id, flows[2].order), (Some(4), Some(4)));
    assert_eq!(flows[0].time_ns(Some(0.0)), Some(1_186_350.0 - 12_500.0));
    // EQDS does not log the start, so that of the matrix counts.
    assert_eq!(flows[2].time_ns(Some(5000.0)), Some(15_000.0));
    assert_eq!(flows[2].time_ns(None), None);
}

#[test]
fn errors_of_times_name_file_line_value_and_remedy() {
    let of_text = |text: &str| {
        let read = completion_times("f.txt", text, &HOST_OF);
        read.unwrap_err().to_string()
    };
    let cases = [
        (
            "9000 2",
            "9000.5 2",
            "f.txt:1: the size is \"9000.5\": completion times are",
        ),
        (
            "0b000101",
            "0c000101",
            "f.txt:1: the sender is \"0c000101\"",
        ),
        (
            "0b000301",
            "0b000001",
            "f.txt:1: node 0 is no host: the topology has nodes 0 to 3",
        ),
        ("0b000201", "0b002001", "f.txt:2: node 32 is no host"),
        ("3100", "-3100", "f.txt:2: the completion time is \"-3100\""),
        (" 5400 ", " 0 ", "f.txt:1: the completion time is 0"),
        (" 5400 5000", "", "f.txt:1: 6 words from \"0b000101\" on"),
        (" 5000", " 5000 1", "f.txt:1: 9 words from \"0b000101\" on"),
        ("10000", "port", "f.txt:1: the source port is \"port\""),
    ];
    for (from, to, want) in cases {
        let got = of_text(&HPCC.replacen(from, to, 1));
        assert!(got.starts_with(want), "{got}\nand not {want}");
    }
    let cases = [
        (
            "Roce_1_2 17",
            "Roce 17",
            "f.txt:4: the flow \"Roce\" names no hosts",
        ),
        (
            "at 1186.35",
            "at soon",
            "f.txt:4: finished at is \"soon\": microseconds",
        ),
        (
            "finished at 1186.35",
            "finished",
            "f.txt:4: finished at is missing",
        ),
        ("at 1190.1", "at -1", "f.txt:5: finished at is -1"),
        (
            "flowId 4",
            "flowId x",
            "f.txt:6: flowId is \"x\": a whole number",
        ),
        ("Roce_0_2 at 10", "Roce_0_2 at", "f.txt:2: at is missing"),
    ];
    for (from, to, want) in cases {
        let got = completion_times(
            "f.txt",
            &LOG.replacen(from, to, 1),
            &[Some(0), Some(1), Some(2)],
        );
        let got = got.unwrap_err().to_string();
        assert!(got.starts_with(want), "{got}\nand not {want}");
    }
    let empty = of_text("\n# nothing\n");
    assert!(
        empty.starts_with("f.txt:2: no flow is complete here"),
        "{empty}"
    );
}

/// Two equal flows between two hosts at one time, one that starts later, and one that only we have.
#[test]
fn flows_of_ns3_match_by_hosts_size_and_start() {
    let ours = [
        Flow::new(0, 2, 9000, 2_000_000_000),
        Flow::new(0, 2, 9000, 2_000_500_000),
        Flow::new(0, 2, 9000, 2_000_000_000),
        Flow::new(1, 2, 700, 2_000_001_500),
        Flow::new(1, 0, 50, 0),
    ];
    // The flow with the later source port ended first; a start is cut to 2000001499.
    let text = "1 3 10001 100 9000 2000000000 7000 5000\n1 3 10000 100 9000 2000000000 8000 5000\n\
                1 3 10002 100 9000 2000500000 9000 5000\n2 3 10000 100 700 2000001499 3100 2900\n\
                2 3 10001 100 701 2000001499 3100 2900\n1 3 10003 100 9000 2000800000 9000 5000\n";
    let theirs = completion_times("fct.txt", text, &HOST_OF).unwrap();
    let matching = match_flows(&ours, &[], &theirs);
    assert_eq!(matching.pairs, [(0, 1), (1, 2), (2, 0), (3, 3)]);
    assert_eq!(
        (matching.only_ours, matching.only_theirs),
        (vec![4], vec![4, 5])
    );
}

#[test]
fn flows_of_htsim_match_by_id_or_by_order() {
    let matrix = "Nodes 3\nConnections 5\nTriggers 1\n0->1 id 7 start 0 size 10\n0->1 id 8 start 5000 size 10 \
                  send_done_trigger 1\n1->2 trigger 1 size 10\n1->2 start 0 size 20\n2->0 start 0 size 1\n\
                  trigger id 1 oneshot\n";
    let read = connections("x.cm", matrix).unwrap();
    assert_eq!(read.ids, [Some(7), Some(8), None, None, None]);
    let log = "Flow Eqds_0_1 flowId 8 eqdsSrc 1 finished at 3 total packets 1\n\
               Flow Eqds_1_2 flowId 1000000002 eqdsSrc 3 finished at 4 total packets 1\n\
               Flow Eqds_0_1 flowId 7 eqdsSrc 0 finished at 5 total packets 1\n\
               Flow Eqds_1_2 flowId 1000000001 eqdsSrc 2 finished at 6 total packets 1\n";
    let hosts = [Some(0), Some(1), Some(2)];
    let theirs = completion_times("log.txt", log, &hosts).unwrap();
    let flows = &read.workload.flows;
    let matching = match_flows(flows, &read.ids, &theirs);
    assert_eq!(matching.pairs, [(0, 2), (1, 0), (2, 3), (3, 1)]);
    assert_eq!(
        (matching.only_ours, matching.only_theirs),
        (vec![4], vec![])
    );
    assert_eq!(planned_ns(&flows[1]), Some(5.0));
    assert_eq!(
        (flows[2].start, planned_ns(&flows[2])),
        (Start::On(0), None)
    );
    // Of two flows between the same hosts, one is missing: the log does not say which.
    let less: String = log
        .lines()
        .take(3)
        .map(|line| format!("{line}\n"))
        .collect();
    let theirs = completion_times("log.txt", &less, &hosts).unwrap();
    let matching = match_flows(flows, &read.ids, &theirs);
    assert_eq!(matching.pairs, [(0, 2), (1, 0)]);
    assert_eq!(
        (matching.only_ours, matching.only_theirs),
        (vec![2, 3, 4], vec![1])
    );
}

#[test]
fn flows_of_a_file_match_their_own_times() {
    let flows = ns3::flows(
        "flow.txt",
        "2\n1 3 3 9000 2\n2 3 3 100 700 2.0000015\n",
        &HOST_OF,
    )
    .unwrap();
    let theirs = completion_times("fct.txt", HPCC, &HOST_OF).unwrap();
    assert_eq!(
        match_flows(&flows.flows, &[], &theirs).pairs,
        [(0, 0), (1, 1)]
    );
}

proptest::proptest! {
    /// For any content of a file, the reader returns flows of the topology or an error. All flows
    /// are then in exactly one list.
    #[test]
    fn no_text_makes_the_reader_panic(
        words in proptest::collection::vec(
            proptest::sample::select(vec![
                "Flow", "Roce_0_1", "Roce_1_0", "flowId", "flow_id", "1", "2", "0", "finished", "at",
                "3.5", "nan", "startflow", "0b000101", "0b000201", "9000", "-5", "\n", "\n", "\n", "Roce",
                "1 2 1 1 9 9 9 9\n", "Flow Roce_0_1 4 finished at 5\n", "Flow Roce_0_1 finished at 5\n",
            ]),
            0..60,
        )
    ) {
        let text = words.join(" ");
        if let Ok(theirs) = completion_times("x", &text, &[Some(0), Some(1), Some(2)]) {
            let ours = [Flow::new(0, 1, 9, 9), Flow::new(0, 1, 9, 9), Flow::new(1, 2, 9, 9)];
            let matching = match_flows(&ours, &[None, Some(1), None], &theirs);
            let of_ours = matching.pairs.iter().map(|pair| pair.0).chain(matching.only_ours);
            let of_theirs = matching.pairs.iter().map(|pair| pair.1).chain(matching.only_theirs);
            let sorted = |numbers: Vec<usize>| {
                let mut numbers = numbers;
                numbers.sort_unstable();
                numbers
            };
            assert_eq!(sorted(of_ours.collect()), [0, 1, 2]);
            assert_eq!(sorted(of_theirs.collect()), (0..theirs.len()).collect::<Vec<_>>());
        }
    }
}
