//! Message numbers that wrap, and late packets of every older generation (paper section 3.3).

use std::collections::{BTreeMap, VecDeque};

use farwrite_sdr::{Arrival, Event, PacketWrite, QpConfig, SdrQp, SendSpec};
use farwrite_wire::control::Outcome;

use crate::release::release;
use crate::{connected, post, tell};

const LENGTH: u32 = 100;

/// The memory behind the receiver's root keys, one key per generation. It maps (generation, slot)
/// to a buffer.
#[derive(Default)]
struct Memory {
    bound: BTreeMap<(u8, u64), Vec<u8>>,
}

impl Memory {
    /// Writes a packet like the NIC. All bytes of its payload are `value`.
    fn write(&mut self, slot_bytes: u64, packet: &PacketWrite, value: u8) {
        let generation = u8::try_from(packet.rkey).unwrap();
        let slot = packet.remote_addr / slot_bytes;
        if let Some(buffer) = self.bound.get_mut(&(generation, slot)) {
            let at = usize::try_from(packet.remote_addr % slot_bytes).unwrap();
            buffer[at..at + packet.bytes as usize].fill(value);
        }
    }
}

fn value_of(message: u64) -> u8 {
    u8::try_from(message % 251).unwrap()
}

fn arrive(receiver: &SdrQp, packet: &PacketWrite) -> Arrival {
    let table = receiver.table();
    table.handle_packet(packet.generation, packet.imm, packet.bytes)
}

/// Sends one message and returns its packets. Calls `disturb` when half of the message has arrived.
fn transfer(
    sender: &mut SdrQp,
    receiver: &mut SdrQp,
    memory: &mut Memory,
    disturb: impl FnOnce(&mut SdrQp, &mut Memory),
) -> Vec<PacketWrite> {
    let slot_bytes = receiver.geometry().slot_bytes();
    let spec = SendSpec {
        length: Some(LENGTH.into()),
        ..SendSpec::default()
    };
    let message = sender.start_send(spec).unwrap();
    tell(0, sender, receiver);
    let bitmap = post(receiver, LENGTH.into());
    assert_eq!(bitmap.message(), message);
    let generation = receiver.geometry().generation(message);
    let slot = receiver.geometry().slot(message);
    let key = (generation, u64::from(slot));
    assert!(
        memory
            .bound
            .insert(key, vec![0xff; LENGTH as usize])
            .is_none()
    );
    tell(0, receiver, sender);
    assert_eq!(
        sender.poll_event(),
        Some(Event::ClearToSend {
            message: message.into()
        })
    );

    let packets: Vec<_> = sender.writes(message, 0..1).collect();
    assert_eq!(packets.len(), 2);
    memory.write(slot_bytes, &packets[0], value_of(message));
    assert!(matches!(arrive(receiver, &packets[0]), Arrival::New { .. }));
    disturb(receiver, memory);
    assert_eq!((bitmap.count(), bitmap.packets(0)), (0, 1));
    memory.write(slot_bytes, &packets[1], value_of(message));
    let whole = Arrival::New {
        message: message.into(),
        chunk_completed: Some(0),
    };
    assert_eq!(arrive(receiver, &packets[1]), whole);
    assert!(bitmap.is_complete());

    receiver.complete_recv(message, Outcome::Whole).unwrap();
    release(receiver, message);
    let buffer = memory.bound.remove(&key).unwrap();
    assert!(buffer.iter().all(|&byte| byte == value_of(message)));
    tell(0, receiver, sender);
    let outcome = Outcome::Whole;
    assert_eq!(
        sender.poll_event(),
        Some(Event::Closed { message, outcome })
    );
    while receiver.poll_event().is_some() {}
    packets
}

#[test]
fn ten_thousand_messages_with_late_packets_of_every_generation() {
    let config = QpConfig {
        mtu: 64,
        packets_per_chunk: 2,
        max_message_bytes: 1024,
        ..QpConfig::default()
    };
    let (slots, generations) = (u64::from(config.slots), u64::from(config.generations));
    let mut sender = connected(config);
    let mut receiver = connected(config);
    let mut memory = Memory::default();
    // The packets of the last `slots * (generations - 1)` messages, newest first.
    let mut sent: VecDeque<Vec<PacketWrite>> = VecDeque::new();
    let mut late = 0;
    for message in 0..10_000_u64 {
        let packets = transfer(
            &mut sender,
            &mut receiver,
            &mut memory,
            |receiver, memory| {
                for back in 1..generations {
                    let Some(old) = message.checked_sub(back * slots) else {
                        break;
                    };
                    let index = usize::try_from(back * slots - 1).unwrap();
                    for packet in &sent[index] {
                        memory.write(receiver.geometry().slot_bytes(), packet, 0xaa);
                        assert_eq!(arrive(receiver, packet), Arrival::Late { message: old });
                        receiver.handle_late(old);
                        late += 1;
                    }
                }
            },
        );
        sent.push_front(packets);
        sent.truncate(usize::try_from(slots * (generations - 1)).unwrap());
    }
    let expected = (1..generations)
        .map(|back| 10_000 - back * slots)
        .sum::<u64>();
    assert_eq!(late, 2 * expected);
}

#[test]
fn a_packet_of_a_message_that_is_over_is_late() {
    let config = QpConfig {
        generations: 2,
        slots: 1,
        ..crate::small()
    };
    let (mut sender, mut receiver) = (connected(config), connected(config));
    let mut memory = Memory::default();
    let packets = transfer(&mut sender, &mut receiver, &mut memory, |_, _| {});
    assert_eq!(arrive(&receiver, &packets[1]), Arrival::Late { message: 0 });
}
