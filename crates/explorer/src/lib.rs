//! The completion-time model for a web page: numbers in, numbers out.
//!
//! Compiled to WebAssembly, [`exports`] is what the page calls; [`question`] turns its numbers into a
//! question to `farwrite-model` and tells which of the page's inputs an error is about. Nothing is
//! computed here that the model computes. `page/` holds the page, `bundle.py` makes one file of all.

pub mod exports;
pub mod question;
