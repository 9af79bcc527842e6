//! Descriptors that programs poll, for `farwrite.h`.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use crate::failure::Failure;

/// The descriptor of a handle, made when the program asks for it. It is open as long as the handle exists.
#[derive(Default)]
pub(crate) struct Descriptor(Mutex<Option<Arc<OwnedFd>>>);

impl Descriptor {
    /// Its number. The first call makes it.
    pub(crate) fn number<E>(
        &self,
        make: impl FnOnce() -> Result<Arc<OwnedFd>, E>,
    ) -> Result<c_int, Failure>
    where
        Failure: From<E>,
    {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(descriptor) = &*made {
            return Ok(descriptor.as_raw_fd());
        }
        let descriptor = made.insert(make()?);
        Ok(descriptor.as_raw_fd())
    }
}
