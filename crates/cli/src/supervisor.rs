//! Messages to systemd: the program is ready, is alive or ends (`sd_notify(3)`). Each message is one datagram. The crate
//! `sd-notify` is not used, because it reaches no socket with an abstract name, and blocks while systemd does not read.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::exit::{Exit, Failure, OrExit};

/// The socket of the supervisor, if there is one.
pub(crate) struct Supervisor {
    socket: Option<UnixDatagram>,
    /// How often it wants a sign of life, and when it got the last.
    watchdog: Option<(Duration, Mutex<Instant>)>,
}

impl Supervisor {
    /// The one that the environment names.
    ///
    /// # Errors
    /// If the supervisor wants signs of life, and its socket cannot be used: it would end the program for its silence.
    pub(crate) fn of_environment() -> Result<Self, Failure> {
        let name = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
        let is_other = number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(process::id()));
        let limit = number("WATCHDOG_USEC").filter(|_| !is_other && name.is_some());
        let what = "opening the socket in NOTIFY_SOCKET, which systemd sets";
        let socket = match name.map(|name| connect(&name)).transpose() {
            Err(_) if limit.is_none() => None,
            opened => opened.or_exit(Exit::Other, what)?,
        };
        Ok(Self {
            socket,
            // A program that looks now and then is still in time.
            watchdog: limit.map(|us| (Duration::from_micros(us / 4), Mutex::new(Instant::now()))),
        })
    }

    /// The program serves its clients.
    pub(crate) fn ready(&self) {
        self.tell("READY=1");
    }

    /// The program is about to end.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// The program is alive. Call it often.
    pub(crate) fn alive(&self) {
        let Some((period, last)) = &self.watchdog else {
            return;
        };
        let Ok(mut last) = last.lock() else { return };
        if last.elapsed() >= *period {
            *last = Instant::now();
            self.tell("WATCHDOG=1");
        }
    }

    /// Sends a state. The program works the same if the supervisor does not receive it.
    fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket {
            let _ = socket.send(state.as_bytes());
        }
    }
}

/// Opens a socket of the file system, or one whose name begins with `@`, which has no file.
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // A supervisor that does not read must not stop the program.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn messages_arrive_at_a_socket_without_a_file() {
        let name = format!("farwrite-test-{}", process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let receiver = UnixDatagram::bind_addr(&address).expect("a socket");
        let name = OsString::from(format!("@{name}"));
        let supervisor = Supervisor {
            socket: Some(connect(&name).expect("a connection")),
            watchdog: None,
        };
        supervisor.ready();
        let mut message = [0; 64];
        let bytes = receiver.recv(&mut message).expect("a message");
        assert_eq!(&message[..bytes], b"READY=1");
        assert!(connect(OsStr::new("/nowhere/notify")).is_err());
    }
}
