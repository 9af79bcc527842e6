//! Runs of workloads.

use std::time::Duration;

use crate::common::{cable, clos, setup, star};
use farwrite_experiment::plan::{Plan, sweep};
use farwrite_experiment::{
    Flow, FlowEnd, FlowError, FlowOutcome, Start, Transport, TransportSettings, TriggerKind,
    Workload, memory_bytes, run, transport::Retries,
};
use farwrite_net::{Loss, Options, Pfc, Role, Shape, SwitchConfig, Topology};

fn bare(switch: SwitchConfig) -> Options {
    Options {
        framing_bytes: 0,
        ..Options::with_switches(switch)
    }
}

fn lossless() -> SwitchConfig {
    SwitchConfig {
        pfc: Some(Pfc::new(&[3])),
        ..SwitchConfig::default()
    }
}

/// Without a limit of retransmissions, a flow whose cable loses everything goes on until nothing has arrived for
/// eight timeouts, or until the cable is repaired.
#[test]
fn without_a_limit_of_retries_a_flow_waits_for_its_cable() {
    let plan = |repaired: &str| {
        format!(
            "[topology.rack]\nshape = \"star\"\nhosts = 2\ncable = {{ rate = \"100Gbit\", delay = \"1us\" }}\n\
             [[topology.rack.changes]]\nat = \"1us\"\ncable = [\"host1\", \"switch0\"]\nstate = \"down\"\n{repaired}\
             [workload.one]\npattern = \"incast\"\nsenders = 1\nsize = \"1MB\"\n\
             [transport.roce]\nprotocol = \"roce-nocc\"\nretries = \"unlimited\"\n"
        )
    };
    let run_of = |text: String| {
        let plan = Plan::read(&text, &|_| Err(String::new())).unwrap();
        sweep(&plan, 1, None, |_| true).remove(0).outcome.unwrap()
    };
    let lost = run_of(plan(""));
    let error = FlowEnd::Failed(FlowError::NothingArrives);
    assert_eq!((lost.flows[0].end, lost.last_done_ns()), (error, None));
    assert!(lost.timeouts() > 200, "{}", lost.timeouts());
    let repaired = "[[topology.rack.changes]]\nat = \"3s\"\ncable = [\"host1\", \"switch0\"]\nstate = \"up\"\n";
    assert_eq!(run_of(plan(repaired)).done(), 1);
}

/// Five switches in a ring, each with two hosts that write to the next switch but one: with PFC, each switch stops
/// the one before it. With timers, NICs go on repeating.
#[test]
fn a_circle_of_stopped_switches_is_a_deadlock() {
    const SWITCHES: usize = 5;
    let mut topology = Topology::new();
    let switches: Vec<_> = (0..SWITCHES)
        .map(|number| topology.add(Role::Switch, format!("switch {number}")))
        .collect();
    for &switch in &switches {
        for _ in 0..2 {
            let host = topology.add(Role::Host, "");
            topology.connect(host, switch, cable(100, 1000));
        }
    }
    for number in 0..SWITCHES {
        topology.connect(
            switches[number],
            switches[(number + 1) % SWITCHES],
            cable(100, 1000),
        );
    }
    let to = |host: usize| (host + 4) % (2 * SWITCHES);
    let mut flows: Vec<_> = (0..2 * SWITCHES)
        .map(|host| Flow::new(host, to(host), 20_000_000, 0))
        .collect();
    let options = bare(lossless());
    for timeout in [None, Some(Duration::from_millis(10))] {
        let transport = TransportSettings {
            timeout,
            retries: Some(Retries::AtMost(255)),
            ..TransportSettings::new("roce-nocc")
        };
        let transport = transport.transport().unwrap();
        let workload = Workload::of(flows.clone());
        let outcome = run(&setup(&topology, &options, &workload, &transport)).unwrap();
        let nodes: Vec<_> = outcome.deadlock.iter().map(|(node, _)| *node).collect();
        assert_eq!(nodes, switches, "{timeout:?}");
        assert_eq!((outcome.done(), outcome.failed()), (0, 10), "{timeout:?}");
        let is_stopped = |flow: &FlowOutcome| flow.end == FlowEnd::Failed(FlowError::Deadlock);
        assert!(outcome.flows.iter().all(is_stopped));
    }
    // With flows that leave the ring at the next switch, no switch waits for another one.
    for flow in &mut flows {
        flow.dst = (flow.src + 2) % (2 * SWITCHES);
    }
    let transport = Transport::new("roce-nocc").unwrap();
    let outcome = run(&setup(
        &topology,
        &options,
        &Workload::of(flows),
        &transport,
    ))
    .unwrap();
    assert_eq!((outcome.done(), outcome.deadlock.len()), (10, 0));
}

/// A packet has 1000 bytes of payload and 60 bytes of headers (RETH included); its acknowledgement
/// has 48 bytes. They cross two cables of 1 us at 6.25 bytes per nanosecond: 4000 + 2 * (169.6 +
/// 7.68) ns, each rounded up.
#[test]
fn a_packet_and_its_acknowledgement_take_what_the_cables_take() {
    let topology = star(64, 50, 1000);
    let workload = Workload::of(vec![Flow::new(0, 63, 1000, 0)]);
    let transport = Transport::new("roce-nocc").unwrap();
    let options = bare(lossless());
    let outcome = run(&setup(&topology, &options, &workload, &transport)).unwrap();
    assert_eq!(outcome.flows[0].time_ns(), Some(4356));
    let slowdown = outcome.flows[0].slowdown().unwrap();
    assert!((1.0..1.001).contains(&slowdown), "{slowdown}");
}

/// The ideal time equals the time of a single flow, for any length and any rates on its path.
#[test]
fn flows_alone_take_the_ideal_time() {
    let mixed = Shape::Dumbbell {
        left: 1,
        right: 1,
        host_cable: cable(100, 500),
        middle_cable: cable(40, 7000),
    };
    let transport = Transport::new("roce-nocc").unwrap();
    for topology in [mixed.build().unwrap(), clos(), star(2, 400, 100)] {
        let last = topology.hosts().count() - 1;
        for bytes in [1, 4096, 4097, 12_288, 100_001, 3_000_000] {
            let workload = Workload::of(vec![Flow::new(0, last, bytes, 5000)]);
            let options = Options::with_switches(SwitchConfig {
                latency: std::time::Duration::from_nanos(300),
                ..lossless()
            });
            let outcome = run(&setup(&topology, &options, &workload, &transport)).unwrap();
            let ideal_ns = outcome.flows[0].ideal_ns.unwrap();
            let more_ns = outcome.flows[0].time_ns().unwrap() as f64 - ideal_ns;
            // Each cable rounds up to the next nanosecond.
            assert!((-0.001..=8.0).contains(&more_ns), "{bytes}: {more_ns} ns");
        }
    }
}

/// A controller that allows the rate of the cable costs nothing, also where packets take fractions of
/// a nanosecond.
#[test]
fn a_pace_of_the_cable_rate_costs_nothing() {
    for gbps in [100, 400, 800] {
        let topology = star(2, gbps, 1000);
        let workload = Workload::of(vec![Flow::new(0, 1, 25_000_000, 0)]);
        let time_ns = |protocol| {
            let transport = TransportSettings {
                mtu: 1024,
                ..TransportSettings::new(protocol)
            };
            let transport = transport.transport().unwrap();
            let outcome = run(&setup(&topology, &bare(lossless()), &workload, &transport));
            outcome.unwrap().flows[0].time_ns().unwrap() as f64
        };
        let unpaced = time_ns("roce-nocc");
        for protocol in ["roce", "irn", "falcon"] {
            let ratio = time_ns(protocol) / unpaced;
            assert!((0.999..1.001).contains(&ratio), "{gbps} {protocol} {ratio}");
        }
    }
}

/// A path of 400 Gbit/s and 25 ms holds 1.25 GB, and no acknowledgement arrives within 4 ms.
#[test]
fn window_and_timeout_grow_with_the_path() {
    let topology = Shape::PointToPoint {
        cable: cable(400, 12_500_000),
    };
    let topology = topology.build().unwrap();
    let workload = Workload::of(vec![Flow::new(0, 1, 1 << 28, 0)]);
    let (options, transport) = (Options::default(), Transport::new("roce-nocc").unwrap());
    let outcome = run(&setup(&topology, &options, &workload, &transport)).unwrap();
    let slowdown = outcome.flows[0].slowdown().unwrap();
    assert!((1.0..1.001).contains(&slowdown), "{slowdown}");
    assert_eq!((outcome.flows[0].timeouts, outcome.repeated()), (0, 0));
}

#[test]
fn an_incast_without_drops_takes_what_its_last_cable_takes() {
    let topology = star(16, 50, 1000);
    let flows = (0..15).map(|src| Flow::new(src, 15, 500_000, 10_000 * src as u64));
    let workload = Workload::of(flows.collect());
    let transport = TransportSettings {
        mtu: 1024,
        ..TransportSettings::new("roce-nocc")
    };
    let transport = transport.transport().unwrap();
    let options = bare(lossless());
    let outcome = run(&setup(&topology, &options, &workload, &transport)).unwrap();
    assert_eq!((outcome.done(), outcome.repeated()), (15, 0));
    assert_eq!(outcome.totals.all_dropped(), 0);
    // 7.5 MB with 44 bytes more for each 1024 at 50 Gbit/s, and one round trip.
    let drained = 7_500_000.0 * 1068.0 / 1024.0 * 8.0 / 50.0;
    let last = outcome.last_done_ns().unwrap() as f64;
    assert!(
        (1.0..1.01).contains(&(last / drained)),
        "{last} of {drained}"
    );
    assert!(
        outcome
            .depths
            .samples
            .iter()
            .any(|depth| depth.deepest > 100_000)
    );
}

/// Two seeds, and the first one again.
#[test]
fn the_seed_determines_a_run() {
    let topology = clos();
    let flows = (0..16).map(|src| Flow::new(src, (src + 5) % 16, 200_000, 0));
    let workload = Workload::of(flows.collect());
    let transport = Transport::new("roce-nocc").unwrap();
    let options = Options::with_switches(lossless());
    let run = |seed| {
        let mut setup = setup(&topology, &options, &workload, &transport);
        setup.seed = seed;
        run(&setup).unwrap()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).trace_hash, run(2).trace_hash);
}

/// Hashes of all events of one run of each kind of transport. They are the same on every machine. A
/// change of the simulator, of a NIC or of an endpoint that moves an event changes them.
#[test]
fn runs_are_the_same_on_every_machine() {
    let text = r#"
        transport = ["roce", "irn", "falcon", "farwrite-sr-nack"]
        loss = [1e-3]
        [topology.clos]
        shape = "leaf-spine"
        leaves = 2
        spines = 2
        hosts_per_leaf = 4
        host_cable = { rate = "100Gbit", delay = "1us" }
        spine_cable = { rate = "100Gbit", delay = "1us" }
        [workload.incast]
        pattern = "incast"
        senders = 7
        size = "300kB"
    "#;
    let none = |name: &str| Err(format!("{name}: not needed"));
    let plan = Plan::read(text, &none).unwrap();
    let outcomes = sweep(&plan, 2, None, |_| true);
    let hashes = outcomes.iter().map(|case| {
        let outcome = case.outcome.as_ref().unwrap();
        assert_eq!(outcome.done(), 7);
        (plan.names(&case.case).transport, outcome.trace_hash)
    });
    let want = [
        ("roce", 0x7729_29CF_A2AD_BBAB),
        ("irn", 0x1A7F_017E_7CC4_BF5F),
        ("falcon", 0xCCAB_B9F7_E8B9_4F3A),
        ("farwrite-sr-nack", 0xA618_6E91_488F_906D),
    ];
    assert_eq!(hashes.collect::<Vec<_>>(), want);
}

#[test]
fn triggers_start_what_waits_for_them() {
    let mut workload = Workload::default();
    let once = workload.add_trigger(TriggerKind::OneShot);
    let each = workload.add_trigger(TriggerKind::MultiShot);
    let both = workload.add_trigger(TriggerKind::Barrier(2));
    let never = workload.add_trigger(TriggerKind::Barrier(3));
    let on = |trigger, flow: Flow| Flow {
        start: Start::On(trigger),
        ..flow
    };
    let small = |src, dst| Flow::new(src, dst, 1000, 0);
    workload.flows = vec![
        Flow {
            when_received: Some(once),
            ..small(0, 1)
        },
        Flow {
            when_sent: Some(each),
            ..on(once, small(1, 2))
        },
        Flow {
            when_sent: Some(both),
            ..on(each, small(2, 3))
        },
        on(each, small(3, 0)),
        Flow {
            when_sent: Some(both),
            ..on(once, small(1, 3))
        },
        on(both, small(0, 3)),
        on(never, small(2, 0)),
    ];
    let topology = star(4, 100, 1000);
    let (options, transport) = (
        Options::with_switches(lossless()),
        Transport::new("roce-nocc").unwrap(),
    );
    let outcome = run(&setup(&topology, &options, &workload, &transport)).unwrap();
    let start = |flow: usize| outcome.flows[flow].start_ns;
    let end = |flow: usize| match outcome.flows[flow].end {
        FlowEnd::Done { at_ns } => at_ns,
        other => panic!("flow {flow}: {other:?}"),
    };
    // The receiver has the message before the sender has the acknowledgement.
    assert!(start(1).unwrap() < end(0) && start(1).unwrap() > 2000);
    assert_eq!(start(4), start(1));
    // One activation starts the first of the waiting flows.
    assert_eq!((start(2), start(3)), (Some(end(1)), None));
    assert_eq!(start(5), Some(end(2).max(end(4))));
    assert_eq!(outcome.flows[3].end, FlowEnd::NotStarted);
    assert_eq!(outcome.flows[6].end, FlowEnd::NotStarted);
}

#[test]
fn losses_are_repaired_counted_and_in_the_end_given_up() {
    let mut lossy = cable(100, 1000);
    lossy.loss = Loss::Iid { loss_packet: 0.01 };
    let topology = Shape::Star {
        hosts: 2,
        cable: lossy,
    }
    .build()
    .unwrap();
    let workload = Workload::of(vec![Flow::new(0, 1, 2_000_000, 0)]);
    let options = Options::with_switches(lossless());
    let transport = Transport::new("roce-nocc").unwrap();
    let outcome = run(&setup(&topology, &options, &workload, &transport)).unwrap();
    assert_eq!(outcome.done(), 1);
    assert!(outcome.repeated() > 0 && outcome.totals.all_dropped() > 0);

    lossy.loss = Loss::Iid { loss_packet: 1.0 };
    let topology = Shape::Star {
        hosts: 2,
        cable: lossy,
    }
    .build()
    .unwrap();
    let outcome = run(&setup(&topology, &options, &workload, &transport)).unwrap();
    assert!(matches!(outcome.flows[0].end, FlowEnd::Failed(_)));
    assert!(outcome.flows[0].timeouts > 0);
}

/// Files of ns-3 begin at 2 s.
#[test]
fn samples_begin_with_the_first_flow() {
    let topology = star(2, 100, 1000);
    let workload = Workload::of(vec![Flow::new(0, 1, 1_000_000, 2_000_000_000)]);
    let (options, transport) = (
        Options::with_switches(lossless()),
        Transport::new("roce-nocc").unwrap(),
    );
    let outcome = run(&setup(&topology, &options, &workload, &transport)).unwrap();
    assert_eq!(outcome.depths.start_ns, 2_000_000_000);
    let sampled_ns = outcome.depths.interval_ns * outcome.depths.samples.len() as u64;
    let missing_ns = outcome.end_ns - 2_000_000_000 - sampled_ns;
    assert!(missing_ns <= outcome.depths.interval_ns, "{missing_ns}");
}

fn every_transport() -> [Transport; 8] {
    farwrite_rc::RdmaTransport::ALL.map(|protocol| Transport::new(protocol.name()).unwrap())
}

/// Returns the switches of a plan that names none.
fn switches_for(transport: &Transport) -> Options {
    let path = farwrite_rc::PathProfile {
        rate_bps: 1,
        rtt_ns: 1,
        mtu_bytes: transport.mtu(),
        framing_bytes: 38,
    };
    let nic: farwrite_rc::RdmaTransport = transport.protocol().parse().unwrap();
    Options::with_switches(nic.switch(&[transport.priority()], &path))
}

/// Controllers delay a lone flow only by the effect of their first window and their pace. UCCL's
/// software delays the last data packet and its acknowledgement by 2 us each.
#[test]
fn a_flow_alone_is_near_its_ideal_time_under_every_transport() {
    let topology = clos();
    for transport in every_transport() {
        for bytes in [1, 4096, 100_001, 25_000_000] {
            let workload = Workload::of(vec![Flow::new(0, 15, bytes, 5000)]);
            let options = switches_for(&transport);
            let outcome = run(&setup(&topology, &options, &workload, &transport)).unwrap();
            let protocol = transport.protocol();
            let software_ns = if protocol == "uccl" { 4_000 } else { 0 };
            let time_ns = outcome.flows[0].time_ns().unwrap() - software_ns;
            let slowdown = time_ns as f64 / outcome.flows[0].ideal_ns.unwrap();
            assert!(
                (0.999..1.05).contains(&slowdown),
                "{protocol}, {bytes}: {slowdown}"
            );
            assert_eq!((outcome.repeated(), outcome.flows[0].timeouts), (0, 0));
        }
    }
}

/// An incast into a buffer of 200 kB: with PFC nothing is dropped; without it, Go-Back-N
/// retransmits everything after each drop.
#[test]
fn roce_without_pfc_drops_and_goes_back() {
    let topology = star(9, 50, 1000);
    let flows = (0..8).map(|src| Flow::new(src, 8, 500_000, 0)).collect();
    let workload = Workload::of(flows);
    let outcome_of = |protocol| {
        let transport = Transport::new(protocol).unwrap();
        let mut options = switches_for(&transport);
        if options.switch.pfc.is_none() {
            options.switch.buffer_bytes = 200_000;
        }
        run(&setup(&topology, &options, &workload, &transport)).unwrap()
    };
    let (lossless, lossy) = (outcome_of("roce"), outcome_of("roce-lossy"));
    assert_eq!((lossless.done(), lossy.done()), (8, 8));
    assert_eq!((lossless.totals.all_dropped(), lossless.repeated()), (0, 0));
    assert_eq!(lossy.totals.pauses_sent, 0);
    let dropped = lossy.totals.all_dropped();
    assert!(dropped > 0 && lossy.repeated() > dropped, "{dropped}");
    assert!(lossy.totals.marked > 0);
}

/// Timers of controllers and of receivers that grant credit do not keep a run going.
#[test]
fn a_run_ends_under_every_transport_when_nothing_arrives() {
    let mut dead = cable(100, 1000);
    dead.loss = Loss::Iid { loss_packet: 1.0 };
    let mut lossy = cable(100, 1000);
    lossy.loss = Loss::Iid { loss_packet: 0.05 };
    let star = |cable| Shape::Star { hosts: 3, cable }.build().unwrap();
    let flows = vec![Flow::new(0, 2, 500_000, 0), Flow::new(1, 2, 500_000, 0)];
    let workload = Workload::of(flows);
    for transport in every_transport() {
        let options = switches_for(&transport);
        let outcome = run(&setup(&star(dead), &options, &workload, &transport)).unwrap();
        let failed = |flow: &FlowOutcome| matches!(flow.end, FlowEnd::Failed(_));
        assert!(outcome.flows.iter().all(failed), "{}", transport.protocol());
        let outcome = run(&setup(&star(lossy), &options, &workload, &transport)).unwrap();
        assert_eq!(outcome.done(), 2, "{}", transport.protocol());
        assert!(outcome.repeated() > 0);
    }
}

/// Data fills the queues of a trimming switch. Acknowledgements in the same queues have no payload
/// that could be trimmed.
#[test]
fn acknowledgements_pass_the_queues_of_switches_that_trim() {
    let topology = clos();
    let transport = Transport::new("eqds").unwrap();
    let options = switches_for(&transport);
    let flows = (0..16).map(|src| Flow::new(src, (src + 5) % 16, 5_000_000, 0));
    let workload = Workload::of(flows.collect());
    let outcome = run(&setup(&topology, &options, &workload, &transport)).unwrap();
    assert_eq!(outcome.done(), 16);
    assert!(outcome.totals.trimmed > 0);
    assert_eq!(outcome.totals.all_dropped(), 0);
    assert!(outcome.flows.iter().all(|flow| flow.timeouts == 0));
}

#[test]
fn a_run_can_end_early() {
    let topology = star(2, 100, 1000);
    let workload = Workload::of(vec![Flow::new(0, 1, 1 << 30, 0)]);
    let (options, transport) = (
        Options::with_switches(lossless()),
        Transport::new("roce-nocc").unwrap(),
    );
    let mut setup = setup(&topology, &options, &workload, &transport);
    setup.until_ns = Some(100_000);
    let outcome = run(&setup).unwrap();
    assert_eq!(outcome.flows[0].end, FlowEnd::Unfinished);
    assert_eq!(outcome.end_ns, 100_000);
}

#[test]
fn workloads_that_do_not_fit_are_refused() {
    let topology = star(2, 100, 1000);
    let (options, transport) = (
        Options::with_switches(lossless()),
        Transport::new("roce-nocc").unwrap(),
    );
    let error = |flow| {
        let workload = Workload::of(vec![flow]);
        let setup = setup(&topology, &options, &workload, &transport);
        run(&setup).unwrap_err().to_string()
    };
    assert!(error(Flow::new(0, 2, 1, 0)).contains("host 2; the topology has hosts 0 to 1"));
    assert!(error(Flow::new(1, 1, 1, 0)).contains("host 1 to itself"));
    assert!(error(Flow::new(0, 1, 0, 0)).contains("0 bytes"));
}

#[test]
fn memory_grows_with_flows_and_hosts() {
    let (options, transport) = (
        Options::with_switches(lossless()),
        Transport::new("roce-nocc").unwrap(),
    );
    let memory = |hosts, flows| {
        let topology = star(hosts, 100, 1000);
        let workload = Workload::of(vec![Flow::new(0, 1, 1000, 0); flows]);
        memory_bytes(&setup(&topology, &options, &workload, &transport))
    };
    assert!(memory(2, 1_000_000) > memory(2, 10) + (1 << 30));
    assert!(memory(1000, 10) > memory(2, 10) + 1_000_000);
}

/// Without this check, a plan with an absurd size takes all memory before its first packet.
#[test]
fn memory_grows_with_the_writes_of_a_long_flow() {
    let (topology, options) = (star(2, 100, 1000), Options::default());
    let memory = |bytes| {
        let workload = Workload::of(vec![Flow::new(0, 1, bytes, 0)]);
        memory_bytes(&setup(
            &topology,
            &options,
            &workload,
            &Transport::new("roce").unwrap(),
        ))
    };
    assert!(memory(10_000_000_000_000_000_000) > 1 << 40);
    assert!(memory(1 << 40) < 1 << 30);
}

/// Buffers hold few frames here, so most of the memory is what endpoints keep about their packets.
#[test]
fn memory_of_endpoints_grows_with_packets() {
    let (topology, options) = (star(2, 100, 1000), Options::default());
    let transport = Transport::new("farwrite-sr-rto").unwrap();
    let memory = |bytes| {
        let workload = Workload::of(vec![Flow::new(0, 1, bytes, 0)]);
        memory_bytes(&setup(&topology, &options, &workload, &transport))
    };
    let (short, long) = (memory(1 << 30), memory(8 << 30));
    assert_eq!(long - short, 6 * (7 << 18));
}
