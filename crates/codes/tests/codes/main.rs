//! Tests of the erasure codes, with every kernel and every way to call a codec.

mod copied;
mod group;
mod losses;
mod message;
mod naive;
mod refusals;
mod shapes;
mod ways;
