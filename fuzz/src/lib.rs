//! What the fuzz targets run: one module a crate, one function a target. Each takes any bytes and
//! panics when something that must hold does not.

pub mod boxes;
pub mod codes;
pub mod collectives;
pub mod fabric;
pub mod path;
pub mod probe;
pub mod sdr;
pub mod session;
pub mod wire;
