//! Tests of losses up to the limit of a code, and beyond it.

use farwrite_codes::{Code, Codec, CodecError, Kind, Present};
use proptest::prelude::*;

use crate::group::{Group, bytes, groups, kernels, survivors};
use crate::naive;

/// Checks that `recover` rebuilds the group if the code declares it recoverable, and otherwise
/// returns an error and changes nothing.
fn check(codec: &Codec, group: &Group, parity: &[u8], present: &Present) {
    let damaged = group.damaged(present);
    let mut parity = parity.to_vec();
    for (chunk, bytes) in parity.chunks_mut(group.chunk_bytes).enumerate() {
        if !present.parity.contains(chunk) {
            bytes.fill(0xAD);
        }
    }
    let mut data = damaged.clone();
    let result = codec.recover(&mut data, &parity, group.chunk_bytes, present);
    let context = || format!("{} {} {present:?}", codec.kernel(), group.code);
    if group.code.recoverable(group.data_chunks(), present) {
        assert_eq!(result, Ok(()), "{}", context());
        assert!(data == group.data, "{}", context());
    } else {
        assert!(
            matches!(result, Err(CodecError::NotRecoverable { .. })),
            "{}",
            context()
        );
        assert!(data == damaged, "{}", context());
    }
}

#[test]
fn every_pattern_of_small_groups() {
    for kernel in kernels() {
        for (kind, k, m) in [
            (Kind::Mds, 1, 1),
            (Kind::Mds, 1, 3),
            (Kind::Mds, 2, 2),
            (Kind::Mds, 5, 3),
            (Kind::Mds, 3, 5),
            (Kind::Mds, 6, 4),
            (Kind::Xor, 1, 1),
            (Kind::Xor, 5, 1),
            (Kind::Xor, 6, 3),
            (Kind::Xor, 5, 5),
            (Kind::Xor, 7, 3),
        ] {
            let code = Code::new(kind, k, m).unwrap();
            let codec = Codec::with_kernel(code, kernel);
            for chunk_bytes in [3, 70] {
                // A full group, a group with a short last chunk, and a group with fewer chunks.
                for data_bytes in [
                    k * chunk_bytes,
                    k * chunk_bytes - 2,
                    (k - k / 2) * chunk_bytes - 1,
                ] {
                    let data = bytes(data_bytes, 7);
                    let group = Group {
                        code,
                        chunk_bytes,
                        data,
                    };
                    let parity = naive::parity(code, &group.data, chunk_bytes);
                    let (data, parity_chunks) = (group.data_chunks(), parity.len() / chunk_bytes);
                    for set in 0..1_usize << (data + parity_chunks) {
                        let present = Present {
                            data: (0..data).filter(|bit| set >> bit & 1 == 1).collect(),
                            parity: (0..parity_chunks)
                                .filter(|bit| set >> (data + bit) & 1 == 1)
                                .collect(),
                        };
                        check(&codec, &group, &parity, &present);
                    }
                }
            }
        }
    }
}

#[test]
fn an_mds_code_repairs_as_many_as_it_has_parity() {
    let code = Code::new(Kind::Mds, 6, 4).unwrap();
    for set in 0..1_u32 << 10 {
        let present = Present {
            data: (0..6).filter(|bit| set >> bit & 1 == 1).collect(),
            parity: (0..4).filter(|bit| set >> (6 + bit) & 1 == 1).collect(),
        };
        assert_eq!(code.recoverable(6, &present), set.count_ones() >= 6);
    }
}

proptest! {
    #[test]
    fn random_losses_of_large_groups(
        group in groups(255, 300),
        seed: u64,
        loss: u8,
    ) {
        for kernel in kernels() {
            let codec = Codec::with_kernel(group.code, kernel);
            let mut parity = vec![0; group.parity_bytes()];
            codec.encode(&group.data, group.chunk_bytes, &mut parity).unwrap();
            check(&codec, &group, &parity, &survivors(&group, seed, loss));
        }
    }

    #[test]
    fn as_many_losses_as_parity(group in groups(255, 100), seed: u64) {
        // The data chunks with the smallest random numbers are lost, as many as the group has
        // parity chunks.
        let data_chunks = group.data_chunks();
        let lost = group.code.parity_chunks(data_chunks).min(data_chunks);
        let rng = bytes(255, seed);
        let mut order: Vec<usize> = (0..data_chunks).collect();
        order.sort_by_key(|&chunk| rng[chunk]);
        let mut present = Present::all(group.code, data_chunks);
        for chunk in &order[..lost] {
            present.data.remove(*chunk);
        }
        for kernel in kernels() {
            let codec = Codec::with_kernel(group.code, kernel);
            let mut parity = vec![0; group.parity_bytes()];
            codec.encode(&group.data, group.chunk_bytes, &mut parity).unwrap();
            check(&codec, &group, &parity, &present);
        }
    }
}
