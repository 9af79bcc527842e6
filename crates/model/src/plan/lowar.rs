//! Go-Back-N between LoWAR boxes: repair in the path, for unmodified NICs.
//!
//! A class has `s` data packets and one repair packet. If it loses one packet, the box repairs it.
//! If it loses more, the class fails: the NIC goes back to the first lost packet, where a new class
//! begins. So the NIC sees one loss for each failed class, on a path with `s / (s + 1)` of the rate
//! (docs/boxes.md). A chunk of the question is a packet here.

use super::Question;
use crate::error::ModelError;
use crate::loss::Loss;
use crate::scheme::Scheme;
use crate::setting::{Setting, Variant};

/// Candidates for the number of data packets in a class. A block has at most 256 packets.
const CLASS_PACKETS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// The completion time of a message from a Go-Back-N NIC between two LoWAR boxes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lowar {
    /// Data packets for each repair packet.
    pub class_packets: u32,
    /// The objective, in seconds.
    pub objective_s: f64,
    /// Mean completion time in seconds.
    pub mean_s: f64,
    /// Time within which 99 of 100 messages complete, in seconds.
    pub p99_s: f64,
    /// Time within which 999 of 1000 messages complete, in seconds.
    pub p999_s: f64,
    /// Repair packets for each data packet.
    pub parity_overhead: f64,
}

impl Question {
    /// The LoWAR boxes with the lowest objective within the parity budget. `None` if none fits, or
    /// if losses come in bursts, because the boxes then need more repair packets than this model
    /// assumes.
    ///
    /// # Errors
    ///
    /// An argument is out of its range.
    pub fn lowar(&self) -> Result<Option<Lowar>, ModelError> {
        let Loss::Iid { loss_chunk } = self.loss else {
            return Ok(None);
        };
        let mut best: Option<Lowar> = None;
        for packets in CLASS_PACKETS {
            let boxes = self.lowar_with(packets, loss_chunk)?;
            let better = best.is_none_or(|best| boxes.objective_s < best.objective_s);
            if better && boxes.parity_overhead <= self.max_parity_overhead {
                best = Some(boxes);
            }
        }
        Ok(best)
    }

    fn lowar_with(&self, packets: u32, loss: f64) -> Result<Lowar, ModelError> {
        // A message shorter than a class is one class.
        let class = (self.message_bytes / self.chunk_bytes).ceil();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "1 to 256"
        )]
        let class = class.clamp(1.0, f64::from(packets)) as u32;
        let parity_overhead = 1.0 / f64::from(class);
        let setting = Setting {
            chunk_bytes: self.chunk_bytes,
            variant: Variant::Serial,
            ..Setting::new(
                Scheme::GoBackN,
                self.message_bytes,
                self.bandwidth_bps / (1.0 + parity_overhead),
                self.rtt_s,
                loss_at_nic(loss, class),
            )
        };
        let time = setting.completion_time()?;
        Ok(Lowar {
            class_packets: packets,
            objective_s: self.measure(&time)?,
            mean_s: time.mean(),
            p99_s: time.quantile(0.99)?,
            p999_s: time.quantile(0.999)?,
            parity_overhead,
        })
    }
}

/// The loss rate that the NIC sees: 1 divided by the mean number of packets between two failed
/// classes.
fn loss_at_nic(loss: f64, class: u32) -> f64 {
    // The probability that a class fails; and the mean place of the first lost packet of a failed
    // class, times that probability.
    let (mut fails, mut place) = (0.0, 0.0);
    for at in 1..=class {
        let first_here = loss * (1.0 - loss).powf(f64::from(at - 1));
        // At least one later packet of the class is lost too; the repair packet counts. The formula
        // keeps its precision for small losses.
        let another = -(f64::from(class + 1 - at) * (-loss).ln_1p()).exp_m1();
        fails += first_here * another;
        place += f64::from(at) * first_here * another;
    }
    fails / (f64::from(class) * (1.0 - fails) + place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lowar(message_bytes: f64, loss: f64) -> Lowar {
        let mut question = Question::new(message_bytes, 10e9, 0.04, loss);
        question.chunk_bytes = 1024.0;
        question.lowar().unwrap().unwrap()
    }

    #[test]
    fn a_nic_sees_the_square_of_rare_losses_and_all_of_frequent_ones() {
        // In a class of 32, two of 33 packets are lost.
        let rare = loss_at_nic(1e-6, 32);
        assert!((rare / (33.0 * 32.0 / 2.0 * 1e-12 / 32.0) - 1.0).abs() < 1e-3);
        assert_eq!(loss_at_nic(0.0, 32), 0.0);
        // With a copy of each packet, both are lost.
        assert!((loss_at_nic(0.3, 1) - 0.09).abs() < 1e-12);
        // Each class fails, so classes have no effect.
        assert!((loss_at_nic(0.3, 256) / 0.3 - 1.0).abs() < 1e-3);
        assert_eq!(loss_at_nic(1.0, 8), 1.0);
    }

    #[test]
    fn more_loss_means_smaller_classes() {
        let losses = [1e-6, 1e-4, 1e-3, 1e-2, 0.05, 0.1, 0.3];
        let classes = losses.map(|loss| lowar(5e6, loss).class_packets);
        assert!(
            classes.is_sorted_by(|more, less| more >= less),
            "{classes:?}"
        );
        assert!(classes[0] >= 128 && classes[3] <= 8, "{classes:?}");
    }

    #[test]
    fn boxes_cost_next_to_nothing_where_go_back_n_costs_round_trips() {
        // 5 MB at 10 Gbit/s take 4 ms, plus 40 ms until the acknowledgement.
        let boxes = lowar(5e6, 1e-4);
        assert!((0.044..0.046).contains(&boxes.mean_s), "{boxes:?}");
    }

    #[test]
    fn bursts_and_a_budget_without_room_have_no_answer() {
        let mut question = Question::new(5e6, 10e9, 0.04, 1e-3);
        question.max_parity_overhead = 0.0;
        assert_eq!(question.lowar().unwrap(), None);
        let mut question = Question::new(5e6, 10e9, 0.04, 1e-3);
        question.loss = Loss::Markov {
            p_good_to_bad: 1e-4,
            p_bad_to_good: 0.2,
            loss_good: 0.0,
            loss_bad: 1.0,
            packets_per_chunk: 1,
        };
        assert_eq!(question.lowar().unwrap(), None);
    }
}
