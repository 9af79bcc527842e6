//! The schemes against a channel with every fault, in virtual time.

mod completion;
mod harness;
