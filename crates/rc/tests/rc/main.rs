//! Tests of the public interface, as one program: it links once.

mod baselines;
mod common;
mod exchanges;
mod faults;
mod incast;
mod nic;
mod selective;
mod xp;
