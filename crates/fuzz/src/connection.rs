//! Targets of the crate of connections.

use std::sync::LazyLock;

use farwrite_connection::fuzzing;
use farwrite_keys::{Identity, KnownPeers, Psk, PublicKey};

/// The same in each run.
static KEY: LazyLock<Psk> = LazyLock::new(|| {
    let text = "farwrite-psk-1:gaytemzugu3doobzmfrggzdfmztwq2lknnwg23tpobyxe43uov3n3zphea";
    text.parse().expect("a key")
});

/// Datagrams of someone without the keys, for both ends of a handshake (P12.3).
pub fn datagram(data: &[u8]) {
    fuzzing::datagram(&KEY, data);
}

/// Introductions and messages of a peer (P12.5, P12.6).
pub fn message(data: &[u8]) {
    fuzzing::message(data);
}

/// A file of known peers, and the text forms of the keys of an identity (P12.2). What was read is
/// written so that it reads the same.
pub fn known_peers(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(peers) = text.parse::<KnownPeers>() {
        let again = peers.to_string().parse::<KnownPeers>();
        assert!(again.is_ok_and(|again| again == peers));
    }
    if let Ok(key) = text.parse::<PublicKey>() {
        assert!(key.to_string().eq_ignore_ascii_case(text.trim()));
    }
    if let Ok(identity) = text.parse::<Identity>() {
        assert!(identity.to_text().eq_ignore_ascii_case(text.trim()));
    }
}
