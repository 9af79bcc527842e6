//! The shared buffer of a switch: which frames it admits, and which ports must pause their peers.
//!
//! A frame of a lossy priority is admitted while its egress queue is below the dynamic threshold
//! `alpha * free bytes`. A frame of a lossless priority is charged to its ingress port: to the
//! shared pool below the PFC threshold, and to the port's headroom beyond it.

use super::config::{SwitchConfig, XoffThreshold};
use crate::{FrameDrop, PRIORITIES};

/// Occupancy of a switch's buffer. Bytes in headroom do not count in the shared pool.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// Bytes of the shared pool: the buffer without all headroom.
    pool_bytes: u64,
    used_bytes: u64,
    alpha: f64,
    lossless: u8,
    xoff: XoffThreshold,
    xon_gap_bytes: u64,
    /// Headroom of each port, the same for each lossless priority.
    headroom_bytes: Vec<u64>,
    /// Bytes held, by ingress port and priority.
    ingress: Vec<[Ingress; PRIORITIES]>,
}

/// Bytes that entered through one port with one priority and are still in the switch.
#[derive(Clone, Copy, Debug, Default)]
struct Ingress {
    shared_bytes: u64,
    headroom_bytes: u64,
}

impl Buffer {
    /// An empty buffer for a validated configuration. `headroom_bytes` lists the headroom of each
    /// port.
    pub(crate) fn new(config: &SwitchConfig, headroom_bytes: Vec<u64>) -> Self {
        let pfc = config.pfc.as_ref();
        let lossless = pfc.map_or(0, |pfc| pfc.mask());
        let reserved = u64::from(lossless.count_ones()) * headroom_bytes.iter().sum::<u64>();
        Self {
            pool_bytes: config.buffer_bytes.saturating_sub(reserved),
            used_bytes: 0,
            alpha: config.alpha,
            lossless,
            xoff: pfc.map_or(XoffThreshold::Bytes(0), |pfc| pfc.xoff),
            xon_gap_bytes: pfc.map_or(0, |pfc| pfc.xon_gap_bytes),
            ingress: vec![Default::default(); headroom_bytes.len()],
            headroom_bytes,
        }
    }

    /// Admits a frame to an egress queue that holds `queue_bytes`, or returns why it does not fit.
    pub(crate) fn admit(
        &mut self,
        ingress: usize,
        priority: u8,
        bytes: u64,
        queue_bytes: u64,
    ) -> Result<(), FrameDrop> {
        let fits = self.used_bytes + bytes <= self.pool_bytes;
        if !self.is_lossless(priority) {
            if !fits || !below(queue_bytes, self.alpha, self.free_bytes()) {
                return Err(FrameDrop::Buffer);
            }
            self.used_bytes += bytes;
            return Ok(());
        }
        let over = self.is_over(ingress, priority);
        let held = &mut self.ingress[ingress][usize::from(priority)];
        if fits && !over {
            held.shared_bytes += bytes;
            self.used_bytes += bytes;
            debug_assert!(held.shared_bytes <= self.used_bytes);
        } else if held.headroom_bytes + bytes <= self.headroom_bytes[ingress] {
            held.headroom_bytes += bytes;
        } else {
            return Err(FrameDrop::Headroom);
        }
        Ok(())
    }

    /// Returns a frame's bytes. Headroom is freed first, so that it is available for the next
    /// pause.
    pub(crate) fn release(&mut self, ingress: usize, priority: u8, bytes: u64) {
        let mut shared = bytes;
        if self.is_lossless(priority) {
            let held = &mut self.ingress[ingress][usize::from(priority)];
            let headroom = bytes.min(held.headroom_bytes);
            shared = bytes - headroom;
            held.headroom_bytes -= headroom;
            held.shared_bytes -= shared;
        }
        self.used_bytes -= shared;
    }

    /// Whether an ingress port must stop a priority. `stopped` is the current state.
    pub(crate) fn stops(&self, ingress: usize, priority: u8, stopped: bool) -> bool {
        let held = self.ingress[ingress][usize::from(priority)];
        if !stopped {
            return held.headroom_bytes > 0 || self.is_over(ingress, priority);
        }
        if held.headroom_bytes > 0 {
            return true;
        }
        // A port that holds nothing resumes however low the threshold is: it has no frame whose
        // departure could make it resume later.
        let with_gap = held.shared_bytes.saturating_add(self.xon_gap_bytes);
        held.shared_bytes > 0 && !self.is_below_xoff(with_gap)
    }

    pub(crate) fn is_lossless(&self, priority: u8) -> bool {
        self.lossless & 1 << priority != 0
    }

    /// Bytes of the shared pool.
    pub(crate) fn pool_bytes(&self) -> u64 {
        self.pool_bytes
    }

    /// Bytes of the shared pool in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn free_bytes(&self) -> u64 {
        self.pool_bytes.saturating_sub(self.used_bytes)
    }

    /// Whether an ingress port has reached the PFC threshold of a priority.
    fn is_over(&self, ingress: usize, priority: u8) -> bool {
        !self.is_below_xoff(self.ingress[ingress][usize::from(priority)].shared_bytes)
    }

    fn is_below_xoff(&self, bytes: u64) -> bool {
        match self.xoff {
            XoffThreshold::Alpha(alpha) => below(bytes, alpha, self.free_bytes()),
            XoffThreshold::Bytes(limit) => bytes < limit,
        }
    }
}

/// Whether `bytes < alpha * free_bytes`, the dynamic threshold.
#[expect(
    clippy::cast_precision_loss,
    reason = "a buffer has fewer than 2^53 bytes"
)]
fn below(bytes: u64, alpha: f64, free_bytes: u64) -> bool {
    (bytes as f64) < alpha * free_bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pfc;

    fn lossy(buffer_bytes: u64, alpha: f64) -> Buffer {
        let config = SwitchConfig {
            buffer_bytes,
            alpha,
            ..SwitchConfig::default()
        };
        Buffer::new(&config, vec![0; 2])
    }

    /// With n queues that never drain, each gets alpha / (1 + n alpha) of the buffer (Choudhury and
    /// Hahne, equation 2).
    #[test]
    fn busy_queues_share_the_buffer_as_the_dynamic_threshold_says() {
        for (alpha, queues) in [(1.0, 1), (1.0, 3), (0.5, 1), (2.0, 4), (8.0, 1)] {
            let mut buffer = lossy(1_000_000, alpha);
            let mut held = vec![0u64; queues];
            for _ in 0..10_000 {
                for queue in &mut held {
                    if buffer.admit(0, 0, 100, *queue).is_ok() {
                        *queue += 100;
                    }
                }
            }
            #[allow(clippy::cast_precision_loss)]
            let want = 1e6 * alpha / (1.0 + queues as f64 * alpha);
            for bytes in held {
                #[allow(clippy::cast_precision_loss)]
                let off = (bytes as f64 - want).abs();
                // One frame for each queue, times alpha.
                assert!(
                    off <= 100.0 * (1.0 + alpha),
                    "{alpha} {queues}: {bytes}, not {want}"
                );
            }
        }
    }

    #[test]
    fn a_queue_at_the_threshold_takes_nothing_and_one_below_it_does() {
        // 1000 bytes are free and alpha is 1/2, so the threshold is 500.
        let mut buffer = lossy(1000, 0.5);
        assert_eq!(buffer.admit(0, 0, 100, 500), Err(FrameDrop::Buffer));
        assert_eq!(buffer.admit(0, 0, 100, 499), Ok(()));
        // 900 bytes are free, so the threshold is 450.
        assert_eq!(buffer.admit(0, 0, 100, 450), Err(FrameDrop::Buffer));
        assert_eq!(buffer.admit(0, 0, 901, 0), Err(FrameDrop::Buffer));
        assert_eq!(buffer.admit(0, 0, 900, 0), Ok(()));
        buffer.release(0, 0, 100);
        buffer.release(1, 0, 900);
        assert_eq!(buffer.used_bytes(), 0);
    }

    #[test]
    fn a_lossless_priority_stops_at_xoff_uses_headroom_and_goes_on_below_xon() {
        let config = SwitchConfig {
            buffer_bytes: 100_000,
            pfc: Some(Pfc {
                xoff: XoffThreshold::Bytes(1000),
                xon_gap_bytes: 300,
                ..Pfc::new(&[3])
            }),
            ..SwitchConfig::default()
        };
        let mut buffer = Buffer::new(&config, vec![500, 500]);
        for held in 0..10 {
            assert!(!buffer.stops(0, 3, false), "{held}");
            assert_eq!(buffer.admit(0, 3, 100, 1 << 40), Ok(()));
        }
        // At the threshold, the port stops its peer. Later frames fill the headroom and no more.
        assert!(buffer.stops(0, 3, false) && !buffer.stops(1, 3, false));
        for _ in 0..5 {
            assert_eq!(buffer.admit(0, 3, 100, 0), Ok(()));
        }
        assert_eq!(buffer.admit(0, 3, 100, 0), Err(FrameDrop::Headroom));
        assert_eq!(buffer.used_bytes(), 1000);
        // 15 bytes are held: 5 leave from the headroom, then 3 until 700 are left, and one more.
        for left in 0..9 {
            assert!(buffer.stops(0, 3, true), "{left}");
            buffer.release(0, 3, 100);
        }
        assert!(!buffer.stops(0, 3, true));
    }

    /// An empty port resumes however small the threshold is while other ports fill the buffer.
    #[test]
    fn a_port_that_holds_nothing_is_not_stopped_for_ever() {
        let config = SwitchConfig {
            buffer_bytes: 10_000,
            pfc: Some(Pfc::new(&[3])),
            ..SwitchConfig::default()
        };
        let mut buffer = Buffer::new(&config, vec![1000, 1000]);
        assert_eq!(buffer.admit(0, 3, 100, 0), Ok(()));
        assert_eq!(buffer.admit(1, 0, 7900, 0), Ok(()));
        assert!(buffer.stops(0, 3, false));
        buffer.release(0, 3, 100);
        assert!(!buffer.stops(0, 3, true));
    }
}
