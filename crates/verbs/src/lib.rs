//! The fabric contract over RDMA devices.
//!
//! [`VerbsFabric`] runs on unreliable-connected (UC) queue pairs of libibverbs, over RoCE v2. A write
//! is one RDMA Write with immediate of one packet, so it looks on the wire as the packets of the UDP
//! fabric, and either end can use either fabric. libibverbs is opened when a fabric is, so programs
//! need neither headers nor devices to be built.
//!
//! [`AnyFabric`] is this fabric or UDP sockets, for programs whose user chooses.
//!
//! [`VerbsConfig`] names a device and its addresses. `docs/rdma.md` says what was tested, and what
//! the fabric cannot do that software can.
#![cfg(target_os = "linux")]

mod any;
mod binder;
mod broken;
mod buffers;
mod config;
mod device;
mod epochs;
mod fabric;
mod keys;
mod port;
mod real_time;
mod receiving;
mod regions;
mod rx;
mod sending;
mod tx;
mod windows;

pub use any::{AnyFabric, AnyRx, AnyTx};
pub use config::{DeviceNameError, VerbsConfig};
pub use device::device_names;
pub use fabric::VerbsFabric;
pub use rx::VerbsRx;
pub use tx::VerbsTx;
