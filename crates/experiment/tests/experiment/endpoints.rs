//! Hosts with endpoints.

use std::collections::BTreeMap;

use crate::common::{cable, clos, setup, star};
use farwrite_experiment::plan::{Plan, sweep};
use farwrite_experiment::{
    Flow, FlowEnd, FlowError, FlowOutcome, Outcome, Pattern, PatternNetwork, Transport,
    TransportSettings, Workload, run,
};
use farwrite_net::{Loss, Options, Shape, Topology};

fn run_over(topology: &Topology, workload: &Workload, transport: &Transport) -> Outcome {
    run(&setup(topology, &Options::default(), workload, transport)).unwrap()
}

fn fixed(scheme: &str, gbps: u64) -> Transport {
    fixed_settings(scheme, gbps).transport().unwrap()
}

fn fixed_settings(scheme: &str, gbps: u64) -> TransportSettings {
    TransportSettings {
        rate: Some(gbps * 1_000_000_000),
        ..TransportSettings::new(&format!("farwrite-{scheme}"))
    }
}

/// 6104 packets with 64 bytes of headers at 95 Gbit/s, a round trip of 200 us, and half a round
/// trip before: the receiver posts its buffer when the flow starts, and the sender waits for the
/// clear-to-send.
#[test]
fn a_flow_alone_waits_for_its_buffer_and_is_sent_at_its_rate() {
    let topology = star(2, 100, 50_000);
    let workload = Workload::of(vec![Flow::new(0, 1, 25_000_000, 5000)]);
    let outcome = run_over(&topology, &workload, &fixed("sr-nack", 95));
    let flow = outcome.flows[0];
    let sent_us = (25_000_000 + 6104 * 64) as f64 * 8.0 / 95_000.0;
    let took_us = flow.time_ns().unwrap() as f64 / 1000.0;
    let over = took_us / (sent_us + 300.0);
    assert!((0.995..1.005).contains(&over), "{took_us} us");
    assert_eq!((flow.packets, flow.repeated, flow.timeouts), (6104, 0, 0));
}

#[test]
fn every_scheme_repairs_what_a_path_loses() {
    let mut lossy = cable(10, 1000);
    lossy.loss = Loss::Iid { loss_packet: 0.01 };
    let topology = Shape::Star {
        hosts: 4,
        cable: lossy,
    }
    .build()
    .unwrap();
    let workload = Workload::of((0..3).map(|src| Flow::new(src, 3, 1_000_000, 0)).collect());
    for scheme in ["sr-rto", "sr-nack", "gbn", "ec-xor:8,4", "ec-mds:32,8"] {
        let outcome = run_over(&topology, &workload, &fixed(scheme, 3));
        assert_eq!(outcome.done(), 3, "{scheme}");
        assert!(outcome.totals.all_dropped() > 0, "{scheme}");
        let is_coded = scheme.starts_with("ec");
        assert!(is_coded || outcome.repeated() > 0, "{scheme}");
        let again = run_over(&topology, &workload, &fixed(scheme, 3));
        assert_eq!(again.trace_hash, outcome.trace_hash, "{scheme}");
        assert_eq!(again, outcome, "{scheme}");
    }
}

/// A message that is shorter than its parity.
#[test]
fn a_short_message_has_all_its_parity() {
    for bytes in [1, 20_000] {
        let workload = Workload::of(vec![Flow::new(0, 1, bytes, 0)]);
        let outcome = run_over(&star(2, 10, 1000), &workload, &fixed("ec-mds:32,8", 5));
        assert_eq!(outcome.done(), 1);
    }
}

#[test]
fn steps_of_a_collective_wait_for_each_other() {
    let pattern = "pattern = \"ring-all-reduce\"\nsize = \"800kB\"\nhosts = 8";
    let pattern: Pattern = toml::from_str(pattern).unwrap();
    let network = PatternNetwork::uniform(16, 100_000_000_000);
    let workload = pattern.build(&network, 1, &BTreeMap::new()).unwrap();
    let outcome = run_over(&clos(), &workload, &fixed("sr-nack", 20));
    assert_eq!(outcome.done(), workload.flows.len());
    let starts = outcome.flows.iter().filter_map(|flow| flow.start_ns);
    assert!(starts.clone().max() > starts.min());
}

/// The adaptive controller shares the last cable of an incast fairly.
#[test]
fn an_incast_ends_without_a_rate_that_anybody_set() {
    let topology = star(8, 10, 1000);
    let flows = (0..7).map(|src| Flow::new(src, 7, 2_000_000, 0)).collect();
    let transport = Transport::new("farwrite-sr-nack").unwrap();
    let outcome = run_over(&topology, &Workload::of(flows), &transport);
    assert_eq!(outcome.done(), 7);
}

/// Bytes of a full packet of an endpoint on a cable.
const FRAME_BYTES: u64 = 4096 + 64 + 38;

/// The queue in front of the receiver has the first windows at most, and two packets of each sender.
/// They drain while the messages last, because credit leaves room for all control packets.
#[test]
fn credit_bounds_the_queue_of_an_incast() {
    let transport = Transport::new("farwrite-sr-nack@eqds").unwrap();
    let topology = star(16, 10, 3000);
    for (senders, bytes) in [(8, 200_000), (8, 5_000_000), (15, 5_000_000)] {
        let flows = (0..senders).map(|src| Flow::new(src, 15, bytes, 0));
        let workload = Workload::of(flows.collect());
        let outcome = run_over(&topology, &workload, &transport);
        assert_eq!(outcome.done(), senders);
        let count = senders as u64;
        let samples = &outcome.depths.samples;
        let depths = samples.iter().map(|depth| depth.deepest);
        let peak = depths.clone().max().unwrap();
        let last = depths.skip(samples.len() * 3 / 4).max().unwrap();
        let times = outcome.flows.iter().filter_map(FlowOutcome::time_ns);
        let (mean_us, most_ns) = (
            times.clone().sum::<u64>() / count / 1000,
            times.max().unwrap(),
        );
        let port_ns = count * bytes.div_ceil(4096) * FRAME_BYTES * 8 / 10;
        let share = port_ns as f64 / most_ns as f64;
        println!(
            "{count} x {bytes}: at most {peak} bytes, {last} in the last quarter, {share:.3} of the port, \
             mean {mean_us} us, {} repeats",
            outcome.repeated()
        );
        // A round trip of 16 us at 10 Gbit/s, and what a first window may exceed it by.
        assert!(peak < count * (20_000 + 2 * FRAME_BYTES), "{peak}");
        if bytes > 1_000_000 {
            assert!(last < 4 * FRAME_BYTES, "{last}");
            assert!(share > 0.97, "{share}");
        }
    }
}

#[test]
fn a_flow_that_nothing_of_arrives_fails() {
    let mut dead = cable(10, 1000);
    dead.loss = Loss::Iid { loss_packet: 1.0 };
    let topology = Shape::Star {
        hosts: 2,
        cable: dead,
    }
    .build()
    .unwrap();
    let workload = Workload::of(vec![Flow::new(0, 1, 1000, 0)]);
    let outcome = run_over(
        &topology,
        &workload,
        &Transport::new("farwrite-sr-nack").unwrap(),
    );
    let failed = |flow: &FlowOutcome| flow.end == FlowEnd::Failed(FlowError::Late);
    assert!(outcome.flows.iter().all(failed), "{:?}", outcome.flows);
    assert!(outcome.end_ns >= 60_000_000_000);
}

/// Three hosts send ten times the bytes that the last cable can carry before the deadline.
#[test]
fn a_flow_with_a_deadline_ends_then_with_what_has_arrived() {
    let topology = star(4, 10, 1000);
    let deadline = std::time::Duration::from_millis(2);
    let transport = TransportSettings {
        deadline: Some(deadline),
        ..fixed_settings("best-effort", 10)
    };
    let transport = transport.transport().unwrap();
    let mut flows: Vec<_> = (0..3).map(|src| Flow::new(src, 3, 8_000_000, 0)).collect();
    // This flow has a cable of its own.
    flows.push(Flow::new(3, 0, 100_000, 0));
    let outcome = run_over(&topology, &Workload::of(flows), &transport);
    assert_eq!(outcome.done(), 4);
    assert!(outcome.missing.keys().eq(&[0, 1, 2]));
    for (flow, missing) in outcome.flows.iter().zip(outcome.missing.values()) {
        assert_eq!(flow.time_ns(), Some(2_000_000));
        assert!(
            (5_000_000..8_000_000).contains(&flow.missing_bytes),
            "{flow:?}"
        );
        let bytes = missing.iter().map(|range| range.end - range.start);
        assert_eq!(bytes.sum::<u64>(), flow.missing_bytes);
        // Nothing of the end has left.
        assert_eq!(missing.last().map(|range| range.end), Some(8_000_000));
        assert!(missing.is_sorted_by(|one, next| one.end < next.start));
    }
    assert_eq!(outcome.flows[3].missing_bytes, 0);
    assert!(outcome.flows[3].time_ns() < Some(500_000));
}

/// The same flows with XP: without loss, the last packet ends a flow before its deadline.
#[test]
fn a_flow_of_xp_ends_with_its_last_packet_or_at_its_deadline() {
    let settings = TransportSettings {
        deadline: Some(std::time::Duration::from_millis(2)),
        ..TransportSettings::new("xp")
    };
    let transport = settings.transport().unwrap();
    assert_eq!(transport.protocol(), "xp");
    let mut flows: Vec<_> = (0..3).map(|src| Flow::new(src, 3, 8_000_000, 0)).collect();
    flows.push(Flow::new(3, 0, 100_000, 0));
    let outcome = run_over(&star(4, 10, 1000), &Workload::of(flows), &transport);
    assert_eq!(outcome.done(), 4);
    assert!(outcome.missing.keys().eq(&[0, 1, 2]));
    for (flow, missing) in outcome.flows.iter().zip(outcome.missing.values()) {
        assert_eq!(flow.time_ns(), Some(2_000_000));
        assert!(
            (5_000_000..8_000_000).contains(&flow.missing_bytes),
            "{flow:?}"
        );
        let bytes = missing.iter().map(|range| range.end - range.start);
        assert_eq!(bytes.sum::<u64>(), flow.missing_bytes);
        // Nothing of the end has left.
        assert_eq!(missing.last().map(|range| range.end), Some(8_000_000));
        assert!(missing.is_sorted_by(|one, next| one.end < next.start));
    }
    assert_eq!(outcome.flows[3].missing_bytes, 0);
    assert!(outcome.flows[3].time_ns() < Some(200_000));
    assert_eq!(outcome.flows[3].packets, 100_000_u64.div_ceil(4096));

    let refused = |settings: TransportSettings| settings.transport().unwrap_err().to_string();
    let missing = refused(TransportSettings::new("xp"));
    assert!(missing.contains("needs a deadline"), "{missing}");
    let foreign = refused(TransportSettings {
        window: Some(1),
        ..settings.clone()
    });
    assert!(foreign.starts_with("window: xp has no such"), "{foreign}");
    let mtu = refused(TransportSettings {
        mtu: 1500,
        ..settings
    });
    assert!(mtu.starts_with("mtu = 1500"), "{mtu}");
    let long = Workload::of(vec![Flow::new(0, 1, (1 << 31) + 1, 0)]);
    let (topology, options) = (star(2, 10, 1000), Options::default());
    let error = run(&setup(&topology, &options, &long, &transport));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("2147483649 bytes"), "{error}");
}

#[test]
fn a_flow_may_name_the_priority_of_the_transport_and_no_other() {
    let (topology, options) = (star(2, 10, 1000), Options::default());
    let transport = Transport::new("farwrite-sr-nack").unwrap();
    let run_with = |priority| {
        let mut flow = Flow::new(0, 1, 1000, 0);
        flow.priority = Some(priority);
        let workload = Workload::of(vec![flow]);
        run(&setup(&topology, &options, &workload, &transport))
    };
    assert_eq!(run_with(transport.priority()).unwrap().done(), 1);
    let error = run_with(1).unwrap_err().to_string();
    assert!(
        error.starts_with("flow 0 has priority 1; ")
            && error.ends_with("set the priority of the transport to 1"),
        "{error}"
    );
}

/// Each flow of an ns-3 file has a priority.
#[test]
fn flows_of_ns3_run_over_endpoints_of_their_priority() {
    let files = |name: &str| match name {
        "topology.txt" => Ok("3 1 2\n0\n0 1 100Gbps 1000ns 0\n0 2 100Gbps 0.001ms 0\n".to_owned()),
        _ => Ok("2\n1 2 3 9000 0.000001\n2 1 3 100 9000 0.000002\n".to_owned()),
    };
    let plan = |priority: u8| {
        let text = format!(
            "[topology.t]\nfile = \"topology.txt\"\n[workload.w]\nfile = \"flow.txt\"\n\
             [transport.shipped]\nprotocol = \"farwrite-sr-nack\"\npriority = {priority}\n"
        );
        Plan::read(&text, &files)
    };
    let outcomes = sweep(&plan(3).unwrap(), 1, None, |_| true);
    assert_eq!(outcomes[0].outcome.as_ref().unwrap().done(), 2);
    let error = plan(4).unwrap_err().to_string();
    assert!(
        error.starts_with("workload.w: with transport.shipped: flow 0 has priority 3; "),
        "{error}"
    );
}

#[test]
fn a_flow_that_is_too_long_for_a_message_is_refused_before_the_run() {
    let (topology, options) = (star(2, 10, 1000), Options::default());
    let transport = Transport::new("farwrite-sr-nack").unwrap();
    let workload = Workload::of(vec![Flow::new(0, 1, (8 << 30) + 1, 0)]);
    let error = run(&setup(&topology, &options, &workload, &transport)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "flow 0 has 8589934593 bytes; a message has at most 8589934592 with this transport and mtu"
    );
}

#[test]
fn a_plan_has_endpoints_beside_nics() {
    let plan = r#"
        transport = ["roce", "irn", "farwrite-sr-nack", "farwrite-ec-mds:32,8"]
        [topology.rack]
        shape = "star"
        hosts = 4
        cable = { rate = "10Gbit", delay = "1us" }
        [workload.incast]
        pattern = "incast"
        senders = 3
        size = "200kB"
    "#;
    let nothing = |_: &str| Err("no files".to_owned());
    let plan = Plan::read(plan, &nothing).unwrap();
    assert_eq!(plan.notes(), [""; 0]);
    let outcomes = sweep(&plan, 2, None, |_| true);
    for case in &outcomes {
        let transport = plan.names(&case.case).transport;
        assert_eq!(case.outcome.as_ref().unwrap().done(), 3, "{transport}");
    }
    assert_eq!(outcomes.len(), 4);
}
