//! How data packets travel: whether they are sealed, and the RDMA device that carries them.

use clap::Args;
use farwrite_transfer::{Sealing, VerbsConfig, check_device};

use crate::exit::Failure;

#[derive(Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Do not encrypt and authenticate data packets, which costs less processor time. Anyone on the path
    /// can then read the data, and can make files fail. Without this option, they are sealed if the other
    /// end seals too, and the last line says so if they are not
    #[arg(long, conflicts_with = "sealed")]
    unsealed: bool,
    /// Refuse a transfer whose data packets are not sealed, because the other end has --unsealed, is of
    /// an older version, or is an RDMA device
    #[arg(long)]
    sealed: bool,
    /// Move the data over an RDMA device of this machine instead of UDP sockets: its name, as `rdma link`
    /// shows it, then /PORT for a port other than 1, then @ADDRESS to choose an entry of its table of GIDs;
    /// without it, the address of this end of the connection. Data packets are not sealed. The other end
    /// may use a device or a UDP socket, which then has port 4791. See docs/rdma.md
    #[arg(long, value_name = "NAME[/PORT][@ADDRESS]", conflicts_with = "sealed")]
    device: Option<VerbsConfig>,
}

impl DeviceArgs {
    pub(crate) fn config(&self) -> Option<&VerbsConfig> {
        self.device.as_ref()
    }

    /// Checks that the device can be used, before the other end waits for it.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.device.as_ref().map(check_device).transpose()?;
        Ok(())
    }

    /// Whether to seal data packets, which devices cannot.
    pub(crate) fn sealing(&self) -> Sealing {
        match (&self.device, self.unsealed, self.sealed) {
            (Some(_), ..) | (None, true, _) => Sealing::Off,
            (None, false, true) => Sealing::Required,
            (None, false, false) => Sealing::Preferred,
        }
    }
}
