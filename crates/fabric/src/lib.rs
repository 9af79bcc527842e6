//! Fabrics: who carries packets.
//!
//! A fabric behaves like an unreliable-connected (UC) NIC: memory is registered, windows onto it
//! are opened for peers, queue pairs are connected, single-packet RDMA Writes with immediate and
//! small SENDs are posted, and completions are polled. Delivery may reorder, and losses are silent.
//! [`contract`] is that border. Every fabric keeps it, and one suite of tests runs on all of them.

mod adapter;
pub mod contract;
#[cfg(target_os = "linux")]
pub mod emulator;
pub mod net;
pub mod nic;
pub mod sim;
#[cfg(target_os = "linux")]
pub mod udp;

pub use adapter::Adapter;
