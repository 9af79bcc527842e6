//! Shows the result of a transfer to people and scripts.

use std::process::ExitCode;

use farwrite_transfer::{Delivered, FailedFile, TransferReport, Unfinished};
use farwrite_units::show::Count;

use crate::console::Console;
use crate::exit::Failure;

/// The maximum number of reasons that are shown to people.
const SHOWN_REASONS: usize = 20;

/// Shows how a transfer ended, with details for people who want them. Returns the exit code for a
/// program that ran only this transfer.
///
/// # Errors
/// Why the transfer failed, if no file has arrived. The caller shows it.
pub(crate) fn show(
    console: &Console,
    ended: Result<TransferReport, Unfinished>,
    is_verbose: bool,
) -> Result<ExitCode, Failure> {
    let report = match ended {
        Ok(report) => report,
        Err(Unfinished {
            error, delivered, ..
        }) => {
            let failure = Failure::from(error);
            let Some(delivered) = delivered else {
                return Err(failure);
            };
            warn(console, &delivered);
            console.say(delivered.line());
            return console.end(Err(failure), &delivered);
        }
    };
    warn(console, report.delivered());
    console.say(report.line());
    if is_verbose {
        for line in report.details() {
            console.say(format_args!("  {line}"));
        }
    }
    let failed = report.delivered().failed_files();
    let failure = report.trouble().map(|kind| {
        let files = Count(failed.into(), "file");
        Failure::new(kind.into(), format!("{files} failed"))
    });
    console.json_result(failure.as_ref(), &report)?;
    Ok(failure.map_or(ExitCode::SUCCESS, |failure| failure.exit.into()))
}

/// Shows which files failed, and what else happened to files.
fn warn(console: &Console, delivered: &Delivered) {
    let warnings = delivered.warnings().iter();
    for line in by_reason(delivered.failures()).iter().chain(warnings) {
        console.warn(line);
    }
    let unlisted = delivered.failed_files() as usize - delivered.failures().len();
    if unlisted > 0 {
        console.warn(format_args!("{unlisted} more files failed"));
    }
}

/// One line for each reason why files failed.
fn by_reason(failures: &[FailedFile]) -> Vec<String> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for failure in failures {
        let reason = failure.reason.as_str();
        match groups.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, paths)) => paths.push(failure.path.as_str()),
            None => groups.push((reason, vec![failure.path.as_str()])),
        }
    }
    let shown = groups.iter().take(SHOWN_REASONS);
    let mut lines: Vec<_> = shown
        .map(|(reason, paths)| counted(paths.len(), paths.iter(), reason))
        .collect();
    let more = groups.iter().skip(SHOWN_REASONS);
    let more: usize = more.map(|(_, paths)| paths.len()).sum();
    if more > 0 {
        lines.push(format!("{more} files failed for other reasons"));
    }
    lines
}

/// One line about some files: `a: why`, or `3 files: why: a, b, c`. At most three names are shown.
pub(crate) fn counted(
    count: usize,
    names: impl Iterator<Item = impl std::fmt::Display>,
    why: impl std::fmt::Display,
) -> String {
    const SHOWN: usize = 3;
    let names: Vec<_> = names.take(SHOWN).map(|name| name.to_string()).collect();
    let more = if count > names.len() { ", ..." } else { "" };
    let names = names.join(", ");
    match count {
        1 => format!("{names}: {why}"),
        _ => format!("{count} files: {why}: {names}{more}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_counts_what_it_does_not_name() {
        let names = ["a", "b", "c", "d"];
        assert_eq!(counted(1, names[..1].iter(), "why"), "a: why");
        assert_eq!(
            counted(3, names[..3].iter(), "why"),
            "3 files: why: a, b, c"
        );
        assert_eq!(
            counted(4, names.iter(), "why"),
            "4 files: why: a, b, c, ..."
        );
    }
}
