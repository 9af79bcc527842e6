//! The plan of a ring, for scripts and for people.

use farwrite_model::plan::{MOST_ORDERED_SITES, Question, RING_SEED, RingPlan, RingTime};
use serde::Serialize;

use super::super::answer::Alternative;
use super::super::args::RingCollective;
use super::super::show::{seconds, small, sure_digits};
use super::Links;
use crate::table::lay_out;
use farwrite_units::show::{Bytes, Percent, Rate};

/// What goes around the ring.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Parts {
    pub(super) collective: RingCollective,
    /// Bytes of the whole buffer, and of the part that a site sends in a step.
    pub(super) bytes: u64,
    pub(super) part_bytes: u64,
    pub(super) steps: usize,
}

/// The complete answer. The text for people is made from it.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    #[serde(flatten)]
    parts: Parts,
    objective: String,
    max_parity_overhead: f64,
    cores: f64,
    /// An order that is better than the given one by no more than this share is not named.
    close: f64,
    /// Orders that were compared.
    orders: usize,
    seed: u64,
    best: Order,
    given: Order,
}

/// An order of the sites.
#[derive(Debug, Serialize)]
struct Order {
    /// The last one sends to the first.
    sites: Vec<String>,
    objective_s: f64,
    mean_s: f64,
    p99_s: f64,
    p999_s: f64,
    /// `None`: without losses, the time has no variance.
    draws: Option<usize>,
    objective_low_s: Option<f64>,
    objective_high_s: Option<f64>,
    links: Vec<Link>,
}

/// A step over a path.
#[derive(Debug, Serialize)]
struct Link {
    from: String,
    to: String,
    name: Option<String>,
    rate_bps: f64,
    rtt_s: f64,
    loss_chunk: f64,
    step: Alternative,
}

impl Answer {
    /// `question` is that of any path.
    pub(super) fn new(
        parts: &Parts,
        question: &Question,
        links: &Links<'_>,
        plan: &RingPlan,
    ) -> Self {
        Self {
            parts: *parts,
            objective: question.objective.to_string(),
            max_parity_overhead: question.max_parity_overhead,
            cores: question.coding.cores,
            close: question.close,
            orders: plan.orders,
            seed: RING_SEED,
            best: Order::new(links, &plan.best),
            given: Order::new(links, &plan.given),
        }
    }

    pub(super) fn text(&self) -> String {
        let note = match self.best.draws {
            Some(draws) => format!("{draws} draws, seed {}", self.seed),
            None => "no losses, no variance".to_owned(),
        };
        [
            self.asked(),
            self.orders(),
            self.best.table(),
            format!(
                "The times end when the last site has its last part ({note}). A step begins when its part\n\
                 has arrived. It takes half a round trip for the clear-to-send, its bytes, half a round trip,\n\
                 and repairs. Steps over a path share its rate"
            ),
        ]
        .join("\n\n")
    }

    fn asked(&self) -> String {
        let Parts {
            collective,
            bytes,
            part_bytes,
            steps,
        } = self.parts;
        let name = match collective {
            RingCollective::AllReduce => "All-reduce",
            RingCollective::ReduceScatter => "Reduce-scatter",
            RingCollective::AllGather => "All-gather",
        };
        format!(
            "{name} of {} around a ring of {} sites: {steps} steps of {} over each path\n\
             least {} (orders within {} count as equal); parity at most {}, cores for coding at either end: {}",
            Bytes(bytes),
            self.given.sites.len(),
            Bytes(part_bytes),
            self.objective,
            Percent(self.close),
            Percent(self.max_parity_overhead),
            self.cores
        )
    }

    fn orders(&self) -> String {
        let (best, given) = (&self.best, &self.given);
        if best.sites != given.sites {
            return format!(
                "Best of {} orders: {}\n  {}\nGiven order: {}\n  {}, {:.2} x best",
                self.orders,
                best.ring(),
                best.times(),
                given.ring(),
                given.times(),
                given.objective_s / best.objective_s
            );
        }
        let which = match self.orders {
            1 if given.sites.len() > MOST_ORDERED_SITES => {
                format!("More than {MOST_ORDERED_SITES} sites keep the given order")
            }
            1 => "The only order".to_owned(),
            orders => format!("Best of {orders} orders, the given one"),
        };
        format!("{which}: {}\n  {}", given.ring(), given.times())
    }
}

impl Order {
    fn new(links: &Links<'_>, time: &RingTime) -> Self {
        let order = &time.order;
        let pairs = order.iter().zip(order.iter().cycle().skip(1));
        let objective = time.drawn.map(|drawn| drawn.objective);
        Self {
            sites: order.iter().map(|site| links.site(*site)).collect(),
            objective_s: time.objective_s,
            mean_s: time.mean_s,
            p99_s: time.p99_s,
            p999_s: time.p999_s,
            draws: time.drawn.map(|drawn| drawn.draws),
            objective_low_s: objective.map(|interval| interval.low_s),
            objective_high_s: objective.and_then(|interval| interval.high_s),
            links: pairs
                .filter_map(|(from, to)| Link::new(links, *from, *to))
                .collect(),
        }
    }

    fn ring(&self) -> String {
        self.sites.join(" > ")
    }

    fn times(&self) -> String {
        format!(
            "mean {}, p99 {}, p99.9 {}",
            seconds(self.mean_s),
            seconds(self.p99_s),
            seconds(self.p999_s)
        )
    }

    fn table(&self) -> String {
        let head = [
            "step", "rate", "RTT", "loss", "scheme", "mean", "p99", "p99.9", "parity",
        ];
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(self.links.iter().map(Link::row));
        lay_out(&rows, 1)
    }
}

impl Link {
    fn new(links: &Links<'_>, from: usize, to: usize) -> Option<Self> {
        let (path, question, link) = links.get(from, to)?;
        let named = links.sites.paths.get(&(from, to));
        Some(Self {
            from: links.site(from),
            to: links.site(to),
            name: named.and_then(|path| path.name.clone()),
            rate_bps: path.rate_bps,
            rtt_s: path.rtt_s,
            loss_chunk: question.loss.loss_chunk().ok()?,
            step: Alternative::new(link.step(), link.step().objective_s),
        })
    }

    fn row(&self) -> [String; 9] {
        let name = match &self.name {
            Some(name) => format!(" ({name})"),
            None => String::new(),
        };
        let drawn = self.step.drawn;
        [
            format!("{} > {}{name}", self.from, self.to),
            Rate(self.rate_bps).to_string(),
            seconds(self.rtt_s),
            small(self.loss_chunk),
            self.step.scheme.clone(),
            sure_digits(self.step.mean_s, drawn.map(|drawn| drawn.mean)),
            sure_digits(self.step.p99_s, drawn.map(|drawn| drawn.p99)),
            sure_digits(self.step.p999_s, drawn.map(|drawn| drawn.p999)),
            Percent(self.step.parity_overhead).to_string(),
        ]
    }
}
