//! Tests of windows: where peers may write, and until when.

use farwrite_fabric::contract::{Fabric, FabricError, Lkey, Region, RemotePlace, Rkey, WindowSet};

use super::{
    PATIENCE, Pair, TARGET_BYTES, World, beyond, bytes, close, closed, joined, pattern, post, sge,
    travel, window, write,
};

/// Bytes of a slot in these tests.
const SLOT: u64 = 1000;

/// Returns a pair whose `b` has a set of four windows.
fn with_set<W: World>(world: &mut W) -> (Pair<'_, W>, WindowSet) {
    let mut pair = Pair::new(world);
    let set = pair.b.create_windows(&[pair.qb], 4, SLOT).unwrap();
    (pair, set)
}

pub(crate) fn bounds(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let (_, place) = pair.open(100..150);
    for at in [49, 50, 1 << 32, u64::MAX - 1, u64::MAX] {
        pair.write(0..2, place, at, 0);
    }
    pair.write(0..51, place, 0, 0);
    pair.nothing_lands();
    pair.write(0..50, place, 0, 0);
    pair.arrivals(1);
    let target = pair.target();
    assert_eq!(target[100..150], pattern(50));
    assert_eq!((target[99], target[150]), (0, 0));
}

pub(crate) fn bounds_of_opening(world: &mut impl World) {
    let (mut pair, set) = with_set(world);
    let (b, target) = (&mut pair.b, pair.target);
    let past_end = TARGET_BYTES as u64 - 5;
    for (slot, offset, length) in [
        (4, 0, 1),
        (u32::MAX, 0, 1),
        (0, 0, SLOT + 1),
        (0, past_end, 6),
        (0, TARGET_BYTES as u64 + 1, 0),
        (0, u64::MAX, 2),
        (0, 1, u64::MAX),
    ] {
        let error = b
            .open_window(set, slot, target, offset, length)
            .unwrap_err();
        assert!(matches!(error, FabricError::OutOfBounds { .. }), "{error}");
    }
    let unknown = [b.open_window(set, 0, Lkey(target.0 ^ 1), 0, 1), {
        let gone = b.create_windows(&[], 1, 1).unwrap();
        b.destroy_windows(gone).unwrap();
        b.open_window(gone, 0, target, 0, 1)
    }];
    for result in unknown {
        assert!(
            matches!(result, Err(FabricError::UnknownKey(_))),
            "{result:?}"
        );
    }
    // None of the refused calls left a window open.
    b.open_window(set, 0, target, 0, SLOT).unwrap();
    let twice = b.open_window(set, 0, target, 0, SLOT);
    assert!(matches!(twice, Err(FabricError::InUse(_))));
    b.open_window(set, 3, target, TARGET_BYTES as u64, 0)
        .unwrap();
}

pub(crate) fn attributes(world: &mut impl World) {
    let mut pair = Pair::new(world);
    for (slots, slot_bytes) in [
        (0, 10),
        (10, 0),
        (u32::MAX, u64::MAX),
        (2, 1 << 63),
        (u32::MAX, 1),
    ] {
        let error = pair
            .b
            .create_windows(&[pair.qb], slots, slot_bytes)
            .unwrap_err();
        assert!(matches!(error, FabricError::BadAttribute { .. }), "{error}");
    }
    // Slots may be larger than any memory.
    let wide = pair.b.create_windows(&[pair.qb], 2, (1 << 63) - 1).unwrap();
    let (_, place) = pair.b.open_window(wide, 1, pair.target, 0, 8).unwrap();
    pair.write(0..4, place, 4, 0);
    pair.arrivals(1);
    assert_eq!(pair.target()[..8], [0, 0, 0, 0, 1, 2, 3, 4]);
}

pub(crate) fn several_onto_one_region(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let mut want = vec![0; TARGET_BYTES];
    for range in [0..10, 5..15, 4000..4096] {
        let (_, place) = pair.open(range.clone());
        pair.write(range.clone(), place, 0, 0);
        pair.arrivals(1);
        want[range.clone()].copy_from_slice(&pattern(TARGET_BYTES)[range]);
    }
    assert!(pair.target() == want);
}

pub(crate) fn slots_are_apart(world: &mut impl World) {
    let (mut pair, set) = with_set(world);
    let second = pair.b.register(Region::owned(vec![0; 10])).unwrap();
    let (b, target) = (&mut pair.b, pair.target);
    let places = [
        b.open_window(set, 0, target, 4000, SLOT).unwrap().1,
        b.open_window(set, 1, second, 2, 8).unwrap().1,
        b.open_window(set, 3, target, 0, 100).unwrap().1,
    ];
    pair.write(0..1000, places[0], 0, 0);
    pair.write(0..8, places[1], 0, 0);
    pair.write(500..510, places[2], 90, 0);
    pair.arrivals(3);
    let pattern = pattern(TARGET_BYTES);
    let mut want = vec![0; TARGET_BYTES];
    want[4000..5000].copy_from_slice(&pattern[..1000]);
    want[90..100].copy_from_slice(&pattern[500..510]);
    assert!(pair.target() == want);
    assert_eq!(bytes(&pair.b, second, 10), [0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

pub(crate) fn straddling(world: &mut impl World) {
    let (mut pair, set) = with_set(world);
    // The two slots are also adjacent in memory.
    let (b, target) = (&mut pair.b, pair.target);
    let (_, place) = b.open_window(set, 0, target, 0, SLOT).unwrap();
    b.open_window(set, 1, target, SLOT, SLOT).unwrap();
    pair.write(0..4, place, SLOT - 2, 0);
    pair.nothing_lands();
}

pub(crate) fn late_packets_write_nothing(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let (opened, place) = pair.open(0..100);
    pair.write(0..4, place, 0, 0);
    travel(pair.world);
    pair.write(0..4, place, 0, 0);
    // One packet waits to be polled, the other may be in flight.
    close(pair.world, &mut pair.b, opened);
    // This one is late at every fabric.
    pair.write(100..104, place, 50, 0);
    travel(pair.world);
    let mut completions = Vec::new();
    while pair.b.poll(&mut completions).unwrap() {}
    pair.b.end_batch();
    let capabilities = pair.b.capabilities();
    let most = match capabilities.null_key_completes {
        true => 3,
        false => 2 * usize::from(capabilities.places_on_arrival),
    };
    assert!(completions.len() <= most, "{completions:?}");
    let region = pair.b.deregister(pair.target).unwrap();
    assert!(region[..4] == [0; 4] || capabilities.places_on_arrival);
    assert!(region[4..] == [0; TARGET_BYTES - 4]);
}

pub(crate) fn closed_after_the_batch(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let (first, place) = pair.open(0..100);
    let (second, _) = pair.open(100..200);
    pair.write(0..4, place, 0, 0);
    let mut completions = Vec::new();
    for _ in 0..PATIENCE {
        if !completions.is_empty() {
            break;
        }
        pair.world.step();
        pair.b.poll(&mut completions).unwrap();
    }
    assert_eq!(completions.len(), 1);
    // The caller still handles the completion.
    pair.b.close_window(first).unwrap();
    travel(pair.world);
    assert_eq!(pair.b.poll_closed(), None);
    assert!(matches!(
        pair.b.deregister(pair.target),
        Err(FabricError::InUse(_))
    ));
    pair.b.end_batch();
    assert_eq!(closed(pair.world, &mut pair.b), first);
    // The next poll ends a batch too.
    pair.b.poll(&mut completions).unwrap();
    pair.b.close_window(second).unwrap();
    travel(pair.world);
    assert_eq!(pair.b.poll_closed(), None);
    pair.b.poll(&mut completions).unwrap();
    assert_eq!(closed(pair.world, &mut pair.b), second);
    pair.b.end_batch();
    pair.b.deregister(pair.target).unwrap();
}

pub(crate) fn a_slot_is_free_at_once(world: &mut impl World) {
    let (mut pair, set) = with_set(world);
    let second = pair.b.register(Region::owned(vec![0; 8])).unwrap();
    let (b, target) = (&mut pair.b, pair.target);
    let (old, _) = b.open_window(set, 2, target, 0, SLOT).unwrap();
    b.close_window(old).unwrap();
    let (new, place) = b.open_window(set, 2, second, 0, 8).unwrap();
    assert_ne!(old, new);
    assert_eq!(closed(pair.world, &mut pair.b), old);
    pair.write(0..4, place, 0, 0);
    pair.arrivals(1);
    assert_eq!(bytes(&pair.b, second, 8), [1, 2, 3, 4, 0, 0, 0, 0]);
    assert!(*pair.b.deregister(pair.target).unwrap() == [0; TARGET_BYTES]);
    let again = pair.b.close_window(old);
    assert!(matches!(again, Err(FabricError::UnknownWindow(2))));
    close(pair.world, &mut pair.b, new);
}

pub(crate) fn closing_twice(world: &mut impl World) {
    let mut end = world.end(1);
    let lkey = end.register(Region::owned(vec![0; 100])).unwrap();
    let windows = [(); 3].map(|()| window(&mut end, &[], lkey, 0..100).0);
    for window in windows {
        end.close_window(window).unwrap();
        let again = end.close_window(window);
        assert!(matches!(again, Err(FabricError::UnknownWindow(0))));
    }
    assert_eq!([(); 3].map(|()| closed(world, &mut end)), windows);
    assert_eq!(end.poll_closed(), None);
}

pub(crate) fn destroying_a_set(world: &mut impl World) {
    let (mut pair, set) = with_set(world);
    let (b, target) = (&mut pair.b, pair.target);
    let (first, place) = b.open_window(set, 0, target, 0, SLOT).unwrap();
    let (second, _) = b.open_window(set, 3, target, 0, SLOT).unwrap();
    pair.write(0..4, place, 0, 0);
    travel(pair.world);
    pair.b.destroy_windows(set).unwrap();
    let both = [(); 2].map(|()| closed(pair.world, &mut pair.b));
    assert_eq!(both, [first, second]);
    let places_on_arrival = pair.b.capabilities().places_on_arrival;
    if places_on_arrival {
        pair.arrivals(1);
    }
    pair.write(0..4, place, 0, 0);
    pair.write(0..4, place, SLOT, 0);
    pair.nothing_lands();
    let unknown = [
        pair.b.destroy_windows(set),
        pair.b.close_window(first),
        pair.b.open_window(set, 1, pair.target, 0, 1).map(drop),
    ];
    for result in unknown {
        assert!(
            matches!(result, Err(FabricError::UnknownKey(_))),
            "{result:?}"
        );
    }
    let region = pair.b.deregister(pair.target).unwrap();
    assert!(region[..4] == [0; 4] || places_on_arrival);
    assert!(region[4..] == [0; TARGET_BYTES - 4]);
}

pub(crate) fn guessed_keys(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let (_, place) = pair.open(0..100);
    let key = place.rkey.0;
    // A local key gives a peer no access.
    for guess in [key ^ 1, key ^ 0x8000_0000, 0, pair.target.0] {
        let rkey = Rkey(guess);
        pair.write(0..4, RemotePlace { rkey, ..place }, 0, 0);
    }
    pair.nothing_lands();
    pair.write(0..4, beyond(place, 96), 0, 0);
    pair.arrivals(1);
}

pub(crate) fn keys_of_other_queue_pairs(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let (second, second_at_b) = joined(&mut pair.a, &mut pair.b, 0);
    let (_, place) = pair.open(0..100);
    let local = [sge(pair.source, 0..4)];
    if pair.b.capabilities().binds_windows {
        post(&mut pair.a, second, &write(&local, place, 0));
        pair.nothing_lands();
        // A queue pair that is created after the set has no access either. Here it also has no windows of its own.
        let (third, _) = joined(&mut pair.a, &mut pair.b, 0);
        post(&mut pair.a, third, &write(&local, place, 0));
        pair.nothing_lands();
    }
    // A set can belong to several queue pairs.
    let both = [pair.qb, second_at_b];
    let (_, shared) = window(&mut pair.b, &both, pair.target, 200..300);
    post(&mut pair.a, second, &write(&local, shared, 0));
    pair.write(0..4, beyond(shared, 4), 0, 0);
    pair.write(0..4, place, 0, 0);
    pair.arrivals(3);
    assert_eq!(pair.target()[200..208], [1, 2, 3, 4, 1, 2, 3, 4]);
    assert_eq!(pair.target()[..4], [1, 2, 3, 4]);
    // No set can be bound to a queue pair that was destroyed.
    pair.b.destroy_qp(second_at_b).unwrap();
    let unknown = pair.b.create_windows(&both, 1, 1);
    assert!(matches!(unknown, Err(FabricError::UnknownQp(qpn)) if qpn == second_at_b.0));
}
