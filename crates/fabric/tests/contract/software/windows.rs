//! Writes outside of open windows.

use farwrite_fabric::contract::{DropReason, Fabric, RemotePlace, Rkey};

use super::SoftwareWorld;
use crate::suite::{Got, Pair, TARGET_BYTES, beyond, close, joined, post, sge, travel, write};

pub(crate) fn out_of_bounds(world: &mut impl SoftwareWorld) {
    let mut pair = Pair::new(world);
    let set = pair.b.create_windows(&[pair.qb], 4, 1000).unwrap();
    let opened = pair.b.open_window(set, 0, pair.target, 0, 1000);
    let (_, place) = opened.unwrap();
    pair.b.open_window(set, 1, pair.target, 1000, 500).unwrap();
    let before = pair.before();
    // Between two windows, after one, between two slots without windows, after the last slot.
    let outside = [998, 1498, 1500, 2998, 4000, 1 << 32, u64::MAX - 1, u64::MAX];
    for at in outside {
        pair.write(0..4, place, at, 0);
    }
    pair.all_dropped(&before, DropReason::OutOfBounds, outside.len() as u64);
}

pub(crate) fn unknown_key(world: &mut impl SoftwareWorld) {
    let mut pair = Pair::new(world);
    let (_, place) = pair.open(0..100);
    let key = place.rkey.0;
    let before = pair.before();
    let wrong = [key ^ 1, key ^ 0x8000_0000, 0, pair.target.0];
    for guess in wrong {
        let rkey = Rkey(guess);
        pair.write(0..4, RemotePlace { rkey, ..place }, 0, 0);
    }
    pair.all_dropped(&before, DropReason::UnknownKey, wrong.len() as u64);
}

pub(crate) fn revoked_key(world: &mut impl SoftwareWorld) {
    let mut pair = Pair::new(world);
    let set = pair.b.create_windows(&[pair.qb], 4, 1000).unwrap();
    let opened = pair.b.open_window(set, 0, pair.target, 0, 1000);
    let (_, place) = opened.unwrap();
    let (_, stays) = pair.open(0..100);
    let before = pair.before();
    pair.write(0..4, place, 0, 0);
    travel(pair.world);
    pair.b.destroy_windows(set).unwrap();
    pair.write(0..4, place, 0, 0);
    pair.write(0..4, place, 3000, 0);
    pair.all_dropped(&before, DropReason::RevokedKey, 3);
    pair.write(0..4, stays, 0, 0);
    pair.arrivals(1);
}

pub(crate) fn null_key(world: &mut impl SoftwareWorld) {
    let mut pair = Pair::new(world);
    let (opened, place) = pair.open(0..100);
    close(pair.world, &mut pair.b, opened);
    assert!(pair.b.capabilities().null_key_completes);
    pair.write(0..4, place, 0, 77);
    let landed = Got::Write {
        qpn: pair.qb,
        imm: 77,
        bytes: 4,
    };
    assert_eq!(pair.arrivals(1), [landed]);
    let counters = pair.b.counters();
    assert_eq!(counters.dropped(DropReason::NullKey), 1);
    assert_eq!(counters.received_packets, 0);
    assert!(pair.b.memory(pair.target).unwrap() == [0; TARGET_BYTES]);
}

pub(crate) fn no_worker_to_wait_for(world: &mut impl SoftwareWorld) {
    let mut pair = Pair::new(world);
    let (opened, place) = pair.open(0..100);
    pair.write(0..4, place, 0, 0);
    travel(pair.world);
    // No worker is in a batch.
    pair.b.close_window(opened).unwrap();
    assert_eq!(pair.b.poll_closed(), Some(opened));
    assert_eq!(pair.b.poll_closed(), None);
}

pub(crate) fn foreign_key(world: &mut impl SoftwareWorld) {
    let mut pair = Pair::new(world);
    let set = pair.b.create_windows(&[pair.qb], 2, 100).unwrap();
    let opened = pair.b.open_window(set, 0, pair.target, 0, 100);
    let (_, place) = opened.unwrap();
    let (other, _) = joined(&mut pair.a, &mut pair.b, 0);
    let local = [sge(pair.source, 0..4)];
    let before = pair.before();
    // In an open window, at a slot without one, and beyond the set.
    for at in [0, 100, 200] {
        post(&mut pair.a, other, &write(&local, beyond(place, at), 0));
    }
    pair.all_dropped(&before, DropReason::ForeignKey, 3);
}
