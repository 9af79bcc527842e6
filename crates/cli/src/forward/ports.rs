//! What is forwarded, as users write it: the value of `-L`, and destinations.

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::str::FromStr;

use farwrite_keys::HostPort;

use crate::addresses::{at_any, parse_destination};

/// A port of this machine, and where connections to it go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Forward {
    /// The address or the name of this machine at which programs connect; `*`: all addresses.
    bind: String,
    /// 0: any free port.
    port: u16,
    pub(super) destination: HostPort,
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fields = fields(text);
        let (bind, port, host, to) = match fields[..] {
            [port, host, to] => ("localhost", port, host, to),
            [bind, port, host, to] => (bind, port, host, to),
            _ => {
                let what = "want [BIND:]PORT:HOST:PORT, such as 8080:localhost:80; an IPv6 address stands in brackets";
                return Err(what.into());
            }
        };
        let number = port.parse();
        Ok(Self {
            bind: match bind {
                "localhost" => "127.0.0.1".into(),
                "" => "*".into(),
                name => name.trim_matches(['[', ']']).into(),
            },
            port: number.map_err(|_| format!("{port:?} is no port of this machine"))?,
            destination: parse_destination(&format!("{host}:{to}"))?,
        })
    }
}

impl Forward {
    /// Listens at the port.
    ///
    /// # Errors
    /// The address is not one of this machine, or the port is taken.
    pub(super) fn listen(&self) -> io::Result<TcpListener> {
        match &*self.bind {
            "*" => at_any(self.port, TcpListener::bind),
            name => TcpListener::bind((name, self.port)),
        }
    }
}

/// Where it listens.
impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, port {}", self.bind, self.port)
    }
}

/// The parts between colons that are not in brackets.
fn fields(text: &str) -> Vec<&str> {
    let mut is_inside = false;
    let between = |c: char| {
        match c {
            '[' => is_inside = true,
            ']' => is_inside = false,
            _ => {}
        }
        c == ':' && !is_inside
    };
    text.split(between).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forward_is_written_as_for_ssh() {
        for (text, bind, port, destination) in [
            ("8080:localhost:80", "127.0.0.1", 8080, "localhost:80"),
            (
                "localhost:0:DB.internal:5432",
                "127.0.0.1",
                0,
                "db.internal:5432",
            ),
            (":1:[2001:db8::7]:22", "*", 1, "[2001:db8::7]:22"),
            ("*:1:192.0.2.7:22", "*", 1, "192.0.2.7:22"),
            ("[::1]:1:h:2", "::1", 1, "h:2"),
            ("192.0.2.1:1:h:2", "192.0.2.1", 1, "h:2"),
        ] {
            let forward: Forward = text.parse().expect(text);
            let found = (forward.bind, forward.port, forward.destination.to_string());
            let want = (bind.to_owned(), port, destination.to_owned());
            assert_eq!(found, want, "{text}");
        }
        let long = format!("1:{}:2", "h".repeat(255));
        for wrong in [
            "",
            "80",
            "80:h",
            "80:h:0",
            "65536:h:1",
            "x:h:1",
            "1:::2",
            "1:2:3:4:5",
            "1:::1:2",
            &long,
        ] {
            wrong.parse::<Forward>().expect_err(wrong);
        }
    }
}
