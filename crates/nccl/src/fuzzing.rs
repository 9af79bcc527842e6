//! For crate `fuzz`. Not part of the interface.

use crate::abi::HANDLE_BYTES;
use crate::handle::Handle;

/// Reads a handle. What can be read, and is written again, reads the same.
///
/// # Panics
/// If it does not.
pub fn handle(bytes: &[u8; HANDLE_BYTES]) {
    if let Ok(read) = Handle::decode(bytes) {
        assert_eq!(Handle::decode(&read.encode()), Ok(read));
    }
}
