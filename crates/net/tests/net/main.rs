//! Tests of the public interface, as one program: it links once.

mod boxes;
mod bytes;
#[path = "../common/mod.rs"]
mod common;
mod lossless;
mod paths;
mod queues;
mod repeat;
mod timing;
mod topologies;
