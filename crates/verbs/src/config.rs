//! What a fabric is made from.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use farwrite_fabric::contract::FabricError;

use crate::device::PortAddress;

/// Configuration of a [`VerbsFabric`](crate::VerbsFabric).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsConfig {
    /// Name of the device, as `rdma link` shows it. `None`: the first device.
    pub device: Option<String>,
    /// Port of the device, from 1 on.
    pub device_port: u8,
    /// The addresses of the ports of the fabric, from the device's table of GIDs. Empty: the first IPv4
    /// address, or the first address that is not link-local.
    pub addresses: Vec<IpAddr>,
    /// With at most one address: number of ports of the fabric at this address. Each has queues and a
    /// receive worker of its own.
    pub ports: u16,
    /// Number of write requests of a queue pair that can be posted before the first one has left.
    pub send_depth: u32,
    /// Number of writes that a queue pair can receive between two polls of its worker. The device
    /// drops others.
    pub receive_depth: u32,
    /// Whether the key of an open window is a memory window of type 1, and not a registration. `None`: if the
    /// device has memory windows and was found to keep packets within them. With `Some(true)`, on a device
    /// that does not, a peer with the key of a window can write to the whole region.
    pub memory_windows: Option<bool>,
}

impl VerbsConfig {
    /// A device by its name, with one port.
    #[must_use]
    pub fn new(device: &str) -> Self {
        Self {
            device: Some(device.to_owned()),
            ..Self::default()
        }
    }

    /// The same device at this address, if no other one is chosen.
    #[must_use]
    pub fn at(mut self, ip: IpAddr) -> Self {
        if self.addresses.is_empty() {
            self.addresses.push(ip);
        }
        self
    }

    /// Chooses the addresses of the fabric's ports from those of the device.
    pub(crate) fn choose(
        &self,
        device: &str,
        found: &[PortAddress],
    ) -> Result<Vec<PortAddress>, FabricError> {
        let listed: Vec<_> = found.iter().map(|address| address.ip.to_string()).collect();
        let wrong = |value: String| FabricError::BadAttribute {
            name: "RDMA address",
            value,
            want: match listed.is_empty() {
                true => format!(
                    "an address of {device}, but its table of GIDs has none for RoCE v2 (does its network \
                     interface have an address?)"
                ),
                false => format!("one of {}", listed.join(", ")),
            },
        };
        if self.addresses.is_empty() {
            let usable = |address: &&PortAddress| match address.ip {
                IpAddr::V4(_) => true,
                IpAddr::V6(ip) => !ip.is_unicast_link_local(),
            };
            let first_v4 = found.iter().find(|address| address.ip.is_ipv4());
            let first = first_v4.or_else(|| found.iter().find(usable));
            return first
                .map(|&first| vec![first; self.ports.max(1).into()])
                .ok_or_else(|| wrong("any".into()));
        }
        let each = self.addresses.iter().map(|&ip| {
            let address = found.iter().find(|address| address.ip == ip.to_canonical());
            address.copied().ok_or_else(|| wrong(ip.to_string()))
        });
        match each.collect::<Result<Vec<_>, _>>()?.as_slice() {
            [one] => Ok(vec![*one; self.ports.max(1).into()]),
            several => Ok(several.to_vec()),
        }
    }
}

/// Text that names no RDMA device: see [`VerbsConfig::from_str`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} names no RDMA device: write NAME, NAME/PORT, NAME@ADDRESS or NAME/PORT@ADDRESS, such as \
     mlx5_0/1@10.0.0.1"
)]
pub struct DeviceNameError(String);

impl FromStr for VerbsConfig {
    type Err = DeviceNameError;

    /// Reads `NAME`, `NAME/PORT`, `NAME@ADDRESS` or `NAME/PORT@ADDRESS`. The port is that of the device, from
    /// 1 on. The address chooses the entry of the table of GIDs.
    fn from_str(text: &str) -> Result<Self, DeviceNameError> {
        let wrong = || DeviceNameError(text.to_owned());
        let (link, address) = match text.split_once('@') {
            Some((link, address)) => (link, Some(address.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let (name, port) = match link.split_once('/') {
            Some((name, port)) => (name, port.parse().map_err(|_| wrong())?),
            None => (link, 1),
        };
        let is_word = |name: &str| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && byte != b':')
        };
        if port == 0 || !is_word(name) {
            return Err(wrong());
        }
        Ok(Self {
            device_port: port,
            addresses: address.into_iter().collect(),
            ..Self::new(name)
        })
    }
}

impl fmt::Display for VerbsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.device.as_deref().unwrap_or("the first RDMA device"))?;
        if self.device_port != 1 {
            write!(f, "/{}", self.device_port)?;
        }
        match self.addresses.first() {
            Some(ip) => write!(f, "@{ip}"),
            None => Ok(()),
        }
    }
}

impl Default for VerbsConfig {
    fn default() -> Self {
        Self {
            device: None,
            device_port: 1,
            addresses: Vec::new(),
            ports: 1,
            send_depth: 1024,
            receive_depth: 4096,
            memory_windows: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(ips: &[&str]) -> Vec<PortAddress> {
        let ips = (0..).zip(ips);
        ips.map(|(index, ip)| PortAddress {
            index,
            ip: ip.parse().unwrap(),
        })
        .collect()
    }

    #[test]
    fn a_name_can_have_a_port_and_an_address() {
        for text in ["rxe0", "mlx5_0/2", "rxe0@10.1.0.1", "mlx5_0/2@fd00::1"] {
            let config: VerbsConfig = text.parse().expect(text);
            assert_eq!(config.to_string(), text);
        }
        assert_eq!("rxe0/1".parse(), Ok(VerbsConfig::new("rxe0")));
        for text in [
            "",
            "@10.0.0.1",
            "/1",
            "rxe0/0",
            "rxe0/",
            "rxe0/256",
            "rxe0@",
            "rxe0@here",
            "rxe0 ",
            "udp:lo",
        ] {
            let read: Result<VerbsConfig, _> = text.parse();
            assert!(
                read.is_err_and(|error| error.to_string().contains(text)),
                "{text}"
            );
        }
    }

    #[test]
    fn ports_take_the_named_addresses_or_the_first_useful_one() {
        let found = table(&["fe80::1", "fd00::1", "10.0.0.1", "10.0.0.2"]);
        let chosen = |addresses: &[&str], found: &[PortAddress]| {
            let config = VerbsConfig {
                addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
                ..VerbsConfig::new("d0")
            };
            let chosen = config.choose("d0", found).map_err(|e| e.to_string())?;
            Ok(chosen
                .iter()
                .map(|address| address.index)
                .collect::<Vec<_>>())
        };
        assert_eq!(chosen(&[], &found), Ok(vec![2]));
        assert_eq!(chosen(&[], &found[..2]), Ok(vec![1]));
        assert_eq!(chosen(&["10.0.0.2", "fd00::1"], &found), Ok(vec![3, 1]));
        let config = VerbsConfig {
            ports: 3,
            ..VerbsConfig::new("d0").at("10.0.0.2".parse().unwrap())
        };
        assert_eq!(config.choose("d0", &found).unwrap(), [found[3]; 3]);
        let error: Result<Vec<u8>, String> = chosen(&["10.0.0.9"], &found[2..]);
        assert_eq!(
            error.unwrap_err(),
            "RDMA address = 10.0.0.9: one of 10.0.0.1, 10.0.0.2"
        );
        assert!(chosen(&[], &found[..1]).is_err());
    }
}
