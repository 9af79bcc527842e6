//! The description of a path, from options and from a `link.toml`.

mod file;
mod save;

use std::time::Duration;

use clap::ValueEnum;
use farwrite_transfer::Start;
use farwrite_units::show::{real, whole};

pub(crate) use file::{of_table, parse, read};
pub(crate) use save::text;

/// The unit that a number of losses counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Chunks,
    Packets,
}

/// A description of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Description {
    pub(crate) rate_bps: Option<f64>,
    pub(crate) rtt_s: Option<f64>,
    /// Probability of a loss.
    pub(crate) loss: Option<(Unit, f64)>,
    /// Mean length of a run of losses.
    pub(crate) burst: Option<(Unit, f64)>,
    /// Mean time of a burst, instead of `burst`.
    pub(crate) burst_time: Option<Duration>,
    pub(crate) chunk_bytes: Option<u64>,
    /// Payload bytes of a packet.
    pub(crate) mtu: Option<u32>,
}

impl Description {
    /// The values of this description. Missing values come from `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            rate_bps: self.rate_bps.or(other.rate_bps),
            rtt_s: self.rtt_s.or(other.rtt_s),
            loss: self.loss.or(other.loss),
            burst: self.burst.or(other.burst),
            burst_time: self.burst_time.or(other.burst_time),
            chunk_bytes: self.chunk_bytes.or(other.chunk_bytes),
            mtu: self.mtu.or(other.mtu),
        }
    }

    /// The rate, limited to the rates of a sender: 8 kbit/s to 100 Gbit/s.
    pub(crate) fn pace_bps(&self) -> Option<u64> {
        self.rate_bps.map(|bps| whole(bps.clamp(8e3, 1e11)))
    }

    /// Whether a chunk is known to be one packet.
    pub(crate) fn has_one_packet_chunks(&self) -> bool {
        let sizes = self.chunk_bytes.zip(self.mtu);
        sizes.is_some_and(|(chunk_bytes, mtu)| chunk_bytes <= mtu.into())
    }

    /// The probability that a packet is lost. A chunk arrives if all of its packets arrive.
    ///
    /// # Errors
    /// What is missing to convert a loss of chunks.
    pub(crate) fn loss_packet(&self) -> Result<Option<f64>, String> {
        match (self.loss, self.chunk_bytes, self.mtu) {
            (None, ..) => Ok(None),
            (Some((Unit::Packets, loss)), ..) => Ok(Some(loss)),
            (Some((Unit::Chunks, loss)), Some(chunk_bytes), Some(mtu)) => {
                let packets = chunk_bytes.div_ceil(mtu.max(1).into()).max(1);
                Ok(Some(-((-loss).ln_1p() / real(packets)).exp_m1()))
            }
            (Some((Unit::Chunks, _)), ..) => {
                Err("loss_chunk needs chunk and mtu: give both, or loss_packet".to_owned())
            }
        }
    }

    /// The rate and the round trip, if both are known. A sender can start with them.
    pub(crate) fn start(&self) -> Option<Start> {
        Some(Start {
            rate_bps: whole(self.rate_bps?),
            rtt_ns: whole(self.rtt_s? * 1e9),
        })
    }
}

/// What a signal runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Medium {
    /// Radio, hollow fibre, and the paper.
    Vacuum,
    /// Glass.
    Fibre,
}

impl Medium {
    /// The round-trip time over a distance in kilometres, in seconds.
    pub(crate) fn rtt_s(self, km: f64) -> f64 {
        let km_per_s = match self {
            Self::Vacuum => 300_000.0,
            Self::Fibre => 204_000.0,
        };
        2.0 * km / km_per_s
    }
}
