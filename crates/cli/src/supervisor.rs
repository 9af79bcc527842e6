//! Tells systemd that the program is ready, alive or ending (`sd_notify(3)`): one datagram each.

use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The socket of the supervisor, if there is one.
pub(crate) struct Supervisor {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How often it wants a sign of life, and when it got the last.
    watchdog: Option<(Duration, Mutex<Instant>)>,
}

impl Supervisor {
    /// The one that the environment names.
    pub(crate) fn of_environment() -> Self {
        let name = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let socket = name.and_then(|name| {
            let addr = match name.as_bytes() {
                // An abstract name.
                [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
                _ => SocketAddr::from_pathname(&name),
            };
            let socket = UnixDatagram::unbound().ok()?;
            // A supervisor that does not read must not stop the program.
            socket.set_nonblocking(true).ok()?;
            Some((socket, addr.ok()?))
        });
        let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
        let is_other = number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(process::id()));
        let period = number("WATCHDOG_USEC").filter(|_| !is_other && socket.is_some());
        // systemd proposes half of its limit.
        let period = period.map(|us| Duration::from_micros(us / 2));
        Self {
            socket,
            watchdog: period.map(|period| (period, Mutex::new(Instant::now()))),
        }
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
        if let Some((socket, addr)) = &self.socket {
            let _ = socket.send_to_addr(state.as_bytes(), addr);
        }
    }
}
