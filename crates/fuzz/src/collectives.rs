//! Targets of the collectives crate.

pub use farwrite_collectives::fuzzing::{messages, record, rendezvous};
