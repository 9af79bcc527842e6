//! Sizes, rates and times as people write them ([`parse`]), also in files ([`written`]), and read
//! them ([`show`]).

pub mod parse;
pub mod show;
pub mod written;
