//! Helpers for several tests. No test needs all of them.
#![allow(dead_code, unreachable_pub)]

use std::net::SocketAddr;

use farwrite_wire::control::{
    Ack, ClearToSend, Clearance, Control, Credit, CreditRequest, CriticalChunks, HEADER_BYTES,
    LossCounts, MAX_CRITICAL_RANGES, MessageId, Nack, Offer, Outcome, PeerFeedback, Place,
    ReadRefusal, ReadRequest, SchemeTag, StaleCounts, Terms, Withdrawal,
};
use farwrite_wire::icrc::Flow;
use proptest::prelude::*;

/// Returns a flow between addresses in text form.
pub fn flow(src: &str, dst: &str) -> Flow {
    let addr = |text: &str| text.parse::<SocketAddr>().expect("a test's address parses");
    Flow::new(addr(src), addr(dst)).expect("a test's addresses are of one family")
}

/// Generates any flow, IPv4 or IPv6.
pub fn flows() -> impl Strategy<Value = Flow> {
    prop_oneof![flows_v4(), flows_v6()]
}

/// Generates any IPv4 flow.
pub fn flows_v4() -> impl Strategy<Value = Flow> {
    any::<[([u8; 4], u16); 2]>()
        .prop_map(|[src, dst]| Flow::new(src.into(), dst.into()).expect("both are IPv4"))
}

/// Generates any IPv6 flow whose addresses are not IPv4-mapped.
pub fn flows_v6() -> impl Strategy<Value = Flow> {
    any::<[([u8; 16], u16); 2]>().prop_map(|ends| {
        let [src, dst] = ends.map(|(mut ip, port)| {
            ip[0] |= 0x20;
            SocketAddr::from((ip, port))
        });
        Flow::new(src, dst).expect("both are IPv6")
    })
}

/// Returns the ICRC of a whole IP datagram without its last four bytes. It follows the text of P2.5
/// bit by bit and shares no code with the crate.
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

/// Returns the datagram that carries `udp_payload` over `flow`. Fields that the ICRC masks have
/// arbitrary values.
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

/// Generates any control message that a peer would accept.
pub fn control_messages() -> impl Strategy<Value = Control> {
    prop_oneof![
        offers(),
        clears_to_send(),
        acks(),
        nacks(),
        (any::<u64>(), 0..3_u8).prop_map(|(message, outcome)| Control::ReceiveComplete {
            message,
            outcome: match outcome {
                0 => Outcome::Whole,
                1 => Outcome::Partial,
                _ => Outcome::Failed,
            },
        }),
        any::<[u64; 4]>().prop_map(|[judged, lost, bursts, longest]| {
            Control::Loss(LossCounts {
                judged_chunks: judged,
                lost_chunks: lost,
                bursts,
                longest_burst_chunks: longest,
            })
        }),
        peer_feedback(),
        reads(),
        any::<[u64; 3]>().prop_map(|[epoch, used, left]| {
            Control::CreditRequest(CreditRequest {
                epoch,
                used_bytes: used,
                wanted_bytes: used.saturating_add(left),
            })
        }),
        any::<[u64; 2]>().prop_map(|[epoch, granted_bytes]| {
            Control::Credit(Credit {
                epoch,
                granted_bytes,
            })
        }),
    ]
}

fn reads() -> impl Strategy<Value = Control> {
    any::<([u64; 5], u8, [u8; 6])>().prop_map(|(numbers, id, params)| {
        let [message, region, offset, length, remaining_ns] = numbers;
        Control::Read(ReadRequest {
            message,
            region,
            offset,
            length,
            remaining_ns,
            scheme: SchemeTag { id, params },
        })
    })
}

fn peer_feedback() -> impl Strategy<Value = Control> {
    any::<([u64; 7], u32, [u64; 2], bool)>().prop_map(|(numbers, packet, of, is_long)| {
        let [epoch, message, hold_ns, received, bytes, dropped, drain_bps] = numbers;
        let [ect, marked] = of;
        let ect_packets = ect.min(received);
        Control::PeerFeedback(PeerFeedback {
            epoch,
            message: MessageId::from_bits(message & !(1 << 61)),
            is_late: message >> 61 & 1 == 1,
            packet,
            hold_ns,
            received_packets: received,
            received_bytes: bytes,
            ect_packets,
            marked_packets: marked.min(ect_packets),
            dropped_packets: dropped,
            drain_bps,
            stale: match is_long {
                false => StaleCounts::default(),
                true => StaleCounts {
                    packets: received / 2,
                    marked_packets: marked.min(ect_packets) / 2,
                },
            },
        })
    })
}

fn offers() -> impl Strategy<Value = Control> {
    let withdrawn = prop::sample::select(vec![
        None,
        Some(Withdrawal::GivenUp),
        Some(Withdrawal::Expired),
        Some(Withdrawal::Refused(ReadRefusal::UnknownRegion)),
        Some(Withdrawal::Refused(ReadRefusal::OutOfRange)),
        Some(Withdrawal::Refused(ReadRefusal::Scheme)),
    ]);
    let rest = any::<(u64, Option<u64>, u64, [bool; 2], u8, [u8; 6])>();
    let steps = prop::collection::vec((1..1000_u32, 1..1000_u32), 0..=MAX_CRITICAL_RANGES);
    let critical = steps.prop_map(|steps| {
        let mut after = 0;
        CriticalChunks::new(steps.into_iter().map(|(gap, length)| {
            let start = after + gap;
            after = start + length;
            start..after
        }))
    });
    (rest, withdrawn, critical).prop_map(
        |((message, length, cleared, flags, id, params), withdrawn, critical)| {
            let [has_immediate, answers_read] = flags;
            Control::Offer(Offer {
                message,
                length,
                has_immediate,
                scheme: SchemeTag { id, params },
                critical: critical.expect("ascending ranges with gaps"),
                cleared,
                withdrawn,
                answers_read,
            })
        },
    )
}

fn terms() -> impl Strategy<Value = Terms> {
    any::<([bool; 4], Option<(u8, [u8; 6])>)>().prop_map(
        |([exact_length, immediate, accepts_partial, answers_read], scheme)| Terms {
            exact_length,
            immediate,
            scheme: scheme.map(|(id, params)| SchemeTag { id, params }),
            accepts_partial,
            answers_read,
        },
    )
}

fn clears_to_send() -> impl Strategy<Value = Control> {
    let place =
        any::<(u32, u64, u64)>().prop_map(|(rkey, base, length)| Place { rkey, base, length });
    let parity = prop::option::of(place.clone());
    let clearance =
        (0..64_u8, place, parity, terms()).prop_map(|(generation, place, parity, terms)| {
            Clearance {
                generation,
                rkey: place.rkey,
                base: place.base,
                length: place.length,
                parity,
                terms,
            }
        });
    let clearances = prop::collection::vec(clearance, 0..6);
    let numbers = (0..=u64::MAX - 12, 0..6_u64, any::<u64>());
    (numbers, clearances).prop_map(|((first, after, offers), clearances)| {
        Control::ClearToSend(ClearToSend {
            posted: first + clearances.len() as u64 + after,
            offers,
            first,
            clearances,
        })
    })
}

fn acks() -> impl Strategy<Value = Control> {
    let bits = prop::collection::vec(any::<u8>(), 0..64);
    (
        any::<u64>(),
        any::<[u32; 2]>(),
        0..(u32::MAX / 8) - 64,
        bits,
    )
        .prop_map(|(message, [cumulative, seen], window, bits)| {
            Control::Ack(Ack {
                message,
                cumulative,
                seen,
                window_start: window * 8,
                bits,
            })
        })
}

fn nacks() -> impl Strategy<Value = Control> {
    let gaps = prop::collection::vec((0..1000_u32, 1..1000_u32), 0..20);
    (any::<u64>(), gaps).prop_map(|(message, gaps)| {
        let mut after = 0;
        let lost = gaps.into_iter().map(|(gap, length)| {
            let start = after + gap;
            after = start + length;
            start..after
        });
        Control::Nack(Nack {
            message,
            lost: lost.collect(),
        })
    })
}

/// Replaces the tag of a changed control packet by the right one (P4.2).
pub fn reseal_control(key: &[u8; 32], packet: &mut [u8]) {
    packet[HEADER_BYTES - 16..HEADER_BYTES].fill(0);
    let hash = blake3::keyed_hash(key, packet);
    packet[HEADER_BYTES - 16..HEADER_BYTES].copy_from_slice(&hash.as_bytes()[..16]);
}
