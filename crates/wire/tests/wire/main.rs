//! Tests of the public interface, as one program: it links once.

mod common;
mod control;
mod fuzz;
mod icrc;
mod packet;
