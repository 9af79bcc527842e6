//! The counters of a link, for people and for scripts.

use std::time::Duration;

use farwrite_emulator::tun::{DirectionReport, TunEmulatorConfig, TunEnd, TunReport};
use farwrite_units::show::{Bytes, Rate, Time, real};
use serde_json::{Value, json};

use crate::interrupt;
use crate::table::lay_out;

/// The first line of output.
pub(super) fn started(config: &TunEmulatorConfig, duration: Option<Duration>) -> String {
    let ends = config.ends.each_ref().map(|end| match end {
        TunEnd::Attach { device } => device.clone(),
        TunEnd::Create {
            device, ipv4, ipv6, ..
        } => {
            let ipv4 = ipv4.map(|(address, _)| format!(" {address}"));
            let ipv6 = ipv6.map(|(address, _)| format!(" {address}"));
            let addresses = ipv4.unwrap_or_default() + &ipv6.unwrap_or_default();
            format!("{device}{addresses}")
        }
    });
    let [a, b] = ends;
    let until = interrupt::until(duration);
    format!("Carrying packets between A ({a}) and B ({b}) {until}")
}

/// The counters of both directions, side by side.
pub(super) fn table(report: &TunReport) -> String {
    let row = |name: &str, value: &dyn Fn(&DirectionReport) -> String| {
        let [forward, backward] = [&report.forward, &report.backward].map(value);
        [name.to_owned(), forward, backward]
    };
    let count =
        |name: &str, value: fn(&DirectionReport) -> u64| row(name, &|done| value(done).to_string());
    let rate = |done: &DirectionReport| {
        let seconds = report.elapsed.as_secs_f64().max(1e-6);
        Rate(8.0 * real(done.link.delivered_bytes) / seconds).to_string()
    };
    let time = |ns| Time(Duration::from_nanos(ns)).to_string();
    let late = |name: &str, share| row(name, &|done| time(done.lateness.quantile_ns(share)));
    let rows = [
        ["", "A to B", "B to A"].map(str::to_owned),
        count("packets offered", |done| done.link.offered),
        count("delivered", |done| done.link.delivered),
        row("delivered bytes", &|done| {
            Bytes(done.link.delivered_bytes).to_string()
        }),
        row("mean rate", &rate),
        count("dropped by the queue", |done| done.link.queue_dropped),
        count("dropped by the policer", |done| done.link.policed),
        count("lost", |done| done.link.lost),
        count("marked", |done| done.link.marked),
        count("held back", |done| done.link.reordered),
        row("unread", &unread),
        count("unsent", |done| done.unsent),
        late("late, p50", 0.5),
        late("late, p99", 0.99),
        row("late, most", &|done| time(done.lateness.max_ns())),
    ];
    lay_out(&rows, 1)
}

fn unread(done: &DirectionReport) -> String {
    done.unread
        .map_or_else(|| "unknown".to_owned(), |count| count.to_string())
}

/// The same counters as JSON; `docs/json.md` describes it.
pub(super) fn json(report: &TunReport) -> Value {
    json!({
        "seconds": report.elapsed.as_secs_f64(),
        "forward": direction(&report.forward),
        "backward": direction(&report.backward),
    })
}

fn direction(done: &DirectionReport) -> Value {
    let ms = |ns: u64| real(ns) * 1e-6;
    json!({
        "offered": done.link.offered,
        "delivered": done.link.delivered,
        "delivered_bytes": done.link.delivered_bytes,
        "queue_dropped": done.link.queue_dropped,
        "policed": done.link.policed,
        "lost": done.link.lost,
        "marked": done.link.marked,
        "held_back": done.link.reordered,
        "unread": done.unread,
        "unsent": done.unsent,
        "reads": done.reads,
        "writes": done.writes,
        "lateness_ms": {
            "p50": ms(done.lateness.quantile_ns(0.5)),
            "p99": ms(done.lateness.quantile_ns(0.99)),
            "max": ms(done.lateness.max_ns()),
        },
    })
}
