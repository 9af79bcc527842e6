//! The software NIC beyond the contract: what is its own choice, what a model says of it, and what
//! it makes of bytes that nobody would send.

mod choices;
mod hostile;
mod model;
mod partial;
mod routes;
mod two_ends;
