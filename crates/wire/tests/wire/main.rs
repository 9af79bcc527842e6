//! Tests of the public interface, as one program: it links once.

mod common;
mod control;
mod icrc;
mod packet;
mod sealing;
