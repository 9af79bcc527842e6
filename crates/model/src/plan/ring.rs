//! Collectives around a ring of sites whose paths differ: the time of an order of the sites, and the best order.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::estimate::{Time, mean_of, quantile_of};
use super::{Alternative, Drawn, Objective, Question};
use crate::completion::CompletionTime;
use crate::error::{ModelError, Wanted, within};
use crate::excess::{float, index};

/// Most sites whose orders are all compared.
pub const MOST_ORDERED_SITES: usize = 8;
/// Most sites of a ring.
pub const MOST_RING_SITES: usize = 64;
/// Seed of all draws, so that a question always has the same answer.
pub const RING_SEED: u64 = 1;

/// Draws of the time of an order.
const DRAWS: usize = 20_000;
/// Most orders that are drawn, besides the given one.
const MOST_DRAWN_ORDERS: usize = 16;
/// Equally likely times that stand for the distribution of a step.
const STEP_TIMES: usize = 1 << 16;
/// Points of the grid from which they come if the distribution is exact, and the probability beyond it.
const POINTS: usize = 1 << 13;
const BEYOND: f64 = 1e-6;

/// A step over one path: the best scheme for its message, and the distribution of its time.
#[derive(Clone, Debug)]
pub struct RingLink {
    step: Alternative,
    /// How long the message keeps the path busy, without repeats.
    busy_s: f64,
    /// Equally likely times.
    times_s: Vec<f64>,
    mean_s: f64,
}

impl RingLink {
    /// Plans a step. `question` is about the message of one step.
    ///
    /// # Errors
    ///
    /// The errors of [`Question::plan`].
    pub fn new(question: &Question) -> Result<Self, ModelError> {
        let step = question.plan()?.best().clone();
        let mut time = question.time(step.scheme)?;
        time.draw(STEP_TIMES, question.draw_work);
        let times_s = match &time {
            Time::Exact(of) => equally_likely(of)?,
            Time::Drawn(of) => of.times_s().to_vec(),
        };
        let injected_s = time.lossless_s() - question.rtt_s;
        Ok(Self {
            busy_s: injected_s * (1.0 + step.parity_overhead),
            step,
            mean_s: times_s.iter().sum::<f64>() / float(times_s.len()),
            times_s,
        })
    }

    /// The best scheme for a step over this path, and its times.
    pub fn step(&self) -> &Alternative {
        &self.step
    }

    fn drawn_s(&self, rng: &mut ChaCha8Rng) -> f64 {
        let at = (u64::from(rng.next_u32()) * self.times_s.len() as u64) >> 32;
        self.times_s[usize::try_from(at).unwrap_or(0)]
    }
}

/// Equally likely times of an exact distribution, each rounded up to a grid.
fn equally_likely(time: &CompletionTime) -> Result<Vec<f64>, ModelError> {
    let least_s = time.quantile(0.0)?;
    let step_s = (time.quantile(1.0 - BEYOND)? - least_s) / float(POINTS);
    if step_s <= 0.0 {
        return Ok(vec![least_s]);
    }
    let mut times_s = Vec::with_capacity(STEP_TIMES);
    for point in 0..=POINTS {
        let at_s = least_s + float(point) * step_s;
        let below = (1.0 - time.survival(at_s)?) * float(STEP_TIMES);
        times_s.resize(index(below.round()).max(times_s.len()), at_s);
    }
    times_s.resize(STEP_TIMES, least_s + float(POINTS) * step_s);
    Ok(times_s)
}

/// The time of a collective around a ring, for one order of the sites.
#[derive(Clone, Debug, PartialEq)]
pub struct RingTime {
    /// The sites in the order of the ring. The last one sends to the first.
    pub order: Vec<usize>,
    /// The objective, in seconds.
    pub objective_s: f64,
    /// Mean time in seconds until the last site has received its last part.
    pub mean_s: f64,
    /// Its 99th percentile in seconds.
    pub p99_s: f64,
    /// Its 99.9th percentile in seconds.
    pub p999_s: f64,
    /// How sure the times are. `None`: they have no variance.
    pub drawn: Option<Drawn>,
}

/// A collective around a ring: the buffer has a part for each site, and in each step each site sends a part to the
/// next site. A site sends a part when it has received it, and when the part before it has left.
#[derive(Debug)]
pub struct Ring<'a> {
    /// By sender, then by receiver.
    links: Vec<Vec<Option<&'a RingLink>>>,
    steps: usize,
    objective: Objective,
    /// A better order than the given one is better by more than this share.
    close: f64,
}

/// The given order and the best one.
#[derive(Clone, Debug)]
pub struct RingPlan {
    /// The order 0, 1, 2, ...
    pub given: RingTime,
    /// The best order, which is the given one unless another one is better by more than the margin.
    pub best: RingTime,
    /// Orders of a ring that begins with the first site: the times of those with the lowest bounds were drawn.
    pub orders: usize,
}

impl<'a> Ring<'a> {
    /// `links` has the paths by sender, then by receiver. Only the paths of orders that are compared are necessary.
    ///
    /// # Errors
    ///
    /// There must be 2 to [`MOST_RING_SITES`] sites, with paths from each to the next.
    pub fn new(
        links: Vec<Vec<Option<&'a RingLink>>>,
        steps: usize,
        objective: Objective,
        close: f64,
    ) -> Result<Self, ModelError> {
        let sites = float(links.len());
        let most = float(MOST_RING_SITES);
        within("sites", "sites", sites, 2.0, most, Wanted::RingSites)?;
        let ring = Self {
            links,
            steps,
            objective,
            close,
        };
        let given: Vec<usize> = (0..ring.links.len()).collect();
        ring.links_of(&given)?;
        Ok(ring)
    }

    /// Compares all orders of up to [`MOST_ORDERED_SITES`] sites, and otherwise takes the given one.
    ///
    /// The time of an order in which each step takes its mean is below the mean of its time, since that time is a
    /// convex function of those of the steps. So orders are drawn in the sequence of this bound, until it exceeds the
    /// best objective, and at most 16 of them.
    ///
    /// # Errors
    ///
    /// The objective is not a probability.
    pub fn plan(&self) -> Result<RingPlan, ModelError> {
        let given: Vec<usize> = (0..self.links.len()).collect();
        let given = self.time(&given)?;
        let mut orders = Vec::new();
        if given.order.len() <= MOST_ORDERED_SITES {
            append_orders(&mut vec![0], given.order.len(), &mut orders);
            let is_twin = |order: &Vec<usize>| order.len() > 2 && order[1] > order[order.len() - 1];
            if self.is_symmetric() {
                orders.retain(|order| !is_twin(order));
            }
        }
        let compared = orders.len().max(1);
        let bounds = orders.into_iter().filter_map(|order| {
            let links = self.links_of(&order).ok()?;
            Some((self.last_s(&links, |link| link.mean_s), order))
        });
        let mut bounds: Vec<_> = bounds.collect();
        bounds.sort_by(|x, y| x.0.total_cmp(&y.0));
        let mut best = given.clone();
        for (bound_s, order) in bounds.into_iter().take(MOST_DRAWN_ORDERS) {
            // The bound is one of means.
            if self.objective == Objective::Mean && bound_s >= best.objective_s {
                break;
            }
            let time = self.time(&order)?;
            if time.objective_s < best.objective_s {
                best = time;
            }
        }
        if best.objective_s * (1.0 + self.close) >= given.objective_s {
            best = given.clone();
        }
        Ok(RingPlan {
            given,
            best,
            orders: compared,
        })
    }

    /// Whether all paths are alike in both directions.
    fn is_symmetric(&self) -> bool {
        let sites = 0..self.links.len();
        let mut pairs = sites
            .clone()
            .flat_map(|x| sites.clone().map(move |y| (x, y)));
        pairs.all(|(x, y)| match (self.links[x][y], self.links[y][x]) {
            (Some(there), Some(back)) => std::ptr::eq(there, back),
            _ => x == y,
        })
    }

    fn links_of(&self, order: &[usize]) -> Result<Vec<&'a RingLink>, ModelError> {
        let nexts = order.iter().cycle().skip(1);
        let pairs = order.iter().zip(nexts);
        let link = |(&from, &to): (&usize, &usize)| {
            self.links[from][to].ok_or(ModelError::NoPath(from, to))
        };
        pairs.map(link).collect()
    }

    /// When the last site has its last part. `time` returns the time of a step over a path.
    fn last_s(&self, links: &[&RingLink], mut time: impl FnMut(&RingLink) -> f64) -> f64 {
        let mut received = vec![0.0_f64; links.len()];
        let mut arriving = received.clone();
        let mut free = received.clone();
        let mut last = 0.0_f64;
        for _ in 0..self.steps {
            for (at, link) in links.iter().enumerate() {
                let start = received[at].max(free[at]);
                free[at] = start + link.busy_s;
                let done = start + time(link);
                arriving[(at + 1) % links.len()] = done;
                last = last.max(done);
            }
            std::mem::swap(&mut received, &mut arriving);
        }
        last
    }

    fn time(&self, order: &[usize]) -> Result<RingTime, ModelError> {
        let links = self.links_of(order)?;
        let draws = match links.iter().all(|link| link.times_s.len() == 1) {
            true => 1,
            false => DRAWS,
        };
        let mut rng = ChaCha8Rng::seed_from_u64(RING_SEED);
        let draw = |_| self.last_s(&links, |link| link.drawn_s(&mut rng));
        let mut times_s: Vec<f64> = (0..draws).map(draw).collect();
        times_s.sort_unstable_by(f64::total_cmp);
        let mean = mean_of(&times_s);
        let [p99, p999] = [0.99, 0.999].map(|q| quantile_of(&times_s, q));
        let objective = match self.objective {
            Objective::Mean => mean,
            Objective::Quantile(q) => quantile_of(&times_s, Objective::check(q)?),
        };
        Ok(RingTime {
            order: order.to_vec(),
            objective_s: objective.value,
            mean_s: mean.value,
            p99_s: p99.value,
            p999_s: p999.value,
            drawn: (draws > 1).then(|| Drawn {
                draws,
                objective: objective.interval(),
                mean: mean.interval(),
                p99: p99.interval(),
                p999: p999.interval(),
            }),
        })
    }
}

/// Appends all orders of the sites that begin with `begin`.
fn append_orders(begin: &mut Vec<usize>, sites: usize, orders: &mut Vec<Vec<usize>>) {
    if begin.len() == sites {
        orders.push(begin.clone());
        return;
    }
    for site in 0..sites {
        if !begin.contains(&site) {
            begin.push(site);
            append_orders(begin, sites, orders);
            begin.pop();
        }
    }
}
