//! Counters of a bridge and of its box, by name: for the table, for JSON and for Prometheus.

use farwrite_boxes::{lowar, netrt};
use farwrite_bridge::{BridgeReport, SideReport};

use farwrite::metrics::Metric;

/// The counters of a bridge.
pub(super) fn of_bridge<C>(report: &BridgeReport<C>) -> Vec<Metric> {
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
        Metric::counter("near_received", "frames from the near interface", received),
        Metric::counter(
            "near_around",
            "of these, unfinished ones of other traffic",
            around,
        ),
        Metric::counter(
            "near_local",
            "of these, the ones for this machine or link",
            local,
        ),
        Metric::counter(
            "near_unread",
            "frames that the near interface lost: not read in time",
            unread,
        ),
        Metric::counter("near_sent", "frames to the near interface", sent),
        Metric::counter(
            "near_unsent",
            "frames that the near interface refused",
            unsent,
        ),
        Metric::counter(
            "far_received",
            "frames from the far interface",
            far.received,
        ),
        Metric::counter(
            "far_around",
            "of these, unfinished ones of other traffic",
            far.around,
        ),
        Metric::counter(
            "far_local",
            "of these, the ones for this machine or link",
            far.local,
        ),
        Metric::counter(
            "far_unread",
            "frames that the far interface lost: not read in time",
            far.unread,
        ),
        Metric::counter("far_sent", "frames to the far interface", far.sent),
        Metric::counter(
            "far_unsent",
            "frames that the far interface refused",
            far.unsent,
        ),
        Metric::counter("pauses", "pauses of the near side", report.pauses),
        Metric::counter(
            "marked",
            "packets marked with congestion experienced",
            report.marked,
        ),
        Metric::counter(
            "repairs_dropped",
            "repairs dropped: the queue of the far interface was full",
            report.repairs_dropped,
        ),
    ]
}

/// The counters of a LoWAR box.
pub(super) fn of_lowar(counters: &lowar::Counters) -> Vec<Metric> {
    let lowar::Counters {
        coded,
        xored_bytes,
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
        peak_units,
        damaged,
        connections_full,
        units_full,
        held_full,
    } = *counters;
    vec![
        Metric::counter("coded", "data packets added to a block", coded),
        Metric::counter("xored_bytes", "bytes added to coding units", xored_bytes),
        Metric::counter("repairs_sent", "repair packets sent", repairs_sent),
        Metric::counter(
            "repairs_too_long",
            "unprotected packets: their repairs exceed the path MTU",
            repairs_too_long,
        ),
        Metric::counter(
            "questions_sent",
            "probes and announcements sent",
            questions_sent,
        ),
        Metric::counter("reports_sent", "reports sent", reports_sent),
        Metric::counter("reports_received", "reports received", reports_received),
        Metric::counter(
            "repairs_received",
            "repair packets received",
            repairs_received,
        ),
        Metric::counter("recovered", "packets recovered for the NIC", recovered),
        Metric::counter(
            "not_verified",
            "repair packets ignored: they do not fit their block",
            not_verified,
        ),
        Metric::counter("given_up", "blocks passed with packets missing", given_up),
        Metric::counter("hold_ended", "of these, the hold time ended", hold_ended),
        Metric::counter("held", "frames held back", held),
        Metric::gauge("peak_held", "most frames held at a time", peak_held),
        Metric::gauge("peak_units", "most coding units in use", peak_units),
        Metric::counter("damaged", "RoCEv2 packets that came damaged", damaged),
        Metric::counter(
            "connections_full",
            "unprotected packets: too many connections",
            connections_full,
        ),
        Metric::counter(
            "units_full",
            "unprotected packets: all coding units in use",
            units_full,
        ),
        Metric::counter(
            "held_full",
            "blocks passed: reordering buffer full",
            held_full,
        ),
    ]
}

/// The counters of a NetRT box.
pub(super) fn of_netrt(counters: &netrt::Counters) -> Vec<Metric> {
    let mut all = of_netrt_source(counters);
    all.extend(of_netrt_destination(counters));
    all
}

fn of_netrt_source(counters: &netrt::Counters) -> Vec<Metric> {
    vec![
        Metric::counter(
            "copied",
            "packets of which a copy was kept",
            counters.copied,
        ),
        Metric::gauge(
            "peak_pool_bytes",
            "most bytes of copies",
            counters.peak_pool_bytes,
        ),
        Metric::counter("starts_sent", "starts of flows sent", counters.starts_sent),
        Metric::counter("marks_sent", "marks sent", counters.marks_sent),
        Metric::counter(
            "requests_received",
            "requests received",
            counters.requests_received,
        ),
        Metric::counter("repeated", "packets repeated", counters.repeated),
        Metric::counter(
            "notices_sent",
            "requests that could not be fulfilled",
            counters.notices_sent,
        ),
        Metric::counter(
            "request_pauses",
            "pauses because much was requested",
            counters.pauses,
        ),
    ]
}

fn of_netrt_destination(counters: &netrt::Counters) -> Vec<Metric> {
    vec![
        Metric::counter("requests_sent", "requests sent", counters.requests_sent),
        Metric::counter(
            "notices_received",
            "notices received",
            counters.notices_received,
        ),
        Metric::counter(
            "recovered",
            "missing packets that came as repeats",
            counters.recovered,
        ),
        Metric::counter(
            "copies_dropped",
            "repeats that were not missing",
            counters.copies_dropped,
        ),
        Metric::counter("held", "frames held back", counters.held),
        Metric::gauge(
            "peak_held",
            "most frames held at a time",
            counters.peak_held,
        ),
        Metric::gauge(
            "peak_held_bytes",
            "most bytes held at a time",
            counters.peak_held_bytes,
        ),
        Metric::counter(
            "given_up",
            "times that a flow went on with a packet missing",
            counters.given_up,
        ),
        Metric::counter(
            "hold_ended",
            "of these, the hold time ended",
            counters.hold_ended,
        ),
        Metric::counter(
            "held_full",
            "of these, the reordering buffer was full",
            counters.held_full,
        ),
        Metric::counter(
            "damaged",
            "RoCEv2 packets that came damaged",
            counters.damaged,
        ),
        Metric::counter(
            "connections_full",
            "unprotected packets: too many connections",
            counters.connections_full,
        ),
    ]
}
