//! Faults of the disk, and the commands that switch them.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fuser::Errno;

/// An operation that can have a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    Read,
    Write,
    /// What `close` does.
    Flush,
    /// What makes a file or a directory durable.
    Fsync,
    Mkdir,
    Rename,
    Chmod,
    Utimens,
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Ok(match word {
            "read" => Self::Read,
            "write" => Self::Write,
            "flush" => Self::Flush,
            "fsync" => Self::Fsync,
            "mkdir" => Self::Mkdir,
            "rename" => Self::Rename,
            "chmod" => Self::Chmod,
            "utimens" => Self::Utimens,
            _ => return Err(format!("no operation {word:?}")),
        })
    }
}

/// The fault of an operation.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// It waits until the fault is gone.
    Block,
    /// It takes as long as its bytes take at this rate.
    Slow { bytes_per_s: f64 },
    /// It fails.
    Fail(Errno),
}

#[derive(Debug)]
struct Fault {
    kind: Kind,
    /// Only paths that contain this text have the fault; all contain the empty one.
    path_part: String,
}

impl Fault {
    /// The fault of an operation, if it has one for this path.
    fn of(state: &State, operation: Operation, path: &Path) -> Option<Kind> {
        let fault = state.faults.get(&operation)?;
        let path = path.to_string_lossy();
        path.contains(&fault.path_part).then_some(fault.kind)
    }
}

#[derive(Debug, Default)]
struct State {
    /// At most one fault of each operation.
    faults: HashMap<Operation, Fault>,
    /// Operations that a fault holds up now.
    waiting: HashMap<Operation, usize>,
}

/// The faults that the disk has now.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    state: Mutex<State>,
    /// Signals that a fault is gone.
    changed: Condvar,
}

impl Faults {
    /// Carries out a command, and returns the answer to it:
    ///
    /// - `block OPERATION [PATH-PART]`
    /// - `slow OPERATION BYTES-PER-SECOND [PATH-PART]`
    /// - `fail OPERATION ERRNO [PATH-PART]`
    /// - `heal OPERATION`: ends its fault; operations that wait go on
    /// - `waiting OPERATION`: the answer is how many wait
    pub(crate) fn command(&self, line: &str) -> Result<String, String> {
        let mut words = line.split_whitespace();
        let mut word = || words.next().ok_or(format!("{line:?} is too short"));
        let (verb, operation) = (word()?, word()?.parse()?);
        let kind = match verb {
            "block" => Some(Kind::Block),
            "slow" => Some(Kind::Slow {
                bytes_per_s: number(word()?)?,
            }),
            "fail" => Some(Kind::Fail(Errno::from_i32(number(word()?)?))),
            "heal" => None,
            "waiting" => {
                let waiting = self.lock().waiting.get(&operation).copied();
                return Ok(waiting.unwrap_or(0).to_string());
            }
            _ => return Err(format!("no command {verb:?}")),
        };
        let path_part = words.next().unwrap_or("").to_owned();
        let mut state = self.lock();
        match kind {
            Some(kind) => state.faults.insert(operation, Fault { kind, path_part }),
            None => state.faults.remove(&operation),
        };
        self.changed.notify_all();
        Ok("ok".into())
    }

    /// Does to an operation on `bytes` what its fault demands.
    pub(crate) fn meet(
        &self,
        operation: Operation,
        bytes: usize,
        path: &Path,
    ) -> Result<(), Errno> {
        let mut state = self.lock();
        let patience = match Fault::of(&state, operation, path) {
            None => return Ok(()),
            Some(Kind::Fail(errno)) => return Err(errno),
            Some(Kind::Block) => Duration::MAX,
            Some(Kind::Slow { bytes_per_s }) => {
                let bytes = u32::try_from(bytes).map_err(|_| Errno::EINVAL)?;
                Duration::from_secs_f64(f64::from(bytes) / bytes_per_s)
            }
        };
        *state.waiting.entry(operation).or_default() += 1;
        let waited = self.changed.wait_timeout_while(state, patience, |state| {
            Fault::of(state, operation, path).is_some()
        });
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *state.waiting.entry(operation).or_default() -= 1;
        Ok(())
    }

    /// A thread that panics leaves the state consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn number<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{text:?}: {error}"))
}
