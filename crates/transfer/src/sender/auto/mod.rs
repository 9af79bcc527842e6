//! `--scheme auto`: chooses the scheme of the next message, and keeps the reasons for the report.
//!
//! `farwrite-choice` chooses. The best scheme changes during a transfer, because less and less is
//! left.

use std::time::Duration;

use farwrite::{PeerStats, QpStats, SchemeName};
use farwrite_choice::{Chooser, Packets, SchemeSetting};
use farwrite_units::show::{Percent, Rate, Time, real};

use crate::choices::Choices;
use crate::shape::Shape;

/// Messages in flight beyond those that fill the path: one is starting, one has ended.
const SPARE: usize = 2;

/// Chooses the schemes.
#[derive(Debug)]
pub(super) struct Auto {
    chooser: Chooser,
    shape: Shape,
    pub(super) current: Option<SchemeName>,
    /// Messages sent.
    sent: u64,
    pub(super) choices: Choices,
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
        let candidates = SchemeSetting::Auto.candidates();
        Self {
            chooser: Chooser::new(candidates, packets(&shape), rtt, rate_bps, expected_loss),
            shape,
            current: None,
            sent: 0,
            choices: Choices::default(),
        }
    }

    /// Processes the measurements of the queue pair and its path. `cores`: those that compute parity.
    pub(super) fn look(&mut self, stats: &QpStats, peer: &PeerStats, cores: usize) {
        self.chooser.set_coding_cores(cores);
        self.chooser.look(stats, peer);
    }

    pub(super) fn choose(&mut self) -> SchemeName {
        let left = self.shape.segments().saturating_sub(self.sent).max(1);
        let bytes = self.message_bytes();
        let choice = self.chooser.choose(bytes, left, self.shape.slots);
        let chosen = choice.scheme;
        if choice.is_planned || self.current != Some(chosen) {
            self.choices.explain(self.reason(chosen, left));
        }
        if self.current != Some(chosen) {
            self.choices.note(self.sent, chosen, self.current.is_some());
        }
        self.current = Some(chosen);
        chosen
    }

    /// The length of a message; only the last one can be shorter.
    fn message_bytes(&self) -> u64 {
        self.shape.bytes_of(0).max(1)
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
    pub(super) fn handle_cutover(&mut self, shape: Shape, again: u64) {
        self.shape = shape;
        self.sent = self.sent.saturating_sub(again);
        self.chooser.repack(packets(&shape));
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
        let mut costs = self.chooser.costs(self.message_bytes()).iter();
        let Some(cost) = costs.find(|cost| Some(cost.scheme) == self.current) else {
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

    fn reason(&self, chosen: SchemeName, left: u64) -> String {
        let measured = self.chooser.measured();
        let (rtt, rate) = (time(measured.rtt_s), Rate(measured.pace_bps));
        let path = match measured.loss_chunk {
            Some(loss) => format!("{} lost, round trip {rtt}, {rate}", Percent(loss)),
            None => format!(
                "until measured, loss taken as {:e} and rate as {rate}, round trip {rtt}",
                measured.prior_loss
            ),
        };
        let costs = self.chooser.costs(self.message_bytes()).iter();
        let mut rests: Vec<_> = costs
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
        format!("{path}: the rest takes {}", rests.join(", "))
    }
}

fn packets(shape: &Shape) -> Packets {
    Packets {
        mtu: shape.mtu,
        chunk_bytes: shape.chunk_bytes(),
    }
}

fn time(seconds: f64) -> String {
    let time = Duration::try_from_secs_f64(seconds);
    time.map_or_else(|_| "for ever".to_owned(), |time| Time(time).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE_BPS: u64 = 100_000_000;

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
        Auto::new(shape, rtt, RATE_BPS, None)
    }

    /// Sends the rest with this loss. Returns the scheme of each message.
    fn send(auto: &mut Auto, loss: f64, messages: u64) -> Vec<String> {
        let rtt = Duration::from_secs_f64(auto.chooser.measured().rtt_s);
        auto.chooser.measure(
            Some(farwrite_choice::Losses::independent(loss)),
            rtt,
            RATE_BPS,
        );
        let mut schemes = Vec::new();
        for _ in 0..messages {
            schemes.push(auto.choose().to_string());
            auto.handle_sent();
        }
        schemes
    }

    fn told(auto: &Auto) -> serde_json::Value {
        serde_json::to_value(&auto.choices).expect("JSON")
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
        assert!(
            first.contains("until measured, loss taken as 1e-5 and rate as "),
            "{first}"
        );
        let line = auto.choices.line();
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
    fn only_messages_that_fill_the_path_are_decided_ahead() {
        let mut near = auto(1);
        near.choose();
        assert_eq!(near.in_flight(None), 2 + SPARE);
        let mut far = auto(10_000);
        far.choose();
        assert_eq!(far.in_flight(None), 8);
    }
}
