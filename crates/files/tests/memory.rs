//! Memory of a large manifest. This test is alone in its program, so that it measures only
//! itself.

use std::fs;
use std::sync::Arc;

use farwrite_files::{CommitGate, Entry, Kind, MAX_ENTRIES, ManifestBuilder, Policy, Sink, Time};

/// Maximum bytes of an entry during a transfer, in addition to its name.
const ENTRY_BYTES: u64 = 128;
const NAME_BYTES: u64 = 10;
/// An eighth of the most. Lists grow by doubling, so each power of two has the same bytes per entry.
const ENTRIES: u32 = MAX_ENTRIES / 8;

/// Returns a number of `/proc/self/status`, in bytes.
fn status(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<u64>().ok())
        .expect("a number")
        << 10
}

#[test]
fn large_manifest_and_its_sink_take_little_memory() {
    let before = status("VmRSS");
    let mut builder = ManifestBuilder::default();
    for index in 0..ENTRIES {
        let entry = Entry {
            parent: None,
            name: format!("{index:010}").into_bytes(),
            kind: Kind::File {
                bytes: 1,
                sparse: false,
            },
            mode: 0o644,
            modified: Time::default(),
        };
        builder.push(&entry).expect("kept all rules");
    }
    let manifest = Arc::new(builder.build().expect("no name twice"));
    let of_manifest = (status("VmRSS") - before) / u64::from(ENTRIES);

    let to = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let to = to.expect("directory");
    let mut sink = Sink::new(
        to.path(),
        manifest,
        CommitGate::default(),
        Policy::default(),
    )
    .expect("sink");
    // This is the worst order: all hashes arrive before the first bytes.
    for index in 0..ENTRIES {
        sink.handle_hash(index, [0; 32]).expect("in turn");
    }
    let peak = (status("VmHWM") - before) / u64::from(ENTRIES);
    eprintln!("{of_manifest} bytes for each entry of a manifest, {peak} at most with its sink");
    assert!(
        peak <= ENTRY_BYTES + NAME_BYTES,
        "{peak} bytes for each entry"
    );
}
