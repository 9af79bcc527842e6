//! The end that sends its standard input.

use std::io::{self, ErrorKind, Read, Stdin, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use farwrite_connection::{Connection, ConnectionOptions, Error as ConnectionError, Purpose};
use farwrite_keys::{HostPort, Key};
use farwrite_stream::{ConnectionExt, Error as StreamError, ReadHalf, Stream, WriteHalf};
use farwrite_transfer::{Cancel, RateControl, Waiting};
use rustix::event::PollFlags;
use rustix::io::Errno;

use super::verdict::{self, GivenUp, Verdict};
use super::{Cut, LAST_WORDS, LOOK, NAME, Passed, encode, stream_options};
use crate::console::{Console, Passing};
use crate::exit::{Exit, Failure, OrExit};
use crate::send::SendArgs;
use crate::standard::is_ready;

/// What the two threads of a sender share.
#[derive(Default)]
struct Shared {
    bytes: AtomicU64,
    /// The verdict is there, or the stream broke.
    is_over: AtomicBool,
}

/// How the thread that reads the input has ended.
enum Input {
    /// Everything was sent, and this is its hash.
    Ended(blake3::Hash),
    /// The stream takes no more bytes: the other thread knows why.
    Refused,
    Interrupted,
    Unreadable(io::Error),
}

/// Sends the standard input. Returns the exit code.
pub(crate) fn send(
    args: &SendArgs,
    (to, rate_control): (&HostPort, RateControl),
    key: &Key,
    cancel: &Cancel,
    console: &Console,
) -> Result<ExitCode, Failure> {
    let (connection, stream) = reach(args, (to, rate_control), key, cancel, console)?;
    let start = Instant::now();
    let shared = Shared::default();
    let (mut reader, mut writer) = stream.split();
    let (input, told) = thread::scope(|scope| {
        let input = scope.spawn(|| feed(&mut writer, &shared, cancel));
        let told = listen(&mut reader, &shared, cancel, console);
        shared.is_over.store(true, Ordering::Relaxed);
        (input.join(), told)
    });
    connection.finish(LAST_WORDS);
    let input = input.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    match (input, told) {
        (Input::Interrupted, _) => Err(Failure::new(Exit::Interrupted, "interrupted")),
        (Input::Unreadable(error), _) => {
            let what = "reading the standard input";
            Err(Failure::caused(Exit::Files, what, &error))
        }
        (_, Err(failure)) => Err(failure),
        (Input::Ended(hash), Ok(verdict)) => {
            verdict.of_sender()?;
            let bytes = shared.bytes.load(Ordering::Relaxed);
            let passed = Passed::new(to.to_string(), bytes, hash, start.elapsed());
            console.say(passed.line("sent"));
            console.json(&passed)?;
            Ok(ExitCode::SUCCESS)
        }
        (Input::Refused, Ok(verdict)) => {
            verdict.of_sender()?;
            let what = "the receiver says that it has everything before everything was sent";
            Err(Failure::new(Exit::Corrupt, what))
        }
    }
}

/// Connects to the receiver, which may start later or be busy with others, and opens the pipe.
fn reach(
    args: &SendArgs,
    (to, rate_control): (&HostPort, RateControl),
    key: &Key,
    cancel: &Cancel,
    console: &Console,
) -> Result<(Connection, Stream), Failure> {
    let options = |limit| ConnectionOptions {
        purpose: Purpose::PIPE,
        connect_limit: limit,
        busy_limit: limit,
        silence_limit: args.timeout,
        rate_control,
        largest_mtu: args.mtu,
        ..ConnectionOptions::default()
    };
    let (of_stream, timeout, start) = (stream_options(args.scheme), args.timeout, Instant::now());
    let name = match &args.name {
        Some(file) => format!("{NAME}/{file}"),
        None => NAME.to_owned(),
    };
    let open = move |connection: &Connection| {
        let left = timeout.saturating_sub(start.elapsed());
        let stream = connection.open_stream(&name, &of_stream, left)?;
        Ok::<_, StreamError>((connection.clone(), stream))
    };
    let waiting = Waiting::new(to.clone(), key, args.timeout);
    let of_connection = StreamError::of_connection;
    let opened = waiting.open(options, open, of_connection, (cancel, console))?;
    opened.map_err(|error| {
        let what = match error {
            StreamError::Connection(ConnectionError::Silent { .. }) => {
                "connecting to a `farwrite recv`"
            }
            _ => "connecting",
        };
        Failure::of(what, &error)
    })
}

/// Sends the standard input until it ends, or one of the two ends has to stop.
fn feed(writer: &mut WriteHalf, shared: &Shared, cancel: &Cancel) -> Input {
    writer.set_timeout(Some(LOOK));
    let is_over = || shared.is_over.load(Ordering::Relaxed);
    let stops = &|| cancel.is_set() || is_over();
    let (mut from, mut to) = (Until(io::stdin(), stops), Until(&mut *writer, stops));
    let (input, code) = match encode(&mut from, &mut to, &shared.bytes) {
        Ok(hash) => {
            writer.finish();
            return Input::Ended(hash);
        }
        Err(_) if cancel.is_set() => (Input::Interrupted, GivenUp::Interrupted),
        Err(Cut::Read(error)) if !is_over() => (Input::Unreadable(error), GivenUp::Unreadable),
        Err(_) => return Input::Refused,
    };
    writer.reset(code as u32);
    // The reset leaves before the connection ends.
    writer.set_timeout(Some(LAST_WORDS));
    let _ = writer.wait_delivered();
    shared.is_over.store(true, Ordering::Relaxed);
    input
}

/// Fails as soon as the second field is true.
struct Until<'a, T>(T, &'a dyn Fn() -> bool);

impl Read for Until<'_, Stdin> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        while !(self.1)() {
            if is_ready(&self.0, PollFlags::IN, LOOK)? {
                match rustix::io::read(&self.0, &mut *room) {
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    ended => return Ok(ended?),
                }
            }
        }
        Err(ErrorKind::ConnectionAborted.into())
    }
}

impl Write for Until<'_, &mut WriteHalf> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == ErrorKind::TimedOut && !(self.1)() => {}
                ended => return ended,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits for the verdict of the receiver, and shows the progress.
fn listen(
    reader: &mut ReadHalf,
    shared: &Shared,
    cancel: &Cancel,
    console: &Console,
) -> Result<Verdict, Failure> {
    let mut passing = Passing::new(console, "sending");
    let told = verdict::read(reader, || {
        passing.show(shared.bytes.load(Ordering::Relaxed));
        // The other thread gives the stream up first, and then says so.
        !shared.is_over.load(Ordering::Relaxed)
    });
    passing.finish(shared.bytes.load(Ordering::Relaxed));
    if cancel.is_set() {
        return Err(Failure::new(Exit::Interrupted, "interrupted"));
    }
    let told = told.or_exit(Exit::Unreachable, "waiting for the receiver")?;
    Verdict::decode(&told)
}
