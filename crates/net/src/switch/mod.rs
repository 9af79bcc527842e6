//! Switches: a shared buffer, marks, pauses, trimming and the choice among equal paths.

mod buffer;
mod config;
mod router;

pub use config::{MarkAt, Pfc, Policy, Red, SwitchConfig, SwitchError, Trim, XoffThreshold};

pub(crate) use buffer::Buffer;
pub(crate) use config::PFC_FRAME_BYTES;
pub(crate) use router::{Groups, Router};

use farwrite_link::Dice;

/// What one switch decides by. Its queues are in its ports.
#[derive(Debug)]
pub(crate) struct Switch {
    pub(crate) config: SwitchConfig,
    pub(crate) buffer: Buffer,
    pub(crate) router: Router,
    marking: Dice,
}

impl Switch {
    pub(crate) fn new(config: SwitchConfig, headroom: Vec<u64>, dice: &mut Dice) -> Self {
        Self {
            buffer: Buffer::new(&config, headroom),
            router: Router::new(config.routing, dice),
            marking: Dice::new(dice.bits()),
            config,
        }
    }

    /// Whether to mark a frame whose queue has `queue_bytes`, `at` this point of its way.
    pub(crate) fn marks(&mut self, at: MarkAt, queue_bytes: u64) -> bool {
        let red = self.config.ecn.filter(|red| red.at == at);
        red.is_some_and(|red| self.marking.chance(red.probability(queue_bytes)))
    }
}
