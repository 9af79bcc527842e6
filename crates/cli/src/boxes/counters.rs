//! Counters of a bridge and of its box, by name: for the table, for JSON and for Prometheus.

use farwrite_boxes::{lowar, netrt};
use farwrite_bridge::{Report, SideReport};

use crate::metrics::Counter;

/// What a bridge has done.
pub(super) fn of_bridge<C>(report: &Report<C>) -> Vec<Counter> {
    let SideReport {
        received,
        around,
        local,
        unread,
        sent,
        unsent,
    } = report.near;
    let far = report.far;
    vec![
        Counter::new("near_received", "frames from the near interface", received),
        Counter::new(
            "near_around",
            "of these, unfinished ones of other traffic",
            around,
        ),
        Counter::new(
            "near_local",
            "of these, the ones for this machine or link",
            local,
        ),
        Counter::new(
            "near_unread",
            "frames that the near interface lost: not read in time",
            unread,
        ),
        Counter::new("near_sent", "frames to the near interface", sent),
        Counter::new(
            "near_unsent",
            "frames that the near interface refused",
            unsent,
        ),
        Counter::new(
            "far_received",
            "frames from the far interface",
            far.received,
        ),
        Counter::new(
            "far_around",
            "of these, unfinished ones of other traffic",
            far.around,
        ),
        Counter::new(
            "far_local",
            "of these, the ones for this machine or link",
            far.local,
        ),
        Counter::new(
            "far_unread",
            "frames that the far interface lost: not read in time",
            far.unread,
        ),
        Counter::new("far_sent", "frames to the far interface", far.sent),
        Counter::new(
            "far_unsent",
            "frames that the far interface refused",
            far.unsent,
        ),
        Counter::new("pauses", "pauses of the near side", report.pauses),
        Counter::new(
            "marked",
            "packets marked with congestion experienced",
            report.marked,
        ),
    ]
}

/// What a LoWAR box has done.
pub(super) fn of_lowar(counters: &lowar::Counters) -> Vec<Counter> {
    let lowar::Counters {
        coded,
        repairs_sent,
        repairs_too_long,
        questions_sent,
        reports_sent,
        reports_received,
        repairs_received,
        recovered,
        not_verified,
        given_up,
        hold_ended,
        held,
        peak_held,
        damaged,
        streams_full,
        units_full,
        held_full,
    } = *counters;
    vec![
        Counter::new("coded", "data packets added to a block", coded),
        Counter::new("repairs_sent", "repair packets sent", repairs_sent),
        Counter::new(
            "repairs_too_long",
            "not sent: longer than the path MTU",
            repairs_too_long,
        ),
        Counter::new(
            "questions_sent",
            "probes and announcements sent",
            questions_sent,
        ),
        Counter::new("reports_sent", "reports sent", reports_sent),
        Counter::new("reports_received", "reports received", reports_received),
        Counter::new(
            "repairs_received",
            "repair packets received",
            repairs_received,
        ),
        Counter::new("recovered", "packets recovered for the NIC", recovered),
        Counter::new(
            "not_verified",
            "recovered packets dropped: ICRC wrong",
            not_verified,
        ),
        Counter::new("given_up", "blocks passed with packets missing", given_up),
        Counter::new("hold_ended", "of these, the hold time ended", hold_ended),
        Counter::new("held", "frames held back", held),
        Counter::gauge("peak_held", "most frames held at a time", peak_held),
        Counter::new("damaged", "RoCEv2 packets that came damaged", damaged),
        Counter::new(
            "streams_full",
            "unprotected packets: all streams in use",
            streams_full,
        ),
        Counter::new(
            "units_full",
            "unprotected packets: all coding units in use",
            units_full,
        ),
        Counter::new(
            "held_full",
            "blocks passed: reordering buffer full",
            held_full,
        ),
    ]
}

/// What a NetRT box has done.
pub(super) fn of_netrt(counters: &netrt::Counters) -> Vec<Counter> {
    let mut all = of_netrt_source(counters);
    all.extend(of_netrt_destination(counters));
    all
}

fn of_netrt_source(counters: &netrt::Counters) -> Vec<Counter> {
    vec![
        Counter::new(
            "copied",
            "packets of which a copy was kept",
            counters.copied,
        ),
        Counter::gauge(
            "peak_pool_bytes",
            "most bytes of copies",
            counters.peak_pool_bytes,
        ),
        Counter::new("starts_sent", "starts of flows sent", counters.starts_sent),
        Counter::new("marks_sent", "marks sent", counters.marks_sent),
        Counter::new(
            "requests_received",
            "requests received",
            counters.requests_received,
        ),
        Counter::new("repeated", "packets repeated", counters.repeated),
        Counter::new(
            "notices_sent",
            "requests that could not be fulfilled",
            counters.notices_sent,
        ),
        Counter::new(
            "request_pauses",
            "pauses because much was requested",
            counters.pauses,
        ),
    ]
}

fn of_netrt_destination(counters: &netrt::Counters) -> Vec<Counter> {
    vec![
        Counter::new("requests_sent", "requests sent", counters.requests_sent),
        Counter::new(
            "notices_received",
            "notices received",
            counters.notices_received,
        ),
        Counter::new(
            "recovered",
            "missing packets that came as repeats",
            counters.recovered,
        ),
        Counter::new(
            "copies_dropped",
            "repeats that were not missing",
            counters.copies_dropped,
        ),
        Counter::new("held", "frames held back", counters.held),
        Counter::gauge(
            "peak_held",
            "most frames held at a time",
            counters.peak_held,
        ),
        Counter::gauge(
            "peak_held_bytes",
            "most bytes held at a time",
            counters.peak_held_bytes,
        ),
        Counter::new(
            "given_up",
            "times that a flow went on with a packet missing",
            counters.given_up,
        ),
        Counter::new(
            "hold_ended",
            "of these, the hold time ended",
            counters.hold_ended,
        ),
        Counter::new(
            "held_full",
            "of these, the reordering buffer was full",
            counters.held_full,
        ),
        Counter::new(
            "damaged",
            "RoCEv2 packets that came damaged",
            counters.damaged,
        ),
        Counter::new(
            "flows_full",
            "unprotected packets: all flows in use",
            counters.flows_full,
        ),
    ]
}
