//! The machine that a measurement ran on.

use std::fs::read_to_string;
use std::thread;

/// The conditions of a measurement: processor, cores, kernel, and the load before it.
pub(crate) fn text() -> String {
    let read = |path: &str| read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, model)| model);
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    format!(
        "{model}, {cores} cores; Linux {}; load average of the last minute {}",
        kernel.trim(),
        load.split(' ').next().unwrap_or("unknown"),
    )
}
