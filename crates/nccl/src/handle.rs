//! The handle of a listener, which NCCL carries to the peer. It has no secret, since nothing protects it on its way.
//!
//! All 128 bytes are written. Numbers are big-endian.
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | `FWNC` |
//! | 4 | the version, 1 |
//! | 5 | how many addresses, 1 to 3 |
//! | 6..14 | the number of the listener in its process |
//! | 14..46 | its public key |
//! | 46..103 | addresses of 19 bytes: family (4 or 6), 16 bytes of the address, port |
//! | 103..120 | zero |
//! | 120..128 | zero, and at the end that connects: the number of the attempt |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use farwrite_keys::PublicKey;

use crate::abi::HANDLE_BYTES;

const MAGIC: &[u8; 4] = b"FWNC";
const VERSION: u8 = 1;
const ADDRESS_BYTES: usize = 19;
/// The most addresses.
pub(crate) const MOST_ADDRESSES: usize = 3;
const ADDRESSES: usize = 46;
const ATTEMPT: usize = 120;

/// Where a listener is, and which one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) number: u64,
    pub(crate) key: PublicKey,
    /// 1 to 3.
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Handle {
    pub(crate) fn encode(&self) -> [u8; HANDLE_BYTES] {
        let mut bytes = [0; HANDLE_BYTES];
        let addresses = self.addresses.iter().take(MOST_ADDRESSES);
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4] = VERSION;
        bytes[5] = u8::try_from(addresses.len()).unwrap_or(0);
        bytes[6..14].copy_from_slice(&self.number.to_be_bytes());
        bytes[14..46].copy_from_slice(self.key.bytes());
        for (place, address) in bytes[ADDRESSES..].chunks_mut(ADDRESS_BYTES).zip(addresses) {
            place.copy_from_slice(&encode(*address));
        }
        bytes
    }

    /// Reads a handle.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn decode(bytes: &[u8; HANDLE_BYTES]) -> Result<Self, String> {
        let (magic, rest) = bytes.split_at(4);
        if magic != MAGIC {
            return Err("another plugin has made it: load Farwrite at all ranks".into());
        }
        if rest[0] != VERSION {
            return Err(format!(
                "it has version {}, and this plugin knows version {VERSION}: install the same plugin at all ranks",
                rest[0]
            ));
        }
        let number = first(&bytes[6..]);
        let key: [u8; 32] = first(&bytes[14..]);
        if key == [0; 32] {
            return Err("the peer has no public key: install the same plugin at all ranks".into());
        }
        let places = bytes[ADDRESSES..ATTEMPT].chunks_exact(ADDRESS_BYTES);
        let addresses: Vec<_> = places
            .take(rest[1].into())
            .map_while(|place| decode(&first(place)))
            .collect();
        let count = addresses.len();
        if count != usize::from(rest[1]) || !(1..=MOST_ADDRESSES).contains(&count) {
            return Err("its addresses are damaged".into());
        }
        Ok(Self {
            number: u64::from_be_bytes(number),
            key: key.into(),
            addresses,
        })
    }
}

/// The number of the attempt to connect to this handle; 0 if there is none.
pub(crate) fn attempt(bytes: &[u8; HANDLE_BYTES]) -> u64 {
    u64::from_be_bytes(first(&bytes[ATTEMPT..]))
}

/// Notes the number of an attempt.
pub(crate) fn set_attempt(bytes: &mut [u8; HANDLE_BYTES], number: u64) {
    bytes[ATTEMPT..].copy_from_slice(&number.to_be_bytes());
}

/// The first bytes; zeros where there are none.
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    for (to, from) in array.iter_mut().zip(bytes) {
        *to = *from;
    }
    array
}

fn encode(address: SocketAddr) -> [u8; ADDRESS_BYTES] {
    let mut bytes = [0; ADDRESS_BYTES];
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes[0] = 4;
            bytes[1..5].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes[0] = 6;
            bytes[1..17].copy_from_slice(&ip.octets());
        }
    }
    bytes[17..].copy_from_slice(&address.port().to_be_bytes());
    bytes
}

fn decode(bytes: &[u8; ADDRESS_BYTES]) -> Option<SocketAddr> {
    let ip: IpAddr = match bytes[0] {
        4 => Ipv4Addr::from(first::<4>(&bytes[1..])).into(),
        6 => Ipv6Addr::from(first::<16>(&bytes[1..])).into(),
        _ => return None,
    };
    let port = u16::from_be_bytes(first(&bytes[17..]));
    (port > 0).then_some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn handle() -> Handle {
        Handle {
            number: 7,
            key: [9; 32].into(),
            addresses: vec![
                "10.1.2.3:4792".parse().expect("an address"),
                "[2001:db8::1]:4793".parse().expect("an address"),
            ],
        }
    }

    #[test]
    fn the_attempt_is_beside_the_handle() {
        let mut bytes = handle().encode();
        assert_eq!(attempt(&bytes), 0);
        set_attempt(&mut bytes, 12);
        assert_eq!(attempt(&bytes), 12);
        assert_eq!(Handle::decode(&bytes), Ok(handle()));
    }

    #[test]
    fn wrong_handles_are_named() {
        let wrong = |at: usize, byte: u8| {
            let mut bytes = handle().encode();
            bytes[at] = byte;
            Handle::decode(&bytes).expect_err("wrong")
        };
        assert!(wrong(0, b'X').contains("another plugin"));
        assert!(wrong(4, 2).contains("version 2"));
        assert!(wrong(5, 0).contains("addresses"));
        assert!(wrong(5, 4).contains("addresses"));
        assert!(wrong(46, 5).contains("addresses"));
        let mut bytes = handle().encode();
        bytes[14..46].fill(0);
        assert!(Handle::decode(&bytes).expect_err("no key").contains("key"));
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_written(bytes in proptest::array::uniform32(any::<u8>()), tail in proptest::array::uniform32(any::<u8>())) {
            let mut handle = [0; HANDLE_BYTES];
            handle[..4].copy_from_slice(MAGIC);
            handle[4] = VERSION;
            handle[5..37].copy_from_slice(&bytes);
            handle[5] %= 4;
            handle[37..69].copy_from_slice(&tail);
            if let Ok(read) = Handle::decode(&handle) {
                prop_assert_eq!(Handle::decode(&read.encode()), Ok(read));
            }
        }
    }
}
