//! All kernels and all ways to call a codec return the bytes of the definition.

use farwrite_codes::{Codec, Decoder, Encoder, Kernel, Present};
use proptest::prelude::*;

use crate::group::{Group, bytes, groups, kernels, survivors};
use crate::naive;

/// Cuts `0..chunks` into runs of random length, and returns them in random order.
fn runs(chunks: usize, seed: u64) -> Vec<std::ops::Range<usize>> {
    let rng = bytes(2 * chunks, seed);
    let mut runs = Vec::new();
    let mut start = 0;
    while start < chunks {
        let end = chunks.min(start + 1 + usize::from(rng[start] % 7));
        runs.push(start..end);
        start = end;
    }
    runs.sort_by_key(|run| rng[chunks + run.start]);
    runs
}

/// Returns the bytes of a run of chunks.
fn of<'a>(group: &Group, bytes: &'a [u8], run: &std::ops::Range<usize>) -> &'a [u8] {
    &bytes[run.start * group.chunk_bytes..bytes.len().min(run.end * group.chunk_bytes)]
}

proptest! {
    #[test]
    fn parity_is_that_of_the_definition(group in groups(60, 400), junk: u8) {
        let expected = naive::parity(group.code, &group.data, group.chunk_bytes);
        for kernel in kernels() {
            let codec = Codec::with_kernel(group.code, kernel);
            let mut parity = vec![junk; group.parity_bytes()];
            codec.encode(&group.data, group.chunk_bytes, &mut parity).unwrap();
            prop_assert!(parity == expected, "{}", kernel);
        }
    }

    #[test]
    fn chunks_can_lie_anywhere(group in groups(60, 200), seed: u64, skew in 0_usize..70) {
        let present = survivors(&group, seed, 50);
        // Each chunk has its own allocation and lies at an odd address.
        let apart = |bytes: &[u8]| -> Vec<Vec<u8>> {
            bytes.chunks(group.chunk_bytes).map(|chunk| [&vec![1; skew], chunk].concat()).collect()
        };
        for kernel in kernels() {
            let codec = Codec::with_kernel(group.code, kernel);
            let mut parity = vec![0; group.parity_bytes()];
            codec.encode(&group.data, group.chunk_bytes, &mut parity).unwrap();

            let data = apart(&group.data);
            let data: Vec<&[u8]> = data.iter().map(|chunk| &chunk[skew..]).collect();
            let mut parity_apart = apart(&vec![0xEE; parity.len()]);
            let mut slices: Vec<_> = parity_apart.iter_mut().map(|chunk| &mut chunk[skew..]).collect();
            codec.encode_chunks(&data, &mut slices).unwrap();
            prop_assert!(slices.concat() == parity, "{}", kernel);

            let mut damaged = apart(&group.damaged(&present));
            let mut damaged: Vec<_> = damaged.iter_mut().map(|chunk| &mut chunk[skew..]).collect();
            // A parity chunk that is not present may be an empty slice.
            let parity: Vec<&[u8]> = parity_apart
                .iter()
                .enumerate()
                .map(|(i, chunk)| if present.parity.contains(i) { &chunk[skew..] } else { &[] })
                .collect();
            let result = codec.recover_chunks(&mut damaged, &parity, &present);
            let recoverable = group.code.recoverable(group.data_chunks(), &present);
            prop_assert_eq!(result.is_ok(), recoverable);
            prop_assert_eq!(damaged.concat() == group.data, recoverable || present.data.len() == group.data_chunks());
        }
    }

    #[test]
    fn chunk_by_chunk_gives_the_same_parity(group in groups(60, 200), seed: u64) {
        for kernel in kernels() {
            let codec = Codec::with_kernel(group.code, kernel);
            let mut whole = vec![0; group.parity_bytes()];
            codec.encode(&group.data, group.chunk_bytes, &mut whole).unwrap();
            let mut parity = vec![0xCC; whole.len()];
            let mut encoder =
                Encoder::new(&codec, group.data.len(), group.chunk_bytes, &mut parity).unwrap();
            for run in runs(group.data_chunks(), seed) {
                encoder.add(run.start, of(&group, &group.data, &run)).unwrap();
            }
            encoder.finish().unwrap();
            prop_assert!(parity == whole, "{}", kernel);
        }
    }

    #[test]
    fn chunk_by_chunk_recovers_the_same(group in groups(60, 200), seed: u64, loss: u8) {
        let present = survivors(&group, seed, loss);
        for kernel in kernels() {
            let codec = Codec::with_kernel(group.code, kernel);
            let mut parity = vec![0; group.parity_bytes()];
            codec.encode(&group.data, group.chunk_bytes, &mut parity).unwrap();
            let mut scratch = vec![0x77; parity.len()];
            let mut decoder =
                Decoder::new(&codec, group.data.len(), group.chunk_bytes, &mut scratch).unwrap();
            // Single chunks arrive in random order, with parity between the data.
            let rng = bytes(255, seed);
            let mut arrivals: Vec<_> = present.data.iter().map(|chunk| (false, chunk)).collect();
            arrivals.extend(present.parity.iter().map(|chunk| (true, chunk)));
            arrivals.sort_by_key(|&(_, chunk)| rng[chunk]);
            for (is_parity, chunk) in arrivals {
                let run = chunk..chunk + 1;
                match is_parity {
                    true => decoder.add_parity(chunk, of(&group, &parity, &run)).unwrap(),
                    false => decoder.add_data(chunk, of(&group, &group.data, &run)).unwrap(),
                }
            }
            prop_assert_eq!(decoder.present(), present);
            let recoverable = group.code.recoverable(group.data_chunks(), &present);
            prop_assert_eq!(decoder.recoverable(), recoverable);
            let damaged = group.damaged(&present);
            let mut data = damaged.clone();
            match decoder.finish(&mut data) {
                Ok(rebuilt) => {
                    prop_assert!(recoverable && data == group.data, "{}", kernel);
                    prop_assert_eq!(rebuilt, present.data.missing(group.data_chunks()));
                }
                Err(_) => prop_assert!(!recoverable && data == damaged, "{}", kernel),
            }
        }
    }
}

/// Groups that are large enough for streaming stores. Chunks and addresses are not multiples of a
/// cache line, and there are more rows than a kernel has registers for.
#[test]
fn large_groups_are_like_small_ones() {
    for (name, chunk_bytes, data_bytes) in [
        ("ec-mds:32,8", 40 << 10, 32 * (40 << 10)),
        ("ec-mds:32,8", (40 << 10) + 13, 32 * (40 << 10) - 50),
        ("ec-mds:30,21", 30_000, 29 * 30_000 + 70),
        ("ec-xor:6,2", (1 << 20) + 3, 5 * (1 << 20)),
    ] {
        let code = name.parse().unwrap();
        let group = Group {
            code,
            chunk_bytes,
            data: bytes(data_bytes, 5),
        };
        let mut expected = vec![0; group.parity_bytes()];
        let scalar = Codec::with_kernel(code, Kernel::SCALAR);
        scalar
            .encode(&group.data, chunk_bytes, &mut expected)
            .unwrap();
        let mut present = Present::all(code, group.data_chunks());
        for lost in [1, 2] {
            present.data.remove(lost);
        }
        for kernel in kernels() {
            let codec = Codec::with_kernel(code, kernel);
            for skew in [0, 1, 48] {
                let mut parity = vec![0; skew + expected.len()];
                codec
                    .encode(&group.data, chunk_bytes, &mut parity[skew..])
                    .unwrap();
                assert!(parity[skew..] == expected, "{name} {kernel} {skew}");
                let mut data = [vec![0; skew], group.damaged(&present)].concat();
                codec
                    .recover(&mut data[skew..], &expected, chunk_bytes, &present)
                    .unwrap();
                assert!(data[skew..] == group.data, "{name} {kernel} {skew}");
            }
        }
    }
}
