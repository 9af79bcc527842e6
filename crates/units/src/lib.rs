//! Sizes, rates and times as people write them ([`parse`]), also in files ([`written`]), and read
//! them ([`show`]); and the files that they name ([`input`]). Means and quantiles are in [`stats`].

mod burst;
pub mod input;
pub mod parse;
pub mod show;
pub mod stats;
pub mod written;

pub use burst::Burst;
