//! Configuration of an emulator, and its errors.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;

use farwrite_link::{ConfigError, DeliveryTrace, LinkConfig, LinkDirection, Step};

use crate::Task;

/// Configuration of an emulator.
#[derive(Clone, Debug)]
pub struct TunEmulatorConfig {
    /// End A and end B.
    pub ends: [TunEnd; 2],
    /// The path from A to B.
    pub forward: TunLinkConfig,
    /// The path from B to A.
    pub backward: TunLinkConfig,
    /// MTU in bytes, 1280 to 65535. Only for devices that the emulator creates.
    pub mtu: u16,
    /// Whether trains of packets pass in one piece (offloads).
    pub offload: bool,
    /// Whether the threads busy-wait for the last 50 microseconds before a packet is due. This uses
    /// up to one core for each direction, so these threads get no real-time priority.
    pub spin: bool,
    /// Seed of losses, marks, reordering and variation in both directions. These also depend on the
    /// arrival times of packets, except the delays of slots.
    pub seed: u64,
}

/// One direction of a path. Times count from the start of the emulator.
#[derive(Clone, Debug, Default)]
pub struct TunLinkConfig {
    /// Properties of the link. [`LinkConfig::duplicate`] works; [`LinkConfig::corrupt`] has no
    /// effect, because the receiving kernel does not verify incomplete checksums.
    pub link: LinkConfig,
    /// Replaces [`LinkConfig::rate_bps`], which must be `None`.
    pub trace: Option<Arc<DeliveryTrace>>,
    /// Changes of the link over time.
    pub steps: Vec<Step>,
}

/// A TUN device.
#[derive(Clone, Debug)]
pub enum TunEnd {
    /// A device that the emulator creates in a network namespace. It disappears when the emulator ends.
    Create {
        /// The namespace.
        namespace: Namespace,
        /// Name of the device, 1 to 15 bytes. It must not exist in the namespace.
        device: String,
        /// IPv4 address, if any, with the length of its network prefix.
        ipv4: Option<(Ipv4Addr, u8)>,
        /// IPv6 address, if any, with the length of its network prefix.
        ipv6: Option<(Ipv6Addr, u8)>,
    },
    /// An existing device in this process's network namespace. Its addresses and its MTU do not
    /// change.
    Attach {
        /// Name of the device.
        device: String,
    },
}

/// An existing network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace(PathBuf);

impl Namespace {
    /// A namespace by its name in `ip netns`, or by a path such as `/proc/PID/ns/net`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        if name.contains('/') {
            Self(name.into())
        } else {
            Self(PathBuf::from("/run/netns").join(name))
        }
    }

    pub(super) fn path(&self) -> &std::path::Path {
        &self.0
    }
}

/// Why an emulator could not start, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunEmulatorError {
    /// The configuration of a path is invalid.
    #[error("{direction}: {source}")]
    Path {
        /// The direction of the path.
        direction: LinkDirection,
        /// The reason.
        source: ConfigError,
    },
    /// The MTU is outside of 1280 to 65535.
    #[error("the MTU is {0} bytes; IPv6 needs at least 1280")]
    Mtu(u16),
    /// The name is not valid for a network device.
    #[error("{0:?} is not a valid device name: use 1 to 15 bytes, without '/' and spaces")]
    DeviceName(String),
    /// The namespace does not exist, or this process may not enter it.
    #[error("entering the network namespace {}: {source}{}", .path.display(), hint(.source, "make it with `ip netns add`"))]
    Namespace {
        /// Path of the namespace.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The device to create exists already.
    #[error("the device {0:?} exists already; choose another name, or attach to it")]
    DeviceExists(String),
    /// The device to attach to does not exist.
    #[error("the device {0:?} does not exist; create it with `ip tuntap add dev {0} mode tun`")]
    NoDevice(String),
    /// The device could not be created, configured or used.
    #[error("{what} {device}: {source}{}", hint(.source, "is /dev/net/tun there?"))]
    TunDevice {
        /// The operation that failed.
        what: DeviceTask,
        /// The device.
        device: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another system call failed.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: Task,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// What an emulator does with a TUN device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceTask {
    /// It creates the device or attaches to it.
    #[error("making the device")]
    Open,
    /// It reads packets.
    #[error("reading from the device")]
    Read,
}

/// Advice for an error of the operating system.
fn hint(error: &io::Error, not_found: &str) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; this needs root, and for IPv6 addresses that IPv6 is enabled".to_owned()
        }
        io::ErrorKind::NotFound => format!("; {not_found}"),
        _ => String::new(),
    }
}
