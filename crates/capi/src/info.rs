//! The blob that `sdr_qp_info_get` writes: queue-pair information (P6) in a fixed number of bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 4 | `FWCB` |
//! | 1 | version: 1 |
//! | 1 | 1 if the blob is sealed and data packets must be, 0 if not |
//! | 2 | bytes of the body, big-endian |
//! | .. | the body: information, or a nonce of 24 bytes and the encrypted information |
//! | .. | zeros |
//!
//! The information contains the key of control packets, from which the keys of sealed data packets
//! follow. So with a pre-shared key it is encrypted: programs carry it over channels that others can
//! read. The first eight bytes are authenticated with it.

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{Key, KeyInit, XChaCha20Poly1305, XNonce};
use farwrite::QpInfo;
use farwrite_keys::Psk;

use crate::failure::Failure;

/// Bytes of a blob of this version: room for the most channels and generations.
pub const INFO_BYTES: usize = 6144;

const MAGIC: [u8; 4] = *b"FWCB";
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 8;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
/// What the key of blobs is derived for.
const PURPOSE: &str = "farwrite 2026 queue-pair information of C programs";

fn cipher(psk: &Psk) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(Key::from_slice(&psk.derive(PURPOSE)))
}

fn head(is_sealed: bool, body_bytes: usize) -> Result<[u8; HEAD_BYTES], Failure> {
    let too_long = || Failure::new(format!("{body_bytes} bytes of queue-pair information"));
    if HEAD_BYTES + body_bytes > INFO_BYTES {
        return Err(too_long());
    }
    let [high, low] = u16::try_from(body_bytes)
        .map_err(|_| too_long())?
        .to_be_bytes();
    let [a, b, c, d] = MAGIC;
    Ok([a, b, c, d, VERSION, u8::from(is_sealed), high, low])
}

/// Makes a blob.
pub(crate) fn encode(info: &QpInfo, psk: Option<&Psk>) -> Result<Vec<u8>, Failure> {
    let plain = info
        .encode()
        .map_err(|error| Failure::new(error.to_string()))?;
    let mut blob;
    match psk {
        None => {
            blob = head(false, plain.len())?.to_vec();
            blob.extend_from_slice(&plain);
        }
        Some(psk) => {
            let mut nonce = [0; NONCE_BYTES];
            getrandom::fill(&mut nonce)
                .map_err(|error| Failure::new(format!("no random bytes: {error}")))?;
            let head = head(true, NONCE_BYTES + plain.len() + TAG_BYTES)?;
            let payload = Payload {
                msg: &plain,
                aad: &head,
            };
            let sealed = cipher(psk).encrypt(XNonce::from_slice(&nonce), payload);
            let sealed = sealed.map_err(|_| Failure::new("the information cannot be encrypted"))?;
            blob = head.to_vec();
            blob.extend_from_slice(&nonce);
            blob.extend_from_slice(&sealed);
        }
    }
    blob.resize(INFO_BYTES, 0);
    Ok(blob)
}

/// Reads a blob of a peer, which can have any bytes.
pub(crate) fn decode(blob: &[u8], psk: Option<&Psk>) -> Result<QpInfo, Failure> {
    let no_blob = || Failure::new("remote_info: this is no blob of sdr_qp_info_get");
    let (head, rest) = blob.split_first_chunk().ok_or_else(no_blob)?;
    let [a, b, c, d, version, is_sealed, high, low] = *head;
    if [a, b, c, d] != MAGIC {
        return Err(no_blob());
    }
    if version != VERSION {
        return Err(Failure::new(format!(
            "remote_info has version {version}, and this library reads version {VERSION}: update the older end"
        )));
    }
    let length = usize::from(u16::from_be_bytes([high, low]));
    let (body, padding) = rest.split_at_checked(length).ok_or_else(no_blob)?;
    if padding.iter().any(|&byte| byte != 0) || is_sealed > 1 {
        return Err(no_blob());
    }
    let opened;
    let plain = match (psk, is_sealed == 1) {
        (None, false) => body,
        (Some(psk), true) => {
            let wrong = || {
                Failure::new(
                    "remote_info was sealed with another key, or was changed: give both ends the same \
                     FARWRITE_PSK_FILE",
                )
            };
            let (nonce, msg) = body.split_at_checked(NONCE_BYTES).ok_or_else(wrong)?;
            let payload = Payload { msg, aad: head };
            let result = cipher(psk).decrypt(XNonce::from_slice(nonce), payload);
            opened = result.map_err(|_| wrong())?;
            &opened
        }
        (None, true) => {
            return Err(Failure::new(
                "the peer requires sealed packets: set FARWRITE_PSK_FILE at this end too",
            ));
        }
        (Some(_), false) => {
            return Err(Failure::new(
                "this end has FARWRITE_PSK_FILE and requires sealed packets, and the peer does not seal: \
                 set it at the peer too",
            ));
        }
    };
    QpInfo::decode(plain).map_err(|error| Failure::new(format!("remote_info: {error}")))
}

/// Reads any bytes as a blob, for fuzzing.
#[doc(hidden)]
pub fn read_any(blob: &[u8]) {
    if let Ok(info) = decode(blob, None) {
        let again = encode(&info, None).expect("it was decoded");
        assert_eq!(decode(&again, None).ok(), Some(info));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use farwrite::{Endpoint, QpConfig, QpOptions, UdpConfig};
    use farwrite_rng::SplitMix;

    use super::*;

    fn info(channels: u8, generations: u8) -> QpInfo {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut config = UdpConfig::new(loopback);
        config.ports = channels.into();
        let mut endpoint = Endpoint::over_udp(&config).expect("an endpoint");
        let options = QpOptions {
            sdr: QpConfig {
                channels,
                generations,
                ..QpConfig::default()
            },
            ..QpOptions::default()
        };
        let qp = endpoint.create_qp(options).expect("a queue pair");
        endpoint.qp_info(qp).expect("information")
    }

    #[test]
    fn blobs_have_one_size_and_come_back() {
        let psk = Psk::generate().expect("randomness");
        for info in [info(1, 2), info(64, 16)] {
            for psk in [None, Some(&psk)] {
                let blob = encode(&info, psk).expect("it fits");
                assert_eq!(blob.len(), INFO_BYTES);
                assert_eq!(decode(&blob, psk).expect("own blob"), info);
            }
        }
    }

    #[test]
    fn no_changed_blob_is_taken_for_a_sealed_one() {
        let [psk, other] = [(); 2].map(|()| Psk::generate().expect("randomness"));
        let info = info(1, 2);
        let [plain, sealed] = [None, Some(&psk)].map(|psk| encode(&info, psk).expect("it fits"));
        for (blob, psk, hint) in [
            (&plain, Some(&psk), "set it at the peer"),
            (&sealed, None, "set FARWRITE_PSK_FILE at this end"),
            (&sealed, Some(&other), "another key"),
        ] {
            let Err(Failure::Error(text)) = decode(blob, psk) else {
                panic!("{hint}");
            };
            assert!(text.contains(hint), "{text}");
        }
        for at in 0..INFO_BYTES {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(decode(&changed, Some(&psk)).is_err(), "byte {at}");
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let mut rng = SplitMix::new(0x45);
        let own = encode(&info(2, 3), None).expect("it fits");
        for _ in 0..2000 {
            let mut blob = own.clone();
            for _ in 0..1 + rng.next() % 4 {
                let at = usize::try_from(rng.next() % 300).expect("small");
                blob[at] = rng.next().to_be_bytes()[0];
            }
            read_any(&blob);
            read_any(&blob[..usize::try_from(rng.next() % 6144).expect("small")]);
        }
    }
}
