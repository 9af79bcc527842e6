//! The events that a case in a network met.

use farwrite_net::{Cable, FrameDrop, Loss, Shape};

use super::NetworkWorld;
use crate::case::Coverage;

/// All kinds of events that cases in networks can meet.
pub(in crate::networks) const KINDS: [&str; 17] = [
    "messages of endpoints",
    "WRITEs",
    "WRITEs with immediate",
    "SENDs",
    "READs",
    "requests given up",
    "queue pairs with several requests",
    "flows in fat trees",
    "flows between datacenters",
    "PFC frames",
    "marks",
    "trimmed frames",
    "path changes",
    "drops by buffers",
    "drops by lossy cables",
    "bursts of losses",
    "drops by failed cables",
];

impl NetworkWorld<'_> {
    /// What the case met: the flows that have ended, what the plan shows, and the counters of switches.
    pub(in crate::networks) fn coverage(&self) -> Coverage {
        let mut coverage = self.ended.clone();
        let plan = self.plan;
        let mut flows = plan.flows.iter();
        let topology = plan.shape.build().expect("drawn shapes are valid");
        let is_bursty = |cable: &Cable| {
            matches!(
                cable.config.loss,
                Loss::Markov { .. } | Loss::MarkovInTime { .. }
            )
        };
        let totals = self.network.totals();
        let has_dropped = |why| totals.dropped_for(why) > 0;
        coverage.extend([
            (
                "queue pairs with several requests",
                plan.flows.iter().any(|flow| flow.messages > 1),
            ),
            (
                "flows in fat trees",
                matches!(plan.shape, Shape::FatTree { .. }),
            ),
            (
                "flows between datacenters",
                flows.any(|flow| plan.is_between_sites(flow)),
            ),
            ("PFC frames", totals.pauses_sent > 0),
            ("marks", totals.marked > 0),
            ("trimmed frames", totals.trimmed > 0),
            ("path changes", totals.path_changes > 0),
            ("drops by buffers", has_dropped(FrameDrop::Buffer)),
            ("drops by lossy cables", has_dropped(FrameDrop::Cable)),
            ("bursts of losses", topology.cables().iter().any(is_bursty)),
            ("drops by failed cables", has_dropped(FrameDrop::CableDown)),
        ]);
        coverage
    }
}
