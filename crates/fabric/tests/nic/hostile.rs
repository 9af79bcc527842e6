//! Bytes from the network never panic, and change memory only where a right write may.

use farwrite_fabric::contract::{Completion, Counters, Fabric};
use farwrite_wire::request::{SendOnly, WriteImm};
use proptest::prelude::*;

use crate::two_ends::{TwoEnds, seal};

/// The window that peers may write: these bytes of a region of [`REGION`].
const WINDOW: std::ops::Range<usize> = 100..200;
const REGION: usize = 300;

/// What someone may make of a right packet. The number picks a place.
#[derive(Clone, Debug)]
enum Change {
    Set(usize, u8),
    Cut(usize),
    Append(Vec<u8>),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (0..80_usize, any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        1 => (0..80_usize).prop_map(Change::Cut),
        1 => prop::collection::vec(any::<u8>(), 0..300).prop_map(Change::Append),
    ]
}

fn apply(change: &Change, bytes: &mut Vec<u8>) {
    match change {
        Change::Set(at, byte) => {
            if let Some(place) = bytes.get_mut(*at) {
                *place = *byte;
            }
        }
        Change::Cut(at) => bytes.truncate(*at),
        Change::Append(more) => bytes.extend(more),
    }
}

/// Two ends with a window exposed, and a right write and SEND to it, not sealed.
fn prepared() -> (TwoEnds, farwrite_fabric::contract::Lkey, [Vec<u8>; 2]) {
    let mut ends = TwoEnds::new(1);
    let lkey = ends.b.register(Box::new(vec![0; REGION])).unwrap();
    let (offset, length) = (WINDOW.start as u64, WINDOW.len() as u64);
    let rkey = ends.b.expose(lkey, offset, length).unwrap();
    ends.b.post_recv(ends.qb, 1).unwrap();
    let write = WriteImm {
        dest_qp: ends.qb.0,
        psn: 0,
        remote_addr: 8,
        rkey: rkey.0,
        imm: 0,
        payload_bytes: 16,
    };
    let send = SendOnly {
        dest_qp: ends.qb.0,
        psn: 0,
        payload_bytes: 16,
    };
    let packets = [write.header().to_vec(), send.header().to_vec()].map(|mut packet| {
        packet.extend([0xAB; 16]);
        packet
    });
    (ends, lkey, packets)
}

/// Whether exactly one packet was counted, applied or dropped.
fn counted_once(counters: &Counters) -> bool {
    counters.received_packets + counters.dropped.iter().sum::<u64>() == 1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn bytes_change_nothing(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let (mut ends, lkey, _) = prepared();
        ends.network.inject(ends.datagram(bytes));
        prop_assert_eq!(ends.arrivals(), []);
        prop_assert!(counted_once(&ends.b.counters()));
        prop_assert!(ends.b.memory(lkey).unwrap() == [0; REGION]);
    }

    #[test]
    fn a_damaged_packet_changes_nothing(
        send in any::<bool>(),
        changes in prop::collection::vec(change(), 1..4),
    ) {
        let (mut ends, lkey, packets) = prepared();
        let mut datagram = ends.datagram(packets[usize::from(send)].clone());
        seal(&mut datagram, 0);
        let right = datagram.payload.clone();
        changes.iter().for_each(|change| apply(change, &mut datagram.payload));
        // The congestion bits may change.
        let mut masked = datagram.payload.clone();
        if let Some(byte) = masked.get_mut(4) {
            *byte = right[4];
        }
        if masked == right {
            return Ok(());
        }
        ends.network.inject(datagram);
        prop_assert_eq!(ends.arrivals(), []);
        prop_assert!(counted_once(&ends.b.counters()));
        prop_assert!(ends.b.memory(lkey).unwrap() == [0; REGION]);
    }

    /// Someone with the right address and ICRC.
    #[test]
    fn a_forged_packet_stays_within_the_window(
        send in any::<bool>(),
        changes in prop::collection::vec(change(), 0..6),
    ) {
        let (mut ends, lkey, packets) = prepared();
        let mut datagram = ends.datagram(packets[usize::from(send)].clone());
        changes.iter().for_each(|change| apply(change, &mut datagram.payload));
        seal(&mut datagram, 0);
        ends.network.inject(datagram);
        let completions = ends.arrivals();
        prop_assert!(counted_once(&ends.b.counters()));
        prop_assert_eq!(completions.len() as u64, ends.b.counters().received_packets);
        let memory = ends.b.memory(lkey).unwrap();
        let written = memory.iter().filter(|&&byte| byte != 0).count();
        match completions.first() {
            Some(Completion::Write { bytes, .. }) => prop_assert!(written <= *bytes as usize),
            _ => prop_assert_eq!(written, 0),
        }
        prop_assert!(memory[..WINDOW.start].iter().all(|&byte| byte == 0));
        prop_assert!(memory[WINDOW.end..].iter().all(|&byte| byte == 0));
    }
}
