//! A load balancer.

use farwrite_experiment::extensions::{Balancer, PortChoice};

/// Sends each frame to the port with the fewest bytes in its queues.
pub(crate) struct Shortest;

impl Balancer for Shortest {
    fn choose(&mut self, choice: &PortChoice<'_>) -> usize {
        let ports = 0..choice.ports.len();
        let bytes = |at: &usize| (choice.queued_bytes)(choice.ports[*at]);
        ports.min_by_key(bytes).unwrap_or(0)
    }
}
