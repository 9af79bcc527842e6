//! Settings of a prober.

use std::time::Duration;

/// Default payload sizes, as far as they fit the path's MTU: those of the SDR-RDMA paper, Fig. 2.
pub(crate) const SIZES: [u32; 4] = [1024, 2048, 4096, 8192];
/// Default shares of the allowed rate at which losses are counted.
pub(crate) const RATE_PARTS: [f64; 2] = [0.5, 1.0];

/// Settings of a prober.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Number of sockets of the prober, each with its own port: 1 to
    /// [`MAX_FLOWS`](crate::message::MAX_FLOWS).
    pub flows: u16,
    /// UDP payload sizes, in bytes, for which losses are counted; `None`: 1, 2, 4 and 8 KiB as far
    /// as they fit the path's MTU.
    pub sizes: Option<Vec<u32>>,
    /// Rates at which losses are counted, in bits of IP packets per second; `None`: half of the
    /// allowed rate, and all of it.
    pub rates_bps: Option<Vec<u64>>,
    /// Number of trials with each size at each rate.
    pub trials: u32,
    /// Largest share of the path's rate that is used: above 0, at most 1. Trains that measure the
    /// rate are faster, and stay below the share together with the pauses after them. The share is
    /// at least 64 kbit/s.
    pub share: f64,
    /// Rate that is never exceeded, in bits per second.
    pub max_rate_bps: u64,
    /// Duration of the whole probe. The trains take longer if the share is small. On a slow path, the trials take up
    /// to twice this time, and the first one as long as its packets need.
    pub time: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            flows: 16,
            sizes: None,
            rates_bps: None,
            trials: 5,
            share: 0.1,
            max_rate_bps: 10_000_000_000,
            time: Duration::from_secs(15),
        }
    }
}
