//! Plans and sweeps.

use std::time::Duration;

use farwrite_experiment::Recording;
use farwrite_experiment::plan::{Plan, sweep};
use farwrite_net::Topology;

/// Records the queues of ports.
pub(crate) const PORTS: Recording = Recording {
    ports: true,
    series: false,
    host: None,
};

pub(crate) const FIRST: &str = r#"
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

pub(crate) fn read(text: &str) -> Result<Plan, String> {
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

/// An incast of 2 MB each, so that samples are merged: what each link and flow carried over time adds up.
#[test]
fn series_change_nothing_and_add_up() {
    for transport in ["roce", "farwrite-sr-nack", "xp"] {
        let settings = match transport {
            "xp" => "deadline = \"100ms\"\n",
            _ => "",
        };
        let plan = format!(
            "{}[transport.t]\nprotocol = \"{transport}\"\n{settings}",
            FIRST.replace("50kB", "2MB")
        );
        let plan = read(&plan).unwrap();
        let outcome = |series| {
            let recording = Recording {
                series,
                ..Recording::default()
            };
            let mut outcomes = sweep(&plan, 1, Some((0, recording)), |_| true);
            outcomes.remove(0).outcome.unwrap()
        };
        let mut recorded = outcome(true);
        let series = recorded.series.take().unwrap();
        assert_eq!(recorded, outcome(false), "{transport}");
        let samples = recorded.depths.samples.len();
        assert!(recorded.depths.interval_ns > 100 && samples > 1000);
        // Eight hosts and eight ports of the switch.
        assert_eq!(series.links.len(), 16);
        let links = series.links.iter();
        assert!(links.clone().all(|link| link.samples.len() == samples));
        let deepest = (0..samples).map(|at| {
            let links = series.links.iter();
            links
                .map(|link| link.samples[at].queued_bytes)
                .max()
                .unwrap()
        });
        let of_meter = recorded.depths.samples.iter().map(|depth| depth.deepest);
        assert!(
            deepest
                .zip(of_meter)
                .all(|(any, at_switch)| any >= at_switch)
        );
        let sent: u64 = links
            .filter_map(|link| link.samples.last())
            .map(|sample| sample.sent_bytes)
            .sum();
        let all = recorded.totals.transmitted_bytes;
        assert!(
            (all * 9 / 10..=all).contains(&sent),
            "{transport}: {sent} of {all}"
        );
        for (flow, of_flow) in recorded.flows.iter().zip(&series.flows) {
            assert!(of_flow.is_sorted_by_key(|sample| (sample.at, sample.packets)));
            assert!(of_flow.is_sorted_by(|one, other| one.at < other.at));
            let last = of_flow.last().unwrap();
            assert!(
                (flow.packets * 9 / 10..=flow.packets).contains(&last.packets),
                "{transport}"
            );
            assert!(last.repeated <= flow.repeated);
            // DCQCN slows an incast.
            assert_eq!(
                last.notifications > 0,
                !transport.starts_with("farwrite"),
                "{transport}"
            );
        }
    }
}

#[test]
fn a_capture_changes_nothing_and_has_each_packet() {
    for transport in ["roce", "farwrite-sr-nack"] {
        let plan = read(&format!("transport = [\"{transport}\"]\n{FIRST}")).unwrap();
        let of_host = |host| Recording {
            host,
            ..Recording::default()
        };
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
        ..Recording::default()
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

/// Losses, seeds and transports change no routes. Boxes do.
#[test]
fn runs_on_one_topology_share_their_routes() {
    let more = "seeds = 2\nloss = [0, 0.001]\ntransport = [\"roce\", \"eqds\"]\n";
    let boxes = "[[topology.rack.boxes]]\nat = \"hosts\"\nkind = \"netrt\"\n";
    for (rest, is_shared) in [("", true), (boxes, false)] {
        let plan = read(&format!("{more}{FIRST}{rest}")).unwrap();
        let topologies: Vec<_> = plan
            .cases()
            .iter()
            .map(|case| plan.parts(case).unwrap().topology)
            .collect();
        assert_eq!(topologies.len(), 8);
        let shares = |topology: &Topology| topology.shares_routes(&topologies[0]);
        assert!(
            topologies[1..]
                .iter()
                .all(|topology| shares(topology) == is_shared)
        );
    }
}

/// A flow alone takes its ideal time in both directions of a cable with two rates.
#[test]
fn a_cable_may_have_a_rate_for_each_direction() {
    let text = |workload: &str| {
        format!(
            "transport = [\"roce-nocc\", \"eqds\"]\n[topology.pair]\nshape = \"point-to-point\"\n\
             cable = {{ rate = \"100Gbit\", back_rate = \"10Gbit\", delay = \"10us\" }}\n[workload.w]\n{workload}"
        )
    };
    for (src, least_us) in [(0, 80.0), (1, 800.0)] {
        let flow = format!("{{ src = {src}, dst = {}, size = \"1MB\" }}", 1 - src);
        let plan = read(&text(&format!("pattern = \"flows\"\nflows = [{flow}]"))).unwrap();
        for case in sweep(&plan, 1, None, |_| true) {
            let flow = case.outcome.unwrap().flows[0];
            let ideal_us = flow.ideal_ns.unwrap() / 1e3;
            assert!(
                (least_us + 20.0..1.1 * least_us + 20.0).contains(&ideal_us),
                "{ideal_us}"
            );
            let slowdown = flow.slowdown().unwrap();
            assert!(
                (0.99..1.1).contains(&slowdown),
                "{slowdown} from host {src}"
            );
        }
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
        "transport = [\"eqds\", \"irn\", \"roce-nocc\", \"roce\"]\n{FIRST}\n[switch.plain]\nbuffer = \"9MB\"\n"
    ))
    .unwrap();
    let [eqds, irn, roce] = plan.notes() else {
        panic!("{:?}", plan.notes());
    };
    assert!(eqds.starts_with("transport.eqds with switch.plain: the switches do not trim"));
    assert!(irn.starts_with("transport.irn with switch.plain: the switches do not mark"));
    assert!(roce.starts_with("transport.roce with switch.plain: the switches do not pause"));
    let notes = |priority: u8| {
        let text = format!(
            "{FIRST}\n[transport.t]\nprotocol = \"roce\"\npriority = {priority}\n\
             [switch.plain]\nbuffer = \"9MB\"\npfc = {{ priorities = [3], xoff = {{ alpha = 0.1 }} }}\n\
             ecn = {{ kmin = \"100kB\", kmax = \"400kB\", pmax = 0.2 }}\n"
        );
        read(&text).unwrap().notes().to_vec()
    };
    assert_eq!(notes(3), [""; 0]);
    let other = notes(5);
    assert!(other[0].contains("do not pause the priority"), "{other:?}");
}

#[test]
fn settings_without_an_effect_are_noted() {
    let notes = |before: &str, after: &str| {
        let plan = read(&format!("{before}\n{FIRST}\n{after}")).unwrap();
        plan.notes().to_vec()
    };
    assert_eq!(notes("measure = { until = \"1us\" }", ""), [""; 0]);
    let [note] = &notes("measure = { from = \"1us\" }", "")[..] else {
        panic!("one note");
    };
    assert!(
        note.starts_with("measure: no flow of workload.incast starts in this time with seed "),
        "{note}"
    );
    let change = "[[topology.rack.changes]]\nat = \"5ms\"\ncable = [\"host0\", \"switch0\"]\nrate = \"1Gbit\"";
    assert_eq!(notes("until = \"6ms\"", change), [""; 0]);
    let late = notes("until = \"5ms\"", change);
    let want = "topology.rack: the first change, at 5ms, comes at or after the end of the run, until = 5ms";
    assert_eq!(late, [want]);
    let again = change.replace("5ms", "9ms");
    assert_eq!(
        notes("until = \"6ms\"", &format!("{change}\n{again}")),
        [""; 0]
    );
    let policed = |burst: &str| {
        let policer = format!("policer = {{ rate = \"10Mbit\", burst = \"{burst}\" }}");
        let cable = FIRST.replace("delay = \"1us\"", &format!("delay = \"1us\", {policer}"));
        read(&cable).unwrap().notes().to_vec()
    };
    // A packet has a payload of 4096 bytes and headers of at least 44.
    assert_eq!(policed("4140B"), [""; 0]);
    let [note] = &policed("4139B")[..] else {
        panic!("one note");
    };
    assert!(
        note.contains("a policer with a burst of 4139 bytes drops each packet"),
        "{note}"
    );
    let boxes = "[[topology.rack.boxes]]\nkind = \"lowar\"\nat = \"hosts\"";
    assert_eq!(notes("transport = [\"roce@dctcp\"]", boxes), [""; 0]);
    let [note] = &notes("transport = [\"roce@hpcc\"]", boxes)[..] else {
        panic!("one note");
    };
    assert!(
        note.starts_with("topology.rack with transport.roce@hpcc: boxes remove the telemetry"),
        "{note}"
    );
}

#[test]
fn a_sweep_can_be_stopped() {
    let plan = read(&format!("seeds = 50\n{FIRST}")).unwrap();
    let outcomes = sweep(&plan, 1, None, |_| false);
    assert!(outcomes.len() < 50);
}

#[test]
fn flows_that_never_start_are_noted() {
    let of = |workload: &str| {
        let files = |_: &str| Ok(workload.to_owned());
        let (topology, _) = FIRST.split_once("[workload").unwrap();
        let text = format!("{topology}[workload.w]\nfile = \"w.cm\"\n");
        Plan::read(&text, &files).unwrap().notes().to_vec()
    };
    let matrix = |first: &str, kind: &str| {
        format!(
            "Nodes 8\nConnections 3\nTriggers 1\n0->1 id 1 start 0 size 20000 {first}\n\
             1->2 trigger 1 size 9\n2->3 trigger 1 size 9\ntrigger id 1 {kind}\n"
        )
    };
    for (first, kind, never) in [
        ("send_done_trigger 1", "oneshot", None),
        ("recv_done_trigger 1", "barrier count 1", None),
        ("", "oneshot", Some((2, 1))),
        ("send_done_trigger 1", "multishot", Some((1, 2))),
        ("send_done_trigger 1", "barrier count 2", Some((2, 1))),
    ] {
        let want = never.map(|(count, first)| {
            format!(
                "workload.w: {count} of 3 flows never start, the first one is flow {first}: they \
                 wait for a trigger that no flow activates, or too few for its count"
            )
        });
        let notes = of(&matrix(first, kind));
        assert_eq!(
            notes,
            want.into_iter().collect::<Vec<_>>(),
            "{first} {kind}"
        );
    }
}

#[test]
fn progress_counts_flows_and_the_time_since_the_first_one() {
    let flows: Vec<_> = (0..20)
        .map(|number| format!("{{ src = 0, dst = 1, size = \"1MB\", start = \"{number}s\" }}"))
        .collect();
    let late = FIRST.replace(
        "pattern = \"incast\"\nsenders = 7\nsize = \"50kB\"",
        &format!("pattern = \"flows\"\nflows = [{}]", flows[2..].join(", ")),
    );
    let plan = read(&format!("seeds = 2\n{late}")).unwrap();
    let mut last = None;
    sweep(&plan, 1, None, |at| {
        let seconds = at.virtual_ns / 1_000_000_000;
        last = Some((at.done_thousandths(), at.flows, at.ended_flows, seconds));
        true
    });
    assert_eq!(last, Some((2000, 36, 36, 34)));
}

/// The second run would take hours: 8 hosts send 1 TB each.
#[test]
fn a_stopped_sweep_keeps_finished_runs_and_does_not_wait_for_others() {
    let long = "[workload.long]\npattern = \"permutation\"\nsize = \"1TB\"\n";
    let plan = read(&format!("{FIRST}{long}")).unwrap();
    let mut ended = Vec::new();
    let mut virtual_ns = [0; 2];
    let outcomes = sweep(&plan, 1, None, |at| {
        match at.ended {
            Some(outcome) => {
                ended.push(outcome.case.number);
                assert_eq!(at.ended_flows, 7);
                virtual_ns = [at.virtual_ns; 2];
            }
            None => virtual_ns[1] = at.virtual_ns,
        }
        // The long run is in progress, and virtual time goes on.
        virtual_ns[0] == virtual_ns[1]
    });
    assert_eq!(ended, [0]);
    assert!(0 < virtual_ns[0] && virtual_ns[0] < virtual_ns[1]);
    assert_eq!(outcomes.len(), 1);
    assert_eq!(outcomes[0].outcome.as_ref().map(|run| run.done()), Ok(7));
}

#[test]
fn a_run_says_what_memory_it_needs() {
    let plan = read(FIRST).unwrap();
    let one = plan.memory().unwrap();
    assert!((10_000..100_000_000).contains(&one.run_bytes), "{one:?}");
    // At most 2048 samples of two numbers, and seven flows.
    assert!((32_768..50_000).contains(&one.results_bytes), "{one:?}");
    let plan = read(&format!("seeds = 100000\n{FIRST}")).unwrap();
    let sweep_bytes = 4 * one.run_bytes + 100_000 * one.results_bytes;
    assert_eq!(plan.sweep_bytes(4, None).unwrap(), sweep_bytes);
    // Eight ports of the switch, and a capture.
    let recording = Recording {
        ports: true,
        series: false,
        host: Some(0),
    };
    let recorded_bytes = 8 * 2048 * 8 + (256 << 20);
    assert_eq!(
        plan.sweep_bytes(4, Some((99_999, recording))).unwrap(),
        sweep_bytes + recorded_bytes
    );
}

/// Framing and rerouting are no settings of switches.
#[test]
fn switches_of_a_plan_keep_the_other_options_of_a_topology_file() {
    let topology = "framing_bytes = 20\nreroute = \"10ms\"\n[topology]\nshape = \"star\"\nhosts = 8\n\
                    cable = { rate = \"100Gbit\", delay = \"1us\" }\n[switch]\nbuffer = \"1MB\"\n\
                    [switches.switch0]\nbuffer = \"2MB\"\n";
    let files = |name: &str| match name {
        "rack.toml" => Ok(topology.to_owned()),
        _ => Err(format!("{name}: no such file")),
    };
    let (_, workload) = FIRST.split_once("[workload").unwrap();
    let options = |more: &str| {
        let text = format!("{more}\n[topology.rack]\nfile = \"rack.toml\"\n[workload{workload}");
        let text = format!("{text}[switch.own]\nbuffer = \"3MB\"\n");
        let plan = Plan::read(&text, &files).unwrap();
        plan.parts(&plan.cases()[0]).unwrap().options
    };
    let own = options("");
    assert_eq!(own.switch.buffer_bytes, 3_000_000);
    assert!(own.exceptions.is_empty());
    assert_eq!(
        (own.framing_bytes, own.reroute),
        (20, Some(Duration::from_millis(10)))
    );
    let changed = options("framing_bytes = 7\nreroute = \"1ms\"");
    assert_eq!(
        (changed.framing_bytes, changed.reroute),
        (7, Some(Duration::from_millis(1)))
    );
}

/// Switches need headroom for each priority. One fits into 9 MiB; two do not. Default switches have
/// room for both, and those of the plan are as it says.
#[test]
fn default_switches_have_room_for_the_headroom_of_each_workload() {
    let second = "[workload.two]\npattern = \"flows\"\n\
                  flows = [{ src = 0, dst = 1, size = \"1kB\", priority = 5 }]\n";
    let long = FIRST.replace("1us", "30us");
    read(&long).unwrap();
    read(&format!("{long}{second}")).unwrap();
    let given = "[switch.small]\npfc = { priorities = [3, 5], xoff = { alpha = 0.0625 } }\n";
    let why = read(&format!("{long}{second}{given}")).unwrap_err();
    assert!(
        why.starts_with("topology.rack with switch.small: "),
        "{why}"
    );
    assert!(why.contains("headroom"), "{why}");
}

/// A plan of flows that need days, and the same plan with an end.
#[test]
fn a_long_plan_says_how_long_it_is() {
    let long = FIRST.replace("50kB", "300TB");
    let plan = read(&format!("seeds = 2\n{long}")).unwrap();
    let [note] = plan.notes() else {
        panic!("{:?}", plan.notes());
    };
    // 2 runs of 7 flows of 300 TB: 7.3e10 packets of 4096 bytes each, over 2 cables.
    let want = "the plan has about 2.1e12 packet-hops of data in 2 runs, which take about 11 days of \
                processor time; a smaller size,";
    assert!(note.starts_with(want), "{note}");
    let endpoints = read(&format!("transport = [\"farwrite-sr-nack\"]\n{FIRST}"));
    for short in [
        read(FIRST),
        endpoints,
        read(&format!("until = \"1s\"\n{long}")),
    ] {
        assert_eq!(short.unwrap().notes(), [""; 0]);
    }
}

#[test]
fn a_topology_may_be_a_list_of_nodes_and_cables() {
    let list = r#"
        [topology.rack]
        shape = "list"
        hosts = ["ann", "ben", "cid"]
        switches = ["top"]
        cables = [
            { ends = ["ann", "top"], rate = "100Gbit", delay = "1us" },
            { ends = ["ben", "top"], rate = "100Gbit", delay = "1us" },
            { ends = ["cid", "top"], rate = "10Gbit", delay = "1us" },
        ]
        [[topology.rack.changes]]
        at = "1us"
        cable = ["ben", "top"]
        rate = "50Gbit"
        [workload.incast]
        pattern = "incast"
        senders = 2
        size = "50kB"
    "#;
    let outcomes = sweep(&read(list).unwrap(), 1, None, |_| true);
    let outcome = outcomes[0].outcome.as_ref().unwrap();
    assert_eq!(outcome.done(), 2);
    // 100 kB over 10 Gbit/s.
    assert!((80_000..100_000).contains(&outcome.last_done_ns().unwrap()));
}
