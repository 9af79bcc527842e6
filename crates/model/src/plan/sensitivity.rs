//! The sensitivity of a plan to its inputs.

use super::Question;
use crate::error::ModelError;
use crate::loss::Loss;
use crate::scheme::Scheme;

/// An input that may be inaccurate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Loss: `loss_chunk` of i.i.d. loss, `p_good_to_bad` of Markov loss.
    Loss,
    /// `rtt_s`.
    Rtt,
    /// `bandwidth_bps`.
    Bandwidth,
    /// `message_bytes`.
    Message,
}

impl Input {
    /// Name of the argument.
    pub fn name(self, question: &Question) -> &'static str {
        match (self, question.loss) {
            (Self::Loss, Loss::Iid { .. }) => "loss_chunk",
            (Self::Loss, Loss::Markov { .. }) => "p_good_to_bad",
            (Self::Rtt, _) => "rtt_s",
            (Self::Bandwidth, _) => "bandwidth_bps",
            (Self::Message, _) => "message_bytes",
        }
    }

    fn value(self, question: &Question) -> f64 {
        match (self, question.loss) {
            (Self::Loss, Loss::Iid { loss_chunk, .. }) => loss_chunk,
            (Self::Loss, Loss::Markov { p_good_to_bad, .. }) => p_good_to_bad,
            (Self::Rtt, _) => question.rtt_s,
            (Self::Bandwidth, _) => question.bandwidth_bps,
            (Self::Message, _) => question.message_bytes,
        }
    }

    /// The question with this input multiplied by the factor.
    fn scaled(self, question: &Question, factor: f64) -> Question {
        let mut other = question.clone();
        match self {
            Self::Loss => match &mut other.loss {
                Loss::Iid { loss_chunk, .. } => *loss_chunk *= factor,
                Loss::Markov { p_good_to_bad, .. } => *p_good_to_bad *= factor,
            },
            Self::Rtt => other.rtt_s *= factor,
            Self::Bandwidth => other.bandwidth_bps *= factor,
            Self::Message => other.message_bytes = (other.message_bytes * factor).ceil(),
        }
        other
    }
}

/// The point at which the answer is no longer good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Border {
    /// The value of the input there, within a few percent. Where times are drawn, it is beyond the
    /// point by as much as few draws need to tell.
    pub value: f64,
    /// The scheme with the lowest objective beyond this point.
    pub scheme: Scheme,
}

/// The cost of the answer if the input has another value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stake {
    /// The factor by which the input is multiplied: 0.1, 0.5, 2 or 10.
    pub factor: f64,
    /// The value of the input.
    pub value: f64,
    /// The scheme with the lowest objective for this value.
    pub best: Scheme,
    /// The objective of the answer for this value, divided by the lowest.
    pub cost: f64,
}

/// The sensitivity to one input, with all other inputs unchanged.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensitivity {
    /// Which input.
    pub input: Input,
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// The border below the value; `None` if there is none within a factor of 1024.
    pub below: Option<Border>,
    /// The border above the value.
    pub above: Option<Border>,
    /// The cost of a wrong input, at a tenth, half, twice and ten times its value. Values out of
    /// range are omitted.
    pub stakes: Vec<Stake>,
}

/// Factors of the stakes.
const FACTORS: [f64; 4] = [0.1, 0.5, 2.0, 10.0];
/// Number of bisections of the last factor of 4 to locate a border: 4 to the power of 1/64 is 2
/// percent.
const HALVINGS: u32 = 6;

/// The sensitivities of the answer `chosen`.
pub(super) fn of(question: &Question, chosen: Scheme) -> Result<Vec<Sensitivity>, ModelError> {
    let inputs = [Input::Loss, Input::Rtt, Input::Bandwidth, Input::Message];
    let mut found = Vec::new();
    for input in inputs {
        let mut stakes = Vec::new();
        for factor in FACTORS {
            stakes.extend(stake(question, chosen, input, factor));
        }
        found.push(Sensitivity {
            input,
            name: input.name(question),
            value: input.value(question),
            below: border(question, chosen, input, 0.25),
            above: border(question, chosen, input, 4.0),
            stakes,
        });
    }
    Ok(found)
}

/// The stake for a scaled input; `None` if the value is out of range.
fn stake(question: &Question, chosen: Scheme, input: Input, factor: f64) -> Option<Stake> {
    compared(question, chosen, input, factor).map(|(stake, _)| stake)
}

/// The stake for a scaled input, and whether the answer is no longer good there, as far as draws can
/// tell.
fn compared(
    question: &Question,
    chosen: Scheme,
    input: Input,
    factor: f64,
) -> Option<(Stake, bool)> {
    let other = input.scaled(question, factor);
    let answer = other.estimate(chosen).ok()?;
    let good = 1.0 + question.close;
    let mut is_lost = false;
    let mut best = Stake {
        factor,
        value: input.value(&other),
        best: chosen,
        cost: 1.0,
    };
    for scheme in other.candidates.iter().copied() {
        // A scheme that is beyond the budgets or cannot be evaluated is not an alternative.
        let rival = other.affords(scheme).and_then(|()| other.estimate(scheme));
        if let Ok(rival) = rival {
            let cost = answer.value / rival.value;
            is_lost |= answer.low > rival.high * good;
            if cost > best.cost {
                best.best = scheme;
                best.cost = cost;
            }
        }
    }
    Some((best, is_lost))
}

/// Searches the border in steps of the factor `stride`.
fn border(question: &Question, chosen: Scheme, input: Input, stride: f64) -> Option<Border> {
    let mut held = 1.0;
    let mut lost = loop {
        let next = held * stride;
        if !(1.0 / 1024.0..=1024.0).contains(&next) {
            return None;
        }
        let (stake, is_lost) = compared(question, chosen, input, next)?;
        if is_lost {
            break (next, stake);
        }
        held = next;
    };
    for _ in 0..HALVINGS {
        let middle = (held * lost.0).sqrt();
        let (stake, is_lost) = compared(question, chosen, input, middle)?;
        if is_lost {
            lost = (middle, stake);
        } else {
            held = middle;
        }
    }
    Some(Border {
        value: lost.1.value,
        scheme: lost.1.best,
    })
}
