//! Memory that peers write and read.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use farwrite_net::Payload;

/// Registered memory of a NIC, by key. All its queue pairs share it.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    regions: BTreeMap<u32, Region>,
}

#[derive(Clone, Debug)]
struct Region {
    addr: u64,
    length: u64,
    /// `None` in a region that stands for memory and has no bytes.
    bytes: Option<Vec<u8>>,
}

impl Memory {
    /// Registers `bytes` at address `addr` under a key. Returns `false`, and changes nothing, if
    /// the key is taken or the region would end beyond the address space.
    pub fn register(&mut self, rkey: u32, addr: u64, bytes: Vec<u8>) -> bool {
        self.add(rkey, addr, bytes.len() as u64, Some(bytes))
    }

    /// Registers `length` bytes that exist as a length only: writes leave no trace, reads return
    /// [`Payload::Ghost`]. Returns `false` as [`register`](Self::register) does.
    pub fn register_ghost(&mut self, rkey: u32, addr: u64, length: u64) -> bool {
        self.add(rkey, addr, length, None)
    }

    /// The bytes under a key; `None` if it is unknown or its region has no bytes.
    #[must_use]
    pub fn bytes(&self, rkey: u32) -> Option<&[u8]> {
        self.regions.get(&rkey)?.bytes.as_deref()
    }

    fn add(&mut self, rkey: u32, addr: u64, length: u64, bytes: Option<Vec<u8>>) -> bool {
        if self.regions.contains_key(&rkey) || addr.checked_add(length).is_none() {
            return false;
        }
        let region = Region {
            addr,
            length,
            bytes,
        };
        self.regions.insert(rkey, region);
        true
    }

    /// Whether a range lies within the region of a key. An empty range needs no key (IBTA
    /// 9.7.4.1).
    pub(crate) fn allows(&self, rkey: u32, addr: u64, bytes: u32) -> bool {
        bytes == 0
            || self
                .regions
                .get(&rkey)
                .is_some_and(|r| r.holds(addr, bytes))
    }

    /// Writes a payload into a range that [`allows`](Self::allows) accepts. A ghost is zeros.
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
