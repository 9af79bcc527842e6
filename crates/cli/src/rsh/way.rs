//! Which way the standard input and output go: over UDP if one end reaches the other, and else through ssh
//! (P14.4).

use std::io::Write;
use std::time::Duration;

use farwrite_connection::{Connection, Error, Keys, Listener, connect_any};
use farwrite_keys::Psk;

use super::Settings;
use crate::addresses::at_any;
use crate::cp::meeting::Meeting;
use crate::exit::{Exit, Failure, OrExit};

/// How long one end tries to reach the other.
const ATTEMPT: Duration = Duration::from_secs(3);
/// How much longer the end that is called waits.
const ALLOWANCE: Duration = Duration::from_secs(1);

pub(crate) enum Way {
    Udp(Connection),
    /// Through ssh. The text says why UDP does not pass.
    Ssh(String),
}

/// Tries to reach the far end, and then lets it try. Tells it the way that was found.
pub(crate) fn find(
    greeting: &str,
    psk: &Psk,
    settings: &Settings,
    input: &mut impl Write,
) -> Result<Way, Failure> {
    let meeting: Meeting = greeting
        .parse()
        .map_err(|problem: String| Failure::new(Exit::Mismatch, problem))?;
    let mut tell = |line: &str| {
        let told = input
            .write_all(line.as_bytes())
            .and_then(|()| input.flush());
        told.or_exit(Exit::Unreachable, "telling the other end through ssh")
    };
    let why = match dial(&meeting, psk, settings) {
        Ok(connection) => {
            tell("udp\n")?;
            return Ok(Way::Udp(connection));
        }
        Err(why) => why,
    };
    if let Ok(listener) = listen(0, psk, settings) {
        let here = Meeting::here(listener.bound_addr(), None);
        tell(&format!("dial {here}\n"))?;
        if let Ok(Some(connection)) = listener.accept(ATTEMPT + ALLOWANCE) {
            return Ok(Way::Udp(connection));
        }
    }
    tell("ssh\n")?;
    Ok(Way::Ssh(why.to_string()))
}

/// Connects to where the other end listens.
pub(crate) fn dial(meeting: &Meeting, psk: &Psk, settings: &Settings) -> Result<Connection, Error> {
    let addresses = meeting.socket_addresses();
    let options = settings.connection(ATTEMPT);
    connect_any(&addresses, &Keys::of_psk(psk), "the other end", &options)
}

/// Listens at a UDP port of all addresses.
pub(crate) fn listen(port: u16, psk: &Psk, settings: &Settings) -> Result<Listener, Failure> {
    let (keys, options) = (Keys::of_psk(psk), settings.connection(ATTEMPT));
    at_any(port, |addr| Listener::bind(addr, &keys, &options)).or_fail("listening")
}
