//! An RDMA device at this end, or at the other end, of a transfer or a measurement.

use std::net::{IpAddr, SocketAddr};

use farwrite::fabric::contract::{Fabric, FabricError, WindowKeys};
use farwrite::fabric::nic::ROCE_PORT;
use farwrite::{CodingThreads, Endpoint, ReservedPort, UdpConfig, UdpFabric};
use farwrite_verbs::{AnyFabric, VerbsConfig, VerbsFabric};

use crate::{Error, ErrorKind};

/// Opens an endpoint over a device. `channel` is the local address of the channel to the peer: the device
/// uses it if the user names no address.
///
/// # Errors
/// As of [`check_device`].
pub fn open_device(config: &VerbsConfig, channel: IpAddr) -> Result<Endpoint<AnyFabric>, Error> {
    let fabric = VerbsFabric::open(&config.clone().at(channel.to_canonical()));
    let fabric = fabric.map_err(|error| of_device(config, &error))?;
    Ok(over(fabric.into())?)
}

/// Opens an endpoint over a socket of the one port to which the devices of peers send.
///
/// # Errors
/// [`ErrorKind::Unreachable`] if the port cannot be used.
pub fn open_for_device(local: IpAddr) -> Result<Endpoint<AnyFabric>, Error> {
    let opened = open_socket(SocketAddr::new(local, ROCE_PORT), None);
    opened.map_err(|error| {
        let what = format_args!(
            "the other end has an RDMA device, which sends to UDP port {ROCE_PORT} alone; another program \
             with a device, or Soft-RoCE, may have the port at this end"
        );
        Error::caused(ErrorKind::Unreachable, what, &error)
    })
}

/// Opens an endpoint over a socket, which is beside the one that holds its port.
pub(crate) fn open_socket(
    bind: SocketAddr,
    held: Option<&ReservedPort>,
) -> Result<Endpoint<AnyFabric>, farwrite::Error> {
    let config = UdpConfig::new(bind);
    let fabric = match held {
        Some(held) => UdpFabric::bind_beside(&config, held),
        None => UdpFabric::bind(&config),
    };
    over(fabric?.into())
}

fn over(fabric: AnyFabric) -> Result<Endpoint<AnyFabric>, farwrite::Error> {
    let mut endpoint = Endpoint::over(fabric)?;
    endpoint.code_on(CodingThreads::Auto)?;
    Ok(endpoint)
}

/// Checks that a device can be used, before a peer waits for it. Returns what its keys of open windows are.
///
/// # Errors
/// [`ErrorKind::Settings`] for a device or an address that does not exist, [`ErrorKind::Unreachable`] for a
/// port that is down, [`ErrorKind::Other`] otherwise.
pub fn check_device(config: &VerbsConfig) -> Result<WindowKeys, Error> {
    let opened = VerbsFabric::open(config);
    let opened = opened.map_err(|error| of_device(config, &error))?;
    Ok(opened.capabilities().window_keys)
}

fn of_device(config: &VerbsConfig, error: &FabricError) -> Error {
    let kind = match error {
        FabricError::BadAttribute { .. } => ErrorKind::Settings,
        FabricError::Io { source, .. } if source.kind() == std::io::ErrorKind::NetworkDown => {
            ErrorKind::Unreachable
        }
        _ => ErrorKind::Other,
    };
    Error::caused(kind, format_args!("--device {config}"), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_does_not_exist_is_named() {
        let error = check_device(&VerbsConfig::new("none7")).expect_err("no such device");
        assert!(error.to_string().contains("none7"), "{error}");
    }
}
