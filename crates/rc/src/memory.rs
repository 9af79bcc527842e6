//! Memory of a NIC that peers write and read.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use farwrite_net::Payload;

/// Registered memory of a NIC, by key. All queue pairs of the NIC share it.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    regions: BTreeMap<u32, Region>,
}

#[derive(Clone, Debug)]
struct Region {
    addr: u64,
    length: u64,
    /// `None` in a ghost region, which has a length but no bytes.
    bytes: Option<Vec<u8>>,
}

/// Why memory cannot be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The key already has a region.
    #[error("key {0:#x} is in use; choose another one")]
    KeyInUse(u32),
    /// The region would end beyond the address space.
    #[error("{length} bytes at address {addr:#x} end beyond 2^64; choose a lower address")]
    TooLong {
        /// The first address.
        addr: u64,
        /// Length in bytes.
        length: u64,
    },
}

impl Memory {
    /// Registers `bytes` at address `addr` under a key.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn register(&mut self, rkey: u32, addr: u64, bytes: Vec<u8>) -> Result<(), RegisterError> {
        self.add(rkey, addr, bytes.len() as u64, Some(bytes))
    }

    /// Registers a ghost region: a length without bytes. Writes store nothing, and reads return
    /// [`Payload::Ghost`].
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn register_ghost(
        &mut self,
        rkey: u32,
        addr: u64,
        length: u64,
    ) -> Result<(), RegisterError> {
        self.add(rkey, addr, length, None)
    }

    /// The bytes under a key; `None` if the key is unknown or its region is a ghost.
    #[must_use]
    pub fn bytes(&self, rkey: u32) -> Option<&[u8]> {
        self.regions.get(&rkey)?.bytes.as_deref()
    }

    fn add(
        &mut self,
        rkey: u32,
        addr: u64,
        length: u64,
        bytes: Option<Vec<u8>>,
    ) -> Result<(), RegisterError> {
        if self.regions.contains_key(&rkey) {
            return Err(RegisterError::KeyInUse(rkey));
        }
        if addr.checked_add(length).is_none() {
            return Err(RegisterError::TooLong { addr, length });
        }
        let region = Region {
            addr,
            length,
            bytes,
        };
        self.regions.insert(rkey, region);
        Ok(())
    }

    /// Whether a range lies within the region of a key. An empty range needs no key (IBTA,
    /// "Inbound Packet Validation").
    pub(crate) fn allows(&self, rkey: u32, addr: u64, bytes: u32) -> bool {
        bytes == 0
            || self
                .regions
                .get(&rkey)
                .is_some_and(|r| r.holds(addr, bytes))
    }

    /// Writes a payload into a range that [`allows`](Self::allows) accepts. A ghost payload is
    /// written as zeros.
    pub(crate) fn write(&mut self, rkey: u32, addr: u64, payload: &Payload) {
        let length = payload.carried_bytes() as usize;
        let region = self.regions.get_mut(&rkey);
        let Some(range) = region.and_then(|region| region.range_mut(addr, length)) else {
            return;
        };
        match payload {
            Payload::Bytes(bytes) => range.copy_from_slice(bytes),
            Payload::Ghost(_) | Payload::Trimmed(_) => range.fill(0),
        }
    }

    /// Reads a range that [`allows`](Self::allows) accepts.
    pub(crate) fn read(&self, rkey: u32, addr: u64, bytes: u32) -> Payload {
        let region = self.regions.get(&rkey);
        let range = region.and_then(|region| {
            let from = usize::try_from(addr.checked_sub(region.addr)?).ok()?;
            region.bytes.as_ref()?.get(from..)?.get(..bytes as usize)
        });
        range.map_or(Payload::Ghost(bytes), |range| Payload::Bytes(range.into()))
    }
}

impl Region {
    fn holds(&self, addr: u64, bytes: u32) -> bool {
        let end = addr.checked_add(u64::from(bytes));
        addr >= self.addr && end.is_some_and(|end| end <= self.addr + self.length)
    }

    fn range_mut(&mut self, addr: u64, length: usize) -> Option<&mut [u8]> {
        let from = usize::try_from(addr.checked_sub(self.addr)?).ok()?;
        self.bytes.as_mut()?.get_mut(from..)?.get_mut(..length)
    }
}
