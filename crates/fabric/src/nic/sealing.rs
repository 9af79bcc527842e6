//! Seals and opens data packets (P2.7).
//!
//! Each data queue pair has keys, a counter and a window of its own, so the threads of different ports
//! share nothing.

use farwrite_wire::request::WriteImm;
use farwrite_wire::sealing::{
    Cipher, CounterWindow, DirectionSecret, associated_data, epoch, nonce, split,
};
use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag, UnboundKey};

use crate::contract::{DropReason, FabricError, QpSealing, Qpn};

/// The cipher that is the fastest one on this machine: AES if the processor has instructions for it.
pub(super) fn fastest_cipher() -> Cipher {
    #[cfg(target_arch = "x86_64")]
    let has_aes = std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    let has_aes = std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let has_aes = false;
    if has_aes {
        Cipher::Aes256Gcm
    } else {
        Cipher::ChaCha20Poly1305
    }
}

/// How the writes of a queue pair are sealed in one direction.
#[derive(Clone, Copy)]
pub(super) struct OneWay {
    cipher: Cipher,
    secret: DirectionSecret,
    omits_icrc: bool,
}

impl OneWay {
    pub(super) fn sending(both: &QpSealing) -> Self {
        Self {
            cipher: both.cipher,
            secret: both.send,
            omits_icrc: both.omits_icrc,
        }
    }

    pub(super) fn receiving(both: &QpSealing) -> Self {
        Self {
            secret: both.receive,
            ..Self::sending(both)
        }
    }

    /// The key of packets to the queue pair `qpn`.
    fn key(&self, qpn: u32, epoch: u64) -> EpochKey {
        let algorithm = match self.cipher {
            Cipher::Aes256Gcm => &AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let key = UnboundKey::new(algorithm, &self.secret.key(qpn, epoch));
        let key = key.expect("the keys of both ciphers have 32 bytes");
        EpochKey {
            epoch,
            key: LessSafeKey::new(key),
        }
    }
}

struct EpochKey {
    epoch: u64,
    key: LessSafeKey,
}

/// The sealing half of a data queue pair.
pub(super) struct Sealer {
    one_way: OneWay,
    key: Option<EpochKey>,
}

impl Sealer {
    pub(super) fn new(one_way: OneWay) -> Self {
        Self { one_way, key: None }
    }

    pub(super) fn omits_icrc(&self) -> bool {
        self.one_way.omits_icrc
    }

    /// Encrypts `bytes[start..]`, which are the payload of a packet with the headers of `write`, and
    /// appends the counter and the tag. The length in `write` is the one after sealing. The caller
    /// uses each counter once, and only one queue pair of a peer.
    pub(super) fn seal(
        &mut self,
        counter: u64,
        write: &WriteImm,
        bytes: &mut Vec<u8>,
        start: usize,
    ) -> Result<(), FabricError> {
        let Self { one_way, key } = self;
        let epoch = epoch(counter);
        if key.as_ref().is_none_or(|key| key.epoch != epoch) {
            *key = Some(one_way.key(write.dest_qp, epoch));
        }
        let sealed = key.as_ref().map(|EpochKey { key, .. }| {
            let nonce = Nonce::assume_unique_for_key(nonce(counter));
            let associated = Aad::from(associated_data(&write.header()));
            key.seal_in_place_separate_tag(nonce, associated, &mut bytes[start..])
        });
        let Some(Ok(tag)) = sealed else {
            return Err(FabricError::BadAttribute {
                name: "sealed payload",
                value: (bytes.len() - start).to_string(),
                want: format!("a length that {} can encrypt", one_way.cipher),
            });
        };
        bytes.extend_from_slice(&counter.to_be_bytes());
        bytes.extend_from_slice(tag.as_ref());
        Ok(())
    }
}

/// The opening half of a data queue pair.
pub(super) struct Opener {
    one_way: OneWay,
    /// This queue pair.
    qpn: Qpn,
    window: CounterWindow,
    /// The key of the last even and of the last odd epoch with a verified packet.
    keys: [Option<EpochKey>; 2],
}

impl Opener {
    pub(super) fn new(one_way: OneWay, qpn: Qpn) -> Self {
        Self {
            one_way,
            qpn,
            window: CounterWindow::default(),
            keys: [None, None],
        }
    }

    pub(super) fn omits_icrc(&self) -> bool {
        self.one_way.omits_icrc
    }

    /// Verifies a packet, and decrypts its payload in place. Until the tag was verified, nothing changes
    /// except the bytes of the packet.
    ///
    /// A packet that the window allows is at most 2^16 counters older than the newest verified one, so
    /// its epoch is not before that of the older key kept here. A packet of another epoch costs the
    /// derivation of a key.
    pub(super) fn open<'a>(
        &mut self,
        header: &[u8; WriteImm::HEADER_BYTES],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], DropReason> {
        let sealed = split(payload).ok_or(DropReason::BadTag)?;
        let (counter, tag) = (sealed.counter, Tag::from(*sealed.tag));
        let sealed_bytes = sealed.ciphertext.len();
        if !self.window.is_new(counter) {
            return Err(DropReason::Replayed);
        }
        let epoch = epoch(counter);
        let slot = usize::from(epoch % 2 == 1);
        let kept = self.keys[slot].as_ref().filter(|key| key.epoch == epoch);
        let derived = match kept {
            Some(_) => None,
            None => Some(self.one_way.key(self.qpn.0, epoch)),
        };
        let key = kept.or(derived.as_ref()).map(|key| &key.key);
        let opened = key.map(|key| {
            let nonce = Nonce::assume_unique_for_key(nonce(counter));
            let associated = Aad::from(associated_data(header));
            let text = &mut payload[..sealed_bytes];
            key.open_in_place_separate_tag(nonce, associated, tag, text, 0..)
        });
        let Some(Ok(opened)) = opened else {
            return Err(DropReason::BadTag);
        };
        if derived.is_some() {
            self.keys[slot] = derived;
        }
        self.window.accept(counter);
        Ok(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: u64 = 1 << 23;
    const QPN: Qpn = Qpn(5);

    fn one_way(cipher: Cipher) -> OneWay {
        OneWay {
            cipher,
            secret: DirectionSecret::new(&[1; 32], &[2; 32]),
            omits_icrc: false,
        }
    }

    fn write(payload_bytes: u32) -> WriteImm {
        WriteImm {
            dest_qp: QPN.0,
            psn: 0,
            remote_addr: 0,
            rkey: 0,
            imm: 0,
            payload_bytes,
        }
    }

    fn sealed(sealer: &mut Sealer, counter: u64) -> Vec<u8> {
        let mut bytes = b"text".to_vec();
        sealer.seal(counter, &write(28), &mut bytes, 0).unwrap();
        bytes
    }

    /// A queue pair can lose any number of packets, also more than a key seals.
    #[test]
    fn keys_follow_the_counter_forward_and_a_window_back() {
        for cipher in [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
            let mut sealer = Sealer::new(one_way(cipher));
            let mut opener = Opener::new(one_way(cipher), QPN);
            let mut open = |counter| {
                let mut bytes = sealed(&mut sealer, counter);
                let opened = opener.open(&write(28).header(), &mut bytes);
                opened.map(<[u8]>::to_vec)
            };
            let text = Ok(b"text".to_vec());
            let steps = [
                (0, &text),
                (EPOCH - 1, &text),
                (EPOCH, &text),
                (EPOCH - 2, &text),
                (EPOCH + 1, &text),
                (EPOCH - 1, &Err(DropReason::Replayed)),
                (7 * EPOCH + 3, &text),
                (7 * EPOCH - 1, &text),
                (EPOCH + 2, &Err(DropReason::Replayed)),
                (7 * EPOCH + 4, &text),
            ];
            for (counter, want) in steps {
                assert_eq!(&open(counter), want, "{counter}");
            }
        }
    }

    #[test]
    fn packets_of_strangers_change_no_state() {
        let mut sealer = Sealer::new(one_way(Cipher::Aes256Gcm));
        let mut opener = Opener::new(one_way(Cipher::Aes256Gcm), QPN);
        let mut forged = sealed(&mut sealer, 9 * EPOCH);
        forged[0] ^= 1;
        let answer = opener.open(&write(28).header(), &mut forged);
        assert_eq!(answer, Err(DropReason::BadTag));
        assert_eq!(opener.window.highest(), None);
        assert!(opener.keys.iter().all(Option::is_none));
    }
}
