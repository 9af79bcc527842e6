//! Helpers for the tests.

use farwrite_link::{Datagram, Link, LinkConfig};

/// Returns a datagram of `ip_bytes` bytes (at least 32) that carries a number.
pub(crate) fn datagram(number: u32, ip_bytes: usize) -> Datagram {
    let mut payload = vec![0; ip_bytes - 28];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    Datagram {
        src: "10.0.0.1:49152".parse().unwrap(),
        dst: "10.0.0.2:4791".parse().unwrap(),
        tos: 0,
        id: 0,
        payload,
    }
}

/// Returns the number in a datagram of [`datagram`].
pub(crate) fn number(datagram: &Datagram) -> u32 {
    u32::from_be_bytes(datagram.payload[..4].try_into().unwrap())
}

/// Returns a link with a valid configuration.
pub(crate) fn link(config: LinkConfig, seed: u64) -> Link {
    Link::new(config, seed).expect("a valid configuration")
}
