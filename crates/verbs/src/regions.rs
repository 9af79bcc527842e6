//! Registered regions.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use farwrite_fabric::contract::{
    Capability, FabricError, Lkey, Object, Region, RegionPtr, RegionReader, Registered, WindowHold,
};

use crate::device::{Access, Memory, ProtectionDomain};

/// A region that is registered with the device. Windows onto it and requests that name it hold it.
pub(crate) struct MemoryRegion {
    /// `None` for a region without bytes.
    send: Option<Memory>,
    /// All bytes, for memory windows.
    root: OnceLock<Memory>,
    registered: Arc<Registered>,
}

impl MemoryRegion {
    /// Local key and address of a range of the region, for a send request.
    pub(crate) fn place(
        &self,
        offset: u64,
        length: u64,
    ) -> Result<Option<(u32, u64)>, FabricError> {
        self.registered.bytes().slice(offset, length)?;
        let send = self.send.as_ref();
        Ok(send.map(|memory| (memory.local_key(), memory.addr() + offset)))
    }
}

/// A region that a window holds.
pub(crate) struct HeldRegion {
    region: Arc<MemoryRegion>,
    _hold: WindowHold,
}

impl HeldRegion {
    fn new(region: &Arc<MemoryRegion>) -> Self {
        Self {
            region: Arc::clone(region),
            _hold: WindowHold::new(&region.registered),
        }
    }

    pub(crate) fn registered(&self) -> &Arc<Registered> {
        &self.region.registered
    }

    /// The registration of all bytes, at least one, to which memory windows are bound. The first call makes it.
    pub(crate) fn root(&self, domain: &Arc<ProtectionDomain>) -> Result<&Memory, FabricError> {
        let (root, owner) = (&self.region.root, self.registered());
        if let Some(memory) = root.get() {
            return Ok(memory);
        }
        let memory = Memory::new(domain, owner, 0, owner.bytes().length(), Access::Bind)?;
        Ok(root.get_or_init(|| memory))
    }
}

/// All regions of a fabric. The control object changes the table, transmit queues read it.
#[derive(Clone, Default)]
pub(crate) struct Regions(Arc<RwLock<Table>>);

#[derive(Default)]
pub(crate) struct Table {
    regions: HashMap<u32, Arc<MemoryRegion>>,
    next: u32,
}

impl Table {
    pub(crate) fn get(&self, lkey: Lkey) -> Result<&Arc<MemoryRegion>, FabricError> {
        self.regions
            .get(&lkey.0)
            .ok_or(FabricError::UnknownKey(lkey.0))
    }
}

impl Regions {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Table> {
        // The table is valid even after a panic of another thread.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn register(
        &mut self,
        domain: &Arc<ProtectionDomain>,
        region: Region,
    ) -> Result<Lkey, FabricError> {
        if region.is_ghost() {
            return Err(FabricError::Unsupported(Capability::GhostMemory));
        }
        let registered = Arc::new(Registered::new(region));
        let send = match registered.bytes().length() {
            0 => None,
            all => Some(Memory::new(domain, &registered, 0, all, Access::Send)?),
        };
        let mut table = self.write();
        let lkey = loop {
            table.next = table.next.wrapping_add(1);
            if table.next != 0 && !table.regions.contains_key(&table.next) {
                break table.next;
            }
        };
        let region = MemoryRegion {
            send,
            root: OnceLock::new(),
            registered,
        };
        table.regions.insert(lkey, Arc::new(region));
        Ok(Lkey(lkey))
    }

    pub(crate) fn deregister(&mut self, lkey: Lkey) -> Result<Region, FabricError> {
        let mut table = self.write();
        let unknown = FabricError::UnknownKey(lkey.0);
        let region = table.regions.remove(&lkey.0).ok_or(unknown)?;
        match Arc::try_unwrap(region) {
            Ok(MemoryRegion {
                send,
                root,
                registered,
            }) => {
                drop((send, root));
                let registered = Arc::try_unwrap(registered).map_err(|_| FabricError::Io {
                    what: "the RDMA device may still write a region, so its memory stays in use"
                        .into(),
                    source: std::io::Error::other("deregistering memory has failed"),
                })?;
                Ok(registered.into_region())
            }
            Err(held) => {
                table.regions.insert(lkey.0, held);
                Err(FabricError::InUse(Object::MemoryRegion))
            }
        }
    }

    /// Holds a region for a window.
    pub(crate) fn hold(&mut self, lkey: Lkey) -> Result<HeldRegion, FabricError> {
        let table = self.read();
        let region = table.get(lkey)?;
        region.registered.check_writable()?;
        Ok(HeldRegion::new(region))
    }

    pub(crate) fn bytes(&self, lkey: Lkey) -> Result<RegionPtr, FabricError> {
        Ok(self.read().get(lkey)?.registered.bytes())
    }

    /// The bytes of a region that no peer can reach.
    pub(crate) fn memory(&self, lkey: Lkey) -> Result<&[u8], FabricError> {
        let table = self.read();
        let region = table.get(lkey)?;
        if region.registered.has_windows() {
            return Err(FabricError::InUse(Object::MemoryRegion));
        }
        let region: *const MemoryRegion = Arc::as_ptr(region);
        // SAFETY: the region is on the heap. Deregistering it, opening a window onto it and copying
        // into it all take `&mut self`, which is borrowed while the reference is in use. Devices
        // only read it.
        unsafe { Ok((*region).registered.as_slice((*region).registered.bytes())) }
    }

    pub(crate) fn copy_out(
        &self,
        lkey: Lkey,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), FabricError> {
        let table = self.read();
        let registered = &table.get(lkey)?.registered;
        let part = registered.bytes().slice(offset, out.len() as u64)?;
        // SAFETY: the region stays registered while the table is borrowed.
        unsafe { part.copy_out(out) };
        Ok(())
    }

    pub(crate) fn reader(&self, lkey: Lkey) -> Result<RegionReader, FabricError> {
        let table = self.read();
        let region = table.get(lkey)?;
        let bytes = region.registered.bytes();
        // SAFETY: the region is not deregistered while there is another reference to it. The owner
        // writes with `copy_in`. Devices write memory beside the processor, in any order.
        Ok(unsafe { RegionReader::new(bytes, Arc::<MemoryRegion>::clone(region)) })
    }

    pub(crate) fn copy_in(
        &mut self,
        lkey: Lkey,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), FabricError> {
        let table = self.read();
        let registered = &table.get(lkey)?.registered;
        registered.check_writable()?;
        let part = registered.bytes().slice(offset, bytes.len() as u64)?;
        // SAFETY: same as in `copy_out`.
        unsafe { part.copy_in(bytes) };
        Ok(())
    }
}
