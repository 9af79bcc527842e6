//! What a connection is for (P12.5).

use std::fmt;

use serde::{Deserialize, Serialize};

/// What the initiator wants a connection for. A listener says which purposes it serves, so that two ends that do
/// different things tell it at once. The numbers are those of P12.5, and an open set.
///
/// ```
/// use farwrite_connection::{ConnectionOptions, Purpose};
///
/// let options = ConnectionOptions::default();
/// assert_eq!(options.purpose, Purpose::PROGRAM);
/// assert_eq!(options.serves, [Purpose::PROGRAM]);
/// assert_eq!(Purpose::PIPE.to_string(), "pipes");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purpose(u32);

impl Purpose {
    /// What a program does that uses the library. The queue pairs and streams have names.
    pub const PROGRAM: Self = Self(0);
    /// The standard input of one program becomes the standard output of the other one (P15).
    pub const PIPE: Self = Self(1);
    /// Files and trees of files (P8).
    pub const FILES: Self = Self(2);
    /// Measuring a path (P9).
    pub const PROBE: Self = Self(3);
    /// TCP connections that one machine makes for another (P16).
    pub const FORWARD: Self = Self(4);

    /// The purpose with a number that P12.5 does not assign.
    #[must_use]
    pub const fn other(number: u32) -> Self {
        Self(number)
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PROGRAM => f.write_str("other programs"),
            Self::PIPE => f.write_str("pipes"),
            Self::FILES => f.write_str("files"),
            Self::PROBE => f.write_str("probes"),
            Self::FORWARD => f.write_str("forwards"),
            Self(number) => write!(f, "purpose {number}"),
        }
    }
}

impl Purpose {
    /// What a user starts to serve the purpose.
    pub(crate) fn server(self) -> String {
        match self {
            Self::PROGRAM => {
                "the same program (for farwrite perf: farwrite perf TEST without a host)".into()
            }
            Self::PIPE => "farwrite recv -".into(),
            Self::FILES => "farwrite recv".into(),
            Self::PROBE => "farwrite probe --listen".into(),
            Self::FORWARD => "farwrite forward --listen".into(),
            Self(_) => format!("what serves {self}"),
        }
    }
}

/// Purposes as in "pipes, files and probes".
pub(crate) fn listed(purposes: &[Purpose]) -> String {
    let words: Vec<_> = purposes.iter().map(Purpose::to_string).collect();
    match &words[..] {
        [] => "nothing".into(),
        [one] => one.clone(),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_are_listed_for_people() {
        let all = [Purpose::PIPE, Purpose::FILES, Purpose::other(77)];
        assert_eq!(listed(&all), "pipes, files and purpose 77");
        assert_eq!(listed(&all[..2]), "pipes and files");
        assert_eq!(listed(&[]), "nothing");
        assert_eq!(Purpose::other(77).server(), "what serves purpose 77");
    }
}
