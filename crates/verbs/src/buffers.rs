//! Memory of the fabric itself, in equal parts: for SENDs that leave or arrive.
#![allow(unsafe_code)]

use std::sync::Arc;

use farwrite_fabric::contract::{FabricError, Region, RegionPtr, Registered};

use crate::device::{Access, Memory, ProtectionDomain};

/// Registered buffers of one size.
pub(crate) struct Buffers {
    memory: Memory,
    registered: Arc<Registered>,
    each: u32,
}

impl Buffers {
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        count: u32,
        each: u32,
        access: Access,
    ) -> Result<Self, FabricError> {
        let bytes = count as usize * each as usize;
        let region = Region::owned(vec![0_u8; bytes.max(1)]);
        let registered = Arc::new(Registered::new(region));
        let memory = Memory::new(domain, &registered, 0, registered.bytes().length(), access)?;
        Ok(Self {
            memory,
            registered,
            each,
        })
    }

    /// The registration of all buffers.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Address, length and key of a buffer.
    pub(crate) fn place(&self, index: u32) -> (u64, u32, u32) {
        let base = self.registered.bytes().as_ptr().unwrap_or_default();
        let addr = base as u64 + u64::from(index) * u64::from(self.each);
        (addr, self.each, self.memory.local_key())
    }

    /// Copies bytes to the start of a buffer, as many as fit.
    pub(crate) fn write(&self, index: u32, bytes: &[u8]) -> Result<(), FabricError> {
        let part = self.part(index, bytes.len())?;
        // SAFETY: it is registered while it is borrowed.
        unsafe { part.copy_in(bytes) };
        Ok(())
    }

    /// Copies the first bytes of a buffer.
    pub(crate) fn read(&self, index: u32, length: u32) -> Result<Vec<u8>, FabricError> {
        let mut bytes = vec![0; length as usize];
        let part = self.part(index, bytes.len())?;
        // SAFETY: same as above.
        unsafe { part.copy_out(&mut bytes) };
        Ok(bytes)
    }

    fn part(&self, index: u32, length: usize) -> Result<RegionPtr, FabricError> {
        let each = u64::from(self.each);
        let buffer = self
            .registered
            .bytes()
            .slice(u64::from(index) * each, each)?;
        buffer.slice(0, length as u64)
    }
}
