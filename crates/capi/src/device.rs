//! From a device's name to the address of a UDP socket.

use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use farwrite::fabric::udp::source_for;
use nix::ifaddrs::getifaddrs;

use crate::failure::{Failure, tell_user};

const PREFIX: &str = "udp:";

/// The address to bind for a device that a program names.
///
/// A name that does not begin with `udp:` belongs to another machine or another library: then the user
/// chooses with `FARWRITE_DEVICE`, or the default route does.
pub(crate) fn address(name: Option<&str>) -> Result<SocketAddr, Failure> {
    if let Some(device) = name.and_then(|name| name.strip_prefix(PREFIX)) {
        return parse(device);
    }
    match env::var("FARWRITE_DEVICE") {
        Ok(chosen) => {
            let device = chosen.strip_prefix(PREFIX).ok_or_else(|| {
                Failure::new(format!(
                    "FARWRITE_DEVICE={chosen}: only UDP devices exist, write udp:ADDRESS[:PORT] or udp:INTERFACE"
                ))
            })?;
            parse(device)
        }
        Err(_) => {
            let addr = SocketAddr::new(outward(), 0);
            let asked = match name {
                Some(name) => format!("no device has the name {name:?}"),
                None => "no device is named".into(),
            };
            tell_user(&format!(
                "{asked}: using udp:{}; FARWRITE_DEVICE=udp:ADDRESS[:PORT] or udp:INTERFACE selects another",
                addr.ip()
            ));
            Ok(addr)
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
            let addr = address(Some(name)).expect(name);
            assert_eq!(addr.to_string(), expected, "{name}");
        }
        for wrong in ["udp:", "udp:none0", "udp:127.0.0.1:99999", "udp:1.2.3"] {
            assert!(address(Some(wrong)).is_err(), "{wrong}");
        }
        assert_eq!(interface_mtu(Ipv4Addr::LOCALHOST.into()), Some(65536));
    }
}
