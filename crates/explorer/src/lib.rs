//! The completion-time model for a web page: numbers in, numbers out.
//!
//! Compiled to WebAssembly, [`exports`] has the functions that the page calls. [`question`]
//! converts the numbers of the page to a question for `farwrite-model`, and reports which input of
//! the page an error is about. The model does all computation. `page/` holds the page, and
//! `bundle.py` makes one file of all parts.

pub mod exports;
pub mod question;
