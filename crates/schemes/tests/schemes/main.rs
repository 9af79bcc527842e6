//! The schemes against a channel with every fault, in virtual time.

mod completion;
mod events;
mod foreign;
mod harness;
mod hostile;
mod repair;
mod reports;
mod sweep;
