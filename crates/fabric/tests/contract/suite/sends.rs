//! SENDs.

use farwrite_fabric::contract::{FabricError, Qpn};

use super::{Got, MTU, Pair, World, pattern, queue_pair, send};

pub(crate) fn every_length(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let pattern = pattern(MTU as usize);
    for length in (0..=9).chain([MTU as usize - 1, MTU as usize]) {
        send(&mut pair.a, pair.qa, &pattern[..length]);
        let arrived = Got::Send {
            qpn: pair.qb,
            payload: pattern[..length].to_vec(),
        };
        assert_eq!(pair.arrivals(1), [arrived]);
    }
}

pub(crate) fn refusals(world: &mut impl World) {
    let mut pair = Pair::new(world);
    let long = vec![0; MTU as usize + 1];
    let error = pair.a.post_send(pair.qa, &long).unwrap_err();
    assert!(matches!(
        error,
        FabricError::OutOfBounds {
            length: 1025,
            limit: 1024,
            ..
        }
    ));
    let alone = queue_pair(&mut pair.a, 0, MTU);
    let error = pair.a.post_send(alone, &[]).unwrap_err();
    assert!(matches!(error, FabricError::NotConnected(qpn) if qpn == alone.0));
    let error = pair.a.post_send(Qpn(0), &[]).unwrap_err();
    assert!(matches!(error, FabricError::UnknownQp(0)));
    pair.nothing_lands();
}
