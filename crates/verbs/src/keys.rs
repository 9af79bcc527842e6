//! Keys of open windows: by memory windows where the device has them, by registrations otherwise.

use std::sync::Arc;

use farwrite_fabric::contract::{FabricError, WindowKeys};

use crate::binder::Binder;
use crate::device::{Access, Limits, Memory, MemoryWindow, PortAddress, ProtectionDomain};
use crate::regions::HeldRegion;

/// The longest memory window that drivers bind.
const MOST_BOUND_BYTES: u64 = 1 << 31;

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
        // mlx5 binds no window of more bytes. All of the region may be more than may be locked
        // again, and a part of it less.
        let can_bind = length <= MOST_BOUND_BYTES;
        if let Some(binder) = self.binder.as_mut().filter(|_| can_bind)
            && let Ok(root) = region.root(&self.domain)
        {
            match binder.open(root, offset, length) {
                Ok(window) => return Ok(RemoteKey::Window(window, root.remote().1 + offset)),
                Err(_) => self.binder = None,
            }
        }
        let (domain, owner) = (&self.domain, region.registered());
        let memory = Memory::new(domain, owner, offset, length, Access::RemoteWrite)?;
        Ok(RemoteKey::Registration(memory))
    }

    /// The device places no packet with the key after that.
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use farwrite_fabric::contract::{Lkey, Region};

    use super::*;
    use crate::device::fake::{domain_with_memory_windows, fail_binds, take_removed, windows};
    use crate::regions::Regions;

    struct Opened {
        keys: Keys,
        regions: Regions,
        lkey: Lkey,
    }

    impl Opened {
        /// A region of 100 bytes at a device with memory windows.
        fn new() -> Self {
            let domain = domain_with_memory_windows();
            let limits = Limits {
                queue_depth: 16,
                scatter_entries: 1,
                completions: 16,
                has_memory_windows: true,
            };
            let address = PortAddress {
                index: 0,
                ip: "10.0.0.1".parse().unwrap(),
            };
            let keys = Keys::new(&domain, Some(true), limits, address, 1).unwrap();
            let mut regions = Regions::default();
            let lkey = regions.register(&domain, Region::owned(vec![0_u8; 100]));
            Self {
                keys,
                lkey: lkey.unwrap(),
                regions,
            }
        }

        fn open(&mut self, offset: u64) -> (RemoteKey, HeldRegion) {
            let region = self.regions.hold(self.lkey).unwrap();
            (self.keys.open(&region, offset, 10).unwrap(), region)
        }

        /// Bytes of each open window, by its key.
        fn open_windows() -> Vec<(u32, u64)> {
            let open = windows().into_iter().filter(|(_, bytes)| *bytes > 0);
            open.collect()
        }
    }

    #[test]
    fn each_window_has_a_key_that_was_never_used() {
        let mut opened = Opened::new();
        let mut used = HashSet::new();
        for round in 0..1000 {
            let (key, region) = opened.open(round % 90);
            let (rkey, _) = key.remote();
            assert!(used.insert(rkey), "key {rkey:#x} again");
            assert_eq!(Opened::open_windows(), [(rkey, 10)]);
            opened.keys.close(key, &region);
            assert_eq!(Opened::open_windows(), []);
            assert!(windows().len() <= 1, "worn windows are destroyed");
        }
        assert_eq!(opened.keys.kind(), WindowKeys::MemoryWindows);
    }

    #[test]
    fn a_device_that_fails_to_bind_has_registrations() {
        let mut opened = Opened::new();
        let (first, second, third) = (opened.open(0), opened.open(10), opened.open(20));
        let addresses = [&first, &second].map(|(key, _)| key.remote().1);
        assert_eq!(addresses[0] + 10, addresses[1]);
        opened.keys.close(third.0, &third.1);
        assert_eq!((Opened::open_windows().len(), windows().len()), (2, 3));
        fail_binds();
        opened.keys.close(first.0, &first.1);
        // It was destroyed instead, and so was the spare one.
        let (rkey, _) = second.0.remote();
        assert_eq!(windows().into_iter().collect::<Vec<_>>(), [(rkey, 10)]);
        assert_eq!(opened.keys.kind(), WindowKeys::Registrations);
        let fourth = opened.open(0);
        assert!(matches!(fourth.0, RemoteKey::Registration(_)));
        assert_eq!(fourth.0.remote().1, addresses[0]);
        opened.keys.close(second.0, &second.1);
        assert!(windows().is_empty());
        opened.keys.close(fourth.0, &fourth.1);
        // That of the fourth window.
        assert_eq!(take_removed(), 1);
        drop((first.1, second.1, third.1, fourth.1));
        assert!(opened.regions.deregister(opened.lkey).is_ok());
        // Those of the region.
        assert_eq!(take_removed(), 2);
    }

    #[test]
    fn opening_falls_back_too() {
        let mut opened = Opened::new();
        fail_binds();
        let (key, region) = opened.open(0);
        assert!(matches!(key, RemoteKey::Registration(_)));
        assert_eq!(opened.keys.kind(), WindowKeys::Registrations);
        assert!(windows().is_empty());
        opened.keys.close(key, &region);
    }
}
