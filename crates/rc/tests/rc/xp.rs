//! XP: messages that end in time, beside a reference that only lists which byte ranges are placed.

use std::collections::BTreeMap;

use crate::common::network::{Node, cable, connection, network, nic};
use farwrite_link::Rng;
use farwrite_net::header::Roce;
use farwrite_net::{
    CableConfig, Loss, MarkAt, Network, NodeId, Options, Payload, Red, Shape, SwitchConfig,
};
use farwrite_rc::xp::{
    CompleteBy, Completion, Config, ConfigError, End, PostError, QueuePair, Receive, Write,
};
use farwrite_rc::{Connection, Memory, Packet, Remote};
use farwrite_wire::header::{Bth, Reth};
use proptest::prelude::*;

const MTU: u32 = 256;
const LINE: u64 = 1_000_000_000_000;

fn queue_pair() -> QueuePair {
    queue_pair_by(CompleteBy::LastPacket)
}

fn queue_pair_by(complete_by: CompleteBy) -> QueuePair {
    QueuePair::new(&Config {
        peer_qpn: 7,
        mtu_bytes: MTU,
        line_rate_bps: LINE,
        max_requests: 64,
        complete_by,
        credit: None,
    })
    .unwrap()
}

/// The byte of a message at an offset, never 0.
fn byte(message: usize, offset: usize) -> u8 {
    u8::try_from((message * 31 + offset) % 255 + 1).unwrap()
}

fn write(message: usize, bytes: usize) -> Write {
    let data: Vec<u8> = (0..bytes).map(|offset| byte(message, offset)).collect();
    Write {
        id: message as u64,
        data: Payload::Bytes(data.into()),
        to: Remote {
            rkey: rkey(message),
            addr: 1000,
        },
        imm: 100 + u32::try_from(message).unwrap(),
        deadline_ns: None,
    }
}

/// Each message has memory of its own.
fn rkey(message: usize) -> u32 {
    u32::try_from(message).unwrap() + 1
}

fn memory(sizes: &[usize]) -> Memory {
    let mut memory = Memory::default();
    for (message, bytes) in sizes.iter().enumerate() {
        let region = vec![0; *bytes];
        memory.register(rkey(message), 1000, region).unwrap();
    }
    memory
}

/// All packets that a queue pair has to send, each at the time at which it leaves.
fn transmit(pair: &mut QueuePair, mut now_ns: u64) -> Vec<(u64, Packet)> {
    let mut packets = Vec::new();
    while let Some(at_ns) = pair.next_send_ns() {
        now_ns = now_ns.max(at_ns);
        packets.extend(pair.poll_transmit(now_ns).map(|packet| (now_ns, packet)));
    }
    packets
}

fn completions(pair: &mut QueuePair) -> Vec<Completion> {
    core::iter::from_fn(|| pair.poll_completion()).collect()
}

fn received(message: usize, bytes: usize, end: End) -> Completion {
    Completion::Received {
        id: message as u64,
        bytes: u32::try_from(bytes).unwrap(),
        end,
    }
}

/// What the rules of the paper make of packets, with counts that do not wrap.
#[derive(Default)]
struct Reference {
    active: usize,
    by_bytes: bool,
    /// Whether the last packet of the active message has arrived.
    has_last: bool,
    /// Placed ranges of each message: offset and bytes.
    placed: BTreeMap<usize, Vec<(usize, usize)>>,
    ends: Vec<Completion>,
}

impl Reference {
    fn bytes(&self) -> usize {
        let ranges = self.placed.get(&self.active).into_iter().flatten();
        ranges.map(|(_, bytes)| bytes).sum()
    }

    fn end(&mut self, end: End) {
        self.ends.push(received(self.active, self.bytes(), end));
        self.active += 1;
        self.has_last = false;
    }

    fn pass(&mut self, now_ns: u64, deadlines: &[Option<u64>]) {
        while let Some(Some(at_ns)) = deadlines.get(self.active)
            && *at_ns <= now_ns
        {
            self.end(End::TimedOut);
        }
    }

    fn arrive(
        &mut self,
        message: usize,
        offset: usize,
        bytes: usize,
        is_last: bool,
        [whole, posted]: [usize; 2],
    ) {
        if !(self.active..posted).contains(&message) {
            return;
        }
        while self.active < message {
            self.end(End::Preempted);
        }
        self.placed
            .entry(message)
            .or_default()
            .push((offset, bytes));
        self.has_last |= is_last;
        let imm = 100 + u32::try_from(message).unwrap();
        if self.by_bytes && self.bytes() >= whole {
            let imm = self.has_last.then_some(imm);
            self.end(End::Bytes { imm });
        } else if is_last && !self.by_bytes {
            self.end(End::Last { imm });
        }
    }
}

proptest! {
    /// Packets are lost, doubled and delayed, and receives have deadlines. Bytes and completions are those of the
    /// reference.
    #[test]
    fn what_is_placed_is_what_the_reference_places(
        sizes in prop::collection::vec(0usize..1500, 1..12),
        limits in prop::collection::vec(prop::option::of(0u64..400), 1..12),
        delay_ns in 1usize..200,
        by_bytes: bool,
        seed: u64,
    ) {
        let mut rng = Rng::new(seed);
        let mut sender = queue_pair();
        let complete_by = if by_bytes { CompleteBy::Bytes } else { CompleteBy::LastPacket };
        let mut receiver = queue_pair_by(complete_by);
        let mut memory = memory(&sizes);
        for (message, bytes) in sizes.iter().enumerate() {
            sender.post_write(write(message, *bytes)).unwrap();
        }
        for (message, deadline_ns) in limits.iter().enumerate() {
            let receive = Receive { id: message as u64, deadline_ns: *deadline_ns };
            receiver.post_receive(receive).unwrap();
        }
        let mut arrivals = Vec::new();
        for (at_ns, packet) in transmit(&mut sender, 0) {
            let copies = rng.below(3);
            let late_ns = |rng: &mut Rng| at_ns + rng.below(delay_ns) as u64;
            arrivals.extend((0..copies).map(|_| (late_ns(&mut rng), packet.clone())));
        }
        arrivals.sort_by_key(|(at_ns, _)| *at_ns);
        let mut reference = Reference { by_bytes, ..Reference::default() };
        for (at_ns, packet) in arrivals {
            // A user who is late with timers sees the same.
            while rng.chance(0.5) && let Some(timer_ns) = receiver.next_timeout(0).filter(|ns| *ns <= at_ns) {
                receiver.handle_timeout(timer_ns);
            }
            receiver.handle_packet(at_ns, &packet, &mut memory);
            reference.pass(at_ns, &limits);
            let reth = packet.header.reth.unwrap();
            let message = reth.rkey as usize - 1;
            reference.arrive(
                message,
                usize::try_from(reth.remote_addr).unwrap() - 1000,
                packet.payload.carried_bytes() as usize,
                packet.header.imm.is_some(),
                [sizes[message], limits.len()],
            );
        }
        receiver.handle_timeout(10_000);
        reference.pass(10_000, &limits);
        prop_assert_eq!(completions(&mut receiver), reference.ends);
        for (message, bytes) in sizes.iter().enumerate() {
            let mut want = vec![0; *bytes];
            for (offset, bytes) in reference.placed.get(&message).into_iter().flatten() {
                let range = *offset..offset + bytes;
                want[range.clone()].copy_from_slice(&range.map(|at| byte(message, at)).collect::<Vec<_>>());
            }
            prop_assert_eq!(memory.bytes(rkey(message)), Some(&want[..]));
        }
    }

    /// Whatever a peer sends, only memory that its key opens changes, and nothing ends twice.
    #[test]
    fn forged_packets_write_only_what_their_key_opens(
        packets in prop::collection::vec(
            (any::<u8>(), any::<u32>(), any::<u64>(), any::<u32>(), 0u32..3, 0usize..9000, any::<bool>()),
            0..60,
        ),
    ) {
        let mut pair = queue_pair();
        let mut memory = memory(&[600]);
        for id in 0..20 {
            pair.post_receive(Receive { id, deadline_ns: None }).unwrap();
        }
        for (opcode, psn, addr, dma_bytes, rkey, bytes, is_near) in packets {
            let (opcode, addr) = if is_near { (0x2A | opcode & 1, addr % 2000) } else { (opcode, addr) };
            let psn = if is_near { psn % 20 } else { psn & 0xFF_FFFF };
            let mut header = Roce::new(Bth::new(opcode, 7, psn));
            header.reth = Some(Reth { remote_addr: addr, rkey, dma_bytes });
            header.imm = (opcode == 0x2B).then_some(1);
            let payload = Payload::Bytes(vec![9; bytes].into());
            let before = memory.bytes(1).unwrap().to_vec();
            pair.handle_packet(0, &Packet { header, payload }, &mut memory);
            let after = memory.bytes(1).unwrap();
            let from = addr.wrapping_sub(1000);
            for (at, (old, new)) in before.iter().zip(after).enumerate() {
                let is_named = rkey == 1 && (from..from.saturating_add(bytes as u64)).contains(&(at as u64));
                prop_assert!(old == new || (is_named && bytes <= MTU as usize));
            }
        }
        let ids: Vec<_> = completions(&mut pair).into_iter().map(|done| match done {
            Completion::Received { id, .. } => id,
            sent @ Completion::Sent { .. } => panic!("{sent:?}"),
        }).collect();
        let in_order: Vec<_> = (0..ids.len() as u64).collect();
        prop_assert_eq!(ids, in_order);
    }
}

#[test]
fn a_message_arrives_whole_in_any_order_of_its_packets_but_the_last() {
    let (mut sender, mut receiver) = (queue_pair(), queue_pair());
    let mut memory = memory(&[1000]);
    sender.post_write(write(0, 1000)).unwrap();
    let receive = Receive {
        id: 0,
        deadline_ns: Some(9_000),
    };
    receiver.post_receive(receive).unwrap();
    let packets = transmit(&mut sender, 0);
    for at in [2, 0, 1, 3] {
        receiver.handle_packet(100, &packets[at].1, &mut memory);
    }
    let whole = received(0, 1000, End::Last { imm: 100 });
    assert_eq!(completions(&mut receiver), [whole]);
    let sent = Completion::Sent { id: 0, bytes: 1000 };
    assert_eq!(completions(&mut sender), [sent]);
    assert!(
        memory
            .bytes(1)
            .unwrap()
            .iter()
            .enumerate()
            .all(|(at, have)| *have == byte(0, at))
    );
    // The timer ended with the receive.
    assert_eq!(receiver.next_timeout(200), None);
}

/// Messages of 1000 bytes have four packets, the last one of 232 bytes.
#[test]
fn bytes_complete_a_message_whose_last_packet_comes_early_and_not_one_with_a_gap() {
    let (mut sender, mut receiver) = (queue_pair(), queue_pair_by(CompleteBy::Bytes));
    let mut memory = memory(&[1000, 1000, 1000]);
    for message in 0..3 {
        sender.post_write(write(message, 1000)).unwrap();
        let receive = Receive {
            id: message as u64,
            deadline_ns: Some(900),
        };
        receiver.post_receive(receive).unwrap();
    }
    let packets = transmit(&mut sender, 0);
    let mut arrive = |receiver: &mut QueuePair, at: usize| {
        receiver.handle_packet(100, &packets[at].1, &mut memory);
    };
    for at in [3, 0, 2] {
        arrive(&mut receiver, at);
    }
    assert_eq!(completions(&mut receiver), []);
    arrive(&mut receiver, 1);
    let whole = received(0, 1000, End::Bytes { imm: Some(100) });
    assert_eq!(completions(&mut receiver), [whole]);
    // Of the second message, a packet of 256 bytes is lost, and the third message ends it.
    for at in [4, 5, 7] {
        arrive(&mut receiver, at);
    }
    assert_eq!(completions(&mut receiver), []);
    arrive(&mut receiver, 8);
    let second = received(1, 744, End::Preempted);
    assert_eq!(completions(&mut receiver), [second]);
    // A packet that arrives twice counts twice: 4 * 256 bytes, and the immediate is missing with the last packet.
    for at in [9, 9, 10] {
        arrive(&mut receiver, at);
    }
    let third = received(2, 1024, End::Bytes { imm: None });
    assert_eq!(completions(&mut receiver), [third]);
    arrive(&mut receiver, 11);
    assert_eq!(receiver.counters().late, 1);
}

#[test]
fn a_late_packet_of_an_older_message_does_not_touch_memory() {
    let (mut sender, mut receiver) = (queue_pair(), queue_pair());
    let mut memory = memory(&[600, 600]);
    for message in 0..2 {
        sender.post_write(write(message, 600)).unwrap();
        let receive = Receive {
            id: message as u64,
            deadline_ns: Some(500),
        };
        receiver.post_receive(receive).unwrap();
    }
    let packets = transmit(&mut sender, 0);
    receiver.handle_packet(1, &packets[0].1, &mut memory);
    receiver.handle_packet(2, &packets[3].1, &mut memory);
    receiver.handle_packet(3, &packets[1].1, &mut memory);
    assert_eq!(
        completions(&mut receiver),
        [received(0, 256, End::Preempted)]
    );
    assert_eq!(memory.bytes(1).unwrap()[256..], [0; 344]);
    assert_eq!(
        (receiver.counters().late, receiver.counters().placed),
        (1, 2)
    );
    assert_eq!(receiver.next_timeout(3), Some(500));
    receiver.handle_timeout(500);
    assert_eq!(
        completions(&mut receiver),
        [received(1, 256, End::TimedOut)]
    );
    receiver.handle_packet(501, &packets[5].1, &mut memory);
    assert_eq!(
        (completions(&mut receiver), receiver.counters().late),
        (vec![], 2)
    );
}

#[test]
fn a_send_ends_at_its_deadline_with_what_has_left() {
    let mut sender = queue_pair();
    let first = Write {
        deadline_ns: Some(50),
        ..write(0, 1000)
    };
    sender.post_write(first).unwrap();
    sender.post_write(write(1, 256)).unwrap();
    let first = sender.poll_transmit(0).unwrap();
    assert_eq!((first.header.bth.psn, first.header.imm), (0, None));
    assert_eq!(sender.next_timeout(0), Some(50));
    let next = sender.poll_transmit(60).unwrap();
    assert_eq!((next.header.bth.psn, next.header.imm), (1, Some(101)));
    let sent = |id, bytes| Completion::Sent { id, bytes };
    assert_eq!(completions(&mut sender), [sent(0, 256), sent(1, 256)]);
}

#[test]
fn notifications_slow_the_sender_down() {
    let (mut sender, mut receiver) = (queue_pair(), queue_pair());
    receiver.notify_congestion();
    assert!(receiver.has_notification());
    let notification = receiver.poll_notification().unwrap();
    assert_eq!(receiver.poll_notification(), None);
    sender.handle_packet(0, &notification, &mut Memory::default());
    assert_eq!(
        (sender.rate_bps(), sender.counters().notifications),
        (LINE / 2, 1)
    );
    sender.post_write(write(0, 512)).unwrap();
    let gap_ns = |pair: &mut QueuePair| {
        let packets = transmit(pair, 0);
        packets[1].0 - packets[0].0
    };
    let slow_ns = gap_ns(&mut sender);
    let mut other = queue_pair();
    other.post_write(write(0, 512)).unwrap();
    let fast_ns = gap_ns(&mut other);
    assert!(
        (2 * fast_ns - 1..=2 * fast_ns).contains(&slow_ns),
        "{slow_ns} {fast_ns}"
    );
}

#[test]
fn what_cannot_be_posted_is_named() {
    let mut pair = queue_pair();
    for id in 0..64 {
        pair.post_receive(Receive {
            id,
            deadline_ns: Some(1),
        })
        .unwrap();
    }
    let full = pair.post_receive(Receive {
        id: 64,
        deadline_ns: None,
    });
    assert_eq!(full, Err(PostError::Full(64)));
    // Completions that nobody polls take room too.
    pair.handle_timeout(1);
    assert_eq!(pair.post_write(write(0, 1)), Err(PostError::Full(64)));
    completions(&mut pair);
    pair.post_write(write(0, 1)).unwrap();
    let long = Write {
        data: Payload::Ghost((1 << 31) + 1),
        ..write(0, 0)
    };
    assert_eq!(
        pair.post_write(long),
        Err(PostError::TooLong((1 << 31) + 1))
    );
    let cut = Write {
        data: Payload::Trimmed(8),
        ..write(0, 0)
    };
    assert_eq!(pair.post_write(cut), Err(PostError::Trimmed(8)));
}

#[test]
fn what_cannot_be_set_is_named() {
    let valid = Config {
        peer_qpn: 7,
        mtu_bytes: MTU,
        line_rate_bps: LINE,
        max_requests: 1,
        complete_by: CompleteBy::LastPacket,
        credit: None,
    };
    assert_eq!(valid.validate(), Ok(()));
    for (wrong, why) in [
        (
            Config {
                mtu_bytes: 300,
                ..valid
            },
            ConfigError::Mtu(300),
        ),
        (
            Config {
                peer_qpn: 1 << 24,
                ..valid
            },
            ConfigError::Peer(1 << 24),
        ),
        (
            Config {
                line_rate_bps: 0,
                ..valid
            },
            ConfigError::Zero {
                field: "line_rate_bps",
            },
        ),
        (
            Config {
                max_requests: 0,
                ..valid
            },
            ConfigError::Zero {
                field: "max_requests",
            },
        ),
    ] {
        assert_eq!(wrong.validate(), Err(why));
        assert_eq!(QueuePair::new(&wrong).unwrap_err(), why);
    }
}

const BYTES: u32 = 4_000_000;
const DEADLINE_NS: u64 = 5_000_000;

/// Three NICs at a switch that marks, on cables that lose packets.
fn lossy_star() -> (Network<Node>, Vec<NodeId>) {
    let cable = CableConfig {
        loss: Loss::Iid { loss_packet: 1e-2 },
        ..cable(25, 1_000)
    };
    let topology = Shape::Star { hosts: 3, cable }.build().unwrap();
    let switch = SwitchConfig {
        ecn: Some(Red {
            kmin_bytes: 5_000,
            kmax_bytes: 200_000,
            pmax: 0.01,
            at: MarkAt::Departure,
            rate_bps: None,
        }),
        ..SwitchConfig::default()
    };
    let network = network(&topology, &Options::with_switches(switch), 3);
    (network, topology.hosts().collect())
}

/// Posts a message from one NIC to another one, on queue pairs with these numbers.
fn post(network: &mut Network<Node>, ends: [(NodeId, u32); 2]) {
    let [(src, src_qpn), (dst, dst_qpn)] = ends;
    for (node, peer, peer_qpn) in [(src, dst, dst_qpn), (dst, src, src_qpn)] {
        let config = Config {
            peer_qpn,
            mtu_bytes: 4096,
            line_rate_bps: 25_000_000_000,
            max_requests: 2,
            complete_by: CompleteBy::LastPacket,
            credit: None,
        };
        let to = Connection {
            peer,
            ..connection()
        };
        nic(network, node).connect_xp(to, &config).unwrap();
    }
    let deadline_ns = Some(DEADLINE_NS);
    let receive = Receive { id: 0, deadline_ns };
    let receiver = nic(network, dst);
    receiver.post_xp_receive(dst_qpn, receive).unwrap();
    let write = Write {
        data: Payload::Ghost(BYTES),
        to: Remote { rkey: 1, addr: 0 },
        deadline_ns,
        ..write(0, 0)
    };
    nic(network, src).post_xp_write(src_qpn, write).unwrap();
}

#[test]
fn nics_share_a_port_and_every_message_ends_in_time() {
    let (mut network, hosts) = lossy_star();
    let memory = &mut nic(&mut network, hosts[2]).memory;
    memory.register_ghost(1, 0, BYTES.into()).unwrap();
    for (qpn, src) in (2..).zip(&hosts[..2]) {
        post(&mut network, [(*src, 2), (hosts[2], qpn)]);
    }
    network.run_until(DEADLINE_NS + 1);
    for (qpn, src) in (2..).zip(&hosts[..2]) {
        let receiver = nic(&mut network, hosts[2]);
        let received = receiver.poll_xp_completion(qpn).unwrap();
        let placed = receiver.xp_counters(qpn).unwrap().placed;
        let Completion::Received { bytes, .. } = received else {
            panic!("{received:?}")
        };
        // Each of two cables loses 1 %, and the last packet is shorter.
        let share = f64::from(bytes) / f64::from(BYTES);
        assert!((0.95..1.0).contains(&share), "{share}");
        assert_eq!(u64::from(bytes.div_ceil(4096)), placed);
        let sender = nic(&mut network, *src);
        assert_eq!(sender.poll_finished(), Some(2));
        let sent = sender.poll_xp_completion(2);
        assert_eq!(
            sent,
            Some(Completion::Sent {
                id: 0,
                bytes: BYTES
            })
        );
        assert!(sender.xp_counters(2).unwrap().notifications > 0);
        let of_other_kind = (sender.qp_counters(2), sender.poll_completion(2));
        assert_eq!(of_other_kind, (None, None));
    }
}
