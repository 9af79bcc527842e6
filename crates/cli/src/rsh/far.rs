//! The other end of `farwrite rsh`, which ssh starts (P14.4).

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use farwrite_connection::{Connection, Listener};
use farwrite_keys::Psk;
use farwrite_stream::{ConnectionExt, ReadHalf, SchemeSetting, Stream, WriteHalf};
use farwrite_units::parse::parse_timeout;
use rustix::event::PollFlags;
use rustix::process::{Pid, Signal, kill_process_group};

use super::way::{dial, listen};
use super::{FAILED, NAME, OPENING, SessionArgs, drain, feed};
use crate::console::Console;
use crate::cp::greet;
use crate::cp::meeting::Meeting;
use crate::exit::{Exit, Failure, OrExit};
use crate::forward;
use crate::interrupt::LOOK;
use crate::pipe::{Cut, stream_options};
use crate::standard::is_ready;

/// The time between the hang-up signal to the command and the end of it by force.
const GRACE: Duration = Duration::from_secs(2);
/// The longest line of the near end.
const MAX_LINE_BYTES: usize = 4096;

/// The arguments of the far end, for [`run_far`].
pub(super) fn words(what: &str, session: &SessionArgs, command: &OsStr) -> Vec<OsString> {
    let (port, rate) = (session.port, session.rate.unwrap_or(0));
    let timeout = format!("{}ms", session.patience().as_millis());
    let mut words = vec![what.to_owned(), port.to_string(), rate.to_string()];
    words.extend([session.scheme.to_string(), timeout]);
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    words.push(command.into());
    words
}

/// Runs the command that the near end asks for, or forwards for it. Returns the exit code.
pub(crate) fn run_far(
    what: &OsStr,
    words: &[OsString],
    psk: Psk,
    mut pipe: File,
    console: &Console,
) -> Result<ExitCode, Failure> {
    let usage = || Failure::new(Exit::Usage, "farwrite rsh starts this command, and no user");
    let [port, rate, scheme, timeout, command] = words else {
        return Err(usage());
    };
    let text = |word: &'_ OsString| word.to_str().map(str::to_owned).ok_or_else(usage);
    let rate: u64 = text(rate)?.parse().map_err(|_| usage())?;
    let timeout = parse_timeout(&text(timeout)?).map_err(|_| usage())?;
    let session = SessionArgs {
        port: text(port)?.parse().map_err(|_| usage())?,
        rate: Some(rate).filter(|rate| *rate > 0),
        scheme: text(scheme)?.parse().map_err(|_| usage())?,
        timeout: Some(timeout),
    };
    let task = Task {
        what,
        argument: command,
    };
    let ended = match what.to_str() {
        Some("forward") => forward::run_far(&session, &psk, pipe, console),
        _ => serve(&task, &session, &psk, &mut pipe),
    };
    Ok(ended.unwrap_or_else(|failure| {
        console.fail(&failure);
        FAILED.into()
    }))
}

/// What runs here.
struct Task<'a> {
    /// `rsh`: a command of the shell. Otherwise what this program does with a file.
    what: &'a OsStr,
    /// The command, or the path of the file.
    argument: &'a OsStr,
}

fn serve(
    task: &Task<'_>,
    session: &SessionArgs,
    psk: &Psk,
    pipe: &mut File,
) -> Result<ExitCode, Failure> {
    let listener = listen(session.port, psk, session)?;
    greet(pipe, Some(&Meeting::of_far(listener.bound_addr())))?;
    loop {
        let line = line()?;
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("udp", _) => {
                let (_connection, stream) = accepted(&listener, session.scheme)?;
                return over_udp(stream, task);
            }
            ("dial", meeting) => {
                // The near end may have given up meanwhile. If it opens a stream, it has not.
                if let Ok(connection) = dial(&Meeting::told_by_near(meeting)?, psk, session)
                    && let Some(stream) = opened(&connection, session.scheme)
                {
                    return over_udp(stream, task);
                }
            }
            ("ssh", _) => {
                let pipe = pipe.try_clone().or_exit(Exit::Other, "taking the pipe")?;
                let status = start(task, Stdio::inherit(), pipe.into())?.wait();
                let status = status.or_exit(Exit::Other, "waiting for the command")?;
                return Ok(exit_code(status));
            }
            // The near end is gone.
            ("", _) => return Ok(FAILED.into()),
            _ => {
                let what = format!("{line:?} is not a way that this version knows");
                return Err(Failure::new(Exit::Mismatch, what));
            }
        }
    }
}

/// Reads a line of standard input. The bytes after the line stay unread for the next reader. A line ends at the latest
/// after [`MAX_LINE_BYTES`], and its other bytes stay unread too.
pub(crate) fn line() -> Result<String, Failure> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < MAX_LINE_BYTES {
        match rustix::io::read(io::stdin(), &mut byte) {
            Ok(0) => break,
            Ok(_) if byte == *b"\n" => break,
            Ok(_) => line.push(byte[0]),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                let what = "reading what ssh carries";
                return Err(Failure::caused(Exit::Unreachable, what, &error));
            }
        }
    }
    let text = String::from_utf8(line);
    Ok(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

fn start(task: &Task<'_>, input: Stdio, output: Stdio) -> Result<Child, Failure> {
    let shell = env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let program = match task.what.to_str() {
        Some("rsh") => shell,
        _ => "/proc/self/exe".into(),
    };
    let mut child = Command::new(&program);
    match task.what.to_str() {
        Some("rsh") => child.arg("-c").arg(task.argument),
        _ => child
            .args(["--quiet", "far", "file"])
            .args([task.what, task.argument]),
    };
    child.stdin(input).stdout(output);
    // So that all of it can be ended.
    child.process_group(0);
    child
        .spawn()
        .or_exit(Exit::Other, format_args!("starting {}", program.display()))
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signal);
    let code = code.and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(FAILED))
}

/// What happens to a command.
enum Event {
    /// It has ended, and its output was delivered.
    Ended(ExitStatus),
    /// The near end or the connection to it is gone.
    Gone,
}

/// Waits for the stream of the near end. The near end may have connected over several addresses, and uses
/// one of these connections.
fn accepted(listener: &Listener, scheme: SchemeSetting) -> Result<(Connection, Stream), Failure> {
    let options = stream_options(scheme);
    let (start, mut connections) = (Instant::now(), Vec::<Connection>::new());
    while start.elapsed() < OPENING {
        let accepted = listener.accept(LOOK);
        connections.extend(accepted.or_exit(Exit::Unreachable, "waiting for the other end")?);
        for connection in &connections {
            if let Ok(Some((_, stream))) = connection.accept_stream(Some(NAME), &options, LOOK) {
                return Ok((connection.clone(), stream));
            }
        }
    }
    let what = "the other end has not connected";
    Err(Failure::new(Exit::Unreachable, what))
}

/// Waits for the stream of the near end over a connection. `None` if the near end goes another way instead.
fn opened(connection: &Connection, scheme: SchemeSetting) -> Option<Stream> {
    let options = stream_options(scheme);
    let start = Instant::now();
    while start.elapsed() < OPENING {
        match connection.accept_stream(Some(NAME), &options, LOOK) {
            Ok(Some((_, stream))) => return Some(stream),
            Ok(None) if has_line() => return None,
            Ok(None) => {}
            Err(_) => return None,
        }
    }
    None
}

/// Whether the near end has said something, or has ended.
fn has_line() -> bool {
    is_ready(io::stdin(), PollFlags::IN, Duration::ZERO).unwrap_or(false)
}

fn over_udp(stream: Stream, task: &Task<'_>) -> Result<ExitCode, Failure> {
    let (reader, writer) = stream.split();
    let child = start(task, Stdio::piped(), Stdio::piped())?;
    let group = Pid::from_child(&child);
    let (events, came) = channel();
    watch_near(events.clone());
    carry(child, reader, writer, events);
    match came.recv() {
        Ok(Event::Ended(status)) => Ok(exit_code(status)),
        Ok(Event::Gone) | Err(_) => {
            // As a terminal that is closed does.
            let _ = kill_process_group(group, Signal::HUP);
            thread::sleep(GRACE);
            let _ = kill_process_group(group, Signal::KILL);
            let what = "the other end is gone: the command was ended";
            Err(Failure::new(Exit::Unreachable, what))
        }
    }
}

/// Notices the end of the near end: its end of the pipe of ssh is then closed.
fn watch_near(events: Sender<Event>) {
    thread::spawn(move || {
        while line().is_ok_and(|line| !line.is_empty()) {}
        let _ = events.send(Event::Gone);
    });
}

/// Carries what the command reads and writes, on threads of their own.
fn carry(mut child: Child, mut reader: ReadHalf, mut writer: WriteHalf, events: Sender<Event>) {
    if let Some(mut input) = child.stdin.take() {
        let events = events.clone();
        thread::spawn(move || {
            // The input ends with the stream. If that broke, so that it is not whole, the command must not
            // take it for whole.
            if let Err(Cut::Read(_)) = drain(&mut reader, &mut input) {
                let _ = events.send(Event::Gone);
                thread::park();
            }
        });
    }
    let output = child.stdout.take();
    thread::spawn(move || {
        if let Some(mut output) = output {
            feed(&mut output, &mut writer);
        }
        let _ = writer.wait_delivered();
        match child.wait() {
            Ok(status) => events.send(Event::Ended(status)),
            Err(_) => events.send(Event::Gone),
        }
    });
}
