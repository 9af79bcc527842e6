//! What a progress bar says: rate, time left, repairs, and the file at hand.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farwrite_session::Text;
use farwrite_session::files::{Kind, Manifest};

use crate::console::{Console, Progress};
use crate::units::{Percent, Rate, Time, real};

/// The rate shown is that of this last while.
const SPAN: Duration = Duration::from_secs(4);
const PERIOD: Duration = Duration::from_millis(200);
/// Characters of a path that are shown: its end says most.
const SHOWN: usize = 40;

/// Shows how far a transfer is.
pub(super) struct Meter {
    progress: Progress,
    manifest: Arc<Manifest>,
    total_bytes: u64,
    samples: VecDeque<(Instant, u64)>,
    /// The file at hand: its entry, and where in the stream it ends.
    entry: usize,
    end_bytes: u64,
}

impl Meter {
    pub(super) fn new(console: &Console, label: &str, manifest: Arc<Manifest>) -> Self {
        let total_bytes = manifest.stream_bytes();
        Self {
            progress: console.progress(label, total_bytes),
            manifest,
            total_bytes,
            samples: VecDeque::from([(Instant::now(), 0)]),
            entry: 0,
            end_bytes: 0,
        }
    }

    /// Shows that `done_bytes` of the stream are through, if it is time to; `repairs` is a share, and
    /// `what` of.
    pub(super) fn show(&mut self, now: Instant, done_bytes: u64, repairs: f64, what: &str) {
        if self
            .samples
            .back()
            .is_some_and(|(at, _)| now - *at < PERIOD)
        {
            return;
        }
        self.samples.push_back((now, done_bytes));
        while self.samples.len() > 2 && now - self.samples[0].0 > SPAN {
            self.samples.pop_front();
        }
        let (since, before) = self.samples[0];
        let seconds = (now - since).as_secs_f64().max(1e-3);
        let bps = real(done_bytes - before) * 8.0 / seconds;
        let left = real(self.total_bytes - done_bytes) * 8.0 / bps;
        let left = match Duration::try_from_secs_f64(left.round()) {
            Ok(left) => Time(left).to_string(),
            Err(_) => "?".into(),
        };
        let (rate, repairs) = (Rate(bps).to_string(), Percent(repairs).to_string());
        let name = self.name(done_bytes);
        let line = format!("{rate:>11}  {left:>6} left  {repairs:>7} {what}  {name}");
        self.progress.show(done_bytes, line);
    }

    /// Leaves the last state on the screen.
    pub(super) fn finish(&self, done_bytes: u64, last: &str) {
        self.progress.finish(done_bytes, last);
    }

    /// The end of the path of the file that a byte of the stream belongs to, fit for a terminal.
    fn name(&mut self, done_bytes: u64) -> String {
        let entries = self.manifest.entries();
        while let Some(entry) = entries.get(self.entry) {
            let Kind::File { bytes } = entry.kind else {
                self.entry += 1;
                continue;
            };
            if done_bytes < self.end_bytes + bytes || self.entry + 1 == entries.len() {
                break;
            }
            self.end_bytes += bytes;
            self.entry += 1;
        }
        let index = u32::try_from(self.entry).unwrap_or(u32::MAX);
        show_path(&self.manifest, index)
    }
}

fn show_path(manifest: &Manifest, index: u32) -> String {
    let path = Text::new(manifest.path(index).display());
    let skip = path.as_str().chars().count().saturating_sub(SHOWN);
    let tail: String = path.as_str().chars().skip(skip).collect();
    if skip == 0 {
        tail
    } else {
        format!("...{tail}")
    }
}
