//! What the program shows, and where: results on standard output, progress on standard error.

use std::cell::Cell;
use std::fmt;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::exit::{Exit, Failure, OrExit};

/// Between two lines of progress where there is no terminal to draw on.
const LINE_PERIOD: Duration = Duration::from_secs(1);

/// Where results, progress and errors go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    json: bool,
    quiet: bool,
}

impl Console {
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        Self { json, quiet }
    }

    /// Whether standard output is for scripts.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether [`Console::say`] shows nothing.
    pub(crate) fn is_silent(&self) -> bool {
        self.json && self.quiet
    }

    /// Shows people a result: on standard output, unless that is for JSON.
    pub(crate) fn say(&self, text: impl fmt::Display) {
        // Whoever closed the stream does not want to read.
        let _ = if !self.json {
            writeln!(std::io::stdout(), "{text}")
        } else if !self.quiet {
            writeln!(std::io::stderr(), "{text}")
        } else {
            Ok(())
        };
    }

    /// Warns people of something that the result alone does not show.
    pub(crate) fn warn(&self, text: impl fmt::Display) {
        let _ = writeln!(std::io::stderr(), "farwrite: warning: {text}");
    }

    /// Prints the result for scripts, if they asked for one.
    pub(crate) fn json(&self, result: &impl Serialize) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(result).or_exit(Exit::Other, "writing JSON")?;
        writeln!(std::io::stdout(), "{text}").or_exit(Exit::Files, "writing to standard output")
    }

    /// Says why the program fails: in one line, and in JSON to scripts that asked for it.
    pub(crate) fn fail(&self, failure: &Failure) {
        let _ = writeln!(std::io::stderr(), "farwrite: {failure}");
        if self.json {
            let error = serde_json::json!({
                "error": { "exit_code": failure.exit as u8, "message": failure.to_string() }
            });
            let _ = writeln!(std::io::stdout(), "{error:#}");
        }
    }

    /// Starts showing progress towards `total` units.
    pub(crate) fn progress(&self, label: &str, total: u64) -> Progress {
        let on_terminal = !self.quiet && std::io::stderr().is_terminal();
        let target = if on_terminal {
            ProgressDrawTarget::stderr_with_hz(15)
        } else {
            ProgressDrawTarget::hidden()
        };
        let style =
            ProgressStyle::with_template("  {prefix:11} [{bar:16}] {percent:>3} %  {wide_msg}")
                .expect("the template is constant")
                .progress_chars("=> ");
        let bar = ProgressBar::with_draw_target(Some(total), target).with_style(style);
        bar.set_prefix(label.to_owned());
        Progress {
            bar,
            lines: !self.quiet && !on_terminal,
            last_line: Cell::new(Instant::now()),
        }
    }
}

/// Progress of one thing: a bar on a terminal, a line now and then elsewhere.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    lines: bool,
    last_line: Cell<Instant>,
}

impl Progress {
    /// Shows that `done` units are, and what else there is to say.
    pub(crate) fn show(&self, done: u64, message: impl fmt::Display) {
        self.bar.set_message(message.to_string());
        self.bar.set_position(done);
        if self.lines && self.last_line.get().elapsed() >= LINE_PERIOD {
            self.line();
        }
    }

    /// Leaves the last state on the screen.
    pub(crate) fn finish(&self, done: u64, message: impl fmt::Display) {
        self.bar.set_position(done);
        self.bar.abandon_with_message(message.to_string());
        if self.lines {
            self.line();
        } else if !self.bar.is_hidden() {
            // The bar ends without a line end.
            let _ = writeln!(std::io::stderr());
        }
    }

    fn line(&self) {
        let total = self.bar.length().unwrap_or(0).max(1);
        let percent = self.bar.position() * 100 / total;
        let (prefix, message) = (self.bar.prefix(), self.bar.message());
        let _ = writeln!(
            std::io::stderr(),
            "  {prefix:<11}  {percent:>3} %  {message}"
        );
        self.last_line.set(Instant::now());
    }
}
