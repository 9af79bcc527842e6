//! Sealed queue pairs (P2.7), and what an attacker on the path can do to them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Nonce};
use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{
    Cipher, Completion, DirectionSecret, DropReason, Fabric, FabricError, Lkey, QpAttr, QpSealing,
    Qpn, Region, RemotePlace, RemoteQp, Rkey, Sge, WriteWr,
};
use farwrite_fabric::nic::NicFabric;
use farwrite_fabric::sim::{Datagram, SimFabric, Verdict};
use farwrite_rng::SplitMix;
use farwrite_wire::packet::Packet;
use farwrite_wire::sealing::split;
use proptest::prelude::*;

use crate::closure_carrier::ClosureCarrier;
use crate::two_ends::{ATTR, TwoEnds, seal, window};

const BYTES: usize = 1 << 14;

/// The control keys of both ends.
const KEYS: [[u8; 32]; 2] = [[1; 32], [2; 32]];

/// How the end with key `ours` seals.
fn sealing(cipher: Cipher, ours: usize) -> QpSealing {
    let (ours, theirs) = (&KEYS[ours], &KEYS[1 - ours]);
    QpSealing {
        cipher,
        send: DirectionSecret::new(theirs, ours),
        receive: DirectionSecret::new(ours, theirs),
        omits_icrc: false,
    }
}

/// Two ends with a pair of sealed queue pairs, and memory for writes from `a` to `b`.
struct Sealed {
    ends: TwoEnds,
    /// The packets of `a`, which an attacker has recorded.
    log: Rc<RefCell<Vec<Datagram>>>,
    source: Lkey,
    target: Lkey,
    place: RemotePlace,
}

impl Sealed {
    fn new(cipher: Cipher) -> Self {
        Self::with(|ours| sealing(cipher, ours))
    }

    fn with(sealing: impl Fn(usize) -> QpSealing) -> Self {
        let mut ends = TwoEnds::new(1);
        connect(
            &mut ends.a,
            ends.qa,
            (ends.b.local_addr(0), ends.qb),
            sealing(0),
        );
        connect(
            &mut ends.b,
            ends.qb,
            (ends.a.local_addr(0), ends.qa),
            sealing(1),
        );
        let bytes = SplitMix::new(7).bytes(BYTES);
        let source = ends.a.register(Region::owned(bytes)).unwrap();
        let target = ends.b.register(Region::owned(vec![0; BYTES])).unwrap();
        let (_, _, place) = window(&mut ends.b, ends.qb, target, BYTES as u64);
        let log = Rc::new(RefCell::new(Vec::new()));
        let tap = Rc::clone(&log);
        ends.network.set_tap(move |datagram| {
            tap.borrow_mut().push(datagram.clone());
            Verdict::Drop
        });
        Self {
            ends,
            log,
            source,
            target,
            place,
        }
    }

    /// Writes the chunks of `bytes` bytes from `offset` on, in one call. Returns the packets, which
    /// have not been delivered.
    fn write(&mut self, offset: usize, lengths: &[u32]) -> Vec<Datagram> {
        let mut at = offset as u64;
        let entries: Vec<[Sge; 1]> = lengths
            .iter()
            .map(|&length| {
                let offset = at;
                at += u64::from(length);
                [Sge {
                    lkey: self.source,
                    offset,
                    length,
                }]
            })
            .collect();
        let writes: Vec<_> = entries
            .iter()
            .map(|local| WriteWr {
                wr_id: 0,
                signaled: false,
                local,
                remote_addr: self.place.addr + local[0].offset,
                rkey: self.place.rkey,
                imm: 7,
            })
            .collect();
        let taken = self.ends.a.post_writes(self.ends.qa, &writes).unwrap();
        assert_eq!(taken, lengths.len());
        std::mem::take(&mut *self.log.borrow_mut())
    }

    /// Delivers a packet to `b`. Returns whether it completed.
    fn deliver(&mut self, datagram: Datagram) -> bool {
        self.ends.network.inject(datagram);
        !self.ends.arrivals().is_empty()
    }

    fn memory(&self) -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        self.ends.b.copy_out(self.target, 0, &mut bytes).unwrap();
        bytes
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.ends.b.counters().dropped(reason)
    }
}

/// Connects a queue pair of an end again, sealed.
fn connect(
    end: &mut Adapter<SimFabric>,
    qpn: Qpn,
    (addr, peer): (SocketAddr, Qpn),
    sealing: QpSealing,
) {
    end.disconnect_qp(qpn).unwrap();
    end.seal_qp(qpn, Some(sealing)).unwrap();
    end.connect_qp(qpn, RemoteQp { addr, qpn: peer }).unwrap();
}

/// Replaces the ICRC by a valid one, as any attacker can.
fn reseal(datagram: &mut Datagram) {
    datagram.payload.truncate(datagram.payload.len() - 4);
    let id = datagram.id;
    seal(datagram, id);
}

#[test]
fn writes_of_all_lengths_arrive_as_they_were() {
    for cipher in [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
        let mut sealed = Sealed::new(cipher);
        let lengths: Vec<u32> = (0..=128).chain([255, 256]).collect();
        let total: u32 = lengths.iter().sum();
        let packets = sealed.write(0, &lengths);
        for (datagram, length) in packets.into_iter().zip(lengths) {
            let packet = Packet::parse(&datagram.payload).unwrap();
            assert_eq!(packet.payload().len(), length as usize + 24);
            assert_eq!(packet.reth().unwrap().dma_bytes, length + 24);
            sealed.ends.network.inject(datagram);
            let [Completion::Write { bytes, imm: 7, .. }] = sealed.ends.arrivals()[..] else {
                panic!("{length} bytes did not arrive");
            };
            assert_eq!(bytes, length);
        }
        let want = SplitMix::new(7).bytes(BYTES);
        let end = total as usize;
        assert_eq!(sealed.memory()[..end], want[..end]);
        assert!(sealed.memory()[end..].iter().all(|&byte| byte == 0));
    }
}

/// Computes a packet from the text of P2.7, with another implementation of the cipher.
#[test]
fn a_packet_is_sealed_as_specified() {
    let mut sealed = Sealed::new(Cipher::ChaCha20Poly1305);
    for counter in 0..3_u64 {
        let datagram = sealed.write(100, &[50]).remove(0);
        let bytes = &datagram.payload;
        let secret = blake3::derive_key(
            "farwrite 2026-11-27 keys of sealed data packets",
            &[KEYS[1], KEYS[0]].concat(),
        );
        let input = [&sealed.ends.qb.0.to_be_bytes()[..], &[0; 8]].concat();
        let key = blake3::keyed_hash(&secret, &input);
        let nonce = [&[0; 4][..], &counter.to_be_bytes()].concat();
        let aad = [&bytes[..4], &bytes[5..32]].concat();
        let plain = &SplitMix::new(7).bytes(BYTES)[100..150];
        let cipher = ChaCha20Poly1305::new(key.as_bytes().into());
        let payload = Payload {
            msg: plain,
            aad: &aad,
        };
        let ciphertext = cipher.encrypt(Nonce::from_slice(&nonce), payload).unwrap();
        let (text, tag) = ciphertext.split_at(50);
        let want = [text, &counter.to_be_bytes(), tag].concat();
        assert_eq!(bytes[32..32 + 74], want);
        // Two bytes of padding, and the ICRC.
        assert_eq!(bytes.len(), 32 + 74 + 2 + 4);
    }
}

#[test]
fn no_changed_packet_is_accepted() {
    let mut sealed = Sealed::new(Cipher::Aes256Gcm);
    let genuine = sealed.write(0, &[64]).remove(0);
    let before = sealed.memory();
    let mut rejected = 0;
    // Every bit between the opcode and the ICRC, except those that no receiver reads (byte 4).
    for bit in 8..(genuine.payload.len() - 4) * 8 {
        if bit / 8 == 4 {
            continue;
        }
        let mut forged = genuine.clone();
        forged.payload[bit / 8] ^= 1 << (bit % 8);
        reseal(&mut forged);
        assert!(!sealed.deliver(forged), "bit {bit}");
        rejected += 1;
    }
    assert_eq!(sealed.memory(), before);
    let counters = sealed.ends.b.counters();
    assert_eq!(counters.received_packets, 0);
    assert_eq!(counters.dropped.iter().sum::<u64>(), rejected);
    // Forged counters have moved no window, so the packet itself still arrives, once. Congestion
    // notification may change on the way.
    let mut marked = genuine.clone();
    marked.payload[4] ^= 0xc0;
    reseal(&mut marked);
    assert!(sealed.deliver(marked));
    assert!(!sealed.deliver(genuine));
    assert_eq!(sealed.dropped(DropReason::Replayed), 1);
}

/// Where both ends have agreed on it, the tag replaces the ICRC of data packets. Other packets keep it.
#[test]
fn packets_without_icrc_are_verified_by_their_tag() {
    let mut sealed = Sealed::with(|ours| QpSealing {
        omits_icrc: true,
        ..sealing(Cipher::Aes256Gcm, ours)
    });
    let [first, second] = sealed.write(0, &[64, 64]).try_into().unwrap();
    assert!(first.payload.ends_with(&[0; 4]), "{:?}", first.payload);
    let mut other = first.clone();
    *other.payload.last_chunk_mut().unwrap() = [1, 2, 3, 4];
    assert!(sealed.deliver(other), "nobody reads these bytes");
    assert!(!sealed.deliver(first));
    assert_eq!(sealed.dropped(DropReason::Replayed), 1);
    // Every bit up to the ICRC, except those of byte 4, which may change on the way.
    for bit in (8..(second.payload.len() - 4) * 8).filter(|bit| bit / 8 != 4) {
        let mut changed = second.clone();
        changed.payload[bit / 8] ^= 1 << (bit % 8);
        assert!(!sealed.deliver(changed), "bit {bit}");
    }
    assert!(sealed.deliver(second));
}

#[test]
fn other_packets_of_a_queue_pair_without_icrc_keep_it() {
    let mut sealed = Sealed::with(|ours| QpSealing {
        omits_icrc: true,
        ..sealing(Cipher::Aes256Gcm, ours)
    });
    let qa = sealed.ends.qa;
    assert!(sealed.ends.a.post_send(qa, b"control").unwrap());
    let mut control = std::mem::take(&mut *sealed.log.borrow_mut()).remove(0);
    let icrc = control.payload.len() - 4;
    control.payload[icrc] ^= 1;
    assert!(!sealed.deliver(control.clone()));
    assert_eq!(sealed.dropped(DropReason::BadIcrc), 1);
    control.payload[icrc] ^= 1;
    assert!(sealed.deliver(control));
}

#[test]
fn forged_packets_of_the_right_shape_are_dropped_and_cost_no_state() {
    const FORGED: u64 = 1_000_000;
    let mut sealed = Sealed::new(Cipher::Aes256Gcm);
    let genuine = sealed.write(0, &[64]).remove(0);
    let mut rng = SplitMix::new(3);
    for _ in 0..FORGED {
        let mut forged = genuine.clone();
        // The ciphertext, the counter and the tag. Half of the counters are near that of the packet.
        let end = forged.payload.len() - 4;
        let bytes = rng.bytes(end - 32);
        forged.payload[32..end].copy_from_slice(&bytes);
        if rng.chance(0.5) {
            let counter = rng.within(0..1 << 24);
            forged.payload[end - 24..end - 16].copy_from_slice(&counter.to_be_bytes());
        }
        reseal(&mut forged);
        sealed.ends.network.inject(forged);
    }
    assert_eq!(sealed.ends.arrivals(), []);
    assert_eq!(sealed.dropped(DropReason::BadTag), FORGED);
    assert!(sealed.memory().iter().all(|&byte| byte == 0));
    assert!(sealed.deliver(genuine));
}

#[test]
fn packets_that_are_truncated_or_not_sealed_are_dropped() {
    let mut sealed = Sealed::new(Cipher::Aes256Gcm);
    let genuine = sealed.write(0, &[64]).remove(0);
    let full = genuine.payload.len();
    let mut sent = 0;
    for bytes in (32 + 4..full).step_by(4) {
        let mut cut = genuine.clone();
        cut.payload.truncate(bytes);
        let payload = u32::try_from(bytes - 36).unwrap();
        cut.payload[24..28].copy_from_slice(&payload.to_be_bytes());
        reseal(&mut cut);
        assert!(!sealed.deliver(cut), "{bytes} bytes");
        sent += 1;
    }
    assert_eq!(sealed.dropped(DropReason::BadTag), sent);
    assert!(sealed.memory().iter().all(|&byte| byte == 0));
}

#[test]
fn a_packet_is_accepted_once_in_any_order() {
    let mut sealed = Sealed::new(Cipher::Aes256Gcm);
    let mut packets = sealed.write(0, &[8; 200]);
    // Reordered, and each 16 times.
    let mut rng = SplitMix::new(5);
    packets.sort_by_cached_key(|_| rng.next());
    for round in 0..16 {
        for datagram in &packets {
            assert_eq!(sealed.deliver(datagram.clone()), round == 0);
        }
    }
    assert_eq!(sealed.dropped(DropReason::Replayed), 15 * 200);
    assert_eq!(
        sealed.memory()[..1600],
        SplitMix::new(7).bytes(BYTES)[..1600]
    );
    // One of them very often.
    let before = sealed.ends.b.counters();
    for _ in 0..6000 {
        (0..10).for_each(|_| sealed.ends.network.inject(packets[0].clone()));
        assert_eq!(sealed.ends.arrivals(), []);
    }
    assert_eq!(sealed.dropped(DropReason::Replayed), 15 * 200 + 60_000);
    assert_eq!(
        sealed.ends.b.counters().received_packets,
        before.received_packets
    );
    assert_eq!(
        sealed.ends.b.counters().received_bytes,
        before.received_bytes
    );
}

#[test]
fn packets_that_are_sent_back_or_belong_elsewhere_are_dropped() {
    let mut sealed = Sealed::new(Cipher::Aes256Gcm);
    let genuine = sealed.write(0, &[64]).remove(0);
    // Back to its sender, whose queue pair has the number that the packet then names.
    let target = sealed
        .ends
        .a
        .register(Region::owned(vec![0; BYTES]))
        .unwrap();
    let (_, _, place) = window(&mut sealed.ends.a, sealed.ends.qa, target, BYTES as u64);
    let mut back = genuine.clone();
    std::mem::swap(&mut back.src, &mut back.dst);
    back.payload[4..8].copy_from_slice(&sealed.ends.qa.0.to_be_bytes());
    back.payload[20..24].copy_from_slice(&place.rkey.0.to_be_bytes());
    reseal(&mut back);
    sealed.ends.network.inject(back);
    while let Some(next_ns) = sealed.ends.network.next_ns() {
        sealed.ends.network.advance_to(next_ns);
    }
    let mut completions = Vec::new();
    sealed.ends.a.poll(&mut completions).unwrap();
    sealed.ends.a.end_batch();
    assert_eq!(completions, []);
    assert_eq!(sealed.ends.a.counters().dropped(DropReason::BadTag), 1);

    // To another queue pair with the same peer and the same keys.
    let (a, b) = (sealed.ends.a.local_addr(0), &mut sealed.ends.b);
    let other = b.create_qp(ATTR).unwrap();
    b.seal_qp(other, Some(sealing(Cipher::Aes256Gcm, 1)))
        .unwrap();
    let remote = RemoteQp {
        addr: a,
        qpn: sealed.ends.qa,
    };
    b.connect_qp(other, remote).unwrap();
    let mut elsewhere = genuine.clone();
    elsewhere.payload[4..8].copy_from_slice(&other.0.to_be_bytes());
    reseal(&mut elsewhere);
    assert!(!sealed.deliver(elsewhere));
    assert!(sealed.deliver(genuine.clone()));
    assert_eq!(sealed.dropped(DropReason::BadTag), 1);

    // Packets of an earlier session between the same two queue pairs: one of the ends has a new key.
    let earlier = sealed.write(64, &[64]).remove(0);
    let remote = (a, sealed.ends.qa);
    let mut renewed = sealing(Cipher::Aes256Gcm, 1);
    renewed.receive = DirectionSecret::new(&[3; 32], &KEYS[0]);
    connect(&mut sealed.ends.b, sealed.ends.qb, remote, renewed);
    assert!(!sealed.deliver(earlier));
    assert!(!sealed.deliver(genuine));
    assert_eq!(sealed.dropped(DropReason::BadTag), 3);
}

#[test]
fn sealing_needs_room_and_a_queue_pair_that_is_not_connected() {
    let mut ends = TwoEnds::new(1);
    let with = Some(sealing(Cipher::Aes256Gcm, 0));
    assert!(matches!(
        ends.a.seal_qp(ends.qa, with),
        Err(FabricError::InUse(_))
    ));
    let most = ends.a.capabilities().max_mtu;
    let attr = |mtu| QpAttr { mtu, ..ATTR };
    let too_large = ends.a.create_qp(attr(most - 20)).unwrap();
    let error = ends.a.seal_qp(too_large, with).unwrap_err().to_string();
    assert!(error.contains(&(most - 24).to_string()), "{error}");
    let fits = ends.a.create_qp(attr(most - 24)).unwrap();
    ends.a.seal_qp(fits, with).unwrap();
    assert!(ends.a.seal_qp(Qpn(1), with).is_err());
}

/// What happens to a queue pair that seals.
#[derive(Clone, Debug)]
enum SealingStep {
    /// Writes are posted, and the carrier has room for some.
    Post { lengths: Vec<u32>, room: usize },
    /// A byte of the memory changes.
    Change(u64),
    /// The queue pair is connected again, with the same keys.
    Reconnect,
}

fn steps() -> impl Strategy<Value = Vec<SealingStep>> {
    let post = (prop::collection::vec(0..100_u32, 0..200), 0..220_usize);
    let step = prop_oneof![
        6 => post.prop_map(|(lengths, room)| SealingStep::Post { lengths, room }),
        2 => (0..100_u64).prop_map(SealingStep::Change),
        1 => Just(SealingStep::Reconnect),
    ];
    prop::collection::vec(step, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// No two packets with different bytes have one counter, whatever the carrier takes, however
    /// memory changes, and also if the queue pair is connected again with the same keys.
    #[test]
    fn no_counter_seals_two_texts(steps in steps()) {
        let given: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
        let room: Rc<RefCell<usize>> = Rc::default();
        let (log, left) = (Rc::clone(&given), Rc::clone(&room));
        // It records all packets that it is given, and accepts some of them.
        let carrier = ClosureCarrier::new(move |burst| {
            for packet in burst.packets() {
                let mut bytes = Vec::new();
                packet.append_to(burst.sealed_as(), 0, &mut bytes);
                log.borrow_mut().push(bytes);
            }
            let mut left = left.borrow_mut();
            let taken = burst.len().min(*left);
            *left -= taken;
            taken
        });
        let mut fabric = Adapter::new(NicFabric::new(carrier, [1; 32])).unwrap();
        let qpn = fabric.create_qp(QpAttr { mtu: 256, ..ATTR }).unwrap();
        let remote = RemoteQp { addr: ([10, 0, 0, 2], 5000).into(), qpn: Qpn(2) };
        let with = Some(sealing(Cipher::Aes256Gcm, 0));
        fabric.seal_qp(qpn, with).unwrap();
        fabric.connect_qp(qpn, remote).unwrap();
        let lkey = fabric.register(Region::owned(vec![0; 100])).unwrap();
        let mut texts: HashMap<u64, Vec<u8>> = HashMap::new();
        for step in steps {
            match step {
                SealingStep::Post { lengths, room: most } => {
                    *room.borrow_mut() = most;
                    let local: Vec<_> = lengths
                        .iter()
                        .map(|&length| [Sge { lkey, offset: 0, length }])
                        .collect();
                    let writes: Vec<_> = local
                        .iter()
                        .map(|local| WriteWr {
                            wr_id: 0,
                            signaled: false,
                            local,
                            remote_addr: 0,
                            rkey: Rkey(1),
                            imm: 0,
                        })
                        .collect();
                    let taken = fabric.post_writes(qpn, &writes).unwrap();
                    prop_assert_eq!(taken, most.min(lengths.len()));
                }
                SealingStep::Change(at) => fabric.copy_in(lkey, at, &[0xff]).unwrap(),
                SealingStep::Reconnect => {
                    fabric.disconnect_qp(qpn).unwrap();
                    fabric.seal_qp(qpn, with).unwrap();
                    fabric.connect_qp(qpn, remote).unwrap();
                }
            }
            for bytes in given.borrow_mut().drain(..) {
                let packet = Packet::parse(&bytes).unwrap();
                let counter = split(packet.payload()).unwrap().counter;
                let before = texts.insert(counter, bytes.clone());
                prop_assert!(before.is_none(), "counter {} twice", counter);
            }
        }
    }
}
