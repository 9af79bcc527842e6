//! How a relay is made, and why it could not be.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use farwrite_link::{ConfigError, LinkConfig, Step};

/// How a relay is made.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// End A and end B.
    pub ends: [End; 2],
    /// The path from A to B.
    pub forward: PathConfig,
    /// The path from B to A.
    pub backward: PathConfig,
    /// Bytes of the longest IP packet, 1280 to 65535. Only for devices that the relay creates.
    pub mtu: u16,
    /// Whether trains of packets pass in one piece.
    pub offload: bool,
    /// Whether the threads wait for the last 50 microseconds before a packet is due without
    /// sleeping. It costs up to a core for each direction, so they get no real-time priority.
    pub spin: bool,
    /// Determines losses, marks and reordering of both directions, given which packets come when.
    pub seed: u64,
}

/// One direction of a path. Instants count from when the relay was started.
#[derive(Clone, Debug, Default)]
pub struct PathConfig {
    /// What it does to packets. [`LinkConfig::duplicate`] works; [`LinkConfig::corrupt`] has no
    /// effect, because the receiving kernel does not verify incomplete checksums.
    pub link: LinkConfig,
    /// When it changes.
    pub steps: Vec<Step>,
}

/// A TUN device.
#[derive(Clone, Debug)]
pub enum End {
    /// One that the relay creates in a network namespace, and that is gone when the relay ends.
    Create {
        /// Where.
        namespace: Namespace,
        /// Its name, 1 to 15 bytes. No device of the namespace has it.
        device: String,
        /// Its IPv4 address, if any, with the bits of its network.
        ipv4: Option<(Ipv4Addr, u8)>,
        /// Its IPv6 address, if any, with the bits of its network.
        ipv6: Option<(Ipv6Addr, u8)>,
    },
    /// One that is there already, in this process's network namespace. Its addresses and its MTU
    /// stay as they are.
    Attach {
        /// Its name.
        device: String,
    },
}

/// A network namespace that is there already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace(PathBuf);

impl Namespace {
    /// By its name, as `ip netns` has it, or by a path such as `/proc/PID/ns/net`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        if name.contains('/') {
            Self(name.into())
        } else {
            Self(PathBuf::from("/run/netns").join(name))
        }
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.0
    }
}

/// Why a relay could not start, or gave up.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// A path that cannot be.
    #[error("{direction}: {source}")]
    Path {
        /// `forward` or `backward`.
        direction: &'static str,
        /// What is wrong with it.
        source: ConfigError,
    },
    /// An MTU outside 1280 to 65535.
    #[error("an MTU of {0} bytes: IPv6 needs at least 1280")]
    Mtu(u16),
    /// A name that no network device can have.
    #[error("{0:?} is no device name: it has 1 to 15 bytes, without '/' and spaces")]
    DeviceName(String),
    /// A namespace that is not there, or that this process may not enter.
    #[error("entering the network namespace {}: {source}{}", .path.display(), hint(.source, "make it with `ip netns add`"))]
    Namespace {
        /// Its path.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A device that is to be created is there already.
    #[error("there is a device {0:?} already; choose another name, or attach to it")]
    DeviceExists(String),
    /// A device that is to be attached to is not there.
    #[error("there is no device {0:?}; make it with `ip tuntap add dev {0} mode tun`")]
    NoDevice(String),
    /// A device that could not be made, configured or used.
    #[error("{what} {device}: {source}{}", hint(.source, "is /dev/net/tun there?"))]
    Device {
        /// What was tried.
        what: &'static str,
        /// The device.
        device: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The operating system refused something else.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

/// What to do about an error of the operating system.
fn hint(error: &io::Error, not_found: &str) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; this needs root, and for IPv6 addresses that IPv6 is enabled".to_owned()
        }
        io::ErrorKind::NotFound => format!("; {not_found}"),
        _ => String::new(),
    }
}
