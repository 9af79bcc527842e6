//! `farwrite rsh`: runs a command on another machine. ssh starts it, and its standard input and output cross
//! the network on a byte stream (P14.4).

mod far;
mod way;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::{Arg, ArgAction, Args};
use farwrite::RateControl;
use farwrite_connection::{Connection, ConnectionOptions};
use farwrite_stream::{ConnectionExt, ReadHalf, SchemeSetting, Stream, WriteHalf};
use farwrite_transfer::Cancel;
use farwrite_units::parse::{parse_rate, parse_timeout};

use crate::console::Console;
use crate::cp::ssh::RemoteArgs;
use crate::exit::{Exit, Failure, OrExit};
use crate::forward::MOST_STREAMS;
use crate::pipe::{Cut, PIECE_BYTES, stream_options};
use crate::standard::{own_input, own_output};
use far::words;
pub(crate) use far::{line, run_far};
pub(crate) use way::{dial, listen, start};

/// The name of the stream, with the version of P14.4.
const NAME: &str = "farwrite-rsh-1";
/// How long the other end may take to accept the stream.
const OPENING: Duration = Duration::from_secs(10);
/// How long the other end may be silent, without --timeout.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The exit code of everything that goes wrong before or beside the command, as with ssh.
const FAILED: u8 = 255;

const EXAMPLES: &str = "\
Examples:
  rsync -a -e 'farwrite rsh' source/ me@far.example:copy/
  farwrite rsh far.example 'tar c -C /srv data' | tar x
  tar c data | farwrite rsh me@far.example 'tar x -C in'
  farwrite rsh --rsh 'ssh -p 2222' far.example zfs send tank@now | zfs receive tank/copy

ssh starts `farwrite` on the other machine, and carries a key of one use, the addresses and the standard
error. Standard input and output go over UDP, encrypted. One of the two machines must be reachable by UDP at
one port. Where neither is, they go through ssh, and a warning says what to open.

The command goes to the shell of the user there, as with ssh. The exit code is that of the command, or 255
if the command could not be run to its end. There is no terminal: use ssh for that. --json is refused, since
the standard output is that of the command.";

/// Runs a command on another machine that ssh reaches.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg = refused("json", "json"))]
#[command(arg = refused("json_lines", "json-lines"))]
pub(crate) struct RshArgs {
    /// The user on the other machine, as with ssh; rsync needs it
    #[arg(short = 'l', value_name = "USER")]
    user: Option<OsString>,
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(flatten)]
    session: SessionArgs,
    /// [USER@]HOST, and the command with its arguments
    #[arg(value_names = ["HOST", "COMMAND"], required = true, num_args = 2..)]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// An option of all commands that this one refuses, so that its help leaves it out.
fn refused(id: &'static str, name: &'static str) -> Arg {
    let arg = Arg::new(id).long(name);
    arg.action(ArgAction::SetTrue).hide(true)
}

/// How both ends of a remote command and of a forward send, which the near end decides.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SessionArgs {
    /// UDP port of the other machine, where ssh starts its end; without it, any free one
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub(crate) port: u16,
    /// Maximum bits per second on the wire, in each direction
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) rate: Option<u64>,
    /// How losses are repaired, as of `farwrite send`
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) scheme: SchemeSetting,
    /// Give up if the other machine is silent for this time: 1s to 1h; without it, 60s, and 5 minutes for ssh to
    /// log in
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    pub(crate) timeout: Option<Duration>,
}

impl SessionArgs {
    /// How long the other end may be silent.
    pub(crate) fn patience(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT)
    }

    pub(crate) fn connection(&self, connect_limit: Duration) -> ConnectionOptions {
        ConnectionOptions {
            connect_limit,
            busy_limit: connect_limit,
            silence_limit: self.patience(),
            // A forward has one for each TCP connection.
            max_queue_pairs: MOST_STREAMS,
            rate_control: RateControl::Adaptive {
                max_bps: self.rate,
                start: None,
            },
            ..ConnectionOptions::default()
        }
    }
}

pub(crate) fn run(args: &RshArgs, console: &Console) -> ExitCode {
    match run_near(args, console) {
        Ok(code) => code,
        Err(failure) => {
            console.fail(&failure);
            FAILED.into()
        }
    }
}

fn run_near(args: &RshArgs, console: &Console) -> Result<ExitCode, Failure> {
    let (host, command) = args.words.split_first().unwrap_or_else(|| unreachable!());
    let mut host = host.clone();
    if let Some(user) = &args.user {
        host = [user.as_os_str(), "@".as_ref(), &host]
            .into_iter()
            .collect();
    }
    // As ssh does: the shell there splits it again.
    let command = command.join(OsStr::new(" "));
    // Ctrl-C ends this program at once.
    let cancel = Cancel::default();
    let what = ("rsh", &*command);
    let started = start((&args.remote, &host), what, &args.session, &cancel, console)?;
    let (far, (mut input, mut output)) = (started.far, started.pipes);
    if let Some(connection) = started.connection {
        let stream = open(&connection, args.session.scheme)?;
        carry(stream)?;
        // The other end ends by itself. If this one ends first, it ends the command.
        let status = far.wait();
        drop(input);
        return status_of(status);
    }
    let mut from = own_input()?;
    thread::spawn(move || copy(&mut from, &mut input));
    let copied = copy(&mut output, &mut own_output()?);
    drop(output);
    let status = far.wait();
    check(copied)?;
    status_of(status)
}

fn status_of(status: Option<i32>) -> Result<ExitCode, Failure> {
    let code = status.and_then(|code| u8::try_from(code).ok());
    let ended = || Failure::new(Exit::Unreachable, "a signal has ended ssh");
    Ok(code.ok_or_else(ended)?.into())
}

pub(crate) fn open(connection: &Connection, scheme: SchemeSetting) -> Result<Stream, Failure> {
    let opened = connection.open_stream(NAME, &stream_options(scheme), OPENING);
    opened.or_fail("opening the stream to the command")
}

/// Carries the standard input and output of this program, until the output of the command ends.
fn carry(stream: Stream) -> Result<(), Failure> {
    let (mut reader, mut writer) = stream.split();
    let (mut input, mut output) = (own_input()?, own_output()?);
    // The command may end before the input does.
    thread::spawn(move || feed(&mut input, &mut writer));
    check(drain(&mut reader, &mut output))
}

/// Fails if the output of the command was not written to its end, although the program that reads it has not closed it,
/// as `head` does.
fn check(copied: Result<(), Cut>) -> Result<(), Failure> {
    match copied {
        Err(Cut::Read(source)) => {
            Err(source).or_exit(Exit::Unreachable, "the output of the command")
        }
        Err(Cut::Write(source)) if source.kind() != io::ErrorKind::BrokenPipe => {
            Err(source).or_exit(Exit::Files, "writing the standard output")
        }
        _ => Ok(()),
    }
}

/// Writes what a program or a user gives to the stream, and ends the direction.
fn feed(input: &mut impl io::Read, writer: &mut WriteHalf) {
    match copy(input, writer) {
        Ok(()) => writer.finish(),
        // The command must not take a part for the whole.
        Err(Cut::Read(_)) => writer.reset(0),
        // The peer has stopped reading. Its exit code says why.
        Err(Cut::Write(_) | Cut::Corrupt(_)) => {}
    }
}

/// Writes what the stream gives, until it ends or the output cannot be written.
fn drain(reader: &mut ReadHalf, output: &mut impl Write) -> Result<(), Cut> {
    let ended = copy(reader, output);
    if let Err(Cut::Write(_)) = &ended {
        reader.stop(0);
    }
    ended
}

/// Copies to the end.
fn copy(from: &mut impl io::Read, to: &mut impl Write) -> Result<(), Cut> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                let written = to.write_all(&piece[..length]);
                written.and_then(|()| to.flush()).map_err(Cut::Write)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Cut::Read(error)),
        }
    }
}
