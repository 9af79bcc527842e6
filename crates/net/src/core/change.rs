//! Cables that fail, come back and change.

use farwrite_link::Wire;

use super::Core;
use crate::events::Event;
use crate::ids::PortId;
use crate::{CableConfig, CableId};

/// What happens to a cable, in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// The cable goes down. Frames that are on the cable or are sent into it are lost. Both ends
    /// clear their PFC pauses.
    Down,
    /// The cable comes up.
    Up,
    /// The configuration changes, whether the cable is up or down. Frames that are already on the
    /// cable keep their arrival times. The headroom of switches does not change.
    Config(CableConfig),
}

/// A scheduled change, with everything that was computed for it ahead of time.
pub(super) struct ScheduledChange {
    cable: CableId,
    action: Action,
}

enum Action {
    Down(bool),
    /// The new configuration, and a wire for each direction.
    Config(CableConfig, [Option<Box<Wire>>; 2]),
}

impl Core {
    /// Schedules a change.
    ///
    /// # Panics
    /// If there is no such cable.
    pub(crate) fn plan(
        &mut self,
        at_ns: u64,
        cable: CableId,
        change: Change,
    ) -> Result<(), farwrite_link::ConfigError> {
        assert!(
            cable.index() < self.cables.len(),
            "{cable} is not one of {}",
            self.cables.len()
        );
        let action = match change {
            Change::Down => Action::Down(true),
            Change::Up => Action::Down(false),
            Change::Config(config) => {
                let mut wire = |config: CableConfig| config.wire(self.rng.bits());
                let wires = [wire(config)?, wire(config.reversed())?];
                Action::Config(config, wires)
            }
        };
        let number = crate::ids::next_id(self.changes.len());
        self.changes.push(ScheduledChange { cable, action });
        self.events
            .add(at_ns.max(self.now_ns), Event::Change(number));
        Ok(())
    }

    /// Applies a scheduled change. Returns the ports at both ends of the cable.
    pub(crate) fn change(&mut self, number: u32) -> [PortId; 2] {
        let ScheduledChange { cable, action } = &self.changes[number as usize];
        let ends = self.cables[cable.index()];
        match action {
            Action::Config(config, wires) => {
                let configs = [*config, config.reversed()];
                for ((end, config), wire) in ends.into_iter().zip(configs).zip(wires) {
                    self.ports[end.index()].set_cable(&config, wire.clone());
                }
            }
            &Action::Down(down) => {
                for end in ends {
                    self.ports[end.index()].set_down(self.now_ns, down);
                }
                for end in ends {
                    self.start(end);
                }
                if let Some(after_ns) = self.reroute_ns {
                    self.add_event(after_ns, Event::Reroute);
                }
            }
        }
        ends
    }
}
