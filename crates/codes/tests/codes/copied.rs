//! Groups that are coded from copies give the same bytes as groups that lie in memory.

use farwrite_codes::{Chunk, Code, Codec, CodecError, Present};
use proptest::prelude::*;

use crate::group::{Group, bytes, groups, kernels, survivors};

/// Codes the group from copies with each kernel, and compares with the bytes in memory. Chunks that
/// are not present must not be read.
fn check(group: &Group, present: &Present) {
    let (data_bytes, chunk_bytes) = (group.data.len(), group.chunk_bytes);
    let missing = present.data.missing(group.data_chunks());
    // The buffers of another group: they are too long or too short, and not empty.
    let (mut parity, mut rebuilt, mut buffer) = (vec![0xEE; 77], vec![0xEE; 9999], vec![0xEE; 5]);
    for kernel in kernels() {
        let codec = Codec::with_kernel(group.code, kernel);
        let mut expected = vec![0; group.parity_bytes()];
        codec
            .encode(&group.data, chunk_bytes, &mut expected)
            .unwrap();
        let read = |offset: usize, out: &mut [u8]| {
            out.copy_from_slice(&group.data[offset..offset + out.len()]);
        };
        codec
            .encode_copied(data_bytes, chunk_bytes, &mut parity, &mut buffer, read)
            .unwrap();
        assert!(parity == expected, "{kernel}");
        let read = |chunk: Chunk, offset: usize, out: &mut [u8]| {
            let (from, start) = match chunk {
                Chunk::Data(chunk) => {
                    assert!(present.data.contains(chunk), "data chunk {chunk}");
                    (&group.data, chunk * chunk_bytes + offset)
                }
                Chunk::Parity(chunk) => {
                    assert!(present.parity.contains(chunk), "parity chunk {chunk}");
                    (&expected, chunk * chunk_bytes + offset)
                }
            };
            out.copy_from_slice(&from[start..start + out.len()]);
        };
        let done = codec.recover_copied(
            data_bytes,
            chunk_bytes,
            present,
            &mut rebuilt,
            &mut buffer,
            read,
        );
        if !group.code.recoverable(group.data_chunks(), present) {
            assert!(matches!(done, Err(CodecError::NotRecoverable { .. })));
            continue;
        }
        done.unwrap();
        assert_eq!(rebuilt.len(), missing.len() * chunk_bytes);
        for (chunk, bytes) in missing.iter().zip(rebuilt.chunks(chunk_bytes)) {
            let sent = group.data.chunks(chunk_bytes).nth(chunk).unwrap();
            let (there, padding) = bytes.split_at(sent.len());
            assert!(there == sent, "{kernel}: chunk {chunk}");
            assert!(padding.iter().all(|&byte| byte == 0), "{kernel}: padding");
        }
    }
}

proptest! {
    #[test]
    fn copies_give_the_same_bytes(group in groups(60, 200), seed: u64, loss: u8) {
        check(&group, &survivors(&group, seed, loss));
    }
}

/// Chunks of several strips, of lengths that no strip and no cache line divides.
#[test]
fn long_chunks_are_cut_into_strips() {
    for (name, chunk_bytes, data_bytes) in [
        ("ec-mds:32,8", 9_001, 31 * 9_001 + 4_200),
        ("ec-mds:200,20", 2_100, 200 * 2_100 - 1_500),
        ("ec-xor:6,2", 70_000, 5 * 70_000 + 7),
    ] {
        let code: Code = name.parse().unwrap();
        let group = Group {
            code,
            chunk_bytes,
            data: bytes(data_bytes, 5),
        };
        let last = group.data_chunks() - 1;
        for lost in [[0, 1], [1, last]] {
            let mut present = Present::all(code, group.data_chunks());
            for chunk in lost {
                present.data.remove(chunk);
            }
            check(&group, &present);
        }
    }
}

#[test]
fn lengths_must_fit() {
    let codec = Codec::new("ec-mds:4,2".parse().unwrap());
    let (mut parity, mut buffer) = (Vec::new(), Vec::new());
    for (data_bytes, chunk_bytes) in [(0, 8), (33, 8), (32, 0)] {
        let done =
            codec.encode_copied(data_bytes, chunk_bytes, &mut parity, &mut buffer, |_, _| {
                panic!("nothing is read")
            });
        assert!(
            done.is_err(),
            "{data_bytes} bytes in chunks of {chunk_bytes}"
        );
    }
    assert_eq!(parity, []);
}
