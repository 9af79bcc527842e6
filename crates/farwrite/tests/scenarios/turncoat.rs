//! A peer that has the keys and sends arbitrary content: nothing panics, nothing outside the
//! buffers is written, and both ends can be destroyed.

use std::cell::RefCell;
use std::rc::Rc;

use farwrite::fabric::sim::{Datagram, Verdict};
use farwrite::{
    CriticalRanges, EqdsOptions, Outcome, QpConfig, QpOptions, RateControl, RecvOptions,
};
use farwrite_rng::SplitMix;
use farwrite_wire::control::{
    self, Builder, Control, CriticalChunks, MessageId, Offer, PeerFeedback, Place, ReadRefusal,
    ReadRequest, Terms, Withdrawal,
};

use crate::hostile::{IMMDT, SEND_PAYLOAD, seal};
use crate::parcel::Order;
use crate::seeds;
use crate::world::{MS, RTT, Way, World, long_haul, options, tag};

const SCHEMES: [&str; 12] = [
    "sr-rto",
    "sr-nack",
    "gbn",
    "best-effort",
    "best-effort+sr",
    "best-effort+ec-mds:8,4",
    "best-effort+first",
    "best-effort+exact",
    "ec-mds:8,4",
    "ec-mds:1,1",
    "ec-xor:5,5",
    "ec-mds:200,55",
];

fn twist(number: &mut u64, rng: &mut SplitMix) {
    *number = match rng.within(0..8) {
        0 => *number ^ 1 << 60,
        1 => number.wrapping_add(rng.within(0..600)),
        2 => number.wrapping_sub(rng.within(0..600)),
        3 => rng.next(),
        4 => rng.next() >> rng.within(0..64),
        _ => *number,
    };
}

fn twist_u32(number: &mut u32, rng: &mut SplitMix) {
    let mut wide = u64::from(*number);
    twist(&mut wide, rng);
    *number = u32::try_from(wide & 0xffff_ffff).expect("32 bits");
}

fn twist_place(place: &mut Place, rng: &mut SplitMix) {
    twist_u32(&mut place.rkey, rng);
    twist(&mut place.base, rng);
    twist(&mut place.length, rng);
}

fn twist_feedback(feedback: &mut PeerFeedback, rng: &mut SplitMix) {
    twist(&mut feedback.epoch, rng);
    let mut message = feedback.message.to_bits();
    twist(&mut message, rng);
    feedback.message = MessageId::from_bits(message);
    twist_u32(&mut feedback.packet, rng);
    twist(&mut feedback.hold_ns, rng);
    twist(&mut feedback.received_packets, rng);
    feedback.received_packets = feedback.received_packets.max(1);
    twist(&mut feedback.received_bytes, rng);
    // More marks than packets do not parse.
    twist(&mut feedback.ect_packets, rng);
    feedback.ect_packets = feedback.ect_packets.min(feedback.received_packets);
    twist(&mut feedback.marked_packets, rng);
    feedback.marked_packets = feedback.marked_packets.min(feedback.ect_packets);
    twist(&mut feedback.dropped_packets, rng);
    twist(&mut feedback.drain_bps, rng);
    // Without stale packets, the report is shorter.
    if feedback.stale.packets > 0 {
        let (received, marked) = (feedback.received_packets, feedback.marked_packets);
        let stale = &mut feedback.stale;
        twist(&mut stale.packets, rng);
        stale.packets = stale.packets.clamp(1, received);
        twist(&mut stale.marked_packets, rng);
        let least = marked.saturating_sub(received - stale.packets);
        stale.marked_packets = stale.marked_packets.clamp(least, marked.min(stale.packets));
    }
}

fn twist_read(read: &mut ReadRequest, rng: &mut SplitMix) {
    twist(&mut read.message, rng);
    twist(&mut read.region, rng);
    twist(&mut read.offset, rng);
    twist(&mut read.length, rng);
    twist(&mut read.remaining_ns, rng);
    if rng.chance(0.3) {
        read.scheme = tag(rng.pick(&SCHEMES));
        let at = rng.pick(&[0, 1, 2, 3, 4, 5]);
        read.scheme.params[at] = rng.pick(&[0, 1, 2, 254, 255]);
    }
}

fn twist_critical(critical: &mut CriticalChunks, rng: &mut SplitMix) {
    let twisted = critical.ranges().map(|mut range| {
        twist_u32(&mut range.start, rng);
        twist_u32(&mut range.end, rng);
        range
    });
    // Ranges that overlap or are empty do not parse.
    if let Some(twisted) = CriticalChunks::new(twisted) {
        *critical = twisted;
    }
}

fn twist_offer(offer: &mut Offer, rng: &mut SplitMix) {
    twist_critical(&mut offer.critical, rng);
    twist(&mut offer.message, rng);
    twist(&mut offer.cleared, rng);
    if let Some(length) = &mut offer.length {
        twist(length, rng);
    }
    if rng.chance(0.3) {
        offer.scheme = tag(rng.pick(&SCHEMES));
    }
    if rng.chance(0.2) {
        let at = rng.pick(&[0, 1, 2, 3, 4, 5]);
        offer.scheme.params[at] = rng.pick(&[0, 1, 2, 254, 255]);
    }
    offer.has_immediate ^= rng.chance(0.1);
    offer.answers_read ^= rng.chance(0.02);
    if rng.chance(0.02) {
        let refused = Withdrawal::Refused(ReadRefusal::OutOfRange);
        let reasons = [Withdrawal::GivenUp, Withdrawal::Expired, refused];
        offer.withdrawn = Some(rng.pick(&reasons));
    }
}

/// Replaces a message by another of the same kind and length.
fn lie(said: &mut Control, rng: &mut SplitMix) {
    match said {
        Control::Offer(offer) => twist_offer(offer, rng),
        Control::ClearToSend(cts) => {
            twist(&mut cts.posted, rng);
            twist(&mut cts.offers, rng);
            twist(&mut cts.first, rng);
            let count = cts.clearances.len() as u64;
            cts.first = cts.first.min(u64::MAX - count);
            cts.posted = cts.posted.max(cts.first + count);
            for clearance in &mut cts.clearances {
                twist(&mut clearance.length, rng);
                if let Some(place) = &mut clearance.parity {
                    twist_place(place, rng);
                }
                if clearance.terms != Terms::default() {
                    clearance.terms = Terms {
                        exact_length: rng.chance(0.5),
                        immediate: rng.chance(0.5),
                        scheme: rng.pick(&[None, Some(tag("sr-nack"))]),
                        // At least one term must be set: without terms, the clearance would have no
                        // bytes for them.
                        accepts_partial: true,
                        answers_read: rng.chance(0.2),
                    };
                }
            }
        }
        Control::Ack(ack) => {
            twist(&mut ack.message, rng);
            twist_u32(&mut ack.cumulative, rng);
            twist_u32(&mut ack.seen, rng);
            ack.bits
                .iter_mut()
                .for_each(|b| *b ^= rng.pick(&[0, 0, 255, 3]));
        }
        Control::Nack(nack) => {
            twist(&mut nack.message, rng);
            if let [only] = &mut nack.lost[..] {
                *only = rng.pick(&[0, 5, 63])..rng.pick(&[64, 1000, u32::MAX]);
            }
        }
        Control::ReceiveComplete { message, .. } => twist(message, rng),
        Control::Loss(loss) => {
            twist(&mut loss.judged_chunks, rng);
            twist(&mut loss.lost_chunks, rng);
            twist(&mut loss.bursts, rng);
            twist(&mut loss.longest_burst_chunks, rng);
        }
        Control::PeerFeedback(feedback) => twist_feedback(feedback, rng),
        Control::Read(read) => twist_read(read, rng),
        Control::CreditRequest(request) => {
            twist(&mut request.epoch, rng);
            twist(&mut request.used_bytes, rng);
            twist(&mut request.wanted_bytes, rng);
            // Less in total than is used does not parse.
            request.wanted_bytes = request.wanted_bytes.max(request.used_bytes);
        }
        Control::Credit(credit) => {
            twist(&mut credit.epoch, rng);
            twist(&mut credit.granted_bytes, rng);
        }
    }
}

fn forge(
    datagram: &Datagram,
    said: Option<&[Control]>,
    key: &[u8; 32],
    rng: &mut SplitMix,
) -> Datagram {
    let mut forged = datagram.clone();
    let end = forged.payload.len() - 4;
    if let Some(said) = said {
        let pad = usize::from(forged.payload[1] >> 4 & 3);
        let body = SEND_PAYLOAD..end - pad;
        let (header, _) = control::open(key, &forged.payload[body.clone()]).expect("sealed");
        let mut builder = Builder::new(1024);
        for message in said {
            let mut message = message.clone();
            lie(&mut message, rng);
            assert!(builder.push(&message), "it is no longer than before");
        }
        let bytes = builder.seal(&header, key);
        forged.payload[body].copy_from_slice(&bytes);
    } else {
        let imm = u32::from_be_bytes(
            forged.payload[IMMDT..IMMDT + 4]
                .try_into()
                .expect("4 bytes"),
        );
        let imm = match rng.within(0..4) {
            0 => imm ^ 512 << 22,
            1 => imm ^ 1 << rng.within(0..32),
            2 => u32::try_from(rng.next() >> 32).expect("32 bits"),
            _ => imm.wrapping_add(16 * 4),
        };
        forged.payload[IMMDT..IMMDT + 4].copy_from_slice(&imm.to_be_bytes());
    }
    seal(&mut forged);
    forged
}

fn random_options(rng: &mut SplitMix) -> QpOptions {
    let sdr = QpConfig {
        mtu: rng.pick(&[64, 1024, 4096]),
        packets_per_chunk: rng.pick(&[1, 3, 16]),
        max_message_bytes: rng.pick(&[1 << 20, 1 << 22]),
        ..QpConfig::default()
    };
    QpOptions {
        sdr,
        rate_control: rng.pick(&[
            RateControl::Fixed {
                rate_bps: 1_000_000_000,
            },
            RateControl::default(),
            RateControl::Eqds(EqdsOptions {
                line_rate_bps: 1_000_000_000,
                first_window_bytes: 20_000,
            }),
        ]),
        expected_scheme: tag(rng.pick(&SCHEMES)),
        max_parity_bytes: rng.pick(&[0, 100_000, 1 << 30]),
        ..options()
    }
}

/// Drops a share of all packets. Returns the datagrams to send in their place.
pub(crate) fn turn(world: &World, share: f64, seed: u64) -> Rc<RefCell<Vec<Datagram>>> {
    let keys =
        [&world.b, &world.a].map(|end| end.endpoint.qp_info(end.qp).expect("its own").control_key);
    let forged = Rc::new(RefCell::new(Vec::new()));
    let out = Rc::clone(&forged);
    let mut rng = SplitMix::new(seed);
    world.traffic.filter(move |seen| {
        if !rng.chance(share) {
            return Verdict::Pass;
        }
        let key = &keys[usize::from(seen.way == Way::Back)];
        let lies = forge(seen.datagram, seen.control.as_deref(), key, &mut rng);
        out.borrow_mut().push(lies);
        Verdict::Drop
    });
    forged
}

fn run(seed: u64) {
    let rng = &mut SplitMix::new(seed);
    let options = random_options(rng);
    println!("{options:?}");
    let mut world = World::new(seed, long_haul(), &options);
    let forged = turn(&world, rng.pick(&[0.02, 0.2, 0.5]), rng.next());
    let (mut outs, mut inns) = (Vec::new(), Vec::new());
    for _ in 0..rng.within(1..12) {
        let way = rng.pick(&[Way::Forth, Way::Back]);
        let bytes = usize::try_from(rng.within(0..300_000)).expect("small");
        let scheme = rng.pick(&SCHEMES);
        let third = bytes as u64 / 3;
        let has_critical = third > 0 && (scheme.ends_with("first") || scheme.ends_with("exact"));
        let critical = has_critical.then(|| CriticalRanges::new([0..1, third..2 * third]));
        let order = Order {
            way,
            critical: critical.map_or(CriticalRanges::NONE, |ranges| ranges.expect("two ranges")),
            immediate: rng.pick(&[None, Some(7)]),
            deadline_ns: rng.pick(&[None, Some(5 * RTT)]),
            ..Order::new(rng.bytes(bytes), tag(scheme))
        };
        let terms = RecvOptions {
            scheme: rng.pick(&[None, Some(order.scheme)]),
            exact_length: rng.chance(0.3),
            immediate: rng.chance(0.3),
            deadline_ns: rng.pick(&[None, None, Some(10 * RTT)]),
            accept_partial: rng.chance(0.5),
        };
        if let Ok(inn) = world.post_recv_with(way, bytes + rng.pick(&[0, 100_000]), terms) {
            inns.push((way, inn));
        }
        if let Ok(out) = world.post_send(&order) {
            outs.push((way, out));
        }
    }
    for _ in 0..(20 * RTT / MS) {
        world.run_for(MS);
        let due = std::mem::take(&mut *forged.borrow_mut());
        due.into_iter()
            .for_each(|datagram| world.network.inject(datagram));
    }
    for (way, inn) in &inns {
        world.buffer(*way, inn);
    }
    world.traffic.pass_all();
    for (way, out) in &outs {
        world
            .sender(*way)
            .endpoint
            .cancel_send(&out.send)
            .expect("there");
    }
    for (way, inn) in &inns {
        let is_open = inn.recv.outcome().is_none();
        let endpoint = &mut world.receiver(*way).endpoint;
        let ended = endpoint.complete_recv(&inn.recv, Outcome::Failed);
        assert_eq!(ended.is_ok(), is_open);
    }
    for end in [&mut world.a, &mut world.b] {
        end.endpoint.destroy_qp(end.qp).expect("it is there");
    }
}

#[test]
fn a_peer_that_says_anything() {
    seeds::each("turncoat", 40, run);
}
