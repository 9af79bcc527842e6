//! Chooses the scheme of each message to one peer.

use std::collections::BTreeMap;
use std::time::Duration;

use farwrite::{PeerStats, QpStats, SchemeName, payload_share, sealed_overhead_bytes};
use farwrite_model::Scheme;
use farwrite_model::plan::{Coding, Question};
use farwrite_units::show::real;

use crate::cost::{Cost, settle};
use crate::measured::{Losses, Measured, PRIOR_LOSS, Recent};
use crate::parity::parity_bytes;

/// Limit of the random numbers and losses of a plan where losses come in bursts: about ten
/// milliseconds, since the thread that plans also sends.
const DRAW_WORK: u64 = 60_000;

/// How messages are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets {
    /// The payload of a packet in bytes.
    pub mtu: u32,
    /// The bytes of a chunk.
    pub chunk_bytes: u64,
}

impl Packets {
    /// The packets of a chunk.
    fn per_chunk(self) -> u32 {
        let packets = self.chunk_bytes.div_ceil(u64::from(self.mtu).max(1));
        u32::try_from(packets).unwrap_or(u32::MAX).max(1)
    }

    /// The share of chunks that miss a packet if this share of the packets is lost.
    fn loss_chunk(self, loss_packet: f64) -> f64 {
        farwrite_model::chunk_loss(loss_packet, self.per_chunk()).unwrap_or(PRIOR_LOSS)
    }
}

/// Chooses schemes. Messages of different sizes have separate plans and separate choices.
#[derive(Debug)]
pub struct Chooser {
    candidates: Vec<(SchemeName, Scheme)>,
    packets: Packets,
    /// Bytes of a packet on the wire other than the payload.
    overhead_bytes: u32,
    coding: Coding,
    measured: Measured,
    recent: Recent,
    /// By the size of a message in bytes.
    sizes: BTreeMap<u64, OfSize>,
}

#[derive(Debug, Default)]
struct OfSize {
    costs: Vec<Cost>,
    /// What the costs are for.
    planned: Option<Measured>,
    current: Option<SchemeName>,
}

/// The scheme for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The scheme.
    pub scheme: SchemeName,
    /// Whether the planner was asked, because a measurement had moved.
    pub is_planned: bool,
}

impl Chooser {
    /// Creates a chooser from these candidates. Before any measurement, it assumes this round trip,
    /// this rate, and that a share `expected_loss` of the packets is lost independently of each other.
    /// Without it, it assumes a loss of 1e-5 of the chunks.
    #[must_use]
    pub fn new(
        candidates: impl IntoIterator<Item = SchemeName>,
        packets: Packets,
        rtt: Duration,
        rate_bps: u64,
        expected_loss: Option<f64>,
    ) -> Self {
        let prior_loss = expected_loss.map_or(PRIOR_LOSS, |loss| packets.loss_chunk(loss));
        Self {
            candidates: candidates
                .into_iter()
                .filter_map(|name| Some((name, Scheme::try_from(name).ok()?)))
                .collect(),
            packets,
            // Until the peer is known: sealed packets over IPv4.
            overhead_bytes: sealed_overhead_bytes(true),
            coding: Coding::default(),
            measured: Measured::new(None, prior_loss, rtt, rate_bps),
            recent: Recent::default(),
            sizes: BTreeMap::new(),
        }
    }

    /// Notes how many cores compute parity at each end
    /// ([`Endpoint::coding_cores`](farwrite::Endpoint::coding_cores)); one before this call.
    pub fn set_coding_cores(&mut self, cores: usize) {
        self.coding.cores = real(cores as u64);
    }

    /// Processes the measurements of the queue pair and its peer.
    pub fn look(&mut self, stats: &QpStats, peer: &PeerStats) {
        let loss = &stats.send_loss;
        let counts = [loss.judged_chunks(), loss.lost_chunks(), loss.bursts()];
        let losses = self.recent.losses(counts);
        let rtt = Duration::from_nanos(peer.rtt_ns);
        self.overhead_bytes = peer.overhead_bytes;
        // The pace of an adaptive controller changes all the time, but its learned rate does not.
        let rate_bps = peer
            .learned
            .map_or(peer.pace_bps, |learned| learned.rate_bps);
        self.measure(losses, rtt, rate_bps);
    }

    /// Notes what was measured. The losses are `None` while too few chunks were judged.
    pub fn measure(&mut self, losses: Option<Losses>, rtt: Duration, rate_bps: u64) {
        self.measured = Measured::new(losses, self.measured.prior_loss, rtt, rate_bps);
    }

    /// What is known of the path.
    #[must_use]
    pub fn measured(&self) -> &Measured {
        &self.measured
    }

    /// Chooses the scheme for the next message of `bytes` bytes, when `left` messages of this size
    /// are left, this one included, and `slots` of them can be in flight.
    pub fn choose(&mut self, bytes: u64, left: u64, slots: u32) -> Choice {
        let measured = self.measured;
        let planned = self.sizes.get(&bytes).and_then(|size| size.planned);
        let is_planned = planned.is_none_or(|planned| measured.moved_from(&planned));
        let costs = is_planned.then(|| self.plan(bytes, &measured));
        let size = self.sizes.entry(bytes).or_default();
        if let Some(costs) = costs {
            size.costs = costs;
            size.planned = Some(measured);
        }
        let scheme = match settle(&size.costs, size.current, left.max(1), slots) {
            Some(chosen) => chosen.scheme,
            // The planner has no answer: use the scheme that repairs everything.
            None => size.current.unwrap_or(SchemeName::SrNack),
        };
        size.current = Some(scheme);
        Choice { scheme, is_planned }
    }

    /// The costs of all candidates for messages of this size, as of the last choice.
    #[must_use]
    pub fn costs(&self, bytes: u64) -> &[Cost] {
        self.sizes.get(&bytes).map_or(&[], |size| &size.costs)
    }

    /// Notes that messages are divided in another way from now on.
    pub fn repack(&mut self, packets: Packets) {
        self.packets = packets;
        for size in self.sizes.values_mut() {
            size.planned = None;
        }
    }

    fn plan(&self, bytes: u64, measured: &Measured) -> Vec<Cost> {
        let Packets { mtu, chunk_bytes } = self.packets;
        let bandwidth_bps = measured.pace_bps * payload_share(mtu, self.overhead_bytes);
        let mut question = Question::new(real(bytes), bandwidth_bps, measured.rtt_s, 0.0);
        question.loss = measured.losses(self.packets.per_chunk());
        question.draw_work = DRAW_WORK;
        question.coding = self.coding;
        question.chunk_bytes = real(chunk_bytes);
        question.candidates = self.candidates.iter().map(|(_, scheme)| *scheme).collect();
        let Ok(plan) = question.plan() else {
            return Vec::new();
        };
        let costs = plan.alternatives().iter().filter_map(|at| {
            let mut candidates = self.candidates.iter();
            let (name, _) = candidates.find(|(_, scheme)| *scheme == at.scheme)?;
            // A group that is not full has as much parity as a full one.
            let parity_bytes = real(parity_bytes(*name, bytes, chunk_bytes));
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SchemeSetting;

    const RATE_BPS: u64 = 100_000_000;

    /// A path of 100 Mbit/s.
    fn chooser(rtt_ms: u64, expected_loss: Option<f64>) -> Chooser {
        let packets = Packets {
            mtu: 4096,
            chunk_bytes: 4096,
        };
        let candidates = SchemeSetting::Auto.candidates();
        let rtt = Duration::from_millis(rtt_ms);
        Chooser::new(candidates, packets, rtt, RATE_BPS, expected_loss)
    }

    #[test]
    fn the_planner_is_asked_again_only_when_something_moved() {
        let mut chooser = chooser(100, None);
        let mut is_planned = |loss: Option<f64>, rtt_ms| {
            let losses = loss.map(Losses::independent);
            chooser.measure(losses, Duration::from_millis(rtt_ms), RATE_BPS);
            chooser.choose(1 << 20, 10, 8).is_planned
        };
        assert!(is_planned(None, 100), "the first time");
        assert!(!is_planned(None, 120));
        assert!(is_planned(None, 144));
        // A first loss after none is news; the end of losses is news too.
        for loss in [0.0, 1e-6, 0.0] {
            assert!(is_planned(Some(loss), 144), "{loss}");
            assert!(!is_planned(Some(loss), 144), "{loss}");
        }
    }

    #[test]
    fn each_size_has_its_own_choice() {
        let mut chooser = chooser(100, Some(0.02));
        let rtt = Duration::from_millis(100);
        chooser.measure(Some(Losses::independent(0.02)), rtt, RATE_BPS);
        let one = chooser.choose(1 << 20, 1, 8).scheme;
        assert!(one.to_string().starts_with("ec-"), "{one}");
        // Eight packets of parity for one packet cost more than a repeat.
        let costs = |chooser: &Chooser, bytes| chooser.costs(bytes).to_vec();
        chooser.choose(4096, 1, 8);
        let (small, large) = (costs(&chooser, 4096), costs(&chooser, 1 << 20));
        let overhead = |costs: &[Cost]| costs.iter().map(|c| c.parity_overhead).fold(0.0, f64::max);
        assert!(
            overhead(&small) > 7.0 && overhead(&large) < 0.3,
            "{small:?}"
        );
    }

    #[test]
    fn an_expected_loss_counts_until_the_loss_is_measured() {
        let choose = |chooser: &mut Chooser| chooser.choose(1 << 20, 1, 8).scheme;
        let mut unknown = chooser(100, None);
        assert_eq!(choose(&mut unknown), SchemeName::SrNack);
        let mut expected = chooser(100, Some(0.02));
        assert_ne!(choose(&mut expected), SchemeName::SrNack);
        for chooser in [&mut unknown, &mut expected] {
            let losses = Losses::independent(0.03);
            chooser.measure(Some(losses), Duration::from_millis(100), RATE_BPS);
            assert_eq!(chooser.measured().loss_chunk, Some(0.03));
            assert_ne!(choose(chooser), SchemeName::SrNack);
        }
    }

    #[test]
    fn larger_chunks_are_lost_more_often() {
        let expected = |chunk_bytes| {
            let packets = Packets {
                mtu: 1024,
                chunk_bytes,
            };
            let rtt = Duration::from_millis(100);
            let candidates = SchemeSetting::Auto.candidates();
            let chooser = Chooser::new(candidates, packets, rtt, RATE_BPS, Some(0.01));
            chooser.measured().prior_loss
        };
        assert!((expected(1024) - 0.01).abs() < 1e-12);
        assert!((expected(16 * 1024) - (1.0 - 0.99f64.powi(16))).abs() < 1e-12);
    }

    /// Interleaving spreads a burst over 32 groups. So codes repair bursts of 20 chunks, and not
    /// bursts that take more chunks of each group than it has parity.
    #[test]
    fn bursts_matter_where_they_are_long() {
        let choose = |burst_chunks| {
            let losses = Losses {
                loss_chunk: 0.01,
                burst_chunks: Some(burst_chunks),
            };
            let mut chooser = chooser(100, None);
            chooser.measure(Some(losses), Duration::from_millis(100), 10_000_000_000);
            let chosen = chooser.choose(8 << 20, 1, 8).scheme;
            assert!(!chooser.choose(8 << 20, 1, 8).is_planned, "it is kept");
            chosen
        };
        for burst in [1.0, 5.0, 20.0] {
            let chosen = choose(burst).to_string();
            assert!(chosen.starts_with("ec-mds:"), "{burst}: {chosen}");
        }
        assert_eq!(choose(2000.0), SchemeName::SrNack);
    }

    /// A sealed packet takes longer on the wire than its payload alone.
    #[test]
    fn a_plan_counts_what_packets_have_beside_their_payload() {
        let injection_s = |overhead_bytes| {
            let mut chooser = chooser(100, None);
            chooser.overhead_bytes = overhead_bytes;
            chooser.choose(1 << 20, 10, 8);
            let sr = chooser.costs(1 << 20).iter();
            let mut sr = sr.filter(|cost| cost.scheme == SchemeName::SrNack);
            sr.next().expect("a candidate").injection_s
        };
        let wire_bytes = f64::from(256 * (4096 + 64 + 24));
        let expected_s = wire_bytes * 8.0 / RATE_BPS as f64;
        let sealed_s = injection_s(sealed_overhead_bytes(true));
        assert!((sealed_s / expected_s - 1.0).abs() < 1e-9, "{sealed_s}");
        let unsealed_s = injection_s(farwrite::packet_overhead_bytes(true));
        assert!((sealed_s / unsealed_s - 4184.0 / 4160.0).abs() < 1e-9);
    }

    #[test]
    fn other_packets_need_another_plan() {
        let mut chooser = chooser(100, None);
        chooser.choose(1 << 20, 1, 8);
        chooser.repack(Packets {
            mtu: 1024,
            chunk_bytes: 1024,
        });
        assert!(chooser.choose(1 << 20, 1, 8).is_planned);
    }
}
