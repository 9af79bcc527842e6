//! The end that writes what arrives to its standard output.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use blake3::{Hash, Hasher};
use farwrite_connection::{
    ByeCause, Connection, ConnectionOptions, Ended, Keys, Listener, Purpose,
};
use farwrite_files::CommitGate;
use farwrite_keys::shown;
use farwrite_stream::{Error as StreamError, ReadHalf, Stream, WriteHalf};
use farwrite_transfer::{Cancel, DEFAULT_PORT};
use rustix::event::PollFlags;
use rustix::fs::{FileType, fstat, fsync};

use super::verdict::{GivenUp, Kind, Verdict};
use super::{HEAD_BYTES, LAST_WORDS, LOOK, PIECE_BYTES, Passed, waiting};
use crate::accepting::Accepting;
use crate::addresses::{address_of, at_any};
use crate::audit::Audit;
use crate::console::{Console, Passing};
use crate::exit::{Exit, Failure, OrExit};
use crate::recv::RecvArgs;
use crate::standard::{Blocking, is_ready, own_output};

/// Receives from one sender, and writes the bytes to the standard output. Returns the exit code.
pub(crate) fn receive(
    args: &RecvArgs,
    accepting: &Accepting,
    cancel: &Cancel,
    console: &Console,
) -> Result<ExitCode, Failure> {
    let audit = Arc::new(Audit::start(args.audit.clone(), console.clone())?);
    let listener = listen(args, &accepting.keys())?;
    let local = listener.bound_addr();
    console.say(format_args!("listening on {} (UDP)", shown(&local)));
    let command = |end: &str| format!("farwrite send --to {end} -");
    accepting.invite(local, command, console);
    let open = |connection: &Connection| waiting::open(connection, cancel);
    let (connection, (_, stream)) = accepting.first(&listener, &audit, (cancel, console), open)?;
    // The pipe has one sender.
    drop(listener);
    let peer = address_of(&connection);
    let sender = accepting.peers().of(connection.peer().proof());
    let name = connection.peer().name();
    let start = Instant::now();
    let output = own_output().map(|file| StandardOutput {
        file,
        is_synced: !args.policy.no_sync,
        written: 0,
    });
    let output = output.map_err(|failure| Stopped::new(Kind::Unwritten, failure));
    let max_bytes = sender.and_then(|sender| sender.max_bytes());
    let max_bytes = max_bytes.or(args.policy.max_bytes);
    let gate = CommitGate::default();
    let (written, ended) = take(
        (&connection, stream),
        (output, &gate),
        max_bytes,
        (cancel, console),
    );
    audit.note_pipe((name, &peer), None, written, &ended);
    let passed = Passed::new(peer, written, ended?, start.elapsed());
    console.say(passed.line("received"));
    Ok(ExitCode::SUCCESS)
}

fn listen(args: &RecvArgs, keys: &Keys) -> Result<Listener, Failure> {
    let options = ConnectionOptions {
        serves: vec![Purpose::PIPE],
        silence_limit: args.timeout,
        ..ConnectionOptions::default()
    };
    let bind = |addr: SocketAddr| Listener::bind(addr, keys, &options);
    let listener = match args.listen {
        Some(addr) => bind(addr),
        None => at_any(DEFAULT_PORT, bind),
    };
    listener.or_fail("listening")
}

/// Where the bytes of a pipe go.
pub(super) trait Output: Send + 'static {
    /// Writes some of the bytes. Returns how many.
    fn put(&mut self, bytes: &[u8]) -> Result<usize, Stopped>;

    /// Fails if nobody takes bytes any more.
    fn check(&self) -> Result<(), Stopped> {
        Ok(())
    }

    /// All bytes were written, and their hash agrees.
    fn end(self) -> Result<(), Stopped>;
}

/// Why a receiver has stopped before the end, for both ends.
pub(super) struct Stopped {
    kind: Kind,
    failure: Failure,
}

impl Stopped {
    pub(super) fn new(kind: Kind, failure: Failure) -> Self {
        Self { kind, failure }
    }

    fn interrupted() -> Self {
        let failure = Failure::new(Exit::Interrupted, "interrupted");
        Self::new(Kind::Interrupted, failure)
    }
}

/// Writes the bytes of a pipe to `output`. The sender then learns whether they were written. If the user interrupts
/// this end, `gate` keeps a file of the output from getting its name. Returns the number of bytes, and their hash.
pub(super) fn take<T: Output>(
    (connection, stream): (&Connection, Stream),
    (output, gate): (Result<T, Stopped>, &CommitGate),
    max_bytes: Option<u64>,
    (cancel, console): (&Cancel, &Console),
) -> (u64, Result<Hash, Failure>) {
    let (reader, writer) = stream.split();
    let bytes = Arc::new(AtomicU64::new(0));
    let ended = output.and_then(|output| {
        let (bytes, cancel) = (Arc::clone(&bytes), cancel.clone());
        let pipe = Pipe {
            reader,
            output,
            bytes,
            max_bytes,
            cancel,
        };
        follow(pipe, gate, console)
    });
    let (kind, text) = match &ended {
        Ok(_) => (Kind::Whole, String::new()),
        Err(stopped) => (stopped.kind, stopped.failure.to_string()),
    };
    let is_told = tell(writer, &Verdict { kind, text });
    connection.finish(LAST_WORDS);
    if ended.is_ok() && !is_told {
        console.warn("the sender may not know that everything has arrived: it was not heard again");
    }
    let written = bytes.load(Ordering::Relaxed);
    (written, ended.map_err(|stopped| stopped.failure))
}

/// Writes the output on a thread of its own, because a program that does not read blocks it. Returns the
/// hash of the bytes.
fn follow<T: Output>(pipe: Pipe<T>, gate: &CommitGate, console: &Console) -> Result<Hash, Stopped> {
    let (bytes, cancel) = (Arc::clone(&pipe.bytes), pipe.cancel.clone());
    let writing = thread::spawn(move || pipe.write());
    let mut passing = Passing::new(console, "receiving");
    let mut interrupted_at = None;
    while !writing.is_finished() {
        passing.show(bytes.load(Ordering::Relaxed));
        if cancel.is_set() {
            // The thread removes what it has written, unless its output blocks.
            let since = interrupted_at.get_or_insert_with(Instant::now);
            if since.elapsed() >= 2 * LOOK {
                let _ = gate.close(LAST_WORDS);
                // A file that has got its name meanwhile is stored.
                thread::park_timeout(Duration::from_millis(20));
                if !writing.is_finished() {
                    return Err(Stopped::interrupted());
                }
            }
        }
        thread::park_timeout(Duration::from_millis(20));
    }
    passing.finish(bytes.load(Ordering::Relaxed));
    let written = writing.join();
    written.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The end that writes.
struct Pipe<T> {
    reader: ReadHalf,
    output: T,
    bytes: Arc<AtomicU64>,
    max_bytes: Option<u64>,
    cancel: Cancel,
}

impl<T: Output> Pipe<T> {
    /// Writes what arrives, up to the hash behind it, and compares the hash.
    fn write(mut self) -> Result<Hash, Stopped> {
        self.reader.set_timeout(Some(LOOK));
        let mut hasher = Hasher::new();
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let mut head = [0; HEAD_BYTES];
            self.fill(&mut head)?;
            let length = u32::from_be_bytes(head) as usize;
            if length == 0 {
                break;
            }
            let piece = piece.get_mut(..length).ok_or_else(|| {
                let what = format!("a piece of {length} bytes, of at most {PIECE_BYTES}");
                corrupt(&format!("the sender breaks the protocol: {what}"))
            })?;
            if let Some(most) = self.max_bytes
                && self.bytes.load(Ordering::Relaxed) + length as u64 > most
            {
                return Err(too_long(most));
            }
            self.fill(piece)?;
            hasher.update(piece);
            self.put(piece)?;
        }
        let hash = hasher.finalize();
        let mut told = [0; blake3::OUT_LEN];
        self.fill(&mut told)?;
        if hash != told {
            return Err(corrupt(
                "the bytes that arrived are not those that were sent: their BLAKE3 differs",
            ));
        }
        self.output.end()?;
        Ok(hash)
    }

    /// Writes a piece. Counts what was written of it also where the output ends in it.
    fn put(&mut self, mut piece: &[u8]) -> Result<(), Stopped> {
        while !piece.is_empty() {
            let length = self.output.put(piece)?;
            piece = &piece[length..];
            self.bytes.fetch_add(length as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Reads exactly these bytes. Notices in the meantime that nobody takes the output, and that the user has interrupted
    /// this end.
    fn fill(&mut self, mut room: &mut [u8]) -> Result<(), Stopped> {
        while !room.is_empty() {
            if self.cancel.is_set() {
                return Err(Stopped::interrupted());
            }
            match self.reader.read(room) {
                Ok(0) => return Err(corrupt("the sender ends the stream before its hash")),
                Ok(length) => room = &mut room[length..],
                Err(error) if error.kind() == ErrorKind::TimedOut => self.output.check()?,
                Err(error) => return Err(broken(&error)),
            }
        }
        Ok(())
    }
}

/// The standard output of this program.
struct StandardOutput {
    file: Blocking<File>,
    /// Whether an output that is a file is synced.
    is_synced: bool,
    written: u64,
}

impl Output for StandardOutput {
    fn put(&mut self, bytes: &[u8]) -> Result<usize, Stopped> {
        loop {
            match self.file.write(bytes) {
                Ok(0) => return Err(unwritten(ErrorKind::WriteZero.into(), self.written)),
                Ok(length) => {
                    self.written += length as u64;
                    return Ok(length);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(unwritten(error, self.written)),
            }
        }
    }

    fn check(&self) -> Result<(), Stopped> {
        match is_closed(&self.file.0) {
            true => Err(unwritten(ErrorKind::BrokenPipe.into(), self.written)),
            false => Ok(()),
        }
    }

    fn end(self) -> Result<(), Stopped> {
        if self.is_synced && is_file(&self.file.0) {
            fsync(&self.file.0).map_err(|error| unwritten(error.into(), self.written))?;
        }
        Ok(())
    }
}

fn corrupt(what: &str) -> Stopped {
    Stopped::new(Kind::Corrupt, Failure::new(Exit::Corrupt, what))
}

fn too_long(most: u64) -> Stopped {
    let what = format!("the sender has more bytes than the {most} that this end takes (max-bytes)");
    Stopped::new(Kind::Refused, Failure::new(Exit::Mismatch, what))
}

fn is_file(output: &File) -> bool {
    fstat(output).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

/// Whether the program that reads a pipe has closed it.
fn is_closed(output: &File) -> bool {
    // Without a flag, poll(2) reports only errors: POLLERR, which a pipe has when nobody can read it, POLLHUP, and
    // POLLNVAL.
    is_ready(output, PollFlags::empty(), Duration::ZERO).unwrap_or(false)
}

fn unwritten(error: io::Error, written: u64) -> Stopped {
    let (kind, exit) = match error.kind() {
        ErrorKind::BrokenPipe => {
            let what = format!(
                "the program that reads has closed the pipe, after {written} bytes were written to it"
            );
            return Stopped::new(Kind::Closed, Failure::new(Exit::Files, what));
        }
        ErrorKind::StorageFull => (Kind::Full, Exit::Full),
        _ => (Kind::Unwritten, Exit::Files),
    };
    Stopped::new(
        kind,
        Failure::caused(exit, "writing to standard output", &error),
    )
}

/// The stream has ended early.
fn broken(error: &io::Error) -> Stopped {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    let failure = match cause {
        Some(StreamError::Reset(code)) => GivenUp::of_receiver(*code),
        Some(StreamError::ConnectionEnded(Ended::ByPeer {
            cause: ByeCause::Closed,
            ..
        })) => {
            let what = "the sender has ended before everything was sent";
            Failure::new(Exit::Unreachable, what)
        }
        Some(error) => Failure::of("receiving", error),
        None => Failure::caused(Exit::Other, "receiving", error),
    };
    Stopped::new(Kind::Unwritten, failure)
}

/// Sends the verdict to the sender. Returns whether the sender has the verdict, or has ended the
/// connection.
fn tell(mut writer: WriteHalf, verdict: &Verdict) -> bool {
    writer.set_timeout(Some(LAST_WORDS));
    if writer.write_all(&verdict.encode()).is_err() {
        return false;
    }
    writer.finish();
    match writer.wait_delivered() {
        Ok(()) => true,
        // The sender ends the connection when it has the verdict.
        Err(StreamError::ConnectionEnded(Ended::ByPeer { .. })) => true,
        Err(_) => false,
    }
}
