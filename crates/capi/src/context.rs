//! A context: an endpoint with its progress thread.

use std::collections::HashMap;
use std::env;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{available_parallelism, yield_now};

use farwrite::{
    CodingThreads, Endpoint, Fabric, MAX_CHANNELS, ProgressThread, UdpConfig, UdpFabric,
};
use farwrite_keys::Psk;
use farwrite_verbs::{AnyFabric, VerbsFabric};

use crate::device::{self, Chosen};
use crate::failure::Failure;
use crate::memory::Mapped;

/// What `sdr_context` names.
pub(crate) struct Context {
    /// `None` after a failure of the endpoint, which then does not exist any more.
    thread: RwLock<Option<Arc<ProgressThread<AnyFabric>>>>,
    /// By local key.
    regions: RwLock<HashMap<u32, Mapped>>,
    /// Queue pairs and regions that exist.
    users: AtomicUsize,
    pub(crate) channels: u8,
    /// Seals data packets, and what the ends exchange before.
    pub(crate) psk: Option<Psk>,
    /// The longest IP packet of the interface.
    pub(crate) interface_mtu: Option<u32>,
    /// The longest payload of a packet of the device.
    pub(crate) max_mtu: u32,
    pub(crate) is_v4: bool,
}

impl Context {
    pub(crate) fn new(dev_name: Option<&str>, channels: u32) -> Result<Self, Failure> {
        let chosen = device::choose(dev_name)?;
        let psk = match env::var_os("FARWRITE_PSK_FILE") {
            Some(file) => Some(Psk::load(Path::new(&file)).map_err(|error| {
                Failure::new(format!("FARWRITE_PSK_FILE={}: {error}", file.display()))
            })?),
            None => None,
        };
        let channels = u8::try_from(channels.clamp(1, MAX_CHANNELS.into())).unwrap_or(1);
        let fabric: AnyFabric = match chosen {
            Chosen::Udp(addr) => {
                let mut config = UdpConfig::new(addr);
                config.ports = channels.into();
                UdpFabric::bind(&config)
                    .map_err(farwrite::Error::from)?
                    .into()
            }
            Chosen::Rdma(_) if psk.is_some() => {
                return Err(Failure::new(
                    "FARWRITE_PSK_FILE: RDMA devices cannot seal packets; unset it, or open \
                     the device udp:ADDRESS",
                ));
            }
            Chosen::Rdma(mut config) => {
                config.ports = channels.into();
                VerbsFabric::open(&config)
                    .map_err(farwrite::Error::from)?
                    .into()
            }
        };
        let (local, max_mtu) = (fabric.local_addr(0), fabric.capabilities().max_mtu);
        let mut endpoint = Endpoint::over(fabric)?;
        endpoint.code_on(CodingThreads::Auto)?;
        if are_workers_useful(channels) {
            endpoint.start_workers()?;
        }
        Ok(Self {
            thread: RwLock::new(Some(Arc::new(endpoint.start_thread()?))),
            regions: RwLock::default(),
            users: AtomicUsize::new(0),
            channels,
            psk,
            interface_mtu: device::interface_mtu(local.ip()),
            max_mtu,
            is_v4: matches!(local.ip().to_canonical(), IpAddr::V4(_)),
        })
    }

    fn thread(&self) -> Option<Arc<ProgressThread<AnyFabric>>> {
        let thread = self.thread.read().unwrap_or_else(PoisonError::into_inner);
        thread.clone()
    }

    /// Runs `call` on the endpoint, between two polls of its thread.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Endpoint<AnyFabric>) -> R + Send + 'static,
    ) -> Result<R, Failure> {
        match self.thread() {
            Some(thread) => Ok(thread.call(call)?),
            None => Err(Failure::new(
                "the device of the context has failed: destroy the context",
            )),
        }
    }

    /// Runs a `call` that ends something, on the endpoint. If the endpoint has failed, it is dropped with
    /// all that it has, so that nobody writes into memory of the program any more. Then returns `None`.
    pub(crate) fn end<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Endpoint<AnyFabric>) -> R + Send + 'static,
    ) -> Option<R> {
        let answer = self.thread().and_then(|thread| thread.call(call).ok());
        if answer.is_none() {
            self.drop_endpoint();
        }
        answer
    }

    /// Drops the endpoint, whose thread has ended. The lock is held meanwhile, so that no other caller
    /// believes earlier that it is gone.
    fn drop_endpoint(&self) {
        let mut place = self.thread.write().unwrap_or_else(PoisonError::into_inner);
        let mut thread = place.take();
        while let Some(shared) = thread {
            // Calls of other threads return at once, because the thread has ended.
            thread = Arc::try_unwrap(shared).err();
            yield_now();
        }
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

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    use super::*;
    use crate::memory::Registration;

    #[test]
    fn memory_is_free_after_a_failure_of_the_endpoint() {
        let context = Arc::new(Context::new(Some("udp:127.0.0.1"), 1).expect("loopback"));
        let mut memory = vec![0_u8; 8192];
        let base: *mut c_void = memory.as_mut_ptr().cast();
        let registration = Registration::new(&context, base, memory.len()).expect("registered");
        let failed = context.call(|_| panic!("as if the fabric had failed"));
        assert!(failed.is_err());
        registration.end().expect("deregistered");
        assert!(context.call(|_| ()).is_err());
        context.check_unused().expect("nothing is left");
    }
}
