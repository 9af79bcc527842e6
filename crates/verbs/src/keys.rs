//! Keys of open windows: by memory windows where the device has them, by registrations otherwise.

use std::sync::Arc;

use farwrite_fabric::contract::{FabricError, WindowKeys};

use crate::binder::Binder;
use crate::device::{Access, Limits, Memory, MemoryWindow, PortAddress, ProtectionDomain};
use crate::regions::HeldRegion;

/// Makes and removes keys.
pub(crate) struct Keys {
    domain: Arc<ProtectionDomain>,
    /// `None`: each key is a registration.
    binder: Option<Binder>,
}

/// A key of peers for a part of a region. Peers can write there until it is removed or dropped.
pub(crate) enum RemoteKey {
    /// For no bytes.
    Nothing,
    /// A registration of these bytes.
    Registration(Memory),
    /// A memory window, and the address of its first byte.
    Window(MemoryWindow, u64),
}

impl RemoteKey {
    /// Key and address of the first byte.
    pub(crate) fn remote(&self) -> (u32, u64) {
        match self {
            Self::Nothing => (0, 0),
            Self::Registration(memory) => memory.remote(),
            Self::Window(window, addr) => (window.key(), *addr),
        }
    }
}

impl Keys {
    /// Chooses how keys are made, unless `memory_windows` says it.
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        memory_windows: Option<bool>,
        limits: Limits,
        address: PortAddress,
        port: u8,
    ) -> Result<Self, FabricError> {
        let new = || Binder::new(domain, address, port);
        let binder = match memory_windows {
            Some(true) => Some(new()?),
            None if limits.has_memory_windows => {
                // A device that refuses something of this has registrations.
                let keeps_bounds = new().and_then(Binder::keeps_bounds);
                matches!(keeps_bounds, Ok(true))
                    .then(new)
                    .and_then(Result::ok)
            }
            _ => None,
        };
        Ok(Self {
            domain: Arc::clone(domain),
            binder,
        })
    }

    /// How keys are made. A device that fails to bind has registrations from then on.
    pub(crate) fn kind(&self) -> WindowKeys {
        match self.binder {
            Some(_) => WindowKeys::MemoryWindows,
            None => WindowKeys::Registrations,
        }
    }

    pub(crate) fn open(
        &mut self,
        region: &HeldRegion,
        offset: u64,
        length: u64,
    ) -> Result<RemoteKey, FabricError> {
        region.registered().bytes().slice(offset, length)?;
        if length == 0 {
            return Ok(RemoteKey::Nothing);
        }
        if let Some(binder) = &mut self.binder {
            let root = region.root(&self.domain)?;
            match binder.open(root, offset, length) {
                Ok(window) => return Ok(RemoteKey::Window(window, root.remote().1 + offset)),
                Err(_) => self.binder = None,
            }
        }
        let (domain, owner) = (&self.domain, region.registered());
        let memory = Memory::new(domain, owner, offset, length, Access::RemoteWrite)?;
        Ok(RemoteKey::Registration(memory))
    }

    /// Removes a key. The device places no packet with it after that.
    pub(crate) fn close(&mut self, key: RemoteKey, region: &HeldRegion) {
        // Keys that are not closed by a bind are dropped.
        if let (RemoteKey::Window(window, _), Some(binder)) = (key, &mut self.binder) {
            let closed = region.root(&self.domain);
            let closed = closed.and_then(|root| binder.close(window, root));
            if closed.is_err() {
                self.binder = None;
            }
        }
    }
}
