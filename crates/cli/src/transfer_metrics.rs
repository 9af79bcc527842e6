//! `--metrics` of `send` and `recv`: the counters of the endpoint.

use std::sync::{Mutex, PoisonError};

use clap::Args;
use farwrite::metrics::{Metric, of_packets, of_peer, of_queue_pair};
use farwrite_http::Address;
use farwrite_transfer::{EndpointCounters, Event, Observer};

use crate::console::Console;
use crate::exit::Failure;
use crate::metrics::Metrics;

/// The option of commands that move files.
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "shown as help")]
pub(crate) struct MetricsArgs {
    /// Serve the counters of the endpoint as Prometheus text over HTTP, at an address and port such as
    /// 127.0.0.1:9791, which all who reach it can read, or at a Unix socket such as
    /// unix:/run/farwrite.sock
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<Address>,
}

impl MetricsArgs {
    /// Starts the server if the user requested it. `name` is the name of the command.
    pub(crate) fn start(&self, name: &str, console: &Console) -> Result<MeteredConsole, Failure> {
        let metrics = self
            .metrics
            .as_ref()
            .map(|address| Metrics::serve(address, name));
        Ok(MeteredConsole {
            console: console.clone(),
            metrics: metrics.transpose()?,
            sums: Mutex::default(),
        })
    }
}

/// Shows the reports of a transfer, and serves its counters.
pub(crate) struct MeteredConsole {
    console: Console,
    metrics: Option<Metrics>,
    sums: Mutex<Sums>,
}

/// The counters of each transfer begin at 0. The served counters continue to grow.
#[derive(Default)]
struct Sums {
    earlier: Vec<Metric>,
    newest: Vec<Metric>,
}

impl MeteredConsole {
    /// Notes the start of a transfer.
    pub(crate) fn begin(&self) {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        // A transfer that failed before its stream began has no counts.
        let newest = std::mem::take(&mut sums.newest);
        if !newest.is_empty() {
            sums.earlier = newest;
        }
    }
}

impl Observer for MeteredConsole {
    fn wants_files(&self) -> bool {
        self.console.wants_files()
    }

    fn observe(&self, event: Event) {
        let Event::Counters(counters) = &event else {
            return self.console.observe(event);
        };
        let Some(metrics) = &self.metrics else { return };
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let mut newest = of_endpoint(counters);
        for (counter, earlier) in newest.iter_mut().zip(&sums.earlier) {
            counter.add(earlier);
        }
        metrics.set(&newest);
        sums.newest = newest;
    }
}

/// The counters of the endpoint of a transfer.
fn of_endpoint(counters: &EndpointCounters) -> Vec<Metric> {
    let EndpointCounters {
        stats,
        peer,
        packets,
    } = counters;
    [of_packets(packets), of_queue_pair(stats), of_peer(peer)].concat()
}
