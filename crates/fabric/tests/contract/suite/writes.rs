//! Valid writes with immediate, and writes that are refused when posted.

use farwrite_fabric::contract::{
    Departed, Fabric, FabricError, Lkey, Qpn, Region, RemotePlace, Rkey, WriteWr,
};

use super::{
    Got, MTU, Pair, TARGET_BYTES, World, joined, pattern, post, queue_pair, sge, window, write,
};

pub(crate) fn land_where_sent(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let (_, place) = pair.open(1000..1500);
    pair.write(7..107, place, 20, 0xdead_beef);
    let landed = Got::Write {
        qpn: pair.qb,
        imm: 0xdead_beef,
        bytes: 100,
    };
    assert_eq!(pair.arrivals(1), [landed]);
    let mut want = vec![0; TARGET_BYTES];
    want[1020..1120].copy_from_slice(&pattern(TARGET_BYTES)[7..107]);
    assert!(pair.target() == want);
}

pub(crate) fn every_length(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let (_, place) = pair.open(0..2048);
    let pattern = pattern(TARGET_BYTES);
    let mtu = MTU as usize;
    for length in (1..=17).chain(mtu - 4..=mtu) {
        pair.b.copy_in(pair.target, 0, &[0; 2048]).unwrap();
        pair.write(3..3 + length, place, 5, 0);
        let landed = Got::Write {
            qpn: pair.qb,
            imm: 0,
            bytes: u32::try_from(length).unwrap(),
        };
        assert_eq!(pair.arrivals(1), [landed]);
        let memory = pair.target();
        assert_eq!(memory[5..5 + length], pattern[3..3 + length]);
        let around = memory[..5].iter().chain(&memory[5 + length..]);
        assert!(around.copied().all(|byte| byte == 0), "length {length}");
    }
}

pub(crate) fn gather(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let (_, place) = pair.open(0..2048);
    let second = pair.a.register(Region::owned(vec![0xEE; 40])).unwrap();
    let most = pair.a.capabilities().max_sge;
    assert!(most >= 2);
    let mut local: Vec<_> = (0..most)
        .map(|i| sge(pair.source, 50 * i..51 * i + 1))
        .collect();
    local[1] = sge(second, 3..40);
    let pattern = pattern(TARGET_BYTES);
    let mut want = Vec::new();
    for i in 0..most {
        match i {
            1 => want.extend([0xEE; 37]),
            _ => want.extend(&pattern[50 * i..51 * i + 1]),
        }
    }
    post(&mut pair.a, pair.qa, &write(&local, place, 0));
    pair.arrivals(1);
    let memory = pair.target();
    assert_eq!(memory[..want.len()], want);
    assert!(memory[want.len()..].iter().all(|&byte| byte == 0));

    local.push(sge(second, 0..1));
    let refused = pair.a.post_writes(pair.qa, &[write(&local, place, 0)]);
    assert!(matches!(refused, Err(FabricError::BadAttribute { .. })));
}

pub(crate) fn zero_length(world: &mut impl World) {
    let mut pair = Pair::new(world);
    // No scatter entries and one empty entry are equivalent. Neither key nor address is checked.
    let nothing = [sge(pair.source, 5..5)];
    let (addr, rkey) = (u64::MAX, Rkey(0));
    let place = RemotePlace { addr, rkey };
    post(&mut pair.a, pair.qa, &write(&[], place, 1));
    let rkey = Rkey(u32::MAX);
    let place = RemotePlace { addr: 12, rkey };
    post(&mut pair.a, pair.qa, &write(&nothing, place, 2));
    let qpn = pair.qb;
    let landed = |imm| Got::Write { qpn, imm, bytes: 0 };
    assert_eq!(pair.arrivals(2), [landed(1), landed(2)]);
}

pub(crate) fn in_bulk(world: &mut impl World) {
    const BATCH: usize = 32;
    let mut pair = Pair::new(world);
    let (mtu, bytes) = (MTU as usize, 16 * BATCH * MTU as usize);
    let source = pair.a.register(Region::owned(pattern(bytes))).unwrap();
    let target = pair.b.register(Region::owned(vec![0; bytes])).unwrap();
    let (_, place) = window(&mut pair.b, &[pair.qb], target, 0..bytes);
    let packets = (0..bytes)
        .step_by(mtu)
        .map(|at| [sge(source, at..at + mtu)]);
    let packets: Vec<_> = packets.collect();
    let writes = (0..).zip(&packets);
    let writes =
        writes.map(|(imm, local)| write(local, super::beyond(place, local[0].offset), imm));
    let writes: Vec<_> = writes.collect();
    let mut imms = Vec::new();
    for batch in writes.chunks(BATCH) {
        let mut rest = batch;
        while !rest.is_empty() {
            let taken = pair.a.post_writes(pair.qa, rest).unwrap();
            rest = &rest[taken..];
        }
        for completion in pair.arrivals(BATCH) {
            match completion {
                Got::Write { imm, .. } => imms.push(imm),
                other @ Got::Send { .. } => panic!("{other:?}"),
            }
        }
    }
    imms.sort_unstable();
    assert!(imms.into_iter().eq(0..16 * 32));
    assert!(super::bytes(&pair.b, target, bytes) == pattern(bytes));
}

/// Returns a write without payload.
fn empty(wr_id: u64, signaled: bool) -> WriteWr<'static> {
    let (addr, rkey) = (0, Rkey(1));
    let write = write(&[], RemotePlace { addr, rkey }, 0);
    WriteWr {
        wr_id,
        signaled,
        ..write
    }
}

pub(crate) fn departures(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let doomed = joined(&mut pair.a, &mut pair.b, 0).0;
    let ids = [(11, true), (12, false), (13, true), (u64::MAX, true)];
    for qpn in [doomed, pair.qa] {
        for (wr_id, signaled) in ids {
            post(&mut pair.a, qpn, &empty(wr_id, signaled));
        }
    }
    pair.a.destroy_qp(doomed).unwrap();
    let qpn = pair.qa;
    let departed = [11, 13, u64::MAX].map(|wr_id| Departed {
        qpn,
        context: 0,
        wr_id,
    });
    assert_eq!(super::departures(pair.world, &mut pair.a, 3), departed);
}

pub(crate) fn departures_of_many_queue_pairs(world: &mut impl World) {
    let (mut a, mut b) = (world.end(3), world.end(3));
    let qpns: Vec<_> = (0..3).map(|port| joined(&mut a, &mut b, port).0).collect();
    for wr_id in 0..30 {
        for &qpn in &qpns {
            post(&mut a, qpn, &empty(wr_id, wr_id % 3 == 2));
        }
    }
    // Departures are in order on each queue pair, and in any order between two.
    let departed = super::departures(world, &mut a, 30);
    for qpn in qpns {
        let of_this = departed.iter().filter(|departed| departed.qpn == qpn);
        let ids = of_this.map(|departed| departed.wr_id);
        assert!(ids.eq((2..30).step_by(3)), "{departed:?}");
    }
}

pub(crate) fn refusals(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let (_, place) = pair.open(0..100);
    let good = [sge(pair.source, 0..10)];
    let past_end = [sge(pair.source, TARGET_BYTES - 4..TARGET_BYTES + 1)];
    let unknown = [sge(Lkey(pair.source.0.wrapping_add(1)), 0..1)];
    let half = MTU as usize / 2;
    let too_long = [sge(pair.source, 0..half), sge(pair.source, 0..half + 1)];
    let mut wraps = good;
    wraps[0].offset = u64::MAX;
    type Expected = fn(&FabricError) -> bool;
    let cases: [(&[_], Expected); 4] = [
        (&past_end, |e| matches!(e, FabricError::OutOfBounds { .. })),
        (&wraps, |e| matches!(e, FabricError::OutOfBounds { .. })),
        (&too_long, |e| {
            matches!(e, FabricError::OutOfBounds { limit: 1024, .. })
        }),
        (&unknown, |e| matches!(e, FabricError::UnknownKey(_))),
    ];
    for (bad, expected) in cases {
        let batch = [write(&good, place, 0), write(bad, place, 0)];
        let error = pair.a.post_writes(pair.qa, &batch).unwrap_err();
        assert!(expected(&error), "{bad:?} gave {error}");
    }
    let batch = [write(&good, place, 0)];
    let nobody = Qpn(pair.qa.0 ^ 1);
    let error = pair.a.post_writes(nobody, &batch).unwrap_err();
    assert!(matches!(error, FabricError::UnknownQp(qpn) if qpn == nobody.0));
    let alone = queue_pair(&mut pair.a, 0, MTU);
    let error = pair.a.post_writes(alone, &batch).unwrap_err();
    assert!(matches!(error, FabricError::NotConnected(qpn) if qpn == alone.0));
    pair.nothing_lands();
}
