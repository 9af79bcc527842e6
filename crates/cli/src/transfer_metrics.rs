//! `--metrics` of `send` and `recv`: the counters of the endpoint.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use farwrite::{Counters, QpStats};
use farwrite_transfer::{EndpointCounters, Event, Observer};

use crate::console::Console;
use crate::exit::Failure;
use crate::metrics::{Counter, Metrics};

/// The option of commands that move files.
#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// Serve the counters of the endpoint at this address as Prometheus text, at every path
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
}

impl MetricsArgs {
    /// Starts the server that a user asked for. `name` is that of the command.
    pub(crate) fn start(&self, name: &str, console: &Console) -> Result<Watched, Failure> {
        let metrics = self.metrics.map(|address| Metrics::serve(address, name));
        Ok(Watched {
            console: console.clone(),
            metrics: metrics.transpose()?,
            sums: Mutex::default(),
        })
    }
}

/// Shows what a transfer reports, and serves its counters.
pub(crate) struct Watched {
    console: Console,
    metrics: Option<Metrics>,
    sums: Mutex<Sums>,
}

/// Counters begin at 0 with each transfer; those that are served go on.
#[derive(Default)]
struct Sums {
    earlier: Vec<Counter>,
    newest: Vec<Counter>,
}

impl Watched {
    /// A transfer begins.
    pub(crate) fn begin(&self) {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        // A transfer that failed before its stream began has counted nothing.
        let newest = std::mem::take(&mut sums.newest);
        if !newest.is_empty() {
            sums.earlier = newest;
        }
    }
}

impl Observer for Watched {
    fn observe(&self, event: Event) {
        let Event::Counters(counters) = &event else {
            return self.console.observe(event);
        };
        let Some(metrics) = &self.metrics else { return };
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let mut newest = of_endpoint(counters);
        for (counter, earlier) in newest.iter_mut().zip(&sums.earlier) {
            *counter = counter.after(earlier);
        }
        metrics.set(&newest);
        sums.newest = newest;
    }
}

/// The counters of an endpoint, by name.
fn of_endpoint(counters: &EndpointCounters) -> Vec<Counter> {
    let EndpointCounters {
        stats,
        path,
        packets,
    } = counters;
    let gauges = [
        ("rtt_nanoseconds", "smoothed round-trip time", path.rtt_ns),
        ("pace_bits_per_second", "rate of the pacer", path.pace_bps),
        (
            "in_flight_bytes",
            "bytes not reported",
            path.in_flight_bytes,
        ),
    ];
    let sums = of_packets(packets).into_iter().chain(of_chunks(stats));
    let marked = path.marked_packets;
    let sums = sums.chain([("marked_packets", "packets that arrived with ECN CE", marked)]);
    let sums = sums.map(|(name, help, value)| Counter::new(name, help, value));
    let gauges = gauges.map(|(name, help, value)| Counter::gauge(name, help, value));
    sums.chain(gauges).collect()
}

/// A name, what it counts, and how many.
type Row = (&'static str, &'static str, u64);

fn of_packets(ip: &Counters) -> [Row; 6] {
    let dropped = ip.dropped.iter().sum();
    [
        ("sent_packets", "packets sent", ip.sent_packets),
        ("sent_bytes", "bytes of IP packets sent", ip.sent_bytes),
        (
            "received_packets",
            "packets received and applied",
            ip.received_packets,
        ),
        (
            "received_bytes",
            "bytes of IP packets received and applied",
            ip.received_bytes,
        ),
        ("dropped_packets", "packets not applied", dropped),
        (
            "socket_drops",
            "packets without room in a socket",
            ip.socket_drops,
        ),
    ]
}

fn of_chunks(stats: &QpStats) -> [Row; 7] {
    let sent = &stats.sender;
    [
        (
            "sent_chunks",
            "chunks sent, repeats included",
            sent.sent_chunks,
        ),
        (
            "repeated_chunks",
            "chunks sent again",
            sent.retransmitted_chunks,
        ),
        ("timeouts", "timeouts of schemes", sent.timeouts),
        (
            "rebuilt_chunks",
            "chunks computed from others",
            stats.rebuilt_chunks,
        ),
        (
            "duplicate_packets",
            "packets that came again",
            stats.duplicate_packets,
        ),
        (
            "late_packets",
            "packets of messages that were over",
            stats.late_packets,
        ),
        (
            "refused_controls",
            "control packets refused",
            stats.refused_controls,
        ),
    ]
}
