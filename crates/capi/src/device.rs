//! From a device's name to the address of a UDP socket, or to an RDMA device.

use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use farwrite::fabric::udp::source_for;
use farwrite_verbs::{VerbsConfig, device_names};
use nix::ifaddrs::getifaddrs;

use crate::failure::{Failure, tell_user};

const PREFIX: &str = "udp:";

/// The device that a context uses.
pub(crate) enum Chosen {
    /// UDP sockets at an address.
    Udp(SocketAddr),
    /// An RDMA device.
    Rdma(VerbsConfig),
}

/// The device for the name that a program gives.
///
/// A name that is neither `udp:` nor an RDMA device of this machine belongs to another machine: then the
/// user chooses with `FARWRITE_DEVICE`, or the default route does.
pub(crate) fn choose(name: Option<&str>) -> Result<Chosen, Failure> {
    if let Some(device) = name.and_then(|name| name.strip_prefix(PREFIX)) {
        return parse(device).map(Chosen::Udp);
    }
    let known = name.and_then(|name| name.parse::<VerbsConfig>().ok());
    if let Some(config) = known
        && config
            .device
            .as_ref()
            .is_some_and(|device| device_names().contains(device))
    {
        return Ok(Chosen::Rdma(config));
    }
    match env::var("FARWRITE_DEVICE") {
        Ok(chosen) => match chosen.strip_prefix(PREFIX) {
            Some(device) => parse(device).map(Chosen::Udp),
            None => chosen.parse().map(Chosen::Rdma).map_err(|error| {
                Failure::new(format!(
                    "FARWRITE_DEVICE: {error}; or write udp:ADDRESS[:PORT] or udp:INTERFACE"
                ))
            }),
        },
        Err(_) => {
            let addr = SocketAddr::new(outward(), 0);
            let asked = match name {
                Some(name) => format!("no device has the name {name:?}"),
                None => "no device is named".into(),
            };
            tell_user(&format!(
                "{asked}: using udp:{}; FARWRITE_DEVICE=udp:ADDRESS[:PORT], udp:INTERFACE or the name of an RDMA \
                 device selects another",
                addr.ip()
            ));
            Ok(Chosen::Udp(addr))
        }
    }
}

fn parse(device: &str) -> Result<SocketAddr, Failure> {
    if let Ok(addr) = device.parse::<SocketAddr>() {
        return Ok(addr);
    }
    let unbracketed = device
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if let Ok(ip) = unbracketed.unwrap_or(device).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, 0));
    }
    of_interface(device).ok_or_else(|| {
        Failure::new(format!(
            "{PREFIX}{device}: neither an address, nor an interface that has one"
        ))
    })
}

/// The source address of packets to the default route (RFC 5737 and RFC 3849 addresses match no other
/// one), or loopback.
fn outward() -> IpAddr {
    let world = ["192.0.2.1:9", "[2001:db8::1]:9"];
    let mut sources = world
        .iter()
        .filter_map(|world| source_for(world.parse().ok()?).ok());
    sources.next().unwrap_or(Ipv4Addr::LOCALHOST.into())
}

/// Addresses of all interfaces, with their names.
fn interfaces() -> Vec<(String, SocketAddr)> {
    let addresses = getifaddrs().into_iter().flatten().filter_map(|interface| {
        let address = interface.address?;
        let v4 = address
            .as_sockaddr_in()
            .map(|v4| SocketAddr::V4((*v4).into()));
        let v6 = address
            .as_sockaddr_in6()
            .map(|v6| SocketAddr::V6((*v6).into()));
        Some((interface.interface_name, v4.or(v6)?))
    });
    addresses.collect()
}

/// The first IPv4 address of an interface, or else its first IPv6 address.
fn of_interface(name: &str) -> Option<SocketAddr> {
    let addresses = interfaces();
    let of_name = addresses.iter().filter(|(of, _)| of == name);
    let chosen = of_name.min_by_key(|(_, addr)| addr.is_ipv6())?;
    let mut addr = chosen.1;
    addr.set_port(0);
    Some(addr)
}

/// The longest IP packet of the interface that has an address. `None` if it is not known.
pub(crate) fn interface_mtu(ip: IpAddr) -> Option<u32> {
    let ip = if ip.is_unspecified() { outward() } else { ip };
    let (name, _) = interfaces()
        .into_iter()
        .find(|(_, addr)| addr.ip().to_canonical() == ip.to_canonical())?;
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_addresses_or_interfaces() {
        for (name, expected) in [
            ("udp:127.0.0.1", "127.0.0.1:0"),
            ("udp:127.0.0.1:4791", "127.0.0.1:4791"),
            ("udp:::1", "[::1]:0"),
            ("udp:[::1]", "[::1]:0"),
            ("udp:[::1]:7", "[::1]:7"),
            ("udp:lo", "127.0.0.1:0"),
        ] {
            let Chosen::Udp(addr) = choose(Some(name)).expect(name) else {
                panic!("{name} is no RDMA device");
            };
            assert_eq!(addr.to_string(), expected, "{name}");
        }
        for wrong in ["udp:", "udp:none0", "udp:127.0.0.1:99999", "udp:1.2.3"] {
            assert!(choose(Some(wrong)).is_err(), "{wrong}");
        }
        assert_eq!(interface_mtu(Ipv4Addr::LOCALHOST.into()), Some(65536));
    }
}
