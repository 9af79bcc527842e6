//! Devices: the network interfaces that NCCL may use.

use std::ffi::CString;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use nix::ifaddrs::getifaddrs;

use crate::failure::Failure;
use crate::settings::Settings;

/// The most devices, as NCCL's own sockets have.
const MOST: usize = 16;
/// What NCCL assumes of an interface that does not say its speed.
const LIKELY_MBPS: i32 = 10_000;
/// Where NCCL looks for an interface if the user names none: the first of these that matches something.
const USUAL: [&str; 5] = ["ib", "^docker,lo,virbr", "docker", "lo", "virbr"];

/// A device.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    /// The name of the interface.
    pub(crate) name: CString,
    /// The folder of its hardware in /sys.
    pub(crate) pci_path: Option<CString>,
    /// Its address, with port 0.
    pub(crate) address: SocketAddr,
    /// Mbit/s, for NCCL.
    pub(crate) speed_mbps: i32,
}

/// The devices of this machine.
///
/// # Errors
/// There is none.
pub(crate) fn find(settings: &Settings) -> Result<Vec<Device>, Failure> {
    let interfaces = interfaces();
    let chosen = choose(&interfaces, settings.interfaces.as_deref(), settings.is_v6);
    if chosen.is_empty() {
        let names: Vec<_> = interfaces.iter().map(|(name, _)| name.as_str()).collect();
        return Err(Failure::system(format!(
            "no interface with an address matches NCCL_SOCKET_IFNAME={}: this machine has {}",
            settings.interfaces.as_deref().unwrap_or(""),
            names.join(", ")
        )));
    }
    let device = |(name, address): (String, SocketAddr)| {
        let folder = Path::new("/sys/class/net").join(&name);
        let pci_path = fs::canonicalize(folder.join("device")).ok();
        let speed = fs::read_to_string(folder.join("speed")).ok();
        let speed = speed.and_then(|text| text.trim().parse().ok());
        let speed = speed.filter(|mbps| *mbps > 0).unwrap_or(LIKELY_MBPS);
        let of_user = settings.rate_bps.map(|bps| (bps / 1_000_000).max(1));
        Device {
            name: text(&name),
            pci_path: pci_path.map(|path| text(&path.to_string_lossy())),
            address,
            speed_mbps: of_user.map_or(speed, |mbps| i32::try_from(mbps).unwrap_or(i32::MAX)),
        }
    };
    Ok(chosen.into_iter().map(device).collect())
}

fn text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// Addresses of all interfaces that peers may reach, with their names.
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
    let is_reachable = |(_, address): &(String, SocketAddr)| match address.ip() {
        IpAddr::V4(_) => true,
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    addresses.filter(is_reachable).collect()
}

/// Chooses interfaces as NCCL does, each with one address: IPv4, unless IPv6 is wanted or the only one.
fn choose(
    interfaces: &[(String, SocketAddr)],
    wanted: Option<&str>,
    is_v6: Option<bool>,
) -> Vec<(String, SocketAddr)> {
    let matching = |pattern: &str| {
        let mut found: Vec<(String, SocketAddr)> = Vec::new();
        for v6 in [false, true] {
            let of_family = interfaces.iter().filter(|(name, address)| {
                address.is_ipv6() == v6
                    && is_v6.is_none_or(|wanted| wanted == v6)
                    && matches(pattern, name)
            });
            for (name, address) in of_family {
                if found.len() < MOST && found.iter().all(|(known, _)| known != name) {
                    found.push((name.clone(), *address));
                }
            }
        }
        found
    };
    let patterns = wanted.map_or(USUAL.to_vec(), |wanted| vec![wanted]);
    let mut found = patterns.into_iter().map(matching);
    let mut found = found.find(|found| !found.is_empty()).unwrap_or_default();
    for (_, address) in &mut found {
        address.set_port(0);
    }
    found
}

/// `NCCL_SOCKET_IFNAME`: beginnings of names with commas between them. `=` before them asks for whole names, and `^`
/// for those that do not match. A port after a name does not matter.
fn matches(pattern: &str, name: &str) -> bool {
    let (is_not, rest) = match pattern.strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let (is_whole, rest) = match rest.strip_prefix('=') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let is_named = rest.split(',').any(|part| {
        let part = part.split(':').next().unwrap_or_default().trim();
        match is_whole {
            true => name == part,
            false => !part.is_empty() && name.starts_with(part),
        }
    });
    is_named != is_not
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(wanted: Option<&str>, is_v6: Option<bool>) -> Vec<String> {
        let interfaces: Vec<(String, SocketAddr)> = [
            ("lo", "127.0.0.1:5"),
            ("docker0", "172.17.0.1:0"),
            ("eth0", "[2001:db8::1]:0"),
            ("eth0", "10.0.0.1:0"),
            ("eth1", "10.0.1.1:0"),
            ("eth10", "[2001:db8::2]:0"),
        ]
        .map(|(name, address)| (name.to_owned(), address.parse().expect("an address")))
        .into();
        let chosen = choose(&interfaces, wanted, is_v6);
        chosen
            .iter()
            .map(|(name, at)| format!("{name} {at}"))
            .collect()
    }

    #[test]
    fn interfaces_are_chosen_as_nccl_does() {
        let eth10 = "eth10 [2001:db8::2]:0";
        assert_eq!(
            names(None, None),
            ["eth0 10.0.0.1:0", "eth1 10.0.1.1:0", eth10]
        );
        assert_eq!(names(Some("eth1"), None), ["eth1 10.0.1.1:0", eth10]);
        assert_eq!(names(Some("=eth1"), None), ["eth1 10.0.1.1:0"]);
        assert_eq!(names(Some("^eth,docker"), None), ["lo 127.0.0.1:0"]);
        assert_eq!(
            names(Some("^=eth1,lo,docker0"), None),
            ["eth0 10.0.0.1:0", eth10]
        );
        assert_eq!(names(Some("eth0:4"), Some(true)), ["eth0 [2001:db8::1]:0"]);
        assert!(names(Some("ib"), None).is_empty());
    }
}
