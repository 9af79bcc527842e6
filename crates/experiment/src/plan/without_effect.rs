//! Notes about settings that have no effect, or keep packets from arriving.

use std::time::Duration;

use super::read::Measure;
use super::{CaseNames, CaseParts};
use crate::Start;
use crate::ideal::PACKET_HEADERS;

/// Notes about such settings of a case.
pub(super) fn notes(parts: &CaseParts, names: CaseNames<'_>, measure: Measure) -> Vec<String> {
    let (topology, transport) = (names.topology, names.transport);
    let mut notes = Vec::new();
    let mut flows = parts.workload.flows.iter();
    if flows.all(|flow| matches!(flow.start, Start::At(at_ns) if !measure.has(at_ns))) {
        notes.push(format!(
            "measure: no flow of workload.{} starts in this time with seed {}, so there are no statistics of it",
            names.workload, parts.seed
        ));
    }
    let first_ns = parts.changes.iter().map(|change| change.at_ns).min();
    if let (Some(first_ns), Some(until_ns)) = (first_ns, parts.until_ns)
        && first_ns >= until_ns
    {
        let times = [first_ns, until_ns].map(Duration::from_nanos);
        let [first, until] = times.map(humantime::format_duration);
        notes.push(format!(
            "topology.{topology}: the first change, at {first}, comes at or after the end of the run, until = {until}"
        ));
    }
    if parts.transport.needs_telemetry() && !parts.boxes.is_empty() {
        notes.push(format!(
            "topology.{topology} with transport.{transport}: boxes remove the telemetry that HPCC needs; leave out the \
             boxes, or choose another controller"
        ));
    }
    let cables = parts.topology.cables().iter();
    let bursts = cables.filter_map(|cable| Some(cable.config.policer?.burst_bytes));
    let least = bursts.min().unwrap_or(u64::MAX);
    let largest = parts.workload.flows.iter().map(|flow| flow.bytes).max();
    let payload = largest.unwrap_or(0).min(parts.transport.mtu().into());
    // The framing of the cable does not count.
    let packet = payload + PACKET_HEADERS;
    if least < packet {
        notes.push(format!(
            "topology.{topology} with transport.{transport}: a policer with a burst of {least} bytes drops each packet \
             with a payload of {payload} bytes, which has at least {packet}; give it more"
        ));
    }
    notes
}
