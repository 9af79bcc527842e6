//! Root keys: bound slots, null keys. A fabric that has none says so.

use farwrite_fabric::contract::{Completion, DropReason, Fabric, FabricError, Rkey};

use super::{Pair, TARGET_BYTES, World, pattern, travel};

/// Bytes of a slot in these tests.
const SLOT: u64 = 1000;

/// A pair whose `b` has a root key of four slots; `None` where root keys are not to be had.
fn rooted<W: World>(world: &mut W) -> Option<(Pair<'_, W>, Rkey)> {
    let mut pair = Pair::new(world);
    pair.b.post_recv(pair.qb, 16).unwrap();
    let root = pair.b.create_root_key(4, SLOT);
    if pair.b.capabilities().root_keys {
        return Some((pair, root.unwrap()));
    }
    assert!(matches!(root, Err(FabricError::Unsupported(_))));
    None
}

pub(crate) fn slots_are_apart(world: &mut impl World) {
    let Some((mut pair, root)) = rooted(world) else {
        return;
    };
    let second = pair.b.register(Box::new(vec![0; 10])).unwrap();
    pair.b.bind(root, 0, pair.target, 4000, SLOT).unwrap();
    pair.b.bind(root, 1, second, 2, 8).unwrap();
    pair.b.bind(root, 3, pair.target, 0, 100).unwrap();
    pair.write(0..1000, 0, root, 0);
    pair.write(0..8, SLOT, root, 0);
    pair.write(500..510, 3 * SLOT + 90, root, 0);
    pair.arrivals(3);
    let pattern = pattern(TARGET_BYTES);
    let mut want = vec![0; TARGET_BYTES];
    want[4000..5000].copy_from_slice(&pattern[..1000]);
    want[90..100].copy_from_slice(&pattern[500..510]);
    assert!(pair.b.memory(pair.target).unwrap() == want);
    assert_eq!(
        pair.b.memory(second).unwrap(),
        [0, 0, 1, 2, 3, 4, 5, 6, 7, 8]
    );
}

pub(crate) fn bounds_of_a_slot(world: &mut impl World) {
    let Some((mut pair, root)) = rooted(world) else {
        return;
    };
    pair.b.bind(root, 1, pair.target, 0, 100).unwrap();
    pair.b.bind(root, 3, pair.target, 0, SLOT).unwrap();
    let before = pair.before();
    // Past what is bound, past the slot, past the last slot.
    let outside = [
        SLOT + 97,
        SLOT + 100,
        SLOT + 996,
        4 * SLOT - 3,
        4 * SLOT,
        u64::MAX - 1,
        u64::MAX,
    ];
    for addr in outside {
        pair.write(0..4, addr, root, 0);
    }
    pair.all_dropped(&before, DropReason::OutOfBounds, outside.len() as u64);
    pair.write(0..4, SLOT + 96, root, 0);
    pair.arrivals(1);
    assert_eq!(
        pair.b.memory(pair.target).unwrap()[95..101],
        [0, 1, 2, 3, 4, 0]
    );
}

pub(crate) fn straddling(world: &mut impl World) {
    let Some((mut pair, root)) = rooted(world) else {
        return;
    };
    // The two slots lie side by side in memory, too.
    pair.b.bind(root, 0, pair.target, 0, SLOT).unwrap();
    pair.b.bind(root, 1, pair.target, SLOT, SLOT).unwrap();
    let before = pair.before();
    pair.write(0..4, SLOT - 2, root, 0);
    // Unbound ones are no different.
    pair.write(0..4, 3 * SLOT - 2, root, 0);
    pair.all_dropped(&before, DropReason::OutOfBounds, 2);
}

pub(crate) fn null_key(world: &mut impl World) {
    let Some((mut pair, root)) = rooted(world) else {
        return;
    };
    pair.b.bind(root, 1, pair.target, 0, SLOT).unwrap();
    let completes = pair.b.capabilities().null_key_completes;
    pair.write(0..4, 2 * SLOT, root, 77);
    if completes {
        let qpn = pair.qb;
        let landed = Completion::Write {
            qpn,
            imm: 77,
            bytes: 4,
        };
        assert_eq!(pair.arrivals(1), [landed]);
    } else {
        let before = pair.before();
        pair.all_dropped(&before, DropReason::NullKey, 1);
    }
    let counters = pair.b.counters();
    assert_eq!(counters.dropped(DropReason::NullKey), 1);
    assert_eq!(counters.received_packets, 0);
    assert!(pair.b.memory(pair.target).unwrap() == [0; TARGET_BYTES]);
}

pub(crate) fn unbinding_is_synchronous(world: &mut impl World) {
    let Some((mut pair, root)) = rooted(world) else {
        return;
    };
    pair.b.bind(root, 2, pair.target, 0, SLOT).unwrap();
    pair.write(0..4, 2 * SLOT, root, 0);
    travel(pair.world);
    pair.b.unbind(root, 2).unwrap();
    let taken = usize::from(pair.b.capabilities().null_key_completes);
    pair.arrivals(taken);
    let second = pair.b.register(Box::new(vec![0; 8])).unwrap();
    pair.b.bind(root, 2, second, 0, 8).unwrap();
    pair.write(0..4, 2 * SLOT, root, 0);
    pair.arrivals(1);
    assert_eq!(pair.b.memory(second).unwrap(), [1, 2, 3, 4, 0, 0, 0, 0]);
    let buffer = pair.b.deregister(pair.target).unwrap();
    assert!((*buffer).as_ref() == [0; TARGET_BYTES]);
}

pub(crate) fn binding(world: &mut impl World) {
    let Some((mut pair, root)) = rooted(world) else {
        return;
    };
    let (b, target) = (&mut pair.b, pair.target);
    let out_of_bounds = [
        b.bind(root, 4, target, 0, 1),
        b.bind(root, 0, target, 0, SLOT + 1),
        b.bind(root, 0, target, TARGET_BYTES as u64 - 5, 6),
        b.bind(root, 0, target, u64::MAX, 2),
        b.unbind(root, 4),
    ];
    for result in out_of_bounds {
        assert!(
            matches!(result, Err(FabricError::OutOfBounds { .. })),
            "{result:?}"
        );
    }
    let plain = b.expose(target, 0, 10).unwrap();
    let unknown = [
        b.bind(plain, 0, target, 0, 1),
        b.bind(Rkey(root.0 ^ 1), 0, target, 0, 1),
        b.bind(root, 0, farwrite_fabric::contract::Lkey(target.0 ^ 1), 0, 1),
        b.unbind(plain, 0),
    ];
    for result in unknown {
        assert!(
            matches!(result, Err(FabricError::UnknownKey(_))),
            "{result:?}"
        );
    }
    b.revoke(plain).unwrap();
    // None of the refused ones left anything bound.
    b.bind(root, 0, target, 0, SLOT).unwrap();
    let twice = b.bind(root, 0, target, 0, SLOT);
    assert!(matches!(twice, Err(FabricError::InUse(_))));
    assert!(matches!(b.deregister(target), Err(FabricError::InUse(_))));
    b.unbind(root, 0).unwrap();
    b.unbind(root, 0).unwrap();
    assert!(b.deregister(target).is_ok());
}

pub(crate) fn attributes(world: &mut impl World) {
    let Some((mut pair, root)) = rooted(world) else {
        return;
    };
    for (slots, slot_bytes) in [
        (0, 10),
        (10, 0),
        (u32::MAX, u64::MAX),
        (2, 1 << 63),
        (u32::MAX, 1),
    ] {
        let error = pair.b.create_root_key(slots, slot_bytes).unwrap_err();
        assert!(matches!(error, FabricError::BadAttribute { .. }), "{error}");
    }
    // Slots may be larger than any memory.
    let wide = pair.b.create_root_key(2, (1 << 63) - 1).unwrap();
    assert_ne!(wide, root);
    pair.b.bind(wide, 1, pair.target, 0, 8).unwrap();
    pair.write(0..4, (1 << 63) + 3, wide, 0);
    pair.arrivals(1);
    assert_eq!(
        pair.b.memory(pair.target).unwrap()[..8],
        [0, 0, 0, 0, 1, 2, 3, 4]
    );
}

pub(crate) fn revoking(world: &mut impl World) {
    let Some((mut pair, root)) = rooted(world) else {
        return;
    };
    pair.b.bind(root, 0, pair.target, 0, SLOT).unwrap();
    pair.b.bind(root, 1, pair.target, 0, SLOT).unwrap();
    let before = pair.before();
    pair.write(0..4, 0, root, 0);
    travel(pair.world);
    pair.b.revoke(root).unwrap();
    pair.write(0..4, SLOT, root, 0);
    pair.write(0..4, 3 * SLOT, root, 0);
    pair.all_dropped(&before, DropReason::RevokedKey, 3);
    let again = pair.b.bind(root, 2, pair.target, 0, 1);
    assert!(matches!(again, Err(FabricError::UnknownKey(_))));
    assert!(pair.b.deregister(pair.target).is_ok());
}
