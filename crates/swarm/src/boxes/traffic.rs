//! Requests of two NICs to each other, and their expected results.

use farwrite_net::Payload;
use farwrite_rc::{Completion, Remote, Request};

use farwrite_rng::SplitMix;

/// The key of the memory region that each NIC has for a connection.
pub(crate) fn rkey(connection: usize) -> u32 {
    u32::try_from(connection).expect("few connections") + 1
}

pub(crate) const MAX_BYTES: u32 = 6_000;
const MAX_REQUESTS: u64 = 24;
const ADDR: u64 = 0x1000;

/// A request. Each request has a slot of the peer's memory for itself, because a repeated READ
/// reads again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestPlan {
    Write { bytes: u32 },
    Send { bytes: u32 },
    Read { slot: usize, bytes: u32 },
}

pub(crate) fn draw(rng: &mut SplitMix) -> Vec<RequestPlan> {
    let count = rng.within(0..MAX_REQUESTS);
    let mut plan = |number: u64| {
        let most = rng.pick(&[1, 600, u64::from(MAX_BYTES)]);
        let bytes = u32::try_from(rng.within(0..most + 1)).expect("at most MAX_BYTES");
        match rng.within(0..3) {
            0 => RequestPlan::Write { bytes },
            1 => RequestPlan::Send { bytes },
            _ => RequestPlan::Read {
                slot: usize::try_from(rng.within(0..number + 1)).expect("few"),
                bytes,
            },
        }
    };
    (0..count).map(&mut plan).collect()
}

/// The requests of one NIC on a connection, and their expected results.
pub(crate) struct ExpectedResults {
    pub(crate) requests: Vec<Request>,
    /// The outcomes of the requests.
    pub(crate) done: Vec<Completion>,
    /// The outcomes of the peer's receive buffers.
    pub(crate) received: Vec<Completion>,
    /// The peer's memory at the end.
    pub(crate) memory: Vec<u8>,
}

impl ExpectedResults {
    pub(crate) fn new(plans: &[RequestPlan], connection: usize, from: usize) -> Self {
        let mut expected = Self {
            requests: Vec::new(),
            done: Vec::new(),
            received: Vec::new(),
            memory: vec![0; region_bytes(plans)],
        };
        for (number, plan) in plans.iter().enumerate() {
            expected.add(number, *plan, connection, from);
        }
        expected
    }

    fn add(&mut self, number: usize, plan: RequestPlan, connection: usize, from: usize) {
        let id = number as u64;
        let remote = |slot: usize| Remote {
            rkey: rkey(connection),
            addr: ADDR + offset(slot) as u64,
        };
        let fresh = |bytes| content(bytes, number + 100 * connection + 500 * from);
        let request = match plan {
            RequestPlan::Write { bytes } => {
                let data = fresh(bytes);
                self.memory[offset(number)..][..data.len()].copy_from_slice(&data);
                self.done.push(Completion::Acknowledged { id });
                Request::Write {
                    data: Payload::Bytes(data.into()),
                    to: remote(number),
                    imm: None,
                }
            }
            RequestPlan::Send { bytes } => {
                let data = Payload::Bytes(fresh(bytes).into());
                self.done.push(Completion::Acknowledged { id });
                self.received.push(Completion::Received {
                    id: self.received.len() as u64,
                    data: data.clone(),
                    imm: None,
                });
                Request::Send { data, imm: None }
            }
            RequestPlan::Read { slot, bytes } => {
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

fn region_bytes(plans: &[RequestPlan]) -> usize {
    offset(plans.len().max(1))
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
