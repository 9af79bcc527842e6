//! Collectives between sites: rounds of transfers that depend on each other (paper section 5.3).

use core::fmt;
use core::str::FromStr;

use crate::completion::CompletionTime;
use crate::error::{ModelError, Wanted, positive, within};
use crate::sample::Sampler;
use crate::setting::Setting;
use crate::stages::StageSum;

const MAX_SITES: u32 = 256;

/// An algorithm for Allreduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Each site sends 1/N of the buffer to its neighbour, 2N - 2 times (paper section 5.3).
    Ring,
    /// Reduces along a binomial tree, then broadcasts along it. Transfers are whole buffers.
    Tree,
    /// Pairs at doubling distances exchange whole buffers. Sites beyond a power of two send their
    /// buffer before that, and get the result after it.
    RecursiveDoubling,
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ring => "ring",
            Self::Tree => "tree",
            Self::RecursiveDoubling => "recursive-doubling",
        })
    }
}

impl FromStr for Collective {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        match text {
            "ring" => Ok(Self::Ring),
            "tree" => Ok(Self::Tree),
            "recursive-doubling" => Ok(Self::RecursiveDoubling),
            _ => Err(ModelError::Collective(text.to_owned())),
        }
    }
}

/// Transfers, from site to site, that may run at the same time.
type Round = Vec<(usize, usize)>;

impl Collective {
    /// The rounds. All transfers have the same size.
    fn rounds(self, sites: usize) -> Vec<Round> {
        match self {
            Self::Ring => {
                let round: Round = (0..sites).map(|site| (site, (site + 1) % sites)).collect();
                vec![round; 2 * sites - 2]
            }
            Self::Tree => {
                let mut spread: Vec<Round> = Vec::new();
                let mut distance = sites.next_power_of_two() / 2;
                while distance > 0 {
                    let round = (0..sites - distance).step_by(2 * distance);
                    spread.push(round.map(|site| (site, site + distance)).collect());
                    distance /= 2;
                }
                let back = |round: &Round| round.iter().map(|&(from, to)| (to, from)).collect();
                let reduce: Vec<Round> = spread.iter().rev().map(back).collect();
                reduce.into_iter().chain(spread).collect()
            }
            Self::RecursiveDoubling => {
                let inner = sites.next_power_of_two() / if sites.is_power_of_two() { 1 } else { 2 };
                let mut rounds: Vec<Round> = Vec::new();
                rounds.push((inner..sites).map(|site| (site, site - inner)).collect());
                let mut distance = 1;
                while distance < inner {
                    rounds.push((0..inner).map(|site| (site, site ^ distance)).collect());
                    distance *= 2;
                }
                rounds.push((inner..sites).map(|site| (site - inner, site)).collect());
                rounds.retain(|round| !round.is_empty());
                rounds
            }
        }
    }

    /// The completion time among `sites` sites. `setting.message_bytes` is the buffer of a site;
    /// the rest of `setting` applies to every transfer. Transfers are independent of each other.
    ///
    /// # Errors
    ///
    /// There must be 2 to 256 sites, and the setting of a transfer must be valid.
    pub fn completion_time(
        self,
        sites: u32,
        setting: &Setting,
    ) -> Result<CollectiveTime, ModelError> {
        let most = f64::from(MAX_SITES);
        within("sites", "sites", f64::from(sites), 2.0, most, Wanted::Sites)?;
        positive("message_bytes", "bytes", setting.message_bytes)?;
        let mut transfer = setting.clone();
        if self == Self::Ring {
            transfer.message_bytes /= f64::from(sites);
        }
        let transfer = transfer.completion_time()?;
        let rounds = self.rounds(sites as usize);
        let depth = last_ready(&rounds, sites as usize, || 1.0);
        let path = StageSum::new(&transfer, &[(1, crate::excess::index(depth))])?;
        let mut sizes: Vec<(usize, usize)> = Vec::new();
        for round in &rounds {
            match sizes.iter_mut().find(|size| size.0 == round.len()) {
                Some(size) => size.1 += 1,
                None => sizes.push((round.len(), 1)),
            }
        }
        let barrier = StageSum::new(&transfer, &sizes)?;
        Ok(CollectiveTime {
            transfer,
            sites: sites as usize,
            rounds,
            path,
            barrier,
        })
    }
}

/// When the last site is ready. A site starts a transfer of a round when its transfers of earlier
/// rounds, sent and received, are complete. `time` returns the duration of a transfer.
fn last_ready(rounds: &[Round], sites: usize, mut time: impl FnMut() -> f64) -> f64 {
    let mut ready = vec![0.0f64; sites];
    for round in rounds {
        let before = ready.clone();
        for &(from, to) in round {
            let done = before[from] + time();
            ready[from] = ready[from].max(done);
            ready[to] = ready[to].max(done);
        }
    }
    ready.into_iter().fold(0.0, f64::max)
}

/// The completion time of a collective: a lower and an upper distribution, and samples.
///
/// A site starts a transfer of a round when its transfers of earlier rounds, sent and received, are
/// complete. The total is at least the time of one longest chain of dependent transfers
/// ([`Self::path`]). It is at most the time with a barrier among all sites after each round
/// ([`Self::barrier`]).
#[derive(Clone, Debug)]
pub struct CollectiveTime {
    transfer: CompletionTime,
    sites: usize,
    rounds: Vec<Round>,
    path: StageSum,
    barrier: StageSum,
}

impl CollectiveTime {
    /// Lower bound: one chain of dependent transfers.
    pub fn path(&self) -> &StageSum {
        &self.path
    }

    /// Upper bound: rounds in sequence, each as long as its longest transfer.
    pub fn barrier(&self) -> &StageSum {
        &self.barrier
    }

    /// `n` completion times in seconds, sampled with the true dependencies.
    pub fn sample(&self, n: usize, seed: u64) -> Vec<f64> {
        let mut sampler: Sampler = self.transfer.sampler(seed);
        (0..n)
            .map(|_| last_ready(&self.rounds, self.sites, || sampler.draw_s()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// After all rounds, each site must have received data of every other site, directly or
    /// indirectly.
    #[test]
    fn everyone_hears_of_everyone() {
        for collective in [
            Collective::Ring,
            Collective::Tree,
            Collective::RecursiveDoubling,
        ] {
            assert_eq!(collective.to_string().parse(), Ok(collective));
            for sites in 2..20 {
                let mut heard: Vec<HashSet<usize>> = (0..sites).map(|s| [s].into()).collect();
                for round in collective.rounds(sites) {
                    let before = heard.clone();
                    for (from, to) in round {
                        assert_ne!(from, to);
                        heard[to].extend(&before[from]);
                    }
                }
                assert!(
                    heard.iter().all(|h| h.len() == sites),
                    "{collective} {sites}"
                );
            }
        }
        assert_eq!(Collective::Ring.rounds(5).len(), 8);
        assert_eq!(Collective::Tree.rounds(8).len(), 6);
        assert_eq!(Collective::Tree.rounds(5).len(), 6);
        assert_eq!(Collective::RecursiveDoubling.rounds(8).len(), 3);
        assert_eq!(Collective::RecursiveDoubling.rounds(6).len(), 4);
    }

    #[test]
    fn bounds_hold_the_sample() {
        for collective in [
            Collective::Ring,
            Collective::Tree,
            Collective::RecursiveDoubling,
        ] {
            for scheme in ["sr-rto", "ec-mds:8,2"] {
                let setting = Setting::new(scheme.parse().unwrap(), 8e6, 400e9, 1e-3, 3e-3);
                let time = collective.completion_time(6, &setting).unwrap();
                let mut sample = time.sample(4000, 5);
                sample.sort_unstable_by(f64::total_cmp);
                let mean = sample.iter().sum::<f64>() / 4000.0;
                assert!(time.path().mean() <= mean * 1.01, "{collective} {scheme}");
                assert!(
                    mean <= time.barrier().mean() * 1.01,
                    "{collective} {scheme}"
                );
                for (rank, q) in [(2000, 0.5), (3800, 0.95)] {
                    let low = time.path().quantile_bounds(q - 0.02).unwrap().0;
                    let high = time.barrier().quantile_bounds(q + 0.02).unwrap().1;
                    assert!(
                        low * (1.0 - 1e-12) <= sample[rank],
                        "{low} {}",
                        sample[rank]
                    );
                    assert!(
                        sample[rank] <= high * (1.0 + 1e-12),
                        "{high} {}",
                        sample[rank]
                    );
                }
            }
        }
        let setting = Setting::new("gbn".parse().unwrap(), 8e6, 400e9, 1e-3, 3e-3);
        assert!(Collective::Ring.completion_time(1, &setting).is_err());
    }
}
