//! `--dry-run` of `send` and `cp`: shows what would be sent, and with a receiver what it has and would remove.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use farwrite_files::{Kind, Manifest, Unreadable};
use farwrite_keys::{Text, printable_line};
use farwrite_transfer::{DryRun, Removal};
use farwrite_units::show::Bytes;
use serde_json::{Value, json};

use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::outcome::counted;

/// The number of paths that each list in JSON has at most.
const LISTED: usize = 10_000;
/// The number of paths that cannot be sent for which people get a warning each.
const WARNED: usize = 20;

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
    let (result, line) = listing(run, left_out);
    console.say(line);
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

/// The result for scripts, and the last line for people.
fn listing(run: &DryRun, left_out: Option<&[Unreadable]>) -> (Value, String) {
    let (manifest, removal) = (&run.manifest, run.removal.as_ref());
    let path = |index| printable_line(manifest.path(index).display());
    let bytes_of = |entries: &[u32]| {
        let each = entries.iter().map(|index| manifest.stream_bytes_of(*index));
        each.sum::<u64>()
    };
    let unchanged = run.unchanged.as_deref();
    let unchanged_bytes = unchanged.map(bytes_of);
    let unchanged = unchanged.map(<[_]>::len);
    // Files and links that would be sent, without those that the receiver has.
    let there = u32::try_from(unchanged.unwrap_or(0)).unwrap_or(u32::MAX);
    let files = manifest.files().saturating_sub(there);
    let bytes = manifest.stream_bytes() - unchanged_bytes.unwrap_or(0);
    let directories = manifest.entries().filter(|it| it.kind.is_directory());
    let directories = directories.count();
    let deleted =
        |removal: &Removal| -> Vec<_> { removal.paths.iter().map(shown).take(LISTED).collect() };
    let json = json!({
        "files": files,
        "bytes": bytes,
        "directories": directories,
        "paths": to_send(run).map(path).take(LISTED).collect::<Vec<_>>(),
        "left_out": left_out.map(<[_]>::len),
        "unchanged_files": unchanged,
        "unchanged_bytes": unchanged_bytes,
        "deleted_files": removal.map(|removal| removal.count),
        "deleted_paths": removal.map(deleted),
        "warnings": run.warnings,
    });
    let size = Bytes(bytes);
    let mut line = format!("files and links: {files}, directories: {directories}, size: {size}");
    if let Some(unchanged) = unchanged {
        line += &format!(", unchanged: {unchanged}");
    }
    if let Some(removal) = removal {
        line += &format!(", to delete: {}", removal.count);
    }
    (json, line + "; nothing was sent")
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
