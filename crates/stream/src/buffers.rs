//! Buffers of one direction: a bounded number, made when they are needed and used again.

use farwrite::Region;

/// The buffers that nothing uses now, and how many more may be made.
pub(crate) struct Buffers {
    pub(crate) buffer_bytes: usize,
    left: u32,
    spare: Vec<Region>,
}

impl Buffers {
    pub(crate) fn new(buffer_bytes: u32, most: u32) -> Self {
        Self {
            buffer_bytes: buffer_bytes as usize,
            left: most,
            spare: Vec::new(),
        }
    }

    /// Returns a buffer. The one that was used last comes first, so that a slow stream touches few.
    pub(crate) fn take(&mut self) -> Option<Region> {
        self.spare.pop().or_else(|| {
            self.left = self.left.checked_sub(1)?;
            Some(Region::owned(vec![0_u8; self.buffer_bytes]))
        })
    }

    /// Whether [`Buffers::take`] returns a buffer.
    pub(crate) fn has_one(&self) -> bool {
        self.left > 0 || !self.spare.is_empty()
    }

    pub(crate) fn give(&mut self, region: Region) {
        self.spare.push(region);
    }

    /// Frees the buffers, and makes none from now on.
    pub(crate) fn end(&mut self) {
        self.left = 0;
        self.spare = Vec::new();
    }
}
