//! Tests of the public interface, as one program: it links once.

mod agreement;
mod boxes;
mod common;
mod endpoints;
mod peer_times;
mod peers;
mod plans;
mod runs;
