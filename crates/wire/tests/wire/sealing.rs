//! Sealed packets (P2.7): layout, keys and the window of counters.

use std::collections::BTreeSet;

use farwrite_wire::request::WriteImm;
use farwrite_wire::sealing::{
    CounterWindow, DirectionSecret, SEALING_BYTES, associated_data, epoch, nonce, split,
};
use proptest::prelude::*;

const WRITE: WriteImm = WriteImm {
    dest_qp: 0x01_0203,
    psn: 0x04_0506,
    remote_addr: 0x0708_090a_0b0c_0d0e,
    rkey: 0x0f10_1112,
    imm: 0x1314_1516,
    payload_bytes: 40,
};

#[test]
fn the_tag_covers_all_headers_except_the_byte_that_changes_on_the_way() {
    let header = WRITE.header();
    let associated = associated_data(&header);
    assert_eq!(associated.len(), 31);
    for at in 0..header.len() {
        let mut changed = header;
        changed[at] ^= 1;
        let is_covered = associated_data(&changed) != associated;
        assert_eq!(is_covered, at != 4, "byte {at}");
    }
    assert_eq!(associated[..4], header[..4]);
    assert_eq!(associated[4..], header[5..]);
}

#[test]
fn nonces_are_the_counters() {
    assert_eq!(
        nonce(0x0102_0304_0506_0708),
        [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]
    );
}

/// RFC 9001 appendix B.1.1: with l blocks of 16 bytes in the longest packet, a key of AES-GCM seals at
/// most 2^35 / l packets.
#[test]
fn no_key_seals_more_packets_than_its_cipher_allows() {
    let longest_bytes = 65_468 + 31_u64;
    let blocks = longest_bytes.div_ceil(16);
    let packets = (1_u64 << 35) / blocks;
    let of_a_key = (0..64)
        .map(|bits| 1_u64 << bits)
        .find(|&counter| epoch(counter) == 1);
    assert_eq!(epoch(of_a_key.unwrap() - 1), 0);
    assert!(of_a_key.unwrap() <= packets, "{packets} packets");
}

/// Computes a key from the text of P2.7 alone.
#[test]
fn keys_are_those_of_the_specification() {
    let (receiver, sender) = ([1; 32], [2; 32]);
    let secret = blake3::derive_key(
        "farwrite 2026-11-27 keys of sealed data packets",
        &[receiver, sender].concat(),
    );
    let input = [&[0, 1, 2, 3][..], &[0, 0, 0, 0, 0, 0, 0, 9]].concat();
    let key = blake3::keyed_hash(&secret, &input);
    let ours = DirectionSecret::new(&receiver, &sender);
    assert_eq!(ours.key(0x01_0203, 9), *key.as_bytes());
    assert_eq!(format!("{ours:?}"), "DirectionSecret");
    let others = [
        DirectionSecret::new(&sender, &receiver).key(0x01_0203, 9),
        ours.key(0x01_0203, 8),
        ours.key(0x01_0204, 9),
    ];
    assert!(others.iter().all(|other| *other != ours.key(0x01_0203, 9)));
}

/// The highest counter at which a random case begins.
const MOST: u64 = u64::MAX - 1_000_000;

proptest! {
    #[test]
    fn payloads_are_divided_where_they_were_joined(
        ciphertext: Vec<u8>, counter: u64, tag: [u8; 16],
    ) {
        let payload = [&ciphertext[..], &counter.to_be_bytes(), &tag].concat();
        prop_assert_eq!(payload.len(), ciphertext.len() + SEALING_BYTES as usize);
        let sealed = split(&payload).unwrap();
        prop_assert_eq!(sealed.ciphertext, &ciphertext[..]);
        prop_assert_eq!((sealed.counter, sealed.tag), (counter, &tag));
        prop_assert!(split(&payload[..payload.len().min(23)]).is_none());
    }

    /// The window accepts each counter once, and each of the newest 2^16 that has not come.
    #[test]
    fn a_counter_is_accepted_once(
        base in prop_oneof![Just(0), Just(MOST), 0..=MOST],
        steps in prop::collection::vec((any::<bool>(), 0..70_000_u64), 1..200),
    ) {
        let (mut window, mut accepted) = (CounterWindow::default(), BTreeSet::new());
        let mut highest = base;
        for (is_ahead, step) in steps {
            let counter = match is_ahead {
                // Most steps are short, as on a path.
                true => highest + step % 3000,
                false => highest.saturating_sub(step),
            };
            let is_kept = accepted.last().is_none_or(|last| last - counter.min(*last) < 1 << 16);
            let is_new = is_kept && !accepted.contains(&counter);
            prop_assert_eq!(window.is_new(counter), is_new, "{} after {}", counter, highest);
            if is_new {
                window.accept(counter);
                accepted.insert(counter);
                highest = highest.max(counter);
                prop_assert_eq!(window.highest(), accepted.last().copied());
            }
        }
    }
}

#[test]
fn a_jump_forgets_what_it_leaves_behind() {
    for jump in [1 << 16, (1 << 16) + 64, 1 << 17, 1 << 40] {
        let mut window = CounterWindow::default();
        (0..1000).for_each(|counter| window.accept(counter));
        window.accept(jump);
        let oldest = jump - ((1 << 16) - 1);
        for counter in oldest..=jump {
            let was_accepted = counter < 1000 || counter == jump;
            assert_eq!(
                window.is_new(counter),
                !was_accepted,
                "{counter} after {jump}"
            );
        }
        assert!(!window.is_new(oldest - 1));
        // Nothing that is too old changes anything.
        window.accept(oldest - 1);
        assert!(window.is_new(oldest) == (oldest >= 1000));
    }
}
