//! Tests of the software NIC beyond the contract: its own choices, a comparison with a model, and
//! hostile packets.

mod choices;
mod closure_carrier;
mod model;
mod partial;
mod routes;
mod sealing;
mod two_ends;
