//! A cell of the grid: what it makes of queue pairs, of a cable, and of the model.

use std::time::Duration;

use farwrite::{QpConfig, QpOptions, RateControl, SchemeName};
use farwrite_model::{Loss as ModelLoss, Scheme, Setting, Variant};
use farwrite_net::{CableConfig, Loss};

use crate::Failure;

/// IPv4, UDP, BTH, RETH, immediate and ICRC around a payload.
const OVERHEAD_BYTES: u32 = 64;
/// Longest message: 2^21 packets of 4096 bytes.
const MAX_BYTES: u64 = 8 << 30;
/// Shortest round trip: below, the allowance of the wide-area timing for late operating systems
/// (10 ms) is longer than the waits that the model has.
const MIN_RTT_S: f64 = 0.010;
/// Share of a round trip for which a chunk may be late before it counts as lost (P5.0.3).
const REORDERING: f64 = 0.125;

/// Messages of one size and scheme over one path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) scheme: SchemeName,
    pub(crate) bytes: u64,
    /// Of the sender, on the wire.
    pub(crate) rate_bps: f64,
    pub(crate) rtt_s: f64,
    pub(crate) loss_packet: f64,
    /// Mean packets of a burst of losses; 0: each by itself.
    pub(crate) burst: u32,
    pub(crate) mtu: u32,
    pub(crate) samples: usize,
    pub(crate) seed: u64,
}

/// Whose waits a model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// The paper's: 1 and 3 round trips, and half a round trip for the end of parity (4.2).
    Paper,
    /// Those that chapter P5 of `docs/protocol.md` prescribes.
    Protocol,
}

impl Cell {
    /// Messages for which a cell takes minutes at most.
    pub(crate) fn usual_samples(bytes: u64) -> usize {
        match bytes >> 20 {
            0..=8 => 10_000,
            9..=128 => 1_000,
            129..=1024 => 100,
            _ => 20,
        }
    }

    /// Whether the cell can be run.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if !(1..=MAX_BYTES).contains(&self.bytes) {
            return Err(
                format!("--size-kib {}: 1 to {}", self.bytes >> 10, MAX_BYTES >> 10).into(),
            );
        }
        if self.rtt_s < MIN_RTT_S {
            let why =
                "at least 10, since endpoints allow for operating systems that are 10 ms late";
            return Err(format!("--rtt-ms {}: {why}", self.rtt_s * 1e3).into());
        }
        if self.samples == 0 {
            return Err("--samples 0: at least 1".into());
        }
        self.model(Waits::Paper)?.completion_time()?;
        Ok(())
    }

    pub(crate) fn rtt(&self) -> Duration {
        Duration::from_secs_f64(self.rtt_s)
    }

    /// The path. Its queue never grows, since it is faster than the sender.
    pub(crate) fn cable(&self) -> CableConfig {
        let mut cable = CableConfig::new(to_bps(self.rate_bps * 1.05), self.rtt() / 2);
        let loss_packet = self.loss_packet;
        cable.loss = match self.chain() {
            None => Loss::Iid { loss_packet },
            Some([p_good_to_bad, p_bad_to_good]) => Loss::Markov {
                p_good_to_bad,
                p_bad_to_good,
                loss_good: 0.0,
                loss_bad: 1.0,
            },
        };
        cable
    }

    /// Both ends' queue pairs.
    pub(crate) fn options(&self) -> QpOptions {
        let mut sdr = QpConfig {
            mtu: self.mtu,
            slots: 4,
            max_message_bytes: self.bytes,
            ..QpConfig::default()
        };
        // The split of the paper ends at 2^18 packets.
        sdr.split.id_bits = 7;
        sdr.split.offset_bits = 21;
        QpOptions {
            sdr,
            rate_control: RateControl::Fixed {
                rate_bps: to_bps(self.rate_bps),
            },
            initial_rtt: self.rtt(),
            expected_scheme: self.scheme.tag(),
            max_parity_bytes: u64::MAX,
            ..QpOptions::default()
        }
    }

    /// The question to the model. Its rate is that of the payload.
    pub(crate) fn model(&self, waits: Waits) -> Result<Setting, Failure> {
        let scheme: Scheme = self.scheme.to_string().parse()?;
        let payload_share = f64::from(self.mtu) / f64::from(self.mtu + OVERHEAD_BYTES);
        #[expect(clippy::cast_precision_loss, reason = "at most 2^33")]
        let bytes = self.bytes as f64;
        let rate_bps = self.rate_bps * payload_share;
        let mut setting = Setting::new(scheme, bytes, rate_bps, self.rtt_s, self.loss_packet);
        setting.chunk_bytes = f64::from(self.mtu);
        setting.variant = Variant::Serial;
        if let Some([p_good_to_bad, p_bad_to_good]) = self.chain() {
            setting.loss = ModelLoss::Markov {
                p_good_to_bad,
                p_bad_to_good,
                loss_good: 0.0,
                loss_bad: 1.0,
                packets_per_chunk: 1,
            };
        }
        if waits == Waits::Protocol {
            (setting.rto_rtts, setting.beta) = match scheme {
                // P5.0.7 with alpha 2.
                Scheme::SrRto => (Some(3.0), 0.0),
                // P5.2.1.
                Scheme::SrNack | Scheme::GoBackN => (Some(1.0 + REORDERING), 0.0),
                // P5.4.9; P5.4.12 with the interval of P5.2.3.
                Scheme::Ec { .. } => (Some(1.0 + 2.0 * REORDERING), REORDERING),
            };
        }
        Ok(setting)
    }

    /// The chain of bursts: from good to bad, and back.
    fn chain(&self) -> Option<[f64; 2]> {
        let back = (self.burst > 0).then(|| 1.0 / f64::from(self.burst))?;
        Some([back * self.loss_packet / (1.0 - self.loss_packet), back])
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is positive and far below 2^63"
)]
fn to_bps(rate_bps: f64) -> u64 {
    rate_bps as u64
}
