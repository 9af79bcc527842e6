//! Shows the result of a transfer to people and scripts.

use std::process::ExitCode;

use farwrite_transfer::TransferReport;

use crate::console::Console;
use crate::exit::Failure;

/// The maximum number of failed files that are shown to people. `--json` lists more of them.
const SHOWN: usize = 20;

/// Shows a report. Returns the exit code for a program that ran only this transfer.
pub(crate) fn show(console: &Console, report: &TransferReport) -> Result<ExitCode, Failure> {
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
