//! Which scheme repairs the next message.

use std::time::Duration;

use farwrite::{Endpoint, Fabric, QpOptions, QueuePair, SchemeName, SchemeTag};

use crate::chooser::{Chooser, Packets};
use crate::scheme_setting::SchemeSetting;

/// The rate that the planner assumes until one was measured.
const LIKELY_BPS: u64 = 1_000_000_000;

/// Messages between two looks at the measurements.
const LOOK_MESSAGES: u32 = 16;

/// Picks the scheme of each message of a queue pair: one scheme for all, or what the planner chooses from what the
/// endpoint has measured.
pub struct SchemePicker(Picker);

enum Picker {
    Named(SchemeTag),
    Auto(Box<Auto>),
}

/// Asks the planner.
struct Auto {
    chooser: Chooser,
    slots: u32,
    until_look: u32,
}

impl SchemePicker {
    /// A picker for a queue pair with these options, which has at most `messages` messages under way.
    #[must_use]
    pub fn new(choice: SchemeSetting, options: &QpOptions, messages: u32) -> Self {
        Self(match choice {
            SchemeSetting::Named(name) => Picker::Named(name.tag()),
            SchemeSetting::Auto => {
                let packets = Packets {
                    mtu: options.sdr.mtu,
                    chunk_bytes: u64::from(options.sdr.mtu)
                        * u64::from(options.sdr.packets_per_chunk),
                };
                let rtt: Duration = options.initial_rtt;
                let candidates = choice.candidates();
                let chooser = Chooser::new(candidates, packets, rtt, LIKELY_BPS, None);
                Picker::Auto(Box::new(Auto {
                    chooser,
                    slots: messages,
                    until_look: 0,
                }))
            }
        })
    }

    /// Picks the scheme of a message of `bytes` bytes, of `left` that are not over, this one included.
    pub fn pick<F: Fabric>(
        &mut self,
        endpoint: &Endpoint<F>,
        qp: QueuePair,
        (bytes, left): (u64, u64),
    ) -> SchemeTag {
        let auto = match &mut self.0 {
            Picker::Named(tag) => return *tag,
            Picker::Auto(auto) => auto,
        };
        if auto.until_look == 0
            && let (Ok(stats), Ok(peer)) = (endpoint.qp_stats(qp), endpoint.peer_stats(qp))
        {
            auto.chooser.set_coding_cores(endpoint.coding_cores());
            auto.chooser.look(&stats, &peer);
            auto.until_look = LOOK_MESSAGES;
        }
        auto.until_look = auto.until_look.saturating_sub(1);
        // One plan serves all lengths up to the next power of two, so that few plans are made.
        let planned_bytes = bytes.next_power_of_two();
        let name: SchemeName = auto.chooser.choose(planned_bytes, left, auto.slots).scheme;
        name.tag()
    }
}
