//! Tests that `--memory` limits the memory of both ends.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::rig::{Rig, V4};

const MEMORY_BYTES: u64 = 32 << 20;

/// Returns the peak memory of a process in bytes (`VmHWM` in proc(5)), or `None` if it has ended.
fn peak_bytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// Transfers a file. Returns the peak memory of the sender and of the receiver, in bytes.
fn peaks(rig: &Rig, file: &Path) -> [u64; 2] {
    let memory = ["--memory", "32MiB"];
    // The receiver continues after the transfer, so that its peak can be read.
    let receiver = rig.recv(V4, &memory);
    let args = [&memory[..], &["--rate", "2Gbit"]].concat();
    let mut sender = rig.send(receiver.addr, &args, &[file]);
    let mut peak = 0;
    while sender.is_running() {
        peak = peak.max(peak_bytes(sender.id()).unwrap_or(0));
        thread::sleep(Duration::from_millis(5));
    }
    sender.end().assert(0, "");
    let receiver_peak = peak_bytes(receiver.running.id()).expect("it runs");
    receiver.running.signal("INT");
    receiver.end().assert(130, "");
    [peak, receiver_peak]
}

#[test]
fn memory_of_both_ends_is_bounded() {
    let rig = Rig::new();
    let fixed = peaks(&rig, &rig.file("small", 1));
    let large = rig.path("large");
    let content = fs::File::create(&large).and_then(|file| file.set_len(20 * MEMORY_BYTES));
    content.expect("a file of zeros");
    for (end, (peak, fixed)) in ["sender", "receiver"]
        .into_iter()
        .zip(peaks(&rig, &large).into_iter().zip(fixed))
    {
        println!("{end}: {} KiB, {} KiB for a byte", peak >> 10, fixed >> 10);
        // Packets in flight and page tables need some memory in addition to the buffers.
        let most = fixed + MEMORY_BYTES + MEMORY_BYTES / 4;
        assert!(
            peak <= most,
            "the {end} took {peak} bytes; at most {most} expected"
        );
        assert!(
            peak > MEMORY_BYTES / 4,
            "the {end} took {peak} bytes: the file did not fill its buffers"
        );
    }
}
