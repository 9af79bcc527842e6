//! Reports about a path: implausible reports, and reports of ECN marks.

use std::cell::RefCell;
use std::rc::Rc;

use farwrite::fabric::sim::{Datagram, Verdict};
use farwrite::{EcnField, Error, PeerStats, QpOptions, RateControl, SendLimit};
use farwrite_link::LinkConfig;
use farwrite_rng::SplitMix;
use farwrite_wire::control::{
    self, Builder, Control, HEADER_BYTES, Header, MESSAGE_OVERHEAD_BYTES, MessageId, PeerFeedback,
};

use crate::hostile::{SEND_PAYLOAD, seal};
use crate::parcel::Order;
use crate::traffic::Seen;
use crate::world::{MS, SECOND, Way, World, long_haul, options, tag};

const BYTES: usize = 2 << 20;

fn following() -> QpOptions {
    QpOptions {
        rate_control: RateControl::default(),
        ..options()
    }
}

fn is_report(seen: &Seen<'_>) -> bool {
    seen.way == Way::Back && seen.says(|said| matches!(said, Control::PeerFeedback(_)))
}

/// Sends a message of [`BYTES`] as [`ship_with`] does, for at most 4 s. Returns the path statistics
/// of both ends.
fn send_with(change: impl Fn(&Seen<'_>) -> Option<Datagram> + 'static) -> [PeerStats; 2] {
    ship_with(BYTES, 4 * SECOND, change).0
}

/// Sends a message while `change` replaces some datagrams with others. The replacements arrive half
/// a round trip early. Returns the path statistics of both ends, and whether the message has ended.
fn ship_with(
    bytes: usize,
    limit_ns: u64,
    change: impl Fn(&Seen<'_>) -> Option<Datagram> + 'static,
) -> ([PeerStats; 2], bool) {
    let mut world = World::new(3, long_haul(), &following());
    let changed = Rc::new(RefCell::new(Vec::new()));
    let out = Rc::clone(&changed);
    world.traffic.filter(move |seen| match change(seen) {
        None => Verdict::Pass,
        Some(datagram) => {
            out.borrow_mut().push(datagram);
            Verdict::Drop
        }
    });
    let parcel = world.ship(Order::new(SplitMix::new(3).bytes(bytes), tag("sr-nack")));
    while parcel.out.send.outcome().is_none() && world.now_ns() < limit_ns {
        world.run_for(MS / 2);
        let due = std::mem::take(&mut *changed.borrow_mut());
        due.into_iter()
            .for_each(|datagram| world.network.inject(datagram));
    }
    world.run_for(SECOND);
    // Only a false report can prevent messages from being sent.
    let has_ended = parcel.out.send.outcome().is_some();
    if has_ended {
        world.check(&parcel);
    }
    let stats = [&world.a, &world.b].map(|end| {
        let stats = end.endpoint.peer_stats(end.qp);
        stats.expect("a connected queue pair")
    });
    (stats, has_ended)
}

/// Seals other control packets in place of those with reports. `change` makes the new packet from
/// the key, the header and the messages.
fn resealed(
    change: impl Fn(&[u8; 32], &Header, &[Control]) -> Vec<u8> + 'static,
) -> impl Fn(&Seen<'_>) -> Option<Datagram> + 'static {
    let world = World::new(3, long_haul(), &following());
    let info = world.a.endpoint.qp_info(world.a.qp).expect("its own");
    let key = info.control_key;
    move |seen| {
        is_report(seen).then(|| {
            let mut forged = seen.datagram.clone();
            let pad = usize::from(forged.payload[1] >> 4 & 3);
            let body = SEND_PAYLOAD..forged.payload.len() - 4 - pad;
            let (header, _) = control::open(&key, &forged.payload[body.clone()]).expect("sealed");
            let said: Vec<_> = seen.control.iter().flatten().cloned().collect();
            let sealed = change(&key, &header, &said);
            forged.payload.splice(body, sealed);
            seal(&mut forged);
            forged
        })
    }
}

/// Returns the path statistics of the sender when the receiver seals other control packets in place
/// of those with reports.
fn sealing(change: impl Fn(&[u8; 32], &Header, &[Control]) -> Vec<u8> + 'static) -> PeerStats {
    let [sender, _] = send_with(resealed(change));
    sender
}

/// What a receiver does to its reports.
type Lie = fn(&mut PeerFeedback);

/// Returns the path statistics of the sender when the receiver falsifies its reports.
fn lying(lie: Lie) -> PeerStats {
    sealing(move |key, header, said| {
        let mut builder = Builder::new(1024);
        for said in said {
            let mut said = said.clone();
            if let Control::PeerFeedback(report) = &mut said {
                lie(report);
            }
            assert!(builder.push(&said), "it is no longer than before");
        }
        builder.seal(header, key)
    })
}

/// Returns the path statistics of the sender when the receiver writes other counts into its
/// reports. A builder of control packets would refuse to write counts that contradict each other.
fn contradicting(counts: &'static [(usize, u64)]) -> PeerStats {
    sealing(move |key, header, said| {
        let mut builder = Builder::new(1024);
        let is_feedback = |said: &&Control| matches!(said, Control::PeerFeedback(_));
        let reports = said.iter().filter(is_feedback);
        // The report is the first message, so that its position is known.
        let others = said.iter().filter(|said| !is_feedback(said));
        for said in reports.chain(others) {
            assert!(builder.push(said), "it is no longer than before");
        }
        let mut packet = builder.seal(header, key);
        for &(at, count) in counts {
            let at = HEADER_BYTES + MESSAGE_OVERHEAD_BYTES + at;
            packet[at..at + 8].copy_from_slice(&count.to_be_bytes());
        }
        let tag = HEADER_BYTES - 16..HEADER_BYTES;
        packet[tag.clone()].fill(0);
        let hash = blake3::keyed_hash(key, &packet);
        packet[tag].copy_from_slice(&hash.as_bytes()[..16]);
        packet
    })
}

#[test]
fn reports_that_cannot_be_true_are_refused_and_counted() {
    let honest = lying(|_| ());
    assert_eq!(honest.refused_feedback, 0, "{honest:?}");
    assert!(honest.delivered_bytes > BYTES as u64, "{honest:?}");
    let lies: [(&str, Lie); 5] = [
        ("a message that was not sent", |report| {
            report.message = MessageId::new(report.message.data() + 1);
        }),
        ("a packet that was not sent", |report| {
            report.packet = 1 << 20;
        }),
        ("no packet at all", |report| report.packet = u32::MAX),
        ("parity that was not sent", |report| {
            report.message = report.message.parity();
        }),
        ("counts that run backward", |report| {
            if report.received_packets > 100 {
                report.received_bytes = 1;
            }
        }),
    ];
    for (name, lie) in lies {
        let stats = lying(lie);
        assert!(stats.refused_feedback > 0, "{name}: {stats:?}");
        assert!(
            stats.delivered_bytes <= stats.sent_bytes,
            "{name}: {stats:?}"
        );
    }
}

/// A receiver may claim more than was sent, because networks copy packets and attackers repeat them. But
/// then the user of the sender sees it, and no more than was sent counts.
#[test]
fn reports_of_more_than_was_sent_are_counted_and_have_no_effect_beyond_it() {
    let honest = lying(|_| ());
    assert_eq!(honest.excess_feedback, 0, "{honest:?}");
    let lies: [(&str, Lie); 3] = [
        ("bytes", |report| report.received_bytes *= 3),
        ("packets", |report| report.received_packets *= 3),
        ("a thousand times the bytes", |report| {
            report.received_bytes *= 1_000;
        }),
    ];
    for (name, lie) in lies {
        let stats = lying(lie);
        assert!(stats.excess_feedback > 0, "{name}: {stats:?}");
        assert_eq!(stats.refused_feedback, 0, "{name}: {stats:?}");
        assert!(
            stats.delivered_bytes <= stats.sent_bytes,
            "{name}: {stats:?}"
        );
    }
}

#[test]
fn a_network_that_copies_packets_is_seen_and_not_refused() {
    let forth = LinkConfig {
        duplicate: 1.0,
        ..long_haul()
    };
    let mut world = World::new(3, forth, &following());
    let parcel = world.ship(Order::new(SplitMix::new(3).bytes(BYTES), tag("sr-nack")));
    let done = world.run_until(4 * SECOND, |_| parcel.out.send.outcome().is_some());
    assert!(done, "the message is open");
    world.check(&parcel);
    world.run_for(SECOND);
    let stats = world.a.endpoint.peer_stats(world.a.qp);
    let stats = stats.expect("a connected queue pair");
    assert!(stats.excess_feedback > 0, "{stats:?}");
    assert_eq!(stats.refused_feedback, 0, "{stats:?}");
    assert_eq!(stats.delivered_bytes, stats.sent_bytes, "{stats:?}");
}

/// Offsets in a peer feedback (P4.10): packets that arrived, those of them with ECT or CE, and those
/// with CE.
const RECEIVED: usize = 28;
const ECT: usize = 44;
const MARKED: usize = 52;

#[test]
fn reports_of_more_marks_than_packets_are_refused_and_counted_as_feedback() {
    let same = contradicting(&[]);
    assert_eq!(same.refused_feedback, 0, "{same:?}");
    assert!(same.delivered_bytes > BYTES as u64, "{same:?}");
    let lies: [&[_]; 3] = [
        &[(MARKED, 1 << 40)],
        &[(ECT, 1 << 40)],
        &[(RECEIVED, 5), (ECT, 5), (MARKED, 6)],
    ];
    for counts in lies {
        let stats = contradicting(counts);
        assert!(stats.refused_feedback > 3, "{counts:?}: {stats:?}");
        assert_eq!(stats.delivered_bytes, 0, "{counts:?}: {stats:?}");
        assert_eq!(stats.marked_packets, 0, "{counts:?}: {stats:?}");
    }
}

/// Sends a message whose packets arrive with another ECN field.
fn with_tos(tos: u8) -> [PeerStats; 2] {
    send_with(move |seen| {
        (seen.way == Way::Forth && seen.is_data()).then(|| Datagram {
            tos,
            ..seen.datagram.clone()
        })
    })
}

#[test]
fn marks_are_counted_and_a_cleared_field_is_seen_at_both_ends() {
    let [sender, receiver] = with_tos(3);
    assert!(sender.marked_packets > 500, "{sender:?}");
    let fields = (sender.ecn_to_peer, receiver.ecn_from_peer);
    assert_eq!(fields, (EcnField::Kept, EcnField::Kept));
    let [sender, receiver] = with_tos(0);
    assert_eq!(sender.marked_packets, 0);
    let fields = (sender.ecn_to_peer, receiver.ecn_from_peer);
    assert_eq!(fields, (EcnField::Cleared, EcnField::Cleared));
    assert_eq!(receiver.ecn_to_peer, EcnField::Unknown);
}

/// The reports are taken out of the packets. To drop these packets would lose the ACKs in them too.
#[test]
fn a_sender_that_gets_no_reports_ends_all_the_same() {
    let without_reports = resealed(|key, header, said| {
        let mut builder = Builder::new(1024);
        let is_report = |said: &&Control| matches!(said, Control::PeerFeedback(_));
        for said in said.iter().filter(|said| !is_report(said)) {
            assert!(builder.push(said), "it is no longer than before");
        }
        builder.seal(header, key)
    });
    let ([sender, _], has_ended) = ship_with(100_000, 60 * SECOND, without_reports);
    assert!(has_ended, "the message is open");
    assert_eq!(
        (sender.delivered_bytes, sender.limit),
        (0, SendLimit::Nothing)
    );
}

#[test]
fn queue_pairs_to_one_peer_want_one_rate_control() {
    let mut world = World::new(1, long_haul(), &options());
    let mut join = |rate_control| {
        let options = QpOptions {
            rate_control,
            ..options()
        };
        let [qa, qb] = [&mut world.a, &mut world.b].map(|end| {
            end.endpoint
                .create_qp(options.clone())
                .expect("good options")
        });
        let info = world.b.endpoint.qp_info(qb).expect("its own");
        (qa, world.a.endpoint.connect_qp(qa, &info))
    };
    let (other, refused) = join(RateControl::default());
    let error = refused.expect_err("the path has a fixed rate");
    assert!(matches!(error, Error::RateControl { .. }), "{error}");
    let said = error.to_string();
    assert!(
        said.contains("fixed, 9000000000 bit/s") && said.contains("adaptive"),
        "{said}"
    );
    let (_, joined) = join(options().rate_control);
    joined.expect("the same rate control");
    // A queue pair whose connection was refused can be destroyed.
    world.a.endpoint.destroy_qp(other).expect("it exists");
}

/// One chunk of data arrives before its eight chunks of parity, which are late then. Their bytes must
/// leave the flight without a newer message.
#[test]
fn late_parity_is_no_longer_in_flight() {
    let mut world = World::new(7, long_haul(), &following());
    let parcel = world.ship(Order::new(SplitMix::new(7).bytes(700), tag("ec-mds:32,8")));
    let done = world.run_until(SECOND, |_| parcel.out.send.outcome().is_some());
    assert!(done, "the message is open");
    world.run_for(40 * MS);
    let [sender, receiver] = [&world.a, &world.b].map(|end| {
        let stats = end.endpoint.qp_stats(end.qp).expect("it exists");
        (end.endpoint.peer_stats(end.qp).expect("connected"), stats)
    });
    assert!(receiver.1.late_packets > 0, "{receiver:?}");
    assert_eq!(sender.0.in_flight_bytes, 0, "{sender:?}");
    assert_eq!(sender.0.refused_feedback, 0, "{sender:?}");
}
