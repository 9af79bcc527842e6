//! Fabrics: NICs that carry packets.
//!
//! A fabric behaves like an unreliable-connected (UC) NIC. Its user registers memory, opens windows
//! onto it for peers, connects queue pairs, posts single-packet RDMA Writes with immediate and
//! small SENDs, and polls completions. Delivery may reorder packets and lose them silently.
//! [`contract`] defines this interface. Every fabric implements it, and one test suite runs on all
//! of them.

mod adapter;
mod alarm;
pub mod contract;
pub mod net;
pub mod nic;
pub mod sim;
pub mod threads;
#[cfg(target_os = "linux")]
pub mod udp;

pub use adapter::Adapter;
pub use alarm::Alarm;
