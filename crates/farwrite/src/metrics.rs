//! The counters of an endpoint, as Prometheus text (`OpenMetrics` 1.0).
//!
//! [`Endpoint::metrics`] returns the numbers, and [`text`] formats them. A program can serve the
//! text over HTTP, or write it to a file, for example for the textfile collector of
//! `node_exporter`:
//!
//! ```
//! use farwrite::{Endpoint, QpOptions, UdpConfig, metrics};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut endpoint = Endpoint::over_udp(&UdpConfig::new("127.0.0.1:0".parse()?))?;
//! endpoint.create_qp(QpOptions::default())?;
//! let text = metrics::text("farwrite", &endpoint.metrics());
//! assert!(text.contains("\nfarwrite_sent_packets_total 0\n"), "{text}");
//! assert!(text.contains("\nfarwrite_late_packets_total{queue_pair=\"1\"} 0\n"), "{text}");
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::fmt;

use farwrite_fabric::contract::{Counters, DropReason, Fabric};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::endpoint::Endpoint;
use crate::pair::QpStats;
use crate::peer::PeerStats;

/// The HTTP content type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name, in lower case with underscores. Prometheus text adds `_total` to a counter.
    pub name: &'static str,
    /// A short description.
    pub help: &'static str,
    /// The value.
    pub value: u64,
    /// Whether the value can decrease.
    pub kind: MetricKind,
    /// Names and values that distinguish this metric from others of the same name.
    pub labels: Vec<(&'static str, String)>,
}

/// How a value changes over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// The value only grows.
    Counter,
    /// The value is a current state, or a maximum.
    Gauge,
}

impl Metric {
    /// Creates a metric that counts events.
    #[must_use]
    pub fn counter(name: &'static str, help: &'static str, value: u64) -> Self {
        Self {
            name,
            help,
            value,
            kind: MetricKind::Counter,
            labels: Vec::new(),
        }
    }

    /// Creates a metric for a current state or a maximum.
    #[must_use]
    pub fn gauge(name: &'static str, help: &'static str, value: u64) -> Self {
        Self {
            kind: MetricKind::Gauge,
            ..Self::counter(name, help, value)
        }
    }

    /// Adds a label that names what the value belongs to.
    #[must_use]
    pub fn of(mut self, label: &'static str, value: impl fmt::Display) -> Self {
        self.labels.push((label, value.to_string()));
        self
    }

    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        match self.kind {
            MetricKind::Counter => ConstCounter::new(self.value).encode(encoder),
            MetricKind::Gauge => {
                let value = i64::try_from(self.value).unwrap_or(i64::MAX);
                ConstGauge::new(value).encode(encoder)
            }
        }
    }

    /// Merges the value of an earlier period into this one.
    pub fn add(&mut self, earlier: &Self) {
        if self.kind == MetricKind::Counter {
            self.value += earlier.value;
        }
    }
}

impl<F: Fabric> Endpoint<F> {
    /// Returns the counters of the endpoint: packets of its fabric, then each queue pair by its
    /// serial number (label `queue_pair`), then each peer by its number (label `path`, as in
    /// earlier versions). All queue pairs to a peer share its counters. Broken queue pairs are left out.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        let mut metrics = of_packets(&self.counters());
        let mut peers = BTreeMap::new();
        for qp in self.queue_pair_names() {
            if let Ok(stats) = self.qp_stats(qp) {
                let of_pair = of_queue_pair(&stats).into_iter();
                metrics.extend(of_pair.map(|metric| metric.of("queue_pair", qp.serial)));
            }
            if let (Ok(number), Ok(stats)) = (self.peer_number(qp), self.peer_stats(qp)) {
                peers.insert(number, stats);
            }
        }
        for (number, stats) in &peers {
            let of_peer = of_peer(stats).into_iter();
            metrics.extend(of_peer.map(|metric| metric.of("path", number)));
        }
        metrics
    }
}

/// The counters in some fields of a struct: either each as `name = field`, or all by the names of their
/// fields.
macro_rules! counters {
    ($of:expr, $($name:ident = $($field:ident).+: $help:literal),+ $(,)?) => {
        [$(Metric::counter(stringify!($name), $help, $of.$($field).+)),+]
    };
    ($of:expr, $($field:ident: $help:literal),+ $(,)?) => {
        counters!($of, $($field = $field: $help),+)
    };
}

/// Returns the packet counters of a fabric.
#[must_use]
pub fn of_packets(packets: &Counters) -> Vec<Metric> {
    let reasons = DropReason::ALL.into_iter().map(|reason| {
        let dropped = packets.dropped[reason as usize];
        Metric::counter("dropped_packets", "packets not applied", dropped)
            .of("reason", format_args!("{reason:?}"))
    });
    let others = counters!(
        packets,
        sent_packets: "packets sent",
        sent_bytes: "bytes of IP packets sent",
        received_packets: "packets received and applied",
        received_bytes: "bytes of IP packets received and applied",
        socket_drops: "packets without room in a socket",
        stranger_drops: "packets of unknown senders without room in their socket, as in a flood",
    );
    others.into_iter().chain(reasons).collect()
}

/// Returns the metrics of a queue pair.
#[must_use]
pub fn of_queue_pair(stats: &QpStats) -> Vec<Metric> {
    let all = counters!(
        stats,
        sent_chunks = sender.sent_chunks: "chunks sent, repeats included",
        repeated_chunks = sender.retransmitted_chunks: "chunks sent again",
        timeouts = sender.timeouts: "timeouts of schemes",
        rebuilt_chunks = rebuilt_chunks: "chunks computed from others",
        duplicate_packets = duplicate_packets: "packets that came again",
        late_packets = late_packets: "packets of messages that were over",
        refused_controls = refused_controls: "control packets refused",
    );
    all.into()
}

/// Returns the metrics of a peer.
#[must_use]
pub fn of_peer(peer: &PeerStats) -> Vec<Metric> {
    let counted = counters!(
        peer,
        marked_packets: "packets that arrived at the peer with ECN CE",
        stale_packets: "packets that arrived at the peer and brought no new data",
        refused_feedback: "reports and credits of the peer that cannot be true",
        excess_feedback: "reports of the peer that count more than was sent",
    );
    let now = [
        ("rtt_nanoseconds", "smoothed round-trip time", peer.rtt_ns),
        ("pace_bits_per_second", "rate of the pacer", peer.pace_bps),
        (
            "in_flight_bytes",
            "bytes sent that the peer has not reported",
            peer.in_flight_bytes,
        ),
    ];
    let now = now.map(|(name, help, value)| Metric::gauge(name, help, value));
    counted.into_iter().chain(now).collect()
}

/// Formats the metrics as text, with names that begin with `prefix` and an underscore. Metrics with
/// the same name must differ in their labels. If several metrics with the same name have no labels,
/// only the last one is written.
#[must_use]
pub fn text(prefix: &str, metrics: &[Metric]) -> String {
    let mut sorted: Vec<Metric> = metrics.to_vec();
    // Prometheus requires all metrics of a name together.
    sorted.sort_by_key(|metric| {
        let first = metrics.iter().position(|other| other.name == metric.name);
        first.unwrap_or(usize::MAX)
    });
    let mut registry = Registry::with_prefix(prefix);
    registry.register_collector(Box::new(Page(sorted)));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

/// Metrics, with those of the same name together.
#[derive(Debug)]
struct Page(Vec<Metric>);

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in self.0.chunk_by(|a, b| a.name == b.name) {
            let Some(first) = family.first() else {
                continue;
            };
            let kind = match first.kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
            };
            let mut encoder = encoder.encode_descriptor(first.name, first.help, None, kind)?;
            for metric in family.iter().filter(|metric| !metric.labels.is_empty()) {
                metric.encode(encoder.encode_family(&metric.labels)?)?;
            }
            if let Some(metric) = family.iter().rfind(|metric| metric.labels.is_empty()) {
                metric.encode(encoder)?;
            }
        }
        Ok(())
    }
}
