//! The memory of an operation.
#![allow(unsafe_code)]

/// Memory that an operation reads or writes. It has no alignment to keep.
///
/// No packet is ever placed in it and none is sent from it: data passes through buffers of the
/// member. So an operation that has ended, however it ended, does not touch it any more.
#[derive(Debug)]
pub struct Buffer(Inner);

#[derive(Debug)]
enum Inner {
    Owned(Vec<u8>),
    Raw { base: *mut u8, length: usize },
}

// SAFETY: a vector is `Send`. The caller of `from_raw_parts` gives access to the bytes to whichever
// thread holds the buffer.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Memory of a caller that Rust does not own, such as a tensor's.
    ///
    /// # Safety
    /// Bytes `base..base + length` must be valid for reads, and for writes if it is an output, from
    /// any thread, and nobody else may write them, nor read an output's, until the buffer is
    /// dropped or given back. That is when the operation's [`Ticket`](crate::Ticket) is done, or
    /// when the [`Communicator`](crate::Communicator) or [`Member`](crate::Member) is dropped.
    /// `base` may be dangling if `length` is 0.
    pub unsafe fn from_raw_parts(base: *mut u8, length: usize) -> Self {
        Self(Inner::Raw { base, length })
    }

    /// Bytes of it.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Inner::Owned(bytes) => bytes.len(),
            Inner::Raw { length, .. } => *length,
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The vector that it was made from; `None` for memory of a caller.
    #[must_use]
    pub fn into_vec(self) -> Option<Vec<u8>> {
        match self.0 {
            Inner::Owned(bytes) => Some(bytes),
            Inner::Raw { .. } => None,
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Inner::Owned(bytes) => bytes,
            Inner::Raw { length: 0, .. } => &[],
            // SAFETY: valid for reads, and not written by others, as the caller of `from_raw_parts`
            // promises for as long as the buffer exists. Writes of ours need `&mut self`.
            Inner::Raw { base, length } => unsafe { std::slice::from_raw_parts(*base, *length) },
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Inner::Owned(bytes) => bytes,
            Inner::Raw { length: 0, .. } => &mut [],
            // SAFETY: as above, valid for writes, and not read by others.
            Inner::Raw { base, length } => unsafe {
                std::slice::from_raw_parts_mut(*base, *length)
            },
        }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Inner::Owned(bytes))
    }
}

/// The memory of an operation: what it reads and what it writes. [`Operation`](crate::Operation)
/// says which of them an operation takes, and how long each is. They must not overlap.
#[derive(Debug, Default)]
pub struct Buffers {
    /// What is read.
    pub input: Option<Buffer>,
    /// What is written, and also read where the operation works in place.
    pub output: Option<Buffer>,
}

impl Buffers {
    /// One buffer that is read and written.
    pub fn in_place(buffer: impl Into<Buffer>) -> Self {
        Self {
            input: None,
            output: Some(buffer.into()),
        }
    }

    /// A buffer that is read, and one that is written.
    pub fn new(input: impl Into<Buffer>, output: impl Into<Buffer>) -> Self {
        Self {
            input: Some(input.into()),
            output: Some(output.into()),
        }
    }

    /// A buffer that is read.
    pub fn input(buffer: impl Into<Buffer>) -> Self {
        Self {
            input: Some(buffer.into()),
            output: None,
        }
    }
}
