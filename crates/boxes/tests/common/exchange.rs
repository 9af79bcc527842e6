//! Requests of all kinds between two NICs, and a check that all of them complete correctly.
#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

use farwrite_boxes::Middlebox;
use farwrite_net::Payload;
use farwrite_rc::{Completion, QpConfig, Remote, Request};
use proptest::prelude::*;

use super::network::Path;

pub(crate) const RKEY: u32 = 5;
const ADDR: u64 = 0x1000;
const MAX_ASKS: usize = 90;
/// Size of a slot of memory. Each request has a slot of its own, because a repeated READ reads
/// again.
const SLOT: usize = 6000;

pub(crate) fn qp_config() -> QpConfig {
    QpConfig {
        mtu_bytes: 256,
        window_packets: 64,
        ack_timeout_ns: 5_000_000,
        retry_limit: Some(255),
        send_psn: 0xFF_FF80,
        recv_psn: 0xFF_FF80,
        ..QpConfig::new(2)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Write {
        bytes: usize,
    },
    Send {
        bytes: usize,
    },
    /// From the slot of an earlier request.
    Read {
        of: usize,
        bytes: usize,
    },
}

fn bytes(seed: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at * 7 + at / 256 + seed * 31) as u8)
        .collect()
}

pub(crate) fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let length = prop_oneof![0usize..600, Just(256), Just(1024), 0usize..6000];
    let ask = (0..3, 0..MAX_ASKS, length).prop_map(|(kind, of, bytes)| match kind {
        0 => Ask::Write { bytes },
        1 => Ask::Send { bytes },
        _ => Ask::Read { of, bytes },
    });
    prop::collection::vec(ask, 1..60)
}

/// Posts the requests at host a, runs the network, and checks completions and memory. Calls
/// `faults` between steps of time.
pub(crate) fn exchange<B: Middlebox>(
    path: &mut Path<B>,
    asks: &[Ask],
    mut faults: impl FnMut(&mut Path<B>, u64),
) where
    B::Config: Clone,
{
    let qpn = path.connect(0, qp_config());
    let mut memory = vec![0; MAX_ASKS * SLOT];
    path.nic(1)
        .memory
        .register(RKEY, ADDR, memory.clone())
        .unwrap();
    for id in 0..asks.len() as u64 {
        path.nic(1).post_receive(qpn, id, 8192).unwrap();
    }
    let place = |at: usize| Remote {
        rkey: RKEY,
        addr: ADDR + at as u64,
    };
    let (mut asked, mut received) = (Vec::new(), Vec::new());
    for (id, ask) in (0..).zip(asks) {
        let seed = id as usize;
        let request = match *ask {
            Ask::Write { bytes: length } => {
                let at = seed * SLOT;
                let data = bytes(seed, length);
                memory[at..at + length].copy_from_slice(&data);
                asked.push(Completion::Acknowledged { id });
                Request::Write {
                    data: Payload::Bytes(data.into()),
                    to: place(at),
                    imm: None,
                }
            }
            Ask::Send { bytes: length } => {
                let data = Payload::Bytes(bytes(seed, length).into());
                asked.push(Completion::Acknowledged { id });
                received.push(Completion::Received {
                    id: received.len() as u64,
                    data: data.clone(),
                    imm: None,
                });
                Request::Send { data, imm: None }
            }
            Ask::Read { of, bytes: length } => {
                let at = of % (seed + 1) * SLOT;
                let data = Payload::Bytes(memory[at..at + length].into());
                asked.push(Completion::Read { id, data });
                Request::Read {
                    from: place(at),
                    bytes: u32::try_from(length).unwrap(),
                }
            }
        };
        path.nic(0).post(qpn, id, request).unwrap();
    }
    for step in 0..400 {
        path.network.run_until(step * 500_000);
        faults(path, step);
    }
    path.network.run_until(20_000_000_000);
    assert_eq!(path.completions(0, qpn), asked);
    assert_eq!(path.completions(1, qpn), received);
    assert_eq!(path.nic(1).memory.bytes(RKEY), Some(&memory[..]));
}

pub(crate) fn many() -> Vec<Ask> {
    let ask = |id: usize| match id % 3 {
        0 => Ask::Write {
            bytes: 300 * (id % 20),
        },
        1 => Ask::Send { bytes: id * 40 },
        _ => Ask::Read {
            of: id / 2,
            bytes: 250 * (id % 13),
        },
    };
    (0..MAX_ASKS).map(ask).collect()
}
