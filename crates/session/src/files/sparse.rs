//! Files with holes.

/// The block size that file systems allocate, or a multiple of it.
const BLOCK_BYTES: u64 = 4096;

/// Returns the stretches of `bytes` that must be written so that a new file has these bytes at
/// `offset`, each with its position in the file. Omitted bytes are zeros within one block of the
/// file, and a new file contains zeros there anyway.
pub(super) fn stretches(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && is_zero(block(offset, bytes, at)) {
            at += block(offset, bytes, at).len();
        }
        let start = at;
        while at < bytes.len() && !is_zero(block(offset, bytes, at)) {
            at += block(offset, bytes, at).len();
        }
        let place = offset + u64::try_from(start).unwrap_or(u64::MAX);
        (start < at).then(|| (place, &bytes[start..at]))
    })
}

/// Returns the bytes from `at` to the end of the block of the file that contains it.
fn block(offset: u64, bytes: &[u8], at: usize) -> &[u8] {
    let rest = &bytes[at..];
    let place = offset + u64::try_from(at).unwrap_or(u64::MAX);
    let room = BLOCK_BYTES - place % BLOCK_BYTES;
    let room = usize::try_from(room).map_or(rest.len(), |room| room.min(rest.len()));
    &rest[..room]
}

/// Reads every byte: compilers make this faster than an early exit.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |all, byte| all | byte) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn places(offset: u64, bytes: &[u8]) -> Vec<(u64, usize)> {
        stretches(offset, bytes)
            .map(|(place, stretch)| (place, stretch.len()))
            .collect()
    }

    #[test]
    fn blocks_of_zeros_are_left_out() {
        let mut bytes = vec![0; 5 * 4096];
        assert_eq!(places(0, &bytes), []);
        bytes[4096] = 1;
        bytes[3 * 4096 - 1] = 1;
        assert_eq!(places(0, &bytes), [(4096, 8192)]);
        // One byte later in the file, the same bytes belong to other blocks.
        assert_eq!(places(1, &bytes), [(4096, 4096), (12288, 4096)]);
    }

    proptest! {
        #[test]
        fn stretches_over_zeros_are_the_bytes(
            offset in 0u64..10_000,
            runs in prop::collection::vec((any::<bool>(), 1usize..6000), 0..8),
        ) {
            let bytes: Vec<u8> = runs
                .iter()
                .flat_map(|(zero, length)| vec![u8::from(!zero); *length])
                .collect();
            let mut file = vec![0; bytes.len()];
            for (place, stretch) in stretches(offset, &bytes) {
                let at = usize::try_from(place - offset).expect("in the file");
                file[at..at + stretch.len()].copy_from_slice(stretch);
            }
            prop_assert_eq!(file, bytes);
        }
    }
}
