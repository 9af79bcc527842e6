//! Tests of the block Hadamard transform, with every kernel, format and shape.

mod bounds;
mod common;
mod kernels;
mod loss;
mod places;
mod refusals;
