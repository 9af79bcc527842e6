//! Addresses of the two ends: those that other machines can use for this one, and the one that the user
//! names for the other machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use farwrite::fabric::udp::source_for;
use farwrite_connection::Connection;
use farwrite_keys::{AddressError, AddressProblem, HostPort, shown};
use farwrite_transfer::DEFAULT_PORT;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use crate::console::Console;

/// The most bytes of the destination of a forward as text. The length before it is one byte (P16.2).
pub(crate) const MOST_DESTINATION_BYTES: usize = 255;

/// Parses a host to connect to. The default port applies if none is given.
pub(crate) fn parse_target(text: &str) -> Result<HostPort, String> {
    parse_target_at(text, DEFAULT_PORT)
}

/// As [`parse_target`], with another port if none is given.
pub(crate) fn parse_target_at(text: &str, port: u16) -> Result<HostPort, String> {
    let whole = text.parse::<HostPort>();
    let with_port = match text.parse::<Ipv6Addr>() {
        Ok(ip) => format!("[{ip}]:{port}"),
        Err(_) => format!("{text}:{port}"),
    };
    whole.or_else(|error| {
        // A port is not needed, so its absence is not what is wrong.
        let why = |other: AddressError| match error.problem {
            AddressProblem::NoPort | AddressProblem::NoPortAfterBracket => other.to_string(),
            _ => error.to_string(),
        };
        with_port.parse().map_err(why)
    })
}

/// Reads the destination of a forward, `HOST:PORT`. Names of hosts have no upper case here, so that equal ones are equal.
pub(crate) fn parse_destination(text: &str) -> Result<HostPort, String> {
    if text.len() > MOST_DESTINATION_BYTES {
        return Err(format!("it has more than {MOST_DESTINATION_BYTES} bytes"));
    }
    let parsed = text.to_ascii_lowercase().parse::<HostPort>();
    parsed.map_err(|error| error.to_string())
}

/// The address of the other end of a connection, which is empty once the connection is over.
pub(crate) fn address_of(connection: &Connection) -> String {
    let addr = connection.peer_addr();
    addr.map_or_else(String::new, |addr| shown(&addr).to_string())
}

/// Binds a port of all addresses.
pub(crate) fn at_any<T, E>(port: u16, bind: impl Fn(SocketAddr) -> Result<T, E>) -> Result<T, E> {
    // The wildcard of IPv6 also accepts IPv4. A machine without IPv6 uses the wildcard of IPv4.
    bind((Ipv6Addr::UNSPECIFIED, port).into())
        .or_else(|_| bind((Ipv4Addr::UNSPECIFIED, port).into()))
}

/// The addresses at which other machines reach a port of this machine, as `HOST:PORT`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Targets {
    /// At least one. The first is the one that other machines most likely reach.
    all: Vec<String>,
    /// Whether only this machine can use them.
    is_local: bool,
}

impl Targets {
    /// The addresses for a port that is bound at `local`.
    pub(crate) fn of(local: SocketAddr) -> Self {
        if !local.ip().is_unspecified() {
            return Self {
                all: vec![target(local)],
                // The user chose it, even if it is loopback.
                is_local: false,
            };
        }
        // Documentation addresses (RFC 5737, RFC 3849) belong to no network, so only a default route
        // matches.
        let v4 = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9));
        let v6 = SocketAddr::from((Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9));
        let outward = [v4, v6].map(source_for);
        let outward: Vec<_> = outward.into_iter().flatten().collect();
        match interface_addresses() {
            Some(found) => Self::choose(local, &outward, &found),
            // A service may lack the sockets for this question (`RestrictAddressFamilies=` of systemd).
            None => {
                let found: Vec<_> = outward.iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
                Self {
                    is_local: false,
                    ..Self::choose(local, &outward, &found)
                }
            }
        }
    }

    /// Chooses among the addresses of this machine. `outward` are the sources of packets to the default
    /// routes.
    fn choose(local: SocketAddr, outward: &[IpAddr], found: &[SocketAddr]) -> Self {
        let mut usable: Vec<_> = found
            .iter()
            .copied()
            .filter(|addr| addr.is_ipv4() || local.is_ipv6())
            .collect();
        // Link-local addresses are the last resort: the other machine must be on the same link.
        usable.sort_by_key(|addr| {
            let is_outward = outward.contains(&addr.ip());
            (is_link_local(addr.ip()), !is_outward, addr.is_ipv6())
        });
        usable.dedup();
        if usable.iter().any(|addr| !is_link_local(addr.ip())) {
            usable.retain(|addr| !is_link_local(addr.ip()));
        }
        let is_local = usable.is_empty();
        if is_local {
            usable.push((Ipv4Addr::LOCALHOST, 0).into());
        }
        let targets = usable.into_iter().map(|mut addr| {
            addr.set_port(local.port());
            target(addr)
        });
        Self {
            all: targets.collect(),
            is_local,
        }
    }

    /// The address that other machines most likely reach.
    pub(crate) fn first(&self) -> &str {
        &self.all[0]
    }

    /// The addresses without the port, except those that need the name of an interface.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        let texts = self.all.iter();
        let parsed = texts.filter_map(|text| text.parse::<SocketAddr>().ok());
        parsed.map(|addr| addr.ip()).collect()
    }

    /// Shows what the command of the other machine does not say.
    pub(crate) fn show_others(&self, console: &Console) {
        if self.is_local {
            console.warn(format_args!(
                "only this machine reaches {}: connect it to a network, or listen on another address",
                self.first()
            ));
        }
        if self.all.len() > 1 {
            let others = self.all[1..].join(", ");
            console.say(format_args!("other addresses of this machine: {others}"));
        }
    }
}

/// The address for the other machine. A link-local address needs the name of the interface on that
/// machine, which this machine cannot know.
fn target(addr: SocketAddr) -> String {
    match addr {
        SocketAddr::V6(addr) if addr.scope_id() != 0 => {
            format!("'[{}%INTERFACE-OVER-THERE]:{}'", addr.ip(), addr.port())
        }
        addr => addr.to_string(),
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// The addresses of interfaces that are up, except loopback. Link-local IPv6 addresses have a scope.
/// `None` if the operating system does not say.
fn interface_addresses() -> Option<Vec<SocketAddr>> {
    let interfaces = getifaddrs().ok()?;
    let is_usable = |flags: InterfaceFlags| {
        flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING)
            && !flags.contains(InterfaceFlags::IFF_LOOPBACK)
    };
    let of_usable = interfaces.filter(|interface| is_usable(interface.flags));
    let addresses = of_usable.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address
            .as_sockaddr_in()
            .map(|v4| SocketAddr::V4((*v4).into()));
        let v6 = address
            .as_sockaddr_in6()
            .map(|v6| SocketAddr::V6((*v6).into()));
        v4.or(v6)
    });
    Some(addresses.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_chosen(local: &str, [outward, found, all]: [&[&str]; 3], is_local: bool) {
        let addr = |text: &&str| text.parse::<SocketAddr>().expect("an address");
        let outward = outward.iter().map(|text| text.parse().expect("an IP"));
        let outward: Vec<_> = outward.collect();
        let found: Vec<_> = found.iter().map(addr).collect();
        let targets = Targets::choose(addr(&local), &outward, &found);
        assert_eq!(targets.all, all);
        assert_eq!(targets.is_local, is_local);
    }

    #[test]
    fn every_address_of_the_network_is_shown_and_that_of_the_default_route_first() {
        let found = [
            "[fe80::5%2]:0",
            "172.17.0.1:0",
            "[2001:db8::7]:0",
            "10.0.0.5:0",
            "10.0.0.5:0",
        ];
        let both = ["10.0.0.5:4792", "172.17.0.1:4792", "[2001:db8::7]:4792"];
        let link_local = "'[fe80::5%INTERFACE-OVER-THERE]:4792'";
        let at_all = "[::]:4792";
        assert_chosen(at_all, [&["10.0.0.5"], &found, &both], false);
        assert_chosen("0.0.0.0:4792", [&["10.0.0.5"], &found, &both[..2]], false);
        // Without a default route.
        assert_chosen(at_all, [&[], &["10.77.0.2:0"], &["10.77.0.2:4792"]], false);
        // Link-local and loopback addresses are last resorts.
        assert_chosen(at_all, [&[], &found[..1], &[link_local]], false);
        assert_chosen(at_all, [&[], &[], &["127.0.0.1:4792"]], true);
    }

    #[test]
    fn a_host_without_a_port_gets_the_default_port() {
        for (text, shown) in [
            ("far.example", "far.example:4792"),
            ("192.0.2.7", "192.0.2.7:4792"),
            ("[2001:db8::7]", "[2001:db8::7]:4792"),
            ("2001:db8::7", "[2001:db8::7]:4792"),
            ("far.example:9", "far.example:9"),
        ] {
            assert_eq!(parse_target(text).expect(text).to_string(), shown);
        }
        assert!(
            parse_target("")
                .unwrap_err()
                .starts_with("there is no host")
        );
        let why = parse_target("[fe80::1]").unwrap_err();
        assert!(why.starts_with("fe80::1 is link-local"), "{why}");
        for wrong in ["far:", "far:x", "[::1]:0", "[::1]4792", ""] {
            parse_target(wrong).expect_err(wrong);
        }
    }
}
