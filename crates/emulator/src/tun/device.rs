//! TUN devices.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use tun_rs::{DeviceBuilder, SyncDevice};

use super::namespace::inside;
use super::{DeviceTask, Namespace, TunEmulatorError, TunEnd};
use crate::Task;

/// Number of packets that the kernel queues until the emulator reads them. A train counts as one. The
/// default of devices is 500, which a burst fills while the thread waits for a core.
const KERNEL_QUEUE: u32 = 5_000;

/// An open TUN device with non-blocking reads and writes.
pub(super) struct TunDevice {
    name: String,
    namespace: Option<Namespace>,
    tun: SyncDevice,
    /// The kernel's drop counter before the device was opened.
    dropped_before: u64,
}

impl TunDevice {
    pub(super) fn open(end: &TunEnd, mtu: u16, offload: bool) -> Result<Self, TunEmulatorError> {
        let (name, namespace) = match end {
            TunEnd::Create {
                device, namespace, ..
            } => (device, Some(namespace)),
            TunEnd::Attach { device } => (device, None),
        };
        check_name(name)?;
        let (tun, dropped_before) = inside(namespace, || {
            let there = kernel_drops(name)?.is_some();
            let builder = DeviceBuilder::new().name(name).offload(offload);
            let builder = match end {
                TunEnd::Create { .. } if there => {
                    return Err(TunEmulatorError::DeviceExists(name.clone()));
                }
                TunEnd::Attach { .. } if !there => {
                    return Err(TunEmulatorError::NoDevice(name.clone()));
                }
                TunEnd::Attach { .. } => builder.inherit_enable_state(),
                TunEnd::Create { ipv4, ipv6, .. } => {
                    let mut builder = builder.mtu(mtu).tx_queue_len(KERNEL_QUEUE);
                    if let Some((address, bits)) = *ipv4 {
                        builder = builder.ipv4(address, bits, None);
                    }
                    if let Some((address, bits)) = *ipv6 {
                        builder = builder.ipv6(address, bits);
                    }
                    builder
                }
            };
            let failed = |source| TunEmulatorError::TunDevice {
                what: DeviceTask::Open,
                device: name.clone(),
                source,
            };
            let tun = builder.build_sync().map_err(failed)?;
            rustix::io::ioctl_fionbio(&tun, true).map_err(|error| failed(error.into()))?;
            Ok((tun, kernel_drops(name)?.unwrap_or(0)))
        })?;
        Ok(Self {
            name: name.clone(),
            namespace: namespace.cloned(),
            tun,
            dropped_before,
        })
    }

    /// Packets that the kernel has dropped since the device was opened, because the emulator did not
    /// read them in time; `None` if the device or its namespace no longer exists.
    pub(super) fn drops(&self) -> Option<u64> {
        let drops = inside(self.namespace.as_ref(), || kernel_drops(&self.name));
        Some(drops.ok()??.saturating_sub(self.dropped_before))
    }

    pub(super) fn failed(
        &self,
        what: DeviceTask,
        source: impl Into<io::Error>,
    ) -> TunEmulatorError {
        TunEmulatorError::TunDevice {
            what,
            device: self.name.clone(),
            source: source.into(),
        }
    }
}

impl AsFd for TunDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }
}

fn check_name(name: &str) -> Result<(), TunEmulatorError> {
    let wrong = |c: char| c == '/' || c == ':' || c.is_whitespace();
    if (1..=15).contains(&name.len()) && !name.contains(wrong) && name != "." && name != ".." {
        Ok(())
    } else {
        Err(TunEmulatorError::DeviceName(name.to_owned()))
    }
}

/// The kernel's counter of packets that were dropped before a reader of the device got them. Works
/// in the namespace of this thread; `None` if there is no such device.
fn kernel_drops(device: &str) -> Result<Option<u64>, TunEmulatorError> {
    let table = fs::read_to_string("/proc/thread-self/net/dev").map_err(|source| {
        TunEmulatorError::System {
            what: Task::Counters,
            source,
        }
    })?;
    Ok(transmit_drops(&table, device))
}

/// The counter of dropped transmitted packets of a device (proc(5): `net/dev`).
fn transmit_drops(table: &str, device: &str) -> Option<u64> {
    let mut rows = table.lines().filter_map(|line| line.split_once(':'));
    let (_, row) = rows.find(|(name, _)| name.trim() == device)?;
    // Eight columns of received traffic, then bytes, packets and errors of transmitted traffic.
    row.split_whitespace().nth(11)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_read_from_the_row_and_column_of_the_device() {
        let table = "Inter-|   Receive    |  Transmit\n face |bytes packets errs\n\
            \x20   lo:  1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
            \x20 far0: 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36\n";
        assert_eq!(transmit_drops(table, "far0"), Some(32));
        assert_eq!(transmit_drops(table, "far"), None);
    }

    #[test]
    fn names_are_such_as_the_kernel_takes() {
        for name in ["far0", "a", "123456789012345"] {
            check_name(name).expect(name);
        }
        for name in ["", "1234567890123456", "a b", "a/b", "a:1", ".", ".."] {
            check_name(name).expect_err(name);
        }
    }
}
