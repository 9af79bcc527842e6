//! How likely a chunk is still missing after each number of its transmissions, with independent
//! losses.

/// Shares of this size are neglected beside those of fewer transmissions.
const NEGLIGIBLE: f64 = 1e-18;

/// The parts of a chunk that arrive independently of each other. Each is sent again with the chunk
/// until it has arrived once.
///
/// For shipped endpoints, these are the packets: the receiver keeps those of earlier transmissions.
/// In the paper's model, the whole chunk is one part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Attempts {
    /// Probability that a part is lost, below 1.
    loss: f64,
    /// Number of parts.
    parts: f64,
}

impl Attempts {
    pub(crate) fn new(loss: f64, parts: f64) -> Self {
        Self { loss, parts }
    }

    /// Probability that a chunk is missing after a number of transmissions: `1 - (1 - p^n)^N`.
    pub(crate) fn missing(self, transmissions: usize) -> f64 {
        let all_lost = self.loss.powi(exponent(transmissions));
        match self.is_whole() {
            true => all_lost,
            false => -(self.parts * (-all_lost).ln_1p()).exp_m1(),
        }
    }

    /// Mean number of repetitions of a chunk: `sum of missing(n)`.
    pub(crate) fn repeats(self) -> f64 {
        match self.is_whole() {
            true => self.loss / (1.0 - self.loss),
            false => self.all_missing(1.0).iter().rev().sum(),
        }
    }

    /// Mean number of repetitions of a chunk that was lost at first.
    pub(crate) fn repeats_of_lost(self) -> f64 {
        match self.is_whole() || self.loss <= 0.0 {
            true => 1.0 / (1.0 - self.loss),
            false => self.repeats() / self.missing(1),
        }
    }

    /// Share of all transmissions, first ones and repetitions, after which the chunk is missing.
    pub(crate) fn loss_of_transmissions(self) -> f64 {
        match self.is_whole() {
            true => self.loss,
            false => self.repeats() / (1.0 + self.repeats()),
        }
    }

    /// `missing(1)`, `missing(2)` and so on, until it is negligible for the given number of chunks.
    pub(crate) fn all_missing(self, chunks: f64) -> Vec<f64> {
        let least = NEGLIGIBLE * self.missing(1) / chunks.max(1.0);
        let all = (1..).map(|transmissions| self.missing(transmissions));
        all.take_while(|missing| *missing > least).collect()
    }

    /// As `all_missing`, for a chunk whose first counted transmission may be a repetition, as that
    /// in any slot of a long message.
    pub(crate) fn all_missing_from_any(self, chunks: f64) -> Vec<f64> {
        let mut all = self.all_missing(chunks);
        if !self.is_whole() {
            let transmissions = 1.0 + self.repeats();
            let mut later = 0.0;
            for missing in all.iter_mut().rev() {
                later += *missing;
                *missing = later / transmissions;
            }
        }
        all
    }

    /// Whether a transmission is lost with the same probability as any other.
    fn is_whole(self) -> bool {
        self.parts == 1.0
    }
}

fn exponent(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_parts_are_counted_by_hand() {
        let two = Attempts::new(0.5, 2.0);
        assert_eq!(two.missing(1), 0.75);
        assert_eq!(two.missing(2), 1.0 - 0.75 * 0.75);
        // The maximum of two geometric numbers: 2 / (1 - p) - 1 / (1 - p^2).
        assert!((two.repeats() - (4.0 - 4.0 / 3.0 - 1.0)).abs() < 1e-15);
        assert!((two.repeats_of_lost() - two.repeats() / 0.75).abs() < 1e-15);
        let lossless = Attempts::new(0.0, 16.0);
        assert_eq!((lossless.repeats(), lossless.repeats_of_lost()), (0.0, 1.0));
    }

    /// Chunks of one packet have the closed forms of a geometric number.
    #[test]
    fn one_part_is_a_geometric_number() {
        let [one, almost_one] = [1.0, 1.0 + 1e-9].map(|parts| Attempts::new(0.3, parts));
        let pairs = [
            (one.repeats(), almost_one.repeats()),
            (one.repeats_of_lost(), almost_one.repeats_of_lost()),
            (
                one.loss_of_transmissions(),
                almost_one.loss_of_transmissions(),
            ),
        ];
        // Beyond these, the closed form has a few values that the sum leaves out.
        let any = [one, almost_one].map(|of| of.all_missing_from_any(10.0)[..10].to_vec());
        let pairs = pairs
            .into_iter()
            .chain(any[0].iter().copied().zip(any[1].iter().copied()));
        for (closed, summed) in pairs {
            assert!((closed / summed - 1.0).abs() < 1e-7, "{closed} {summed}");
        }
    }
}
