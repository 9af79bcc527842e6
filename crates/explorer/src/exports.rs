//! The functions that the page calls. Numbers are passed as arguments. A result stays in memory
//! until the next call. The page reads it from [`answer`], or as text from [`fault_text`].
//!
//! The only unsafe part is that names are exported unmangled.
#![allow(unsafe_code)]

use core::cell::RefCell;

use crate::question::{Fault, Input, Question};

/// The maximum number of points of a curve.
const MAX_POINTS: u32 = 4096;
/// The probability at the end of a curve: one message in a million takes longer.
const TAIL: f64 = 1e-6;

/// The result of the last call.
struct Outcome {
    numbers: Vec<f64>,
    fault: Fault,
}

thread_local! {
    static OUTCOME: RefCell<Outcome> = const {
        RefCell::new(Outcome {
            numbers: Vec::new(),
            fault: Fault { input: Input::Whole, text: String::new() },
        })
    };
    static QUESTION: RefCell<Question> = const {
        RefCell::new(Question {
            scheme: 0,
            k: 1.0,
            m: 1.0,
            distance_km: 1.0,
            km_per_s: 1.0,
            bandwidth_bps: 1.0,
            loss_packet: 0.0,
            message_bytes: 1.0,
            packets: 1.0,
            variant: 0,
        })
    };
}

/// Stores the outcome. Returns 1 if it is an answer, otherwise 0.
fn keep(result: Result<Vec<f64>, Fault>) -> u32 {
    OUTCOME.with_borrow_mut(|outcome| match result {
        Ok(numbers) => {
            outcome.numbers = numbers;
            1
        }
        Err(fault) => {
            outcome.numbers.clear();
            outcome.fault = fault;
            0
        }
    })
}

/// Sets the question for the calls that follow; units as in [`Question`].
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn set_question(
    scheme: u32,
    k: f64,
    m: f64,
    distance_km: f64,
    km_per_s: f64,
    bandwidth_bps: f64,
    loss_packet: f64,
    message_bytes: f64,
    packets: f64,
    variant: u32,
) {
    QUESTION.set(Question {
        scheme,
        k,
        m,
        distance_km,
        km_per_s,
        bandwidth_bps,
        loss_packet,
        message_bytes,
        packets,
        variant,
    });
}

/// Computes, in seconds: the mean, the bounds of the mean, p50, p99, p99.9, the shortest time, the
/// time that one message in a million exceeds, and the time without loss. Then follow the
/// round-trip time, the loss probability of a chunk, and the size of a chunk in bytes. Returns 1 if
/// there is an answer.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn figures() -> u32 {
    keep(figures_of(&QUESTION.with_borrow(Clone::clone)))
}

fn figures_of(question: &Question) -> Result<Vec<f64>, Fault> {
    let time = question.completion_time()?;
    let (low, high) = time.mean_bounds();
    Ok(vec![
        time.mean(),
        low,
        high,
        time.quantile(0.5)?,
        time.quantile(0.99)?,
        time.quantile(0.999)?,
        time.quantile(0.0)?,
        time.quantile(1.0 - TAIL)?,
        time.lossless_s(),
        question.rtt_s(),
        question.loss_chunk()?,
        question.chunk_bytes(),
    ])
}

/// Computes the mean in seconds for `by` 0, and the quantiles 0.5, 0.99 and 0.999 for 1 to 3.
/// Returns 1 if there is an answer.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn time(by: u32) -> u32 {
    keep(time_of(&QUESTION.with_borrow(Clone::clone), by))
}

fn time_of(question: &Question, by: u32) -> Result<Vec<f64>, Fault> {
    let time = question.completion_time()?;
    Ok(vec![match by {
        0 => time.mean(),
        1 => time.quantile(0.5)?,
        2 => time.quantile(0.99)?,
        _ => time.quantile(0.999)?,
    }])
}

/// Computes the probability that a message takes longer than a time, for `points` times from
/// `from_s` to `to_s` seconds. Each time is the same multiple of the previous one. The result
/// alternates times and probabilities. Returns 1 if there is an answer.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn survival(from_s: f64, to_s: f64, points: u32) -> u32 {
    let question = QUESTION.with_borrow(Clone::clone);
    keep(survival_of(&question, from_s, to_s, points))
}

fn survival_of(
    question: &Question,
    from_s: f64,
    to_s: f64,
    points: u32,
) -> Result<Vec<f64>, Fault> {
    let time = question.completion_time()?;
    let points = points.clamp(2, MAX_POINTS);
    let step = (to_s / from_s).ln() / f64::from(points - 1);
    let mut numbers = Vec::new();
    for point in 0..points {
        let t_s = from_s * (step * f64::from(point)).exp();
        numbers.extend([t_s, time.survival(t_s)?]);
    }
    Ok(numbers)
}

/// The address of the numbers of the last answer.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn answer() -> *const f64 {
    OUTCOME.with_borrow(|outcome| outcome.numbers.as_ptr())
}

/// The number of values in the last answer.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn answer_len() -> usize {
    OUTCOME.with_borrow(|outcome| outcome.numbers.len())
}

/// The input that the last fault is about ([`Input`]).
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn fault_input() -> u32 {
    OUTCOME.with_borrow(|outcome| outcome.fault.input as u32)
}

/// The address of the text of the last fault, in UTF-8.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn fault_text() -> *const u8 {
    OUTCOME.with_borrow(|outcome| outcome.fault.text.as_ptr())
}

/// The length of the text of the last fault in bytes.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn fault_text_len() -> usize {
    OUTCOME.with_borrow(|outcome| outcome.fault.text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual(scheme: u32, m: f64) {
        set_question(scheme, 32.0, m, 3750.0, 3e5, 400e9, 1e-3, 1e8, 1.0, 0);
    }

    fn numbers() -> Vec<f64> {
        OUTCOME.with_borrow(|outcome| outcome.numbers.clone())
    }

    #[test]
    fn answers_agree_with_each_other() {
        for scheme in 0..5 {
            usual(scheme, 8.0);
            assert_eq!(figures(), 1);
            let figures = numbers();
            assert_eq!(figures.len(), answer_len());
            for (by, place) in [(0, 0), (1, 3), (2, 4), (3, 5)] {
                assert_eq!(time(by), 1);
                assert_eq!(numbers(), [figures[place]]);
            }
            let (least, last) = (figures[6], figures[7]);
            assert_eq!(survival(least * 0.99, last, 50), 1);
            let curve = numbers();
            assert_eq!(curve.len(), 100);
            assert_eq!(curve[1], 1.0);
            assert!(curve[99] <= 1.01e-6 && curve[99] > 0.0, "{}", curve[99]);
            assert!(
                curve
                    .chunks(2)
                    .is_sorted_by(|a, b| a[0] < b[0] && a[1] >= b[1])
            );
        }
    }

    #[test]
    fn a_fault_leaves_no_answer() {
        usual(3, 0.0);
        assert_eq!(figures(), 0);
        assert_eq!(answer_len(), 0);
        assert_eq!(fault_input(), Input::M as u32);
        assert!(fault_text_len() > 10);
    }
}
