//! The plan of a ring, for scripts and for people.

use farwrite_model::plan::{
    Alternative, MOST_ORDERED_SITES, Question, RING_SEED, RingPlan, RingTime,
};
use serde_json::{Value, json};

use super::super::answer::{alternative, with_times};
use super::super::args::RingCollective;
use super::super::path::PlannedPath;
use super::super::show::{seconds, small, sure_digits};
use super::Links;
use crate::table::lay_out;
use farwrite_units::show::{Bytes, Percent, Rate};

pub(super) struct Answer<'a> {
    pub(super) collective: RingCollective,
    /// Bytes of the whole buffer, and of the part that a site sends in a step.
    pub(super) bytes: u64,
    pub(super) part_bytes: u64,
    pub(super) steps: usize,
    /// That of any path.
    pub(super) question: &'a Question,
    pub(super) links: &'a Links<'a>,
    pub(super) plan: &'a RingPlan,
}

/// A step over a path.
struct Step<'a> {
    from: &'a str,
    to: &'a str,
    name: Option<&'a str>,
    path: &'a PlannedPath,
    loss_chunk: f64,
    scheme: &'a Alternative,
}

impl Answer<'_> {
    /// The answer for scripts; `docs/json.md` describes it.
    pub(super) fn json(&self) -> Value {
        let question = self.question;
        json!({
            "collective": self.collective,
            "bytes": self.bytes,
            "part_bytes": self.part_bytes,
            "steps": self.steps,
            "objective": question.objective.to_string(),
            "max_parity_overhead": question.max_parity_overhead,
            "cores": question.coding.cores,
            "close": question.close,
            "orders": self.plan.orders,
            "seed": RING_SEED,
            "best": self.order(&self.plan.best),
            "given": self.order(&self.plan.given),
        })
    }

    /// An order of the sites. The last one sends to the first.
    fn order(&self, time: &RingTime) -> Value {
        let fields = json!({
            "sites": self.sites(time),
            "links": self.steps_of(time).map(|step| step.json()).collect::<Vec<_>>(),
        });
        let times = [time.objective_s, time.mean_s, time.p99_s, time.p999_s];
        with_times(fields, times, time.drawn)
    }

    fn sites(&self, time: &RingTime) -> Vec<&str> {
        let order = time.order.iter();
        order.map(|site| self.links.site(*site)).collect()
    }

    fn steps_of<'s>(&'s self, time: &'s RingTime) -> impl Iterator<Item = Step<'s>> {
        let next = time.order.iter().cycle().skip(1);
        let pairs = time.order.iter().zip(next);
        pairs.filter_map(move |(&from, &to)| {
            let (path, question, link) = self.links.get(from, to)?;
            let named = self.links.sites.paths.get(&(from, to));
            Some(Step {
                from: self.links.site(from),
                to: self.links.site(to),
                name: named.and_then(|path| path.name.as_deref()),
                path,
                loss_chunk: question.loss.loss_chunk().ok()?,
                scheme: link.step(),
            })
        })
    }

    /// The text for people.
    pub(super) fn text(&self) -> String {
        let note = match self.plan.best.drawn {
            Some(drawn) => format!("{} draws, seed {RING_SEED}", drawn.draws),
            None => "no losses, no variance".to_owned(),
        };
        [
            self.asked(),
            self.orders(),
            self.table(),
            format!(
                "The times end when the last site has its last part ({note}). A step begins when its part\n\
                 has arrived. It takes half a round trip for the clear-to-send, its bytes, half a round trip,\n\
                 and repairs. Steps over a path share its rate"
            ),
        ]
        .join("\n\n")
    }

    fn asked(&self) -> String {
        let (steps, question) = (self.steps, self.question);
        let name = match self.collective {
            RingCollective::AllReduce => "All-reduce",
            RingCollective::ReduceScatter => "Reduce-scatter",
            RingCollective::AllGather => "All-gather",
        };
        format!(
            "{name} of {} around a ring of {} sites: {steps} steps of {} over each path\n\
             least {} (orders within {} count as equal); parity at most {}, cores for coding at either end: {}",
            Bytes(self.bytes),
            self.plan.given.order.len(),
            Bytes(self.part_bytes),
            question.objective,
            Percent(question.close),
            Percent(question.max_parity_overhead),
            question.coding.cores
        )
    }

    fn orders(&self) -> String {
        let RingPlan {
            best,
            given,
            orders,
        } = self.plan;
        if best.order != given.order {
            return format!(
                "Best of {orders} orders: {}\n  {}\nGiven order: {}\n  {}, {:.2} x best",
                self.ring(best),
                times(best),
                self.ring(given),
                times(given),
                given.objective_s / best.objective_s
            );
        }
        let which = match orders {
            1 if given.order.len() > MOST_ORDERED_SITES => {
                format!("More than {MOST_ORDERED_SITES} sites keep the given order")
            }
            1 => "The only order".to_owned(),
            orders => format!("Best of {orders} orders, the given one"),
        };
        format!("{which}: {}\n  {}", self.ring(given), times(given))
    }

    fn ring(&self, time: &RingTime) -> String {
        self.sites(time).join(" > ")
    }

    /// The steps of the best order.
    fn table(&self) -> String {
        let head = [
            "step", "rate", "RTT", "loss", "scheme", "mean", "p99", "p99.9", "parity",
        ];
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(self.steps_of(&self.plan.best).map(|step| step.row()));
        lay_out(&rows, 1)
    }
}

fn times(time: &RingTime) -> String {
    let [mean, p99, p999] = [time.mean_s, time.p99_s, time.p999_s].map(seconds);
    format!("mean {mean}, p99 {p99}, p99.9 {p999}")
}

impl Step<'_> {
    fn json(&self) -> Value {
        json!({
            "from": self.from,
            "to": self.to,
            "name": self.name,
            "rate_bps": self.path.rate_bps,
            "rtt_s": self.path.rtt_s,
            "loss_chunk": self.loss_chunk,
            "step": alternative(self.scheme, self.scheme.objective_s),
        })
    }

    fn row(&self) -> [String; 9] {
        let name = self.name.map(|name| format!(" ({name})"));
        let drawn = self.scheme.drawn;
        [
            format!("{} > {}{}", self.from, self.to, name.unwrap_or_default()),
            Rate(self.path.rate_bps).to_string(),
            seconds(self.path.rtt_s),
            small(self.loss_chunk),
            self.scheme.scheme.to_string(),
            sure_digits(self.scheme.mean_s, drawn.map(|drawn| drawn.mean)),
            sure_digits(self.scheme.p99_s, drawn.map(|drawn| drawn.p99)),
            sure_digits(self.scheme.p999_s, drawn.map(|drawn| drawn.p999)),
            Percent(self.scheme.parity_overhead).to_string(),
        ]
    }
}
