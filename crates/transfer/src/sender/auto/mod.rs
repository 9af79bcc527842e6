//! `--scheme auto`: chooses the scheme of the next message.
//!
//! The planner estimates how long a message takes with each candidate. But the user waits for the
//! rest of the transfer. Each message starts as soon as the previous one has left and a slot is
//! free, so only the last message costs its full time, while every message pays for its parity. So
//! parity is worth its cost when little is left, when round trips are long, or when repairs would
//! keep slots occupied. The best scheme changes during a transfer.

mod choices;
mod cost;
mod measured;

use std::time::Duration;

use farwrite::{PathStats, QpStats, SchemeName, packet_overhead_bytes};
use farwrite_model::Scheme;
use farwrite_model::plan::{Coding, Question};

use crate::SchemeChoice;
use crate::parity::parity_bytes;
use crate::shape::Shape;
pub use choices::Choices;
use cost::{Cost, settle};
use farwrite_units::show::{Percent, Rate, Time, real};
use measured::{Measured, PRIOR_LOSS, Recent};

/// Messages in flight beyond those that fill the path: one is starting, one has ended.
const SPARE: usize = 2;

/// Chooses the schemes.
#[derive(Debug)]
pub(super) struct Auto {
    candidates: Vec<(SchemeName, Scheme)>,
    shape: Shape,
    costs: Vec<Cost>,
    /// What the costs are for.
    planned: Option<Measured>,
    measured: Measured,
    current: Option<SchemeName>,
    /// Messages sent.
    sent: u64,
    recent: Recent,
    choices: Choices,
}

impl Auto {
    /// Before any measurement, the round trip comes from the channel, and the rate from the
    /// settings.
    pub(super) fn new(
        shape: Shape,
        rtt: Duration,
        rate_bps: u64,
        expected_loss: Option<f64>,
    ) -> Self {
        let prior_loss = expected_loss.unwrap_or(PRIOR_LOSS);
        let candidates = SchemeChoice::Auto.candidates().into_iter();
        Self {
            // Both know a scheme by the same name.
            candidates: candidates
                .filter_map(|name| Some((name, name.to_string().parse().ok()?)))
                .collect(),
            shape,
            costs: Vec::new(),
            planned: None,
            measured: Measured::new(None, prior_loss, rtt, rate_bps),
            current: None,
            sent: 0,
            recent: Recent::default(),
            choices: Choices::default(),
        }
    }

    /// Processes the measurements of the queue pair and its path.
    pub(super) fn look(&mut self, stats: &QpStats, path: &PathStats) {
        let loss = &stats.send_loss;
        let (judged, lost) = (loss.judged_chunks(), loss.lost_chunks());
        let loss_chunk = self.recent.loss_chunk(judged, lost);
        let rtt = Duration::from_nanos(path.rtt_ns);
        // The pace of an adaptive controller changes all the time, but its learned rate does not.
        let rate_bps = path
            .learned
            .map_or(path.pace_bps, |learned| learned.rate_bps);
        self.measured = Measured::new(loss_chunk, self.measured.prior_loss, rtt, rate_bps);
    }

    /// The scheme for the next message.
    pub(super) fn choose(&mut self) -> SchemeName {
        let measured = self.measured;
        let moved = self
            .planned
            .is_none_or(|planned| measured.moved_from(&planned));
        if moved {
            self.costs = self.plan(&measured);
            self.planned = Some(measured);
        }
        let left = self.shape.segments().saturating_sub(self.sent).max(1);
        let chosen = match settle(&self.costs, self.current, left, self.shape.slots) {
            Some(chosen) => chosen.scheme,
            // The planner has no answer: use the scheme that repairs everything.
            None => self.current.unwrap_or(SchemeName::SrNack),
        };
        if moved || self.current != Some(chosen) {
            self.choices.explain(self.reason(chosen, left));
        }
        if self.current != Some(chosen) {
            self.choices.note(self.sent, chosen, self.current.is_some());
        }
        self.current = Some(chosen);
        chosen
    }

    /// A message goes by the scheme that was chosen last.
    pub(super) fn handle_sent(&mut self) {
        self.sent += 1;
        if let Some(current) = self.current {
            self.choices.handle_sent(current);
        }
    }

    /// Records that the stream continues in smaller packets. `again` sent messages have not arrived
    /// and are sent again.
    pub(super) fn handle_resume(&mut self, shape: Shape, again: u64) {
        self.shape = shape;
        self.sent = self.sent.saturating_sub(again);
        self.planned = None;
    }

    /// The scheme that was chosen last.
    pub(super) fn current(&self) -> Option<SchemeName> {
        self.current
    }

    pub(super) fn choices(&self) -> &Choices {
        &self.choices
    }

    /// Returns how many messages should be in flight. The schemes of the others are decided later,
    /// with newer measurements.
    ///
    /// At least those that fill the window of the path twice, so that it can grow.
    pub(super) fn in_flight(&self, window_bytes: Option<u64>) -> usize {
        let slots = self.shape.slots as usize;
        let fill = 2 * window_bytes.unwrap_or(0) / self.shape.segment_bytes.max(1);
        let fill = usize::try_from(fill).unwrap_or(slots).saturating_add(SPARE);
        self.by_cost(slots).max(fill).min(slots)
    }

    /// The number of messages that fill the path according to their cost.
    fn by_cost(&self, slots: usize) -> usize {
        let Some(cost) = self
            .costs
            .iter()
            .find(|cost| Some(cost.scheme) == self.current)
        else {
            return slots.min(1 + SPARE);
        };
        // Enough that no message waits for the slowest of a hundred.
        let enough = |under_way: &usize| real(*under_way as u64) * cost.injection_s >= cost.p99_s;
        (1..slots)
            .find(enough)
            .unwrap_or(slots)
            .saturating_add(SPARE)
            .min(slots)
    }

    fn plan(&self, measured: &Measured) -> Vec<Cost> {
        let shape = &self.shape;
        // For IPv4; with IPv6 the share of the payload is slightly smaller.
        let packet_bytes = shape.mtu + packet_overhead_bytes(true);
        let payload = f64::from(shape.mtu) / f64::from(packet_bytes);
        let bandwidth_bps = measured.pace_bps * payload;
        let bytes = shape.bytes_of(0).max(1);
        let mut question = Question::new(
            real(bytes),
            bandwidth_bps,
            measured.rtt_s,
            // Codes are interleaved, so a burst affects them like single losses.
            measured.loss(),
        );
        question.chunk_bytes = real(shape.chunk_bytes());
        // The thread that sends messages also codes them.
        question.coding = Coding {
            cores: 1.0,
            ..Coding::default()
        };
        question.candidates = self.candidates.iter().map(|(_, scheme)| *scheme).collect();
        let Ok(plan) = question.plan() else {
            return Vec::new();
        };
        let costs = plan.alternatives().iter().filter_map(|at| {
            let (name, _) = self
                .candidates
                .iter()
                .find(|(_, scheme)| *scheme == at.scheme)?;
            // A group that is not full has as much parity as a full one.
            let parity_bytes = real(parity_bytes(*name, bytes, shape.chunk_bytes()));
            Some(Cost {
                scheme: *name,
                message_s: at.mean_s,
                p99_s: at.p99_s,
                injection_s: (real(bytes) + parity_bytes) * 8.0 / bandwidth_bps,
                parity_overhead: parity_bytes / real(bytes),
                cores: at.cores,
            })
        });
        costs.collect()
    }

    fn reason(&self, chosen: SchemeName, left: u64) -> String {
        let measured = &self.measured;
        let loss = match measured.loss_chunk {
            Some(loss) => format!("{} lost", Percent(loss)),
            None => format!("loss taken as {:e} until measured", measured.prior_loss),
        };
        let mut rests: Vec<_> = self
            .costs
            .iter()
            .map(|cost| (cost.scheme, cost.rest_s(left, self.shape.slots)))
            .collect();
        // The chosen scheme, the one that it replaces, and selective repeat are enough for a
        // reason.
        rests.retain(|(scheme, _)| {
            *scheme == chosen || Some(*scheme) == self.current || *scheme == SchemeName::SrNack
        });
        let rests: Vec<_> = rests
            .into_iter()
            .map(|(scheme, rest_s)| format!("{} by {scheme}", time(rest_s)))
            .collect();
        format!(
            "{loss}, round trip {}, {}: the rest takes {}",
            time(measured.rtt_s),
            Rate(measured.pace_bps),
            rests.join(", ")
        )
    }
}

fn time(seconds: f64) -> String {
    let time = Duration::try_from_secs_f64(seconds);
    time.map_or_else(|_| "for ever".to_owned(), |time| Time(time).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten messages of 1 MiB at 100 Mbit/s: 84 ms each.
    fn auto(rtt_ms: u64) -> Auto {
        let rtt = Duration::from_millis(rtt_ms);
        let shape = Shape {
            mtu: 4096,
            packets_per_chunk: 1,
            segment_bytes: 1 << 20,
            parity_bytes: 1 << 18,
            slots: 8,
            stream_bytes: 10 << 20,
        };
        Auto::new(shape, rtt, 100_000_000, None)
    }

    /// Sends the rest with this loss. Returns the scheme of each message.
    fn send(auto: &mut Auto, loss: f64, messages: u64) -> Vec<String> {
        auto.measured.loss_chunk = Some(loss);
        let mut schemes = Vec::new();
        for _ in 0..messages {
            schemes.push(auto.choose().to_string());
            auto.handle_sent();
        }
        schemes
    }

    fn told(auto: &Auto) -> serde_json::Value {
        serde_json::to_value(auto.choices()).expect("JSON")
    }

    #[test]
    fn without_losses_nothing_is_coded() {
        for rtt_ms in [0, 1, 100, 1000] {
            let mut auto = auto(rtt_ms);
            assert_eq!(
                auto.choose(),
                SchemeName::SrNack,
                "before anything is known"
            );
            assert_eq!(send(&mut auto, 0.0, 10), ["sr-nack"; 10]);
            let told = told(&auto);
            assert_eq!(told["changes"], 0);
            assert_eq!(told["messages"], serde_json::json!({ "sr-nack": 10 }));
        }
    }

    #[test]
    fn losses_over_a_long_way_are_coded_and_over_a_short_one_not() {
        let mut far = auto(200);
        let schemes = send(&mut far, 0.02, 10);
        assert!(schemes[9].starts_with("ec-"), "{schemes:?}");
        let mut near = auto(1);
        assert_eq!(send(&mut near, 0.02, 10), ["sr-nack"; 10]);
    }

    #[test]
    fn a_loss_that_sets_in_changes_the_scheme_and_is_told() {
        let mut auto = auto(200);
        auto.choose();
        auto.handle_sent();
        let schemes = send(&mut auto, 0.02, 9);
        assert!(schemes[8].starts_with("ec-"), "{schemes:?}");
        let told = told(&auto);
        let messages = told["messages"].as_object().expect("messages");
        let messages = messages.values().filter_map(serde_json::Value::as_u64);
        assert_eq!(messages.sum::<u64>(), 10);
        let changes = told["last_changes"].as_array().expect("changes");
        assert!(changes.len() > 1, "{told}");
        let first = changes[0]["reason"].as_str().expect("a reason");
        assert!(first.contains("taken as 1e-5 until measured"), "{first}");
        let line = auto.choices().line();
        for word in [
            "sr-nack for ",
            "2 % lost",
            "round trip 200 ms",
            "100 Mbit/s",
            "by sr-nack",
        ] {
            assert!(line.contains(word), "{word:?} is not in {line:?}");
        }
    }

    #[test]
    fn the_planner_is_asked_again_only_when_something_moved() {
        let mut auto = auto(100);
        auto.choose();
        let planned = auto.planned.expect("it was asked");
        auto.measured.rtt_s *= 1.2;
        auto.choose();
        assert_eq!(auto.planned, Some(planned));
        auto.measured.rtt_s *= 1.2;
        auto.choose();
        assert_eq!(auto.planned, Some(auto.measured));
        // A first loss after none is news; the end of losses is news too.
        for loss in [0.0, 1e-6, 0.0] {
            auto.measured.loss_chunk = Some(loss);
            auto.choose();
            assert_eq!(auto.planned, Some(auto.measured));
        }
    }

    #[test]
    fn only_messages_that_fill_the_path_are_decided_ahead() {
        let mut near = auto(1);
        near.choose();
        assert_eq!(near.in_flight(None), 2 + SPARE);
        let mut far = auto(10_000);
        far.choose();
        assert_eq!(far.in_flight(None), 8);
    }
}
