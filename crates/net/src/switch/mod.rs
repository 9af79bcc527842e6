//! Switches: shared buffer, ECN marks, PFC, trimming and the choice among equal paths.

mod balancer;
mod buffer;
mod config;
mod last_ports;
mod router;

pub use balancer::{Balancer, MakeBalancer, NamedBalancer, PortChoice};
pub use config::{MarkAt, Pfc, Policy, Red, SwitchConfig, SwitchError, Trim, XoffThreshold};

pub(crate) use buffer::Buffer;
pub(crate) use config::PFC_FRAME_BYTES;
pub(crate) use router::{PortGroups, Router};

use farwrite_link::Rng;

/// The decision state of one switch. Its egress queues belong to its ports.
#[derive(Debug)]
pub(crate) struct Switch {
    pub(crate) config: SwitchConfig,
    pub(crate) buffer: Buffer,
    pub(crate) router: Router,
    marking: Rng,
}

impl Switch {
    pub(crate) fn new(config: SwitchConfig, headroom: Vec<u64>, rng: &mut Rng) -> Self {
        Self {
            buffer: Buffer::new(&config, headroom),
            router: Router::with(config.routing, config.balancer.as_ref(), rng),
            marking: Rng::new(rng.bits()),
            config,
        }
    }

    /// The probability of marking a frame whose egress queue holds `queue_bytes`; 0 if the switch
    /// does not mark at this point. `port_bps` has the rate of the port.
    pub(crate) fn mark_probability(
        &self,
        at: MarkAt,
        queue_bytes: u64,
        port_bps: impl FnOnce() -> u64,
    ) -> f64 {
        let red = self.config.ecn.filter(|red| red.at == at);
        red.map_or(0.0, |red| red.probability(queue_bytes, port_bps()))
    }

    /// Draws whether to mark a frame.
    pub(crate) fn marks(&mut self, probability: f64) -> bool {
        self.marking.chance(probability)
    }
}
