//! XP: flows on one queue pair, and what completes them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{cable, setup, star};
use crate::plans::read;
use farwrite_experiment::plan::sweep;
use farwrite_experiment::{
    CableChange, CompleteBy, EndedBy, Flow, FlowEnd, FlowOutcome, Outcome, QueuePairOf, RunSetup,
    Transport, TransportSettings, Workload, run,
};
use farwrite_net::{CableId, Change, Loss, Options, Shape};
use proptest::prelude::*;

const MTU: u64 = 4096;
/// A packet on a cable of 10 Gbit/s: 4096 bytes of payload, 60 of headers (IPv4, UDP, BTH, RETH, ICRC), 38 of framing.
/// The time is in tenths of a nanosecond.
const PACKET_TENTHS: u64 = (4096 + 60 + 38) * 8;
const DEADLINE_NS: u64 = 1_000_000;

fn xp(
    protocol: &str,
    queue_pair: QueuePairOf,
    complete_by: CompleteBy,
    deadline_ns: u64,
) -> Transport {
    let settings = TransportSettings {
        deadline: Some(Duration::from_nanos(deadline_ns)),
        queue_pair: Some(queue_pair),
        complete_by: Some(complete_by),
        ..TransportSettings::new(protocol)
    };
    let transport = settings.transport().unwrap();
    assert_eq!(TransportSettings::from(&transport), settings);
    transport
}

/// Two flows of 10 packets from host 0 to host 1, of which one packet is lost: the receiver's cable is down for half a
/// microsecond while it carries this packet.
///
/// Packet `n` (from 1) has left the sender after `n` packet times. It enters the receiver's cable 1 us later, and
/// arrives after another packet time and 1 us.
fn two_flows(queue_pair: QueuePairOf, complete_by: CompleteBy, lost: u64) -> [FlowOutcome; 2] {
    let transport = xp("xp", queue_pair, complete_by, DEADLINE_NS);
    let (topology, options) = (star(2, 10, 1000), Options::default());
    let flow = Flow::new(0, 1, 10 * MTU, 0);
    let workload = Workload::of(vec![flow, flow]);
    // The packet before has arrived, and the next one is not on the cable yet.
    let down_ns = lost * PACKET_TENTHS / 10 + 2_500;
    let changes = [(0, Change::Down), (500, Change::Up)].map(|(after_ns, change)| CableChange {
        at_ns: down_ns + after_ns,
        cable: CableId(1),
        change,
    });
    let outcome = run(&RunSetup {
        changes: &changes,
        ..setup(&topology, &options, &workload, &transport)
    });
    let outcome = outcome.unwrap();
    assert_eq!((outcome.totals.all_dropped(), outcome.done()), (1, 2));
    assert_eq!(outcome.packets(), 20);
    let before = lost - 1;
    let [flow, packet] = match queue_pair {
        QueuePairOf::Hosts => [before / 10, before % 10],
        QueuePairOf::Flow => [before % 2, before / 2],
    };
    let gap = packet * MTU..(packet + 1) * MTU;
    let missing = BTreeMap::from([(usize::try_from(flow).unwrap(), vec![gap])]);
    assert_eq!(outcome.missing, missing);
    [outcome.flows[0], outcome.flows[1]]
}

/// Checks how a flow ended, and that it ended when packet `n` of both flows together arrived; 0 for at the deadline.
/// Packets with an immediate have 4 bytes more, and rates of whole kilobits a second round times.
fn check(flow: &FlowOutcome, by: EndedBy, missing: u64, n: u64) {
    assert_eq!(
        (flow.ended_by, flow.missing_bytes),
        (Some(by), missing * MTU),
        "{flow:?}"
    );
    let arrived_ns = match n {
        0 => DEADLINE_NS,
        n => (n + 1) * PACKET_TENTHS / 10 + 2_000,
    };
    let time_ns = flow.time_ns().unwrap();
    let is_near = (arrived_ns..arrived_ns + 20).contains(&time_ns);
    assert!(is_near, "{arrived_ns} ns: {flow:?}");
}

#[test]
fn a_flow_without_its_last_packet_ends_with_the_next_flow_of_its_queue_pair() {
    for complete_by in [CompleteBy::LastPacket, CompleteBy::Bytes] {
        let whole = match complete_by {
            CompleteBy::LastPacket => EndedBy::LastPacket,
            CompleteBy::Bytes => EndedBy::Bytes,
        };
        // Packet 10 is the last one of the first flow.
        let [first, second] = two_flows(QueuePairOf::Hosts, complete_by, 10);
        check(&first, EndedBy::LaterFlow, 1, 11);
        check(&second, whole, 0, 20);
        // No flow is after the second one.
        let [first, second] = two_flows(QueuePairOf::Hosts, complete_by, 20);
        check(&first, whole, 0, 10);
        check(&second, EndedBy::Deadline, 1, 0);
        // On queue pairs of their own, flows take turns packet by packet, and do not end each other.
        let [first, second] = two_flows(QueuePairOf::Flow, complete_by, 19);
        check(&first, EndedBy::Deadline, 1, 0);
        check(&second, whole, 0, 20);
    }
}

#[test]
fn a_flow_with_a_gap_ends_with_its_last_packet_or_waits_for_all_bytes() {
    let [first, second] = two_flows(QueuePairOf::Hosts, CompleteBy::LastPacket, 5);
    check(&first, EndedBy::LastPacket, 1, 10);
    check(&second, EndedBy::LastPacket, 0, 20);
    let [first, second] = two_flows(QueuePairOf::Hosts, CompleteBy::Bytes, 5);
    check(&first, EndedBy::LaterFlow, 1, 11);
    check(&second, EndedBy::Bytes, 0, 20);
    let [first, second] = two_flows(QueuePairOf::Hosts, CompleteBy::Bytes, 15);
    check(&first, EndedBy::Bytes, 0, 10);
    check(&second, EndedBy::Deadline, 1, 0);
}

/// Without loss, a flow waits for the flows before it on its queue pair, but not for those of another priority.
#[test]
fn flows_of_one_priority_and_two_hosts_share_a_queue_pair_in_both_directions() {
    let transport = xp(
        "xp",
        QueuePairOf::Hosts,
        CompleteBy::LastPacket,
        DEADLINE_NS,
    );
    let (topology, options) = (star(3, 10, 1000), Options::default());
    let mut flows = vec![
        Flow::new(0, 1, 10 * MTU, 0),
        Flow::new(0, 1, 10 * MTU, 0),
        Flow::new(1, 0, 10 * MTU, 0),
        Flow::new(0, 1, 10 * MTU, 0),
    ];
    flows[3].priority = Some(5);
    let outcome = run(&setup(
        &topology,
        &options,
        &Workload::of(flows),
        &transport,
    ))
    .unwrap();
    // One packet leaves before the flow of the higher priority starts, which then goes first.
    for (flow, last) in outcome.flows.iter().zip([20, 30, 10, 11]) {
        check(flow, EndedBy::LastPacket, 0, last);
        assert_eq!(flow.packets, 10);
    }
}

proptest! {
    /// Flows among four hosts over cables that lose packets. Each flow ends once, by its deadline; all bytes that arrived
    /// are those of packets that were not lost, each counted once; and flows of a queue pair end in the order in which
    /// they started.
    #[test]
    fn every_flow_ends_once_and_no_byte_counts_twice(
        flows in prop::collection::vec((0usize..4, 1usize..4, 1u64..40, 0u64..200_000), 1..20),
        loss in 0.0f64..0.3,
        shares: bool,
        by_bytes: bool,
        has_credit: bool,
        is_short: bool,
        seed: u64,
    ) {
        let queue_pair = if shares { QueuePairOf::Hosts } else { QueuePairOf::Flow };
        let complete_by = if by_bytes { CompleteBy::Bytes } else { CompleteBy::LastPacket };
        // A long deadline never makes a packet late.
        let deadline_ns = if is_short { 60_000 } else { 100_000_000 };
        let protocol = if has_credit { "xp@eqds" } else { "xp" };
        let transport = xp(protocol, queue_pair, complete_by, deadline_ns);
        let mut cable = cable(10, 1000);
        cable.loss = Loss::Iid { loss_packet: loss };
        let topology = Shape::Star { hosts: 4, cable }.build().unwrap();
        let flows: Vec<_> = flows.into_iter().map(|(src, to, packets, start_ns)| {
            Flow::new(src, (src + to) % 4, packets * MTU, start_ns)
        }).collect();
        let workload = Workload::of(flows.clone());
        let options = Options::default();
        let outcome = run(&RunSetup {
            seed,
            ..setup(&topology, &options, &workload, &transport)
        }).unwrap();
        let mut arrived = 0;
        let mut ends = Vec::new();
        for (number, (flow, of)) in flows.iter().zip(&outcome.flows).enumerate() {
            let missing = outcome.missing.get(&number).into_iter().flatten();
            let missing_bytes: u64 = missing.map(|range| range.end - range.start).sum();
            prop_assert_eq!(missing_bytes, of.missing_bytes);
            let (FlowEnd::Done { at_ns }, Some(by)) = (of.end, of.ended_by) else {
                panic!("{of:?}");
            };
            prop_assert!(of.time_ns() <= Some(deadline_ns));
            prop_assert_eq!(by == EndedBy::Deadline, of.time_ns() == Some(deadline_ns));
            prop_assert!(of.missing_bytes % MTU == 0 && of.missing_bytes <= flow.bytes);
            prop_assert!(of.packets <= flow.bytes / MTU);
            prop_assert!(by != EndedBy::Bytes || of.missing_bytes == 0);
            prop_assert!(by != EndedBy::LaterFlow || (shares && of.missing_bytes > 0));
            arrived += (flow.bytes - of.missing_bytes) / MTU;
            ends.push((flow.src, flow.dst, of.start_ns, at_ns));
        }
        prop_assert!(arrived <= outcome.packets());
        if !is_short && !has_credit {
            // No packet is late, and no grants are among the frames that were dropped.
            prop_assert_eq!(arrived, outcome.packets() - outcome.totals.all_dropped());
        }
        // Equal starts are in the order of the workload.
        ends.sort_by_key(|(src, dst, start_ns, _)| (*src, *dst, *start_ns));
        for pair in ends.windows(2).filter(|_| shares) {
            let [one, next] = [pair[0], pair[1]];
            prop_assert!((one.0, one.1) != (next.0, next.1) || one.3 <= next.3, "{:?}", pair);
        }
    }
}

/// Runs an incast over `xp@eqds`, with the switches that it needs.
fn over_credit(senders: usize, packets: u64, complete_by: CompleteBy) -> Outcome {
    let plan = format!(
        "[topology.t]\nshape = \"star\"\nhosts = {}\ncable = {{ rate = \"10Gbit\", delay = \"1us\" }}\n\
         [workload.w]\npattern = \"incast\"\nsenders = {senders}\nsize = \"{}B\"\n\
         [transport.x]\nprotocol = \"xp@eqds\"\ndeadline = \"50ms\"\ncomplete_by = \"{}\"\n",
        senders + 1,
        packets * MTU,
        if complete_by == CompleteBy::Bytes {
            "bytes"
        } else {
            "last-packet"
        },
    );
    let mut outcomes = sweep(&read(&plan).unwrap(), 1, None, |_| true);
    outcomes.remove(0).outcome.unwrap()
}

/// The first packet arrives after two packet times and 2 us. Then the receiver grants packets at 0.99 of the rate. A
/// grant takes 2.2 us to the sender, and its packet two packet times and 2 us. A first window is a round trip: two packet
/// times, 2 us and 2.2 us, so 4 packets.
#[test]
fn credit_paces_a_flow_after_its_first_window() {
    let outcome = over_credit(1, 1000, CompleteBy::Bytes);
    let flow = outcome.flows[0];
    assert_eq!(
        (flow.ended_by, flow.missing_bytes),
        (Some(EndedBy::Bytes), 0)
    );
    let last_grant = 995 * PACKET_TENTHS / 10 * 100 / 99;
    let want_ns = 4 * PACKET_TENTHS / 10 + 6_200 + last_grant;
    let time_ns = flow.time_ns().unwrap();
    let is_near = (want_ns - 1_000..want_ns + 1_000).contains(&time_ns);
    assert!(is_near, "{want_ns} ns: {flow:?}");
}

/// The first windows of 15 senders are 60 packets, of which a queue has room for 35. After that, credit keeps the queue
/// short.
#[test]
fn of_an_incast_with_credit_only_first_windows_are_trimmed() {
    for complete_by in [CompleteBy::LastPacket, CompleteBy::Bytes] {
        let outcome = over_credit(15, 250, complete_by);
        let trimmed = outcome.totals.trimmed;
        assert!((10..60).contains(&trimmed), "{trimmed}");
        assert_eq!(outcome.totals.all_dropped(), 0);
        assert_eq!((outcome.packets(), outcome.done()), (15 * 250, 15));
        assert_eq!(outcome.missing_bytes(), trimmed * MTU);
        for flow in &outcome.flows {
            let by = match (complete_by, flow.missing_bytes) {
                (CompleteBy::LastPacket, _) => EndedBy::LastPacket,
                (CompleteBy::Bytes, 0) => EndedBy::Bytes,
                (CompleteBy::Bytes, _) => EndedBy::Deadline,
            };
            assert_eq!(flow.ended_by, Some(by), "{flow:?}");
            let last_ns = 15 * 250 * PACKET_TENTHS / 10 * 100 / 99;
            assert!(by == EndedBy::Deadline || flow.time_ns() < Some(last_ns + 50_000));
        }
    }
}

/// A plan may have the keys with XP, and with no other protocol.
#[test]
fn a_plan_says_who_shares_a_queue_pair_and_what_completes_a_flow() {
    let plan = |protocol: &str, keys: &str| {
        let topology =
            "shape = \"star\"\nhosts = 2\ncable = { rate = \"10Gbit\", delay = \"1us\" }";
        read(&format!(
            "[topology.t]\n{topology}\n[workload.w]\npattern = \"incast\"\nsenders = 1\nsize = \"1MB\"\n\
             [transport.x]\nprotocol = \"{protocol}\"\n{keys}"
        ))
    };
    let deadline = "deadline = \"1ms\"\n";
    for of in ["flow", "hosts"] {
        for by in ["last-packet", "bytes"] {
            let keys = format!("{deadline}queue_pair = \"{of}\"\ncomplete_by = \"{by}\"\n");
            plan("xp", &keys).unwrap();
        }
    }
    let refused = plan("xp", &format!("{deadline}queue_pair = \"none\"\n")).unwrap_err();
    assert!(refused.contains("`flow` or `hosts`"), "{refused}");
    for key in ["queue_pair = \"hosts\"", "complete_by = \"bytes\""] {
        let refused = plan("roce", key).unwrap_err();
        assert!(refused.contains("roce has no such setting"), "{refused}");
    }
    let window = format!("{deadline}eqds = {{ first_window = \"9kB\" }}\n");
    plan("xp@eqds", &window).unwrap();
    let refused = plan("xp", &window).unwrap_err();
    assert!(refused.contains("xp has no such setting"), "{refused}");
    let refused = plan("xp@swift", deadline).unwrap_err();
    assert!(refused.contains("xp@eqds"), "{refused}");
}
