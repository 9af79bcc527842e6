//! Draws which streams consist of writes.

use farwrite_rng::SplitMix;

use super::Draft;
use crate::plan::{MS, Repair, US};

/// Share of the streams that consist of writes.
const SHARE: f64 = 0.7;

impl Draft {
    /// Lets the users of some streams write with deadlines. It has a generator of its own, so that it does
    /// not change the rest of a case.
    pub(super) fn add_writes(&mut self, seed: u64) {
        let mut rng = SplitMix::new(seed ^ 4);
        let messages = &mut self.plan.messages;
        let streams = messages
            .iter_mut()
            .filter(|message| message.scheme == Repair::Stream);
        for stream in streams {
            if !rng.chance(SHARE) {
                continue;
            }
            let count = rng.pick(&[2, 3]);
            let mut limit_ns = || {
                let most_ns = rng.pick(&[10 * US, MS, 20 * MS, 200 * MS]);
                rng.chance(0.8).then(|| 1 + rng.within(0..most_ns))
            };
            stream.write_limits_ns = (0..count).map(|_| limit_ns()).collect();
        }
    }
}
