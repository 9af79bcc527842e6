//! Keys in memory.

use core::fmt;
use core::ops::Deref;

use zeroize::Zeroize;

/// A key of 32 bytes. Its debug output does not contain it, and it is erased from memory when it is dropped.
///
/// ```
/// use farwrite_wire::Secret;
///
/// let key = Secret::from([7; 32]);
/// assert_eq!(format!("{key:?}"), "Secret(..)");
/// assert_eq!(*key, [7; 32]);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl From<[u8; 32]> for Secret {
    fn from(mut key: [u8; 32]) -> Self {
        let secret = Self(key);
        key.zeroize();
        secret
    }
}

impl Deref for Secret {
    type Target = [u8; 32];

    fn deref(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
