//! Whether the data packets of a queue pair are sealed, and with which cipher and secrets (P2.7, P6.1).

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Cipher, DirectionSecret, Fabric, QpSealing};
use farwrite_sdr::QpInfo;

use super::Pair;
use crate::error::SealingError;
use crate::options::Sealing;

/// Returns whether the processor has instructions for AES, as far as the fabric knows.
pub(super) fn has_aes<F: Fabric>(fabric: &Adapter<F>) -> bool {
    fabric.capabilities().sealing == Some(Cipher::Aes256Gcm)
}

impl Pair {
    /// Returns whether this end seals if the peer does.
    pub(super) fn seals<F: Fabric>(&self, fabric: &Adapter<F>) -> bool {
        self.options.sealing != Sealing::Off && fabric.capabilities().sealing.is_some()
    }

    /// Returns how data packets are sealed; `None` if they are not. Both ends come to the same result.
    pub(super) fn agree_on_sealing<F: Fabric>(
        &self,
        fabric: &Adapter<F>,
        peer: &QpInfo,
    ) -> Result<Option<QpSealing>, SealingError> {
        let ours = self.seals(fabric);
        let requires = self.options.sealing == Sealing::Required;
        match (ours, peer.seals) {
            (false, _) if requires => return Err(SealingError::Fabric),
            (false, _) if peer.requires_sealing => return Err(SealingError::PeerRequires),
            (true, false) if requires => return Err(SealingError::PeerDoesNot),
            (true, true) => {}
            _ => return Ok(None),
        }
        let key = self.control.packets.recv_key;
        Ok(Some(QpSealing {
            cipher: match has_aes(fabric) && peer.has_aes {
                true => Cipher::Aes256Gcm,
                false => Cipher::ChaCha20Poly1305,
            },
            send: DirectionSecret::new(&peer.control_key, &key),
            receive: DirectionSecret::new(&key, &peer.control_key),
            omits_icrc: self.options.omit_icrc && peer.omits_icrc,
        }))
    }
}
