//! Parity is that of ISA-L, byte for byte, and each library recovers from the parity of the other.

use farwrite_codes::{Code, Codec, Kernel, Kind, Present};
use farwrite_isal::Product;
use farwrite_rng::SplitMix;
use proptest::prelude::*;

fn shape() -> impl Strategy<Value = (usize, usize)> {
    (1_usize..=254).prop_flat_map(|k| (Just(k), 1..=255 - k))
}

fn bytes(count: usize, seed: u64) -> Vec<u8> {
    SplitMix::new(seed).bytes(count)
}

proptest! {
    #[test]
    fn parity_bytes_are_those_of_isal(
        (k, m) in shape(),
        chunk_bytes in prop_oneof![1_usize..200, Just(4096)],
        seed: u64,
    ) {
        let data = bytes(k * chunk_bytes, seed);
        let mut expected = vec![0; m * chunk_bytes];
        let chunks: Vec<_> = data.chunks(chunk_bytes).collect();
        let mut parity: Vec<_> = expected.chunks_mut(chunk_bytes).collect();
        Product::encoding(k, m).run(&chunks, &mut parity, chunk_bytes);
        for kernel in Kernel::available() {
            let codec = Codec::with_kernel(Code::new(Kind::Mds, k, m).unwrap(), kernel);
            let mut parity = vec![0; m * chunk_bytes];
            codec.encode(&data, chunk_bytes, &mut parity).unwrap();
            prop_assert!(parity == expected, "{} ({k},{m}) {chunk_bytes}", kernel);
        }
    }

    #[test]
    fn isal_recovers_from_our_parity_and_we_from_its(
        (k, m) in shape(),
        chunk_bytes in 1_usize..100,
        seed: u64,
    ) {
        let data = bytes(k * chunk_bytes, seed);
        let codec = Codec::new(Code::new(Kind::Mds, k, m).unwrap());
        let mut parity = vec![0; m * chunk_bytes];
        codec.encode(&data, chunk_bytes, &mut parity).unwrap();
        let lost: Vec<usize> = (0..k).step_by(k.div_ceil(m)).collect();
        let mut present = Present::all(codec.code(), k);
        let mut damaged = data.clone();
        for &chunk in &lost {
            present.data.remove(chunk);
            damaged[chunk * chunk_bytes..][..chunk_bytes].fill(0);
        }

        let kept = present.data.iter().map(|chunk| &data[chunk * chunk_bytes..][..chunk_bytes]);
        let inputs: Vec<_> = kept.chain(parity.chunks(chunk_bytes)).take(k).collect();
        let mut rebuilt = vec![0; lost.len() * chunk_bytes];
        let mut outputs: Vec<_> = rebuilt.chunks_mut(chunk_bytes).collect();
        Product::decoding(k, m, &lost).run(&inputs, &mut outputs, chunk_bytes);
        for (&chunk, rebuilt) in lost.iter().zip(rebuilt.chunks(chunk_bytes)) {
            prop_assert_eq!(rebuilt, &data[chunk * chunk_bytes..][..chunk_bytes]);
        }
        codec.recover(&mut damaged, &parity, chunk_bytes, &present).unwrap();
        prop_assert!(damaged == data);
    }
}
