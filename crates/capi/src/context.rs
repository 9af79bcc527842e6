//! A context: an endpoint with its progress thread.

use std::collections::HashMap;
use std::env;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};
use std::thread::available_parallelism;

use farwrite::{Endpoint, Fabric, MAX_CHANNELS, ProgressThread, UdpConfig, UdpFabric};
use farwrite_session::Psk;

use crate::device;
use crate::failure::Failure;
use crate::memory::Mapped;

/// What `sdr_context` names.
pub(crate) struct Context {
    thread: ProgressThread<UdpFabric>,
    /// By local key.
    regions: RwLock<HashMap<u32, Mapped>>,
    /// Queue pairs and regions that exist.
    users: AtomicUsize,
    pub(crate) channels: u8,
    /// Seals data packets, and what the ends exchange before.
    pub(crate) psk: Option<Psk>,
    /// The longest IP packet of the interface.
    pub(crate) interface_mtu: Option<u32>,
    pub(crate) is_v4: bool,
}

impl Context {
    pub(crate) fn new(dev_name: Option<&str>, channels: u32) -> Result<Self, Failure> {
        let addr = device::address(dev_name)?;
        let psk = match env::var_os("FARWRITE_PSK_FILE") {
            Some(file) => Some(Psk::load(Path::new(&file)).map_err(|error| {
                Failure::new(format!("FARWRITE_PSK_FILE={}: {error}", file.display()))
            })?),
            None => None,
        };
        let channels = u8::try_from(channels.clamp(1, MAX_CHANNELS.into())).unwrap_or(1);
        let mut config = UdpConfig::new(addr);
        config.ports = channels.into();
        let mut endpoint = Endpoint::over_udp(&config)?;
        let local = endpoint.fabric().local_addr(0);
        if are_workers_useful(channels) {
            endpoint.start_workers()?;
        }
        Ok(Self {
            thread: endpoint.start_thread()?,
            regions: RwLock::default(),
            users: AtomicUsize::new(0),
            channels,
            psk,
            interface_mtu: device::interface_mtu(addr.ip()),
            is_v4: matches!(local.ip().to_canonical(), IpAddr::V4(_)),
        })
    }

    /// Runs `call` on the endpoint, between two polls of its thread.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Endpoint<UdpFabric>) -> R + Send + 'static,
    ) -> Result<R, Failure> {
        Ok(self.thread.call(call)?)
    }

    pub(crate) fn add_region(&self, mapped: Mapped) {
        self.begin_use();
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        regions.insert(mapped.region.lkey().0, mapped);
    }

    pub(crate) fn remove_region(&self, key: u32) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        if regions.remove(&key).is_some() {
            self.end_use();
        }
    }

    /// The region with a local key.
    pub(crate) fn region(&self, key: u32) -> Result<Mapped, Failure> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let mapped = regions.get(&key).copied();
        mapped.ok_or_else(|| {
            Failure::new(format!(
                "no memory region of this context has lkey {key:#x}"
            ))
        })
    }

    pub(crate) fn begin_use(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_use(&self) {
        self.users.fetch_sub(1, Ordering::Relaxed);
    }

    /// Refuses to be destroyed while queue pairs or regions exist.
    pub(crate) fn check_unused(&self) -> Result<(), Failure> {
        match self.users.load(Ordering::Relaxed) {
            0 => Ok(()),
            count => Err(Failure::new(format!(
                "{count} queue pairs and memory regions of the context exist: destroy them first"
            ))),
        }
    }
}

/// Receive threads help only where there are cores for them, beside the program and the thread that
/// polls.
fn are_workers_useful(channels: u8) -> bool {
    let cores = available_parallelism().map_or(1, usize::from);
    channels > 1 && cores >= usize::from(channels) + 2
}
