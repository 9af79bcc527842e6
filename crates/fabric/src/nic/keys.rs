//! Which memory is registered, and under which keys peers reach it.

use std::collections::VecDeque;

use farwrite_wire::header::Reth;

use super::numbers::{ByNumber, Numbers};
use crate::contract::{Buffer, DropReason, FabricError, Lkey, Rkey, Sge};

/// Most regions, most live remote keys, and most slots of one root key. Far below 2^32, so that a
/// key guessed at random hits one of them with probability 2^-12 at worst.
const MOST: usize = 1 << 20;

/// How many revoked keys are remembered, to tell a late packet from a forged one.
const REVOKED_KEPT: usize = 1 << 12;

/// Registered regions and remote keys.
#[derive(Default)]
pub(super) struct Keys {
    regions: ByNumber<Region>,
    remote: ByNumber<Remote>,
    /// Keys of `remote` that are [`Remote::Revoked`], the oldest first.
    revoked: VecDeque<u32>,
}

struct Region {
    buffer: Buffer,
    /// Windows that remote keys have onto it.
    windows: u64,
}

impl Region {
    fn limit(&self) -> u64 {
        self.bytes().len() as u64
    }

    fn bytes(&self) -> &[u8] {
        (*self.buffer).as_ref()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        (*self.buffer).as_mut()
    }
}

/// What a remote key stands for.
enum Remote {
    Window(Window),
    Root(Root),
    Revoked,
}

/// Bytes `offset..offset + length` of a region.
#[derive(Clone, Copy)]
struct Window {
    lkey: u32,
    offset: u64,
    length: u64,
}

struct Root {
    slot_bytes: u64,
    slots: Vec<Option<Window>>,
}

/// What became of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    /// It is in memory.
    InMemory,
    /// The slot has the null key.
    Nowhere,
}

impl Keys {
    pub(super) fn register(
        &mut self,
        numbers: &mut Numbers,
        buffer: Buffer,
    ) -> Result<Lkey, FabricError> {
        if self.regions.len() >= MOST {
            return Err(FabricError::OutOfResources("memory region"));
        }
        let lkey = numbers.key(&self.regions);
        self.regions.insert(lkey, Region { buffer, windows: 0 });
        Ok(Lkey(lkey))
    }

    pub(super) fn deregister(&mut self, lkey: Lkey) -> Result<Buffer, FabricError> {
        if self.region(lkey)?.windows > 0 {
            return Err(FabricError::InUse("the memory region"));
        }
        let region = self.regions.remove(&lkey.0);
        Ok(region.ok_or(FabricError::UnknownKey(lkey.0))?.buffer)
    }

    pub(super) fn memory(&self, lkey: Lkey) -> Result<&[u8], FabricError> {
        Ok(self.region(lkey)?.bytes())
    }

    pub(super) fn memory_mut(&mut self, lkey: Lkey) -> Result<&mut [u8], FabricError> {
        Ok(self.region_mut(lkey)?.bytes_mut())
    }

    pub(super) fn memory_pair(
        &mut self,
        read: Lkey,
        write: Lkey,
    ) -> Result<(&[u8], &mut [u8]), FabricError> {
        if read == write {
            return Err(FabricError::InUse("the memory region"));
        }
        let [from, to] = self.regions.get_disjoint_mut([&read.0, &write.0]);
        let from = from.ok_or(FabricError::UnknownKey(read.0))?;
        let to = to.ok_or(FabricError::UnknownKey(write.0))?;
        Ok((from.bytes(), to.bytes_mut()))
    }

    pub(super) fn expose(
        &mut self,
        numbers: &mut Numbers,
        lkey: Lkey,
        offset: u64,
        length: u64,
    ) -> Result<Rkey, FabricError> {
        let rkey = self.fresh(numbers)?;
        let window = self.open(lkey, offset, length)?;
        self.remote.insert(rkey, Remote::Window(window));
        Ok(Rkey(rkey))
    }

    pub(super) fn create_root_key(
        &mut self,
        numbers: &mut Numbers,
        slots: u32,
        slot_bytes: u64,
    ) -> Result<Rkey, FabricError> {
        if slots == 0 || slots as usize > MOST {
            return Err(FabricError::BadAttribute {
                name: "slots",
                value: slots.to_string(),
                want: format!("1 to {MOST}"),
            });
        }
        if slot_bytes == 0 || slot_bytes.checked_mul(u64::from(slots)).is_none() {
            return Err(FabricError::BadAttribute {
                name: "slot_bytes",
                value: slot_bytes.to_string(),
                want: format!("at least 1, and {slots} slots within 64 bits of address"),
            });
        }
        let rkey = self.fresh(numbers)?;
        let slots = vec![None; slots as usize];
        self.remote
            .insert(rkey, Remote::Root(Root { slot_bytes, slots }));
        Ok(Rkey(rkey))
    }

    pub(super) fn bind(
        &mut self,
        root: Rkey,
        slot: u32,
        lkey: Lkey,
        offset: u64,
        length: u64,
    ) -> Result<(), FabricError> {
        let slot_bytes = self.root(root)?.slot_bytes;
        check_range(0, length, slot_bytes)?;
        if self.slot(root, slot)?.is_some() {
            return Err(FabricError::InUse("the slot"));
        }
        let window = self.open(lkey, offset, length)?;
        *self.slot(root, slot)? = Some(window);
        Ok(())
    }

    pub(super) fn unbind(&mut self, root: Rkey, slot: u32) -> Result<(), FabricError> {
        if let Some(window) = self.slot(root, slot)?.take() {
            self.close(window);
        }
        Ok(())
    }

    pub(super) fn revoke(&mut self, rkey: Rkey) -> Result<(), FabricError> {
        let unknown = FabricError::UnknownKey(rkey.0);
        let entry = self.remote.get_mut(&rkey.0).ok_or(unknown)?;
        match std::mem::replace(entry, Remote::Revoked) {
            Remote::Revoked => return Err(FabricError::UnknownKey(rkey.0)),
            Remote::Window(window) => self.close(window),
            Remote::Root(root) => {
                for window in root.slots.into_iter().flatten() {
                    self.close(window);
                }
            }
        }
        self.revoked.push_back(rkey.0);
        if self.revoked.len() > REVOKED_KEPT
            && let Some(oldest) = self.revoked.pop_front()
        {
            self.remote.remove(&oldest);
        }
        Ok(())
    }

    /// Puts `payload` where a write wants it, or says why not; then nothing was written. Without
    /// payload there is nothing to check (IBTA 9.7.4.1.5).
    pub(super) fn place(&mut self, write: Reth, payload: &[u8]) -> Result<Placed, DropReason> {
        if payload.is_empty() {
            return Ok(Placed::InMemory);
        }
        let (addr, length) = (write.remote_addr, payload.len() as u64);
        let (window, start) = match self.remote.get(&write.rkey) {
            None => return Err(DropReason::UnknownKey),
            Some(Remote::Revoked) => return Err(DropReason::RevokedKey),
            Some(Remote::Window(window)) => (*window, addr),
            Some(Remote::Root(root)) => {
                let (slot, start) = (addr / root.slot_bytes, addr % root.slot_bytes);
                let slot = usize::try_from(slot).map_err(|_| DropReason::OutOfBounds)?;
                let slot = root.slots.get(slot).ok_or(DropReason::OutOfBounds)?;
                // Checked before looking at the slot: what straddles two slots is wrong whether
                // or not they are bound.
                within(start, length, root.slot_bytes).ok_or(DropReason::OutOfBounds)?;
                match slot {
                    None => return Ok(Placed::Nowhere),
                    Some(window) => (*window, start),
                }
            }
        };
        within(start, length, window.length).ok_or(DropReason::OutOfBounds)?;
        let first = window.offset.checked_add(start);
        self.regions
            .get_mut(&window.lkey)
            .zip(first.and_then(|first| usize::try_from(first).ok()))
            .and_then(|(region, first)| {
                let end = first.checked_add(payload.len())?;
                region.bytes_mut().get_mut(first..end)
            })
            .ok_or(DropReason::OutOfBounds)?
            .copy_from_slice(payload);
        Ok(Placed::InMemory)
    }

    /// The bytes that a scatter entry names.
    pub(super) fn slice(&self, sge: &Sge) -> Result<&[u8], FabricError> {
        let bytes = self.region(sge.lkey)?.bytes();
        let range = || {
            let first = usize::try_from(sge.offset).ok()?;
            bytes.get(first..first.checked_add(sge.length as usize)?)
        };
        range().ok_or(FabricError::OutOfBounds {
            offset: sge.offset,
            length: u64::from(sge.length),
            limit: bytes.len() as u64,
        })
    }

    fn region(&self, lkey: Lkey) -> Result<&Region, FabricError> {
        let region = self.regions.get(&lkey.0);
        region.ok_or(FabricError::UnknownKey(lkey.0))
    }

    fn region_mut(&mut self, lkey: Lkey) -> Result<&mut Region, FabricError> {
        let region = self.regions.get_mut(&lkey.0);
        region.ok_or(FabricError::UnknownKey(lkey.0))
    }

    fn root(&mut self, rkey: Rkey) -> Result<&mut Root, FabricError> {
        match self.remote.get_mut(&rkey.0) {
            Some(Remote::Root(root)) => Ok(root),
            _ => Err(FabricError::UnknownKey(rkey.0)),
        }
    }

    fn slot(&mut self, rkey: Rkey, slot: u32) -> Result<&mut Option<Window>, FabricError> {
        let slots = &mut self.root(rkey)?.slots;
        let limit = slots.len() as u64;
        slots
            .get_mut(slot as usize)
            .ok_or(FabricError::OutOfBounds {
                offset: u64::from(slot),
                length: 1,
                limit,
            })
    }

    /// A number for a new remote key.
    fn fresh(&self, numbers: &mut Numbers) -> Result<u32, FabricError> {
        if self.remote.len() - self.revoked.len() >= MOST {
            return Err(FabricError::OutOfResources("remote key"));
        }
        Ok(numbers.key(&self.remote))
    }

    /// A window onto a region, which cannot go away until it is closed.
    fn open(&mut self, lkey: Lkey, offset: u64, length: u64) -> Result<Window, FabricError> {
        let region = self.region_mut(lkey)?;
        check_range(offset, length, region.limit())?;
        region.windows += 1;
        Ok(Window {
            lkey: lkey.0,
            offset,
            length,
        })
    }

    fn close(&mut self, window: Window) {
        if let Some(region) = self.regions.get_mut(&window.lkey) {
            region.windows -= 1;
        }
    }
}

/// `Some` if `start..start + length` lies within `0..limit`.
fn within(start: u64, length: u64, limit: u64) -> Option<()> {
    (start.checked_add(length)? <= limit).then_some(())
}

fn check_range(offset: u64, length: u64, limit: u64) -> Result<(), FabricError> {
    within(offset, length, limit).ok_or(FabricError::OutOfBounds {
        offset,
        length,
        limit,
    })
}
