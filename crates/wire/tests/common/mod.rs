//! What several tests need; none needs all of it.
#![allow(dead_code, unreachable_pub)]

use std::net::SocketAddr;

use farwrite_wire::icrc::Flow;
use proptest::prelude::*;

/// A flow between addresses in text.
pub fn flow(src: &str, dst: &str) -> Flow {
    let addr = |text: &str| text.parse::<SocketAddr>().expect("a test's address parses");
    Flow::new(addr(src), addr(dst)).expect("a test's addresses are of one family")
}

/// Any flow, IPv4 or IPv6.
pub fn flows() -> impl Strategy<Value = Flow> {
    prop_oneof![flows_v4(), flows_v6()]
}

/// Any IPv4 flow.
pub fn flows_v4() -> impl Strategy<Value = Flow> {
    any::<[([u8; 4], u16); 2]>()
        .prop_map(|[src, dst]| Flow::new(src.into(), dst.into()).expect("both are IPv4"))
}

/// Any IPv6 flow whose addresses are not IPv4 ones in disguise.
pub fn flows_v6() -> impl Strategy<Value = Flow> {
    any::<[([u8; 16], u16); 2]>().prop_map(|ends| {
        let [src, dst] = ends.map(|(mut ip, port)| {
            ip[0] |= 0x20;
            SocketAddr::from((ip, port))
        });
        Flow::new(src, dst).expect("both are IPv6")
    })
}

/// The ICRC of a whole IP datagram without its last four bytes, a bit at a time and by the letter of
/// IBTA 7.8.1 and A17.3.4; shares no code with the crate.
pub fn icrc_of_datagram(datagram: &[u8]) -> u32 {
    let mut bytes = datagram.to_vec();
    let udp = match bytes[0] >> 4 {
        4 => {
            for masked in [1, 8, 10, 11] {
                bytes[masked] = 0xFF;
            }
            20
        }
        6 => {
            bytes[0] |= 0x0F;
            for masked in [1, 2, 3, 7] {
                bytes[masked] = 0xFF;
            }
            40
        }
        version => panic!("IP version {version}"),
    };
    for masked in [udp + 6, udp + 7, udp + 8 + 4] {
        bytes[masked] = 0xFF;
    }
    let mut remainder = 0xFFFF_FFFF_u32;
    for byte in [0xFF; 8].into_iter().chain(bytes) {
        for bit in 0..8 {
            let feedback = (remainder ^ u32::from(byte) >> bit) & 1;
            remainder >>= 1;
            if feedback == 1 {
                remainder ^= 0xEDB8_8320;
            }
        }
    }
    !remainder
}

/// The datagram that carries `udp_payload` over `flow`, with made-up values in masked fields.
pub fn datagram(flow: &Flow, ipv4_id: u16, udp_payload: &[u8]) -> Vec<u8> {
    let udp_bytes = u16::try_from(8 + udp_payload.len()).expect("a datagram's length");
    let mut bytes = Vec::new();
    match (flow.src(), flow.dst()) {
        (SocketAddr::V4(src), SocketAddr::V4(dst)) => {
            bytes.extend([0x45, 0xB9]);
            bytes.extend((20 + udp_bytes).to_be_bytes());
            bytes.extend(ipv4_id.to_be_bytes());
            bytes.extend([0x40, 0, 61, 17, 0xAB, 0xCD]);
            bytes.extend(src.ip().octets());
            bytes.extend(dst.ip().octets());
        }
        (SocketAddr::V6(src), SocketAddr::V6(dst)) => {
            bytes.extend([0x6B, 0x91, 0x23, 0x45]);
            bytes.extend(udp_bytes.to_be_bytes());
            bytes.extend([17, 61]);
            bytes.extend(src.ip().octets());
            bytes.extend(dst.ip().octets());
        }
        _ => unreachable!("a flow has one family"),
    }
    bytes.extend(flow.src().port().to_be_bytes());
    bytes.extend(flow.dst().port().to_be_bytes());
    bytes.extend(udp_bytes.to_be_bytes());
    bytes.extend([0x12, 0x34]);
    bytes.extend(udp_payload);
    bytes
}
