//! Draws which messages answer reads.

use farwrite_rng::SplitMix;

use super::Draft;

/// Share of the directions that carry answers to reads.
const SHARE: f64 = 0.15;
/// Share of the reads that may ask for more than is exposed.
const BEYOND: f64 = 0.1;

impl Draft {
    /// Lets the messages of some directions answer reads. It has a generator of its own, so that it does
    /// not change the rest of a case.
    pub(super) fn add_reads(&mut self, seed: u64) {
        let mut rng = SplitMix::new(seed ^ 3);
        for pair in &mut self.plan.pairs {
            pair.reads = [rng.chance(SHARE), rng.chance(SHARE)];
            pair.options.max_answers = rng.pick(&[1, 2, 16]);
            // Some codes of the plans have three parity chunks for a chunk.
            pair.options.max_answer_parity_percent = 300;
        }
        for index in 0..self.plan.messages.len() {
            if self.plan.is_read(index) && !rng.chance(BEYOND) {
                let message = &mut self.plan.messages[index];
                message.capacity = message.bytes;
            }
        }
        self.plan.fit_reads();
    }
}
