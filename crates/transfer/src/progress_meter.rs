//! Progress for people: rate, time left, the path, and the current file.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farwrite_files::Manifest;
use farwrite_keys::Text;

use crate::hooks::{Event, Observer, ProgressNumbers};
use farwrite_units::show::{Count, Rate, Time, real};

/// The displayed rate is the mean over this time.
const SPAN: Duration = Duration::from_secs(4);
const PERIOD: Duration = Duration::from_millis(200);
/// Displayed characters of a path, from its end.
const SHOWN: usize = 40;

pub(crate) struct ProgressMeter<'a> {
    observer: &'a dyn Observer,
    label: &'static str,
    manifest: Arc<Manifest>,
    total_bytes: u64,
    samples: VecDeque<(Instant, u64)>,
    start: Instant,
    /// The current file: its entry, and where it ends in the stream.
    entry: u32,
    end_bytes: u64,
}

/// What is displayed besides the progress.
pub(crate) struct Status<'a> {
    /// What this end knows of the path, for instance its loss, and what limits the rate.
    pub(crate) path: &'a str,
    /// The name of what limits the rate, in JSON.
    pub(crate) limited_by: Option<&'static str>,
    /// Files that have a verdict.
    pub(crate) ended_files: u32,
    /// The disk that the transfer waits for.
    pub(crate) slow_disk: Option<(&'static str, Duration)>,
    /// For how long nothing has been heard of the peer.
    pub(crate) silence: Option<Duration>,
}

impl Status<'_> {
    /// Returns what the transfer waits for, if it waits.
    fn wait(&self) -> Option<String> {
        if let Some(silence) = self.silence {
            return Some(format!("nothing heard for {} s", silence.as_secs()));
        }
        let (disk, busy) = self.slow_disk?;
        Some(format!("waiting for {disk}, {} s", busy.as_secs()))
    }
}

impl<'a> ProgressMeter<'a> {
    pub(crate) fn new(
        observer: &'a dyn Observer,
        label: &'static str,
        manifest: Arc<Manifest>,
        total_bytes: u64,
    ) -> Self {
        Self {
            observer,
            label,
            manifest,
            total_bytes,
            samples: VecDeque::from([(Instant::now(), 0)]),
            start: Instant::now(),
            entry: 0,
            end_bytes: 0,
        }
    }

    /// Reports that `done_bytes` of the stream are transferred, if the last report is old enough.
    pub(crate) fn show(&mut self, now: Instant, done_bytes: u64, status: &Status<'_>) {
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
        let bps = real(done_bytes.saturating_sub(before)) * 8.0 / seconds;
        let left = real(self.total_bytes.saturating_sub(done_bytes)) * 8.0 / bps;
        let time_left = Duration::try_from_secs_f64(left.round()).ok();
        let left = time_left.map_or_else(|| "?".into(), |left| Time(left).to_string());
        let all_seconds = (now - self.start).as_secs_f64().max(1e-3);
        let mean_bps = real(done_bytes) * 8.0 / all_seconds;
        let files_left = self.manifest.files().saturating_sub(status.ended_files);
        let numbers = ProgressNumbers {
            rate_bps: bps,
            mean_bps,
            left: time_left,
            files_left,
            limited_by: status.limited_by,
        };
        let rate = Rate(bps).to_string();
        // In 80 columns, the end of the line is not shown. What this end knows of the path is old while it
        // waits.
        let path = status.wait().unwrap_or_else(|| status.path.to_owned());
        let at = self.name(done_bytes);
        let (mean, files) = (Rate(mean_bps), Count(files_left.into(), "file"));
        let detail = format!("{rate:>10} {left:>4} left {path} mean {mean} {files}  {at}");
        self.report(done_bytes, detail, numbers, false);
    }

    pub(crate) fn finish(&self, done_bytes: u64) {
        let seconds = self.start.elapsed().as_secs_f64().max(1e-3);
        let numbers = ProgressNumbers {
            mean_bps: real(done_bytes) * 8.0 / seconds,
            left: Some(Duration::ZERO),
            ..ProgressNumbers::default()
        };
        self.report(done_bytes, "done".into(), numbers, true);
    }

    fn report(&self, done_bytes: u64, detail: String, numbers: ProgressNumbers, is_last: bool) {
        self.observer.observe(Event::Progress {
            label: self.label,
            done_bytes,
            total_bytes: self.total_bytes,
            detail,
            numbers,
            is_last,
        });
    }

    /// The end of the path of the file that contains a byte of the stream, safe for a terminal.
    fn name(&mut self, done_bytes: u64) -> String {
        while let Some(entry) = self.manifest.entry(self.entry) {
            if entry.kind.is_directory() {
                self.entry += 1;
                continue;
            }
            let bytes = self.manifest.stream_bytes_of(self.entry);
            let is_last = self.manifest.entry(self.entry + 1).is_none();
            if done_bytes < self.end_bytes + bytes || is_last {
                break;
            }
            self.end_bytes += bytes;
            self.entry += 1;
        }
        show_path(&self.manifest, self.entry)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_comes_before_a_slow_disk() {
        let slow_disk = Some(("the peer's disk", Duration::from_millis(3_500)));
        let status = |slow_disk, seconds: Option<u64>| Status {
            path: "",
            limited_by: None,
            ended_files: 0,
            slow_disk,
            silence: seconds.map(Duration::from_secs),
        };
        assert_eq!(status(None, None).wait(), None);
        let disk = status(slow_disk, None).wait().expect("a wait");
        assert_eq!(disk, "waiting for the peer's disk, 3 s");
        let silent = status(slow_disk, Some(12)).wait().expect("a wait");
        assert_eq!(silent, "nothing heard for 12 s");
    }
}
