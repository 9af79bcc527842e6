//! What a transfer says about its files, also when it fails.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use farwrite::RateControl;
use farwrite_files::{ScanOptions, Source};
use farwrite_link::LinkConfig;

use super::{Reports, adaptive_settings, pattern, travel, until_delivered};
use crate::{Cancel, Error, ErrorKind, SendSettings, Unfinished};

/// Runs a test as a user who may not read everything. Root may read everything.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                let nobody = rustix::process::Uid::from_raw(65534);
                // Of this thread only.
                rustix::thread::set_thread_uid(nobody).expect("root may");
            }
            work()
        });
        thread.join().expect("no panic")
    })
}

/// The directory `t`, with a directory that cannot be listed, a log that has grown since it was listed,
/// and a long file. Returns its place and the list.
fn tree() -> (tempfile::TempDir, Source) {
    let place = tempfile::tempdir().expect("directory");
    let mode = |name: &str, mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(place.path().join(name), permissions).expect("chmod");
    };
    fs::create_dir_all(place.path().join("t/no")).expect("directory");
    let log = place.path().join("t/a-log");
    fs::write(&log, "first\n").expect("write");
    fs::write(place.path().join("t/long"), pattern(4_000_000)).expect("write");
    mode("", 0o755);
    mode("t/no", 0o000);
    let source = as_nobody(|| Source::scan(&[place.path().join("t")], &ScanOptions::default()));
    mode("t/no", 0o755);
    fs::write(&log, "first\nsecond\n").expect("write");
    (place, source.expect("listed"))
}

#[test]
fn what_happened_to_files_is_told_after_a_failure() {
    let (_place, source) = tree();
    let before = Error::new(ErrorKind::Unreachable, "no answer");
    let before = Unfinished::before(before, "far.example", &source);

    let config = LinkConfig::default();
    let settings = SendSettings {
        rate_control: RateControl::Fixed {
            rate_bps: 20_000_000,
        },
        ..adaptive_settings()
    };
    let flag = Arc::new(AtomicBool::new(false));
    let cancel = Cancel::watching(Arc::clone(&flag));
    let to = tempfile::tempdir().expect("directory");
    let ends = (&cancel, &Reports::default());
    let [sent, _] = travel(config, settings, (source, to.path()), ends, |link| {
        // The long file has 2900 packets.
        until_delivered(link, 200);
        flag.store(true, Ordering::Relaxed);
    });
    for (unfinished, grown) in [(before, 0), (sent.expect_err("cancelled"), 1)] {
        let told = unfinished.delivered.expect("something to say");
        let told = serde_json::to_value(told).expect("JSON");
        let failure = &told["failures"][0];
        assert_eq!(failure["path"], "t/no", "{told}");
        assert_eq!(failure["cause"], "unreadable", "{told}");
        assert_eq!(told["failed_files"], 1, "{told}");
        let warnings = told["warnings"].as_array().expect("a list");
        assert_eq!(warnings.len(), grown, "{told}");
        for warning in warnings {
            let warning = warning.as_str().expect("a text");
            assert!(warning.contains("a-log\" grew while"), "{warning}");
        }
    }
}
