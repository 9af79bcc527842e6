//! Memory and plain keys.

use farwrite_fabric::contract::{DropReason, Fabric, FabricError, Lkey, Rkey};

use super::{Pair, TARGET_BYTES, World, pattern, travel};

pub(crate) fn memory_comes_and_goes(world: &mut impl World) {
    let mut end = world.end(1);
    let lkey = end.register(Box::new(pattern(100))).unwrap();
    let empty = end.register(Box::new(Vec::new())).unwrap();
    assert_ne!(lkey, empty);
    end.memory_mut(lkey).unwrap()[3] = 0;
    assert_eq!(end.memory(lkey).unwrap()[2..5], [3, 0, 5]);
    assert_eq!(end.memory(empty).unwrap(), []);
    let buffer = end.deregister(lkey).unwrap();
    assert_eq!((*buffer).as_ref()[2..5], [3, 0, 5]);
    for error in [
        end.deregister(lkey).err().unwrap(),
        end.memory(lkey).err().unwrap(),
        end.memory_mut(lkey).err().unwrap(),
        end.expose(lkey, 0, 0).unwrap_err(),
    ] {
        assert!(
            matches!(error, FabricError::UnknownKey(key) if key == lkey.0),
            "{error}"
        );
    }
}

pub(crate) fn two_regions_at_once(world: &mut impl World) {
    let mut end = world.end(1);
    let from = end.register(Box::new(pattern(100))).unwrap();
    let to = end.register(Box::new(vec![0; 50])).unwrap();
    let (read, write) = end.memory_pair(from, to).unwrap();
    write.copy_from_slice(&read[50..]);
    assert_eq!(end.memory(to).unwrap(), &pattern(100)[50..]);
    assert!(matches!(
        end.memory_pair(from, from),
        Err(FabricError::InUse(_))
    ));
    end.deregister(to).unwrap();
    for (read, write) in [(from, to), (to, from)] {
        let error = end.memory_pair(read, write).unwrap_err();
        assert!(
            matches!(error, FabricError::UnknownKey(key) if key == to.0),
            "{error}"
        );
    }
}

pub(crate) fn bounds_of_a_window(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let rkey = pair.b.expose(pair.target, 100, 50).unwrap();
    pair.b.post_recv(pair.qb, 1).unwrap();
    let before = pair.before();
    let outside = [49, 50, 1 << 32, u64::MAX - 1, u64::MAX];
    for addr in outside {
        pair.write(0..2, addr, rkey, 0);
    }
    pair.write(0..51, 0, rkey, 0);
    let count = outside.len() as u64 + 1;
    pair.all_dropped(&before, DropReason::OutOfBounds, count);
    // None of them used up the receive.
    pair.write(0..50, 0, rkey, 0);
    pair.arrivals(1);
    let memory = pair.b.memory(pair.target).unwrap();
    assert_eq!(memory[100..150], pattern(50));
    assert_eq!((memory[99], memory[150]), (0, 0));
}

pub(crate) fn bounds_of_exposing(world: &mut impl World) {
    let mut end = world.end(1);
    let lkey = end.register(Box::new(vec![0; 100])).unwrap();
    for (offset, length) in [(0, 101), (100, 1), (101, 0), (u64::MAX, 1), (1, u64::MAX)] {
        let error = end.expose(lkey, offset, length).unwrap_err();
        assert!(
            matches!(error, FabricError::OutOfBounds { limit: 100, .. }),
            "{error}"
        );
    }
    let whole = end.expose(lkey, 0, 100).unwrap();
    assert_ne!(whole, end.expose(lkey, 100, 0).unwrap());
}

pub(crate) fn unknown_key(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let rkey = pair.b.expose(pair.target, 0, 100).unwrap();
    pair.b.post_recv(pair.qb, 1).unwrap();
    let before = pair.before();
    // A local key opens nothing to a peer.
    let wrong = [rkey.0 ^ 1, rkey.0 ^ 0x8000_0000, 0, pair.target.0];
    for key in wrong {
        pair.write(0..4, 0, Rkey(key), 0);
    }
    pair.all_dropped(&before, DropReason::UnknownKey, wrong.len() as u64);
    pair.write(0..4, 0, rkey, 0);
    pair.arrivals(1);
    let error = pair.b.revoke(Rkey(rkey.0 ^ 1)).unwrap_err();
    assert!(matches!(error, FabricError::UnknownKey(_)));
}

pub(crate) fn revoked_key(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let gone = pair.b.expose(pair.target, 0, 100).unwrap();
    let stays = pair.b.expose(pair.target, 0, 100).unwrap();
    pair.b.post_recv(pair.qb, 1).unwrap();
    pair.b.revoke(gone).unwrap();
    assert!(matches!(
        pair.b.revoke(gone),
        Err(FabricError::UnknownKey(_))
    ));
    let before = pair.before();
    pair.write(0..4, 0, gone, 0);
    pair.all_dropped(&before, DropReason::RevokedKey, 1);
    pair.write(0..4, 0, stays, 0);
    pair.arrivals(1);
}

pub(crate) fn revoking_is_synchronous(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let rkey = pair.b.expose(pair.target, 0, 100).unwrap();
    pair.b.post_recv(pair.qb, 2).unwrap();
    let before = pair.before();
    pair.write(0..4, 0, rkey, 0);
    travel(pair.world);
    pair.write(0..4, 0, rkey, 0);
    // One packet waits to be polled, the other may be under way.
    pair.b.revoke(rkey).unwrap();
    pair.all_dropped(&before, DropReason::RevokedKey, 2);
    let buffer = pair.b.deregister(pair.target).unwrap();
    assert!((*buffer).as_ref() == [0; TARGET_BYTES]);
}

pub(crate) fn in_use_while_exposed(world: &mut impl World) {
    let mut end = world.end(1);
    let lkey = end.register(Box::new(vec![0; 100])).unwrap();
    let keys = [(); 2].map(|()| end.expose(lkey, 0, 100).unwrap());
    for key in keys {
        assert!(matches!(end.deregister(lkey), Err(FabricError::InUse(_))));
        assert_eq!(end.memory(lkey).unwrap().len(), 100);
        end.revoke(key).unwrap();
    }
    assert!(end.deregister(lkey).is_ok());
    assert!(matches!(
        end.memory(Lkey(0)),
        Err(FabricError::UnknownKey(0))
    ));
}

pub(crate) fn several_windows(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let windows = [0..10, 5..15, 4000..4096];
    pair.b.post_recv(pair.qb, 3).unwrap();
    let mut want = vec![0; TARGET_BYTES];
    for range in windows {
        let (offset, length) = (range.start as u64, range.len() as u64);
        let rkey = pair.b.expose(pair.target, offset, length).unwrap();
        pair.write(range.clone(), 0, rkey, 0);
        pair.arrivals(1);
        want[range.clone()].copy_from_slice(&pattern(TARGET_BYTES)[range]);
    }
    assert!(pair.b.memory(pair.target).unwrap() == want);
}
