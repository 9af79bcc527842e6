//! Where a server listens.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket with this path.
    Unix(PathBuf),
}

/// A text that is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "want an IP address with a port, such as 127.0.0.1:9791 or [::1]:9791, or the path of a Unix \
     socket, such as unix:/run/farwrite.sock"
)]
pub struct AddressError;

const UNIX: &str = "unix:";

impl FromStr for Address {
    type Err = AddressError;

    /// Reads `ADDRESS:PORT`, `unix:PATH`, or a path that contains a slash.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let path = text.strip_prefix(UNIX);
        match path.or_else(|| text.contains('/').then_some(text)) {
            Some("") => Err(AddressError),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| AddressError),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_paths_are_told_apart() {
        let tcp = |text: &str| Ok(Address::Tcp(text.parse().expect("an address")));
        let unix = |path: &str| Ok(Address::Unix(path.into()));
        for (text, want) in [
            ("127.0.0.1:9791", tcp("127.0.0.1:9791")),
            ("[::1]:9791", tcp("[::1]:9791")),
            ("unix:/run/page", unix("/run/page")),
            ("unix:page", unix("page")),
            ("./page", unix("./page")),
            ("/run/a:1", unix("/run/a:1")),
            ("localhost:9791", Err(AddressError)),
            ("127.0.0.1", Err(AddressError)),
            ("page", Err(AddressError)),
            ("unix:", Err(AddressError)),
            ("", Err(AddressError)),
        ] {
            assert_eq!(text.parse(), want, "{text:?}");
        }
        assert_eq!(Address::Unix("/a".into()).to_string(), "unix:/a");
    }
}
