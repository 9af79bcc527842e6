//! Runs a box on frames with VLAN tags, or over IPv6. Frames of a network in virtual time are IPv4
//! frames without tags, so they are converted before the box, and back behind it. Right ICRCs stay
//! right, and wrong ones wrong. Foreign frames come between them.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use farwrite_boxes::{BoxFrame, Middlebox, Side};
use farwrite_net::checksum;
use farwrite_wire::header::ICRC_BYTES;
use farwrite_wire::icrc::{Flow, reseal};

use super::foreign::Foreign;

const MACS_BYTES: usize = 12;
/// Tags, the outer one first.
const TAGS: [[u8; 4]; 2] = [[0x88, 0xA8, 0x60, 9], [0x81, 0x00, 0x60, 5]];
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xDD];
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const UDP_PROTOCOL: u8 = 17;
/// The network of IPv6 addresses. The last 32 bits of an address are the node's IPv4 address.
const IPV6_NETWORK: u128 = 0xFD77 << 112;

/// The headers of the frames that the boxes of a case see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// Whether packets have an IPv6 header.
    pub ipv6: bool,
    /// The number of VLAN tags, 0 to 2.
    pub tags: usize,
}

impl Headers {
    /// The address of a node in the frames that the boxes see.
    pub(crate) fn address(self, node: Ipv4Addr) -> IpAddr {
        if self.ipv6 {
            Ipv6Addr::from(IPV6_NETWORK | u128::from(node.to_bits())).into()
        } else {
            node.into()
        }
    }

    /// Where the IP header of a frame of the boxes is.
    pub(crate) fn ip(self) -> usize {
        MACS_BYTES + 4 * self.tags + ETHERTYPE_IPV4.len()
    }

    fn tags(self) -> &'static [[u8; 4]] {
        &TAGS[TAGS.len() - self.tags..]
    }

    fn ethernet(self, macs: &[u8]) -> Vec<u8> {
        let ethertype = if self.ipv6 {
            ETHERTYPE_IPV6
        } else {
            ETHERTYPE_IPV4
        };
        [macs, &self.tags().concat(), &ethertype].concat()
    }

    /// Converts a frame of the network.
    pub(crate) fn for_box(self, frame: &[u8]) -> Vec<u8> {
        let (macs, ip) = (&frame[..MACS_BYTES], &frame[MACS_BYTES + 2..]);
        let mut bytes = self.ethernet(macs);
        if !self.ipv6 {
            bytes.extend_from_slice(ip);
            return bytes;
        }
        let old = [12, 16].map(|at| {
            let octets = [ip[at], ip[at + 1], ip[at + 2], ip[at + 3]];
            Ipv4Addr::from(octets)
        });
        let new = old.map(|node| self.address(node));
        let (tos, id) = (ip[1], u16::from_be_bytes([ip[4], ip[5]]));
        // A box cannot restore an identification that its frames do not have.
        assert_eq!(id, 0, "NICs send the identification 0");
        let mut udp = ip[IPV4_BYTES..].to_vec();
        seal_anew(&mut udp, old.map(IpAddr::V4), new);
        let udp_bytes = u16::try_from(udp.len()).expect("a short packet");
        bytes.extend([0x60 | tos >> 4, tos << 4, 0, 0]);
        bytes.extend(udp_bytes.to_be_bytes());
        bytes.extend([UDP_PROTOCOL, 64]);
        let addresses = bytes.len();
        for address in new {
            let IpAddr::V6(address) = address else {
                unreachable!("addresses are converted");
            };
            bytes.extend(address.octets());
        }
        udp[6..8].fill(0);
        bytes.extend(&udp);
        let sum = udp_sum(&bytes[addresses..]);
        let sum = if sum == 0 { u16::MAX } else { sum };
        let at = addresses + 2 * 16 + 6;
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// Converts a frame of a box back.
    ///
    /// # Panics
    /// If the frame has other tags or another IP version than those that the box gets, or a wrong
    /// length or checksum.
    fn for_network(self, frame: &[u8]) -> Vec<u8> {
        let ethernet = self.ethernet(&frame[..MACS_BYTES]);
        assert!(
            frame.starts_with(&ethernet),
            "a box sends a frame with headers of another kind: {frame:x?}"
        );
        let ip = &frame[ethernet.len()..];
        let mut bytes = [&frame[..MACS_BYTES], &ETHERTYPE_IPV4].concat();
        if !self.ipv6 {
            bytes.extend_from_slice(ip);
            return bytes;
        }
        let udp_bytes = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
        assert!(
            ip[0] >> 4 == 6 && ip[6] == UDP_PROTOCOL && ip.len() == IPV6_BYTES + udp_bytes,
            "a box sends a frame with a wrong IPv6 header: {frame:x?}"
        );
        assert_eq!(
            udp_sum(&ip[8..]),
            0,
            "a box sends a frame with a wrong UDP checksum: {frame:x?}"
        );
        let old = [8, 24].map(|at| Ipv6Addr::from(*ip[at..].first_chunk::<16>().expect("16")));
        let new = old.map(|address| {
            let bits = u32::try_from(address.to_bits() ^ IPV6_NETWORK);
            Ipv4Addr::from_bits(bits.expect("a box sends frames between the addresses of nodes"))
        });
        let mut udp = ip[IPV6_BYTES..].to_vec();
        seal_anew(&mut udp, old.map(IpAddr::V6), new.map(IpAddr::V4));
        udp[6..8].fill(0);
        let tos = ip[0] << 4 | ip[1] >> 4;
        let header = bytes.len();
        bytes.extend([0x45, tos]);
        let ip_bytes = u16::try_from(IPV4_BYTES + udp.len()).expect("a short packet");
        bytes.extend(ip_bytes.to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, UDP_PROTOCOL, 0, 0]);
        bytes.extend(new[0].octets());
        bytes.extend(new[1].octets());
        let sum = checksum(0, &bytes[header..]);
        bytes[header + 10..header + 12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(udp);
        bytes
    }
}

/// Moves the ICRC of a UDP datagram from the old addresses to the new ones.
fn seal_anew(udp: &mut [u8], old: [IpAddr; 2], new: [IpAddr; 2]) {
    let port = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
    let ports = [port(0), port(2)];
    let flow = |ends: [IpAddr; 2]| {
        let [src, dst] = [0, 1].map(|at| SocketAddr::new(ends[at], ports[at]));
        Flow::new(src, dst).expect("two addresses of one kind")
    };
    let (old, new) = (flow(old), flow(new));
    let bytes = udp.len() - UDP_BYTES;
    let (_, icrc) = udp.split_last_chunk_mut::<ICRC_BYTES>().expect("a packet");
    let sealed = reseal((&old, 0), (&new, 0), bytes, u32::from_le_bytes(*icrc));
    *icrc = sealed.to_le_bytes();
}

/// The checksum of a UDP datagram behind two IPv6 addresses (RFC 8200, 8.1). 0 if the datagram has
/// the right checksum.
fn udp_sum(addresses_and_udp: &[u8]) -> u16 {
    let udp_bytes = u32::try_from(addresses_and_udp.len() - 2 * 16).expect("a short packet");
    checksum(udp_bytes + u32::from(UDP_PROTOCOL), addresses_and_udp)
}

/// A box whose frames have other headers than those of the network.
#[derive(Debug)]
pub(crate) struct Converted<B> {
    inner: B,
    headers: Headers,
    pub(crate) foreign: Option<Foreign>,
    /// Frames of the box that are to be sent before its next ones.
    out: VecDeque<BoxFrame>,
}

/// The settings of a box, the headers of its frames, and the seed of foreign frames if there are any.
pub(crate) type ConvertedConfig<C> = (C, Headers, Option<u64>);

impl<B: Middlebox> Middlebox for Converted<B> {
    type Config = ConvertedConfig<B::Config>;
    type Counters = B::Counters;

    fn new((config, headers, foreign): &Self::Config, boot: u64) -> Self {
        Self {
            inner: B::new(config, boot),
            headers: *headers,
            foreign: foreign.map(Foreign::new),
            out: VecDeque::new(),
        }
    }

    fn handle(&mut self, now_ns: u64, from: Side, frame: Vec<u8>) {
        self.inner
            .handle(now_ns, from, self.headers.for_box(&frame));
        let Some(foreign) = &mut self.foreign else {
            return;
        };
        if let Some(frame) = foreign.draw(self.headers, &frame) {
            let inner = &mut self.inner;
            self.out.extend(std::iter::from_fn(|| inner.poll()));
            foreign.pass(now_ns, inner, from, &frame);
        }
    }

    fn poll(&mut self) -> Option<BoxFrame> {
        let sent = self.out.pop_front().or_else(|| self.inner.poll())?;
        Some(BoxFrame {
            bytes: self.headers.for_network(&sent.bytes),
            ..sent
        })
    }

    fn next_ns(&self) -> Option<u64> {
        self.inner.next_ns()
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        self.inner.handle_timeout(now_ns);
    }

    fn stops(&self) -> u8 {
        self.inner.stops()
    }

    fn held(&self) -> usize {
        self.inner.held()
    }

    fn counters(&self) -> B::Counters {
        self.inner.counters()
    }
}
