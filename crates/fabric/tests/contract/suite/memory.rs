//! Memory: registration, copies, sends from it, writes into it, deregistration.
#![allow(unsafe_code)]

use farwrite_fabric::contract::{Fabric, FabricError, Lkey, Region, RemotePlace, Rkey, WriteWr};

use super::{
    Got, MTU, Pair, TARGET_BYTES, World, arrivals, bytes, close, closed, departures, joined,
    pattern, post, sge, window, write,
};

pub(crate) fn comes_and_goes(world: &mut impl World) {
    let mut end = world.end(1);
    let lkey = end.register(Region::owned(pattern(100))).unwrap();
    let empty = end.register(Region::owned(Vec::new())).unwrap();
    assert_ne!(lkey, empty);
    end.copy_in(lkey, 3, &[0]).unwrap();
    assert_eq!(end.memory(lkey).unwrap()[2..5], [3, 0, 5]);
    assert_eq!(end.memory(empty).unwrap(), []);
    assert_eq!(end.region(lkey).unwrap().length(), 100);
    let region = end.deregister(lkey).unwrap();
    assert_eq!(region[2..5], [3, 0, 5]);
    let set = end.create_windows(&[], 1, 100).unwrap();
    for error in [
        end.deregister(lkey).err().unwrap(),
        end.region(lkey).err().unwrap(),
        end.memory(lkey).err().unwrap(),
        end.copy_out(lkey, 0, &mut []).unwrap_err(),
        end.copy_in(lkey, 0, &[]).unwrap_err(),
        end.open_window(set, 0, lkey, 0, 0).unwrap_err(),
    ] {
        assert!(
            matches!(error, FabricError::UnknownKey(key) if key == lkey.0),
            "{error}"
        );
    }
    let again = end.register(region).unwrap();
    assert_eq!(end.memory(again).unwrap()[2..5], [3, 0, 5]);
    assert!(matches!(
        end.memory(Lkey(0)),
        Err(FabricError::UnknownKey(0))
    ));
}

pub(crate) fn copies_stay_in_bounds(world: &mut impl World) {
    let mut end = world.end(1);
    let lkey = end.register(Region::owned(pattern(10))).unwrap();
    let mut out = [0; 4];
    end.copy_out(lkey, 6, &mut out).unwrap();
    assert_eq!(out, [7, 8, 9, 10]);
    end.copy_in(lkey, 6, &[4, 3, 2, 1]).unwrap();
    assert_eq!(end.memory(lkey).unwrap()[5..], [6, 4, 3, 2, 1]);
    for offset in [7, 11, u64::MAX] {
        let errors = [
            end.copy_out(lkey, offset, &mut out).unwrap_err(),
            end.copy_in(lkey, offset, &out).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, FabricError::OutOfBounds { limit: 10, .. }));
        }
    }
    assert_eq!(out, [7, 8, 9, 10]);
    assert_eq!(end.memory(lkey).unwrap()[..7], [1, 2, 3, 4, 5, 6, 4]);
}

pub(crate) fn in_use_while_a_window_is_open(world: &mut impl World) {
    let mut end = world.end(1);
    let lkey = end.register(Region::owned(pattern(100))).unwrap();
    let windows = [0, 50].map(|at| window(&mut end, &[], lkey, at..at + 50).0);
    for window in windows {
        assert!(matches!(end.deregister(lkey), Err(FabricError::InUse(_))));
        assert!(matches!(end.memory(lkey), Err(FabricError::InUse(_))));
        assert_eq!(bytes(&end, lkey, 100), pattern(100));
        end.close_window(window).unwrap();
    }
    assert_eq!([closed(world, &mut end), closed(world, &mut end)], windows);
    assert_eq!(end.memory(lkey).unwrap(), pattern(100));
    assert!(end.deregister(lkey).is_ok());
}

pub(crate) fn a_callers_memory(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let mut memory = vec![0_u8; 100];
    // SAFETY: the vector outlives the region, and is not used before the region is returned.
    let region = unsafe { Region::from_raw_parts(memory.as_mut_ptr(), memory.len()) };
    let lkey = pair.b.register(region).unwrap();
    let (opened, place) = window(&mut pair.b, &[pair.qb], lkey, 10..100);
    pair.write(0..20, place, 5, 0);
    pair.arrivals(1);
    close(pair.world, &mut pair.b, opened);
    // Packets are also sent from this memory.
    let local = [sge(lkey, 15..35)];
    let (_, back) = window(&mut pair.a, &[pair.qa], pair.source, 1000..1020);
    post(&mut pair.b, pair.qb, &write(&local, back, 0));
    arrivals(pair.world, &mut pair.a, 1);
    assert_eq!(bytes(&pair.a, pair.source, 1020)[1000..], pattern(20));
    drop(pair.b.deregister(lkey).unwrap());
    assert_eq!(memory[15..35], pattern(20));
    assert!(
        memory[..15]
            .iter()
            .chain(&memory[35..])
            .all(|&byte| byte == 0)
    );
}

pub(crate) fn read_only(world: &mut impl World) {
    const BYTES: &[u8] = &[7; 20];
    let mut pair = Pair::new(world);
    let lkey = pair.a.register(Region::read_only(BYTES)).unwrap();
    let set = pair.a.create_windows(&[pair.qa], 1, 20).unwrap();
    let opened = pair.a.open_window(set, 0, lkey, 0, 20);
    assert!(matches!(opened, Err(FabricError::ReadOnly)));
    let copied = pair.a.copy_in(lkey, 0, &[1]);
    assert!(matches!(copied, Err(FabricError::ReadOnly)));
    // It can be sent.
    let (_, place) = pair.open(0..20);
    let local = [sge(lkey, 0..20)];
    let write = WriteWr {
        signaled: true,
        ..write(&local, place, 0)
    };
    post(&mut pair.a, pair.qa, &write);
    pair.arrivals(1);
    assert_eq!(pair.target()[..20], *BYTES);
    departures(pair.world, &mut pair.a, 1);
    assert_eq!(*pair.a.deregister(lkey).unwrap(), *BYTES);
}

pub(crate) fn comes_back_after_departure(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let (_, place) = pair.open(0..100);
    let local = [sge(pair.source, 0..100)];
    for (wr_id, signaled) in [(0, false), (1, true)] {
        let write = WriteWr {
            wr_id,
            signaled,
            ..write(&local, place, 0)
        };
        post(&mut pair.a, pair.qa, &write);
    }
    departures(pair.world, &mut pair.a, 1);
    let region = pair.a.deregister(pair.source).unwrap();
    // The fabric no longer reads the memory of a packet that has departed.
    drop(region);
    pair.arrivals(2);
    assert_eq!(pair.target()[..100], pattern(100));
}

pub(crate) fn sent_while_a_peer_may_write(world: &mut impl World) {
    let mut pair = Pair::new(world);
    // `b` can write all of the source while it is sent.
    let (_, back) = window(&mut pair.a, &[pair.qa], pair.source, 0..TARGET_BYTES);
    let (_, place) = pair.open(0..TARGET_BYTES);
    let other = pair.a.register(Region::owned(vec![0xEE; 40])).unwrap();
    let mtu = MTU as usize;
    let mixed = [sge(pair.source, 0..10), sge(other, 0..40)];
    for (at, local) in [
        (0, &[sge(pair.source, 0..mtu)][..]),
        (mtu, &[sge(other, 0..40)]),
        (2 * mtu, &mixed),
        (3 * mtu, &[sge(pair.source, 7..8)]),
    ] {
        let to = super::beyond(place, at as u64);
        post(&mut pair.a, pair.qa, &write(local, to, 0));
    }
    pair.arrivals(4);
    let target = pair.target();
    assert_eq!(target[..mtu], pattern(mtu));
    assert_eq!(target[mtu..mtu + 40], [0xEE; 40]);
    assert_eq!(target[2 * mtu..2 * mtu + 10], pattern(10));
    assert_eq!(target[2 * mtu + 10..2 * mtu + 50], [0xEE; 40]);
    assert_eq!(target[3 * mtu..3 * mtu + 2], [8, 0]);
    let local = [sge(pair.target, 0..4)];
    post(&mut pair.b, pair.qb, &write(&local, back, 0));
    arrivals(pair.world, &mut pair.a, 1);
}

/// No device takes a file that is no buffer of a device, and software takes none of these buffers.
pub(crate) fn ghosts(world: &mut impl World) {
    let (mut a, mut b) = (world.end(1), world.end(1));
    let ghost = a.register(Region::ghost(1 << 40));
    if !a.capabilities().ghosts {
        assert!(matches!(ghost, Err(FabricError::Unsupported(_))));
        return;
    }
    let ghost = ghost.unwrap();
    let (qa, qb) = joined(&mut a, &mut b, 0);
    let real = b.register(Region::owned(pattern(100))).unwrap();
    let (opened, place) = window(&mut b, &[qb], real, 0..50);
    let far = 1 << 39;
    let mut local = [sge(ghost, far..far + 50)];
    post(&mut a, qa, &write(&local, place, 1));
    let landed = |qpn, imm| Got::Write {
        qpn,
        imm,
        bytes: 50,
    };
    assert_eq!(arrivals(world, &mut b, 1), [landed(qb, 1)]);
    close(world, &mut b, opened);
    let mut want = pattern(100);
    want[..50].fill(0);
    assert_eq!(b.memory(real).unwrap(), want);
    // A write in the opposite direction completes and stores nothing.
    let (opened, place) = window(&mut a, &[qa], ghost, far..far + 50);
    local = [sge(real, 50..100)];
    post(&mut b, qb, &write(&local, place, 2));
    assert_eq!(arrivals(world, &mut a, 1), [landed(qa, 2)]);
    let mut out = [7; 3];
    a.copy_out(ghost, far as u64, &mut out).unwrap();
    assert_eq!(out, [0; 3]);
    // The bounds of a ghost are checked.
    let end = RemotePlace {
        addr: place.addr + 49,
        rkey: Rkey(place.rkey.0),
    };
    post(&mut b, qb, &write(&local, end, 3));
    super::travel(world);
    let mut none = Vec::new();
    a.poll(&mut none).unwrap();
    a.end_batch();
    assert_eq!(none, []);
    close(world, &mut a, opened);
    assert_eq!(a.memory(ghost).unwrap(), []);
    assert_eq!(a.deregister(ghost).unwrap().length(), 1 << 40);
}
