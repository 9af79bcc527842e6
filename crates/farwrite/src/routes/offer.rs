//! What an end offers of a route.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::RouteError;

/// What a peer must know of a route to this end. It contains a key, so send it over an authenticated
/// and confidential channel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RouteOffer {
    /// The address of the socket as its machine knows it. An end behind 1:1 address translation
    /// replaces the IP address by its public one.
    pub address: SocketAddr,
    /// Key of the route packets toward this end.
    pub key: [u8; 32],
    /// Index of the route in route packets toward this end.
    pub index: u16,
}

impl RouteOffer {
    /// Length of an encoded offer: 16 bytes of address and 2 of port as in P6, index, key.
    pub const BYTES: usize = 52;

    /// Encodes the offer.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let ip = match self.address.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mut out = [0; Self::BYTES];
        out[..16].copy_from_slice(&ip.octets());
        out[16..18].copy_from_slice(&self.address.port().to_be_bytes());
        out[18..20].copy_from_slice(&self.index.to_be_bytes());
        out[20..].copy_from_slice(&self.key);
        out
    }

    /// Decodes an offer.
    ///
    /// # Errors
    /// [`RouteError::Offer`] for another number of bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, RouteError> {
        let wrong = || RouteError::Offer {
            have: bytes.len(),
            want: Self::BYTES,
        };
        let bytes: &[u8; Self::BYTES] = bytes.try_into().map_err(|_| wrong())?;
        let (ip, rest) = bytes.split_first_chunk().ok_or_else(wrong)?;
        let (port, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
        let (index, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
        let ip = Ipv6Addr::from(*ip).to_canonical();
        Ok(Self {
            address: SocketAddr::new(ip, u16::from_be_bytes(*port)),
            index: u16::from_be_bytes(*index),
            key: rest.try_into().map_err(|_| wrong())?,
        })
    }
}

impl fmt::Debug for RouteOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteOffer")
            .field("address", &self.address)
            .field("key", &"secret")
            .field("index", &self.index)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn offers_survive_the_channel(
            ip in any::<IpAddr>(),
            port in any::<u16>(),
            key in any::<[u8; 32]>(),
            index in any::<u16>(),
            cut in 0..RouteOffer::BYTES,
        ) {
            let address = SocketAddr::new(ip.to_canonical(), port);
            let offer = RouteOffer { address, key, index };
            let bytes = offer.encode();
            prop_assert_eq!(RouteOffer::decode(&bytes), Ok(offer));
            RouteOffer::decode(&bytes[..cut]).expect_err("cut");
            let shown = format!("{offer:?}");
            prop_assert!(shown.contains("secret") && !shown.contains("key: ["));
        }
    }
}
