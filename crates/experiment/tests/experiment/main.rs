//! Tests of the public interface, as one program: it links once.

mod agreement;
mod boxes;
mod changes;
mod common;
mod endpoints;
mod peer_times;
mod peers;
mod plans;
mod refusals;
mod runs;
mod settings;
