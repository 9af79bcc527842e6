//! Runs the fuzz targets of this crate (`fuzz/`) on random bytes, and on bytes that are nearly
//! valid.

use farwrite_collectives::fuzzing;
use proptest::prelude::*;

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzzing::messages(&bytes);
        fuzzing::record(&bytes);
    }

    #[test]
    fn records_of_any_shape_are_read(
        ranks in 0..20_u8,
        packets in 0..40_u8,
        bytes in prop::collection::vec(any::<u8>(), 120),
    ) {
        fuzzing::record(&[&[ranks, packets][..], &bytes].concat());
    }
}
