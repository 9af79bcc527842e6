//! Slows senders down when repair packets queue up.
//!
//! A box that adds packets sends more than it receives, so packets queue up at the far interface.
//! Above the queue length that [`Backpressure`] sets, the bridge pauses the senders of the near
//! side with PFC frames (IEEE 802.1Qbb), or marks packets as Congestion Experienced.

use std::mem;

use farwrite_boxes::Backpressure;

/// The destination of PFC frames: all stations of this link (IEEE 802.1Q, annex F).
const GROUP: [u8; 6] = [0x01, 0x80, 0xC2, 0x00, 0x00, 0x01];
/// MAC control, and the operation of PFC.
const TYPE_AND_OPERATION: [u8; 4] = [0x88, 0x08, 0x01, 0x01];
/// Minimum length of an Ethernet frame, without the frame check sequence.
const FRAME_BYTES: usize = 60;
/// Offset of the bitmap of the priorities that a frame names (its lower byte).
const NAMED: usize = 17;
/// Interval between attempts to send a frame for which the kernel has no room.
const RETRY_NS: u64 = 50_000;
/// Length of a pause quantum, in bit times.
const QUANTUM_BITS: u64 = 512;
/// Assumed speed of an interface that does not know its speed. It is high, so that pauses are
/// renewed early enough.
const DEFAULT_MBPS: u64 = 100_000;

/// Decides when to pause the near side.
#[derive(Debug)]
pub(crate) struct Throttle {
    backpressure: Option<Backpressure>,
    /// Bitmap of the priorities that a queue at the far interface stops.
    priorities: u8,
    source: [u8; 6],
    /// Interval between renewals. A pause expires after the longest time that a frame can name.
    renew_ns: u64,
    renewed_ns: u64,
    /// Whether the queue stops `priorities` now.
    is_full: bool,
    /// Bitmap of the priorities that are stopped now.
    stopped: u8,
    /// Bitmap of the priorities in a PFC frame that the kernel did not accept.
    unsent: u8,
    pauses: u64,
}

impl Throttle {
    /// `source` and `mbps` are the address and the speed of the near interface.
    pub(crate) fn new(
        backpressure: Option<Backpressure>,
        priorities: u8,
        source: [u8; 6],
        mbps: Option<u64>,
    ) -> Self {
        let mbps = mbps.unwrap_or(DEFAULT_MBPS).max(1);
        Self {
            backpressure,
            priorities,
            source,
            renew_ns: u64::from(u16::MAX) * QUANTUM_BITS * 1000 / mbps / 2,
            renewed_ns: 0,
            is_full: false,
            stopped: 0,
            unsent: 0,
            pauses: 0,
        }
    }

    /// The PFC frame that is due now, if any. `queued_bytes` is the queue at the far interface,
    /// `stops` the bitmap of the priorities that the box wants to stop.
    pub(crate) fn pause(
        &mut self,
        now_ns: u64,
        queued_bytes: u64,
        stops: u8,
    ) -> Option<[u8; FRAME_BYTES]> {
        if let Some(Backpressure::Pfc {
            stop_bytes,
            resume_bytes,
        }) = self.backpressure
        {
            let limit = if self.is_full {
                resume_bytes
            } else {
                stop_bytes
            };
            self.is_full = queued_bytes > limit;
        }
        let stops = stops | if self.is_full { self.priorities } else { 0 };
        let changes = stops ^ self.stopped;
        let renews = self.renew_at_ns().is_some_and(|at_ns| at_ns <= now_ns);
        if changes | self.unsent == 0 && !renews {
            return None;
        }
        self.pauses += u64::from((changes & stops).count_ones());
        self.stopped = stops;
        self.renewed_ns = now_ns;
        let unsent = mem::take(&mut self.unsent);
        Some(self.frame(changes | stops | unsent))
    }

    /// The kernel has no room for the frame that [`pause`](Self::pause) returned. The next one names
    /// its priorities too.
    pub(crate) fn not_sent(&mut self, frame: &[u8; FRAME_BYTES]) {
        self.unsent = frame[NAMED];
    }

    /// When the next frame is due if nothing changes: a frame that was not sent, or the renewal of
    /// the pause.
    pub(crate) fn renew_at_ns(&self) -> Option<u64> {
        if self.unsent != 0 {
            return Some(self.renewed_ns + RETRY_NS);
        }
        (self.stopped != 0).then_some(self.renewed_ns + self.renew_ns)
    }

    /// Whether to mark packets while `queued_bytes` are queued at the far interface.
    pub(crate) fn marks(&self, queued_bytes: u64) -> bool {
        matches!(self.backpressure, Some(Backpressure::Ecn { mark_bytes }) if queued_bytes > mark_bytes)
    }

    /// How often a priority was paused, without renewals.
    pub(crate) fn pauses(&self) -> u64 {
        self.pauses
    }

    /// A PFC frame for the priorities in `named`: it stops those that are in `stopped`, and resumes
    /// the others.
    fn frame(&self, named: u8) -> [u8; FRAME_BYTES] {
        let mut frame = [0; FRAME_BYTES];
        frame[..6].copy_from_slice(&GROUP);
        frame[6..12].copy_from_slice(&self.source);
        frame[12..16].copy_from_slice(&TYPE_AND_OPERATION);
        frame[NAMED] = named;
        for priority in (0..8).filter(|priority| self.stopped >> priority & 1 == 1) {
            let at = 18 + 2 * priority;
            frame[at..at + 2].copy_from_slice(&u16::MAX.to_be_bytes());
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttle(backpressure: Backpressure) -> Throttle {
        Throttle::new(Some(backpressure), 1 << 3, [2, 0, 0, 0, 0, 1], Some(10_000))
    }

    #[test]
    fn a_pause_is_renewed_until_the_queue_is_short() {
        let mut throttle = throttle(Backpressure::Pfc {
            stop_bytes: 1000,
            resume_bytes: 500,
        });
        let mut quanta = |now_ns, bytes| {
            let frame = throttle.pause(now_ns, bytes, 0);
            frame.map(|frame| u16::from_be_bytes([frame[24], frame[25]]))
        };
        assert_eq!(quanta(0, 1000), None);
        assert_eq!(quanta(1, 1001), Some(u16::MAX));
        // 65,535 units are 3.36 ms at 10 Gbit/s.
        assert_eq!(quanta(1_600_000, 600), None);
        assert_eq!(quanta(1_700_000, 600), Some(u16::MAX));
        assert_eq!(quanta(1_700_001, 500), Some(0));
        assert_eq!(quanta(1_700_002, 800), None);
        assert_eq!(throttle.pauses(), 1);
        assert_eq!(throttle.renew_at_ns(), None);
    }

    #[test]
    fn what_the_box_stops_is_stopped_beside_that() {
        let mut throttle = throttle(Backpressure::default());
        let mut named = |now_ns, bytes, stops| {
            let frame = throttle.pause(now_ns, bytes, stops);
            frame.map(|frame| (frame[17], [frame[23], frame[25], frame[27]]))
        };
        // The priority bits, and the low bytes of the times of priorities 2, 3 and 4.
        assert_eq!(named(0, 0, 1 << 2), Some((0b00100, [0xFF, 0, 0])));
        assert_eq!(named(1, 1 << 20, 1 << 2), Some((0b01100, [0xFF, 0xFF, 0])));
        assert_eq!(named(2, 1 << 20, 0), Some((0b01100, [0, 0xFF, 0])));
        assert_eq!(named(3, 0, 0), Some((0b01000, [0, 0, 0])));
        assert_eq!(named(4, 0, 0), None);
    }

    #[test]
    fn a_frame_that_is_not_sent_stays_due() {
        let mut throttle = throttle(Backpressure::default());
        let stop = throttle.pause(0, 1 << 20, 0).expect("a full queue");
        throttle.not_sent(&stop);
        assert_eq!(throttle.renew_at_ns(), Some(RETRY_NS));
        let again = throttle.pause(RETRY_NS, 1 << 20, 0);
        assert_eq!(again, Some(stop));
        assert_eq!(throttle.pause(RETRY_NS + 1, 1 << 20, 0), None);
        // So does the end of a pause, which nothing renews.
        let resume = throttle.pause(60_000, 0, 0).expect("an empty queue");
        throttle.not_sent(&resume);
        let again = throttle.pause(110_000, 0, 1 << 5).expect("still due");
        assert_eq!(
            (again[NAMED], [again[25], again[29]]),
            (0b10_1000, [0, 0xFF])
        );
        throttle.not_sent(&again);
        assert_eq!(throttle.pause(160_000, 0, 1 << 5), Some(again));
        assert_eq!(throttle.pause(160_001, 0, 1 << 5), None);
        assert_eq!(throttle.pauses(), 2);
    }

    #[test]
    fn a_pfc_frame_names_one_priority() {
        let mut throttle = throttle(Backpressure::default());
        let frame = throttle.pause(0, 1 << 20, 0).expect("a full queue");
        let head = [
            0x01, 0x80, 0xC2, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x88, 0x08, 1, 1, 0, 8,
        ];
        assert_eq!(frame[..18], head);
        assert_eq!(
            frame[18..34],
            [0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0]
        );
    }

    #[test]
    fn marks_need_a_queue() {
        let throttle = throttle(Backpressure::Ecn { mark_bytes: 1000 });
        assert!(!throttle.marks(1000) && throttle.marks(1001));
    }
}
