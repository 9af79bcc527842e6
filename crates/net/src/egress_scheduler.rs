//! The scheduler of a port: which egress queue sends next.

use crate::PRIORITIES;

/// Bytes that a queue of weight 1 may send in one round (the quantum).
const QUANTUM_BYTES: u32 = 1024;

/// Strict and weighted priorities (IEEE 802.1Qaz). The highest strict queue that has a frame goes
/// first. If no strict queue has a frame, the weighted queues take turns by deficit round robin
/// (Shreedhar and Varghese, SIGCOMM 1995): each gets bytes in proportion to its weight.
#[derive(Clone, Debug)]
pub(crate) struct EgressScheduler {
    weights: [u16; PRIORITIES],
    /// Priorities with weight 0, one bit each.
    strict: u8,
    /// Bytes that each weighted queue may still send in its turn (its deficit counter).
    credit: [u32; PRIORITIES],
    current: usize,
    /// Whether the current queue has received its quantum for this turn.
    granted: bool,
}

impl EgressScheduler {
    /// Makes a scheduler from weights by priority, 0 for strict ones.
    pub(crate) fn new(weights: [u16; PRIORITIES]) -> Self {
        let strict = weights.iter().enumerate();
        let strict = strict.filter(|(_, weight)| **weight == 0);
        Self {
            weights,
            strict: strict.fold(0, |mask, (priority, _)| mask | 1 << priority),
            credit: [0; PRIORITIES],
            current: PRIORITIES - 1,
            granted: false,
        }
    }

    /// The queue that sends next, among those in the mask `ready`. `head_bytes` returns the length
    /// of the first frame of a queue.
    pub(crate) fn next(&mut self, ready: u8, head_bytes: impl Fn(usize) -> u32) -> Option<usize> {
        let strict = ready & self.strict;
        if strict != 0 {
            return Some(7 - strict.leading_zeros() as usize);
        }
        if ready == 0 {
            return None;
        }
        // The loop ends because each round gives every ready queue at least one quantum.
        loop {
            let queue = self.current;
            if ready & !self.strict & 1 << queue != 0 {
                if !self.granted {
                    self.granted = true;
                    let quantum = u32::from(self.weights[queue]) * QUANTUM_BYTES;
                    self.credit[queue] = self.credit[queue].saturating_add(quantum);
                }
                let bytes = head_bytes(queue);
                if let Some(left) = self.credit[queue].checked_sub(bytes) {
                    self.credit[queue] = left;
                    return Some(queue);
                }
            } else {
                // An empty queue keeps no credit.
                self.credit[queue] = 0;
            }
            self.current = (queue + PRIORITIES - 1) % PRIORITIES;
            self.granted = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_strict_queue_goes_first() {
        let mut scheduler = EgressScheduler::new([0; PRIORITIES]);
        let order = [0b1010_0001, 0b0010_0001, 0b0000_0001, 0];
        let order = order.map(|ready| scheduler.next(ready, |_| 1500));
        assert_eq!(order, [Some(7), Some(5), Some(0), None]);
    }

    #[test]
    fn weighted_queues_share_the_bytes_whatever_their_frames() {
        // Priority 7 is strict; 0, 1 and 2 share 1 : 2 : 5, with frames of unequal length.
        let mut scheduler = EgressScheduler::new([1, 2, 5, 0, 0, 0, 0, 0]);
        let lengths = [1500, 64, 9000];
        let mut sent = [0u64; 3];
        for _ in 0..100_000 {
            let queue = scheduler.next(0b111, |queue| lengths[queue]).unwrap();
            sent[queue] += u64::from(lengths[queue]);
        }
        assert_eq!(scheduler.next(0b1000_0111, |_| 1), Some(7));
        let per_weight = [sent[0], sent[1] / 2, sent[2] / 5];
        let (least, most) = (per_weight.iter().min(), per_weight.iter().max());
        let (least, most) = (*least.unwrap(), *most.unwrap());
        assert!(most - least < 20_000, "{per_weight:?}");
        assert!(least > 1_000_000, "{per_weight:?}");
    }

    #[test]
    fn a_queue_that_was_empty_has_saved_nothing() {
        let mut scheduler = EgressScheduler::new([1; PRIORITIES]);
        for _ in 0..1000 {
            assert_eq!(scheduler.next(0b01, |_| 1000), Some(0));
        }
        let both: Vec<_> = (0..100)
            .filter_map(|_| scheduler.next(0b11, |_| 1000))
            .collect();
        let late = both.iter().filter(|&&queue| queue == 1).count();
        assert!((45..=55).contains(&late), "{late} of 100");
    }
}
