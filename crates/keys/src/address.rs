//! Addresses as people write them: `HOST:PORT` to connect to, `ADDR:PORT` to listen on.
//!
//! An IPv6 address stands in brackets. A link-local address (`fe80::/10`) needs a network
//! interface, its scope (RFC 4007). The scope is written by name or by number:
//! `[fe80::1%eth0]:4792`.

mod error;

pub use error::{AddressError, AddressForm, AddressProblem};

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType, getaddrinfo};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice};

use crate::Error;

/// Where a peer listens: a host and a port that is not 0. Only [`HostPort::resolve`] looks up a
/// name or finds the interface of a link-local address.
///
/// ```
/// use farwrite_keys::{AddressError, HostPort};
///
/// let peer: HostPort = "[2001:db8::7]:4792".parse()?;
/// assert_eq!(peer.to_string(), "[2001:db8::7]:4792");
/// assert!("far.example".parse::<HostPort>().is_err(), "the port is missing");
/// # Ok::<(), AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    host: Host,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Name(String),
    /// An address that needs no interface, or whose interface is known by its number.
    Known(SocketAddr),
    /// A link-local address and its interface.
    Scoped(Ipv6Addr, String),
}

impl HostPort {
    /// Returns the addresses of the host, at least one. For a name, this takes as long as the
    /// lookup of the operating system takes.
    ///
    /// # Errors
    /// [`Error::Resolve`].
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, Error> {
        match &self.host {
            Host::Known(addr) => Ok(vec![*addr]),
            Host::Scoped(ip, interface) => index_of(interface)
                .map(|scope| vec![SocketAddrV6::new(*ip, self.port, 0, scope).into()])
                .map_err(|source| self.unresolved(source)),
            Host::Name(name) => self.look_up(name),
        }
    }

    fn look_up(&self, name: &str) -> Result<Vec<SocketAddr>, Error> {
        let hints = AddrInfoHints {
            socktype: SockType::Stream.into(),
            ..AddrInfoHints::default()
        };
        let found = getaddrinfo(Some(name), None, Some(hints)).map_err(|error| Error::Resolve {
            host: self.to_string(),
            is_temporary: matches!(error.kind(), LookupErrorKind::Again),
            source: error.into(),
        })?;
        let mut addrs: Vec<_> = found.flatten().map(|info| info.sockaddr).collect();
        for addr in &mut addrs {
            addr.set_port(self.port);
        }
        if addrs.is_empty() {
            return Err(self.unresolved(io::Error::other("the name has no addresses")));
        }
        Ok(addrs)
    }

    fn unresolved(&self, source: io::Error) -> Error {
        Error::Resolve {
            host: self.to_string(),
            is_temporary: false,
            source,
        }
    }
}

impl From<SocketAddr> for HostPort {
    fn from(addr: SocketAddr) -> Self {
        Self {
            host: Host::Known(addr),
            port: addr.port(),
        }
    }
}

impl FromStr for HostPort {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |problem| AddressForm::Target.refused(problem);
        match split(text).map_err(wrong)? {
            Self { port: 0, .. } => Err(wrong(AddressProblem::PortZero)),
            whole => Ok(whole),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.port;
        match &self.host {
            Host::Name(name) => write!(f, "{name}:{port}"),
            Host::Known(addr) => shown(addr).fmt(f),
            Host::Scoped(ip, interface) => write!(f, "[{ip}%{interface}]:{port}"),
        }
    }
}

/// Reads a numeric address and port to listen on. Port 0 selects a free port.
///
/// # Errors
/// [`AddressError`], also for a name and for an interface that this machine does not have.
///
/// ```
/// use farwrite_keys::parse_listen;
///
/// assert!(parse_listen("192.0.2.7:0").is_ok(), "a free port");
/// let error = parse_listen("far.example:4792").expect_err("a name");
/// assert!(error.to_string().contains("listens on an address of this machine"));
/// ```
pub fn parse_listen(text: &str) -> Result<SocketAddr, AddressError> {
    let wrong = |problem| AddressForm::Listen.refused(problem);
    let HostPort { host, port } = split(text).map_err(wrong)?;
    match host {
        Host::Known(addr) => Ok(addr),
        Host::Scoped(ip, interface) => match index_of(&interface) {
            Ok(scope) => Ok(SocketAddrV6::new(ip, port, 0, scope).into()),
            Err(error) => Err(wrong(AddressProblem::Interface(error.to_string()))),
        },
        Host::Name(name) => Err(wrong(AddressProblem::Name(name))),
    }
}

/// Returns an address with the name of its interface, if it has one: `[fe80::1%eth0]:4792`.
/// [`HostPort`] and [`parse_listen`] read this form.
#[must_use]
pub fn shown(addr: &SocketAddr) -> impl fmt::Display + use<> {
    Shown(*addr)
}

struct Shown(SocketAddr);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            SocketAddr::V6(addr) if addr.scope_id() != 0 => {
                let (ip, scope, port) = (addr.ip(), addr.scope_id(), addr.port());
                match name_of(scope) {
                    Ok(name) => write!(f, "[{ip}%{name}]:{port}"),
                    // The interface no longer exists.
                    Err(_) => write!(f, "[{ip}%{scope}]:{port}"),
                }
            }
            addr => addr.fmt(f),
        }
    }
}

/// Splits an address into its parts. The error says what is wrong with the address.
fn split(text: &str) -> Result<HostPort, AddressProblem> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or(AddressProblem::OpenBracket)?;
        let port = port.strip_prefix(':');
        let port = number(port.ok_or(AddressProblem::NoPortAfterBracket)?)?;
        let host = v6(host, port)?;
        return Ok(HostPort { host, port });
    }
    let (host, port) = text.rsplit_once(':').ok_or(AddressProblem::NoPort)?;
    if host.contains(':') {
        return Err(AddressProblem::NoBrackets);
    }
    let port = number(port)?;
    let host = name_or_v4(host, port)?;
    Ok(HostPort { host, port })
}

fn number(port: &str) -> Result<u16, AddressProblem> {
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    let number = port.parse().ok().filter(|_| is_number);
    number.ok_or_else(|| AddressProblem::Port(port.into()))
}

fn name_or_v4(host: &str, port: u16) -> Result<Host, AddressProblem> {
    if host.is_empty() {
        return Err(AddressProblem::NoHost);
    }
    if let Some(odd) = host.chars().find(|c| !is_of_name(*c)) {
        return Err(AddressProblem::HostCharacter(odd));
    }
    let ip = host.parse::<Ipv4Addr>();
    Ok(ip.map_or_else(
        |_| Host::Name(host.into()),
        |ip| Host::Known((ip, port).into()),
    ))
}

/// Returns whether a host name may contain the character. The operating system checks other
/// alphabets.
fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '.' | '_')
}

fn v6(host: &str, port: u16) -> Result<Host, AddressProblem> {
    let (ip, interface) = match host.split_once('%') {
        Some((ip, interface)) => (ip, Some(interface)),
        None => (host, None),
    };
    let ip: Ipv6Addr = ip.parse().map_err(|_| AddressProblem::NotIpv6(ip.into()))?;
    let is_local = ip.is_unicast_link_local();
    match interface {
        None if is_local => Err(AddressProblem::NoInterface(ip)),
        None => Ok(Host::Known((ip, port).into())),
        Some(_) if !is_local => Err(AddressProblem::NotLinkLocal(ip)),
        Some(interface) if !is_interface(interface) => {
            Err(AddressProblem::InterfaceName(interface.into()))
        }
        Some(interface) => Ok(Host::Scoped(ip, interface.into())),
    }
}

/// Returns whether Linux allows the name: 1 to 15 bytes without blanks, `/` and `:`. A bracket
/// would end the address.
fn is_interface(name: &str) -> bool {
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || "/:[]%".contains(c);
    (1..=15).contains(&name.len()) && !name.contains(is_odd)
}

/// Returns the number of an interface that is given by name or number.
fn index_of(interface: &str) -> io::Result<u32> {
    let socket = any_socket()?;
    if let Ok(index) = netdevice::name_to_index(&socket, interface) {
        return Ok(index);
    }
    let index = interface.parse().ok();
    let known = index.filter(|index| netdevice::index_to_name(&socket, *index).is_ok());
    known.ok_or_else(|| {
        let what = format!("this machine has no network interface {interface} (see `ip link`)");
        io::Error::new(io::ErrorKind::NotFound, what)
    })
}

fn name_of(index: u32) -> io::Result<String> {
    Ok(netdevice::index_to_name(any_socket()?, index)?)
}

/// Returns a socket for queries about interfaces. Any kind of socket works, but a service may be
/// restricted to those of IP (`dist/farwrite-recv.service`), and a machine may have only one of them.
fn any_socket() -> io::Result<OwnedFd> {
    let open =
        |family| rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    Ok(open(AddressFamily::INET).or_else(|_| open(AddressFamily::INET6))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Result<HostPort, AddressError> {
        text.parse()
    }

    /// Returns an interface that every machine has, and its number.
    fn loopback() -> (&'static str, u32) {
        ("lo", index_of("lo").expect("loopback"))
    }

    #[test]
    fn hosts_have_a_port() {
        for text in [
            "far:4792",
            "192.0.2.7:1",
            "[::1]:65535",
            "a.b.c:80",
            "[fe80::1%eth0]:4792",
            "[fe80::1%7]:4792",
        ] {
            assert_eq!(target(text).expect(text).to_string(), text);
        }
        for text in [
            "",
            "far",
            "far:",
            ":4792",
            "far:0",
            "far:65536",
            "far:+80",
            "::1:4792",
            "::1",
            "far:x",
            "[::1]",
            "[::1",
            "[::1]4792",
            "[far]:80",
            "[192.0.2.7]:80",
            "fe80::1%eth0:4792",
            "[fe80::1]:4792",
            "[fe80::1%]:4792",
            "[fe80::1%a b]:4792",
            "[fe80::1%sixteen-is-a-lot]:4792",
            "[2001:db8::1%eth0]:4792",
            "http://far:80",
            "me@far:80",
            "fa r:80",
        ] {
            target(text).expect_err(text);
        }
    }

    #[test]
    fn errors_say_what_is_wrong_and_what_is_right() {
        for (text, said) in [
            ("far", "no port"),
            ("far:x", "\"x\""),
            ("far:0", "port 0"),
            ("::1:4792", "brackets"),
            ("[fe80::1]:4792", "fe80::1 is link-local"),
            ("[2001:db8::1%eth0]:4792", "not link-local"),
            ("me@far:80", "'@'"),
        ] {
            let error = target(text).expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
            assert!(error.contains("[fe80::7%eth0]:4792"), "{text}: {error}");
        }
    }

    #[test]
    fn scope_is_a_name_or_a_number() {
        let (name, index) = loopback();
        for scope in [name.to_owned(), index.to_string()] {
            let to = target(&format!("[fe80::1%{scope}]:4792")).expect("an address");
            let [SocketAddr::V6(addr)] = to.resolve().expect("loopback")[..] else {
                panic!("one IPv6 address");
            };
            assert_eq!(addr.scope_id(), index);
            let shown = shown(&addr.into()).to_string();
            assert_eq!(shown, format!("[fe80::1%{name}]:4792"));
            assert_eq!(parse_listen(&shown), Ok(addr.into()));
        }
        for missing in ["not-there", "4000000000", "0"] {
            let text = format!("[fe80::1%{missing}]:4792");
            let error = target(&text).expect("well formed").resolve();
            let error = error.expect_err("no such interface").to_string();
            assert!(error.contains(&text), "{error}");
            assert!(error.contains("no network interface"), "{error}");
            let error = parse_listen(&text).expect_err("no such interface");
            assert!(error.to_string().contains(missing), "{error}");
        }
        let gone = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 1, 0, 4_000_000_000);
        assert_eq!(shown(&gone.into()).to_string(), "[::1%4000000000]:1");
    }

    #[test]
    fn addresses_to_listen_on_are_numbers() {
        for text in ["192.0.2.7:4792", "[::]:0", "[2001:db8::7]:1", "0.0.0.0:80"] {
            let addr = parse_listen(text).expect(text);
            assert_eq!(addr.to_string(), text);
            assert_eq!(shown(&addr).to_string(), text);
        }
        for text in [
            "far:80",
            "4792",
            ":4792",
            "::1:80",
            "[fe80::1]:80",
            "192.0.2.7",
        ] {
            let error = parse_listen(text).expect_err(text).to_string();
            assert!(error.contains("[::]:4792"), "{error}");
        }
    }

    #[test]
    fn names_are_looked_up() {
        let addrs = target("localhost:4792").expect("a name").resolve();
        let addrs = addrs.expect("every machine knows itself");
        assert!(
            addrs
                .iter()
                .all(|addr| addr.ip().is_loopback() && addr.port() == 4792)
        );
        let error = target("no-such-host.invalid:1").expect("a name").resolve();
        let error = error.expect_err("RFC 6761 reserves it").to_string();
        assert!(error.contains("no-such-host.invalid:1"), "{error}");
    }
}
