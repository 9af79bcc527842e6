//! Finds what messages waited for.

use super::read::{Message, Run, Side};
use farwrite_units::show::{Rate, Time, real};
use std::time::Duration;

type Span = fn(&Message) -> Option<(f64, f64)>;

/// The phases at the sender, in order.
const SENDER: [(&str, Span); 4] = [
    ("for the receiver's buffer", |message| {
        Some((message.offered_ms?, message.cleared_ms?))
    }),
    ("for the pace, the window or other messages", |message| {
        Some((message.cleared_ms?, message.first_ms?))
    }),
    ("until each chunk had left once", |message| {
        Some((message.first_ms?, message.last_new_ms?))
    }),
    ("for the last report, repairs included", |message| {
        Some((message.last_new_ms?, message.ended_ms?))
    }),
];

/// The phases at the receiver.
const RECEIVER: [(&str, Span); 1] = [("from the first packet to the end", |message| {
    Some((message.first_ms?, message.ended_ms?))
})];

/// A phase of the messages of a run.
pub(super) struct Phase {
    pub(super) name: &'static str,
    /// How many messages have it.
    pub(super) messages: usize,
    pub(super) median_ms: f64,
    pub(super) longest_ms: f64,
    /// The message for which it was the longest.
    pub(super) slowest: u64,
}

/// The phases of the messages of a run, from the view of one end.
pub(super) fn phases(run: &Run) -> Vec<Phase> {
    let side = run.side();
    let spans: &[(&'static str, Span)] = match side {
        Side::Sender => &SENDER,
        Side::Receiver => &RECEIVER,
    };
    let messages = || run.messages.iter().filter(|(of, _)| of.side == side);
    let phase = |&(name, span): &(&'static str, Span)| {
        let times = messages().filter_map(|(of, message)| Some((of.message, span(message)?)));
        // A message did not wait if its first packets left before its clearance was seen.
        let times = times.map(|(of, (from, to))| (of, (to - from).max(0.0)));
        let mut times: Vec<(u64, f64)> = times.collect();
        times.sort_by(|a, b| a.1.total_cmp(&b.1));
        let &(slowest, longest_ms) = times.last()?;
        let (_, median_ms) = times[times.len() / 2];
        Some(Phase {
            name,
            messages: times.len(),
            median_ms,
            longest_ms,
            slowest,
        })
    };
    spans.iter().filter_map(phase).collect()
}

/// The longest time in which no packet left although a message was in flight, and what limited the
/// rate at the end of that time. For the receiver, it is the longest time without arrivals.
pub(super) fn longest_pause(run: &Run) -> Option<String> {
    let side = run.side();
    let times: Vec<f64> = run
        .marks
        .iter()
        .filter(|mark| mark.of.side == side && mark.kind.is_traffic(side))
        .map(|mark| mark.ms)
        .collect();
    let mut gaps: Vec<(f64, f64)> = times.windows(2).map(|two| (two[0], two[1])).collect();
    gaps.sort_by(|a, b| (b.1 - b.0).total_cmp(&(a.1 - a.0)));
    let (from, to) = gaps
        .into_iter()
        .find(|(from, _)| is_busy(run, side, *from))?;
    let what = match side {
        Side::Sender => "no packet left",
        Side::Receiver => "no packet arrived",
    };
    let mut text = format!(
        "{what} for {}, from {}",
        shown(to - from),
        shown(from - run.start_ms)
    );
    let path = run.paths.iter().rev().find(|(ms, _)| *ms <= to);
    if let Some((_, path)) = path.filter(|_| side == Side::Sender) {
        let rtt = Time(Duration::from_nanos(path.rtt_ns));
        let pace = Rate(real(path.pace_bps));
        let limit = path.limit.to_lowercase();
        text.push_str(&format!(
            "; then: round trip {rtt}, pace {pace}, limit: {limit}"
        ));
    }
    Some(text)
}

/// Whether a message was in flight at a time.
fn is_busy(run: &Run, side: Side, at_ms: f64) -> bool {
    run.messages.iter().any(|(of, message)| {
        let from_ms = message.offered_ms.or(message.first_ms);
        let has_begun = from_ms.is_some_and(|from_ms| from_ms <= at_ms);
        of.side == side && has_begun && message.ended_ms.is_none_or(|end_ms| end_ms > at_ms)
    })
}

/// A time in milliseconds, for people.
pub(super) fn shown(ms: f64) -> String {
    Time(Duration::from_secs_f64(ms.max(0.0) / 1e3)).to_string()
}
