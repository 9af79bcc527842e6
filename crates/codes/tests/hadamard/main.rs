//! The block Hadamard transform does what it promises: every kernel, format and shape.

mod bounds;
mod common;
mod kernels;
mod loss;
mod places;
mod refusals;
