//! Sizes, rates and times as people write them ([`parse`]) and read them ([`show`]).

pub mod parse;
pub mod show;
