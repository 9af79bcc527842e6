//! Shows the answer of the planner as text.

use std::time::Duration;

use farwrite_model::plan::{Alternative, Border, Input, Interval, Sensitivity};
use farwrite_model::{Loss, Scheme};

use super::answer::Answer;
use super::nics::{Advice, Way};
use crate::table::lay_out;
use farwrite_units::Burst;
use farwrite_units::show::{Bytes, Percent, Rate, Time, whole};

/// The number of alternatives shown by default: the first ones, and the first of each kind.
const SHOWN: usize = 8;

/// The text for people, with all alternatives if `all` is true, otherwise with the most relevant ones.
pub(super) fn text(answer: &Answer<'_>, all: bool) -> String {
    let best = answer.plan.best();
    let mut parts = vec![
        asked(answer),
        format!(
            "Best: {}, {} {}{}, {:.2} x ideal, {} parity",
            best.scheme,
            answer.question.objective,
            seconds(best.objective_s),
            interval(best).map_or_else(String::new, |interval| format!(" ({interval})")),
            best.slowdown,
            Percent(best.parity_overhead)
        ),
        alternatives(answer, all),
        start(answer),
        sensitivity(answer),
        nics(answer),
    ];
    let advice = answer.nics.unmodified.as_ref();
    parts.extend(advice.map(|advice| unmodified(answer, advice)));
    parts.join("\n\n")
}

fn asked(answer: &Answer<'_>) -> String {
    let (question, path) = (answer.question, answer.path);
    let burst_time = match path.burst {
        Some(Burst::Time(time)) => Some(Time(time)),
        _ => None,
    };
    let bursts = match question.loss {
        Loss::Markov {
            p_bad_to_good,
            packets_per_chunk,
            ..
        } => {
            let unit = match packets_per_chunk {
                1 => "chunks",
                _ => "packets",
            };
            let losses = format!("{:.1} {unit}", 1.0 / p_bad_to_good);
            match burst_time {
                Some(time) => format!("in bursts of {time}, at this rate {losses}"),
                None => format!("in bursts of {losses}"),
            }
        }
        Loss::Iid { .. } if burst_time.is_some() && answer.loss_chunk > 0.0 => {
            "each by itself, since bursts are shorter than a chunk".to_owned()
        }
        Loss::Iid { .. } => "each by itself".to_owned(),
    };
    let shared = match path.senders {
        1 => String::new(),
        senders => format!(
            "{senders} senders share {}: each has an equal part. Their queues are left out, see farwrite sim\n",
            Rate(path.rate_bps * f64::from(senders))
        ),
    };
    format!(
        "{} at {}, round trip {}, loss {} of chunks of {}, {bursts}\n{shared}\
         least {} (within {}, least parity); parity at most {}, cores for coding at either end: {}",
        Bytes(whole(question.message_bytes)),
        Rate(path.rate_bps),
        seconds(question.rtt_s),
        small(answer.loss_chunk),
        Bytes(whole(question.chunk_bytes)),
        question.objective,
        Percent(question.close),
        Percent(question.max_parity_overhead),
        question.coding.cores
    )
}

/// Where the times of `gbn` are from. The model is of go-back-N in NICs (docs/model.md, section 3.3).
const AS_ROCE: &str = "RoCE";

fn alternatives(answer: &Answer<'_>, all: bool) -> String {
    let head = [
        "scheme", "mean", "p99", "p99.9", "x best", "x ideal", "parity", "cores", "from",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    let (best, alternatives) = (answer.plan.best(), answer.plan.alternatives());
    rows.push(row(best, best.objective_s));
    let mut kinds = Vec::new();
    let mut more = 0;
    for (rank, at) in alternatives.iter().enumerate() {
        let name = at.scheme.to_string();
        let kind = name.split(':').next().unwrap_or_default().to_owned();
        let is_first = !kinds.contains(&kind);
        if is_first {
            kinds.push(kind);
        }
        if at.scheme == best.scheme {
            continue;
        }
        if all || rank < SHOWN || is_first {
            rows.push(row(at, best.objective_s));
        } else {
            more += 1;
        }
    }
    let mut text = lay_out(&rows, 1);
    if more > 0 {
        text += &format!("\n  and {more} more: --all shows them");
    }
    let is_drawn = alternatives.iter().any(|at| at.drawn.is_some());
    text += match is_drawn {
        true => {
            "\n  exact: a value of the model; draws: that many simulated messages, fewer where a scheme is\n  \
             clearly not the best. Intervals hold the true value with a probability of 95 %. ~: uncertain by\n  \
             more than 1 %; >: the draws are too few for an upper bound"
        }
        false => "\n  exact: a value of the model, without chance",
    };
    if rows
        .iter()
        .any(|row| row.last().is_some_and(|from| from == AS_ROCE))
    {
        text += "\n  RoCE: a value of the model, for a receiver that discards what follows a loss. The shipped gbn\n  \
                 keeps it, and is faster when several chunks are lost";
    }
    for (scheme, reason) in answer.plan.left_out() {
        text += &format!("\n  {scheme} is left out: {reason}");
    }
    text
}

/// Where the objective of a scheme that is not exact lies.
fn interval(at: &Alternative) -> Option<String> {
    let drawn = at.drawn?;
    let (low, draws) = (seconds(drawn.objective.low_s), drawn.draws);
    Some(match drawn.objective.high_s {
        Some(high_s) => format!("{low} to {}, {draws} draws", seconds(high_s)),
        None => format!("{low} or more, {draws} draws"),
    })
}

/// What the times leave out.
fn start(answer: &Answer<'_>) -> String {
    let [least, most] = answer.path.search_round_trips();
    let rtt_s = answer.question.rtt_s;
    format!(
        "The sender knows the rate of the path, and the receiver has posted its buffer. On a new path,\n\
         a long message first spends {least} to {most} round trips on finding the rate: {} to {}",
        seconds(f64::from(least) * rtt_s),
        seconds(f64::from(most) * rtt_s)
    )
}

/// A row of the table. `best_s` is the objective of the best scheme.
fn row(at: &Alternative, best_s: f64) -> [String; 9] {
    let drawn = at.drawn.as_ref();
    [
        at.scheme.to_string(),
        sure_digits(at.mean_s, drawn.map(|drawn| drawn.mean)),
        sure_digits(at.p99_s, drawn.map(|drawn| drawn.p99)),
        sure_digits(at.p999_s, drawn.map(|drawn| drawn.p999)),
        format!("{:.2}", at.objective_s / best_s),
        format!("{:.2}", at.slowdown),
        Percent(at.parity_overhead).to_string(),
        format!("{:.1}", at.cores),
        match drawn {
            Some(drawn) => format!("{} draws", drawn.draws),
            None if at.scheme == Scheme::GoBackN => AS_ROCE.to_owned(),
            None => "exact".to_owned(),
        },
    ]
}

fn sensitivity(answer: &Answer<'_>) -> String {
    let head = [
        "", "given", "below", "better", "above", "better", "/10", "/2", "x2", "x10",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    // People think of the rate of the path, and the model of its payload.
    let wire_share = answer.path.rate_bps / answer.question.bandwidth_bps;
    let dependences = answer.sensitivity.iter();
    rows.extend(dependences.map(|of| dependence(of, wire_share)));
    let mut text = format!(
        "How sure the choice is. If the value is less than in column `below`, or more than in column\n\
         `above`, the scheme named after it is better by more than {}. Columns /10 to x10 divide the\n\
         value by 10 or 2, or multiply it by 2 or 10: they have the {} of {},\n\
         divided by that of the best scheme there\n\n{}",
        Percent(answer.question.close),
        answer.question.objective,
        answer.plan.best().scheme,
        lay_out(&rows, 1)
    );
    let rivals = answer.plan.rivals();
    if rivals.len() < answer.plan.alternatives().len() {
        let rivals: Vec<_> = rivals.iter().map(ToString::to_string).collect();
        text += &format!("\n  (among {}, from few draws)", rivals.join(", "));
    }
    text
}

/// What repairs the losses of RDMA NICs.
fn nics(answer: &Answer<'_>) -> String {
    let head = ["repair", "mean", "p99", "p99.9", "parity"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(answer.nics.ways.iter().map(|way| {
        let name = match (way.name, way.block, way.bitmap_bits) {
            ("gbn", ..) => "Go-Back-N of the NICs".to_owned(),
            (_, Some([packets, repairs]), _) => {
                format!("the same between LoWAR({packets},{repairs}) boxes")
            }
            (_, _, Some(bits)) => format!("the same between NetRT boxes ({bits} bits)"),
            _ => "selective repeat of the NICs (IRN)".to_owned(),
        };
        [
            name,
            seconds(way.mean_s),
            seconds(way.p99_s),
            seconds(way.p999_s),
            Percent(way.parity_overhead).to_string(),
        ]
    }));
    let mut text = format!(
        "RDMA NICs in place of farwrite. Each packet counts as a chunk; docs/boxes.md says where boxes help.\n\n{}",
        lay_out(&rows, 1)
    );
    let netrt = answer.nics.ways.iter().find_map(|way| way.box_bytes);
    if let Some(bytes) = netrt {
        text += &format!(
            "\n  Each NetRT box keeps up to {} of copies and held packets",
            Bytes(whole(bytes))
        );
    }
    for left_out in &answer.nics.left_out {
        let name = match left_out.scheme.as_str() {
            "lowar" => "LoWAR",
            "netrt" => "NetRT",
            other => other,
        };
        text += &format!("\n  {name} is left out: {}", left_out.reason);
    }
    text
}

fn unmodified(answer: &Answer<'_>, advice: &Advice) -> String {
    let is_box = |way: &Way| ["lowar", "netrt"].contains(&way.name);
    let boxes = match advice.name {
        "lowar" => Some("LoWAR boxes (farwrite lowar)"),
        "netrt" => Some("NetRT boxes (farwrite netrt)"),
        _ => None,
    };
    let answered = match boxes {
        Some(boxes) => format!(
            "{boxes}, {} {} in place of {}",
            answer.question.objective,
            seconds(advice.with_s),
            seconds(advice.without_s)
        ),
        None if answer.nics.ways.iter().any(is_box) => format!(
            "no boxes, which save less than {}",
            Percent(answer.question.close)
        ),
        None => "no boxes: both kinds are left out".to_owned(),
    };
    let in_full_queues = if advice.in_full_queues.is_empty() {
        "no boxes; the NICs have to send less"
    } else {
        "a window of one round trip, PFC, or NetRT with a larger pool"
    };
    format!(
        "With unmodified NICs: {answered}\n\
         If full queues lose the packets: {in_full_queues}"
    )
}

fn dependence(of: &Sensitivity, wire_share: f64) -> [String; 10] {
    let name = match of.input {
        Input::Loss => "loss",
        Input::Rtt => "RTT",
        Input::Bandwidth => "rate",
        Input::Message => "size",
    };
    let show = |value: f64| match of.input {
        Input::Loss => small(value),
        Input::Rtt => seconds(value),
        Input::Bandwidth => Rate(value * wire_share).to_string(),
        Input::Message => Bytes(whole(value)).to_string(),
    };
    let border = |border: Option<Border>| match border {
        Some(border) => [show(border.value), border.scheme.to_string()],
        None => ["-".to_owned(), "-".to_owned()],
    };
    let cost = |factor: f64| {
        let mut stakes = of.stakes.iter();
        let stake = stakes.find(|stake| stake.factor == factor);
        // A value of zero cannot be varied by a factor.
        match stake.filter(|_| of.value > 0.0) {
            Some(stake) => format!("{:.2}", stake.cost),
            None => "-".to_owned(),
        }
    };
    let [below, better_below] = border(of.below);
    let [above, better_above] = border(of.above);
    [
        name.to_owned(),
        show(of.value),
        below,
        better_below,
        above,
        better_above,
        cost(0.1),
        cost(0.5),
        cost(2.0),
        cost(10.0),
    ]
}

/// A time with no more digits than its interval leaves. An exact time has no interval.
pub(super) fn sure_digits(time_s: f64, interval: Option<Interval>) -> String {
    let Some(Interval { low_s, high_s }) = interval else {
        return seconds(time_s);
    };
    let Some(high_s) = high_s else {
        return format!("> {}", seconds(low_s));
    };
    match (high_s - low_s) / (2.0 * time_s) {
        doubt if doubt <= 0.01 => seconds(time_s),
        doubt if doubt <= 0.1 => format!("~ {}", seconds(rounded(time_s, 2))),
        _ => format!("~ {}", seconds(rounded(time_s, 1))),
    }
}

/// A number above 0 with the given number of significant digits.
fn rounded(value: f64, digits: usize) -> f64 {
    let text = format!("{value:.*e}", digits - 1);
    text.parse().unwrap_or(value)
}

pub(super) fn seconds(seconds: f64) -> String {
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) => Time(time).to_string(),
        Err(_) => format!("{seconds:.2e} s"),
    }
}

/// Shows a probability, which may be very small.
pub(super) fn small(probability: f64) -> String {
    if probability == 0.0 {
        return "0".to_owned();
    }
    let digits = format!("{probability:.1e}");
    digits.replace(".0e", "e")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_time_has_no_more_digits_than_its_interval_leaves() {
        let within = |low_s, high_s| Some(Interval { low_s, high_s });
        for (interval, text) in [
            (None, "317 ms"),
            (within(0.3165, Some(0.3175)), "317 ms"),
            (within(0.310, Some(0.320)), "~ 320 ms"),
            (within(0.150, Some(0.500)), "~ 300 ms"),
            (within(0.234, None), "> 234 ms"),
        ] {
            assert_eq!(sure_digits(0.317, interval), text);
        }
    }
}
