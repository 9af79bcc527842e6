//! Trees from a source to a sink (P8.2, P8.4), without a network between them.

mod abandon;
mod delete;
mod details;
mod directory;
mod failures;
mod links;
mod manifest;
mod place;
mod policy;
mod present;
mod resume;
mod session;
mod sink;
mod source;
mod stored_stream;
mod trees;
