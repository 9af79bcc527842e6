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
use farwrite_connection::{ByeCause, ConnectionOptions, Ended, Keys, Listener, Purpose};
use farwrite_keys::shown;
use farwrite_stream::{Error as StreamError, ReadHalf, WriteHalf};
use farwrite_transfer::{Cancel, DEFAULT_PORT};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat, fsync};

use super::verdict::{GivenUp, Kind, Verdict};
use super::{HEAD_BYTES, LAST_WORDS, LOOK, PIECE_BYTES, Passed, own_output, waiting};
use crate::addresses::{Targets, at_any};
use crate::audit::Audit;
use crate::console::{Console, Passing};
use crate::exit::{Exit, Failure};
use crate::peers::{Peer, Peers};

/// What the user has chosen for a pipe.
pub(crate) struct PipeReceiver {
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) keys: Keys,
    /// Those of the file of peers.
    pub(crate) peers: Peers,
    pub(crate) audit: Arc<Audit>,
    /// The most bytes, if the sender has no limit of its own.
    pub(crate) max_bytes: Option<u64>,
    pub(crate) timeout: Duration,
    /// Whether an output that is a file is synced.
    pub(crate) sync: bool,
}

/// Receives from one sender, and writes the bytes to the standard output. Calls `announce` with the address
/// at which this end listens, and with those at which senders reach it. Returns the exit code.
pub(crate) fn receive(
    pipe: &PipeReceiver,
    cancel: &Cancel,
    console: &Console,
    announce: impl FnOnce(SocketAddr, &Targets),
) -> Result<ExitCode, Failure> {
    let listener = listen(pipe)?;
    let local = listener.local_addr();
    announce(local, &Targets::of(local));
    let (connection, stream) = waiting::accept(&listener, &pipe.audit, cancel)?;
    // The pipe has one sender.
    drop(listener);
    let peer = connection.peer_addr();
    let peer = peer.map_or_else(String::new, |peer| shown(&peer).to_string());
    let sender = connection.peer().key().and_then(|key| pipe.peers.of(&key));
    let name = connection.peer().name();
    let start = Instant::now();
    let (reader, writer) = stream.split();
    let bytes = Arc::new(AtomicU64::new(0));
    let limits = Limits {
        max_bytes: sender.and_then(Peer::max_bytes).or(pipe.max_bytes),
        is_synced: pipe.sync,
    };
    let ended = follow(reader, &bytes, limits, cancel, console);
    let verdict = match &ended {
        Ok(_) => Verdict {
            kind: Kind::Whole,
            text: String::new(),
        },
        Err(stopped) => Verdict {
            kind: stopped.kind,
            text: stopped.failure.to_string(),
        },
    };
    let is_told = tell(writer, &verdict);
    connection.finish(LAST_WORDS);
    let ended = ended.map_err(|stopped| stopped.failure);
    let written = bytes.load(Ordering::Relaxed);
    pipe.audit.note_pipe((name, &peer), written, &ended);
    let hash = ended?;
    if !is_told {
        console.warn("the sender may not know that everything has arrived: it was not heard again");
    }
    let passed = Passed::new(peer, written, hash, start.elapsed());
    console.say(passed.line("received"));
    Ok(ExitCode::SUCCESS)
}

fn listen(pipe: &PipeReceiver) -> Result<Listener, Failure> {
    let options = ConnectionOptions {
        serves: vec![Purpose::PIPE],
        silence_limit: pipe.timeout,
        ..ConnectionOptions::default()
    };
    let bind = |addr: SocketAddr| Listener::bind(addr, &pipe.keys, &options);
    let listener = match pipe.listen {
        Some(addr) => bind(addr),
        None => at_any(DEFAULT_PORT, bind),
    };
    listener.map_err(|error| Failure::of_connection("listening", &error))
}

/// What holds for the output.
#[derive(Clone, Copy)]
struct Limits {
    max_bytes: Option<u64>,
    is_synced: bool,
}

/// Why a receiver has stopped before the end, for both ends.
struct Stopped {
    kind: Kind,
    failure: Failure,
}

/// Writes the output on a thread of its own, because a program that does not read blocks it. Returns the
/// hash of the bytes.
fn follow(
    mut reader: ReadHalf,
    bytes: &Arc<AtomicU64>,
    limits: Limits,
    cancel: &Cancel,
    console: &Console,
) -> Result<Hash, Stopped> {
    let output = own_output().map_err(|failure| Stopped {
        kind: Kind::Unwritten,
        failure,
    })?;
    let of_thread = Arc::clone(bytes);
    let writing = thread::spawn(move || write(&mut reader, output, &of_thread, limits));
    let mut passing = Passing::new(console, "receiving");
    while !writing.is_finished() {
        passing.show(bytes.load(Ordering::Relaxed));
        if cancel.is_set() {
            let failure = Failure::new(Exit::Interrupted, "interrupted");
            let kind = Kind::Interrupted;
            return Err(Stopped { kind, failure });
        }
        thread::park_timeout(LOOK.min(Duration::from_millis(20)));
    }
    passing.finish(bytes.load(Ordering::Relaxed));
    let written = writing.join();
    written.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Writes what arrives, up to the hash behind it, and compares the hash.
fn write(
    reader: &mut ReadHalf,
    mut output: File,
    bytes: &AtomicU64,
    limits: Limits,
) -> Result<Hash, Stopped> {
    reader.set_timeout(Some(LOOK));
    let mut hasher = Hasher::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let written = bytes.load(Ordering::Relaxed);
        let mut head = [0; HEAD_BYTES];
        fill(reader, &mut head, &output, written)?;
        let length = u32::from_be_bytes(head) as usize;
        if length == 0 {
            break;
        }
        let piece = piece.get_mut(..length).ok_or_else(|| {
            let what = format!("a piece of {length} bytes, of at most {PIECE_BYTES}");
            corrupt(&format!("the sender breaks the protocol: {what}"))
        })?;
        if let Some(most) = limits.max_bytes
            && written + length as u64 > most
        {
            return Err(too_long(most));
        }
        fill(reader, piece, &output, written)?;
        hasher.update(piece);
        put(&mut output, piece, bytes)?;
    }
    let (hash, written) = (hasher.finalize(), bytes.load(Ordering::Relaxed));
    let mut told = [0; blake3::OUT_LEN];
    fill(reader, &mut told, &output, written)?;
    if hash != told {
        return Err(corrupt(
            "the bytes that arrived are not those that were sent: their BLAKE3 differs",
        ));
    }
    if limits.is_synced && is_file(&output) {
        fsync(&output).map_err(|error| unwritten(error.into(), written))?;
    }
    Ok(hash)
}

/// Writes a piece. Counts what was written of it also where the output ends in it.
fn put(output: &mut File, mut piece: &[u8], bytes: &AtomicU64) -> Result<(), Stopped> {
    while !piece.is_empty() {
        let error = match output.write(piece) {
            Ok(0) => ErrorKind::WriteZero.into(),
            Ok(length) => {
                piece = &piece[length..];
                bytes.fetch_add(length as u64, Ordering::Relaxed);
                continue;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => error,
        };
        return Err(unwritten(error, bytes.load(Ordering::Relaxed)));
    }
    Ok(())
}

/// Reads exactly these bytes. Notices in the meantime that nobody reads the output.
fn fill(
    reader: &mut ReadHalf,
    mut room: &mut [u8],
    output: &File,
    written: u64,
) -> Result<(), Stopped> {
    while !room.is_empty() {
        match reader.read(room) {
            Ok(0) => return Err(corrupt("the sender ends the stream before its hash")),
            Ok(length) => room = &mut room[length..],
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                if is_closed(output) {
                    return Err(unwritten(ErrorKind::BrokenPipe.into(), written));
                }
            }
            Err(error) => return Err(broken(&error)),
        }
    }
    Ok(())
}

fn corrupt(what: &str) -> Stopped {
    let failure = Failure::new(Exit::Corrupt, what);
    let kind = Kind::Corrupt;
    Stopped { kind, failure }
}

fn too_long(most: u64) -> Stopped {
    let what = format!("the sender has more bytes than the {most} that this end takes (max-bytes)");
    let failure = Failure::new(Exit::Mismatch, what);
    let kind = Kind::TooLong;
    Stopped { kind, failure }
}

fn is_file(output: &File) -> bool {
    fstat(output).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

/// Whether the program that reads a pipe has closed it.
fn is_closed(output: &File) -> bool {
    let mut polled = [PollFd::new(output, PollFlags::empty())];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

fn unwritten(error: io::Error, written: u64) -> Stopped {
    let (kind, exit) = match error.kind() {
        ErrorKind::BrokenPipe => {
            let what = format!(
                "the program that reads has closed the pipe, after {written} bytes were written to it"
            );
            let failure = Failure::new(Exit::Files, what);
            let kind = Kind::Closed;
            return Stopped { kind, failure };
        }
        ErrorKind::StorageFull => (Kind::Full, Exit::Full),
        _ => (Kind::Unwritten, Exit::Files),
    };
    let failure = Failure::caused(exit, "writing to standard output", &error);
    Stopped { kind, failure }
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
        Some(error) => Failure::of_stream("receiving", error),
        None => Failure::caused(Exit::Other, "receiving", error),
    };
    let kind = Kind::Unwritten;
    Stopped { kind, failure }
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
