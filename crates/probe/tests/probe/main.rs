//! Tests of the public interface, as one program: it links once.

mod emulated;
mod ends;
mod fuzz;
#[cfg(target_os = "linux")]
mod overflow;
mod share;
mod tallies;
