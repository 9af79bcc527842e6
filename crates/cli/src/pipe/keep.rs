//! The end that stores what arrives as a file (P15.4): a receiver of files.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use farwrite_connection::Connection;
use farwrite_files::{CommitGate, SinkError, StoredStream};
use farwrite_keys::Proof;
use farwrite_transfer::{Cancel, Error, ErrorKind, MemoryPool, ReceiveSettings};

use super::receive::{Output, Stopped, take};
use super::verdict::Kind;
use super::{MEMORY_BYTES, Passed, waiting};
use crate::addresses::address_of;
use crate::audit::Audit;
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Where a receiver stores pipes, and what holds there.
pub(crate) struct Store<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) settings: &'a ReceiveSettings,
    pub(crate) memory: &'a MemoryPool,
    pub(crate) audit: &'a Audit,
    /// The name of the sender, if it has one.
    pub(crate) peer: Option<&'a str>,
}

/// Stores the pipe of a sender. Returns `None` if it opens none, or one without a name.
pub(crate) fn keep(
    connection: &Connection,
    store: &Store<'_>,
    cancel: &Cancel,
    console: &Console,
) -> Result<Option<ExitCode>, Failure> {
    connection.set_silence_limit(store.settings.timeout);
    let Some(_memory) = store.memory.hold(MEMORY_BYTES) else {
        let what = format!(
            "there is no memory for a pipe now, which takes {} MiB (--memory of the receiver)",
            MEMORY_BYTES >> 20
        );
        connection.refuse_as_busy(&what);
        let address = address_of(connection);
        store.audit.note_busy(store.peer, &address, &what);
        return Err(Failure::new(Exit::Busy, what));
    };
    // A code serves one sender.
    let is_last = connection.peer().proof() == Proof::Code;
    let Some((name, stream)) = waiting::open(connection, cancel)? else {
        let what = "the code is used up: a sender has connected and opened no pipe; start this program again for a new code";
        return match is_last {
            true => Err(Failure::new(Exit::Mismatch, what)),
            false => Ok(None),
        };
    };
    let start = Instant::now();
    let peer = address_of(connection);
    let gate = CommitGate::default();
    let output = create(store, &name, &gate, cancel)?;
    let settings = store.settings;
    let limits = [settings.max_bytes, settings.max_file_bytes];
    let max_bytes = limits.into_iter().flatten().min();
    let (written, ended) = take(
        (connection, stream),
        (output, &gate),
        max_bytes,
        (cancel, console),
    );
    let noted = (store.peer, &*peer);
    store.audit.note_pipe(noted, Some(&name), written, &ended);
    if name.is_empty()
        && let Err(failure) = &ended
        && !is_last
    {
        console.warn(failure);
        return Ok(None);
    }
    let mut passed = Passed::new(peer, written, ended?, start.elapsed());
    console.say(format_args!("{}, as {name:?}", passed.line("received")));
    passed.file = Some(name);
    console.json(&passed)?;
    Ok(Some(ExitCode::SUCCESS))
}

/// Makes the file, in a thread of its own: a slow disk must not block Ctrl-C.
fn create(
    store: &Store<'_>,
    name: &str,
    gate: &CommitGate,
    cancel: &Cancel,
) -> Result<Result<StoredStream, Stopped>, Failure> {
    let refused = |what: &str| {
        let failure = Failure::new(Exit::Mismatch, what);
        Ok(Err(Stopped::new(Kind::Refused, failure)))
    };
    if name.is_empty() {
        return refused(
            "this receiver stores files, and the pipe has no name for one: give it with `farwrite send --name NAME -`",
        );
    }
    if store.settings.max_files == Some(0) {
        return refused("a pipe is one file, and no file is allowed (max-files)");
    }
    let (root, name, gate) = (store.directory.to_owned(), name.to_owned(), gate.clone());
    let policy = store.settings.policy;
    let create = move || StoredStream::create(&root, name.as_bytes(), policy, gate);
    Ok(cancel.run(create)?.map_err(|error| stopped(&error)))
}

impl Output for StoredStream {
    fn put(&mut self, bytes: &[u8]) -> Result<usize, Stopped> {
        self.write(bytes).map_err(|error| stopped(&error))?;
        Ok(bytes.len())
    }

    fn end(self) -> Result<(), Stopped> {
        self.commit().map_err(|error| stopped(&error))
    }
}

fn stopped(error: &SinkError) -> Stopped {
    let error = Error::of_sink(error);
    let kind = match error.kind() {
        ErrorKind::Full => Kind::Full,
        ErrorKind::Mismatch => Kind::Refused,
        _ => Kind::Unwritten,
    };
    Stopped::new(kind, error.into())
}
