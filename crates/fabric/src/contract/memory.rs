//! Memory that a NIC reads and writes.
//!
//! Peers write into a region while a window onto it is open, at any time. No Rust reference covers
//! such bytes. A NIC places payloads, and the owner copies bytes in and out, with the copy
//! functions of [`racing`]. Concurrent copies give the bytes of either, in any mixture, and are not
//! a data race. A packet is placed before the bit of its chunk is set, so a copy of a chunk that
//! has arrived contains the arrived bytes.
#![allow(unsafe_code)]

use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{FabricError, racing};

/// Shorter regions come from the allocator: each map has whole pages.
#[cfg(target_os = "linux")]
const LEAST_PAGES_BYTES: usize = 1 << 16;

/// Memory that a [`Region`] can own, for example a `Vec<u8>`, a boxed slice or a memory map.
pub trait Memory: AsMut<[u8]> + Send {}
impl<T: AsMut<[u8]> + Send> Memory for T {}

/// Memory before it is registered with a fabric, and after it is deregistered.
///
/// A region that is not registered dereferences to its bytes. [`Fabric::register`] consumes it, and
/// [`Fabric::deregister`] returns it. A ghost dereferences to an empty slice, and so does a read-only
/// region to an empty mutable one.
///
/// [`Fabric::register`]: super::Fabric::register
/// [`Fabric::deregister`]: super::Fabric::deregister
pub struct Region {
    bytes: RegionPtr,
    access: Access,
    /// The pointer from [`Box::into_raw`] for owned memory. `bytes` borrows from it until the
    /// region is dropped.
    owner: Option<*mut dyn Send>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl Region {
    /// A region that owns its memory.
    pub fn owned(memory: impl Memory + 'static) -> Self {
        let owner = Box::into_raw(Box::new(memory));
        // SAFETY: `owner` comes from a box, so it is valid and not shared. The borrow lasts until
        // `drop` restores the box; until then nothing else uses `owner`.
        let bytes = unsafe { (*owner).as_mut() };
        let bytes = RegionPtr {
            place: Backing::Mapped(bytes.as_mut_ptr()),
            length: bytes.len() as u64,
        };
        Self {
            bytes,
            access: Access::Write,
            owner: Some(owner),
        }
    }

    /// A region of zeros. The system provides a page of a long one when the page is first used.
    ///
    /// # Errors
    /// [`FabricError::Io`] if the system refuses the memory.
    pub fn zeroed(length: usize) -> Result<Self, FabricError> {
        #[cfg(target_os = "linux")]
        if length >= LEAST_PAGES_BYTES {
            return super::pages::Pages::new(length).map(Self::owned);
        }
        Ok(Self::owned(vec![0; length]))
    }

    /// A region of memory that is only read, for example a static, an `Arc<[u8]>` or a memory map.
    /// Messages are sent from it. A window onto it, and so a receive into it, is refused
    /// ([`FabricError::ReadOnly`]).
    pub fn read_only(memory: impl AsRef<[u8]> + Send + 'static) -> Self {
        let owner = Box::into_raw(Box::new(memory));
        // SAFETY: as in `owned`. The region never writes to the bytes.
        let bytes = unsafe { (*owner).as_ref() };
        let bytes = RegionPtr {
            place: Backing::Mapped(bytes.as_ptr().cast_mut()),
            length: bytes.len() as u64,
        };
        Self {
            bytes,
            access: Access::Read,
            owner: Some(owner),
        }
    }

    /// A region at `base`, for memory that Rust does not own, such as a C caller's. Dropping the region does
    /// not free it.
    ///
    /// # Safety
    /// Bytes `base..base + length` must be valid for reads and writes (and `base` not null) until
    /// the region is dropped. That is when [`Fabric::deregister`] has given it back and the caller
    /// drops it, or when the fabric with all its queues and workers is dropped. No other region may
    /// cover them. While the region is registered, the fabric reads them, and writes those that a
    /// window covers. The caller must not change bytes that a posted request names, and must not
    /// access any byte while a reference from the region, or from [`Fabric::memory`], is in use.
    ///
    /// [`Fabric::deregister`]: super::Fabric::deregister
    /// [`Fabric::memory`]: super::Fabric::memory
    pub unsafe fn from_raw_parts(base: *mut u8, length: usize) -> Self {
        let bytes = RegionPtr {
            place: Backing::Mapped(base),
            length: length as u64,
        };
        Self {
            bytes,
            access: Access::Write,
            owner: None,
        }
    }

    /// A region at `base`, for memory that Rust does not own and that is only read, as with
    /// [`Region::read_only`].
    ///
    /// # Safety
    /// The same as for [`Region::from_raw_parts`], but the bytes need not be writable, and other regions
    /// that are only read may cover them too.
    #[must_use]
    pub unsafe fn read_only_from_raw_parts(base: *const u8, length: usize) -> Self {
        let bytes = RegionPtr {
            place: Backing::Mapped(base.cast_mut()),
            length: length as u64,
        };
        Self {
            bytes,
            access: Access::Read,
            owner: None,
        }
    }

    /// A ghost: a region of `length` bytes without memory. Writes into it complete, but store
    /// nothing. Sends from it carry zeros. Only fabrics with [`Capabilities::ghosts`] accept it.
    ///
    /// [`Capabilities::ghosts`]: super::Capabilities::ghosts
    #[must_use]
    pub fn ghost(length: u64) -> Self {
        Self {
            bytes: RegionPtr {
                place: Backing::Ghost,
                length,
            },
            access: Access::Write,
            owner: None,
        }
    }

    /// Length in bytes, also of a ghost.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.bytes.length
    }

    /// Whether the length is 0.
    #[must_use]
    pub fn is_ghost(&self) -> bool {
        self.bytes.is_ghost()
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: a region that can be dereferenced is not registered (a fabric keeps regions as
        // `Registered`), so no NIC writes to it. Its bytes belong to its owner, or the caller of
        // `from_raw_parts` guarantees access to them.
        unsafe { self.bytes.as_slice() }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self.bytes.place {
            // SAFETY: same as above, and the region is borrowed exclusively. The length comes from
            // a slice or from `from_raw_parts`, so it fits a `usize`.
            #[allow(clippy::cast_possible_truncation)]
            Backing::Mapped(base) if self.access == Access::Write => unsafe {
                std::slice::from_raw_parts_mut(base, self.bytes.length as usize)
            },
            _ => &mut [],
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(owner) = self.owner {
            // SAFETY: `owner` is from `Box::into_raw`, and this is the only place that frees it.
            drop(unsafe { Box::from_raw(owner) });
        }
    }
}

// SAFETY: the owner is `Send`, and only the region uses it. The caller of `from_raw_parts`
// guarantees access to the bytes from any thread.
unsafe impl Send for Region {}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.bytes.place {
            Backing::Mapped(_) => "memory",
            Backing::Ghost => "ghost",
        };
        write!(f, "{} bytes of {kind}", self.length())
    }
}

/// A range of bytes of a region, as an address and a length.
///
/// It can be copied and stored. Using the address is `unsafe`: it is valid only while the region is
/// registered, and peers write through open windows at any time. A plain read during such a write
/// is a data race; [`Fabric::copy_out`] reads without one.
///
/// [`Fabric::copy_out`]: super::Fabric::copy_out
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionPtr {
    place: Backing,
    length: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    Mapped(*mut u8),
    /// Nowhere.
    Ghost,
}

// SAFETY: this is only an address. Every use of it is `unsafe` and has its own justification.
unsafe impl Send for RegionPtr {}
// SAFETY: same as for `Send`.
unsafe impl Sync for RegionPtr {}

impl RegionPtr {
    /// Length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether the range has no bytes.
    #[must_use]
    pub fn is_ghost(&self) -> bool {
        self.place == Backing::Ghost
    }

    /// Pointer to the first byte; `None` for a ghost.
    #[must_use]
    pub fn as_ptr(&self) -> Option<*mut u8> {
        match self.place {
            Backing::Mapped(base) => Some(base),
            Backing::Ghost => None,
        }
    }

    /// The bytes `offset..offset + length` of this range.
    ///
    /// # Errors
    /// [`FabricError::OutOfBounds`] if the range is too short.
    pub fn slice(&self, offset: u64, length: u64) -> Result<Self, FabricError> {
        let limit = self.length;
        let fits = offset.checked_add(length).is_some_and(|end| end <= limit);
        if !fits {
            return Err(FabricError::OutOfBounds {
                offset,
                length,
                limit,
            });
        }
        // The offset is at most the length of memory, which fits a `usize`. For a ghost it is not
        // used.
        #[allow(clippy::cast_possible_truncation)]
        let place = match self.place {
            Backing::Mapped(base) => Backing::Mapped(base.wrapping_add(offset as usize)),
            place => place,
        };
        Ok(Self { place, length })
    }

    /// Copies `bytes` to the start of the range, as many as fit; a ghost ignores them, and so does memory
    /// that is not mapped.
    ///
    /// # Safety
    /// The memory must be registered.
    pub unsafe fn copy_in(&self, bytes: &[u8]) {
        if let Some(base) = self.as_ptr() {
            let length = bytes.len().min(self.length_in_memory());
            // SAFETY: the memory holds `length` bytes. While it is registered, only this function
            // writes it, and while a window onto it is open, only `copy_out` reads it.
            unsafe { racing::store(base, &bytes[..length]) }
        }
    }

    /// Copies the start of the range to `out`, as many bytes as there are; zeros from a ghost, and from
    /// memory that is not mapped.
    ///
    /// # Safety
    /// The memory must be registered.
    pub unsafe fn copy_out(&self, out: &mut [u8]) {
        match self.as_ptr() {
            Some(base) => {
                let length = out.len().min(self.length_in_memory());
                // SAFETY: as in `copy_in`.
                unsafe { racing::load(base, &mut out[..length]) }
            }
            None => out.fill(0),
        }
    }

    /// The bytes as a slice; empty for a ghost, and if it is not mapped.
    ///
    /// # Safety
    /// While the reference is in use, the memory must stay registered, and nobody may write to it.
    unsafe fn as_slice<'a>(&self) -> &'a [u8] {
        match self.as_ptr() {
            // SAFETY: guaranteed by the caller; the length is that of the memory.
            Some(base) => unsafe { std::slice::from_raw_parts(base, self.length_in_memory()) },
            None => &[],
        }
    }

    /// The length of memory always fits a `usize`. The length of a ghost may not.
    #[allow(clippy::cast_possible_truncation)]
    fn length_in_memory(&self) -> usize {
        self.length as usize
    }
}

/// A region that a fabric holds. It gives no safe reference to its bytes.
#[derive(Debug)]
pub struct Registered {
    region: Region,
    /// Windows that are open, or were closed and may still be written through.
    windows: AtomicU32,
}

// SAFETY: shared access only gives the address of the bytes, or is `unsafe`.
unsafe impl Sync for Registered {}

impl Registered {
    /// Takes a region that is being registered.
    #[must_use]
    pub fn new(region: Region) -> Self {
        Self {
            region,
            windows: AtomicU32::new(0),
        }
    }

    /// Converts back to a region. No fabric holds it any more.
    #[must_use]
    pub fn into_region(self) -> Region {
        self.region
    }

    /// All bytes of the region.
    #[must_use]
    pub fn bytes(&self) -> RegionPtr {
        self.region.bytes
    }

    /// Checks that the region may be written. A fabric asks before it opens a window or copies bytes in.
    ///
    /// # Errors
    /// [`FabricError::ReadOnly`].
    pub fn check_writable(&self) -> Result<(), FabricError> {
        match self.region.access {
            Access::Write => Ok(()),
            Access::Read => Err(FabricError::ReadOnly),
        }
    }

    /// Whether a window onto the region is held. If not, everything that was written through windows
    /// is visible.
    #[must_use]
    pub fn has_windows(&self) -> bool {
        self.windows.load(Ordering::Acquire) > 0
    }

    /// A part of the region as a slice; empty for a ghost.
    ///
    /// # Safety
    /// While the reference is in use, no window may be open onto the region, and nobody may write
    /// to it.
    #[must_use]
    pub unsafe fn as_slice(&self, part: RegionPtr) -> &[u8] {
        // SAFETY: `part` belongs to this region, which stays registered while it is borrowed. The
        // caller guarantees the rest.
        unsafe { part.as_slice() }
    }
}

/// A window's hold of its region. It keeps the memory registered, and so valid.
#[derive(Debug)]
pub struct WindowHold(Arc<Registered>);

impl WindowHold {
    /// Holds a region.
    #[must_use]
    pub fn new(region: &Arc<Registered>) -> Self {
        region.windows.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(region))
    }
}

impl Drop for WindowHold {
    fn drop(&mut self) {
        // Release: who sees that no window is left also sees what was written through it.
        self.0.windows.fetch_sub(1, Ordering::Release);
    }
}

/// Holds a region, and copies bytes out of it on any thread. [`Fabric::reader`] makes it.
///
/// The region can be used as before, but not deregistered while a reader exists. If a peer or the
/// owner writes the bytes at the same time, a copy has old bytes, new bytes or a mixture.
///
/// [`Fabric::reader`]: super::Fabric::reader
#[derive(Clone)]
pub struct RegionReader {
    bytes: RegionPtr,
    /// Keeps `bytes` registered.
    _held: Arc<dyn Any + Send + Sync>,
}

impl RegionReader {
    /// Makes a reader of a region.
    ///
    /// # Safety
    /// As long as `held` or a clone of it exists, `bytes` must be registered, and this program writes to
    /// them only with [`RegionPtr::copy_in`]. Devices may write them.
    #[must_use]
    pub unsafe fn new(bytes: RegionPtr, held: Arc<dyn Any + Send + Sync>) -> Self {
        Self { bytes, _held: held }
    }

    /// Copies bytes of the region, from `offset` on, to `out`; zeros from a ghost.
    ///
    /// # Errors
    /// [`FabricError::OutOfBounds`].
    pub fn copy_out(&self, offset: u64, out: &mut [u8]) -> Result<(), FabricError> {
        let part = self.bytes.slice(offset, out.len() as u64)?;
        // SAFETY: the region is registered while this value exists, as the maker guarantees.
        unsafe { part.copy_out(out) };
        Ok(())
    }
}

impl std::fmt::Debug for RegionReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a reader of {} bytes", self.bytes.length())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_memory_comes_back_as_it_was_changed() {
        let mut region = Region::owned([1_u8, 2, 3]);
        region[1] = 7;
        let registered = Registered::new(region);
        let part = registered.bytes().slice(2, 1).unwrap();
        // SAFETY: it is registered.
        unsafe { part.copy_in(&[9, 9]) };
        assert_eq!(*registered.into_region(), [1, 7, 9]);
    }

    #[test]
    fn raw_memory_stays_its_owners() {
        let mut memory = vec![5_u8; 4];
        let base = memory.as_mut_ptr();
        // SAFETY: the vector outlives the region and is not used meanwhile.
        let mut region = unsafe { Region::from_raw_parts(base, 4) };
        region[0] = 1;
        drop(region);
        assert_eq!(memory, [1, 5, 5, 5]);
    }

    #[test]
    fn memory_that_is_only_read_gives_no_mutable_bytes() {
        const BYTES: &[u8] = &[1, 2, 3];
        let mut region = Region::read_only(BYTES);
        assert_eq!(region.iter_mut().count(), 0);
        assert_eq!(*region, *BYTES);
        let shared: Arc<[u8]> = Arc::new([4, 5]);
        let registered = Registered::new(Region::read_only(shared.clone()));
        assert!(matches!(
            registered.check_writable(),
            Err(FabricError::ReadOnly)
        ));
        let mut out = [0; 2];
        // SAFETY: it is registered.
        unsafe { registered.bytes().copy_out(&mut out) };
        assert_eq!(out, [4, 5]);
        drop(registered.into_region());
        assert_eq!(Arc::strong_count(&shared), 1);
        // SAFETY: the bytes are static.
        let raw = unsafe { Region::read_only_from_raw_parts(BYTES.as_ptr(), 3) };
        assert_eq!(*raw, *BYTES);
        assert!(Registered::new(raw).check_writable().is_err());
    }

    #[test]
    fn a_reader_keeps_the_region_and_is_no_window() {
        let registered = Arc::new(Registered::new(Region::owned([1_u8, 2, 3])));
        let bytes = registered.bytes();
        // SAFETY: the reader keeps the region registered.
        let reader = unsafe { RegionReader::new(bytes, registered.clone()) };
        assert!(!registered.has_windows());
        let hold = WindowHold::new(&registered);
        assert!(registered.has_windows());
        drop(hold);
        assert!(!registered.has_windows());
        drop(registered);
        let thread = std::thread::spawn(move || {
            let mut out = [0; 2];
            reader.copy_out(1, &mut out).unwrap();
            (out, reader.copy_out(2, &mut out).is_err())
        });
        assert_eq!(thread.join().unwrap(), ([2, 3], true));
    }

    #[test]
    fn parts_of_a_region_stay_within_it() {
        for region in [Region::owned(vec![0; 10]), Region::ghost(10)] {
            let bytes = region.bytes;
            assert_eq!(bytes.slice(3, 7).unwrap().length(), 7);
            assert_eq!(bytes.slice(10, 0).unwrap().length(), 0);
            let part = bytes.slice(3, 7).unwrap();
            for (offset, length) in [(0, 8), (8, 0), (u64::MAX, 1), (1, u64::MAX)] {
                let error = part.slice(offset, length).unwrap_err();
                assert!(matches!(error, FabricError::OutOfBounds { limit: 7, .. }));
            }
        }
    }

    #[test]
    fn a_ghost_has_a_length_and_no_bytes() {
        let ghost = Region::ghost(1 << 50);
        assert_eq!(
            (ghost.length(), ghost.len(), ghost.is_ghost()),
            (1 << 50, 0, true)
        );
        let mut out = [1; 3];
        // SAFETY: there is no memory.
        unsafe {
            ghost.bytes.copy_in(&[7; 3]);
            ghost.bytes.copy_out(&mut out);
        }
        assert_eq!(out, [0; 3]);
    }
}
