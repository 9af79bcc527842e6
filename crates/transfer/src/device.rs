//! An RDMA device at this end of a transfer.

use std::net::IpAddr;

use farwrite::fabric::contract::FabricError;
use farwrite::{CodingThreads, Endpoint};
use farwrite_verbs::{AnyFabric, VerbsConfig, VerbsFabric};

use crate::{Error, ErrorKind};

/// Opens an endpoint over a device, at the address of this end of the channel if the user names none.
pub(crate) fn open(config: &VerbsConfig, channel: IpAddr) -> Result<Endpoint<AnyFabric>, Error> {
    let fabric = VerbsFabric::open(&config.clone().at(channel.to_canonical()));
    let fabric = fabric.map_err(|error| of_device(config, &error))?;
    let opened = Endpoint::over(fabric.into()).and_then(|mut endpoint| {
        endpoint.code_on(CodingThreads::Auto)?;
        Ok(endpoint)
    });
    opened.map_err(|error| Error::of_endpoint(&error))
}

/// Checks that a device can be used, before a peer waits for it.
///
/// # Errors
/// [`ErrorKind::Settings`] for a device or an address that does not exist, [`ErrorKind::Unreachable`] for a
/// port that is down, [`ErrorKind::Other`] otherwise.
pub fn check_device(config: &VerbsConfig) -> Result<(), Error> {
    let opened = VerbsFabric::open(config).map(drop);
    opened.map_err(|error| of_device(config, &error))
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
