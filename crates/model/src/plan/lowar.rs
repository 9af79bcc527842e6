//! Go-Back-N between LoWAR boxes: repair in the path, for unmodified NICs.
//!
//! A class has `s` data packets and one repair packet. If it loses one packet, the box repairs it.
//! If it loses more, the class fails: the NIC goes back to the first lost packet, where a new block
//! begins. So the NIC sees one loss for each failed class, on a path with `s / (s + 1)` of the rate
//! (docs/boxes.md). Where losses come in bursts, a burst that makes a class fail is one loss to the
//! NIC, and a block has several classes, which share the packets of a burst. A chunk of the question
//! is a packet here.

use super::Question;
use crate::error::{ModelError, Unsupported};
use crate::loss::Loss;
use crate::scheme::Scheme;
use crate::setting::{Setting, Variant};

/// Candidates for the number of data packets in a class.
const CLASS_PACKETS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Candidates for the number of classes in a block, where losses come in bursts. The boxes choose
/// among the same ones. With independent losses, one class is as good as many.
const CLASSES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Highest number of data packets in a block (docs/protocol.md P10).
const MAX_BLOCK_PACKETS: u32 = 256;
/// Highest probability that a burst lasts as long as Go-Back-N takes to repeat.
const MAX_OUTLAST: f64 = 0.01;

/// The completion time of a message from a Go-Back-N NIC between two LoWAR boxes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lowar {
    /// Data packets of a block.
    pub block_packets: u32,
    /// Repair packets of a block, one for each of its classes.
    pub repair_packets: u32,
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

/// A block: `classes` repair packets after `classes * class` data packets.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Data packets of a class.
    class: u32,
    classes: u32,
}

impl Question {
    /// The LoWAR boxes with the lowest objective within the parity budget, whose blocks take at most
    /// `max_block_s` seconds to send: packets behind a loss wait for the end of the block, and the
    /// boxes limit this wait. `None` if none fits.
    ///
    /// Where losses come in bursts, a burst from which a class loses two packets is one loss to the
    /// NIC. Comparison with the protocol: docs/plan.md.
    ///
    /// # Errors
    ///
    /// An argument is out of its range; or bursts are so long that a repeat meets the same burst,
    /// where this model does not hold.
    pub fn lowar(&self, max_block_s: f64) -> Result<Option<Lowar>, ModelError> {
        let packet_s = 8.0 * self.chunk_bytes / self.bandwidth_bps;
        let classes = match self.loss {
            Loss::Iid { .. } => &CLASSES[..1],
            Loss::Markov { .. } => &CLASSES[..],
        };
        let mut best: Option<Lowar> = None;
        for &classes in classes {
            for class in CLASS_PACKETS {
                let packets = class * classes;
                let takes_s = f64::from(packets) * packet_s;
                // A block of one packet is over at once.
                if packets > MAX_BLOCK_PACKETS || (packets > 1 && takes_s > max_block_s) {
                    continue;
                }
                let boxes = self.lowar_with(Block { class, classes })?;
                let better = best.is_none_or(|best| boxes.objective_s < best.objective_s);
                if better && boxes.parity_overhead <= self.max_parity_overhead {
                    best = Some(boxes);
                }
            }
        }
        Ok(best)
    }

    fn lowar_with(&self, asked: Block) -> Result<Lowar, ModelError> {
        // A message shorter than a block is one block, and has no more classes than packets.
        let message = (self.message_bytes / self.chunk_bytes).ceil();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "1 to 256"
        )]
        let packets = message.clamp(1.0, f64::from(asked.class * asked.classes)) as u32;
        let classes = asked.classes.min(packets);
        let block = Block {
            class: packets.div_ceil(classes),
            classes,
        };
        let parity_overhead = f64::from(classes) / f64::from(packets);
        let mut setting = Setting {
            chunk_bytes: self.chunk_bytes,
            variant: Variant::Serial,
            ..Setting::new(
                Scheme::GoBackN,
                self.message_bytes,
                self.bandwidth_bps / (1.0 + parity_overhead),
                self.rtt_s,
                0.0,
            )
        };
        let loss = self.loss.loss_chunk()?;
        let loss_chunk = match self.loss {
            Loss::Iid { .. } => loss_at_nic(loss, block.class),
            Loss::Markov { p_bad_to_good, .. } => {
                let period = self.bandwidth_bps * self.rtt_s / (8.0 * self.chunk_bytes);
                if (1.0 - p_bad_to_good).powf(period) > MAX_OUTLAST {
                    let bursts = Unsupported::LongBursts(1.0 / p_bad_to_good);
                    return Err(ModelError::Unsupported(bursts));
                }
                burst_loss_at_nic(&self.loss, block)?
            }
        };
        setting.loss = Loss::iid(loss_chunk);
        let time = setting.completion_time()?;
        Ok(Lowar {
            block_packets: asked.class * asked.classes,
            repair_packets: asked.classes,
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

/// The loss rate that the NIC sees where losses come in bursts: the rate of bursts that make a class
/// fail on their own, plus the rate of pairs that meet in a class by chance, as if the single losses
/// and those of the bursts that are repaired were independent ([`loss_at_nic`]).
///
/// A burst is a stay in the bad state. Per packet of the path begin `share_good * p_good_to_bad` of
/// them, and a block has `(s + 1) / s` packets of the path for each data packet. A burst counts once,
/// because Go-Back-N repeats all that follows its first loss. Derived here; the paper does not have
/// it. Limits: the NIC goes back further than a burst lasts ([`MAX_OUTLAST`]), and bursts are rare
/// enough that few blocks meet more than one that fails.
fn burst_loss_at_nic(loss: &Loss, block: Block) -> Result<f64, ModelError> {
    let mean = loss.loss_chunk()?;
    let Loss::Markov {
        p_good_to_bad,
        p_bad_to_good,
        loss_good,
        loss_bad,
        ..
    } = *loss
    else {
        return Ok(loss_at_nic(mean, block.class));
    };
    let share_good = p_bad_to_good / (p_good_to_bad + p_bad_to_good);
    let bursts = share_good * p_good_to_bad;
    let burst = Burst::over(block, p_bad_to_good, loss_bad);
    let alone = share_good * loss_good + bursts * burst.repaired_losses;
    let of_path = f64::from(block.class + 1) / f64::from(block.class);
    let at_nic = loss_at_nic(alone, block.class) + bursts * of_path * burst.fails;
    // The NIC sees no more losses than the path has.
    Ok(at_nic.min(mean))
}

/// What a burst does to the classes that it meets.
#[derive(Clone, Copy, Debug)]
struct Burst {
    /// Probability that a class loses two packets or more.
    fails: f64,
    /// Lost packets, in the mean over all bursts; a burst that makes a class fail counts zero.
    repaired_losses: f64,
}

impl Burst {
    /// A burst whose length is geometric with the mean `1 / p_end`, which loses each of its packets
    /// with the probability `loss`, and which begins at any packet of a block with equal probability.
    ///
    /// Packet i on the path, data or repair, belongs to class `i mod c`. So `l` packets in a row
    /// meet `l mod c` classes in `l / c + 1` packets and the others in `l / c`, wherever they begin.
    /// What is left of a burst at the end of a block is a burst that begins with the next one.
    fn over(block: Block, p_end: f64, loss: f64) -> Self {
        // By packets until the end of the block: the probability that all classes are whole and the
        // burst ends in the block, and that it reaches the next one; and losses weighted so.
        let (mut ends, mut ends_lost) = (0.0, 0.0);
        let (mut reaches, mut reaches_lost) = (1.0, 0.0);
        let (mut ends_all, mut ends_lost_all) = (0.0, 0.0);
        let (mut reaches_all, mut reaches_lost_all) = (0.0, 0.0);
        let mut lasts = 1.0;
        let length = block.classes * (block.class + 1);
        for packets in 1..=length {
            let (whole, lost) = block.whole(packets, loss);
            ends += lasts * p_end * whole;
            ends_lost += lasts * p_end * whole * lost;
            lasts *= 1.0 - p_end;
            (reaches, reaches_lost) = (lasts * whole, lasts * whole * lost);
            ends_all += ends;
            ends_lost_all += ends_lost;
            reaches_all += reaches;
            reaches_lost_all += reaches_lost;
        }
        // From the start of a block: this block, and as from the start again if it reaches the next.
        let whole = ends / (1.0 - reaches);
        let lost = (ends_lost + reaches_lost * whole) / (1.0 - reaches);
        let places = f64::from(length);
        Self {
            fails: (1.0 - (ends_all + reaches_all * whole) / places).max(0.0),
            repaired_losses: (ends_lost_all + reaches_lost_all * whole + reaches_all * lost)
                / places,
        }
    }
}

impl Block {
    /// For a burst over `packets` packets in a row: the probability that no class loses two or more,
    /// and the mean number of losses if so.
    fn whole(self, packets: u32, loss: f64) -> (f64, f64) {
        let (each, more) = (packets / self.classes, packets % self.classes);
        let (mut whole, mut lost) = (1.0, 0.0);
        for (classes, met) in [(more, each + 1), (self.classes - more, each)] {
            if classes > 0 && met > 0 {
                let (classes, met) = (f64::from(classes), f64::from(met));
                let one = met * loss * (1.0 - loss).powf(met - 1.0);
                let at_most_one = (1.0 - loss).powf(met) + one;
                if at_most_one == 0.0 {
                    return (0.0, 0.0);
                }
                whole *= at_most_one.powf(classes);
                lost += classes * one / at_most_one;
            }
        }
        (whole, lost)
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;

    /// Half of the hold time of boxes.
    const MAX_BLOCK_S: f64 = 0.002;

    fn lowar(message_bytes: f64, loss: f64) -> Lowar {
        let mut question = Question::new(message_bytes, 10e9, 0.04, loss);
        question.chunk_bytes = 1024.0;
        question.lowar(MAX_BLOCK_S).unwrap().unwrap()
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
        let classes = losses.map(|loss| lowar(5e6, loss).block_packets);
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
    fn a_budget_without_room_has_no_answer() {
        let mut question = Question::new(5e6, 10e9, 0.04, 1e-3);
        question.max_parity_overhead = 0.0;
        assert_eq!(question.lowar(MAX_BLOCK_S).unwrap(), None);
    }

    #[test]
    fn blocks_are_over_in_time_on_slow_paths() {
        // A packet takes 0.82 ms at 10 Mbit/s, so two of them are a block. The path is clean, where a
        // fast one would have blocks of 256.
        let mut question = Question::new(1e6, 10e6, 0.04, 1e-5);
        question.chunk_bytes = 1024.0;
        question.max_parity_overhead = 1.0;
        let packets =
            |question: &Question| question.lowar(MAX_BLOCK_S).unwrap().unwrap().block_packets;
        assert_eq!(packets(&question), 2);
        question.bandwidth_bps = 100e6;
        assert_eq!(packets(&question), 16);
        // Each packet twice: more than the budget.
        question.bandwidth_bps = 1e6;
        assert_eq!(packets(&question), 1);
        question.max_parity_overhead = 0.25;
        assert_eq!(question.lowar(MAX_BLOCK_S).unwrap(), None);
    }

    const fn block(packets: u32, classes: u32) -> Block {
        Block {
            class: packets / classes,
            classes,
        }
    }

    /// Losses in bursts only.
    fn markov(p_good_to_bad: f64, mean_burst: f64, loss_bad: f64) -> Loss {
        Loss::Markov {
            p_good_to_bad,
            p_bad_to_good: 1.0 / mean_burst,
            loss_good: 0.0,
            loss_bad,
            packets_per_chunk: 1,
        }
    }

    fn fails(block: Block, p_end: f64, loss: f64) -> f64 {
        Burst::over(block, p_end, loss).fails
    }

    #[test]
    fn bursts_of_known_length_fail_as_counted_by_hand() {
        // One packet, two packets in different classes, and all packets.
        assert!(fails(block(64, 8), 1.0, 1.0).abs() < 1e-12);
        let two_or_more = fails(block(4, 1), 0.5, 1.0);
        // A burst of one packet is repaired. A longer one is too, if it crosses into the next block
        // after its first packet and ends there: in one of five places, after one more packet.
        assert!((two_or_more - 0.5 * (1.0 - 0.2 * 0.5)).abs() < 1e-12);
        assert!(fails(block(64, 8), 0.1, 0.0).abs() < 1e-12);
        // Bursts without an end lose everything.
        assert!((fails(block(64, 8), 1e-9, 0.5) - 1.0).abs() < 1e-6);
    }

    /// Counts the times that a NIC goes back, packet by packet, for each packet delivered.
    fn simulated(loss: &Loss, block: Block, period: u64, packets: u64) -> f64 {
        let Loss::Markov {
            p_good_to_bad,
            p_bad_to_good,
            loss_good,
            loss_bad,
            ..
        } = *loss
        else {
            panic!("{loss:?}");
        };
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut draw = move |p: f64| f64::from(random.next_u32()) < p * 2.0_f64.powi(32);
        let mut bad = false;
        let mut is_lost = move || {
            let lost = draw(if bad { loss_bad } else { loss_good });
            bad ^= draw(if bad { p_bad_to_good } else { p_good_to_bad });
            lost
        };
        let data = u64::from(block.class * block.classes);
        let (mut delivered, mut failures) = (0, 0);
        while delivered < packets {
            let lost: Vec<bool> = (0..block.classes * (block.class + 1))
                .map(|_| is_lost())
                .collect();
            let classes = block.classes as usize;
            let losses_of = |class: usize| lost.iter().skip(class).step_by(classes);
            let fails = |class: &usize| losses_of(*class).filter(|lost| **lost).count() > 1;
            let first_of =
                |class: usize| class + classes * losses_of(class).position(|lost| *lost).unwrap();
            match (0..classes).filter(fails).map(first_of).min() {
                Some(first) => {
                    failures += 1;
                    delivered += (first as u64).min(data);
                    (0..period).for_each(|_| _ = is_lost());
                }
                None => delivered += data,
            }
        }
        f64::from(failures) / delivered as f64
    }

    // About 1000 failures are counted for each, so chance explains 3%.
    // Where one in eight blocks meets a burst, pairs by chance make the model 11% too high.
    #[test]
    fn a_simulation_packet_by_packet_agrees() {
        let with_single_losses = Loss::Markov {
            p_good_to_bad: 2e-4,
            p_bad_to_good: 0.2,
            loss_good: 1e-3,
            loss_bad: 0.5,
            packets_per_chunk: 1,
        };
        for (loss, block) in [
            (markov(5e-4, 8.0, 0.3), block(64, 8)),
            (markov(5e-4, 12.0, 0.7), block(64, 8)),
            (markov(5e-4, 2.0, 1.0), block(32, 1)),
            (markov(5e-4, 12.0, 0.5), block(256, 16)),
            (markov(5e-4, 3.0, 1.0), block(4, 4)),
            (with_single_losses, block(64, 4)),
        ] {
            let model = burst_loss_at_nic(&loss, block).unwrap();
            let counted = simulated(&loss, block, 500, 8_000_000);
            assert!(
                (model / counted - 1.0).abs() < 0.15,
                "{loss:?}, {block:?}: {model} and {counted}"
            );
        }
    }

    #[test]
    fn the_goodput_of_the_protocol_is_near() {
        // `lowar bursts --bursts 4,8,12 --lengths mean --seconds 4`: LoWAR(64, 8), 40 ms, one seed.
        // Runs differ by up to 10% by chance. A failure costs what is sent in a round trip.
        for (mean_burst, loss_bad, goodput) in [
            (4.0, 0.3, 7.37),
            (8.0, 0.3, 4.94),
            (12.0, 0.3, 3.73),
            (4.0, 0.7, 5.92),
            (8.0, 0.7, 3.40),
            (12.0, 0.7, 2.90),
        ] {
            let loss =
                burst_loss_at_nic(&markov(1e-4, mean_burst, loss_bad), block(64, 8)).unwrap();
            let clean = 7.84;
            let in_flight = clean * 1e9 * 0.04 / 8192.0;
            let model = clean / (1.0 + in_flight * loss);
            assert!(
                (model / goodput - 1.0).abs() < 0.1,
                "{mean_burst}, {loss_bad}: {model} and {goodput}"
            );
        }
    }

    #[test]
    fn longer_bursts_want_more_classes() {
        let classes = [1.5, 4.0, 10.0].map(|mean_burst| {
            let mut question = Question::new(5e6, 10e9, 0.04, 0.0);
            question.chunk_bytes = 1024.0;
            question.loss = markov(1e-5, mean_burst, 1.0);
            question.lowar(MAX_BLOCK_S).unwrap().unwrap().repair_packets
        });
        assert!(
            classes.is_sorted() && classes[0] < classes[2],
            "{classes:?}"
        );
    }

    #[test]
    fn bursts_that_outlast_a_round_trip_are_refused() {
        let mut question = Question::new(5e6, 10e9, 1e-3, 0.0);
        question.loss = markov(1e-5, 1e4, 1.0);
        let error = question.lowar(MAX_BLOCK_S).unwrap_err().to_string();
        assert!(error.contains("10000"), "{error}");
    }
}
