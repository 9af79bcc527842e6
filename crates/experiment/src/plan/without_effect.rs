//! Settings of a plan that keep a run from what they are for.

use std::time::Duration;

use super::read::Measure;
use super::{CaseNames, CaseParts};
use crate::Start;

/// Notes about such settings of a case.
pub(super) fn notes(parts: &CaseParts, names: CaseNames<'_>, measure: Measure) -> Vec<String> {
    let (topology, transport) = (names.topology, names.transport);
    let mut notes = Vec::new();
    let mut flows = parts.workload.flows.iter();
    if flows.all(|flow| matches!(flow.start, Start::At(at_ns) if !measure.has(at_ns))) {
        notes.push(format!(
            "measure: no flow of workload.{} starts in this time, so there are no statistics of it",
            names.workload
        ));
    }
    let last_ns = parts.changes.last().map(|change| change.at_ns);
    if let (Some(last_ns), Some(until_ns)) = (last_ns, parts.until_ns)
        && last_ns >= until_ns
    {
        let times = [last_ns, until_ns].map(Duration::from_nanos);
        let [last, until] = times.map(humantime::format_duration);
        notes.push(format!(
            "topology.{topology}: a change at {last} comes after the end of the run, until = {until}"
        ));
    }
    if parts.transport.needs_telemetry() && !parts.boxes.is_empty() {
        notes.push(format!(
            "topology.{topology} with transport.{transport}: boxes remove the telemetry that HPCC needs; leave out the \
             boxes, or choose another controller"
        ));
    }
    let policers = parts.topology.cables().iter();
    let bursts = policers.filter_map(|cable| Some(cable.config.policer?.burst_bytes));
    let least = bursts.min().unwrap_or(u64::MAX);
    let mtu = parts.transport.mtu();
    if least < mtu.into() {
        notes.push(format!(
            "topology.{topology} with transport.{transport}: a policer with a burst of {least} bytes drops each packet \
             with a payload of {mtu} bytes; give it more"
        ));
    }
    notes
}
