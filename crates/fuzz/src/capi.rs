//! Targets of the C interface.

use farwrite_capi::{INFO_BYTES, read_any};

/// The blob that C programs exchange. Bytes that are missing are zeros, as in a short blob. What can be
/// read, and is written again, reads the same.
pub fn info(data: &[u8]) {
    read_any(data);
    let mut blob = data.to_vec();
    blob.resize(INFO_BYTES, 0);
    read_any(&blob);
}
