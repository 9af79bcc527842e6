//! Checks the sums in the reports of a receiver against what was sent.

use farwrite_wire::control::PathFeedback;

/// Maximum number of times that networks may deliver a packet, on average: two places on the way
/// that each deliver every packet twice. A report with more is not valid.
const MOST_COPIES: u64 = 4;

/// A number of packets, and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Amount {
    fn plus(self, more: Self) -> Self {
        Self {
            packets: self.packets.saturating_add(more.packets),
            bytes: self.bytes.saturating_add(more.bytes),
        }
    }

    fn is_within(self, most: Self) -> bool {
        self.packets <= most.packets && self.bytes <= most.bytes
    }

    fn is_possible_of(self, sent: Self) -> bool {
        self.packets <= sent.packets.saturating_mul(MOST_COPIES)
            && self.bytes <= sent.bytes.saturating_mul(MOST_COPIES)
    }
}

/// The result of handling a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The report counts no more than was sent.
    Now,
    /// The report counts more than was sent. This may be true: networks copy packets, and packets
    /// from before this end opened the path may be among them. What is more than was sent has no
    /// effect on the rate.
    Excess,
    /// A newer report arrived before it.
    Overtaken,
    /// The report cannot be true.
    Refused,
}

/// What the receiver has counted since this end opened the path.
///
/// The two ends may open a path at different times, because an end removes the path with its last
/// queue pair. A receiver that opens the path again restarts its counts, and the number of the path
/// shows this. A receiver that has counted since before this end opened the path begins with more
/// than was sent.
#[derive(Debug, Default)]
pub(super) struct Received {
    latest: Option<PathFeedback>,
    /// Whether the receiver has counted since before this end opened the path. Then packets from
    /// that time may still arrive late.
    counts_older: bool,
    delivered: Amount,
    ect_packets: u64,
    marked_packets: u64,
    dropped_packets: u64,
}

impl Received {
    pub(super) fn delivered(&self) -> Amount {
        self.delivered
    }

    pub(super) fn ect_packets(&self) -> u64 {
        self.ect_packets
    }

    pub(super) fn marked_packets(&self) -> u64 {
        self.marked_packets
    }

    pub(super) fn dropped_packets(&self) -> u64 {
        self.dropped_packets
    }

    /// Handles a report. The newest packet in it left with byte `newest_bytes` of the bytes `sent`.
    pub(super) fn take(&mut self, report: &PathFeedback, newest_bytes: u64, sent: Amount) -> Taken {
        let known = self.latest.filter(|latest| latest.path >= report.path);
        let gained = match known {
            Some(latest) if is_older(report, &latest) => return Taken::Overtaken,
            Some(latest) => since(report, &latest),
            None => {
                let counted = self.at_most_sent(report, newest_bytes, sent);
                // A first report that counts older packets, but fewer than were sent, is not recognised.
                // It looks like that of a peer which claims more than it received.
                self.counts_older = counted != *report;
                Some(counted)
            }
        };
        let Some(mut gained) = gained else {
            return Taken::Refused;
        };
        // A first report has no earlier one to subtract, so its own counts are compared.
        let claimed = match known {
            Some(_) => self.delivered_with(&gained),
            None => self.delivered_with(report),
        };
        let mut delivered = self.delivered_with(&gained);
        if self.counts_older && !delivered.is_possible_of(sent) {
            gained = self.at_most_sent(&gained, newest_bytes, sent);
            delivered = self.delivered_with(&gained);
        }
        if !delivered.is_possible_of(sent) {
            return Taken::Refused;
        }
        self.latest = Some(*report);
        self.delivered = delivered;
        self.ect_packets = self.ect_packets.saturating_add(gained.ect_packets);
        self.marked_packets = self.marked_packets.saturating_add(gained.marked_packets);
        self.dropped_packets = self.dropped_packets.saturating_add(gained.dropped_packets);
        match claimed.is_within(sent) {
            true => Taken::Now,
            false => Taken::Excess,
        }
    }

    fn delivered_with(&self, gained: &PathFeedback) -> Amount {
        self.delivered.plus(Amount {
            packets: gained.received_packets,
            bytes: gained.received_bytes,
        })
    }

    /// Returns what to count of a report from a receiver that may have counted before this end
    /// opened the path: all that the report counts, but no more than was sent and not counted
    /// before. A report that counts more also includes copies, or packets that left before this end
    /// opened the path. If these were counted, the sum with later reports could exceed the possible
    /// maximum.
    fn at_most_sent(&self, report: &PathFeedback, newest_bytes: u64, sent: Amount) -> PathFeedback {
        let counted = Amount {
            packets: report.received_packets,
            bytes: report.received_bytes,
        };
        let most = Amount {
            packets: sent.packets.saturating_sub(self.delivered.packets),
            bytes: sent.bytes.saturating_sub(self.delivered.bytes),
        };
        if counted.is_within(most) {
            return *report;
        }
        // It is not known which of the marks and drops belong to these packets.
        let packets = counted.packets.min(most.packets);
        PathFeedback {
            received_packets: packets,
            received_bytes: newest_bytes.saturating_sub(self.delivered.bytes),
            ect_packets: report.ect_packets.min(packets),
            marked_packets: 0,
            dropped_packets: 0,
            ..*report
        }
    }
}

/// Returns whether `report` left before `latest`.
fn is_older(report: &PathFeedback, latest: &PathFeedback) -> bool {
    report.path < latest.path || report.received_packets < latest.received_packets
}

/// Returns what `report` counts in addition to `latest`. Returns `None` if a count decreases.
fn since(report: &PathFeedback, latest: &PathFeedback) -> Option<PathFeedback> {
    Some(PathFeedback {
        received_packets: report
            .received_packets
            .checked_sub(latest.received_packets)?,
        received_bytes: report.received_bytes.checked_sub(latest.received_bytes)?,
        ect_packets: report.ect_packets.checked_sub(latest.ect_packets)?,
        marked_packets: report.marked_packets.checked_sub(latest.marked_packets)?,
        dropped_packets: report.dropped_packets.checked_sub(latest.dropped_packets)?,
        ..*report
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SENT: Amount = Amount {
        packets: 100,
        bytes: 100_000,
    };

    fn report(path: u64, packets: u64) -> PathFeedback {
        PathFeedback {
            path,
            received_packets: packets,
            received_bytes: packets * 1_000,
            ect_packets: packets,
            marked_packets: packets / 2,
            dropped_packets: packets / 10,
            ..PathFeedback::default()
        }
    }

    #[test]
    fn counts_follow_the_newest_report() {
        let mut received = Received::default();
        assert_eq!(received.take(&report(1, 10), 10_000, SENT), Taken::Now);
        assert_eq!(received.take(&report(1, 30), 30_000, SENT), Taken::Now);
        assert_eq!(
            received.take(&report(1, 20), 20_000, SENT),
            Taken::Overtaken
        );
        assert_eq!(
            received.delivered(),
            Amount {
                packets: 30,
                bytes: 30_000
            }
        );
        assert_eq!(
            (received.marked_packets(), received.dropped_packets()),
            (15, 3)
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut received = Received::default();
        received.take(&report(1, 30), 30_000, SENT);
        let more = PathFeedback {
            received_bytes: 400_001,
            ..report(1, 31)
        };
        let less = [
            PathFeedback {
                received_bytes: 29_999,
                ..report(1, 31)
            },
            PathFeedback {
                ect_packets: 29,
                ..report(1, 31)
            },
            PathFeedback {
                marked_packets: 14,
                ..report(1, 31)
            },
            PathFeedback {
                dropped_packets: 2,
                ..report(1, 31)
            },
        ];
        for bad in less.into_iter().chain([more, report(1, 401)]) {
            assert_eq!(received.take(&bad, 31_000, SENT), Taken::Refused, "{bad:?}");
        }
        assert_eq!(received.delivered().packets, 30);
    }

    #[test]
    fn more_than_was_sent_is_seen_until_it_is_sent() {
        let mut received = Received::default();
        assert_eq!(received.take(&report(1, 100), 100_000, SENT), Taken::Now);
        // The network delivers some packets again.
        let bytes_only = PathFeedback {
            received_packets: 100,
            received_bytes: 100_001,
            ..report(1, 100)
        };
        for more in [bytes_only, report(1, 101), report(1, 400)] {
            assert_eq!(received.take(&more, 100_000, SENT), Taken::Excess);
        }
        let sent = Amount {
            packets: 400,
            bytes: 400_000,
        };
        assert_eq!(received.take(&report(1, 400), 400_000, sent), Taken::Now);
    }

    #[test]
    fn a_receiver_that_opens_the_path_again_goes_on() {
        let mut received = Received::default();
        received.take(&report(1, 30), 30_000, SENT);
        assert_eq!(received.take(&report(2, 5), 40_000, SENT), Taken::Now);
        assert_eq!(
            received.delivered(),
            Amount {
                packets: 35,
                bytes: 35_000
            }
        );
        assert_eq!(
            received.take(&report(1, 31), 31_000, SENT),
            Taken::Overtaken
        );
        assert_eq!(received.take(&report(2, 6), 41_000, SENT), Taken::Now);
        assert_eq!(received.delivered().packets, 36);
    }

    #[test]
    fn a_receiver_that_opened_the_path_earlier_is_taken_from_its_first_report_on() {
        let mut received = Received::default();
        let first = received.take(&report(1, 5_000), 90_000, SENT);
        assert_eq!(first, Taken::Excess);
        assert_eq!(
            received.delivered(),
            Amount {
                packets: 100,
                bytes: 90_000
            }
        );
        assert_eq!(
            (received.marked_packets(), received.dropped_packets()),
            (0, 0)
        );
        let sent = Amount {
            packets: 200,
            bytes: 200_000,
        };
        assert_eq!(received.take(&report(1, 5_050), 150_000, sent), Taken::Now);
        assert_eq!(
            received.delivered(),
            Amount {
                packets: 150,
                bytes: 140_000
            }
        );
    }

    #[test]
    fn a_packet_that_left_before_this_end_opened_the_path_may_come_later() {
        let sent = Amount {
            packets: 2,
            bytes: 128,
        };
        let report = |packets, bytes| PathFeedback {
            path: 1,
            received_packets: packets,
            received_bytes: bytes,
            ..PathFeedback::default()
        };
        let mut received = Received::default();
        assert_eq!(received.take(&report(4, 3_136), 64, sent), Taken::Excess);
        // One of 64 bytes, and a late one of 1088 bytes.
        assert_eq!(received.take(&report(6, 4_288), 128, sent), Taken::Excess);
        let all = Amount {
            packets: 2,
            bytes: 128,
        };
        assert_eq!(received.delivered(), all);
    }

    #[test]
    fn a_receiver_that_counted_a_little_before_is_not_refused_later() {
        // Packets arrived before this end opened the path: many, or few long ones. Now the first
        // of three arrives, and then the others.
        for (packets, bytes, packet_bytes) in [(10, 1_000, 1_000), (1, 1_500, 84)] {
            let sent = Amount {
                packets: 3,
                bytes: 3 * packet_bytes,
            };
            let mut received = Received::default();
            for arrived in 1..=3 {
                let report = PathFeedback {
                    path: 1,
                    received_packets: packets + arrived,
                    received_bytes: bytes + arrived * packet_bytes,
                    ..PathFeedback::default()
                };
                let taken = received.take(&report, arrived * packet_bytes, sent);
                assert_ne!(taken, Taken::Refused, "{report:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_peer_makes_counts_impossible(
            reports in prop::collection::vec((0..4u64, any::<[u64; 5]>(), any::<u64>()), 1..40),
        ) {
            let mut received = Received::default();
            let mut before = Amount::default();
            for (path, [packets, bytes, ect, marked, dropped], newest_bytes) in reports {
                let report = PathFeedback {
                    path,
                    received_packets: packets,
                    received_bytes: bytes,
                    ect_packets: ect,
                    marked_packets: marked,
                    dropped_packets: dropped,
                    ..PathFeedback::default()
                };
                received.take(&report, newest_bytes % (SENT.bytes + 1), SENT);
                let now = received.delivered();
                prop_assert!(now.is_possible_of(SENT));
                prop_assert!(now.packets >= before.packets && now.bytes >= before.bytes);
                before = now;
            }
        }
    }
}
