//! Invalid arguments are refused with a specific error, and nothing is written.

use farwrite_codes::{Code, Codec, CodecError, Decoder, Encoder, Kind, Present};

const CHUNK: usize = 10;

fn codec(kind: Kind) -> Codec {
    Codec::new(Code::new(kind, 4, 2).unwrap())
}

#[test]
fn lengths_of_a_group_must_fit() {
    let codec = codec(Kind::Mds);
    let encode = |data: usize, chunk_bytes, parity: usize| {
        let mut parity = vec![9; parity];
        let result = codec.encode(&vec![1; data], chunk_bytes, &mut parity);
        assert!(result.is_ok() || parity.iter().all(|&byte| byte == 9));
        let mut data = vec![1; data];
        let present = Present::default();
        let recovered = codec.recover(&mut data, &parity, chunk_bytes, &present);
        assert!(recovered.is_err() && data.iter().all(|&byte| byte == 1));
        assert!(result.is_ok() || recovered == result);
        result
    };
    let most = 4 * CHUNK;
    assert_eq!(encode(40, 0, 20), Err(CodecError::EmptyChunks));
    for given in [0, 41, 400] {
        assert_eq!(
            encode(given, CHUNK, 20),
            Err(CodecError::DataBytes { given, most })
        );
    }
    for given in [0, 19, 21, 30] {
        let expected = Err(CodecError::ParityBytes {
            given,
            expected: 20,
        });
        assert_eq!(encode(35, CHUNK, given), expected);
    }
    let huge = encode(40, usize::MAX / 2, 20);
    assert!(matches!(huge, Err(CodecError::ParityBytes { .. })));
    assert_eq!(encode(1, CHUNK, 20), Ok(()));
}

#[test]
fn chunks_of_a_group_must_fit() {
    let codec = codec(Kind::Mds);
    let encode = |data: &[usize], parity: &[usize]| {
        let data: Vec<_> = data.iter().map(|&bytes| vec![1; bytes]).collect();
        let data: Vec<&[u8]> = data.iter().map(|chunk| &chunk[..]).collect();
        let mut parity: Vec<_> = parity.iter().map(|&bytes| vec![9; bytes]).collect();
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(|chunk| &mut chunk[..]).collect();
        codec.encode_chunks(&data, &mut parity)
    };
    let code = codec.code();
    assert_eq!(
        encode(&[], &[5, 5]),
        Err(CodecError::DataChunks { given: 0, code })
    );
    assert_eq!(
        encode(&[5; 5], &[5, 5]),
        Err(CodecError::DataChunks { given: 5, code })
    );
    assert_eq!(
        encode(&[5; 4], &[5]),
        Err(CodecError::ParityChunks {
            given: 1,
            expected: 2
        })
    );
    assert_eq!(encode(&[0], &[0, 0]), Err(CodecError::EmptyChunks));
    let of_data = |chunk, given| {
        Err(CodecError::DataChunkBytes {
            chunk,
            given,
            expected: 5,
        })
    };
    assert_eq!(encode(&[5, 4, 5], &[5, 5]), of_data(1, 4));
    assert_eq!(encode(&[5, 5, 6], &[5, 5]), of_data(2, 6));
    assert_eq!(encode(&[5, 5, 0], &[5, 5]), of_data(2, 0));
    let of_parity = CodecError::ParityChunkBytes {
        chunk: 1,
        given: 6,
        expected: 5,
    };
    assert_eq!(encode(&[5, 5, 3], &[5, 6]), Err(of_parity));
    assert_eq!(encode(&[5, 5, 3], &[5, 5]), Ok(()));
}

#[test]
fn chunks_to_recover_must_fit() {
    let codec = codec(Kind::Xor);
    let mut present = Present::all(codec.code(), 4);
    present.data.remove(1);
    let recover = |lengths: [usize; 2], parity: &[&[u8]], present: &Present| {
        let (mut first, mut last) = ([[1; 5]; 3], [1; 9]);
        let [a, b, c] = &mut first;
        let mut data = [
            &mut a[..],
            &mut b[..lengths[0]],
            &mut c[..],
            &mut last[..lengths[1]],
        ];
        codec.recover_chunks(&mut data, parity, present)
    };
    let parity = [&[1; 5][..], &[1; 5][..]];
    let of_data = |chunk, given| {
        Err(CodecError::DataChunkBytes {
            chunk,
            given,
            expected: 5,
        })
    };
    assert_eq!(recover([5, 2], &parity, &present), Ok(()));
    assert_eq!(recover([4, 5], &parity, &present), of_data(1, 4));
    assert_eq!(recover([5, 6], &parity, &present), of_data(3, 6));
    let one = CodecError::ParityChunks {
        given: 1,
        expected: 2,
    };
    assert_eq!(recover([5, 2], &parity[..1], &present), Err(one));
    let of_parity = CodecError::ParityChunkBytes {
        chunk: 1,
        given: 3,
        expected: 5,
    };
    assert_eq!(
        recover([5, 2], &[&[1; 5], &[1; 3]], &present),
        Err(of_parity)
    );
    present.parity.remove(1);
    let lost = CodecError::NotRecoverable {
        code: codec.code(),
        missing: 1,
        parity: 1,
    };
    assert_eq!(recover([5, 2], &[&[1; 5], &[]], &present), Err(lost));
    present.data.insert(1);
    assert_eq!(recover([5, 2], &[&[1; 5], &[]], &present), Ok(()));
    present.parity.remove(0);
    assert_eq!(recover([5, 2], &[&[], &[]], &present), Ok(()));
}

#[test]
fn more_losses_than_parity_are_counted() {
    let codec = codec(Kind::Mds);
    let mut present = Present::all(codec.code(), 4);
    present.data.remove(0);
    present.data.remove(3);
    present.parity.remove(1);
    let lost = CodecError::NotRecoverable {
        code: codec.code(),
        missing: 2,
        parity: 1,
    };
    assert_eq!(
        codec.recover(&mut [1; 40], &[1; 20], CHUNK, &present),
        Err(lost)
    );
    assert!(lost.to_string().contains("ec-mds:4,2"), "{lost}");
}

#[test]
fn a_run_of_chunks_must_be_of_the_group_and_new() {
    for kind in [Kind::Xor, Kind::Mds] {
        let codec = codec(kind);
        let mut parity = [9; 20];
        let mut encoder = Encoder::new(&codec, 35, CHUNK, &mut parity).unwrap();
        let run = |first, given| {
            Err(CodecError::Run {
                first,
                given,
                chunk_bytes: CHUNK,
                end: 35,
            })
        };
        for (first, given) in [
            (0, 0),
            (0, 9),
            (0, 11),
            (3, 4),
            (3, 10),
            (4, 5),
            (0, 40),
            (usize::MAX, 10),
        ] {
            assert_eq!(encoder.add(first, &vec![1; given]), run(first, given));
        }
        assert!(encoder.added().is_empty());
        encoder.add(1, &[1; 20]).unwrap();
        assert_eq!(
            encoder.add(0, &[1; 20]),
            Err(CodecError::Again { chunk: 1 })
        );
        assert_eq!(encoder.added().iter().collect::<Vec<_>>(), [1, 2]);
        encoder.add(0, &[1; 10]).unwrap();
        assert_eq!(encoder.finish(), Err(CodecError::Unfinished { missing: 1 }));
    }
}

#[test]
fn a_decoder_refuses_what_does_not_fit() {
    let codec = codec(Kind::Mds);
    let mut scratch = [0; 20];
    let short = Decoder::new(&codec, 35, CHUNK, &mut scratch[..10]).unwrap_err();
    assert_eq!(
        short,
        CodecError::ParityBytes {
            given: 10,
            expected: 20
        }
    );
    let mut decoder = Decoder::new(&codec, 35, CHUNK, &mut scratch).unwrap();
    for (first, given) in [(0, 0), (0, 5), (0, 15), (2, 10), (1, 20)] {
        let refused = CodecError::Run {
            first,
            given,
            chunk_bytes: CHUNK,
            end: 20,
        };
        assert_eq!(decoder.add_parity(first, &vec![1; given]), Err(refused));
    }
    decoder.add_parity(1, &[1; 10]).unwrap();
    assert_eq!(
        decoder.add_parity(0, &[1; 20]),
        Err(CodecError::Again { chunk: 1 })
    );
    decoder.add_data(0, &[1; 10]).unwrap();
    assert_eq!(
        decoder.add_data(0, &[1; 10]),
        Err(CodecError::Again { chunk: 0 })
    );
    assert!(!decoder.recoverable());
    let length = decoder.finish(&mut [0; 34]).unwrap_err();
    assert_eq!(
        length,
        CodecError::OtherDataBytes {
            given: 34,
            expected: 35
        }
    );
}
