//! A net plugin for NCCL: `libnccl-net-farwrite.so`.
//!
//! NCCL loads the library, takes the newest `ncclNetPlugin_vN` that it knows, and calls its functions. docs/nccl.md is
//! a manual.
//!
//! A device is a network interface. It has one UDP port for connections of peers (`ports.rs`), and one for
//! connections to peers. Each connection of NCCL carries messages one way, over a connection of its own with one queue
//! pair (`comm.rs`). NCCL's memory is registered, so that no byte is copied on the way to or from packets.
//!
//! NCCL's objects are numbers here (`table.rs`), so a wrong one is an error. NCCL asks in a loop whether requests are
//! done: that reads atomics, and does not ask the thread of the endpoint.

pub mod abi;
mod comm;
mod connecting;
mod devices;
mod failure;
mod ffi;
#[doc(hidden)]
pub mod fuzzing;
mod handle;
mod logger;
mod memory;
mod plugin;
mod ports;
mod request;
mod settings;
mod table;
mod task;
