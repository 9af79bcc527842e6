//! Errors of estimates.

/// Sums over messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    messages: f64,
    blocks: f64,
    error: f64,
    worst_block: f64,
    destroyed: f64,
}

impl Measured {
    /// Adds a message that is judged by blocks of `block` values.
    pub(crate) fn take(&mut self, values: &[f32], estimate: &[f32], block: usize) {
        let (mut energy, mut error, mut worst) = (0.0, 0.0, 0.0_f64);
        for (values, estimate) in values.chunks(block).zip(estimate.chunks(block)) {
            let (mut of_block, mut lost) = (0.0, 0.0);
            for (&value, &estimate) in values.iter().zip(estimate) {
                of_block += f64::from(value).powi(2);
                lost += f64::from(estimate - value).powi(2);
            }
            energy += of_block;
            error += lost;
            worst = worst.max(lost / of_block);
            self.blocks += 1.0;
            self.destroyed += f64::from(estimate.iter().all(|&value| value == 0.0));
        }
        self.messages += 1.0;
        self.error += error / energy;
        self.worst_block += worst;
    }

    /// The mean squared error over the mean square of the values.
    pub(crate) fn error(&self) -> f64 {
        self.error / self.messages
    }

    /// The same of the block of a message where it is highest, in the mean over messages.
    pub(crate) fn worst_block(&self) -> f64 {
        self.worst_block / self.messages
    }

    /// The share of blocks of which nothing is left.
    pub(crate) fn destroyed(&self) -> f64 {
        self.destroyed / self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_zeros_is_destroyed_and_counts_by_its_squares() {
        let mut measured = Measured::default();
        measured.take(&[3.0, -1.0, 1.0, 1.0], &[3.0, -1.0, 0.0, 0.0], 2);
        assert!((measured.error() - 2.0 / 12.0).abs() < 1e-12);
        assert!((measured.worst_block() - 1.0).abs() < 1e-12);
        assert!((measured.destroyed() - 0.5).abs() < 1e-12);
    }
}
