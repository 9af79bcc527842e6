//! Tests of the public interface, as one program: it links once.

#[path = "../common/mod.rs"]
mod common;
mod connections;
#[path = "../common/exchange.rs"]
mod exchange;
mod faults;
mod netrt;
mod netrt_frames;
mod netrt_pairs;
mod netrt_racks;
#[path = "../common/network.rs"]
mod network;
mod on_path;
mod patterns;
#[path = "../common/racks.rs"]
mod racks;
mod singles;
mod strangers;
