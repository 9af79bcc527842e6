use proptest::prelude::*;

use super::*;

/// Returns the one's complement sum of big-endian words, as RFC 1071 defines it.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| match pair {
        [high, low] => u32::from(*high) << 8 | u32::from(*low),
        [high] => u32::from(*high) << 8,
        _ => 0,
    });
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}

/// Returns the sum of a pseudo header, which the kernel leaves as an incomplete checksum.
fn pseudo(packet: &[u8], protocol: u8, transport: usize) -> u16 {
    let addresses = if packet[0] >> 4 == 4 {
        &packet[12..20]
    } else {
        &packet[8..40]
    };
    let length = u32::try_from(packet.len() - transport).expect("short");
    let mut bytes = addresses.to_vec();
    bytes.extend(length.to_be_bytes());
    bytes.extend([0, protocol]);
    sum(&bytes)
}

#[derive(Clone, Copy, Debug)]
struct TrainShape {
    v6: bool,
    udp: bool,
    ecn: u8,
    payload: usize,
    segment: usize,
}

/// Returns the data that a kernel passes: the header of the device, and the packet.
fn gso(shape: TrainShape) -> ([u8; VNET_BYTES], Vec<u8>) {
    let TrainShape {
        v6,
        udp,
        ecn,
        payload,
        segment,
    } = shape;
    let transport = if v6 { 40 } else { 20 };
    let protocol = if udp { 17 } else { 6 };
    let headers = transport + if udp { 8 } else { 32 };
    let length = u16::try_from(headers + payload).expect("short");
    let mut packet = vec![0; headers];
    if v6 {
        packet[0] = 6 << 4;
        packet[1] = ecn << 4;
        put(&mut packet, 4, length - 40);
        packet[6] = protocol;
        packet.splice(8..40, 1..=32);
    } else {
        packet[0] = 4 << 4 | 5;
        packet[1] = ecn;
        put(&mut packet, 2, length);
        put(&mut packet, 4, 65_530);
        packet[9] = protocol;
        packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let checksum = !sum(&packet[..20]);
        put(&mut packet, 10, checksum);
    }
    packet.extend((0..251).cycle().take(payload));
    let checksum = if udp {
        put(&mut packet, transport + 4, length - wrapped(transport));
        6
    } else {
        packet[transport + 4..transport + 8].copy_from_slice(&0xffff_fff0_u32.to_be_bytes());
        packet[transport + 12] = 8 << 4;
        packet[transport + 13] = 0x10 | FIN_PSH | CWR;
        16
    };
    let partial = pseudo(&packet, protocol, transport);
    put(&mut packet, transport + checksum, partial);
    let kind = match (udp, v6) {
        (true, _) => GSO_UDP,
        (false, false) => GSO_TCPV4 | GSO_ECN,
        (false, true) => GSO_TCPV6 | GSO_ECN,
    };
    let words = [headers, segment, transport, checksum].map(wrapped);
    let mut vnet = [NEEDS_CSUM, kind, 0, 0, 0, 0, 0, 0, 0, 0];
    for (at, word) in (2..).step_by(2).zip(words) {
        vnet[at..at + 2].copy_from_slice(&word.to_ne_bytes());
    }
    (vnet, packet)
}

/// Returns the bytes of a run: the device's header and the packet.
fn bytes(run: &SegmentRun) -> ([u8; VNET_BYTES], Vec<u8>) {
    let mut scratch = Scratch::default();
    let [vnet, headers, payload] = run.parts(&mut scratch);
    let vnet = vnet.try_into().expect("ten bytes");
    (vnet, [headers, payload].concat())
}

fn segments(shape: TrainShape) -> Vec<Segment> {
    let (vnet, packet) = gso(shape);
    Train::new(vnet, &packet).into_segments().collect()
}

fn join(segments: &[Segment]) -> SegmentRun {
    let mut run = SegmentRun::new(segments[0].clone());
    for segment in &segments[1..] {
        run.extend(segment.clone()).expect("it follows");
    }
    run
}

fn shapes() -> impl Strategy<Value = TrainShape> {
    (
        any::<bool>(),
        any::<bool>(),
        0..4u8,
        2..20_000usize,
        1..5_000usize,
    )
        .prop_filter("more than one segment", |(_, _, _, payload, segment)| {
            payload > segment
        })
        .prop_map(|(v6, udp, ecn, payload, segment)| TrainShape {
            v6,
            udp,
            ecn,
            payload,
            segment,
        })
}

proptest! {
    #[test]
    fn a_whole_train_leaves_as_it_came(shape in shapes()) {
        let (vnet, packet) = gso(shape);
        let segments = segments(shape);
        prop_assert_eq!(segments.len(), shape.payload.div_ceil(shape.segment));
        let headers = packet.len() - shape.payload;
        let total: u64 = segments.iter().map(Packet::ip_bytes).sum();
        prop_assert_eq!(total, (segments.len() * headers + shape.payload) as u64);
        prop_assert_eq!(bytes(&join(&segments)), (vnet, packet));
    }

    /// For a cut at any two positions, the headers and checksums equal those of packets sent in
    /// that way.
    #[test]
    fn parts_of_a_train_are_sound_packets(shape in shapes(), from: prop::sample::Index, to: prop::sample::Index) {
        let (vnet, whole) = gso(shape);
        let mut segments = segments(shape);
        let count = segments.len();
        let (a, b) = (from.index(count), to.index(count));
        let (first, last) = (a.min(b), a.max(b));
        let mut marked = 0;
        for segment in &mut segments[first..=last] {
            marked += usize::from(segment.mark());
        }
        let capable = matches!(shape.ecn, 1 | 2);
        prop_assert_eq!(marked, if capable { last - first + 1 } else { 0 });
        let (cut_vnet, packet) = bytes(&join(&segments[first..=last]));

        let transport = if shape.v6 { 40 } else { 20 };
        let headers = whole.len() - shape.payload;
        let start = first * shape.segment;
        let end = shape.payload.min((last + 1) * shape.segment);
        prop_assert_eq!(&packet[headers..], &whole[headers + start..headers + end]);
        let ecn = if capable { 3 } else { shape.ecn };
        if shape.v6 {
            prop_assert_eq!(usize::from(word(&packet, 4)), packet.len() - 40);
            prop_assert_eq!(packet[1] >> 4, ecn);
        } else {
            prop_assert_eq!(sum(&packet[..20]), 0xffff);
            prop_assert_eq!(usize::from(word(&packet, 2)), packet.len());
            prop_assert_eq!(word(&packet, 4), 65_530_u16.wrapping_add(wrapped(first)));
            prop_assert_eq!(packet[1], ecn);
        }
        let (protocol, checksum) = if shape.udp { (17, 6) } else { (6, 16) };
        let partial = word(&packet, transport + checksum);
        prop_assert_eq!(partial, pseudo(&packet, protocol, transport));
        if shape.udp {
            prop_assert_eq!(usize::from(word(&packet, transport + 4)), packet.len() - transport);
        } else {
            let skipped = u32::try_from(start).expect("short");
            let sequence = 0xffff_fff0_u32.wrapping_add(skipped).to_be_bytes();
            prop_assert_eq!(&packet[transport + 4..transport + 8], &sequence);
            let flags = packet[transport + 13];
            prop_assert_eq!(flags & CWR != 0, first == 0);
            prop_assert_eq!(flags & FIN_PSH != 0, last + 1 == count);
        }
        let kind = if first == last { GSO_NONE } else if first > 0 { vnet[1] & !GSO_ECN } else { vnet[1] };
        prop_assert_eq!(cut_vnet[1], kind);
        prop_assert_eq!(cut_vnet[0], NEEDS_CSUM);
        prop_assert_eq!(&cut_vnet[6..], &vnet[6..]);
    }

    /// For any data from a device, nothing panics, and no byte is lost or added.
    #[test]
    fn any_bytes_pass_unchanged(vnet: [u8; VNET_BYTES], gso in 0..6u8, packet in prop::collection::vec(any::<u8>(), 0..3000)) {
        let vnet = [vnet[0], gso, vnet[2], vnet[3], vnet[4], vnet[5], vnet[6] & 63, 0, vnet[8], 0];
        let mut segments: Vec<_> = Train::new(vnet, &packet).into_segments().collect();
        if segments.len() == 1 {
            prop_assert_eq!(bytes(&join(&segments)), (vnet, packet));
        }
        for segment in &mut segments {
            segment.mark();
            bytes(&SegmentRun::new(segment.clone()));
        }
    }
}

/// Packets of the same flow and length with different marks do not leave together.
#[test]
fn runs_end_at_gaps_marks_and_other_trains() {
    let shape = TrainShape {
        v6: false,
        udp: false,
        ecn: 2,
        payload: 4000,
        segment: 1000,
    };
    let mut segments = segments(shape);
    assert!(segments[1].mark());
    let mut run = SegmentRun::new(segments[0].clone());
    assert!(run.extend(segments[1].clone()).is_err());
    assert!(run.extend(segments[2].clone()).is_err());
    assert!(run.extend(segments[0].clone()).is_err());
    let other = super::tests::segments(shape);
    assert!(run.extend(other[1].clone()).is_err());
    assert_eq!(run.len(), 1);
}

/// A mark is the only change to a single packet.
#[test]
fn single_packets_are_marked_in_place() {
    for v6 in [false, true] {
        let shape = TrainShape {
            v6,
            udp: true,
            ecn: 1,
            payload: 100,
            segment: 0,
        };
        let (mut vnet, packet) = gso(shape);
        vnet[1] = GSO_NONE;
        let mut segments: Vec<_> = Train::new(vnet, &packet).into_segments().collect();
        assert_eq!(
            (segments.len(), segments[0].ip_bytes()),
            (1, packet.len() as u64)
        );
        assert!(segments[0].mark());
        let (kept, marked) = bytes(&join(&segments));
        assert_eq!(kept, vnet);
        let (_, want) = gso(TrainShape { ecn: 3, ..shape });
        assert_eq!(marked, want);
    }
}
