//! The C interface of Farwrite: `libfarwrite`, with the headers in `include/`.
//!
//! `sdr.h` and `sdr_mr.h` are the interface of the SDR paper, in the form in which its authors have
//! published it. docs/c.md is a manual.
//!
//! Each context has a thread that owns the endpoint ([`ProgressThread`](farwrite::ProgressThread)).
//! Calls that programs repeat in a loop read atomics: the bitmap, the immediate, and whether a send is
//! complete. Other calls wait for the thread, which answers between two polls.
//!
//! Handles are numbers with a generation (`table.rs`), so misuse is found and is an error.

mod connections;
mod context;
mod descriptors;
mod device;
mod failure;
pub mod farwrite_h;
mod ffi;
mod fork;
mod info;
mod memory;
mod messages;
mod queue_pair;
mod reliable;
pub mod sdr;
pub mod sdr_mr;
mod shape;
mod statistics;
mod streams;
mod table;

#[doc(hidden)]
pub use info::{INFO_BYTES, read_any};
