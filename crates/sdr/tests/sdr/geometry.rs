//! The arithmetic of P3.1 to P3.5.

use farwrite_sdr::{ConfigError, Geometry, ImmediateParts, ImmediateSplit, QpConfig};
use proptest::prelude::*;

use crate::small;

fn with_split(id_bits: u8, offset_bits: u8, user_bits: u8) -> QpConfig {
    let mtu = 64;
    QpConfig {
        mtu,
        packets_per_chunk: 3,
        split: ImmediateSplit {
            id_bits,
            offset_bits,
            user_bits,
        },
        slots: 1 << id_bits.min(4),
        parity: false,
        max_message_bytes: u64::from(mtu) << offset_bits,
        generations: 3,
        channels: 3,
    }
}

/// Returns splits of 32 bits with enough packets for a user immediate.
fn any_split() -> impl Strategy<Value = QpConfig> {
    (0_u8..32, 0_u8..32)
        .prop_filter_map("32 bits", |(id_bits, offset_bits)| {
            let user_bits = 32_u8.checked_sub(id_bits + offset_bits)?;
            Some(with_split(id_bits, offset_bits, user_bits))
        })
        .prop_filter("room for an immediate", |config| config.validate().is_ok())
}

#[test]
fn splits_that_are_used_and_extreme_ones_are_taken() {
    for (id, offset, user) in [
        (10, 18, 4),
        (8, 22, 2),
        (0, 31, 1),
        (1, 31, 0),
        (0, 0, 32),
        (32, 0, 0),
        (16, 16, 0),
        (0, 16, 16),
    ] {
        let geometry = with_split(id, offset, user).validate().unwrap();
        let fragments = if user == 0 {
            0
        } else {
            32_u32.div_ceil(user.into())
        };
        assert_eq!(geometry.fragments(), fragments);
    }
    assert_eq!(QpConfig::default().validate().unwrap().fragments(), 8);
}

#[test]
fn each_field_is_refused_by_name() {
    let error = |change: fn(&mut QpConfig)| {
        let mut config = small();
        change(&mut config);
        config.validate().unwrap_err()
    };
    assert_eq!(error(|c| c.mtu = 66), ConfigError::Mtu(66));
    assert_eq!(error(|c| c.mtu = 0), ConfigError::Mtu(0));
    assert_eq!(error(|c| c.mtu = 1 << 20), ConfigError::Mtu(1 << 20));
    let chunk = error(|c| c.packets_per_chunk = 0);
    assert_eq!(chunk, ConfigError::PacketsPerChunk(0));
    let slots = error(|c| c.slots = 3);
    assert_eq!(
        slots,
        ConfigError::Slots {
            slots: 3,
            max: 1024
        }
    );
    let slots = error(|c| c.slots = 2048);
    assert_eq!(
        slots,
        ConfigError::Slots {
            slots: 2048,
            max: 1024
        }
    );
    let slots = error(|c| (c.slots, c.parity) = (1024, true));
    assert_eq!(
        slots,
        ConfigError::Slots {
            slots: 1024,
            max: 512
        }
    );
    let bytes = error(|c| c.max_message_bytes = (64 << 18) + 1);
    let max = 64 << 18;
    assert_eq!(
        bytes,
        ConfigError::MaxMessageBytes {
            bytes: max + 1,
            max
        }
    );
    assert!(matches!(
        error(|c| c.max_message_bytes = 0),
        ConfigError::MaxMessageBytes { .. }
    ));
    let generations = ConfigError::Generations;
    assert_eq!(error(|c| c.generations = 0), generations(0));
    assert_eq!(error(|c| c.generations = 1), generations(1));
    assert_eq!(error(|c| c.generations = 17), generations(17));
    assert_eq!(error(|c| c.channels = 65), ConfigError::Channels(65));
    assert!(matches!(
        error(|c| c.split.user_bits = 5),
        ConfigError::Split(_)
    ));
    let few = with_split(28, 2, 2).validate().unwrap_err();
    assert!(matches!(few, ConfigError::Fragments { fragments: 16, .. }));
    assert_eq!(
        error(|c| c.slots = 3).to_string(),
        "slots = 3: must be a power of two, and at most 1024: a message takes one id of the split, with parity two"
    );
}

#[test]
fn slots_and_generations_follow_the_message_number() {
    let geometry = small().validate().unwrap();
    let place = |message| (geometry.slot(message), geometry.generation(message));
    let places: Vec<_> = [0, 1, 3, 4, 15, 16, 17].map(place).into();
    assert_eq!(
        places,
        [(0, 0), (1, 0), (3, 0), (0, 1), (3, 3), (0, 0), (1, 0)]
    );
    assert_eq!(geometry.slot_base(3), 3 * 4096);
}

#[test]
fn a_slot_is_a_whole_number_of_chunks() {
    let config = QpConfig {
        max_message_bytes: 1000,
        ..small()
    };
    assert_eq!(config.validate().unwrap().slot_bytes(), 1024);
}

#[test]
fn short_messages_have_enough_packets_for_an_immediate() {
    let geometry = small().validate().unwrap();
    for (length, has_immediate, packets) in [
        (0, false, 1),
        (0, true, 8),
        (1, false, 1),
        (64, false, 1),
        (65, false, 2),
        (65, true, 8),
        (64 * 9, true, 9),
    ] {
        assert_eq!(geometry.packets(length, has_immediate), packets);
    }
    assert_eq!(geometry.packet_bytes(65, true, 1), Some(1));
    assert_eq!(geometry.packet_bytes(65, true, 7), Some(0));
    assert_eq!(geometry.packet_bytes(65, true, 8), None);
    assert_eq!(geometry.packet_bytes(65, false, 2), None);
    assert_eq!(geometry.packet_bytes(0, false, 0), Some(0));
}

fn channels_of(geometry: &Geometry, message: u64) -> Vec<u8> {
    (0..20)
        .map(|chunk| geometry.channel(message, chunk))
        .collect()
}

#[test]
fn channels_take_turns_in_runs_of_16_packets() {
    let config = QpConfig {
        channels: 3,
        ..small()
    };
    let geometry = config.validate().unwrap();
    let runs = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0, 1, 1, 1, 1];
    assert_eq!(channels_of(&geometry, 0), runs);
    assert_eq!(channels_of(&geometry, 4)[0], 1);
    let large_chunks = QpConfig {
        packets_per_chunk: 32,
        ..config
    };
    let geometry = large_chunks.validate().unwrap();
    assert_eq!(channels_of(&geometry, 1)[..4], [1, 2, 0, 1]);
}

proptest! {
    #[test]
    fn immediates_come_apart_as_they_were_put_together(config in any_split(), imm: u32) {
        let geometry = config.validate().unwrap();
        let parts = geometry.decode_immediate(imm);
        prop_assert_eq!(geometry.encode_immediate(parts), imm);
        prop_assert!(u64::from(parts.packet) < 1 << config.split.offset_bits);
        prop_assert!(u64::from(parts.slot) < 1 << config.split.id_bits);
        prop_assert!(u64::from(parts.fragment) < 1 << config.split.user_bits);
    }

    #[test]
    fn fragments_put_the_user_immediate_together(config in any_split(), immediate: u32) {
        let geometry = config.validate().unwrap();
        let mut got = 0;
        for packet in 0..geometry.fragments() {
            let fragment = geometry.fragment(immediate, packet);
            let parts = ImmediateParts { slot: 0, packet, fragment };
            let parts = geometry.decode_immediate(geometry.encode_immediate(parts));
            let (index, shift) = geometry.fragment_place(packet).unwrap();
            prop_assert_eq!(index, packet);
            got |= parts.fragment << shift;
        }
        if geometry.fragments() > 0 {
            prop_assert_eq!(got, immediate);
        }
    }

    #[test]
    fn packets_cover_a_message_once(length in 0_u64..4096, has_immediate: bool) {
        let geometry = small().validate().unwrap();
        let packets = geometry.packets(length, has_immediate);
        let mut covered = 0;
        for packet in 0..packets {
            let bytes = geometry.packet_bytes(length, has_immediate, packet).unwrap();
            prop_assert!(bytes == 0 || geometry.packet_offset(packet) == covered);
            covered += u64::from(bytes);
        }
        prop_assert_eq!(covered, length);
        prop_assert_eq!(geometry.packet_bytes(length, has_immediate, packets), None);
        prop_assert_eq!(geometry.chunks(length, has_immediate), packets.div_ceil(4));
    }
}
