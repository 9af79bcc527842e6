//! How the two ends of a copy find each other (P14.2): directly if UDP passes, and otherwise
//! through ssh.

use std::env;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use farwrite_keys::Psk;
use farwrite_transfer::{self as transfer, Cancel, SETUP, Unfinished};

use super::detour::Detour;
use crate::addresses::Targets;
use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};
use crate::send::{Sending, Sent, Through};
use crate::serving::is_unmet;

/// The most addresses of a meeting that are tried.
const MAX_ADDRESSES: usize = 32;
/// The time for a connection to one of them, with the handshake.
const DIAL: Duration = Duration::from_secs(5);

/// Where the end that receives files listens. As text: its port, and its addresses, the likeliest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meeting {
    pub(crate) port: u16,
    pub(crate) addresses: Vec<IpAddr>,
}

impl fmt::Display for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.port)?;
        self.addresses.iter().try_for_each(|ip| write!(f, " {ip}"))
    }
}

impl FromStr for Meeting {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let wrong = |what: String| {
            let what = format!("where the other end listens: {what}");
            Failure::new(Exit::Mismatch, what)
        };
        let mut words = text.split_whitespace();
        let port = words.next().and_then(|word| word.parse().ok());
        let port = port.filter(|port| *port != 0);
        let port = port.ok_or_else(|| wrong(format!("{text:?} names no port")))?;
        let addresses = words.take(MAX_ADDRESSES).map(|word| {
            let parsed = word.parse::<IpAddr>();
            parsed.map_err(|_| wrong(format!("{word:?} is no address")))
        });
        Ok(Self {
            port,
            addresses: addresses.collect::<Result<_, _>>()?,
        })
    }
}

impl Meeting {
    /// This machine, for a listener that is bound at `local`. `by_ssh` is the address at which ssh has
    /// reached this machine, if it has.
    pub(crate) fn here(local: SocketAddr, by_ssh: Option<IpAddr>) -> Self {
        let found = Targets::of(local).addresses();
        let found = found.into_iter().filter(|ip| by_ssh != Some(*ip));
        Self {
            port: local.port(),
            addresses: by_ssh
                .into_iter()
                .chain(found)
                .take(MAX_ADDRESSES)
                .collect(),
        }
    }

    /// This machine, whose program ssh has started, for a listener that is bound at `local`.
    pub(crate) fn of_far(local: SocketAddr) -> Self {
        Self::here(local, ends_of_ssh().map(|(_, here)| here))
    }

    /// The meeting that the near end has told to a far end, which knows from ssh where the near end is.
    pub(crate) fn told_by_near(line: &str) -> Result<Self, Failure> {
        let mut meeting = line.parse::<Self>()?;
        if let Some((there, _)) = ends_of_ssh() {
            meeting.addresses.retain(|ip| *ip != there);
            meeting.addresses.insert(0, there);
        }
        Ok(meeting)
    }

    pub(crate) fn socket_addresses(&self) -> Vec<SocketAddr> {
        let addresses = self.addresses.iter();
        addresses
            .map(|ip| SocketAddr::new(*ip, self.port))
            .collect()
    }
}

/// The addresses of the ssh connection that has started this process: of the other machine, and of this
/// one (`SSH_CONNECTION` of sshd).
fn ends_of_ssh() -> Option<(IpAddr, IpAddr)> {
    let text = env::var("SSH_CONNECTION").ok()?;
    let words: Vec<_> = text.split_whitespace().collect();
    let ip = |at: usize| words.get(at)?.parse::<IpAddr>().ok();
    Some((ip(0)?, ip(2)?))
}

/// Sends files to the machine `name`: directly, or else through ssh, also from the time on when packets no longer pass.
/// `relay` prepares ssh. It returns the address of this machine at which the other end then is.
pub(super) fn send(
    sending: &Sending<'_>,
    (name, meeting): (&str, &Meeting),
    (psk, cancel): (&Psk, &Cancel),
    console: &Console,
    relay: impl FnOnce() -> io::Result<SocketAddr>,
) -> Result<Result<Sent, Unfinished>, Failure> {
    let key = psk.into();
    let addresses = meeting.socket_addresses();
    let connect = || transfer::connect_first(&addresses, &key, DIAL, cancel);
    let to = ("the other end", Through::Network);
    let detour = Detour::new(relay, psk, sending.timeout());
    let look = |blocked| detour.look(blocked);
    let sent = sending.attempt(to, &key, (cancel, Some(&look)), connect)?;
    let (warning, patience) = match &sent {
        Err(why) if detour.is_taken() => (
            format!(
                "the data go through ssh from now on: {why}; what has arrived is not sent again"
            ),
            // The other end may wait for its disk before it leaves the first transfer.
            sending.timeout(),
        ),
        Err(why) if is_unmet(&sent) => (
            format!(
                "the data go through ssh, because the other end is not reached directly ({why}); open a port of \
                 the machine that receives, for UDP, and name it with --port"
            ),
            SETUP,
        ),
        _ => return Ok(sent),
    };
    console.warn(&warning);
    let at = detour.entrance();
    let at = at.or_exit(Exit::Other, "carrying the transfer through ssh")?;
    let to = at.into();
    let connect = || transfer::connect(&to, &key, patience, cancel, console);
    let to = ("the other end of ssh", Through::Ssh);
    let mut sent = sending.attempt(to, &key, (cancel, None), connect)?;
    let delivered = match &mut sent {
        Ok(Sent::Transfer(report)) => Some(report.delivered_mut()),
        Ok(Sent::DryRun(_)) => None,
        Err(unfinished) => unfinished.delivered.as_deref_mut(),
    };
    if let Some(delivered) = delivered {
        delivered.note_way(name, warning);
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meeting_is_a_line_of_text() {
        for text in ["4792", "4792 192.0.2.7 2001:db8::7"] {
            let meeting: Meeting = text.parse().expect(text);
            assert_eq!(meeting.to_string(), text);
        }
        for wrong in ["", "0", "65536", "x 192.0.2.7", "4792 far.example"] {
            wrong.parse::<Meeting>().expect_err(wrong);
        }
    }
}
