//! What every fabric checks of its arguments.

use super::{FabricError, QpAttr, RemoteQp};

/// Largest number of regions, of queue pairs, of window sets, and of slots in one set. With these
/// limits, a guessed 32-bit key is valid with probability 2^-12 at most, and a guessed 24-bit queue
/// pair number with probability 2^-4 at most. `docs/security.md` explains the consequences.
pub const MAX_OBJECTS: usize = 1 << 20;

impl QpAttr {
    /// Checks the MTU, of which the fabric takes at most `most`.
    ///
    /// # Errors
    /// [`FabricError::BadAttribute`].
    pub fn check_mtu(&self, most: u32) -> Result<(), FabricError> {
        if self.mtu == 0 || !self.mtu.is_multiple_of(4) || self.mtu > most {
            return Err(FabricError::BadAttribute {
                name: "mtu",
                value: self.mtu.to_string(),
                want: format!("a multiple of 4, from 4 to {most}"),
            });
        }
        Ok(())
    }
}

impl RemoteQp {
    /// Checks that a queue pair can have the peer's number.
    ///
    /// # Errors
    /// [`FabricError::BadAttribute`].
    pub fn check_number(&self) -> Result<(), FabricError> {
        if self.qpn.0 < 2 || self.qpn.0 >= 1 << 24 {
            return Err(FabricError::BadAttribute {
                name: "remote qpn",
                value: format!("{:#x}", self.qpn.0),
                want: "a number of 24 bits, neither 0 nor 1".into(),
            });
        }
        Ok(())
    }
}

/// Checks the shape of a window set.
///
/// # Errors
/// [`FabricError::BadAttribute`].
pub fn check_windows(slots: u32, slot_bytes: u64) -> Result<(), FabricError> {
    if slots == 0 || slots as usize > MAX_OBJECTS {
        return Err(FabricError::BadAttribute {
            name: "slots",
            value: slots.to_string(),
            want: format!("1 to {MAX_OBJECTS}"),
        });
    }
    if slot_bytes == 0 || slot_bytes.checked_mul(u64::from(slots)).is_none() {
        return Err(FabricError::BadAttribute {
            name: "slot_bytes",
            value: slot_bytes.to_string(),
            want: format!("at least 1, and {slots} slots within 64 bits of address"),
        });
    }
    Ok(())
}
