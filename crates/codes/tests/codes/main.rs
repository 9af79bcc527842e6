//! Codes do what they promise: every kernel, every way of calling.

mod fuzz;
mod group;
mod losses;
mod message;
mod naive;
mod refusals;
mod shapes;
mod ways;
