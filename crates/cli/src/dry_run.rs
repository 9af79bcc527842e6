//! `farwrite send --dry-run`: lists what would be sent.

use std::process::ExitCode;

use farwrite_session::Text;
use farwrite_session::files::{Kind, Manifest, Source};
use farwrite_units::show::Bytes;
use serde::Serialize;

use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::outcome::counted;

/// The number of paths that JSON lists.
const LISTED: usize = 10_000;
/// The number of paths that cannot be sent for which people get a warning each.
const WARNED: usize = 20;

/// The result for scripts.
#[derive(Serialize)]
struct DryRun {
    /// Files and links.
    files: u32,
    bytes: u64,
    directories: usize,
    paths: Vec<Text>,
    left_out: usize,
}

/// Lists the paths. Returns the exit code that a transfer would have because of what cannot be listed.
pub(crate) fn run(source: &Source, console: &Console) -> Result<ExitCode, Failure> {
    let manifest = source.manifest();
    if !console.is_json() {
        for index in 0..manifest.entries().len() {
            console.say_all(line(manifest, u32::try_from(index).unwrap_or(u32::MAX)));
        }
    }
    let left_out = source.unreadable();
    for it in left_out.iter().take(WARNED) {
        let name = Text::new(it.path.display());
        console.warn(counted(1, std::iter::once(name), it.reason()));
    }
    let result = DryRun {
        files: manifest.files(),
        bytes: manifest.stream_bytes(),
        directories: manifest
            .entries()
            .filter(|it| it.kind.is_directory())
            .count(),
        paths: (0..)
            .map_while(|index| {
                manifest
                    .entry(index)
                    .map(|_| Text::new(manifest.path(index).display()))
            })
            .take(LISTED)
            .collect(),
        left_out: left_out.len(),
    };
    console.say(format_args!(
        "files and links: {}, directories: {}, size: {}; nothing was sent",
        result.files,
        result.directories,
        Bytes(result.bytes)
    ));
    let failure = (!left_out.is_empty()).then(|| {
        let what = format!("{} files or directories cannot be sent", left_out.len());
        Failure::new(Exit::Files, what)
    });
    console.json_result(failure.as_ref(), &result)?;
    Ok(failure.map_or(ExitCode::SUCCESS, |failure| failure.exit.into()))
}

/// One entry, for people: as `ls -F` marks it.
fn line(manifest: &Manifest, index: u32) -> String {
    let path = Text::new(manifest.path(index).display());
    match manifest.entry(index).map(|entry| entry.kind) {
        Some(Kind::Directory) => format!("{path}/"),
        Some(Kind::Symlink { target }) => {
            format!("{path} -> {}", Text::new(String::from_utf8_lossy(target)))
        }
        Some(Kind::HardLink { first }) => {
            format!("{path} = {}", Text::new(manifest.path(first).display()))
        }
        _ => path.to_string(),
    }
}
