//! Which way the standard input and output go: over UDP if one end reaches the other, and else through ssh
//! (P14.4).

use std::ffi::OsStr;
use std::io::Write;
use std::process::ChildStdin;
use std::time::Duration;

use farwrite_connection::{Connection, Error, Keys, Listener, connect_any};
use farwrite_keys::Psk;
use farwrite_transfer::Cancel;

use super::{SessionArgs, words};
use crate::addresses::at_any;
use crate::console::Console;
use crate::cp::meeting::Meeting;
use crate::cp::ssh::{Far, Pipes, RemoteArgs, check_host};
use crate::exit::{Exit, Failure, OrExit};
use crate::key;

/// How long one end tries to reach the other.
const ATTEMPT: Duration = Duration::from_secs(3);
/// How much longer the end that is called waits.
const ALLOWANCE: Duration = Duration::from_secs(1);

/// The program at the other machine, and the way to it.
pub(crate) struct Started {
    pub(crate) far: Far,
    pub(crate) pipes: Pipes,
    /// `None`: through the pipes.
    pub(crate) connection: Option<Connection>,
    /// Where the program listens, for those who hold the key.
    pub(crate) meeting: Meeting,
    pub(crate) psk: Psk,
}

/// Starts the program at the other machine, and finds the way to it. The first word says what it does, the second one
/// with what.
pub(crate) fn start(
    (remote, host): (&RemoteArgs, &OsStr),
    (what, argument): (&str, &OsStr),
    session: &SessionArgs,
    cancel: &Cancel,
    console: &Console,
) -> Result<Started, Failure> {
    check_host(host)?;
    let (session, psk) = (*session, key::make()?);
    let words = words(what, &session, argument);
    let started = remote.start(host, &words, (&psk, None), session.timeout, cancel);
    let (mut far, greeting, (mut input, output)) = started?;
    let meeting = greeting.parse::<Meeting>()?;
    let (there, of_find) = (meeting.clone(), psk.clone());
    let (found, input) = cancel.run(move || {
        let found = find(&there, &of_find, &session, &mut input);
        (found, input)
    })?;
    let found = found.map_err(|failure| far.why_it_ended().unwrap_or(failure))?;
    if let Err(why) = &found {
        console.warn(format_args!(
            "the data go through ssh, because UDP does not pass ({why}); open a UDP port of the other machine, and \
             name it with --port"
        ));
    }
    Ok(Started {
        far,
        pipes: (input, output),
        connection: found.ok(),
        meeting,
        psk,
    })
}

/// This end tries to reach the far end by UDP. If it cannot, the far end tries to reach this end. This end then sends the
/// result to the far end. The inner error says why UDP does not pass.
fn find(
    meeting: &Meeting,
    psk: &Psk,
    session: &SessionArgs,
    input: &mut ChildStdin,
) -> Result<Result<Connection, Error>, Failure> {
    let mut tell = |line: &str| {
        let told = input.write_all(line.as_bytes());
        told.or_exit(Exit::Unreachable, "telling the other end through ssh")
    };
    let why = match dial(meeting, psk, session) {
        Ok(connection) => {
            tell("udp\n")?;
            return Ok(Ok(connection));
        }
        Err(why) => why,
    };
    if let Ok(listener) = listen(0, psk, session) {
        let here = Meeting::here(listener.bound_addr(), None);
        tell(&format!("dial {here}\n"))?;
        if let Ok(Some(connection)) = listener.accept(ATTEMPT + ALLOWANCE) {
            return Ok(Ok(connection));
        }
    }
    tell("ssh\n")?;
    Ok(Err(why))
}

/// Connects to where the other end listens.
pub(crate) fn dial(
    meeting: &Meeting,
    psk: &Psk,
    session: &SessionArgs,
) -> Result<Connection, Error> {
    let addresses = meeting.socket_addresses();
    let options = session.connection(ATTEMPT);
    connect_any(&addresses, &Keys::of_psk(psk), "the other end", &options)
}

/// Listens at a UDP port of all addresses.
pub(crate) fn listen(port: u16, psk: &Psk, session: &SessionArgs) -> Result<Listener, Failure> {
    let (keys, options) = (Keys::of_psk(psk), session.connection(ATTEMPT));
    at_any(port, |addr| Listener::bind(addr, &keys, &options)).or_fail("listening")
}
