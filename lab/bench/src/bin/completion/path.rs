//! The path, and its settings of links and queue pairs.

use std::time::Duration;

use farwrite::{QpConfig, QpOptions, RateControl, SchemeName, packet_overhead_bytes};
use farwrite_link::{LinkConfig, Loss};

/// A long path.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    pub(crate) rtt: Duration,
    /// Rate of the sender on the wire.
    pub(crate) rate_bps: f64,
    pub(crate) loss_packet: f64,
    /// Mean length of a burst of losses in packets; 0: independent losses.
    pub(crate) burst: u32,
    pub(crate) mtu: u32,
    pub(crate) seed: u64,
}

impl Path {
    /// The two directions. A burst is counted in packets, and acknowledgements are few, so losses
    /// of acknowledgements are independent.
    pub(crate) fn links(&self) -> [LinkConfig; 2] {
        let loss_packet = self.loss_packet;
        let one_by_one = Loss::Iid { loss_packet };
        let p_bad_to_good = 1.0 / f64::from(self.burst.max(1));
        let bursts = Loss::Markov {
            p_good_to_bad: p_bad_to_good * loss_packet / (1.0 - loss_packet),
            p_bad_to_good,
            loss_good: 0.0,
            loss_bad: 1.0,
        };
        let link = |loss| LinkConfig {
            delay: self.rtt / 2,
            rate_bps: Some(to_bps(self.rate_bps * 1.05)),
            // Room for the packets that a pause of this machine may accumulate.
            queue_bytes: Some(64 << 20),
            loss,
            ..LinkConfig::default()
        };
        [
            link(if self.burst == 0 { one_by_one } else { bursts }),
            link(one_by_one),
        ]
    }

    /// The options of the queue pairs at both ends, for messages of one size and scheme.
    pub(crate) fn options(&self, scheme: SchemeName, bytes: u64) -> QpOptions {
        let parity = self.parity_bytes(scheme, bytes);
        QpOptions {
            sdr: QpConfig {
                mtu: self.mtu,
                slots: 4,
                max_message_bytes: bytes.max(parity),
                ..QpConfig::default()
            },
            rate_control: RateControl::Fixed {
                rate_bps: to_bps(self.rate_bps),
            },
            initial_rtt: self.rtt,
            expected_scheme: scheme.tag(),
            ..QpOptions::default()
        }
    }

    /// Bytes of parity that the scheme sends with a message.
    pub(crate) fn parity_bytes(&self, scheme: SchemeName, bytes: u64) -> u64 {
        let chunk_bytes = u64::from(self.mtu);
        let message = farwrite::schemes::scheme::Message {
            number: 0,
            bytes,
            chunks: u32::try_from(bytes.div_ceil(chunk_bytes)).unwrap_or(u32::MAX),
            chunk_bytes,
            critical: farwrite::schemes::scheme::CriticalChunks::NONE,
        };
        let layout = scheme.scheme().layout(&message);
        layout.map_or(0, |layout| layout.parity_bytes() as u64)
    }

    /// Time in seconds until a message with its parity is acknowledged, without loss.
    pub(crate) fn ideal_s(&self, payload_bytes: u64) -> f64 {
        let packets = payload_bytes.div_ceil(self.mtu.into());
        let wire_bytes = payload_bytes + packets * u64::from(packet_overhead_bytes(true));
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let bits = (wire_bytes * 8) as f64;
        bits / self.rate_bps + self.rtt.as_secs_f64()
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
