//! What a prober is asked to do.

use std::time::Duration;

/// Payload sizes that are tried unless others are asked for, as far as they fit into the path's MTU:
/// those of the SDR-RDMA paper, Fig. 2.
pub(crate) const SIZES: [u32; 4] = [1024, 2048, 4096, 8192];
/// Parts of the allowed rate that are tried unless rates are asked for.
pub(crate) const RATE_PARTS: [f64; 2] = [0.5, 1.0];

/// What a prober is asked to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Sockets of the prober, each with a port of its own: 1 to
    /// [`MAX_FLOWS`](crate::message::MAX_FLOWS).
    pub flows: u16,
    /// UDP payload bytes of the packets whose losses are counted; `None`: 1, 2, 4
    /// and 8 KiB as far as they fit into the path's MTU.
    pub sizes: Option<Vec<u32>>,
    /// Rates at which losses are counted, in bits of IP packets a second; `None`: half of what the
    /// share allows, and all of it.
    pub rates_bps: Option<Vec<u64>>,
    /// How often each size is sent at each rate.
    pub trials: u32,
    /// Most of the path's rate that is used to count losses: above 0, to 1.
    pub share: f64,
    /// Rate that is never exceeded, in bits a second.
    pub max_rate_bps: u64,
    /// How long all of it may take.
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
