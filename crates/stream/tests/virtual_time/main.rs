//! Streams between two endpoints in virtual time.

mod ends;
mod flow;
mod lies;
mod world;
