//! Reports to systemd that a box runs, and that it still carries frames (`sd_notify(3)`). A message is one
//! datagram of text, so no library is needed.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::time::Duration;

use crate::exit::{Exit, Failure, OrExit};

/// The service manager that started the program; none if nothing did.
#[derive(Debug, Default)]
pub(super) struct Service {
    socket: Option<UnixDatagram>,
    watchdog: Option<Watchdog>,
}

impl Service {
    /// The service manager that the environment names.
    ///
    /// # Errors
    /// If the environment names a socket that cannot be used.
    pub(super) fn from_environment() -> Result<Self, Failure> {
        let Some(name) = env::var_os("NOTIFY_SOCKET") else {
            return Ok(Self::default());
        };
        let what = "opening the socket in NOTIFY_SOCKET, which systemd sets";
        let socket = connect(&name).or_exit(Exit::Other, what)?;
        let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
        let own = u64::from(process::id());
        let is_own = number("WATCHDOG_PID").is_none_or(|pid| pid == own);
        let limit = number("WATCHDOG_USEC").filter(|_| is_own);
        Ok(Self {
            socket: Some(socket),
            watchdog: limit.map(|limit| Watchdog::new(Duration::from_micros(limit))),
        })
    }

    /// Says that the box carries frames.
    pub(super) fn ready(&self) {
        self.tell("READY=1");
    }

    /// Says that the box still carries frames, if it does and if this is due. `now` and `carried` are
    /// times since the start: of the program, and of the latest report of the thread that carries frames.
    pub(super) fn carries(&mut self, now: Duration, carried: Duration) {
        let watchdog = self.watchdog.as_mut();
        if watchdog.is_some_and(|watchdog| watchdog.is_due(now, carried)) {
            self.tell("WATCHDOG=1");
        }
    }

    /// Says that the box ends.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    fn tell(&self, message: &str) {
        if let Some(socket) = &self.socket {
            // Without these messages, systemd restarts the box, which is right if it cannot be reached.
            let _ = socket.send(message.as_bytes());
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
    // A full queue of the service manager must not stop this program.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// When to tell the service manager that the box carries frames.
#[derive(Debug)]
struct Watchdog {
    every: Duration,
    notified_at: Duration,
    carried: Duration,
}

impl Watchdog {
    /// For a service manager that restarts the box after `limit` without a message.
    fn new(limit: Duration) -> Self {
        Self {
            every: limit / 4,
            notified_at: Duration::ZERO,
            carried: Duration::ZERO,
        }
    }

    /// Whether to tell it now: only directly after the thread that carries frames has made progress.
    fn is_due(&mut self, now: Duration, carried: Duration) -> bool {
        let progress = carried > self.carried;
        self.carried = carried;
        let due = progress && now >= self.notified_at + self.every;
        if due {
            self.notified_at = now;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of messages in ms, for a thread that reports every 100 ms until `stuck`.
    fn notifications(limit: u64, stuck: u64) -> Vec<u64> {
        let ms = Duration::from_millis;
        let mut watchdog = Watchdog::new(ms(limit));
        let looks = (0..4000).step_by(20);
        looks
            .filter(|now| watchdog.is_due(ms(*now), ms(*now.min(&stuck) / 100 * 100)))
            .collect()
    }

    #[test]
    fn a_box_that_is_stuck_sends_nothing_more() {
        let all = notifications(2000, 4000);
        assert_eq!(all, [500, 1000, 1500, 2000, 2500, 3000, 3500]);
        // It may be stuck between two messages.
        assert_eq!(notifications(2000, 1499), [500, 1000]);
        assert_eq!(notifications(2000, 99), [0u64; 0]);
        // Messages come often enough for a limit near the interval of reports.
        assert!(notifications(400, 4000).len() > 30);
    }

    #[test]
    fn messages_arrive_at_sockets_with_and_without_a_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let name = format!("farwrite-test-{}", process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        for (receiver, name) in [
            (UnixDatagram::bind(&path), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&address), format!("@{name}").into()),
        ] {
            let receiver = receiver.expect("a socket");
            let service = Service {
                socket: Some(connect(&name).expect("a connection")),
                watchdog: None,
            };
            service.ready();
            let mut message = [0; 64];
            let bytes = receiver.recv(&mut message).expect("a message");
            assert_eq!(&message[..bytes], b"READY=1");
        }
        assert!(connect(OsStr::new("/nowhere/notify")).is_err());
    }
}
