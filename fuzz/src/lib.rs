//! The fuzz targets: one module for each crate, and one function for each target. Each function takes any
//! bytes, and panics if a property does not hold.

pub mod boxes;
pub mod codes;
pub mod collectives;
pub mod fabric;
pub mod http;
pub mod path;
pub mod probe;
pub mod sdr;
pub mod session;
pub mod wire;
