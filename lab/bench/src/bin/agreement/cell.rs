//! A cell of the grid, and its settings of queue pairs, cable and model.

use std::time::Duration;

use farwrite::{QpConfig, QpOptions, RateControl, RecvOptions, SchemeName, packet_overhead_bytes};
use farwrite_model::{Loss as ModelLoss, Scheme, Setting, Variant};
use farwrite_net::{CableConfig, Loss};
use farwrite_units::Burst;

use crate::Failure;

/// Longest message: 2^21 packets of 4096 bytes.
const MAX_BYTES: u64 = 8 << 30;
/// Highest number of sites in a ring. A site has slots for the messages of all rounds.
const MAX_SITES: u32 = 32;
/// Shortest round trip. Below it, the allowance of the wide-area timing for late operating systems
/// (10 ms) is longer than the waits of the model.
const MIN_RTT_S: f64 = 0.010;

/// Messages, or all-reduces, of one size and scheme over one path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) scheme: SchemeName,
    /// Length of a message, or of the buffer of each site.
    pub(crate) bytes: u64,
    /// Sites of a ring all-reduce; `None`: single messages.
    pub(crate) sites: Option<u32>,
    /// Rate of the sender on the wire.
    pub(crate) rate_bps: f64,
    pub(crate) rtt_s: f64,
    pub(crate) loss_packet: f64,
    /// Mean length of a burst of losses; `None`: independent losses.
    pub(crate) burst: Option<Burst>,
    /// Whether only packets from the sender of messages are lost, and no reports.
    pub(crate) keeps_reports: bool,
    /// Whether receives demand the length and the scheme, so that they need no offer (P3.12).
    pub(crate) has_terms: bool,
    pub(crate) mtu: u32,
    pub(crate) samples: usize,
    pub(crate) seed: u64,
}

/// The waits of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelWaits {
    /// The waits of the paper: 1 and 3 round trips, and half a round trip for the end of parity
    /// (4.2).
    Paper,
    /// The waits of chapter P5 of `docs/protocol.md`.
    Protocol,
}

impl Cell {
    /// Default number of messages, with which a cell takes at most minutes.
    pub(crate) fn usual_samples(bytes: u64) -> usize {
        match bytes >> 20 {
            0..=8 => 10_000,
            9..=128 => 1_000,
            129..=1024 => 100,
            _ => 20,
        }
    }

    /// Checks that the cell can run.
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
        if let Some(sites) = self.sites {
            if !(2..=MAX_SITES).contains(&sites) {
                return Err(format!("--sites {sites}: 2 to {MAX_SITES}").into());
            }
            if self.burst.is_some() {
                return Err("--burst: losses are independent where there are --sites".into());
            }
        }
        if self.keeps_reports && (self.sites.is_some() || self.burst.is_some()) {
            return Err("--keep-reports: for single messages and independent losses only".into());
        }
        // The model checks the other arguments.
        self.model(ModelWaits::Paper)?.sample(0, 0)?;
        Ok(())
    }

    /// Length of each message: in a ring, the bytes that a site sends to the next one per round.
    pub(crate) fn message_bytes(&self) -> u64 {
        self.bytes.div_ceil(u64::from(self.sites.unwrap_or(1)))
    }

    /// Messages that a site sends in one all-reduce; 1 for single messages.
    pub(crate) fn rounds(&self) -> u32 {
        self.sites.map_or(1, |sites| 2 * sites - 2)
    }

    /// The options of each receive.
    pub(crate) fn recv_options(&self) -> RecvOptions {
        RecvOptions {
            scheme: self.has_terms.then(|| self.scheme.tag()),
            exact_length: self.has_terms,
            ..RecvOptions::default()
        }
    }

    pub(crate) fn rtt(&self) -> Duration {
        Duration::from_secs_f64(self.rtt_s)
    }

    /// The path as `parts` equal cables in a row. They are faster than the sender, so no queue
    /// grows. If the path keeps reports, the receiver loses packets instead.
    pub(crate) fn cable(&self, parts: u32) -> CableConfig {
        let delay = self.rtt() / 2 / parts;
        let mut cable = CableConfig::new(to_bps(self.rate_bps * 1.05), delay);
        let loss_packet = match parts {
            1 => self.loss_packet,
            _ => -((-self.loss_packet).ln_1p() / f64::from(parts)).exp_m1(),
        };
        cable.loss = match self.burst {
            None if self.keeps_reports => Loss::None,
            None => Loss::Iid { loss_packet },
            Some(Burst::Losses(packets)) => Loss::in_bursts(loss_packet, packets),
            Some(Burst::Time(time)) => Loss::in_timed_bursts(loss_packet, time),
        };
        cable
    }

    /// The options of the queue pairs at both ends.
    pub(crate) fn options(&self) -> QpOptions {
        let mut sdr = QpConfig {
            mtu: self.mtu,
            slots: self.rounds().next_power_of_two().max(4),
            max_message_bytes: self.message_bytes(),
            ..QpConfig::default()
        };
        // The immediate split of the paper supports at most 2^18 packets.
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

    /// The model setting of a message, or of a ring with buffers of the cell's bytes. Its rate is
    /// the payload rate.
    pub(crate) fn model(&self, waits: ModelWaits) -> Result<Setting, Failure> {
        let scheme: Scheme = self.scheme.to_string().parse()?;
        let payload_share = f64::from(self.mtu) / f64::from(self.mtu + packet_overhead_bytes(true));
        #[expect(clippy::cast_precision_loss, reason = "at most 2^33")]
        let bytes = self.bytes as f64;
        let rate_bps = self.rate_bps * payload_share;
        let mut setting = Setting::new(scheme, bytes, rate_bps, self.rtt_s, self.loss_packet);
        setting.chunk_bytes = f64::from(self.mtu);
        setting.variant = Variant::Serial;
        if let Some([p_good_to_bad, p_bad_to_good]) = self.chain()? {
            setting.loss = ModelLoss::Markov {
                p_good_to_bad,
                p_bad_to_good,
                loss_good: 0.0,
                loss_bad: 1.0,
                packets_per_chunk: 1,
            };
        }
        if waits == ModelWaits::Protocol && self.sites.is_none() && setting.has_rounds()? {
            setting.variant = Variant::Protocol;
        } else if waits == ModelWaits::Protocol {
            let (rto_rtts, beta) = scheme.protocol_waits();
            (setting.rto_rtts, setting.beta) = (Some(rto_rtts), beta);
        }
        Ok(setting)
    }

    /// The transition probabilities of the chain of bursts at the sender's rate: from good to bad,
    /// and back.
    fn chain(&self) -> Result<Option<[f64; 2]>, Failure> {
        let packet_bytes = self.mtu + packet_overhead_bytes(true);
        let packet_s = 8.0 * f64::from(packet_bytes) / self.rate_bps;
        let losses = match self.burst {
            None => return Ok(None),
            Some(Burst::Losses(losses)) => losses,
            Some(Burst::Time(time)) => {
                farwrite_model::losses_in_burst(self.loss_packet, time.as_secs_f64(), packet_s)?
            }
        };
        let back = 1.0 / losses;
        Ok(Some([
            back * self.loss_packet / (1.0 - self.loss_packet),
            back,
        ]))
    }

    /// The burst as on the command line, without spaces.
    pub(crate) fn burst_text(&self) -> String {
        let burst = self.burst.map(|burst| burst.to_string());
        burst.unwrap_or("0".to_owned()).replace(' ', "")
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
