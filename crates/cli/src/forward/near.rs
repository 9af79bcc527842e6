//! The end at which programs connect. It opens a stream for each of their TCP connections.

use std::ffi::OsStr;
use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use farwrite_connection::{
    Connection, ConnectionOptions, Error as ConnectionError, Keys, Purpose, connect_any,
};
use farwrite_keys::{HostPort, Key};
use farwrite_stream::{ConnectionExt, SchemeSetting, StreamOptions};
use farwrite_transfer::{Cancel, SETUP, Waiting};

use super::carry::{AtOnce, carry, prepare};
use super::opening::{Answered, request};
use super::ports::Forward;
use super::{ForwardArgs, LAST_WORDS, MOST_STREAMS, NAME, OPENING, stream_options};
use crate::console::Console;
use crate::cp::relay::{Out, Relay};
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt;
use crate::rsh::{SessionArgs, start};

/// How long to wait before the next connection of a program if there was no descriptor for the last one.
const PAUSE: Duration = Duration::from_millis(100);

/// The ports that are forwarded.
type Ports<'a> = Vec<(&'a Forward, TcpListener)>;

pub(super) fn run(args: &ForwardArgs, console: &Console) -> Result<ExitCode, Failure> {
    let cancel = interrupt::catch()?;
    let listen = |forward| Ok((forward, listen(forward)?));
    let ports = args.forwards.iter().map(listen);
    let ports = ports.collect::<Result<Ports<'_>, Failure>>()?;
    match (&args.to, &args.host) {
        (Some(to), _) => {
            let key = args.key.connecting.key(&cancel)?;
            let connection = reach(to, &key, &args.session, &cancel, console)?;
            let scheme = args.session.scheme;
            forward(ports, &connection, scheme, &cancel, console, || Ok(()))
        }
        (None, Some(host)) => through_ssh(args, host, ports, &cancel, console),
        (None, None) => Err(Failure::new(Exit::Usage, "name the other machine")),
    }
}

fn listen(forward: &Forward) -> Result<TcpListener, Failure> {
    let what = format_args!("listening for programs at {forward}").to_string();
    forward.listen().or_exit(Exit::Unreachable, what)
}

/// Connects to an end that listens, and may start later.
fn reach(
    to: &HostPort,
    key: &Key,
    session: &SessionArgs,
    cancel: &Cancel,
    console: &Console,
) -> Result<Connection, Failure> {
    let options = |limit| ConnectionOptions {
        purpose: Purpose::FORWARD,
        ..session.connection(limit)
    };
    let open = |connection: &Connection| Ok::<_, ConnectionError>(connection.clone());
    let waiting = Waiting::new(to.clone(), key, session.patience());
    let waiting = waiting.for_program("farwrite forward --listen");
    let connected = waiting.open(
        options,
        open,
        |error| Some(error.clone()),
        (cancel, console),
    )?;
    connected.or_fail("connecting")
}

/// Starts the other end, and connects to it over UDP or else through ssh.
fn through_ssh(
    args: &ForwardArgs,
    host: &OsStr,
    ports: Ports<'_>,
    cancel: &Cancel,
    console: &Console,
) -> Result<ExitCode, Failure> {
    let (session, what) = (&args.session, ("forward", OsStr::new("")));
    let started = start((&args.remote, host), what, session, cancel, console)?;
    let (mut far, (input, output)) = (started.far, started.pipes);
    // The other end ends when its input does, which this end holds as long as it forwards.
    let (connection, _held) = match started.connection {
        Some(connection) => (connection, Some((input, output))),
        None => {
            let out = Out::new(input);
            let entered = out.and_then(|out| Relay::enter(out, started.meeting.port));
            let (relay, at) = entered.or_exit(Exit::Other, "carrying the data through ssh")?;
            thread::spawn(move || {
                let _ = relay.read(output);
                relay.close();
            });
            let (keys, options) = (Keys::of_psk(&started.psk), session.connection(SETUP));
            let connected =
                cancel.run(move || connect_any(&[at], &keys, "the other end", &options))?;
            (connected.or_fail("connecting through ssh")?, None)
        }
    };
    let is_alive = || {
        let ended = far.why_it_ended();
        // Ctrl-C ends ssh too.
        cancel.check()?;
        ended.map_or(Ok(()), Err)
    };
    let forwarded = forward(
        ports,
        &connection,
        session.scheme,
        cancel,
        console,
        is_alive,
    );
    far.kill();
    forwarded
}

/// Forwards until the user ends it, or the connection or what `is_alive` watches has ended.
fn forward(
    ports: Ports<'_>,
    connection: &Connection,
    scheme: SchemeSetting,
    cancel: &Cancel,
    console: &Console,
    mut is_alive: impl FnMut() -> Result<(), Failure>,
) -> Result<ExitCode, Failure> {
    let taken = Arc::<AtomicUsize>::default();
    for (forward, listener) in ports {
        let at = listener.local_addr().or_exit(Exit::Other, "listening")?;
        console.say(format_args!("forwarding {at} to {}", forward.destination));
        let port = Port {
            destination: forward.destination.clone(),
            connection: connection.clone(),
            options: stream_options(scheme),
            taken: Arc::clone(&taken),
            console: console.clone(),
        };
        thread::spawn(move || port.accept(&listener));
    }
    loop {
        if let Err(interrupted) = cancel.check() {
            connection.finish(LAST_WORDS);
            return Err(interrupted.into());
        }
        is_alive()?;
        let ended = connection.wait_ended(interrupt::LOOK);
        let ended =
            ended.and_then(|ended| ended.map_or(Ok(()), |why| Err(ConnectionError::Over(why))));
        ended.or_fail("forwarding")?;
    }
}

/// What a port of this machine needs to forward connections.
#[derive(Clone)]
struct Port {
    destination: HostPort,
    connection: Connection,
    options: StreamOptions,
    /// The connections of all ports.
    taken: Arc<AtomicUsize>,
    console: Console,
}

impl Port {
    /// Forwards all connections of programs.
    fn accept(&self, listener: &TcpListener) {
        loop {
            let place = Place::take(&self.taken);
            let started = listener.accept().and_then(|(tcp, _)| {
                let port = self.clone();
                let serve = move || {
                    port.serve(&tcp);
                    drop((tcp, place));
                };
                // Without a thread, the connection is closed, and the port goes on.
                thread::Builder::new().spawn(serve)
            });
            if let Err(error) = started
                && error.kind() != ErrorKind::ConnectionAborted
            {
                let destination = &self.destination;
                let what = format_args!("a connection to {destination}: {error}");
                self.console.warn(what);
                thread::sleep(PAUSE);
            }
        }
    }

    /// Forwards a connection. If it fails, the program gets a reset, and others go on.
    fn serve(&self, tcp: &TcpStream) {
        if let Err(Some(why)) = self.carry(tcp)
            && self.connection.ended().is_none()
        {
            self.console
                .warn(format_args!("{}: {why}", self.destination));
        }
    }

    /// # Errors
    /// Why the destination was not reached; `None` if it was, and the connection then broke.
    fn carry(&self, tcp: &TcpStream) -> Result<(), Option<String>> {
        prepare(tcp).map_err(|error| Some(error.to_string()))?;
        let opened = self.connection.open_stream(NAME, &self.options, OPENING);
        let stream = opened.map_err(|error| Some(error.to_string()))?;
        let control = stream.control();
        let (mut reader, mut writer) = stream.split();
        reader.set_timeout(Some(Duration::ZERO));
        let written = writer.write_all(&request(&self.destination));
        written.map_err(|error| Some(error.to_string()))?;
        let mut reader = Answered::new(AtOnce(reader));
        let carried = carry(&self.connection, tcp, &control, &mut reader, &mut writer);
        carried.map_err(|error| {
            let is_refused = error.kind() == ErrorKind::ConnectionRefused;
            is_refused.then(|| format!("the other end says: {error}"))
        })
    }
}

/// One of the connections at a time, until it is dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    /// Waits for a place beside those that are taken.
    fn take(taken: &Arc<AtomicUsize>) -> Self {
        let one_more = |taken| (taken < MOST_STREAMS).then_some(taken + 1);
        let relaxed = Ordering::Relaxed;
        while taken.fetch_update(relaxed, relaxed, one_more).is_err() {
            thread::sleep(interrupt::LOOK);
        }
        Self(Arc::clone(taken))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
