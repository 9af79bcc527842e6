//! Conversion between frames and the bytes of packets.

use farwrite_link::{Datagram, Rng};
use farwrite_net::header::{Header, HeaderError, Roce};
use farwrite_net::{BytesError, Ecn, Frame, NodeId, Payload, ROCE_PORT, address_of};
use farwrite_wire::header::{Aeth, Bth, Deth, Reth};
use farwrite_wire::icrc::{self, Flow, IdRange};

/// RC RDMA WRITE Middle, PSN 0xABCDEF.
const WRITE: [u8; 12] = [0x07, 0x40, 0xFF, 0xFF, 0, 0, 0, 1, 0, 0xAB, 0xCD, 0xEF];

fn examples() -> Vec<Frame> {
    let bare = Roce::new(Bth::parse(&WRITE));
    let reth = Some(Reth {
        remote_addr: 1 << 40,
        rkey: 7,
        dma_bytes: 5,
    });
    let (aeth, deth) = (
        Aeth {
            syndrome: 0x60,
            msn: 2,
        },
        Deth { qkey: 1, src_qp: 2 },
    );
    [
        (0x07, bare, 4),
        (
            0x2B,
            Roce {
                reth,
                imm: Some(9),
                ..bare
            },
            5,
        ),
        (0x0A, Roce { reth, ..bare }, 5),
        (
            0x11,
            Roce {
                aeth: Some(aeth),
                ..bare
            },
            0,
        ),
        (
            0x64,
            Roce {
                deth: Some(deth),
                ..bare
            },
            11,
        ),
    ]
    .map(|(opcode, mut roce, bytes)| {
        roce.bth.opcode = opcode;
        example(Header::Roce(roce), (0..bytes).collect())
    })
    .into()
}

fn example(header: Header, bytes: Vec<u8>) -> Frame {
    Frame {
        src: NodeId(3),
        dst: NodeId(70_000),
        src_port: 49_152,
        dst_port: ROCE_PORT,
        ipv4_id: 12,
        priority: 5,
        ecn: Ecn::Experienced,
        header,
        payload: Payload::Bytes(bytes.into()),
        telemetry: None,
    }
}

#[test]
fn frames_become_sealed_packets_and_packets_frames() {
    for frame in examples() {
        let datagram = frame.to_datagram().unwrap();
        assert_eq!(datagram.ip_bytes(), u64::from(frame.ip_bytes()));
        assert_eq!(datagram.src.to_string(), "10.0.0.4:49152");
        assert_eq!(datagram.dst.to_string(), "10.1.17.113:4791");
        assert_eq!(datagram.tos, 5 << 5 | 0b11);
        let flow = Flow::new(datagram.src, datagram.dst).unwrap();
        let sealed = icrc::verify(&flow, &datagram.payload, 12, IdRange::SOFTWARE);
        assert_eq!(sealed, Ok(12));
        let mut back = Frame::from_datagram(&datagram).unwrap();
        if let (Header::Roce(back), Header::Roce(sent)) = (&mut back.header, &frame.header) {
            // Serialization sets the pad count.
            back.bth.pad_bytes = sent.bth.pad_bytes;
        }
        assert_eq!(back, frame);
        // A ghost has the same bytes, except its payload.
        let bytes = frame.payload.sent_bytes();
        let ghost = Frame {
            payload: Payload::Ghost(bytes),
            ..frame.clone()
        };
        let zeros = Frame {
            payload: Payload::Bytes(vec![0; bytes as usize].into()),
            ..frame
        };
        assert_eq!(ghost.to_datagram(), zeros.to_datagram());
    }
}

#[test]
fn what_has_no_bytes_says_why() {
    let base = examples().remove(0);
    let with = |change: fn(&mut Frame)| {
        let mut frame = base.clone();
        change(&mut frame);
        frame.to_datagram().unwrap_err().to_string()
    };
    let trimmed = with(|frame| frame.payload = Payload::Trimmed(9));
    assert!(trimmed.contains("cut 9 bytes of payload off"), "{trimmed}");
    let long = with(|frame| frame.payload = Payload::Ghost(1 << 16));
    assert!(long.ends_with("this frame has 65580"), "{long}");
    let wrong = with(|frame| {
        if let Header::Roce(roce) = &mut frame.header {
            roce.imm = Some(1);
        }
    });
    assert!(wrong.contains("RC RDMA WRITE Middle has []"), "{wrong}");
    let unknown = with(|frame| {
        if let Header::Roce(roce) = &mut frame.header {
            roce.bth.opcode = 0xFF;
        }
    });
    assert!(unknown.contains("opcode 0xff"), "{unknown}");
    assert_eq!(
        address_of(NodeId(1 << 24)),
        Err(BytesError::Node(NodeId(1 << 24)))
    );
    assert_eq!(address_of(NodeId(255)).unwrap().to_string(), "10.0.1.0");
}

#[test]
fn datagrams_from_elsewhere_are_no_frames() {
    let good = examples().remove(0).to_datagram().unwrap();
    let strange = Datagram {
        src: "192.0.2.1:5".parse().unwrap(),
        ..good.clone()
    };
    let error = Frame::from_datagram(&strange).unwrap_err();
    assert_eq!(error, BytesError::Address(strange.src));
    let cut = Datagram {
        payload: good.payload[..8].to_vec(),
        ..good.clone()
    };
    assert!(matches!(
        Frame::from_datagram(&cut),
        Err(BytesError::Packet(_))
    ));
    // RC CmpSwap has a header of 28 bytes that frames cannot store.
    let mut atomic = good;
    atomic.payload = vec![0; 12 + 28 + 4];
    atomic.payload[0] = 0x13;
    let error = Frame::from_datagram(&atomic).unwrap_err();
    assert!(
        matches!(error, BytesError::Header(HeaderError::Unsupported { .. })),
        "{error}"
    );
}

#[test]
fn other_headers_travel_as_they_are() {
    let header = Header::Other([0x1F, 1, 2, 3].into());
    let frame = Frame {
        header,
        payload: Payload::Ghost(6),
        ..examples().remove(0)
    };
    assert_eq!(frame.ip_bytes(), 28 + 4 + 6);
    let datagram = frame.to_datagram().unwrap();
    assert_eq!(datagram.payload, [0x1F, 1, 2, 3, 0, 0, 0, 0, 0, 0]);
}

/// Arbitrary bytes of peers, and valid packets with damage. If they parse as a frame, the frame
/// becomes the same frame again.
#[test]
fn no_bytes_break_the_parser() {
    let mut rng = Rng::new(1);
    let sound: Vec<_> = examples()
        .iter()
        .map(|frame| frame.to_datagram().unwrap())
        .collect();
    let mut frames = 0;
    for _ in 0..50_000 {
        let mut datagram = sound[rng.below(sound.len())].clone();
        for _ in 0..rng.below(4) {
            let at = rng.below(datagram.payload.len());
            datagram.payload[at] = u8::try_from(rng.below(256)).unwrap();
        }
        if rng.chance(0.2) {
            datagram
                .payload
                .truncate(rng.below(datagram.payload.len()) + 1);
        }
        let Ok(frame) = Frame::from_datagram(&datagram) else {
            continue;
        };
        frames += 1;
        let again = frame.to_datagram().unwrap();
        assert_eq!(Frame::from_datagram(&again), Ok(frame));
        assert_eq!(again.payload.len(), datagram.payload.len());
    }
    assert!(frames > 10_000, "{frames}");
}
