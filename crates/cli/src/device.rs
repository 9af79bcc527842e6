//! The RDMA device that carries data packets.

use clap::Args;
use farwrite_transfer::{Sealing, VerbsConfig, check_device};

use crate::exit::Failure;
use crate::sealing::SealingArgs;

#[derive(Debug, Args)]
pub(crate) struct DeviceArgs {
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
    pub(crate) fn sealing(&self, asked: &SealingArgs) -> Sealing {
        match self.device {
            Some(_) => Sealing::Off,
            None => asked.choice(),
        }
    }
}
