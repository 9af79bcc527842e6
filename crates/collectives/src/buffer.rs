//! The memory of an operation.
#![allow(unsafe_code)]

/// Memory that an operation reads or writes. It needs no alignment.
///
/// The fabric never places a packet in this memory and never sends one from it: data passes through
/// buffers of the member. So an operation that has ended, for any reason, does not access it any
/// more.
#[derive(Debug)]
pub struct Buffer(Inner);

#[derive(Debug)]
enum Inner {
    Owned(Vec<u8>),
    Raw { base: *mut u8, length: usize },
}

// SAFETY: a vector is `Send`. The caller of `from_raw_parts` permits any thread that holds the
// buffer to access the bytes.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Wraps memory of a caller that Rust does not own, for example the memory of a tensor.
    ///
    /// # Safety
    /// Bytes `base..base + length` must be valid for reads from any thread, and for writes too if
    /// the buffer is an output. No other code may write them, or read those of an output, until the
    /// buffer is dropped or given back. That happens when the operation's [`Ticket`](crate::Ticket)
    /// is done, or when the [`Communicator`](crate::Communicator) or [`Member`](crate::Member) is
    /// dropped. `base` may be dangling if `length` is 0.
    pub unsafe fn from_raw_parts(base: *mut u8, length: usize) -> Self {
        Self(Inner::Raw { base, length })
    }

    /// The size of the buffer in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Inner::Owned(bytes) => bytes.len(),
            Inner::Raw { length, .. } => *length,
        }
    }

    /// Whether the buffer has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The vector that the buffer was created from; `None` for memory of a caller.
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
            // SAFETY: the bytes are valid for reads and not written by others, as the caller of
            // `from_raw_parts` guarantees while the buffer exists. Our own writes need `&mut self`.
            Inner::Raw { base, length } => unsafe { std::slice::from_raw_parts(*base, *length) },
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Inner::Owned(bytes) => bytes,
            Inner::Raw { length: 0, .. } => &mut [],
            // SAFETY: as above, and the bytes are also valid for writes and not read by others.
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

/// The memory of an operation: its input and its output. [`Operation`](crate::Operation) defines
/// which of them an operation needs, and how long each one is. They must not overlap.
#[derive(Debug, Default)]
pub struct Buffers {
    /// The memory that the operation reads.
    pub input: Option<Buffer>,
    /// The memory that the operation writes. An operation in place also reads it.
    pub output: Option<Buffer>,
}

impl Buffers {
    /// One buffer that the operation reads and writes.
    pub fn in_place(buffer: impl Into<Buffer>) -> Self {
        Self {
            input: None,
            output: Some(buffer.into()),
        }
    }

    /// One buffer that the operation reads, and one that it writes.
    pub fn new(input: impl Into<Buffer>, output: impl Into<Buffer>) -> Self {
        Self {
            input: Some(input.into()),
            output: Some(output.into()),
        }
    }

    /// One buffer that the operation reads.
    pub fn input(buffer: impl Into<Buffer>) -> Self {
        Self {
            input: Some(buffer.into()),
            output: None,
        }
    }
}
