//! Estimates of the memory of a run.

use farwrite_net::Role;

use crate::boxes::HEADER_BYTES;
use crate::capture;
use crate::hosts::MAX_WRITE_BYTES;
use crate::meter::{Depth, MAX_SAMPLES};
use crate::run::{RunSetup, UnstartedFlows, box_path};
use crate::series::MAX_EVENTS;
use crate::transport::Transport;
use crate::{Flow, FlowOutcome, FlowSample, LinkSample, Outcome, SeriesEvent};

/// Estimated upper bound of the memory of a run, in bytes: hosts and ports, queue pairs, boxes, and
/// the frames that windows and buffers allow.
#[must_use]
pub fn memory_bytes(setup: &RunSetup<'_>) -> u64 {
    // Measured with `cargo run --release -p farwrite-bench --example simulation_speed -- memory`, which
    // prints the estimate next to real runs. For endpoints, the flow is that of the scheme with the
    // largest flows, `ec-xor:32,8`, and the packet that of the scheme with the largest packets,
    // `sr-rto` (5 bytes).
    const NODE: u64 = 2_350;
    const FLOW: u64 = 3_500;
    // A request that waits in a NIC.
    const WRITE: u64 = 150;
    const ENDPOINT_HOST: u64 = 4_000;
    const ENDPOINT_FLOW: u64 = 38_000;
    const ENDPOINT_PACKET: u64 = 6;
    const FRAME: u64 = 250;
    let nodes = setup.topology.nodes().len() as u64;
    let switches = setup.topology.with_role(Role::Switch).count() as u64;
    let hosts = setup.topology.hosts().count() as u64;
    let flows = setup.workload.flows.len() as u64;
    let mtu = u64::from(setup.transport.mtu());
    let of_flows = match setup.transport {
        Transport::Endpoint(_) => [
            hosts * ENDPOINT_HOST,
            flows.saturating_mul(ENDPOINT_FLOW),
            pieces(setup, mtu).saturating_mul(ENDPOINT_PACKET),
        ],
        Transport::Nic(_) | Transport::Xp(_) => [
            0,
            flows.saturating_mul(FLOW),
            pieces(setup, MAX_WRITE_BYTES).saturating_mul(WRITE),
        ],
    };
    let parts = [
        nodes * NODE,
        setup.topology.cables().len() as u64 * NODE,
        switches * hosts * 4,
        box_bytes(setup),
        most_frames(setup, mtu)
            .saturating_mul(FRAME + carried_bytes(setup) + setup.transport.telemetry_bytes()),
    ];
    let parts = parts.into_iter().chain(of_flows);
    parts.fold(0, u64::saturating_add)
}

/// Heap memory of a frame's payload, in bytes. Boxes convert headers and ghost payloads to real
/// bytes.
fn carried_bytes(setup: &RunSetup<'_>) -> u64 {
    if setup.boxes.is_empty() {
        return 0;
    }
    u64::from(setup.transport.mtu()) + HEADER_BYTES
}

/// Number of pieces of at most `bytes` bytes in all flows.
fn pieces(setup: &RunSetup<'_>, bytes: u64) -> u64 {
    let flows = setup.workload.flows.iter();
    let pieces = flows.map(|flow| match flow.is_endless() {
        true => 2,
        false => flow.bytes.div_ceil(bytes),
    });
    pieces.fold(0, u64::saturating_add)
}

/// Upper bound of the full packets in flight at a time.
fn most_frames(setup: &RunSetup<'_>, mtu: u64) -> u64 {
    let wanted = setup.workload.flows.iter().map(|flow| {
        let packets = flow.bytes.div_ceil(mtu);
        // Without a window, the capacity of cables and buffers is the limit.
        packets.min(setup.transport.window().map_or(u64::MAX, u64::from))
    });
    let buffers = setup.topology.with_role(Role::Switch).map(|node| {
        let own = setup.options.exceptions.get(&node);
        own.unwrap_or(&setup.options.switch).buffer_bytes
    });
    let on_cables = setup.topology.cables().iter().map(|cable| {
        let rate_bps = cable.config.rate_bps.max(cable.config.back_bps());
        let bits = u128::from(rate_bps) * cable.config.delay.as_nanos();
        u64::try_from(bits / 4_000_000_000).unwrap_or(u64::MAX)
    });
    let room = buffers.chain(on_cables).fold(0_u64, u64::saturating_add);
    wanted.fold(0_u64, u64::saturating_add).min(room / mtu)
}

/// Estimated upper bound of the memory of the boxes of a setup, in bytes.
fn box_bytes(setup: &RunSetup<'_>) -> u64 {
    if setup.boxes.is_empty() {
        return 0;
    }
    let unstarted = UnstartedFlows::of(setup);
    let of_boxes = setup.boxes.iter().map(|placed| {
        let at = box_path(setup, &unstarted, placed.node);
        placed.kind.memory_bytes(&at)
    });
    of_boxes.fold(0, u64::saturating_add)
}

/// Estimated upper bound of the memory of a run's outcome, in bytes: flows, and samples of queues.
pub(crate) fn result_bytes(setup: &RunSetup<'_>) -> u64 {
    let flow_bytes = (size_of::<Flow>() + size_of::<FlowOutcome>()) as u64;
    let samples_bytes = (MAX_SAMPLES * size_of::<Depth>()) as u64;
    let flows = setup.workload.flows.len() as u64;
    let of_flows = flows.saturating_mul(flow_bytes);
    of_flows.saturating_add(samples_bytes + size_of::<Outcome>() as u64)
}

/// Upper bound of the memory of what a run records, in bytes.
pub(crate) fn recorded_bytes(setup: &RunSetup<'_>) -> u64 {
    let ends = setup.topology.cables().iter().flat_map(|cable| cable.ends);
    let nodes = setup.topology.nodes();
    let at_switches = ends.filter(|end| nodes[end.0 as usize].role == Role::Switch);
    let of_port = (MAX_SAMPLES * size_of::<u64>()) as u64;
    let of_ports = match setup.recording.ports {
        true => at_switches.count() as u64 * of_port,
        false => 0,
    };
    let of_series = match setup.recording.series {
        true => {
            let ports = 2 * setup.topology.cables().len();
            let flows = setup.workload.flows.len();
            // Notifications and PFC, before they are merged.
            2 * MAX_EVENTS * size_of::<SeriesEvent>()
                + MAX_SAMPLES * (ports * size_of::<LinkSample>() + flows * size_of::<FlowSample>())
        }
        false => 0,
    };
    let of_host = setup.recording.host.map_or(0, |_| capture::MAX_BYTES);
    of_ports + (of_series + of_host) as u64
}
