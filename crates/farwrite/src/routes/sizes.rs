//! Which packet sizes are tested on a route.

use std::net::SocketAddr;

use farwrite_fabric::udp::path_mtu;
use farwrite_route::SizeSearch;

use crate::peer::{ROCE_OVERHEAD_BYTES, packet_overhead_bytes};

/// The largest IP datagram in the default search: jumbo frames.
const JUMBO: u32 = 9000;
/// Largest IP datagrams of common links: the IPv6 minimum, mobile networks, several kinds of
/// tunnels and clouds, Ethernet, and jumbo frames of clouds and of Ethernet.
const LINK_MTUS: [u32; 9] = [1280, 1400, 1420, 1450, 1460, 1492, 1500, 8896, JUMBO];
const ROCE_MTU: u32 = 4096;

/// Which sizes of data packets are tested on the way to a peer. An MTU is the number of payload
/// bytes of a data packet, as in [`QpConfig::mtu`](crate::QpConfig::mtu).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// None. One end is enough to test the sizes if both ends use its result.
    Untested,
    /// Whether the path carries packets of this MTU.
    Exactly {
        /// The MTU.
        mtu: u32,
    },
    /// The largest packets that the path carries.
    Largest {
        /// The smallest MTU that is of use.
        least_mtu: u32,
        /// The largest MTU to try; `None`: jumbo frames. A search below the usual sizes ends sooner,
        /// because it does not wait for answers to larger packets.
        largest_mtu: Option<u32>,
    },
}

impl Sizes {
    /// The search on the route to `peer`.
    pub(super) fn search(self, peer: SocketAddr) -> Option<SizeSearch> {
        match self {
            Self::Untested => None,
            Self::Exactly { mtu } => Some(SizeSearch::exactly(datagram_bytes(mtu))),
            Self::Largest {
                least_mtu,
                largest_mtu,
            } => Some(SizeSearch::new(candidates(peer, least_mtu, largest_mtu))),
        }
    }

    /// The same sizes for packets with `bytes` more.
    pub(super) fn and(self, bytes: u32) -> Self {
        let longer = |mtu: u32| mtu.saturating_add(bytes);
        match self {
            Self::Untested => Self::Untested,
            Self::Exactly { mtu } => Self::Exactly { mtu: longer(mtu) },
            Self::Largest {
                least_mtu,
                largest_mtu,
            } => Self::Largest {
                least_mtu: longer(least_mtu),
                largest_mtu: largest_mtu.map(longer),
            },
        }
    }

    /// The smallest datagram that is of use.
    pub(super) fn least_bytes(self) -> u32 {
        match self {
            Self::Untested => 0,
            Self::Exactly { mtu } => datagram_bytes(mtu),
            Self::Largest { least_mtu, .. } => datagram_bytes(least_mtu),
        }
    }
}

/// Sizes of datagrams to test on the path to a peer, in bytes of UDP payload: the sizes of common
/// links, and `largest_mtu`.
pub(super) fn candidates(peer: SocketAddr, least_mtu: u32, largest_mtu: Option<u32>) -> Vec<u32> {
    // The MTU of the routing table can be forged, so it is only one candidate.
    let known = path_mtu(peer).into_iter().map(|mtu| mtu.min(JUMBO));
    let payloads = known.chain(LINK_MTUS).map(|mtu| payload_in(mtu, peer));
    let payloads = payloads.chain([ROCE_MTU]).chain(largest_mtu);
    let useful = least_mtu..=largest_mtu.unwrap_or(u32::MAX);
    let mut payloads: Vec<_> = payloads.filter(|mtu| useful.contains(mtu)).collect();
    if payloads.is_empty() {
        payloads.push(least_mtu);
    }
    payloads.into_iter().map(datagram_bytes).collect()
}

/// The MTU of data packets to `peer` that fit into IP datagrams of `ip_bytes`. It is a multiple of
/// 4 (P3.1).
#[must_use]
pub fn payload_in(ip_bytes: u32, peer: SocketAddr) -> u32 {
    ip_bytes.saturating_sub(packet_overhead_bytes(peer.is_ipv4())) / 4 * 4
}

/// Bytes of a datagram with a data packet of full size.
pub(super) fn datagram_bytes(mtu: u32) -> u32 {
    mtu.saturating_add(ROCE_OVERHEAD_BYTES)
}

/// The MTU of data packets in datagrams with this many bytes of UDP payload.
#[must_use]
pub fn payload_bytes(datagram_bytes: u32) -> u32 {
    datagram_bytes.saturating_sub(ROCE_OVERHEAD_BYTES) / 4 * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_is_of_use() {
        let peer = SocketAddr::from(([127, 0, 0, 1], 4792));
        for (least_mtu, smallest) in [(256, 1216), (1400, 1428), (8000, 8832), (20_000, 20_000)] {
            let sizes = candidates(peer, least_mtu, None);
            assert_eq!(sizes.iter().min(), Some(&datagram_bytes(smallest)));
            let jumbo = datagram_bytes(payload_in(JUMBO, peer));
            assert_eq!(sizes.contains(&jumbo), least_mtu < JUMBO);
            assert!(
                sizes
                    .iter()
                    .all(|bytes| payload_bytes(*bytes).is_multiple_of(4))
            );
        }
        let sizes = candidates(peer, 256, Some(1400));
        assert_eq!(sizes.iter().max(), Some(&datagram_bytes(1400)));
        assert!(sizes.contains(&datagram_bytes(1216)), "{sizes:?}");
        let search = Sizes::Exactly { mtu: 4096 }.search(peer);
        let probed = search.and_then(|mut search| search.probe(0, 1));
        assert_eq!(probed, Some(4096 + ROCE_OVERHEAD_BYTES));
        assert!(Sizes::Untested.search(peer).is_none());
    }
}
