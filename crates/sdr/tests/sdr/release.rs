//! Releasing receives, and what they cost until then.
#![allow(unsafe_code)]

use farwrite_sdr::SdrQp;

/// Releases a receive where one thread does everything.
pub(crate) fn release(qp: &mut SdrQp, message: u64) {
    // SAFETY: this thread alone takes packets of the queue pair in, and does not do so now.
    unsafe { qp.release_recv(message) };
}
