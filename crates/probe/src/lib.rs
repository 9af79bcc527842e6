//! Measures the path between two machines: what it loses and in what bursts, its round trip, rate,
//! order, congestion marks, address translation and MTU (P9).
//!
//! A *prober* asks, a *responder* counts and answers. They meet over a session's channel, which has
//! proven that both hold the key, and agree on a UDP port and on a key for the datagrams of this
//! probe: nothing is answered for strangers. Datagrams belong to *trials*. The responder notes what
//! arrives of a trial and gives its counts when the prober closes it.
//!
//! Without sockets and clock: the datagrams ([`datagram`]), what a responder notes ([`desk`],
//! [`tally`]) and what follows from the counts ([`estimate`]). With them: [`answer`] and [`probe`].

pub mod datagram;
pub mod desk;
mod error;
pub mod estimate;
mod findings;
mod host_drops;
pub mod message;
mod prober;
mod responder;
mod settings;
pub mod tally;

use farwrite_session::Text;

pub use error::Error;
pub use findings::{
    Direction, Ecn, Findings, Host as HostFindings, Mtu, MtuLimit, Nat, Rate, RateLimit, RoundTrip,
    Trial,
};
pub use prober::{Event, Host, probe};
pub use responder::{Answered, answer};
pub use settings::Settings;

/// What this end calls itself.
fn software() -> Text {
    Text::new(concat!("farwrite ", env!("CARGO_PKG_VERSION")))
}
