//! Sealed data packets (P2.7): which ends connect, and what an attacker on the path can do.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use farwrite::fabric::sim::{Datagram, SimNetwork, Verdict};
use farwrite::{Cipher, DropReason, Endpoint, Error, QpInfo, QpOptions, Sealing, SealingError};
use farwrite_rng::SplitMix;
use farwrite_wire::packet::Packet;

use crate::hostile::{IMMDT, seal};
use crate::parcel::Order;
use crate::seeds;
use crate::world::{MS, RTT, SCHEMES, SECOND, Way, World, addr, long_haul, options, tag};

fn with(sealing: Sealing) -> QpOptions {
    QpOptions {
        sealing,
        ..options()
    }
}

/// Connects two ends with these choices, after `change` was applied to the information about the
/// second. Returns the ciphers of both, or the errors.
fn connect(
    [a, b]: [Sealing; 2],
    change: impl Fn(&mut QpInfo),
) -> [Result<Option<Cipher>, String>; 2] {
    let network = SimNetwork::new(1);
    let link = long_haul();
    network
        .connect(addr(1).ip(), addr(2).ip(), link, link)
        .expect("a good link");
    let ends = [(1, a), (2, b)].map(|(host, sealing)| {
        let fabric = network.endpoint(addr(host), 1).expect("a free address");
        let mut endpoint = Endpoint::new(fabric, [host; 32]);
        let qp = endpoint.create_qp(with(sealing)).expect("good options");
        (endpoint, qp)
    });
    let mut infos = ends
        .each_ref()
        .map(|(end, qp)| end.qp_info(*qp).expect("its own"));
    change(&mut infos[1]);
    let mut peers = infos.iter().rev();
    ends.map(|(mut end, qp)| {
        let peer = peers.next().expect("as many as ends");
        end.connect_qp(qp, peer)
            .map_err(|error| error.to_string())?;
        Ok(end.cipher(qp).expect("its own"))
    })
}

#[test]
fn ends_seal_if_both_want_to_and_never_against_the_will_of_one() {
    use Sealing::{Off, Preferred, Required};
    for (ours, theirs, is_sealed) in [
        (Off, Off, Some(false)),
        (Off, Preferred, Some(false)),
        (Preferred, Off, Some(false)),
        (Preferred, Preferred, Some(true)),
        (Preferred, Required, Some(true)),
        (Required, Required, Some(true)),
        (Off, Required, None),
        (Required, Off, None),
    ] {
        let both = connect([ours, theirs], |_| ());
        let name = format!("{ours:?} and {theirs:?}: {both:?}");
        match is_sealed {
            Some(is_sealed) => {
                let ciphers = both.map(|cipher| cipher.expect("they connect"));
                assert_eq!(ciphers[0], ciphers[1], "{name}");
                assert_eq!(ciphers[0].is_some(), is_sealed, "{name}");
            }
            None => assert!(both.iter().all(Result::is_err), "{name}"),
        }
    }
    let [refused, informed] = connect([Required, Off], |_| ()).map(Result::unwrap_err);
    assert_eq!(refused, SealingError::PeerDoesNot.to_string());
    assert_eq!(informed, SealingError::PeerRequires.to_string());
    // A peer without instructions for AES.
    let [ours, _] = connect([Preferred, Preferred], |info| info.has_aes = false);
    assert_eq!(ours, Ok(Some(Cipher::ChaCha20Poly1305)));
    // A peer of an older version.
    let [ours, _] = connect([Preferred, Preferred], |info| info.seals = false);
    assert_eq!(ours, Ok(None));
}

#[test]
fn queue_pairs_to_one_peer_are_all_sealed_or_none_is() {
    let mut world = World::new(1, long_haul(), &with(Sealing::Preferred));
    let unsealed = [&mut world.a, &mut world.b].map(|end| {
        let qp = end
            .endpoint
            .create_qp(with(Sealing::Off))
            .expect("good options");
        (qp, end.endpoint.qp_info(qp).expect("its own"))
    });
    let error = world.a.endpoint.connect_qp(unsealed[0].0, &unsealed[1].1);
    assert!(
        matches!(
            error,
            Err(Error::Sealing(SealingError::Mixed { present: true }))
        ),
        "{error:?}"
    );
}

#[test]
fn the_pace_counts_the_bytes_of_sealing() {
    let [plain, sealed] = [Sealing::Off, Sealing::Required].map(|sealing| {
        let mut world = World::new(1, long_haul(), &with(sealing));
        let bytes = SplitMix::new(1).bytes(1 << 20);
        let parcel = world.ship(Order::new(bytes, tag("sr-nack")));
        world.deliver(std::slice::from_ref(&parcel), SECOND);
        // The last report of what has arrived may come after the end of the message.
        let until_ns = world.now_ns() + RTT;
        world.run_until(SECOND, |world| world.now_ns() >= until_ns);
        let stats = world.a.endpoint.peer_stats(world.a.qp).expect("connected");
        world.finish(vec![parcel]);
        stats
    });
    assert_eq!(sealed.sent_bytes, plain.sent_bytes + 24 * 256, "{sealed:?}");
    assert_eq!(sealed.delivered_bytes, sealed.sent_bytes, "{sealed:?}");
}

/// The ICRC stays unless both ends want to omit it.
#[test]
fn packets_have_no_icrc_if_both_ends_want_that() {
    for both in [true, false] {
        let options = QpOptions {
            omit_icrc: true,
            ..with(Sealing::Required)
        };
        let links = [long_haul(); 2];
        let mut world = World::with_infos(1, links, &options, |info| info.omits_icrc &= both);
        let packets = Rc::new(Cell::new(0));
        let count = Rc::clone(&packets);
        world.traffic.filter(move |seen| {
            let is_omitted = seen.datagram.payload.ends_with(&[0; 4]);
            assert_eq!(is_omitted, seen.is_data() && both);
            count.set(count.get() + usize::from(seen.is_data()));
            Verdict::Pass
        });
        let parcel = world.ship(Order::new(SplitMix::new(1).bytes(100_000), tag("sr-nack")));
        world.deliver(std::slice::from_ref(&parcel), SECOND);
        world.finish(vec![parcel]);
        assert!(packets.get() >= 25);
    }
}

/// What the attacker does to a data packet on the path: the packets that arrive instead, and when.
type Attack = fn(&mut SplitMix, u64, &Datagram) -> Option<Vec<(u64, Datagram)>>;

/// Sends messages both ways while an attacker on the path acts on each data packet. All of them arrive
/// byte for byte. Returns what both ends dropped by reason.
fn under_attack(scheme: &str, seed: u64, attack: Attack) -> impl Fn(DropReason) -> u64 {
    let mut world = World::new(seed, long_haul(), &with(Sealing::Required));
    let forged: Rc<RefCell<Vec<(u64, Datagram)>>> = Rc::default();
    let out = Rc::clone(&forged);
    let mut rng = SplitMix::new(seed);
    world.traffic.filter(move |seen| {
        if !seen.is_data() {
            return Verdict::Pass;
        }
        let arrives_ns = seen.now_ns + RTT / 2;
        match attack(&mut rng, arrives_ns, seen.datagram) {
            None => Verdict::Pass,
            Some(instead) => {
                out.borrow_mut().extend(instead);
                Verdict::Drop
            }
        }
    });
    let parcels = [Way::Forth, Way::Back, Way::Forth].map(|way| {
        let bytes = SplitMix::new(seed).bytes(300_000);
        world.ship(Order {
            way,
            ..Order::new(bytes, tag(scheme))
        })
    });
    while world.now_ns() < 2 * SECOND {
        world.run_for(MS);
        let now_ns = world.now_ns();
        let due: Vec<_> = forged
            .borrow_mut()
            .extract_if(.., |(due_ns, _)| *due_ns <= now_ns)
            .collect();
        due.into_iter()
            .for_each(|(_, datagram)| world.network.inject(datagram));
    }
    let counters = [&world.a, &world.b].map(|end| end.endpoint.counters());
    world.finish(parcels.into());
    move |reason| {
        counters
            .iter()
            .map(|counters| counters.dropped(reason))
            .sum()
    }
}

/// A scheme, and the attack on it. Each test runs the same number of cases.
fn each(test: &str, check: impl Fn(&str, u64)) {
    for scheme in SCHEMES {
        seeds::each(test, 1, |seed| check(scheme, seed));
    }
}

#[test]
fn bits_that_are_flipped_in_one_packet_of_a_hundred_damage_nothing() {
    each("sealed_flips", |scheme, seed| {
        let dropped = under_attack(scheme, seed, |rng, arrives_ns, datagram| {
            if !rng.chance(0.01) {
                return None;
            }
            let mut changed = datagram.clone();
            let bits = IMMDT as u64 * 8..(changed.payload.len() - 4) as u64 * 8;
            let bit = usize::try_from(rng.within(bits)).expect("a bit");
            changed.payload[bit / 8] ^= 1 << (bit % 8);
            seal(&mut changed);
            Some(vec![(arrives_ns, changed)])
        });
        assert!(dropped(DropReason::BadTag) > 0, "{scheme}");
    });
}

#[test]
fn packets_that_are_repeated_16_times_at_once_and_later_change_nothing() {
    each("sealed_repeats", |scheme, seed| {
        let dropped = under_attack(scheme, seed, |_, arrives_ns, datagram| {
            let at_once = std::iter::repeat_n((arrives_ns, datagram.clone()), 9);
            let later = (1..=8).map(|n| (arrives_ns + n * 300 * MS / 8, datagram.clone()));
            Some(at_once.chain(later).collect())
        });
        let replayed = dropped(DropReason::Replayed);
        assert!(replayed >= 16 * 3 * 73, "{scheme}: {replayed}");
        assert_eq!(dropped(DropReason::BadTag), 0, "{scheme}");
    });
}

#[test]
fn packets_that_are_cut_reordered_or_sent_back_damage_nothing() {
    each("sealed_reordered", |scheme, seed| {
        let dropped = under_attack(scheme, seed, |rng, arrives_ns, datagram| {
            let mut packets = vec![(arrives_ns + rng.below(3 * MS), datagram.clone())];
            let mut back = datagram.clone();
            std::mem::swap(&mut back.src, &mut back.dst);
            seal(&mut back);
            packets.push((arrives_ns, back));
            let payload = Packet::parse(&datagram.payload).expect("whole").payload();
            if let Some(bytes) = payload.len().checked_sub(64)
                && bytes % 4 == 0
            {
                let mut cut = datagram.clone();
                cut.payload.truncate(32 + bytes + 4);
                let length = u32::try_from(bytes).expect("a packet");
                cut.payload[24..28].copy_from_slice(&length.to_be_bytes());
                seal(&mut cut);
                packets.push((arrives_ns, cut));
            }
            Some(packets)
        });
        assert!(dropped(DropReason::BadTag) > 0, "{scheme}");
        assert!(dropped(DropReason::UnknownQp) > 0, "{scheme}");
    });
}

/// The control queue pair is not sealed. A write that names it must not reach the memory of the
/// sealed queue pairs.
#[test]
fn plain_writes_to_the_control_queue_pair_damage_nothing() {
    let mut world = World::new(1, long_haul(), &with(Sealing::Required));
    let forged: Rc<RefCell<Vec<Datagram>>> = Rc::default();
    let out = Rc::clone(&forged);
    let mut control_qpns = HashMap::new();
    world.traffic.filter(move |seen| {
        let Datagram { dst, payload, .. } = seen.datagram;
        if !seen.is_data() {
            control_qpns.insert(*dst, [payload[5], payload[6], payload[7]]);
        } else if let Some(qpn) = control_qpns.get(dst) {
            let mut plain = seen.datagram.clone();
            plain.payload.truncate(IMMDT + 4);
            plain.payload[1] &= !0x30;
            plain.payload[5..8].copy_from_slice(qpn);
            // RETH: the length of the write.
            plain.payload[24..28].copy_from_slice(&512_u32.to_be_bytes());
            plain.payload.extend([0xee; 512 + 4]);
            seal(&mut plain);
            out.borrow_mut().push(plain);
        }
        Verdict::Pass
    });
    let bytes = SplitMix::new(1).bytes(1 << 20);
    let parcel = world.ship(Order::new(bytes, tag("sr-nack")));
    while world.now_ns() < SECOND {
        world.run_for(MS);
        let packets = forged.take();
        packets
            .into_iter()
            .for_each(|packet| world.network.inject(packet));
    }
    let dropped = world.b.endpoint.counters().dropped(DropReason::ForeignKey);
    world.finish(vec![parcel]);
    assert!(dropped > 200, "{dropped}");
}
