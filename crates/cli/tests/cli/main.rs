//! Tests of the program and its subcommands.

mod codes;
mod plan;
mod probe;
mod program;
mod sim;
mod trace;
