//! Tests of the public interface, as one program: it links once.

mod datagram;
mod emulated;
mod ends;
#[cfg(target_os = "linux")]
mod overflow;
mod share;
mod trial_arrivals;
