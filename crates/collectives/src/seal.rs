//! Encrypts the information of ranks with a secret of the group: XChaCha20-Poly1305 with a random
//! nonce.

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{Key, KeyInit, XChaCha20Poly1305, XNonce};

use crate::error::CollectiveError;

const NONCE_BYTES: usize = 24;
/// Data that is authenticated in addition to the information.
const PURPOSE: &[u8] = b"farwrite group information 1";

/// Returns a nonce, followed by the encrypted information.
///
/// # Errors
/// [`CollectiveError::Endpoint`] if the operating system provides no randomness.
pub(crate) fn seal(key: &[u8; 32], info: &[u8]) -> Result<Vec<u8>, CollectiveError> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|error| CollectiveError::system("random bytes", error))?;
    let payload = Payload {
        msg: info,
        aad: PURPOSE,
    };
    let cipher = XChaCha20Poly1305::new(Key::from_slice(key));
    let sealed = cipher
        .encrypt(XNonce::from_slice(&nonce), payload)
        .expect("the information is far shorter than the cipher's limit");
    Ok([&nonce[..], &sealed].concat())
}

/// Decrypts information that was sealed with the same key.
///
/// # Errors
/// The information was not sealed with this key.
pub(crate) fn open(key: &[u8; 32], sealed: &[u8]) -> Result<Vec<u8>, String> {
    let foreign = || "its information was not sealed with the key of this rank".to_owned();
    let (nonce, sealed) = sealed.split_at_checked(NONCE_BYTES).ok_or_else(foreign)?;
    let payload = Payload {
        msg: sealed,
        aad: PURPOSE,
    };
    let cipher = XChaCha20Poly1305::new(Key::from_slice(key));
    let opened = cipher.decrypt(XNonce::from_slice(nonce), payload);
    opened.map_err(|_| foreign())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_information_opens_with_the_key_alone() {
        let sealed = seal(&[1; 32], b"addresses").unwrap();
        assert_eq!(open(&[1; 32], &sealed).unwrap(), b"addresses");
        assert!(open(&[2; 32], &sealed).is_err());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(open(&[1; 32], &changed).is_err(), "byte {at}");
            assert!(open(&[1; 32], &sealed[..at]).is_err(), "{at} bytes");
        }
    }
}
