//! What `send` and `recv` show of the transfers that run: their counters (`--metrics`) and their progress.

use std::collections::BTreeMap;
use std::sync::Mutex;

use clap::Args;
use farwrite::fabric::threads::lock;
use farwrite::metrics::{Metric, of_packets, of_peer, of_queue_pair};
use farwrite_http::Address;
use farwrite_transfer::{Event, Observer, ProgressNumbers};
use farwrite_units::show::Rate;

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
    pub(crate) fn is_given(&self) -> bool {
        self.metrics.is_some()
    }

    /// Starts the server if the user requested it. `name` is the name of the command.
    pub(crate) fn start(&self, name: &str) -> Result<Watch, Failure> {
        Ok(Watch {
            metrics: Metrics::serve(self.metrics.as_ref(), name)?,
            transfers: Mutex::default(),
        })
    }
}

/// Follows the transfers of a command, one after the other or several at once: serves the sums of their
/// counters, and shows their common progress.
pub(crate) struct Watch {
    metrics: Option<Metrics>,
    transfers: Mutex<Transfers>,
}

#[derive(Default)]
struct Transfers {
    /// The counters of those that have ended. The served counters continue to grow.
    ended: Vec<Metric>,
    running: BTreeMap<u64, Running>,
    begun: u64,
}

/// The latest reports of a transfer.
#[derive(Default)]
struct Running {
    /// They begin at 0.
    counters: Vec<Metric>,
    done_bytes: u64,
    total_bytes: u64,
    rate_bps: f64,
}

/// One transfer, which ends when this is dropped.
pub(crate) struct WatchedTransfer<'a> {
    watch: &'a Watch,
    number: u64,
    console: Console,
}

impl Watch {
    /// Begins a transfer that shows its reports on a console.
    pub(crate) fn begin(&self, console: &Console) -> WatchedTransfer<'_> {
        let mut transfers = lock(&self.transfers);
        transfers.begun += 1;
        let number = transfers.begun;
        transfers.running.insert(number, Running::default());
        WatchedTransfer {
            watch: self,
            number,
            console: console.clone(),
        }
    }
}

impl Transfers {
    /// The sum of the counters of all transfers. Of values that are no counters, those of the last.
    fn counters(&self) -> Vec<Metric> {
        let running = self.running.values().map(|running| &running.counters);
        let mut all = [&self.ended].into_iter().chain(running);
        let first = all.next().cloned().unwrap_or_default();
        all.fold(first, |sum, counters| joined(sum, counters))
    }

    /// The progress of all transfers together.
    fn progress(&self) -> Event {
        let running = self.running.values();
        let sum = |of: fn(&Running) -> u64| running.clone().map(of).fold(0, u64::saturating_add);
        let rate = running.clone().map(|running| running.rate_bps).sum();
        Event::Progress {
            label: "receiving",
            done_bytes: sum(|running| running.done_bytes),
            total_bytes: sum(|running| running.total_bytes),
            detail: format!("{}  {} senders", Rate(rate), self.running.len()),
            numbers: ProgressNumbers::default(),
            is_last: false,
        }
    }
}

/// The counters of a later period, with those of an earlier one.
fn joined(earlier: Vec<Metric>, later: &[Metric]) -> Vec<Metric> {
    if later.is_empty() {
        return earlier;
    }
    let mut sum = later.to_vec();
    for (counter, earlier) in sum.iter_mut().zip(&earlier) {
        counter.add(earlier);
    }
    sum
}

impl Observer for WatchedTransfer<'_> {
    fn wants_files(&self) -> bool {
        self.console.wants_files()
    }

    fn observe(&self, event: Event) {
        let mut transfers = lock(&self.watch.transfers);
        let Some(running) = transfers.running.get_mut(&self.number) else {
            return;
        };
        match &event {
            Event::Counters(now) => {
                if let Some(metrics) = &self.watch.metrics {
                    let (packets, peer) = (of_packets(&now.packets), of_peer(&now.peer));
                    running.counters = [packets, of_queue_pair(&now.stats), peer].concat();
                    metrics.set(&transfers.counters());
                }
            }
            Event::Progress {
                done_bytes,
                total_bytes,
                numbers,
                ..
            } => {
                running.done_bytes = *done_bytes;
                running.total_bytes = *total_bytes;
                running.rate_bps = numbers.rate_bps;
                if transfers.running.len() > 1 {
                    self.console.event_of(&event);
                    self.console.draw(transfers.progress());
                } else {
                    self.console.observe(event);
                }
            }
            _ => self.console.observe(event),
        }
    }
}

impl Drop for WatchedTransfer<'_> {
    fn drop(&mut self) {
        let mut transfers = lock(&self.watch.transfers);
        if let Some(running) = transfers.running.remove(&self.number) {
            let ended = std::mem::take(&mut transfers.ended);
            transfers.ended = joined(ended, &running.counters);
        }
    }
}
