//! Counters of a bridge and of its box, by name: for the table, for JSON and for Prometheus.

use farwrite::metrics::Metric;
use farwrite_boxes::lowar::{Counters as LowarCounters, Lowar};
use farwrite_boxes::netrt::{Counters as NetRtCounters, NetRt};
use farwrite_bridge::{BridgeReport, Forward, SideReport};

use super::Shown;

/// The name of a metric: that of its field, or the one that `as` gives.
macro_rules! name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $name:ident) => {
        stringify!($name)
    };
}

/// Makes a metric of each field of a structure, with its name behind a prefix. It does not compile if a field is left
/// out.
macro_rules! metrics {
    ($prefix:expr, $structure:ident, $of:expr, { $($kind:ident $field:ident $(as $name:ident)?: $help:expr,)* }) => {{
        let $structure { $($field),* } = $of;
        vec![$(Metric::$kind(concat!($prefix, name!($field $($name)?)), $help, $field)),*]
    }};
}

/// The counters of one side of a bridge, which is `near` or `far`.
macro_rules! of_side {
    ($side:literal, $of:expr) => {
        metrics!(concat!($side, "_"), SideReport, $of, {
            counter received: concat!("frames from the ", $side, " interface"),
            counter around: "of these, unfinished ones of other traffic",
            counter local: "of these, the ones for this machine or link",
            counter unread: concat!("frames that the ", $side, " interface lost: not read in time"),
            counter sent: concat!("frames to the ", $side, " interface"),
            counter unsent: concat!("frames that the ", $side, " interface refused"),
        })
    };
}

pub(super) fn of_bridge<C>(report: &BridgeReport<C>) -> Vec<Metric> {
    let mut all = of_side!("near", report.near);
    all.extend(of_side!("far", report.far));
    let marked = "packets marked with congestion experienced";
    let dropped = "repairs dropped: the queue of the far interface was full";
    all.extend([
        Metric::counter("pauses", "pauses of the near side", report.pauses),
        Metric::counter("marked", marked, report.marked),
        Metric::counter("repairs_dropped", dropped, report.repairs_dropped),
    ]);
    all
}

impl Shown for Forward {
    const NAME: &'static str = "forward";
    const COLUMNS: &'static [&'static str] = &[];

    fn shown((): &()) -> Vec<Metric> {
        Vec::new()
    }
}

impl Shown for Lowar {
    const NAME: &'static str = "lowar";
    const COLUMNS: &'static [&'static str] =
        &["repairs_sent", "repairs_received", "recovered", "given_up"];

    fn shown(counters: &LowarCounters) -> Vec<Metric> {
        metrics!("", LowarCounters, *counters, {
            counter coded: "data packets added to a block",
            counter xored_bytes: "bytes added to coding units",
            counter repairs_sent: "repair packets sent",
            counter repairs_too_long: "unprotected packets: their repairs exceed the path MTU",
            counter questions_sent: "probes and announcements sent",
            counter reports_sent: "reports sent",
            counter reports_received: "reports received",
            counter repairs_received: "repair packets received",
            counter recovered: "packets recovered for the NIC",
            counter not_verified: "repair packets ignored: they do not fit their block",
            counter given_up: "blocks passed with packets missing",
            counter hold_ended: "of these, the hold time ended",
            counter held: "frames held back",
            gauge peak_held: "most frames held at a time",
            gauge peak_units: "most coding units in use",
            counter damaged: "RoCEv2 packets that came damaged",
            counter connections_full: "unprotected packets: too many connections",
            counter units_full: "unprotected packets: all coding units in use",
            counter held_full: "blocks passed: reordering buffer full",
        })
    }
}

impl Shown for NetRt {
    const NAME: &'static str = "netrt";
    const COLUMNS: &'static [&'static str] =
        &["requests_sent", "repeated", "recovered", "given_up"];

    fn shown(counters: &NetRtCounters) -> Vec<Metric> {
        metrics!("", NetRtCounters, *counters, {
            counter copied: "packets of which a copy was kept",
            gauge peak_pool_bytes: "most bytes of copies",
            counter starts_sent: "starts of flows sent",
            counter marks_sent: "marks sent",
            counter requests_received: "requests received",
            counter repeated: "packets repeated",
            counter notices_sent: "requests that could not be fulfilled",
            // The bridge has the counter `pauses`.
            counter pauses as request_pauses: "pauses because much was requested",
            counter requests_sent: "requests sent",
            counter notices_received: "notices received",
            counter recovered: "missing packets that came as repeats",
            counter copies_dropped: "repeats that were not missing",
            counter held: "frames held back",
            gauge peak_held: "most frames held at a time",
            gauge peak_held_bytes: "most bytes held at a time",
            counter given_up: "times that a flow went on with a packet missing",
            counter hold_ended: "of these, the hold time ended",
            counter held_full: "of these, the reordering buffer was full",
            counter damaged: "RoCEv2 packets that came damaged",
            counter connections_full: "unprotected packets: too many connections",
        })
    }
}
