//! A state that changes with time, and not with what is sent.

use core::time::Duration;

use crate::rng::Rng;

/// Good and bad spells of a path: a Markov chain of two states in continuous time.
///
/// A spell has an exponential distribution, so what is left of it has the same distribution at any
/// time within it. This allows the chain to skip times in which nobody asks for the state: a call
/// takes two draws at most, however long the time since the last call is.
#[derive(Clone, Debug)]
pub(crate) struct Spells {
    /// Mean length of a good and of a bad spell in nanoseconds.
    mean_ns: [f64; 2],
    /// The current spell; `None` before the first call.
    now: Option<Spell>,
}

#[derive(Clone, Copy, Debug)]
struct Spell {
    bad: bool,
    /// Its last nanosecond.
    until_ns: u64,
}

impl Spells {
    /// Spells of these mean lengths, more than 0. The first one has the long-run distribution.
    pub(crate) fn new(mean_good: Duration, mean_bad: Duration) -> Self {
        Self {
            mean_ns: [mean_good, mean_bad].map(|mean| mean.as_secs_f64() * 1e9),
            now: None,
        }
    }

    /// Whether the state is bad at `now_ns`. The state does not change backward: an earlier time
    /// than that of the last call has the state of that call.
    pub(crate) fn is_bad_at(&mut self, now_ns: u64, rng: &mut Rng) -> bool {
        if let Some(spell) = self.now
            && now_ns <= spell.until_ns
        {
            return spell.bad;
        }
        let [good_ns, bad_ns] = self.mean_ns;
        let share_bad = bad_ns / (good_ns + bad_ns);
        let bad = match self.now {
            None => rng.chance(share_bad),
            Some(last) => {
                // After the last spell, the state was the other one. The chain forgets it at the sum
                // of the rates at which it leaves the two states.
                #[allow(clippy::cast_precision_loss)]
                let since_ns = (now_ns - last.until_ns) as f64;
                let memory = libm::exp(-since_ns * (1.0 / good_ns + 1.0 / bad_ns));
                let then_bad = f64::from(u8::from(!last.bad));
                rng.chance(share_bad + (then_bad - share_bad) * memory)
            }
        };
        let left_ns = rng.exponential_ns(self.mean_ns[usize::from(bad)]);
        self.now = Some(Spell {
            bad,
            until_ns: now_ns.saturating_add(left_ns),
        });
        bad
    }
}
