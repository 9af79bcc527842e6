//! Parameters of Swift, and the target delay.

use super::PACKET;
use crate::math::mul_div;

/// Parameters of [`Swift`](crate::Swift), with the names of the paper. Windows are in millionths of
/// a packet, factors in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwiftOptions {
    /// Rate of the sender's port in bits a second: the pace of windows of a packet or more.
    pub line_rate_bps: u64,
    /// Bytes of a packet on the wire.
    pub packet_bytes: u64,
    /// `base_target`: target delay of a path without hops, in nanoseconds.
    pub base_target_ns: u64,
    /// Each hop adds this to the target, in nanoseconds.
    pub per_hop_ns: u64,
    /// Hops of the path. Swift reads them from the TTL of ACKs; here the user knows them.
    pub hops: u32,
    /// `fs_range`: highest value that flow scaling adds to the target, in nanoseconds.
    pub fs_range_ns: u64,
    /// `fs_min_cwnd`: the window below which flow scaling adds all of `fs_range`.
    pub fs_min_cwnd_millionths: u64,
    /// `fs_max_cwnd`: the window above which flow scaling adds nothing.
    pub fs_max_cwnd_millionths: u64,
    /// `ai`: each round trip below the target adds this to the window.
    pub ai_millionths: u64,
    /// `beta`: the share of the excess delay by which the window falls.
    pub beta_millionths: u64,
    /// `max_mdf`: the largest share of one decrease.
    pub max_mdf_millionths: u64,
    /// `min_cwnd`.
    pub min_cwnd_millionths: u64,
    /// `max_cwnd`.
    pub max_cwnd_millionths: u64,
    /// `RETX_RESET_THRESHOLD`: number of consecutive timeouts that reset the window to `min_cwnd`.
    pub retx_reset_threshold: u32,
    /// Target delay at the receiving endpoint, in nanoseconds.
    pub endpoint_target_ns: u64,
}

impl SwiftOptions {
    /// A target of 20 us, with up to 100 us of flow scaling between windows of 0.1 and 100 packets,
    /// and 3 us for each of `hops`; `ai` 1, `beta` 0.8, `max_mdf` 0.5, windows of 0.001 to 1000
    /// packets, a reset after 5 timeouts. The paper describes these parameters but gives few
    /// values. The values of delays and of the decrease are those of htsim.
    #[must_use]
    pub fn new(line_rate_bps: u64, packet_bytes: u64, hops: u32) -> Self {
        Self {
            line_rate_bps,
            packet_bytes,
            base_target_ns: 20_000,
            per_hop_ns: 3_000,
            hops,
            fs_range_ns: 100_000,
            fs_min_cwnd_millionths: 100_000,
            fs_max_cwnd_millionths: 100_000_000,
            ai_millionths: 1_000_000,
            beta_millionths: 800_000,
            max_mdf_millionths: 500_000,
            min_cwnd_millionths: 1_000,
            max_cwnd_millionths: 1_000_000_000,
            retx_reset_threshold: 5,
            endpoint_target_ns: 100_000,
        }
    }

    /// The same parameters for a path whose round trip is not short beside the targets: they count
    /// from this round trip, in nanoseconds. Receivers that hold reports for a part of the round trip
    /// need this too.
    #[must_use]
    pub fn over_round_trip(self, rtt_ns: u64) -> Self {
        Self {
            base_target_ns: self.base_target_ns.saturating_add(rtt_ns),
            endpoint_target_ns: self.endpoint_target_ns.saturating_add(rtt_ns),
            ..self
        }
    }

    pub(super) fn bounded(self) -> Self {
        let min = self.min_cwnd_millionths.clamp(1, 1_000_000);
        let fs_min = self.fs_min_cwnd_millionths.clamp(1_000, 1_000_000_000);
        Self {
            line_rate_bps: self.line_rate_bps.max(1),
            packet_bytes: self.packet_bytes.max(1),
            base_target_ns: self.base_target_ns.max(1),
            fs_min_cwnd_millionths: fs_min,
            fs_max_cwnd_millionths: self.fs_max_cwnd_millionths.clamp(fs_min, 1 << 40),
            ai_millionths: self.ai_millionths.min(1 << 40),
            max_mdf_millionths: self.max_mdf_millionths.min(999_999),
            min_cwnd_millionths: min,
            max_cwnd_millionths: self.max_cwnd_millionths.clamp(1_000_000, 1 << 40),
            endpoint_target_ns: self.endpoint_target_ns.max(1),
            ..self
        }
    }

    pub(super) fn min_cwnd(&self) -> u64 {
        mul_div(self.min_cwnd_millionths, PACKET, 1_000_000).max(1)
    }

    pub(super) fn max_cwnd(&self) -> u64 {
        mul_div(self.max_cwnd_millionths, PACKET, 1_000_000)
    }

    /// The target delay of the fabric for a window in units of [`PACKET`].
    pub(super) fn target_ns(&self, cwnd: u64) -> u64 {
        let least = inverse_root(mul_div(self.fs_max_cwnd_millionths, PACKET, 1_000_000));
        let most = inverse_root(mul_div(self.fs_min_cwnd_millionths, PACKET, 1_000_000));
        let scale = inverse_root(cwnd).clamp(least, most) - least;
        let flows_ns = mul_div(self.fs_range_ns, scale, most - least);
        let hops_ns = self.per_hop_ns.saturating_mul(u64::from(self.hops));
        let target_ns = self.base_target_ns.saturating_add(hops_ns);
        target_ns.saturating_add(flows_ns)
    }
}

/// 2^32 divided by the square root of a window in packets.
fn inverse_root(cwnd: u64) -> u64 {
    // A packet is 2^20 units, so the root has a factor of 2^10. The shift adds a factor of 2^12 for
    // precision.
    let root = (u128::from(cwnd.max(1)) << 24).isqrt();
    u64::try_from((1_u128 << (32 + 22)) / root).unwrap_or(u64::MAX)
}
