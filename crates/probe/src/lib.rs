//! Measures the path between two machines: loss and loss bursts, round-trip time, rate, reordering,
//! ECN marks, address translation and MTU (P9).
//!
//! A *prober* asks, and a *responder* counts and answers. They have a connection (P12), which proves who both are.
//! Over it ([`Control`]), they agree on a UDP port and on a key for the datagrams of this probe, so the responder
//! never answers strangers. Datagrams belong to *trials*. The responder records the arrivals of a trial, and sends
//! its counts when the prober closes the trial.
//!
//! Modules without sockets and clock: the datagrams ([`datagram`]), the responder's records
//! ([`open_trials`], [`trial_arrivals`]) and the statistics ([`estimate`]). With them: [`answer`] and
//! [`probe`].

mod control;
pub mod datagram;
mod error;
pub mod estimate;
mod findings;
mod host_drops;
pub mod message;
pub mod open_trials;
mod prober;
mod responder;
mod settings;
pub mod trial_arrivals;

pub use control::Control;
pub use error::Error;
pub use findings::{
    DirectionFindings, EcnFindings, Findings, HostFindings, Mtu, MtuLimit, Nat, Rate, RateLimit,
    RoundTrip, TrialFindings,
};
pub use prober::{ProbeHooks, ProbeStage, probe};
pub use responder::{ResponderSummary, answer};
pub use settings::Settings;
