//! Writes with immediate that are right, and those that the poster gets back.

use farwrite_fabric::contract::{Completion, Fabric, FabricError, Lkey, Qpn, Rkey};

use super::{
    MTU, Pair, TARGET_BYTES, World, arrivals, joined, pattern, post, queue_pair, sge, write,
};

pub(crate) fn land_where_sent(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let rkey = pair.b.expose(pair.target, 1000, 500).unwrap();
    pair.b.post_recv(pair.qb, 1).unwrap();
    pair.write(7..107, 20, rkey, 0xdead_beef);
    let landed = Completion::Write {
        qpn: pair.qb,
        imm: 0xdead_beef,
        bytes: 100,
    };
    assert_eq!(pair.arrivals(1), [landed]);
    let mut want = vec![0; TARGET_BYTES];
    want[1020..1120].copy_from_slice(&pattern(TARGET_BYTES)[7..107]);
    assert!(pair.b.memory(pair.target).unwrap() == want);
}

pub(crate) fn every_length(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let rkey = pair.b.expose(pair.target, 0, 2048).unwrap();
    let pattern = pattern(TARGET_BYTES);
    let mtu = MTU as usize;
    for length in (1..=17).chain(mtu - 4..=mtu) {
        pair.b.memory_mut(pair.target).unwrap().fill(0);
        pair.b.post_recv(pair.qb, 1).unwrap();
        pair.write(3..3 + length, 5, rkey, 0);
        let bytes = u32::try_from(length).unwrap();
        let landed = Completion::Write {
            qpn: pair.qb,
            imm: 0,
            bytes,
        };
        assert_eq!(pair.arrivals(1), [landed]);
        let memory = pair.b.memory(pair.target).unwrap();
        assert_eq!(memory[5..5 + length], pattern[3..3 + length]);
        let around = memory[..5].iter().chain(&memory[5 + length..]);
        assert!(around.copied().all(|byte| byte == 0), "length {length}");
    }
}

pub(crate) fn gather(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let rkey = pair.b.expose(pair.target, 0, 2048).unwrap();
    let second = pair.a.register(Box::new(vec![0xEE; 40])).unwrap();
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
    pair.b.post_recv(pair.qb, 2).unwrap();
    post(&mut pair.a, pair.qa, &write(&local, 0, rkey, 0));
    pair.arrivals(1);
    let memory = pair.b.memory(pair.target).unwrap();
    assert_eq!(memory[..want.len()], want);
    assert!(memory[want.len()..].iter().all(|&byte| byte == 0));

    local.push(sge(second, 0..1));
    let refused = pair.a.post_writes(pair.qa, &[write(&local, 0, rkey, 0)]);
    assert!(matches!(refused, Err(FabricError::BadAttribute { .. })));
}

pub(crate) fn zero_length(world: &mut impl World) {
    let mut pair = Pair::new(world);
    pair.b.post_recv(pair.qb, 2).unwrap();
    // No scatter entries and an empty one are the same; neither key nor address is looked at.
    let nothing = [sge(pair.source, 5..5)];
    post(&mut pair.a, pair.qa, &write(&[], u64::MAX, Rkey(0), 1));
    post(
        &mut pair.a,
        pair.qa,
        &write(&nothing, 12, Rkey(u32::MAX), 2),
    );
    let qpn = pair.qb;
    let landed = |imm| Completion::Write { qpn, imm, bytes: 0 };
    assert_eq!(pair.arrivals(2), [landed(1), landed(2)]);
}

pub(crate) fn in_bulk(world: &mut impl World) {
    const BATCH: usize = 32;
    let mut pair = Pair::new(world);
    let (mtu, bytes) = (MTU as usize, 16 * BATCH * MTU as usize);
    let source = pair.a.register(Box::new(pattern(bytes))).unwrap();
    let target = pair.b.register(Box::new(vec![0; bytes])).unwrap();
    let rkey = pair.b.expose(target, 0, bytes as u64).unwrap();
    let packets = (0..bytes)
        .step_by(mtu)
        .map(|at| [sge(source, at..at + mtu)]);
    let packets: Vec<_> = packets.collect();
    let writes = (0..).zip(&packets);
    let writes = writes.map(|(imm, local)| write(local, local[0].offset, rkey, imm));
    let writes: Vec<_> = writes.collect();
    let mut imms = Vec::new();
    for batch in writes.chunks(BATCH) {
        pair.b.post_recv(pair.qb, 32).unwrap();
        let mut rest = batch;
        while !rest.is_empty() {
            let taken = pair.a.post_writes(pair.qa, rest).unwrap();
            rest = &rest[taken..];
        }
        for completion in pair.arrivals(BATCH) {
            match completion {
                Completion::Write { imm, .. } => imms.push(imm),
                other => panic!("{other:?}"),
            }
        }
    }
    imms.sort_unstable();
    assert!(imms.into_iter().eq(0..16 * 32));
    assert!(pair.b.memory(target).unwrap() == pattern(bytes));
}

pub(crate) fn departures(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let doomed = joined(&mut pair.a, &mut pair.b, 0).0;
    let ids = [(11, true), (12, false), (13, true), (u64::MAX, true)];
    for qpn in [doomed, pair.qa] {
        for (wr_id, signaled) in ids {
            let write = write(&[], 0, Rkey(1), 0);
            post(
                &mut pair.a,
                qpn,
                &farwrite_fabric::contract::WriteWr {
                    wr_id,
                    signaled,
                    ..write
                },
            );
        }
    }
    pair.a.destroy_qp(doomed).unwrap();
    let qpn = pair.qa;
    let departed = [11, 13, u64::MAX].map(|wr_id| Completion::Departed { qpn, wr_id });
    assert_eq!(arrivals(pair.world, &mut pair.a, 3), departed);
}

pub(crate) fn refusals(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let rkey = pair.b.expose(pair.target, 0, 100).unwrap();
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
        let batch = [write(&good, 0, rkey, 0), write(bad, 0, rkey, 0)];
        let error = pair.a.post_writes(pair.qa, &batch).unwrap_err();
        assert!(expected(&error), "{bad:?} gave {error}");
    }
    let batch = [write(&good, 0, rkey, 0)];
    let nobody = Qpn(pair.qa.0 ^ 1);
    let error = pair.a.post_writes(nobody, &batch).unwrap_err();
    assert!(matches!(error, FabricError::UnknownQp(qpn) if qpn == nobody.0));
    let alone = queue_pair(&mut pair.a, 0, MTU);
    let error = pair.a.post_writes(alone, &batch).unwrap_err();
    assert!(matches!(error, FabricError::NotConnected(qpn) if qpn == alone.0));
    assert_eq!(pair.a.counters().sent_packets, 0);
}

pub(crate) fn counters_agree(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let rkey = pair.b.expose(pair.target, 0, 2048).unwrap();
    pair.b.post_recv(pair.qb, 3).unwrap();
    pair.write(0..1023, 0, rkey, 0);
    pair.write(0..0, 0, rkey, 0);
    super::send(&mut pair.a, pair.qa, &[1; 5]);
    pair.arrivals(3);
    let (sent, received) = (pair.a.counters(), pair.b.counters());
    let ip = if pair.a.local_addr(0).is_ipv4() {
        28
    } else {
        48
    };
    let udp = (32 + 1024 + 4) + (32 + 4) + (12 + 8 + 4);
    assert_eq!((sent.sent_packets, sent.sent_bytes), (3, 3 * ip + udp));
    assert_eq!(received.received_packets, sent.sent_packets);
    assert_eq!(received.received_bytes, sent.sent_bytes);
    assert_eq!((sent.received_packets, received.sent_packets), (0, 0));
    assert!(received.dropped.iter().all(|&dropped| dropped == 0));
}
