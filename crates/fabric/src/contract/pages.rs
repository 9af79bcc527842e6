//! Zeroed memory of the system.
#![allow(unsafe_code)]

use std::io;
use std::ptr::{self, NonNull};

use super::FabricError;

/// Zeroed memory of which each page exists from its first use on.
///
/// A vector of zeros is the same only if the allocator has memory that nobody used before. What it uses again, it
/// clears first, so that all pages exist.
pub(super) struct Pages {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the map belongs to this value alone, and any thread may access and remove it.
unsafe impl Send for Pages {}

impl Pages {
    /// # Errors
    /// [`FabricError::Io`] if the system refuses, for example because `length` is 0.
    pub(super) fn new(length: usize) -> Result<Self, FabricError> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: without an address and a file, the map covers no memory that is in use.
        let base = unsafe { libc::mmap(ptr::null_mut(), length, access, flags, -1, 0) };
        let mapped = NonNull::new(base.cast()).filter(|_| base != libc::MAP_FAILED);
        let base = mapped.ok_or_else(|| FabricError::Io {
            what: format!("taking {length} bytes of memory"),
            source: io::Error::last_os_error(),
        })?;
        Ok(Self { base, length })
    }
}

impl AsMut<[u8]> for Pages {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the map has `length` bytes, which are initialized, until `drop`. The borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the map is that of `new`, and nothing borrows from it any more.
        unsafe {
            libc::munmap(self.base.as_ptr().cast(), self.length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_bytes() -> usize {
        // SAFETY: the call has no preconditions.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(bytes).expect("a size")
    }

    /// Whether each page exists.
    fn exist(pages: &Pages) -> Vec<bool> {
        let mut exist = vec![0_u8; pages.length.div_ceil(page_bytes())];
        let start = pages.base.as_ptr().cast();
        // SAFETY: the map is live, and `exist` has a byte for each of its pages.
        let result = unsafe { libc::mincore(start, pages.length, exist.as_mut_ptr()) };
        assert_eq!(result, 0);
        exist.iter().map(|exists| exists & 1 == 1).collect()
    }

    #[test]
    fn a_page_exists_from_its_first_use_on() {
        let mut pages = Pages::new(20 * page_bytes()).unwrap();
        assert!(!exist(&pages).contains(&true));
        pages.as_mut()[3 * page_bytes() + 5] = 7;
        assert!(exist(&pages)[3]);
        let sum: u64 = pages.as_mut().iter().map(|byte| u64::from(*byte)).sum();
        assert_eq!(sum, 7);
    }

    #[test]
    fn no_pages_are_an_error() {
        let error = Pages::new(0).err().unwrap().to_string();
        assert!(error.starts_with("taking 0 bytes of memory: "), "{error}");
    }
}
