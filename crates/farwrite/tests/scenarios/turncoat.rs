//! A peer that has the keys and sends arbitrary content: nothing panics, nothing outside the
//! buffers is written, and both ends can be destroyed.

use std::cell::RefCell;
use std::rc::Rc;

use farwrite::fabric::sim::{Datagram, Verdict};
use farwrite::{
    CriticalRanges, EqdsOptions, Outcome, QpConfig, QpOptions, RateControl, RecvOptions,
};
use farwrite_dice::SplitMix;
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

fn twist(number: &mut u64, dice: &mut SplitMix) {
    *number = match dice.within(0..8) {
        0 => *number ^ 1 << 60,
        1 => number.wrapping_add(dice.within(0..600)),
        2 => number.wrapping_sub(dice.within(0..600)),
        3 => dice.next(),
        4 => dice.next() >> dice.within(0..64),
        _ => *number,
    };
}

fn twist_u32(number: &mut u32, dice: &mut SplitMix) {
    let mut wide = u64::from(*number);
    twist(&mut wide, dice);
    *number = u32::try_from(wide & 0xffff_ffff).expect("32 bits");
}

fn twist_place(place: &mut Place, dice: &mut SplitMix) {
    twist_u32(&mut place.rkey, dice);
    twist(&mut place.base, dice);
    twist(&mut place.length, dice);
}

fn twist_feedback(feedback: &mut PeerFeedback, dice: &mut SplitMix) {
    twist(&mut feedback.epoch, dice);
    let mut message = feedback.message.to_bits();
    twist(&mut message, dice);
    feedback.message = MessageId::from_bits(message);
    twist_u32(&mut feedback.packet, dice);
    twist(&mut feedback.hold_ns, dice);
    twist(&mut feedback.received_packets, dice);
    feedback.received_packets = feedback.received_packets.max(1);
    twist(&mut feedback.received_bytes, dice);
    // More marks than packets do not parse.
    twist(&mut feedback.ect_packets, dice);
    feedback.ect_packets = feedback.ect_packets.min(feedback.received_packets);
    twist(&mut feedback.marked_packets, dice);
    feedback.marked_packets = feedback.marked_packets.min(feedback.ect_packets);
    twist(&mut feedback.dropped_packets, dice);
    twist(&mut feedback.drain_bps, dice);
    // Without stale packets, the report is shorter.
    if feedback.stale.packets > 0 {
        let (received, marked) = (feedback.received_packets, feedback.marked_packets);
        let stale = &mut feedback.stale;
        twist(&mut stale.packets, dice);
        stale.packets = stale.packets.clamp(1, received);
        twist(&mut stale.marked_packets, dice);
        let least = marked.saturating_sub(received - stale.packets);
        stale.marked_packets = stale.marked_packets.clamp(least, marked.min(stale.packets));
    }
}

fn twist_read(read: &mut ReadRequest, dice: &mut SplitMix) {
    twist(&mut read.message, dice);
    twist(&mut read.region, dice);
    twist(&mut read.offset, dice);
    twist(&mut read.length, dice);
    twist(&mut read.remaining_ns, dice);
    if dice.chance(0.3) {
        read.scheme = tag(dice.pick(&SCHEMES));
        let at = dice.pick(&[0, 1, 2, 3, 4, 5]);
        read.scheme.params[at] = dice.pick(&[0, 1, 2, 254, 255]);
    }
}

fn twist_critical(critical: &mut CriticalChunks, dice: &mut SplitMix) {
    let twisted = critical.ranges().map(|mut range| {
        twist_u32(&mut range.start, dice);
        twist_u32(&mut range.end, dice);
        range
    });
    // Ranges that overlap or are empty do not parse.
    if let Some(twisted) = CriticalChunks::new(twisted) {
        *critical = twisted;
    }
}

fn twist_offer(offer: &mut Offer, dice: &mut SplitMix) {
    twist_critical(&mut offer.critical, dice);
    twist(&mut offer.message, dice);
    twist(&mut offer.cleared, dice);
    if let Some(length) = &mut offer.length {
        twist(length, dice);
    }
    if dice.chance(0.3) {
        offer.scheme = tag(dice.pick(&SCHEMES));
    }
    if dice.chance(0.2) {
        let at = dice.pick(&[0, 1, 2, 3, 4, 5]);
        offer.scheme.params[at] = dice.pick(&[0, 1, 2, 254, 255]);
    }
    offer.has_immediate ^= dice.chance(0.1);
    offer.answers_read ^= dice.chance(0.02);
    if dice.chance(0.02) {
        let refused = Withdrawal::Refused(ReadRefusal::OutOfRange);
        let reasons = [Withdrawal::GivenUp, Withdrawal::Expired, refused];
        offer.withdrawn = Some(dice.pick(&reasons));
    }
}

/// Replaces a message by another of the same kind and length.
fn lie(said: &mut Control, dice: &mut SplitMix) {
    match said {
        Control::Offer(offer) => twist_offer(offer, dice),
        Control::ClearToSend(cts) => {
            twist(&mut cts.posted, dice);
            twist(&mut cts.offers, dice);
            twist(&mut cts.first, dice);
            let count = cts.clearances.len() as u64;
            cts.first = cts.first.min(u64::MAX - count);
            cts.posted = cts.posted.max(cts.first + count);
            for clearance in &mut cts.clearances {
                twist(&mut clearance.length, dice);
                if let Some(place) = &mut clearance.parity {
                    twist_place(place, dice);
                }
                if clearance.terms != Terms::default() {
                    clearance.terms = Terms {
                        exact_length: dice.chance(0.5),
                        immediate: dice.chance(0.5),
                        scheme: dice.pick(&[None, Some(tag("sr-nack"))]),
                        // At least one term must be set: without terms, the clearance would have no
                        // bytes for them.
                        accepts_partial: true,
                        answers_read: dice.chance(0.2),
                    };
                }
            }
        }
        Control::Ack(ack) => {
            twist(&mut ack.message, dice);
            twist_u32(&mut ack.cumulative, dice);
            twist_u32(&mut ack.seen, dice);
            ack.bits
                .iter_mut()
                .for_each(|b| *b ^= dice.pick(&[0, 0, 255, 3]));
        }
        Control::Nack(nack) => {
            twist(&mut nack.message, dice);
            if let [only] = &mut nack.lost[..] {
                *only = dice.pick(&[0, 5, 63])..dice.pick(&[64, 1000, u32::MAX]);
            }
        }
        Control::ReceiveComplete { message, .. } => twist(message, dice),
        Control::Loss(loss) => {
            twist(&mut loss.judged_chunks, dice);
            twist(&mut loss.lost_chunks, dice);
            twist(&mut loss.bursts, dice);
            twist(&mut loss.longest_burst_chunks, dice);
        }
        Control::PeerFeedback(feedback) => twist_feedback(feedback, dice),
        Control::Read(read) => twist_read(read, dice),
        Control::CreditRequest(request) => {
            twist(&mut request.epoch, dice);
            twist(&mut request.used_bytes, dice);
            twist(&mut request.wanted_bytes, dice);
            // Less in total than is used does not parse.
            request.wanted_bytes = request.wanted_bytes.max(request.used_bytes);
        }
        Control::Credit(credit) => {
            twist(&mut credit.epoch, dice);
            twist(&mut credit.granted_bytes, dice);
        }
    }
}

fn forge(
    datagram: &Datagram,
    said: Option<&[Control]>,
    key: &[u8; 32],
    dice: &mut SplitMix,
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
            lie(&mut message, dice);
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
        let imm = match dice.within(0..4) {
            0 => imm ^ 512 << 22,
            1 => imm ^ 1 << dice.within(0..32),
            2 => u32::try_from(dice.next() >> 32).expect("32 bits"),
            _ => imm.wrapping_add(16 * 4),
        };
        forged.payload[IMMDT..IMMDT + 4].copy_from_slice(&imm.to_be_bytes());
    }
    seal(&mut forged);
    forged
}

fn random_options(dice: &mut SplitMix) -> QpOptions {
    let sdr = QpConfig {
        mtu: dice.pick(&[64, 1024, 4096]),
        packets_per_chunk: dice.pick(&[1, 3, 16]),
        max_message_bytes: dice.pick(&[1 << 20, 1 << 22]),
        ..QpConfig::default()
    };
    QpOptions {
        sdr,
        rate_control: dice.pick(&[
            RateControl::Fixed {
                rate_bps: 1_000_000_000,
            },
            RateControl::default(),
            RateControl::Eqds(EqdsOptions {
                line_rate_bps: 1_000_000_000,
                first_window_bytes: 20_000,
            }),
        ]),
        expected_scheme: tag(dice.pick(&SCHEMES)),
        max_parity_bytes: dice.pick(&[0, 100_000, 1 << 30]),
        ..options()
    }
}

/// Drops a share of all packets. Returns the datagrams to send in their place.
pub(crate) fn turn(world: &World, share: f64, seed: u64) -> Rc<RefCell<Vec<Datagram>>> {
    let keys =
        [&world.b, &world.a].map(|end| end.endpoint.qp_info(end.qp).expect("its own").control_key);
    let forged = Rc::new(RefCell::new(Vec::new()));
    let out = Rc::clone(&forged);
    let mut dice = SplitMix::new(seed);
    world.traffic.filter(move |seen| {
        if !dice.chance(share) {
            return Verdict::Pass;
        }
        let key = &keys[usize::from(seen.way == Way::Back)];
        let lies = forge(seen.datagram, seen.control.as_deref(), key, &mut dice);
        out.borrow_mut().push(lies);
        Verdict::Drop
    });
    forged
}

fn run(seed: u64) {
    let dice = &mut SplitMix::new(seed);
    let options = random_options(dice);
    println!("{options:?}");
    let mut world = World::new(seed, long_haul(), &options);
    let forged = turn(&world, dice.pick(&[0.02, 0.2, 0.5]), dice.next());
    let (mut outs, mut inns) = (Vec::new(), Vec::new());
    for _ in 0..dice.within(1..12) {
        let way = dice.pick(&[Way::Forth, Way::Back]);
        let bytes = usize::try_from(dice.within(0..300_000)).expect("small");
        let scheme = dice.pick(&SCHEMES);
        let third = bytes as u64 / 3;
        let has_critical = third > 0 && (scheme.ends_with("first") || scheme.ends_with("exact"));
        let critical = has_critical.then(|| CriticalRanges::new([0..1, third..2 * third]));
        let order = Order {
            way,
            critical: critical.map_or(CriticalRanges::NONE, |ranges| ranges.expect("two ranges")),
            immediate: dice.pick(&[None, Some(7)]),
            deadline_ns: dice.pick(&[None, Some(5 * RTT)]),
            ..Order::new(dice.bytes(bytes), tag(scheme))
        };
        let terms = RecvOptions {
            scheme: dice.pick(&[None, Some(order.scheme)]),
            exact_length: dice.chance(0.3),
            immediate: dice.chance(0.3),
            deadline_ns: dice.pick(&[None, None, Some(10 * RTT)]),
            accept_partial: dice.chance(0.5),
        };
        if let Ok(inn) = world.post_recv_with(way, bytes + dice.pick(&[0, 100_000]), terms) {
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
