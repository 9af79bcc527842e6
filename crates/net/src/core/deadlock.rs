//! Ports that wait for each other because of PFC.

use std::collections::{BTreeMap, BTreeSet};

use super::Core;
use crate::ids::{PortId, next_id};

/// A queue: the index of its port among all ports, and the priority.
type QueueId = (usize, u8);

impl Core {
    /// The ports of switches that wait for each other in a circle, in ascending order; none without a circle.
    ///
    /// A queue waits for another one if the node at the other end has stopped its priority, and has frames from
    /// there in that other queue. PFC resumes a queue only after such frames have left. So queues in a circle stay
    /// stopped, unless such frames also wait in queues that still move.
    pub(crate) fn deadlock(&self) -> Vec<PortId> {
        let mut waits = self.stopped_queues();
        loop {
            let awaited: BTreeSet<QueueId> = waits.values().flatten().copied().collect();
            let stopped: BTreeSet<QueueId> = waits.keys().copied().collect();
            for others in waits.values_mut() {
                others.retain(|other| stopped.contains(other));
            }
            waits.retain(|queue, others| !others.is_empty() && awaited.contains(queue));
            if waits.len() == stopped.len() {
                break;
            }
        }
        let ports: BTreeSet<usize> = waits.into_keys().map(|(port, _)| port).collect();
        ports
            .into_iter()
            .map(|port| PortId(next_id(port)))
            .collect()
    }

    /// Queues with frames whose priority is stopped by a switch, and the queues there that they wait for.
    fn stopped_queues(&self) -> BTreeMap<QueueId, Vec<QueueId>> {
        let mut waits = BTreeMap::new();
        for (index, port) in self.ports.iter().enumerate() {
            let stopped = port.waiting_stopped();
            let peer = &self.ports[port.peer.index()];
            if stopped == 0 || peer.switch().is_none() {
                continue;
            }
            for priority in (0..8u8).filter(|priority| stopped & 1 << priority != 0) {
                // Otherwise a resume is on its way.
                if peer.requested_stops & 1 << priority != 0 {
                    let others = self.nodes[peer.node.index()].ports();
                    let others =
                        others.filter(|&other| self.ports[other].holds(priority, port.peer));
                    waits.insert(
                        (index, priority),
                        others.map(|other| (other, priority)).collect(),
                    );
                }
            }
        }
        waits
    }
}
