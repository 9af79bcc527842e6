//! Tests of the public interface, as one program: it links once.

mod emulated;
mod fuzz;
mod tallies;
