//! A log of PFC: when a port was stopped, and when it resumed.

use crate::NodeId;

/// A PFC frame that stopped or resumed a priority at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseEvent {
    /// When the frame arrived, in nanoseconds.
    pub at_ns: u64,
    /// The node of the port.
    pub node: NodeId,
    /// Index of the port at the node.
    pub port: u16,
    /// The priority: 0 to 7.
    pub priority: u8,
    /// Whether the priority stops.
    pub stops: bool,
}

/// The first events of a network.
#[derive(Debug)]
pub(crate) struct PauseLog {
    events: Vec<PauseEvent>,
    most: usize,
    /// Events beyond `most`.
    more: u64,
}

impl PauseLog {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            events: Vec::new(),
            most,
            more: 0,
        }
    }

    /// Adds an event for each priority whose bit is in `changed`.
    pub(crate) fn note(&mut self, at_ns: u64, port: (NodeId, u16), changed: u8, stopped: u8) {
        for priority in (0..8).filter(|priority| changed & 1 << priority != 0) {
            if self.events.len() == self.most {
                self.more += 1;
                continue;
            }
            self.events.push(PauseEvent {
                at_ns,
                node: port.0,
                port: port.1,
                priority,
                stops: stopped & 1 << priority != 0,
            });
        }
    }

    /// The events in the order of time, and the number of later ones.
    pub(crate) fn into_events(self) -> (Vec<PauseEvent>, u64) {
        (self.events, self.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_priority_that_changes_is_an_event_and_later_ones_are_counted() {
        let mut log = PauseLog::new(3);
        let port = (NodeId(4), 1);
        log.note(10, port, 0b1001, 0b1000);
        log.note(20, port, 0b11_0000, 0b11_1000);
        let (events, more) = log.into_events();
        let seen: Vec<_> = events
            .iter()
            .map(|event| (event.at_ns, event.priority, event.stops))
            .collect();
        assert_eq!(seen, [(10, 0, false), (10, 3, true), (20, 4, true)]);
        assert_eq!(more, 1);
    }
}
