//! Whether the data packets of a transfer are sealed.

use clap::Args;
use farwrite_transfer::Sealing;

#[derive(Debug, Args)]
pub(crate) struct SealingArgs {
    /// Do not encrypt and authenticate data packets, which costs less processor time. Anyone on the path
    /// can then read the data, and can make files fail. Without this option, they are sealed if the other
    /// end seals too, and the last line says so if they are not
    #[arg(long, conflicts_with = "sealed")]
    unsealed: bool,
    /// Refuse a transfer whose data packets are not sealed, because the other end has --unsealed, is of
    /// an older version, or is an RDMA device
    #[arg(long)]
    sealed: bool,
}

impl SealingArgs {
    pub(crate) fn choice(&self) -> Sealing {
        match (self.unsealed, self.sealed) {
            (true, _) => Sealing::Off,
            (false, true) => Sealing::Required,
            (false, false) => Sealing::Preferred,
        }
    }
}
