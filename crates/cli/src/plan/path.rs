//! Combines a file and the command line into a path.

use farwrite::{packet_overhead_bytes, payload_share, sealed_overhead_bytes};
use farwrite_model::Loss;
use farwrite_model::plan::Question;

use super::args::PathArgs;
use crate::exit::{Exit, Failure};
use crate::link_file::{self, Description, Unit};
use farwrite_units::Burst;
use farwrite_units::show::{Count, real, whole};

/// The default chunk size in bytes: one packet of the largest MTU of RoCE.
const CHUNK_BYTES: u64 = 4096;
/// The default payload of a packet in bytes.
const MTU: u32 = 4096;

/// The description from the command line.
fn of_args(args: &PathArgs) -> Description {
    let rtt_s = args.rtt.map(|rtt| rtt.as_secs_f64());
    let by_distance = args.distance.map(|km| args.signal.rtt_s(km));
    let chunks = args.loss.map(|loss| (Unit::Chunks, loss));
    let packets = args.loss_packet.map(|loss| (Unit::Packets, loss));
    Description {
        rate_bps: args.rate,
        rtt_s: rtt_s.or(by_distance),
        loss: chunks.or(packets),
        // The unit is that of the loss, which may come from a file.
        burst: None,
        burst_time: None,
        chunk_bytes: args.chunk,
        mtu: args.mtu,
    }
}

/// The properties of a path that the model needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PlannedPath {
    /// The rate of one of the senders.
    pub(super) rate_bps: f64,
    pub(super) senders: u32,
    pub(super) rtt_s: f64,
    pub(super) chunk_bytes: u64,
    /// The unit of losses.
    unit: Unit,
    loss: f64,
    /// The mean length of a burst of losses, if it was given.
    pub(super) burst: Option<Burst>,
    /// The number of packets in a chunk.
    packets: u32,
    /// The payload bytes of a packet.
    mtu: u32,
}

impl PlannedPath {
    /// Combines the command line and the file that it names, for a message of `size` bytes. A shorter message than a
    /// chunk is one chunk of its own length. `senders` share the rate.
    ///
    /// # Errors
    /// [`Exit::Usage`] if a value is missing or invalid, and the errors of the file.
    pub(super) fn find(args: &PathArgs, size: u64, senders: u32) -> Result<Self, Failure> {
        let file = args.link.as_deref().map(link_file::read).transpose()?;
        let path = Self::combine(args, file.unwrap_or_default(), size);
        let path = path.map_err(|what| Failure::new(Exit::Usage, what))?;
        Ok(Self {
            rate_bps: path.rate_bps / f64::from(senders),
            senders,
            ..path
        })
    }

    /// Combines the command line and a description, for a message of `size` bytes. The command line has priority.
    pub(super) fn combine(
        args: &PathArgs,
        described: Description,
        size: u64,
    ) -> Result<Self, String> {
        let mut described = of_args(args).or(described);
        let chunk_bytes = described.chunk_bytes.unwrap_or(CHUNK_BYTES);
        described.chunk_bytes = Some(chunk_bytes.min(size));
        Self::new(described, args.burst)
    }

    /// A number of losses in `burst` has the same unit as the loss.
    fn new(described: Description, burst: Option<Burst>) -> Result<Self, String> {
        let missing = |what, options| {
            format!(
                "no {what}: give {options}, or a file with it as --link or --paths; see farwrite plan --help"
            )
        };
        let rate_bps = described
            .rate_bps
            .ok_or_else(|| missing("rate", "--rate"))?;
        let rtt_s = described
            .rtt_s
            .ok_or_else(|| missing("round trip", "--rtt or --distance"))?;
        let (unit, loss) = described
            .loss
            .ok_or_else(|| missing("loss", "--loss or --loss-packet"))?;
        let described_burst = match described.burst {
            Some((of, _)) if of != unit && burst.is_none() => {
                return Err("the file's bursts and the loss do not count the same: \
                            mean_burst_chunks goes with loss_chunk and --loss, mean_burst_packets \
                            with loss_packet and --loss-packet"
                    .to_owned());
            }
            described => described.map(|(_, losses)| Burst::Losses(losses)),
        };
        let described_burst = described.burst_time.map(Burst::Time).or(described_burst);
        let chunk_bytes = described.chunk_bytes.unwrap_or(CHUNK_BYTES);
        let mtu = described.mtu.unwrap_or(MTU);
        let packets = u32::try_from(chunk_bytes.div_ceil(mtu.into()));
        // A chunk can be shorter than a packet.
        let mtu = u32::try_from(chunk_bytes).map_or(mtu, |bytes| mtu.min(bytes));
        Ok(Self {
            rate_bps,
            senders: 1,
            rtt_s,
            chunk_bytes,
            unit,
            loss,
            burst: burst.or(described_burst),
            mtu,
            packets: packets.map_err(|_| "a chunk has too many packets".to_owned())?,
        })
    }

    /// The losses for the model. If bursts are longer than those of independent losses, this is a
    /// Gilbert-Elliott chain that loses everything in its bad state.
    ///
    /// # Errors
    /// [`Exit::Usage`] if packets are lost so often that no chunk arrives, or too often for bursts of this length.
    pub(super) fn loss(&self) -> Result<Loss, Failure> {
        let packets = match self.unit {
            Unit::Chunks => 1,
            Unit::Packets => self.packets,
        };
        let independent = 1.0 / (1.0 - self.loss);
        let losses = |burst| match burst {
            Burst::Losses(losses) => Ok(losses),
            Burst::Time(time) => {
                farwrite_model::losses_in_burst(self.loss, time.as_secs_f64(), self.interval_s())
            }
        };
        let burst = self.burst.map(losses).transpose().map_err(refused)?;
        let possible = |burst| {
            farwrite_link::Loss::possible_burst(self.loss, burst).map_err(|short| {
                let what = format!(
                    "a loss of {} with a mean burst of {burst}, from --burst or the file of the path: {short}",
                    self.loss
                );
                Failure::new(Exit::Usage, what)
            })
        };
        let burst = burst.map(possible).transpose()?;
        let loss = match burst {
            Some(burst) if burst > independent && self.loss > 0.0 => Loss::Markov {
                p_good_to_bad: self.loss / (burst * (1.0 - self.loss)),
                p_bad_to_good: 1.0 / burst,
                loss_good: 0.0,
                loss_bad: 1.0,
                packets_per_chunk: packets,
            },
            _ => Loss::Iid {
                loss_chunk: farwrite_model::chunk_loss(self.loss, packets).map_err(refused)?,
                packets_per_chunk: self.packets,
            },
        };
        loss.loss_chunk().map_err(refused)?;
        Ok(loss)
    }

    /// What is wrong with bursts that are longer than a message of `size` bytes: `loss` comes from [`PlannedPath::loss`].
    pub(super) fn beyond_message(&self, loss: &Loss, size: u64) -> Option<String> {
        let Loss::Markov { p_bad_to_good, .. } = loss else {
            return None;
        };
        let (burst, chunks) = (1.0 / p_bad_to_good, size.div_ceil(self.chunk_bytes));
        let (units, unit) = match self.unit {
            Unit::Chunks => (chunks, "chunk"),
            Unit::Packets => (chunks.saturating_mul(self.packets.into()), "packet"),
        };
        // The reciprocal of a reciprocal can be longer by a rounding error.
        (burst > real(units) * (1.0 + 1e-9)).then(|| {
            let units = Count(units, unit);
            format!(
                "the mean burst of {burst:.1} {unit}s is longer than the message, which has {units}: a message \
                 then loses nearly everything or nothing. Give a --burst of at most {units}, or a longer --size"
            )
        })
    }

    /// The round trips in which a long message finds the rate of this path, if it is new.
    pub(super) fn search_round_trips(&self) -> [u32; 2] {
        let packet_bytes = u64::from(self.mtu) + u64::from(sealed_overhead_bytes(true));
        farwrite::RateControl::search_round_trips(packet_bytes, whole(self.rate_bps))
    }

    /// The rate of the payload in bits a second: the rest of the rate is what sealed packets over IPv4 have
    /// beside their payload.
    pub(super) fn payload_bps(&self) -> f64 {
        self.rate_bps * payload_share(self.mtu, sealed_overhead_bytes(true))
    }

    /// Time from a chunk to the next one, or from a packet to the next one where losses count
    /// packets.
    fn interval_s(&self) -> f64 {
        let units = match self.unit {
            Unit::Chunks => 1.0,
            Unit::Packets => f64::from(self.packets),
        };
        8.0 * real(self.chunk_bytes) / units / self.payload_bps()
    }

    /// `question` with packets instead of chunks, which is the view of a box in the path.
    pub(super) fn of_packets(&self, question: &Question) -> Question {
        let packets = f64::from(self.packets);
        let loss = match (question.loss, self.unit) {
            (Loss::Iid { .. }, Unit::Packets) => Loss::iid(self.loss),
            // A chunk arrives if all of its packets arrive.
            (Loss::Iid { loss_chunk, .. }, Unit::Chunks) => {
                Loss::iid(-((-loss_chunk).ln_1p() / packets).exp_m1())
            }
            (
                Loss::Markov {
                    p_good_to_bad,
                    p_bad_to_good,
                    loss_good,
                    loss_bad,
                    ..
                },
                unit,
            ) => {
                // A run of lost chunks is a longer run of lost packets.
                let factor = match unit {
                    Unit::Chunks => packets,
                    Unit::Packets => 1.0,
                };
                Loss::Markov {
                    p_good_to_bad: p_good_to_bad / factor,
                    p_bad_to_good: p_bad_to_good / factor,
                    loss_good,
                    loss_bad,
                    packets_per_chunk: 1,
                }
            }
        };
        Question {
            loss,
            // RDMA NICs do not seal.
            bandwidth_bps: self.rate_bps * payload_share(self.mtu, packet_overhead_bytes(true)),
            chunk_bytes: question.chunk_bytes / packets,
            ..question.clone()
        }
    }
}

fn refused(error: farwrite_model::ModelError) -> Failure {
    Failure::caused(Exit::Usage, "the losses of the path", &error)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const DESCRIPTION: Description = Description {
        rate_bps: Some(1e9),
        rtt_s: Some(0.01),
        loss: Some((Unit::Packets, 0.01)),
        burst: None,
        burst_time: None,
        chunk_bytes: Some(16384),
        mtu: None,
    };

    fn loss(loss: (Unit, f64), burst: Option<Burst>) -> Result<Loss, Failure> {
        let described = Description {
            loss: Some(loss),
            ..DESCRIPTION
        };
        PlannedPath::new(described, burst).expect("whole").loss()
    }

    #[test]
    fn losses_of_packets_become_losses_of_chunks() {
        let loss = loss((Unit::Packets, 0.01), None).expect("fine");
        let Loss::Iid { loss_chunk, .. } = loss else {
            panic!("{loss:?}");
        };
        assert!((loss_chunk - (1.0 - 0.99_f64.powi(4))).abs() < 1e-12);
        // Control messages are packets.
        assert!((loss.loss_packet().expect("fine") - 0.01).abs() < 1e-12);
    }

    #[test]
    fn bursts_keep_the_loss_and_have_their_length() {
        for (unit, burst) in [(Unit::Chunks, 5.0), (Unit::Packets, 20.0)] {
            let described = Description {
                loss: Some((unit, 0.01)),
                chunk_bytes: Some(4096),
                ..DESCRIPTION
            };
            let loss = PlannedPath::new(described, Some(Burst::Losses(burst)))
                .expect("whole")
                .loss();
            let loss = loss.expect("fine");
            assert!(
                (loss.loss_chunk().expect("fine") - 0.01).abs() < 1e-12,
                "{loss:?}"
            );
            let Loss::Markov { p_bad_to_good, .. } = loss else {
                panic!("{loss:?}");
            };
            assert_eq!(p_bad_to_good, 1.0 / burst);
        }
        // The runs are no longer than those of independent losses.
        let loss = loss((Unit::Packets, 0.01), Some(Burst::Losses(1.0)));
        assert!(matches!(loss, Ok(Loss::Iid { .. })), "{loss:?}");
    }

    #[test]
    fn a_time_becomes_the_losses_that_it_takes_at_the_rate() {
        // A sealed packet with 4096 bytes takes 33.5 us at 1 Gbit/s, and a chunk four times as long.
        let burst = |unit, time_us| {
            let described = Description {
                loss: Some((unit, 0.01)),
                burst_time: Some(Duration::from_micros(time_us)),
                ..DESCRIPTION
            };
            PlannedPath::new(described, None)
                .expect("whole")
                .loss()
                .expect("fine")
        };
        for (unit, time_us, interval_us) in [
            (Unit::Packets, 2_000, 33.472),
            (Unit::Packets, 20, 33.472),
            (Unit::Chunks, 2_000, 133.888),
        ] {
            let loss = burst(unit, time_us);
            let Loss::Markov {
                p_good_to_bad,
                p_bad_to_good,
                ..
            } = loss
            else {
                panic!("{loss:?}");
            };
            let kept = (-interval_us / (time_us as f64 * 0.99)).exp();
            assert!(
                (p_bad_to_good - 0.99 * (1.0 - kept)).abs() < 1e-12,
                "{loss:?}"
            );
            assert!(
                (p_good_to_bad - 0.01 * (1.0 - kept)).abs() < 1e-12,
                "{loss:?}"
            );
        }
        // A chunk later, the burst is over: losses are independent.
        let short = burst(Unit::Chunks, 1);
        assert!(matches!(short, Loss::Iid { .. }), "{short:?}");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let described = Description {
            burst: Some((Unit::Chunks, 2.0)),
            ..DESCRIPTION
        };
        let error = PlannedPath::new(described, None).expect_err("two units");
        assert!(error.contains("mean_burst_packets"), "{error}");
        let error = loss((Unit::Packets, 0.9), None).expect_err("no chunk arrives");
        assert!(error.to_string().contains("loss_chunk = 0.999"), "{error}");
        let of_burst = |burst| loss((Unit::Chunks, 0.9), Some(Burst::Losses(burst)));
        let error = of_burst(8.9).expect_err("too short").to_string();
        assert!(error.contains("which is 9.000"), "{error}");
        // A rounded length becomes the least one, so that the loss stays.
        for burst in [8.95, 9.0] {
            let loss = of_burst(burst).expect("long enough").loss_chunk();
            assert!((loss.expect("fine") - 0.9).abs() < 1e-12);
        }
    }
}
