//! The end of a transfer, as people and scripts see it.

use std::process::ExitCode;

use farwrite_transfer::Report;

use crate::console::Console;
use crate::exit::Failure;

/// Failed files that people are shown; `--json` has more of them.
const SHOWN: usize = 20;

/// Shows a report; the answer is what the program exits with, if this was all that it had to do.
pub(crate) fn show(console: &Console, report: &Report) -> Result<ExitCode, Failure> {
    for file in report.failures().iter().take(SHOWN) {
        console.warn(format_args!("{}: {}", file.path, file.reason));
    }
    let failed = report.failed_files() as usize;
    if failed > SHOWN {
        console.warn(format_args!("{} more files failed", failed - SHOWN));
    }
    console.say(report.line());
    let failure = report.trouble().map(|kind| {
        let noun = if failed == 1 { "file" } else { "files" };
        Failure::new(kind.into(), format!("{failed} {noun} failed"))
    });
    console.json_result(failure.as_ref(), report)?;
    Ok(failure.map_or(ExitCode::SUCCESS, |failure| failure.exit.into()))
}
