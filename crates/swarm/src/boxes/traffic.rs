//! Requests of two NICs to each other, and what has to come of them.

use farwrite_net::Payload;
use farwrite_rc::{Completion, Remote, Request};

use crate::dice::Dice;

/// The region that each NIC has for each connection.
pub(crate) fn rkey(connection: usize) -> u32 {
    u32::try_from(connection).expect("few connections") + 1
}

pub(crate) const MAX_BYTES: u32 = 6_000;
const MAX_ASKS: u64 = 24;
const ADDR: u64 = 0x1000;

/// A request. Each has a slot of the peer's memory that it alone writes, because a READ that is
/// repeated reads again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    Write { bytes: u32 },
    Send { bytes: u32 },
    Read { slot: usize, bytes: u32 },
}

pub(crate) fn draw(dice: &mut Dice) -> Vec<Ask> {
    let count = dice.within(0..MAX_ASKS);
    let mut ask = |number: u64| {
        let most = dice.pick(&[1, 600, u64::from(MAX_BYTES)]);
        let bytes = u32::try_from(dice.within(0..most + 1)).expect("at most MAX_BYTES");
        match dice.within(0..3) {
            0 => Ask::Write { bytes },
            1 => Ask::Send { bytes },
            _ => Ask::Read {
                slot: usize::try_from(dice.within(0..number + 1)).expect("few"),
                bytes,
            },
        }
    };
    (0..count).map(&mut ask).collect()
}

/// What one NIC asks of the other on a connection, and what has to come of it.
pub(crate) struct Course {
    pub(crate) requests: Vec<Request>,
    /// The outcomes of the requests.
    pub(crate) done: Vec<Completion>,
    /// The outcomes of the peer's receive buffers.
    pub(crate) received: Vec<Completion>,
    /// The peer's memory at the end.
    pub(crate) memory: Vec<u8>,
}

impl Course {
    pub(crate) fn new(asks: &[Ask], connection: usize, from: usize) -> Self {
        let mut course = Self {
            requests: Vec::new(),
            done: Vec::new(),
            received: Vec::new(),
            memory: vec![0; region_bytes(asks)],
        };
        for (number, ask) in asks.iter().enumerate() {
            course.add(number, *ask, connection, from);
        }
        course
    }

    fn add(&mut self, number: usize, ask: Ask, connection: usize, from: usize) {
        let id = number as u64;
        let remote = |slot: usize| Remote {
            rkey: rkey(connection),
            addr: ADDR + offset(slot) as u64,
        };
        let fresh = |bytes| content(bytes, number + 100 * connection + 500 * from);
        let request = match ask {
            Ask::Write { bytes } => {
                let data = fresh(bytes);
                self.memory[offset(number)..][..data.len()].copy_from_slice(&data);
                self.done.push(Completion::Acknowledged { id });
                Request::Write {
                    data: Payload::Bytes(data.into()),
                    to: remote(number),
                    imm: None,
                }
            }
            Ask::Send { bytes } => {
                let data = Payload::Bytes(fresh(bytes).into());
                self.done.push(Completion::Acknowledged { id });
                self.received.push(Completion::Received {
                    id: self.received.len() as u64,
                    data: data.clone(),
                    imm: None,
                });
                Request::Send { data, imm: None }
            }
            Ask::Read { slot, bytes } => {
                let data = self.memory[offset(slot)..][..bytes as usize].into();
                let data = Payload::Bytes(data);
                self.done.push(Completion::Read { id, data });
                Request::Read {
                    from: remote(slot),
                    bytes,
                }
            }
        };
        self.requests.push(request);
    }

    /// The peer's region before the first request.
    pub(crate) fn region(&self) -> (u64, Vec<u8>) {
        (ADDR, vec![0; self.memory.len()])
    }
}

fn region_bytes(asks: &[Ask]) -> usize {
    offset(asks.len().max(1))
}

fn offset(slot: usize) -> usize {
    slot * MAX_BYTES as usize
}

fn content(bytes: u32, salt: usize) -> Vec<u8> {
    let byte = |at: usize| (at * 7 + at / 256 + salt * 31) % 251;
    (0..bytes as usize)
        .map(|at| u8::try_from(byte(at)).expect("below 251"))
        .collect()
}
