//! Checks the sums in the reports of a receiver against what was sent.

use farwrite_wire::control::{PeerFeedback, StaleCounts};

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

    fn minus(self, less: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(less.packets),
            bytes: self.bytes.saturating_sub(less.bytes),
        }
    }
}

/// What has left to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SentTotals {
    /// All packets.
    pub(super) sent: Amount,
    /// Bytes of these up to the newest packet reported.
    pub(super) reported_bytes: u64,
    /// These bytes at the report before.
    pub(super) reported_before_bytes: u64,
    /// Packets of which an older copy had left before.
    pub(super) repeated_packets: u64,
}

impl SentTotals {
    fn in_flight_bytes(&self) -> u64 {
        self.sent.bytes.saturating_sub(self.reported_bytes)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountEffect {
    /// The report counts no more than may have arrived.
    Now,
    /// The report counts more than may have arrived since the last one. This may be true: networks
    /// copy packets, an attacker can repeat them, and packets from before this end opened its state
    /// may be among them. What is more has no effect.
    Excess,
    /// A newer report arrived before it.
    Overtaken,
    /// A count decreases.
    Refused,
}

/// What the receiver has counted since this end opened its state.
///
/// A report counts what it adds to the report before. Of this, no more counts than has left and is
/// not counted yet. If a report adds more, all up to the newest packet reported counts as arrived,
/// and later reports go on from there. So copies never make a later report impossible. Packets without
/// new data that this end has not sent again are copies, or parity that comes when its message is over
/// (P3.11). They count only up to the newest packet.
///
/// The two ends may open their state at different times, because an end removes it with its last
/// queue pair. A receiver that opens it again restarts its counts, and the epoch
/// shows this. A receiver that has counted since before this end opened its state begins with more
/// than was sent.
#[derive(Debug, Default)]
pub(super) struct Received {
    latest: Option<PeerFeedback>,
    pub(super) delivered: Amount,
    /// Bytes that wait for later reports, because they are of copies, or of packets that may have
    /// left after the newest packet reported.
    waiting_bytes: u64,
    /// Packets that may have been sent by this end, and those of them with a congestion mark: those
    /// with new data, and as many without as this end has sent again.
    pub(super) own_packets: u64,
    pub(super) own_marked_packets: u64,
    /// Packets without new data among the own ones.
    own_repeats: u64,
    /// All packets without new data.
    pub(super) stale_packets: u64,
    pub(super) ect_packets: u64,
    pub(super) dropped_packets: u64,
}

impl Received {
    /// Returns whether a report adds packets to the one before, and none of them brought new data. Then
    /// the packet that it names brought none.
    pub(super) fn adds_only_stale(&self, report: &PeerFeedback) -> bool {
        let latest = self.latest.filter(|latest| latest.epoch == report.epoch);
        let gained = latest.and_then(|latest| since(report, &latest));
        gained.is_some_and(|gained| {
            gained.stale.packets > 0 && gained.stale.packets == gained.received_packets
        })
    }

    /// `left` includes the packet that the report names.
    pub(super) fn take(&mut self, report: &PeerFeedback, left: &SentTotals) -> CountEffect {
        let known = self.latest.filter(|latest| latest.epoch >= report.epoch);
        let gained = match known {
            Some(latest) if is_older(report, &latest) => return CountEffect::Overtaken,
            Some(latest) => since(report, &latest),
            None => Some(*report),
        };
        let Some(mut gained) = gained else {
            return CountEffect::Refused;
        };
        self.latest = Some(*report);
        let counted = Amount {
            packets: gained.received_packets,
            bytes: gained.received_bytes,
        };
        let most = left.sent.minus(self.delivered);
        let is_excess = !counted.is_within(most);
        let arrived_bytes = match is_excess {
            true => {
                self.waiting_bytes = self.waiting_bytes.min(left.in_flight_bytes());
                left.reported_bytes.saturating_sub(self.delivered.bytes)
            }
            false => self.place(&gained, left).min(most.bytes),
        };
        let arrived = Amount {
            packets: counted.packets.min(most.packets),
            bytes: arrived_bytes,
        };
        if is_excess && known.is_none() {
            // It is not known which of the marks and drops belong to packets to this peer.
            gained.marked_packets = 0;
            gained.dropped_packets = 0;
            gained.stale.marked_packets = 0;
        }
        self.delivered = self.delivered.plus(arrived);
        self.count(&gained, left);
        match is_excess {
            false => CountEffect::Now,
            true => CountEffect::Excess,
        }
    }

    /// Returns how many of the bytes that a report adds count.
    ///
    /// Copies must not count in place of packets in flight, and late parity must not count before the
    /// packets that left before it. Otherwise, what leaves the flight later would seem lost. So both
    /// count only in place of bytes that are missing up to the newest packet, and the rest waits. A
    /// report does not say how many of its bytes are theirs, so nothing that it adds beside them
    /// counts beyond the newest packet either.
    fn place(&mut self, gained: &PeerFeedback, left: &SentTotals) -> u64 {
        let unexplained = gained.stale.packets - self.repeats_in(gained, left);
        let unexplained_bytes = part_of(
            gained.received_bytes,
            unexplained.min(gained.received_packets),
            gained.received_packets,
        );
        let most_bytes = left.reported_bytes.saturating_sub(self.delivered.bytes);
        let own_bytes = gained.received_bytes - unexplained_bytes;
        let own_bytes = match unexplained {
            0 => own_bytes,
            _ => own_bytes.min(most_bytes),
        };
        let passed_bytes = left
            .reported_bytes
            .saturating_sub(left.reported_before_bytes);
        let missing_bytes = passed_bytes.min(most_bytes).saturating_sub(own_bytes);
        let more_bytes = gained.received_bytes - own_bytes;
        let waiting_bytes = self.waiting_bytes.saturating_add(more_bytes);
        let placed_bytes = waiting_bytes.min(missing_bytes);
        self.waiting_bytes = (waiting_bytes - placed_bytes).min(left.in_flight_bytes());
        own_bytes + placed_bytes
    }

    /// Returns how many of the packets without new data may be those that this end has sent again.
    fn repeats_in(&self, gained: &PeerFeedback, left: &SentTotals) -> u64 {
        let most_packets = left.repeated_packets - self.own_repeats;
        gained.stale.packets.min(most_packets)
    }

    /// Adds what a report adds to the one before.
    fn count(&mut self, gained: &PeerFeedback, left: &SentTotals) {
        let stale = gained.stale;
        let most_packets = left.sent.packets - self.own_packets;
        let repeats = self.repeats_in(gained, left);
        let fresh = gained.received_packets.saturating_sub(stale.packets);
        let marked_fresh = gained.marked_packets.saturating_sub(stale.marked_packets);
        let own_packets = fresh.saturating_add(repeats).min(most_packets);
        let marked_packets = marked_fresh.saturating_add(stale.marked_packets.min(repeats));
        self.own_repeats += repeats;
        self.own_packets += own_packets;
        self.own_marked_packets += marked_packets.min(own_packets);
        self.stale_packets = self.stale_packets.saturating_add(stale.packets);
        self.ect_packets = self.ect_packets.saturating_add(gained.ect_packets);
        self.dropped_packets = self.dropped_packets.saturating_add(gained.dropped_packets);
    }
}

/// Returns the bytes of `packets` of `all_packets` packets, which have `bytes` together.
fn part_of(bytes: u64, packets: u64, all_packets: u64) -> u64 {
    let part = u128::from(bytes) * u128::from(packets) / u128::from(all_packets.max(1));
    u64::try_from(part).unwrap_or(bytes)
}

/// Returns whether `report` left before `latest`.
fn is_older(report: &PeerFeedback, latest: &PeerFeedback) -> bool {
    report.epoch < latest.epoch || report.received_packets < latest.received_packets
}

/// Returns what `report` counts in addition to `latest`. Returns `None` if a count decreases.
fn since(report: &PeerFeedback, latest: &PeerFeedback) -> Option<PeerFeedback> {
    Some(PeerFeedback {
        received_packets: report
            .received_packets
            .checked_sub(latest.received_packets)?,
        received_bytes: report.received_bytes.checked_sub(latest.received_bytes)?,
        ect_packets: report.ect_packets.checked_sub(latest.ect_packets)?,
        marked_packets: report.marked_packets.checked_sub(latest.marked_packets)?,
        dropped_packets: report.dropped_packets.checked_sub(latest.dropped_packets)?,
        stale: StaleCounts {
            packets: report.stale.packets.checked_sub(latest.stale.packets)?,
            marked_packets: report
                .stale
                .marked_packets
                .checked_sub(latest.stale.marked_packets)?,
        },
        ..*report
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::CountEffect::{Excess, Now, Overtaken, Refused};
    use super::*;

    const SENT: Amount = amount(100);

    /// Packets of 1000 bytes.
    const fn amount(packets: u64) -> Amount {
        let bytes = packets * 1_000;
        Amount { packets, bytes }
    }

    fn stale(packets: u64, marked_packets: u64) -> StaleCounts {
        StaleCounts {
            packets,
            marked_packets,
        }
    }

    fn report(epoch: u64, packets: u64) -> PeerFeedback {
        PeerFeedback {
            epoch,
            received_packets: packets,
            received_bytes: packets * 1_000,
            ect_packets: packets,
            marked_packets: packets / 2,
            dropped_packets: packets / 10,
            ..PeerFeedback::default()
        }
    }

    /// Takes a report whose newest packet left with byte `reported_bytes` of the bytes `sent`, as if
    /// no report before had named a packet.
    fn take(
        received: &mut Received,
        report: &PeerFeedback,
        reported_bytes: u64,
        sent: Amount,
    ) -> CountEffect {
        let left = SentTotals {
            sent,
            reported_bytes,
            reported_before_bytes: 0,
            repeated_packets: 0,
        };
        received.take(report, &left)
    }

    #[test]
    fn counts_follow_the_newest_report() {
        let mut received = Received::default();
        assert_eq!(take(&mut received, &report(1, 10), 10_000, SENT), Now);
        assert_eq!(take(&mut received, &report(1, 30), 30_000, SENT), Now);
        assert_eq!(take(&mut received, &report(1, 20), 20_000, SENT), Overtaken);
        assert_eq!(received.delivered, amount(30));
        let marked_and_dropped = (received.own_marked_packets, received.dropped_packets);
        assert_eq!(marked_and_dropped, (15, 3));
    }

    #[test]
    fn counts_that_decrease_are_refused() {
        let mut received = Received::default();
        let first = PeerFeedback {
            stale: stale(9, 2),
            ..report(1, 30)
        };
        take(&mut received, &first, 30_000, SENT);
        let next = PeerFeedback {
            stale: stale(9, 2),
            ..report(1, 31)
        };
        let less = [
            PeerFeedback {
                received_bytes: 29_999,
                ..next
            },
            PeerFeedback {
                ect_packets: 29,
                ..next
            },
            PeerFeedback {
                marked_packets: 14,
                ..next
            },
            PeerFeedback {
                dropped_packets: 2,
                ..next
            },
            PeerFeedback {
                stale: stale(8, 2),
                ..next
            },
            PeerFeedback {
                stale: stale(9, 1),
                ..next
            },
        ];
        for bad in less {
            let effect = take(&mut received, &bad, 31_000, SENT);
            assert_eq!(effect, Refused, "{bad:?}");
        }
        assert_eq!(received.delivered.packets, 30);
        assert_eq!(take(&mut received, &next, 31_000, SENT), Now);
    }

    #[test]
    fn more_than_was_sent_counts_up_to_the_newest_packet_and_later_reports_go_on_from_there() {
        let mut received = Received::default();
        assert_eq!(take(&mut received, &report(1, 50), 50_000, SENT), Now);
        // A thousand copies come, and 10 packets. 40 are in flight.
        let flooded = take(&mut received, &report(1, 1_060), 60_000, SENT);
        assert_eq!(flooded, Excess);
        assert_eq!(received.delivered.bytes, 60_000);
        let later = take(&mut received, &report(1, 1_100), 110_000, amount(200));
        assert_eq!(later, Now);
        assert_eq!(received.delivered.bytes, 100_000);
    }

    #[test]
    fn a_receiver_that_opens_its_state_again_goes_on() {
        let mut received = Received::default();
        take(&mut received, &report(1, 30), 30_000, SENT);
        assert_eq!(take(&mut received, &report(2, 5), 40_000, SENT), Now);
        assert_eq!(received.delivered, amount(35));
        assert_eq!(take(&mut received, &report(1, 31), 31_000, SENT), Overtaken);
        assert_eq!(take(&mut received, &report(2, 6), 41_000, SENT), Now);
        assert_eq!(received.delivered.packets, 36);
    }

    #[test]
    fn a_receiver_that_opened_its_state_earlier_is_taken_from_its_first_report_on() {
        let mut received = Received::default();
        let first = take(&mut received, &report(1, 5_000), 90_000, SENT);
        assert_eq!(first, Excess);
        assert_eq!(
            received.delivered,
            Amount {
                packets: 100,
                bytes: 90_000
            }
        );
        let marked_and_dropped = (received.own_marked_packets, received.dropped_packets);
        assert_eq!(marked_and_dropped, (0, 0));
        let later = take(&mut received, &report(1, 5_050), 150_000, amount(200));
        assert_eq!(later, Now);
        assert_eq!(
            received.delivered,
            Amount {
                packets: 150,
                bytes: 140_000
            }
        );
    }

    /// A report of packets of different sizes.
    fn report_of(packets: u64, bytes: u64) -> PeerFeedback {
        PeerFeedback {
            epoch: 1,
            received_packets: packets,
            received_bytes: bytes,
            ..PeerFeedback::default()
        }
    }

    #[test]
    fn a_packet_that_left_before_this_end_opened_its_state_may_come_later() {
        let sent = Amount {
            packets: 2,
            bytes: 128,
        };
        let mut received = Received::default();
        assert_eq!(take(&mut received, &report_of(4, 3_136), 64, sent), Excess);
        // One of 64 bytes, and a late one of 1088 bytes.
        assert_eq!(take(&mut received, &report_of(6, 4_288), 128, sent), Excess);
        assert_eq!(received.delivered, sent);
    }

    /// The share of copies among the packets is not their share of the bytes.
    #[test]
    fn copies_of_large_packets_do_not_count_for_packets_in_flight() {
        let sent = Amount {
            packets: 109,
            bytes: 100_000,
        };
        let report = |packets, bytes| PeerFeedback {
            stale: stale(20, 0),
            ..report_of(packets, bytes)
        };
        let mut received = Received::default();
        // Ten packets of 100 bytes, and 20 copies of 4000 bytes.
        assert_eq!(take(&mut received, &report(30, 81_000), 1_000, sent), Now);
        assert_eq!(received.delivered.bytes, 1_000);
        assert_eq!(take(&mut received, &report(80, 131_000), 51_000, sent), Now);
        assert_eq!(received.delivered.bytes, 51_000);
    }

    /// The marks on copies are not those of the path.
    #[test]
    fn marks_of_packets_without_new_data_count_for_those_that_were_sent_again() {
        let mut received = Received::default();
        let left = SentTotals {
            sent: SENT,
            reported_bytes: 30_000,
            reported_before_bytes: 0,
            repeated_packets: 5,
        };
        let flooded = PeerFeedback {
            marked_packets: 502,
            ect_packets: 530,
            stale: stale(500, 500),
            ..report(1, 530)
        };
        assert_eq!(received.take(&flooded, &left), Excess);
        let counted = (received.own_packets, received.own_marked_packets);
        assert_eq!(counted, (35, 0), "30 with new data, and 5 that left again");
        let next = PeerFeedback {
            received_packets: 1_050,
            marked_packets: 1_004,
            ect_packets: 1_050,
            stale: stale(1_000, 1_000),
            ..flooded
        };
        assert_eq!(received.take(&next, &left), Excess);
        let counted = (received.own_packets, received.own_marked_packets);
        assert_eq!(counted, (55, 2), "20 more with new data");
    }

    /// Packets that leave, arrive or are lost, and copies that an attacker makes, up to a report.
    #[derive(Clone, Copy, Debug)]
    struct DropStep {
        sent: u64,
        lost: u64,
        copies: u64,
    }

    fn steps() -> impl Strategy<Value = Vec<DropStep>> {
        let copies = prop_oneof![Just(0), Just(0), 1..50_u64, 1_000..100_000_u64];
        let step = (0..50_u64, 0..4_u64, copies);
        let step = step.prop_map(|(sent, lost, copies)| DropStep {
            sent,
            lost: lost.min(sent),
            copies,
        });
        prop::collection::vec(step, 1..60)
    }

    proptest! {
        #[test]
        fn no_peer_makes_counts_impossible(
            reports in prop::collection::vec((0..4u64, any::<[u64; 7]>(), any::<u64>()), 1..40),
        ) {
            let mut received = Received::default();
            let mut before = Amount::default();
            for (epoch, [packets, bytes, ect, marked, dropped, old, both], newest_bytes) in reports {
                let report = PeerFeedback {
                    epoch,
                    received_packets: packets,
                    received_bytes: bytes,
                    ect_packets: ect,
                    marked_packets: marked,
                    dropped_packets: dropped,
                    stale: stale(old, both),
                    ..PeerFeedback::default()
                };
                take(&mut received, &report, newest_bytes % (SENT.bytes + 1), SENT);
                let now = received.delivered;
                prop_assert!(now.is_within(SENT));
                prop_assert!(now.packets >= before.packets && now.bytes >= before.bytes);
                prop_assert!(received.own_marked_packets <= received.own_packets);
                prop_assert!(received.own_packets <= SENT.packets);
                before = now;
            }
        }

        /// No number of copies makes a true report impossible, or counts more than was sent. A
        /// report without copies adds what arrived, whatever came before it.
        #[test]
        fn copies_never_stop_the_counts(steps in steps()) {
            let mut received = Received::default();
            let (mut sent, mut arrived, mut copies) = (0, 0, 0);
            for step in steps {
                let before = received.delivered;
                sent += step.sent;
                let fresh = step.sent - step.lost;
                arrived += fresh;
                copies += step.copies;
                let report = PeerFeedback {
                    epoch: 1,
                    received_packets: arrived + copies,
                    received_bytes: amount(arrived + copies).bytes,
                    stale: stale(copies, 0),
                    ..PeerFeedback::default()
                };
                let taken = take(&mut received, &report, amount(sent).bytes, amount(sent));
                prop_assert_ne!(taken, Refused);
                let now = received.delivered;
                prop_assert!(now.is_within(amount(sent)));
                if step.copies == 0 {
                    prop_assert_eq!(taken, Now);
                    prop_assert_eq!(now.bytes, before.bytes + amount(fresh).bytes);
                }
                prop_assert_eq!(received.stale_packets, copies);
                prop_assert!(now.bytes >= before.bytes + amount(fresh).bytes);
            }
        }
    }
}
