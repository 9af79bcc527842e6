//! Targets of the plugin for NCCL.

use nccl_net_farwrite::abi::HANDLE_BYTES;
use nccl_net_farwrite::fuzzing;

/// The handle of a listener. Bytes that are missing are zeros.
pub fn handle(data: &[u8]) {
    let mut bytes = [0; HANDLE_BYTES];
    for (to, from) in bytes.iter_mut().zip(data) {
        *to = *from;
    }
    fuzzing::handle(&bytes);
}
