//! What a receiver takes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use farwrite::{EqdsOptions, RateControl, Sealing};
use farwrite_files::{Delete, Hello, Manifest, Policy, TransferPlan};

use crate::{Error, ErrorKind, MemoryPool, TransferHooks};

/// The limits of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiveSettings {
    /// The maximum memory for messages in flight and their parity.
    pub memory_bytes: u64,
    /// How long the peer may be silent, and how long the transfer may make no progress.
    pub timeout: Duration,
    /// The rate of this machine's port in bits per second, to grant credit to senders with
    /// [`RateControl::Eqds`]. They are then the only ones that can connect. `None`: no credit is
    /// granted.
    pub credit_bps: Option<u64>,
    /// Whether data packets are sealed.
    pub sealing: Sealing,
    /// The most bytes of one transfer. `None`: no limit.
    pub max_bytes: Option<u64>,
    /// The most bytes of one file.
    pub max_file_bytes: Option<u64>,
    /// The most files and directories of one transfer. `None`: only that of the protocol.
    pub max_files: Option<u32>,
    /// The only names that may come directly below the directory, for a receiver that has asked for them.
    /// `None`: all.
    pub names: Option<Vec<OsString>>,
    /// If a sender wants more than this number of files and directories to be removed, none is removed. `None`:
    /// the sender alone sets the limit.
    pub max_delete: Option<u32>,
    /// What may be written, and when it counts as stored.
    pub policy: Policy,
}

impl ReceiveSettings {
    /// The rate control of a receiver's queue pairs. It sends no data, so its own rate does not
    /// matter.
    pub(crate) fn rate_control(&self) -> RateControl {
        let eqds = |line_rate_bps| EqdsOptions {
            line_rate_bps,
            first_window_bytes: 1,
        };
        let eqds = self.credit_bps.map(|bps| RateControl::Eqds(eqds(bps)));
        eqds.unwrap_or_default()
    }

    /// The memory that a transfer shares with others, or has alone.
    pub(crate) fn memory(&self, hooks: &TransferHooks<'_>) -> MemoryPool {
        let pool = hooks.memory.cloned();
        pool.unwrap_or_else(|| MemoryPool::new(self.memory_bytes, 1))
    }

    /// The capabilities that depend on the settings.
    pub(crate) fn capabilities(&self) -> u64 {
        let policy = self.policy;
        let syncs = if policy.sync { Hello::SYNCS } else { 0 };
        let owners = if policy.owners { Hello::OWNERS } else { 0 };
        let deletes = if policy.delete { Hello::DELETES } else { 0 };
        syncs | owners | deletes
    }

    /// Checks that a transfer keeps the limits of this receiver.
    pub(super) fn check(&self, plan: &TransferPlan) -> Result<(), Error> {
        let refused = |what: String| Err(Error::new(ErrorKind::Mismatch, what));
        if let Some(most) = self.max_bytes
            && plan.stream_bytes > most
        {
            return refused(format!(
                "the transfer has {} bytes, but the receiver takes at most {most} (--max-bytes)",
                plan.stream_bytes
            ));
        }
        if let Some(most) = self.max_files
            && plan.entries > most
        {
            return refused(format!(
                "the transfer has {} files and directories, but the receiver takes at most {most} \
                 (--max-files)",
                plan.entries
            ));
        }
        Ok(())
    }

    /// Checks that nothing comes that was not asked for.
    pub(super) fn check_names(&self, manifest: &Manifest) -> Result<(), Error> {
        let Some(names) = &self.names else {
            return Ok(());
        };
        let mut top = manifest.entries().filter(|entry| entry.parent.is_none());
        let is_asked = |name: &[u8]| names.iter().any(|asked| asked.as_bytes() == name);
        match top.find(|entry| !is_asked(entry.name)) {
            Some(entry) => {
                let name = String::from_utf8_lossy(entry.name);
                let what = format!("the sender offers {name:?}, which was not asked for");
                Err(Error::new(ErrorKind::Mismatch, what))
            }
            None => Ok(()),
        }
    }

    /// Checks that nothing is removed that was not asked for, and limits how much is.
    pub(super) fn limit_delete(&self, order: Option<Delete>) -> Result<Option<Delete>, Error> {
        if self.names.is_some() && order.is_some_and(|order| order.top) {
            let what = "the sender wants to remove files beside those that were asked for";
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        Ok(order.map(|order| Delete {
            max: order.max.into_iter().chain(self.max_delete).min(),
            ..order
        }))
    }

    /// Checks that files with holes keep the limit too.
    pub(super) fn check_lengths(&self, manifest: &Manifest) -> Result<(), Error> {
        let lengths = || manifest.entries().map(|entry| entry.kind.length());
        if let Some(most) = self.max_file_bytes
            && let Some(longest) = lengths().max()
            && longest > most
        {
            let what = format!(
                "a file has {longest} bytes, but the receiver takes files of at most {most}"
            );
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        let bytes = lengths().fold(0, u64::saturating_add);
        if let Some(most) = self.max_bytes.filter(|most| bytes > *most) {
            let what = format!(
                "the files have {bytes} bytes with their holes, but the receiver takes at most \
                 {most} (--max-bytes)"
            );
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        Ok(())
    }
}
