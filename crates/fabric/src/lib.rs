//! Fabrics: who carries packets.
//!
//! A fabric behaves like an unreliable-connected (UC) NIC: memory is registered under keys, queue
//! pairs are connected, single-packet RDMA Writes with immediate and small SENDs are posted, and
//! completions are polled. Delivery may reorder, and losses are silent. [`contract`] is that
//! border; every member keeps it, and one suite of tests runs on all of them.

pub mod contract;
#[cfg(target_os = "linux")]
pub mod emulator;
pub mod nic;
pub mod sim;
#[cfg(target_os = "linux")]
pub mod udp;
