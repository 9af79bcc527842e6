//! The result of the benchmark: a table for people, JSON for scripts.

use std::iter;
use std::num::NonZeroUsize;
use std::time::Duration;

use serde::Serialize;

use super::BenchArgs;
use super::work::Task;
use crate::table;
use farwrite_units::show::{Bytes, Count, real};

/// 400 Gbit/s, the rate of the links of SDR-RDMA's evaluation (section 5.2).
const LINE_BPS: f64 = 400e9;

#[derive(Debug, Serialize)]
pub(super) struct CodeReport {
    pub(super) code: String,
    pub(super) data_bytes: usize,
    pub(super) rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// `read`, `encode` or `decode`.
    work: &'static str,
    /// The number of lost chunks in every group.
    lost: Option<usize>,
    kernel: Option<&'static str>,
    /// The median time.
    seconds: f64,
    data_bytes_per_s: f64,
    /// The speed relative to that of reading.
    of_reading: f64,
    /// The number of cores that data at 400 Gbit/s keep busy, at this speed of each thread.
    cores_for_400_gbit: f64,
}

impl Row {
    /// Creates the report from the tasks and their times. The first task is reading.
    pub(super) fn all(
        tasks: &[Task],
        times: impl Iterator<Item = Duration>,
        data_bytes: usize,
        threads: NonZeroUsize,
    ) -> Vec<Self> {
        let mut reading = None;
        let rows = tasks.iter().zip(times).map(|(task, time)| {
            let seconds = time.as_secs_f64().max(1e-9);
            let speed = real(data_bytes as u64) / seconds;
            let (work, lost, codec) = match task {
                Task::Read => ("read", None, None),
                Task::Encode(codec) => ("encode", None, Some(codec)),
                Task::Decode(codec, lost) => ("decode", Some(*lost), Some(codec)),
            };
            Self {
                work,
                lost,
                kernel: codec.map(|codec| codec.kernel().as_str()),
                seconds,
                data_bytes_per_s: speed,
                of_reading: speed / *reading.get_or_insert(speed),
                cores_for_400_gbit: LINE_BPS / 8.0 * real(threads.get() as u64) / speed,
            }
        });
        rows.collect()
    }

    fn cells(&self, code: &str) -> [String; 6] {
        let work = match self.lost {
            Some(1) => "decode 1 lost chunk".to_owned(),
            Some(lost) => format!("decode {lost} lost chunks"),
            None => self.work.to_owned(),
        };
        [
            code.to_owned(),
            work,
            self.kernel.unwrap_or("").to_owned(),
            format!("{:.2}", self.data_bytes_per_s / 1e9),
            format!("{:.2}", self.of_reading),
            format!("{:.1}", self.cores_for_400_gbit),
        ]
    }
}

pub(super) fn introduction(args: &BenchArgs, cpu: Option<&str>) -> String {
    let machine = cpu.map(|cpu| format!("  machine   {cpu}\n"));
    format!(
        "{}  measured  chunks of {}, one behind the other; {}; median of {}",
        machine.unwrap_or_default(),
        Bytes(args.chunk_bytes),
        Count(args.threads.into(), "thread"),
        Count(args.rounds.into(), "round")
    )
}

pub(super) fn table(codes: &[CodeReport]) -> String {
    let head = [
        "code",
        "work",
        "kernel",
        "GB/s",
        "of reading",
        "cores for 400 Gbit/s",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for code in codes {
        let names = iter::once(code.code.as_str()).chain(iter::repeat(""));
        let named = code.rows.iter().zip(names);
        rows.extend(named.map(|(row, name)| row.cells(name)));
    }
    format!("\n{}", table::lay_out(&rows, 3))
}
