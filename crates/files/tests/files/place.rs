//! Directories with files for tests, and functions that move files between them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use farwrite_files::{
    CommitGate, Entry, Kind, Manifest, ManifestBuilder, Policy, ScanOptions, Sink, SinkError,
    Source, Summary, Time,
};

/// A temporary directory, removed at the end.
pub(crate) struct Place(pub(crate) tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("directory"))
    }

    /// Makes a directory in memory if there is such a file system. It is for tests that would wait
    /// for a disk.
    pub(crate) fn in_memory() -> Self {
        let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self(place.expect("directory"))
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    pub(crate) fn write(&self, below: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(below);
        fs::create_dir_all(path.parent().expect("not the root")).expect("directories");
        fs::write(&path, bytes).expect("write");
        path
    }

    /// Lists everything below the directory: for files their contents, for links `->` and the
    /// target, for directories nothing.
    pub(crate) fn list(&self) -> BTreeMap<String, Vec<u8>> {
        let mut all = BTreeMap::new();
        let mut pending = vec![self.0.path().to_path_buf()];
        while let Some(directory) = pending.pop() {
            for item in fs::read_dir(directory).expect("list") {
                let path = item.expect("item").path();
                let kind = fs::symlink_metadata(&path).expect("metadata").file_type();
                let below = path.strip_prefix(self.0.path()).expect("below");
                let content = if kind.is_dir() {
                    pending.push(path.clone());
                    b"/".to_vec()
                } else if kind.is_symlink() {
                    let target = fs::read_link(&path).expect("link");
                    format!("->{}", target.display()).into_bytes()
                } else {
                    fs::read(&path).expect("read")
                };
                all.insert(below.to_string_lossy().into_owned(), content);
            }
        }
        all
    }
}

pub(crate) fn scan(paths: &[PathBuf]) -> Source {
    Source::scan(paths, &ScanOptions::default()).expect("plain files")
}

/// Gives each verdict at once, because no file waits for the disk.
pub(crate) const AT_ONCE: Policy = Policy {
    umask: 0,
    owners: false,
    delete: false,
    reserve_bytes: Some(0),
    quota_bytes: None,
    quota_entries: None,
    sync: false,
    resume: None,
};

/// Returns a sink whose gate stays open, and that gives each verdict at once.
pub(crate) fn try_sink(to: &Place, manifest: &Arc<Manifest>) -> Result<Sink, SinkError> {
    let gate = CommitGate::default();
    Sink::new(to.0.path(), Arc::clone(manifest), gate, AT_ONCE)
}

pub(crate) fn new_sink(to: &Place, manifest: &Arc<Manifest>) -> Sink {
    try_sink(to, manifest).expect("sink")
}

/// Passes the source's messages about its files to the sink.
pub(crate) fn hand_over(source: &mut Source, sink: &mut Sink) {
    while let Some(read) = source.poll_file() {
        match read.result {
            Ok(_) if read.is_same => sink.handle_same(read.index).expect("in turn"),
            Ok(hash) => sink.handle_hash(read.index, hash).expect("in turn"),
            Err(error) => sink
                .handle_abandoned(read.index, read.sent_bytes, error)
                .expect("in turn"),
        }
    }
}

/// Returns the number of each file that ended since the last call, and whether it was verified.
pub(crate) fn verdicts(sink: &mut Sink) -> Vec<(u32, bool)> {
    std::iter::from_fn(|| sink.poll_verdict())
        .map(|verdict| (verdict.index, verdict.failure.is_none()))
        .collect()
}

pub(crate) fn transfer(source: &mut Source, sink: &mut Sink, segment_bytes: usize) {
    let mut segment = vec![0xee; segment_bytes];
    while !source.is_over() {
        let read_bytes = source.read(&mut segment);
        hand_over(source, sink);
        sink.write(&segment[..read_bytes]).expect("write");
    }
}

pub(crate) fn send(from: &[PathBuf], to: &Place, segment_bytes: usize) -> Summary {
    let mut source = scan(from);
    let mut sink = new_sink(to, source.manifest());
    transfer(&mut source, &mut sink, segment_bytes);
    while let Some(verdict) = sink.poll_verdict() {
        assert!(verdict.failure.is_none(), "{:?}", verdict.failure);
    }
    sink.finish().expect("whole")
}

/// Returns a manifest of these files and directories. A path that ends in `/` is a directory, and
/// precedes its contents.
pub(crate) fn manifest(items: &[(&str, u64)]) -> Arc<Manifest> {
    let mut builder = ManifestBuilder::default();
    let mut directories = BTreeMap::new();
    for (path, bytes) in items {
        let (parent, name) = path
            .trim_end_matches('/')
            .rsplit_once('/')
            .unwrap_or(("", path));
        let is_directory = path.ends_with('/');
        let index = builder.push(&Entry {
            parent: directories.get(parent).copied(),
            name: name.trim_end_matches('/').as_bytes().to_vec(),
            kind: if is_directory {
                Kind::Directory
            } else {
                Kind::File {
                    bytes: *bytes,
                    sparse: false,
                }
            },
            mode: if is_directory { 0o755 } else { 0o644 },
            modified: Time::default(),
        });
        directories.insert(path.trim_end_matches('/'), index.expect("kept all rules"));
    }
    Arc::new(builder.build().expect("no name twice"))
}

pub(crate) fn hash(bytes: &[u8]) -> [u8; 32] {
    blake3::hash(bytes).into()
}

/// Returns the command for an ignored test of this program, which runs in its own process.
pub(crate) fn child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.args(["--exact", "--ignored", "--nocapture", test]);
    command
}

/// Runs a shell command and then an ignored test of this program, in a process with private mounts,
/// which end with it. `$FARWRITE_TEST_DIR` is the directory for both. The test is skipped if the
/// system does not allow such mounts.
pub(crate) fn child_with_mounts(to: &Place, mount: &str, test: &str) {
    let run = |program: &Command| {
        let mut command = Command::new("unshare");
        command
            .args(["--map-root-user", "--mount", "sh", "-c"])
            .arg(format!("{mount} && exec \"$@\""))
            .arg("sh")
            .arg(program.get_program())
            .args(program.get_args())
            .env("FARWRITE_TEST_DIR", to.0.path());
        command
    };
    let possible = run(&Command::new("true")).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: this system allows no mounts in a user namespace");
        return;
    }
    let status = run(&child(test)).status();
    assert!(status.expect("unshare").success());
}
