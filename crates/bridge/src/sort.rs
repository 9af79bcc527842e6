//! Decides which frames go through the box, and finishes them before.
//!
//! Boxes work on single packets with complete checksums. Kernels also deliver trains and incomplete
//! checksums ([`farwrite_trains`]). Trains of RoCEv2 packets are split, and their checksums
//! completed. Other unfinished traffic bypasses the box unchanged: the kernel finishes it at the
//! other interface.

use farwrite_trains::{Scratch, SegmentRun, Train, VNET_BYTES, complete_checksum};

/// UDP destination port of RoCEv2 (IBTA annex A17).
const ROCE_PORT: [u8; 2] = 4791u16.to_be_bytes();
const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
/// Offsets of 16-bit fields in the kernel's header: the length of all headers, the start of the
/// checksummed bytes, and the position of the checksum from there.
pub(crate) const HEADERS: usize = 2;
pub(crate) const CSUM_START: usize = 6;
const CSUM_OFFSET: usize = 8;
/// The offset of the checksum in a UDP header. In a TCP header it is 16.
const UDP_CHECKSUM_AT: u16 = 6;
/// IEEE 802.1Q and 802.1ad.
const TAGS: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xA8]];
/// Group addresses that bridges do not forward (IEEE 802.1Q, table 8-1), pause frames among them.
const LINK_LOCAL: [u8; 5] = [0x01, 0x80, 0xC2, 0x00, 0x00];
const ETHERNET_BYTES: usize = 14;
const TAG_BYTES: usize = 4;

/// What to do with a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sorted {
    /// These packets go through the box.
    Through(Vec<Vec<u8>>),
    /// The frame bypasses the box, with the kernel's header that describes what is unfinished.
    Around([u8; VNET_BYTES], Vec<u8>),
    /// The frame is addressed to this machine, or limited to this link.
    Local,
}

/// `address` is the Ethernet address of the interface that received the frame.
pub(crate) fn sort(vnet: &[u8; VNET_BYTES], frame: Vec<u8>, address: &[u8; 6]) -> Sorted {
    let is_link_local =
        frame.starts_with(&LINK_LOCAL) && frame.get(5).is_some_and(|last| *last < 0x10);
    if is_link_local || frame.starts_with(address) {
        return Sorted::Local;
    }
    if vnet[1] == GSO_NONE && vnet[0] & NEEDS_CSUM == 0 {
        return Sorted::Through(vec![frame]);
    }
    let ethernet = ethernet_bytes(&frame);
    let start = usize::from(number(vnet, CSUM_START));
    let is_roce = vnet[0] & NEEDS_CSUM != 0
        && number(vnet, CSUM_OFFSET) == UDP_CHECKSUM_AT
        && start > ethernet
        && frame.get(start + 2..start + 4) == Some(&ROCE_PORT);
    if is_roce {
        let ethernet_bytes = u16::try_from(ethernet).unwrap_or(0);
        let mut inner = *vnet;
        for at in [HEADERS, CSUM_START] {
            let moved = number(vnet, at).saturating_sub(ethernet_bytes);
            inner[at..at + 2].copy_from_slice(&moved.to_ne_bytes());
        }
        Sorted::Through(packets(inner, &frame, ethernet))
    } else {
        Sorted::Around(*vnet, frame)
    }
}

/// Splits a train, or completes a single packet. The offsets in `vnet` count from the IP header.
fn packets(vnet: [u8; VNET_BYTES], frame: &[u8], ethernet: usize) -> Vec<Vec<u8>> {
    let (headers, ip) = frame.split_at(ethernet);
    let segments = Train::new(vnet, ip).into_segments();
    let finish = |segment| {
        let (run, mut scratch) = (SegmentRun::new(segment), Scratch::default());
        let [vnet, ip_headers, payload] = run.parts(&mut scratch);
        let mut left = [0; VNET_BYTES];
        left.copy_from_slice(vnet);
        let mut packet = [headers, ip_headers, payload].concat();
        complete_checksum(&mut left, &mut packet[ethernet..]);
        packet
    };
    segments.map(finish).collect()
}

/// Length of the Ethernet header: addresses, tags and type.
pub(crate) fn ethernet_bytes(frame: &[u8]) -> usize {
    let mut bytes = ETHERNET_BYTES;
    while let Some(kind) = frame.get(bytes - 2..bytes)
        && TAGS.iter().any(|tag| tag == kind)
        && frame.len() >= bytes + TAG_BYTES
    {
        bytes += TAG_BYTES;
    }
    bytes.min(frame.len())
}

fn number(vnet: &[u8; VNET_BYTES], at: usize) -> u16 {
    u16::from_ne_bytes([vnet[at], vnet[at + 1]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 9];

    /// What kind of frame a kernel delivers.
    #[derive(Clone, Copy, Debug)]
    struct Kind {
        ipv6: bool,
        tags: usize,
        port: u16,
        /// The payload length of the datagrams of a train; 0 for a single datagram.
        segment: u16,
    }

    const SINGLE: Kind = Kind {
        ipv6: false,
        tags: 0,
        port: 53,
        segment: 0,
    };

    impl Kind {
        fn ethernet_bytes(self) -> usize {
            MACS.len() + 4 * self.tags + 2
        }

        fn ip_bytes(self) -> usize {
            if self.ipv6 { 40 } else { 20 }
        }
    }

    /// The IP header of a UDP datagram, whose addresses are its last bytes.
    fn ip_header(ipv6: bool, udp_bytes: u16, ipv4_id: u16) -> Vec<u8> {
        if !ipv6 {
            let mut header = vec![0x45, 0];
            for number in [udp_bytes + 20, ipv4_id, 0x4000] {
                header.extend(number.to_be_bytes());
            }
            header.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            let sum = !u16::try_from(sum(&header)).expect("folded");
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            return header;
        }
        let mut header = vec![0x60, 0, 0, 0];
        header.extend(udp_bytes.to_be_bytes());
        header.extend([17, 64]);
        for host in 1..=2 {
            header.extend([0xFD, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        header
    }

    /// A UDP frame with an incomplete checksum: the sum of the pseudo header, as kernels leave it.
    /// Returns the kernel's header too.
    fn unfinished(kind: Kind, payload: &[u8]) -> ([u8; 10], Vec<u8>) {
        let mut frame = MACS.to_vec();
        for _ in 0..kind.tags {
            frame.extend([0x81, 0, 0, 5]);
        }
        frame.extend(if kind.ipv6 { [0x86, 0xDD] } else { [8, 0] });
        let ethernet = frame.len();
        let udp_bytes = u16::try_from(8 + payload.len()).expect("short");
        frame.extend(ip_header(kind.ipv6, udp_bytes, 1));
        let addresses = if kind.ipv6 { 32 } else { 8 };
        let pseudo = [
            &[0, 17],
            &udp_bytes.to_be_bytes()[..],
            &frame[frame.len() - addresses..],
        ];
        let pseudo = u16::try_from(sum(&pseudo.concat())).expect("folded");
        for number in [50_000, kind.port, udp_bytes, pseudo] {
            frame.extend(number.to_be_bytes());
        }
        frame.extend(payload);
        let mut vnet = [NEEDS_CSUM, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let start = u16::try_from(ethernet + kind.ip_bytes()).expect("short");
        vnet[HEADERS..HEADERS + 2].copy_from_slice(&(start + 8).to_ne_bytes());
        vnet[CSUM_START..CSUM_START + 2].copy_from_slice(&start.to_ne_bytes());
        vnet[CSUM_OFFSET..].copy_from_slice(&UDP_CHECKSUM_AT.to_ne_bytes());
        if kind.segment > 0 {
            vnet[1] = 5;
            vnet[4..6].copy_from_slice(&kind.segment.to_ne_bytes());
        }
        (vnet, frame)
    }

    /// Returns the sum of the UDP datagram and its pseudo header: 0xFFFF if the checksum is right.
    fn udp_sum(kind: Kind, ip: &[u8]) -> u32 {
        let (udp, addresses) = (kind.ip_bytes(), if kind.ipv6 { 8 } else { 12 });
        sum(&[&[0, 17], &ip[udp + 4..udp + 6], &ip[addresses..]].concat())
    }

    /// The sum of the checksum of RFC 1071, folded into 16 bits.
    fn sum(covered: &[u8]) -> u32 {
        let words = covered.chunks(2);
        let sum = words.map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
        let mut sum: u32 = sum.sum();
        while sum >> 16 != 0 {
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        sum
    }

    proptest! {
        #[test]
        fn trains_of_rocev2_are_cut_and_finished(
            ipv6: bool,
            tags in 0usize..3,
            payload in prop::collection::vec(any::<u8>(), 1..4000),
            segment in 100u16..1500,
        ) {
            let kind = Kind { ipv6, tags, port: 4791, segment };
            let (vnet, frame) = unfinished(kind, &payload);
            let (ethernet, ip_bytes) = (kind.ethernet_bytes(), kind.ip_bytes());
            let Sorted::Through(packets) = sort(&vnet, frame.clone(), &ADDRESS) else {
                panic!("RoCEv2 goes through the box");
            };
            let payloads = packets.iter().flat_map(|p| &p[ethernet + ip_bytes + 8..]);
            prop_assert_eq!(payloads.copied().collect::<Vec<_>>(), payload.clone());
            prop_assert_eq!(packets.len(), payload.len().div_ceil(segment.into()));
            for (ipv4_id, packet) in (1..).zip(&packets) {
                let (tagged, ip) = packet.split_at(ethernet);
                prop_assert_eq!(tagged, &frame[..ethernet]);
                prop_assert_eq!(udp_sum(kind, ip), 0xFFFF);
                let udp_bytes = u16::try_from(ip.len() - ip_bytes).expect("short");
                prop_assert_eq!(&ip[..ip_bytes], ip_header(ipv6, udp_bytes, ipv4_id));
            }
        }

        /// Sorting must not panic for any kernel header and any frame.
        #[test]
        fn no_frame_is_a_surprise(
            vnet in any::<[u8; VNET_BYTES]>(),
            frame in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            sort(&vnet, frame, &ADDRESS);
        }
    }

    #[test]
    fn other_traffic_that_is_not_finished_goes_around_the_box() {
        for (ipv6, segment) in [(false, 0), (false, 200), (true, 0), (true, 200)] {
            let kind = Kind {
                ipv6,
                segment,
                ..SINGLE
            };
            let (vnet, frame) = unfinished(kind, &[7; 500]);
            assert_eq!(
                sort(&vnet, frame.clone(), &ADDRESS),
                Sorted::Around(vnet, frame)
            );
        }
        // TCP to the same port number.
        let kind = Kind {
            port: 4791,
            segment: 200,
            ..SINGLE
        };
        let (mut vnet, frame) = unfinished(kind, &[7; 500]);
        vnet[CSUM_OFFSET..].copy_from_slice(&16u16.to_ne_bytes());
        assert_eq!(
            sort(&vnet, frame.clone(), &ADDRESS),
            Sorted::Around(vnet, frame)
        );
    }

    #[test]
    fn finished_frames_go_through_the_box_as_they_are() {
        for port in [53, 4791] {
            let kind = Kind {
                tags: 1,
                port,
                ..SINGLE
            };
            let (_, frame) = unfinished(kind, b"abc");
            let through = Sorted::Through(vec![frame.clone()]);
            assert_eq!(sort(&[0; VNET_BYTES], frame, &ADDRESS), through);
        }
    }

    #[test]
    fn frames_for_one_link_alone_are_not_carried() {
        for (last, local) in [(0x01, true), (0x0E, true), (0x10, false)] {
            let mut frame = vec![0x01, 0x80, 0xC2, 0x00, 0x00, last];
            frame.resize(60, 0);
            assert_eq!(
                sort(&[0; VNET_BYTES], frame, &ADDRESS) == Sorted::Local,
                local,
                "{last:#x}"
            );
        }
        let own = [&ADDRESS[..], &[0; 54]].concat();
        assert_eq!(sort(&[0; VNET_BYTES], own, &ADDRESS), Sorted::Local);
    }
}
