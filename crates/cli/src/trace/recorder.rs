//! The option of commands that can write a trace.

use std::path::PathBuf;

use clap::Args;
use farwrite_trace::Trace;

use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};

/// The option of commands that can write a trace.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// Write what happened to each message, and when, as JSON lines; `farwrite trace FILE` draws it
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

impl TraceArgs {
    /// Whether the user requested a trace.
    pub(crate) fn is_on(&self) -> bool {
        self.trace.is_some()
    }

    /// Starts the trace if the user requested one. Call it once in a process.
    pub(crate) fn start(&self) -> Result<Tracing, Failure> {
        let Some(path) = self.trace.clone() else {
            return Ok(Tracing(None));
        };
        let trace =
            Trace::start(&path).or_exit(Exit::Files, format_args!("making {}", path.display()))?;
        Ok(Tracing(Some((path, trace))))
    }
}

/// An active trace and its file, or none.
pub(crate) struct Tracing(Option<(PathBuf, Trace)>);

impl Tracing {
    /// Notes the start of a transfer. `farwrite trace` draws each transfer in its own panel.
    pub(crate) fn begin_run(&self, title: &str) {
        if let Some((_, trace)) = &self.0 {
            trace.begin_run(title);
        }
    }

    /// Writes the remaining events. A trace that could not be written causes only a warning: the
    /// transfer itself is not affected.
    pub(crate) fn finish(self, console: &Console) {
        let Some((path, trace)) = self.0 else { return };
        let path = path.display();
        match trace.flush() {
            Ok(()) => console.say(format_args!(
                "trace: {path}; farwrite trace {path} draws it"
            )),
            Err(error) => console.warn(format_args!("the trace {path} is not complete: {error}")),
        }
    }
}
