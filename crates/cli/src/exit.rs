//! How the program ends: its exit codes, and the one line that says what went wrong.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::process::ExitCode;

/// What the program's exit code tells. Scripts rely on the numbers: they never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Failed for a reason that no other code stands for.
    Other = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// The two ends do not fit: keys, versions or settings.
    Mismatch = 3,
    /// Data did not verify.
    Corrupt = 4,
    /// The network or the peer could not be reached, or was lost.
    Unreachable = 5,
    /// A local file or directory could not be read or written.
    Files = 6,
    /// Ended by Ctrl-C, as shells count it: 128 and the signal's number.
    Interrupted = 130,
}

/// The exit codes, as `--help` shows them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed for a reason not listed here
  2    the command line makes no sense
  3    the two ends do not fit: keys, versions or settings
  4    data did not verify
  5    the network or the peer could not be reached, or was lost
  6    a local file or directory could not be read or written
  130  ended by Ctrl-C";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed, in one line, and the exit code for it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    line: String,
}

impl Failure {
    /// A failure that says all there is to say.
    pub(crate) fn new(exit: Exit, what: impl fmt::Display) -> Self {
        let line = what.to_string();
        Self {
            exit,
            line: line.split_whitespace().collect::<Vec<_>>().join(" "),
        }
    }

    /// A failure while doing `what`, with the chain of its causes.
    pub(crate) fn caused(exit: Exit, what: impl fmt::Display, cause: &dyn Error) -> Self {
        let mut line = what.to_string();
        let mut next = Some(cause);
        while let Some(cause) = next {
            let text = cause.to_string();
            // Some errors tell their cause themselves.
            if !line.ends_with(&text) {
                write!(line, ": {text}").expect("strings take all");
            }
            next = cause.source();
        }
        Self::new(exit, line)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

/// Turns the error of a call into a failure of a command.
pub(crate) trait OrExit<T> {
    /// Fails with this code, while doing `what`.
    fn or_exit(self, exit: Exit, what: impl fmt::Display) -> Result<T, Failure>;
}

impl<T, E: Error> OrExit<T> for Result<T, E> {
    fn or_exit(self, exit: Exit, what: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::caused(exit, what, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_every_code() {
        let all = [
            Exit::Other,
            Exit::Usage,
            Exit::Mismatch,
            Exit::Corrupt,
            Exit::Unreachable,
            Exit::Files,
            Exit::Interrupted,
        ];
        for exit in all {
            let code = exit as u8;
            let listed = EXIT_CODES
                .lines()
                .any(|line| line.split_whitespace().next() == Some(&code.to_string()));
            assert!(listed, "{exit:?} = {code}");
        }
    }

    #[test]
    fn a_failure_is_one_line_with_every_cause_once() {
        #[derive(Debug)]
        struct Tells(&'static str, Option<Box<Tells>>);
        impl fmt::Display for Tells {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.0)
            }
        }
        impl Error for Tells {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                self.1.as_deref().map(|cause| cause as _)
            }
        }
        let inner = Tells("no\nroom", None);
        let middle = Tells("binding: no\nroom", Some(Box::new(inner)));
        let failure = Failure::caused(Exit::Unreachable, "starting", &middle);
        assert_eq!(failure.to_string(), "starting: binding: no room");
    }
}
