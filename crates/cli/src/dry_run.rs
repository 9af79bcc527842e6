//! `--dry-run` of `send` and `cp`: shows what would be sent, and with a receiver what it has and would remove.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use farwrite_files::{Kind, Manifest, Unreadable};
use farwrite_keys::{Text, printable_line};
use farwrite_transfer::{DryRun, Removal};
use farwrite_units::show::Bytes;
use serde::Serialize;

use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::outcome::counted;

/// The number of paths that each list in JSON has at most.
const LISTED: usize = 10_000;
/// The number of paths that cannot be sent for which people get a warning each.
const WARNED: usize = 20;

/// The result for scripts.
#[derive(Serialize)]
struct Listing {
    /// Files and links that would be sent, without those that the receiver has.
    files: u32,
    bytes: u64,
    directories: usize,
    paths: Vec<String>,
    left_out: Option<usize>,
    unchanged_files: Option<usize>,
    unchanged_bytes: Option<u64>,
    deleted_files: Option<u32>,
    deleted_paths: Option<Vec<String>>,
    warnings: Vec<Text>,
}

/// Shows a dry run. `left_out` is what the sender cannot send, if this end knows that. Returns the exit code that a
/// transfer would have because of what cannot be listed or, as `excess`, because too much would be removed.
pub(crate) fn show(
    run: &DryRun,
    left_out: Option<&[Unreadable]>,
    excess: Exit,
    console: &Console,
) -> Result<ExitCode, Failure> {
    if !console.is_json() {
        for index in to_send(run) {
            console.say_all(line(&run.manifest, index));
        }
        let removed = run.removal.iter().flat_map(|removal| removal.paths.iter());
        for path in removed {
            console.say_all(format_args!("delete {}", shown(path)));
        }
    }
    for it in left_out.unwrap_or_default().iter().take(WARNED) {
        let name = Text::new(it.path.display());
        console.warn(counted(1, std::iter::once(name), it.reason()));
    }
    for warning in &run.warnings {
        console.warn(warning);
    }
    let result = Listing::of(run, left_out);
    console.say(result.line());
    let excess_of = |removal: &Removal| Some(Failure::new(excess, removal.excess()?));
    let failure = run.removal.as_ref().and_then(excess_of);
    let failure = failure.or_else(|| {
        let count = left_out.map_or(0, <[_]>::len);
        let what = match count {
            1 => "1 file or directory cannot be sent".to_owned(),
            _ => format!("{count} files or directories cannot be sent"),
        };
        (count > 0).then(|| Failure::new(Exit::Files, what))
    });
    console.end(failure.map_or(Ok(()), Err), &result)
}

/// One line about a dry run that a sender has asked for, for people at the receiver.
pub(crate) fn line_of_receiver(run: &DryRun) -> String {
    let removal = run.removal.as_ref();
    let count = removal.map_or(0, |removal| removal.count);
    format!(
        "a dry run: {} files and links were offered, {count} files and directories to delete were listed; nothing \
         was changed",
        run.manifest.files()
    )
}

/// The entries that would be sent.
fn to_send(run: &DryRun) -> impl Iterator<Item = u32> {
    let unchanged = run.unchanged.as_deref().unwrap_or_default();
    let all = (0..).map_while(|index| run.manifest.entry(index).map(|_| index));
    all.filter(|index| unchanged.binary_search(index).is_err())
}

impl Listing {
    fn of(run: &DryRun, left_out: Option<&[Unreadable]>) -> Self {
        let manifest = &run.manifest;
        let path = |index| printable_line(manifest.path(index).display());
        let unchanged = run.unchanged.as_deref();
        let bytes = |entries: &[u32]| {
            let each = entries.iter().map(|index| manifest.stream_bytes_of(*index));
            each.sum()
        };
        let removal = run.removal.as_ref();
        let there = u32::try_from(unchanged.map_or(0, <[_]>::len)).unwrap_or(u32::MAX);
        Self {
            files: manifest.files().saturating_sub(there),
            bytes: manifest.stream_bytes() - unchanged.map_or(0, bytes),
            directories: manifest
                .entries()
                .filter(|it| it.kind.is_directory())
                .count(),
            paths: to_send(run).map(path).take(LISTED).collect(),
            left_out: left_out.map(<[_]>::len),
            unchanged_files: unchanged.map(<[_]>::len),
            unchanged_bytes: unchanged.map(bytes),
            deleted_files: removal.map(|removal| removal.count),
            deleted_paths: removal
                .map(|removal| removal.paths.iter().map(shown).take(LISTED).collect()),
            warnings: run.warnings.clone(),
        }
    }

    /// The last line, for people.
    fn line(&self) -> String {
        let mut line = format!(
            "files and links: {}, directories: {}, size: {}",
            self.files,
            self.directories,
            Bytes(self.bytes)
        );
        if let Some(unchanged) = self.unchanged_files {
            line += &format!(", unchanged: {unchanged}");
        }
        if let Some(deleted) = self.deleted_files {
            line += &format!(", to delete: {deleted}");
        }
        line + "; nothing was sent"
    }
}

/// A path, without control characters.
fn shown(path: &[u8]) -> String {
    printable_line(Path::new(OsStr::from_bytes(path)).display())
}

/// One entry, for people: as `ls -F` marks it.
fn line(manifest: &Manifest, index: u32) -> String {
    let path = printable_line(manifest.path(index).display());
    match manifest.entry(index).map(|entry| entry.kind) {
        Some(Kind::Directory) => format!("{path}/"),
        Some(Kind::Symlink { target }) => {
            format!(
                "{path} -> {}",
                printable_line(String::from_utf8_lossy(target))
            )
        }
        Some(Kind::HardLink { first }) => {
            format!(
                "{path} = {}",
                printable_line(manifest.path(first).display())
            )
        }
        _ => path,
    }
}
