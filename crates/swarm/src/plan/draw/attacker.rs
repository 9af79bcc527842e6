//! Draws an attacker who changes the bytes without a tag, and leaves.

use farwrite_rng::SplitMix;

use super::Draft;
use crate::plan::{Fault, Plan, SECOND, Span, Trailers};

/// Share of the cases with such an attacker.
const SHARE: f64 = 0.06;

impl Draft {
    /// Puts all hosts of some cases behind address translation, and adds an attacker on a path. It has a
    /// generator of its own, so that other cases stay as they are.
    pub(super) fn add_attacker(&mut self, seed: u64) {
        let mut rng = SplitMix::new(seed ^ 11);
        if !rng.chance(SHARE) {
            return;
        }
        self.plan.translated = true;
        for pair in &mut self.plan.pairs {
            // A route is between two ports.
            pair.options.sdr.channels = 1;
        }
        let later_ns = rng.within(0..self.span_ns);
        // Half of the attacks begin while the ends connect. The other half begin later.
        let from_ns = rng.pick(&[0, later_ns]);
        let until_ns = from_ns + SECOND;
        // A host that starts again would need new keys for its routes.
        self.plan
            .faults
            .retain(|fault| fault.over_ns() <= until_ns && !matches!(fault, Fault::Restart { .. }));
        self.plan.faults.push(Fault::Meddling {
            path: rng.index(self.plan.paths.len()),
            span: Span { from_ns, until_ns },
            trailers: rng.pick(&[Trailers::Random, Trailers::Resealed, Trailers::Mixed]),
            icrc_share: rng.pick(&[0.0, 0.0, 0.1, 1.0]),
            repeat_share: rng.pick(&[0.0, 0.5]),
        });
        // Something must want to move while the attacker is there, and after it has left.
        let schemes = ["sr-nack", "sr-rto"].map(|name| name.parse().expect("a name"));
        for pair in 0..self.plan.pairs.len() {
            for from in [0, 1] {
                for at_ns in [until_ns - rng.within(0..SECOND), until_ns] {
                    self.add_message(pair, &schemes, 10_000, at_ns);
                    let message = self.plan.messages.last_mut().expect("it was added");
                    message.from = from;
                }
            }
        }
    }
}

impl Plan {
    /// When the attacker leaves, if there is one.
    pub(crate) fn attacker_leaves_ns(&self) -> Option<u64> {
        self.faults.iter().find_map(|fault| match fault {
            Fault::Meddling { span, .. } => Some(span.until_ns),
            _ => None,
        })
    }
}
