//! Cookies: what a responder gives to a source instead of keeping state for it (P12.4).

use std::net::SocketAddr;

use constant_time_eq::constant_time_eq_16;

use super::packet::{COOKIE_BYTES, Cookie};
use crate::message::encode_address;

/// The length of a time slot. A cookie is valid in its slot and in the next one.
const SLOT_NS: u64 = 10_000_000_000;
const SLOT_BYTES: usize = 4;
const TAG_BYTES: usize = 16;

/// What the key of [`CookieJar::seed`] is derived for.
const SEED_PURPOSE: &str = "farwrite connection 1 seed of an exchange";

/// Makes and checks cookies. Its memory does not grow.
pub(super) struct CookieJar {
    secret: [u8; 32],
    seeds: [u8; 32],
}

impl CookieJar {
    /// `secret` must be random, and known to this end only.
    pub(super) fn new(secret: [u8; 32]) -> Self {
        let seeds = blake3::derive_key(SEED_PURPOSE, &secret);
        Self { secret, seeds }
    }

    /// A cookie for the initiator that has chosen `number`.
    pub(super) fn make(&self, now_ns: u64, source: SocketAddr, number: u64) -> Cookie {
        let slot = slot(now_ns);
        let mut cookie = [0; COOKIE_BYTES];
        cookie[..SLOT_BYTES].copy_from_slice(&slot.to_be_bytes());
        cookie[SLOT_BYTES..].copy_from_slice(&self.tag(slot, source, number));
        cookie
    }

    /// Whether this jar made the cookie for this source and number, in this slot or in the one before.
    pub(super) fn accepts(
        &self,
        now_ns: u64,
        source: SocketAddr,
        number: u64,
        cookie: &Cookie,
    ) -> bool {
        let [s0, s1, s2, s3, tag @ ..] = *cookie;
        let made = u32::from_be_bytes([s0, s1, s2, s3]);
        let is_fresh = slot(now_ns).wrapping_sub(made) <= 1;
        is_fresh && constant_time_eq_16(&tag, &self.tag(made, source, number))
    }

    /// What this end's part of an exchange about a code is drawn from, so that it is the same for a repeated
    /// message `theirs`, and nobody else knows it.
    pub(super) fn seed(
        &self,
        cookie: &Cookie,
        (number, source): (u64, SocketAddr),
        theirs: &[u8],
    ) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.seeds);
        hasher.update(cookie);
        add_initiator(&mut hasher, source, number);
        hasher.update(theirs);
        *hasher.finalize().as_bytes()
    }

    fn tag(&self, slot: u32, source: SocketAddr, number: u64) -> [u8; TAG_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(&slot.to_be_bytes());
        add_initiator(&mut hasher, source, number);
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&hasher.finalize().as_bytes()[..TAG_BYTES]);
        tag
    }
}

fn add_initiator(hasher: &mut blake3::Hasher, source: SocketAddr, number: u64) {
    hasher.update(&encode_address(source));
    hasher.update(&number.to_be_bytes());
}

/// The number of the slot. It fits, because nanoseconds in 64 bits end before.
fn slot(now_ns: u64) -> u32 {
    u32::try_from(now_ns / SLOT_NS).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_of_one_source_and_of_its_time() {
        let jar = CookieJar::new([7; 32]);
        let [source, other]: [SocketAddr; 2] =
            ["192.0.2.1:7", "192.0.2.1:8"].map(|text| text.parse().expect("an address"));
        let now_ns = 25_000_000_000;
        let cookie = jar.make(now_ns, source, 5);
        for (late_ns, accepted) in [(0, true), (14_900_000_000, true), (15_000_000_000, false)] {
            let at_ns = now_ns + late_ns;
            assert_eq!(
                jar.accepts(at_ns, source, 5, &cookie),
                accepted,
                "{late_ns}"
            );
        }
        assert!(!jar.accepts(now_ns, other, 5, &cookie));
        assert!(!jar.accepts(now_ns, source, 6, &cookie));
        assert!(
            !jar.accepts(5_000_000_000, source, 5, &cookie),
            "of the future"
        );
        assert!(!CookieJar::new([8; 32]).accepts(now_ns, source, 5, &cookie));
        for at in 0..COOKIE_BYTES {
            let mut changed = cookie;
            changed[at] ^= 1;
            assert!(!jar.accepts(now_ns, source, 5, &changed), "byte {at}");
        }
    }
}
