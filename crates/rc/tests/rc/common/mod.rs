//! Two queue pairs whose packets the test carries, and messages for them.
#![allow(dead_code, reason = "each test file uses some of it")]

pub(crate) mod incast;
pub(crate) mod network;

use farwrite_net::Payload;
use farwrite_rc::{Completion, Memory, Packet, QpConfig, QueuePair, Remote, Request};

/// The memory of [`Ends::b`]: key, address, size.
pub(crate) const RKEY: u32 = 0x77;
pub(crate) const ADDR: u64 = 0x1_0000;
pub(crate) const BYTES: usize = 64 << 10;

/// `a` is the requester, `b` the responder.
pub(crate) struct Ends {
    pub(crate) a: QueuePair,
    pub(crate) b: QueuePair,
    pub(crate) memory: [Memory; 2],
    pub(crate) now_ns: u64,
}

/// MTU 256, an acknowledgement with the last packet only, and a timeout of 1000 ns.
pub(crate) fn config() -> QpConfig {
    QpConfig {
        mtu_bytes: 256,
        ack_every_packets: 1 << 20,
        ack_timeout_ns: 1000,
        ..QpConfig::new(2)
    }
}

impl Ends {
    pub(crate) fn new(config: QpConfig) -> Self {
        let back = QpConfig {
            send_psn: config.recv_psn,
            recv_psn: config.send_psn,
            ..config
        };
        let mut memory = [Memory::default(), Memory::default()];
        memory[1].register(RKEY, ADDR, vec![0; BYTES]).unwrap();
        Self {
            a: QueuePair::new(config).unwrap(),
            b: QueuePair::new(back).unwrap(),
            memory,
            now_ns: 0,
        }
    }

    /// Returns all packets that `a` can send now.
    pub(crate) fn a_sends(&mut self) -> Vec<Packet> {
        drain(&mut self.a, self.now_ns, &self.memory[0])
    }

    pub(crate) fn b_sends(&mut self) -> Vec<Packet> {
        drain(&mut self.b, self.now_ns, &self.memory[1])
    }

    pub(crate) fn a_takes(&mut self, packets: &[Packet]) {
        for packet in packets {
            self.a
                .handle_packet(self.now_ns, packet, &mut self.memory[0]);
        }
    }

    pub(crate) fn b_takes(&mut self, packets: &[Packet]) {
        for packet in packets {
            self.b
                .handle_packet(self.now_ns, packet, &mut self.memory[1]);
        }
    }

    /// Exchanges packets without loss until both ends are silent. Returns all opcodes in order.
    pub(crate) fn run(&mut self) -> Vec<u8> {
        let mut opcodes = Vec::new();
        loop {
            let there = self.a_sends();
            self.b_takes(&there);
            let back = self.b_sends();
            self.a_takes(&back);
            if there.is_empty() && back.is_empty() {
                return opcodes;
            }
            opcodes.extend(there.iter().chain(&back).map(|p| p.header.bth.opcode));
        }
    }

    /// Advances the time to the next timeout of `a`.
    pub(crate) fn wait(&mut self) -> u64 {
        self.now_ns = self.a.next_timeout().expect("a has no timer");
        self.a.handle_timeout(self.now_ns, &mut self.memory[0]);
        self.now_ns
    }

    /// Advances the time to the next timer of either end, if there is one.
    pub(crate) fn wait_for_either(&mut self) {
        let timers = [self.a.next_timeout(), self.b.next_timeout()];
        if let Some(at_ns) = timers.into_iter().flatten().min() {
            self.now_ns = self.now_ns.max(at_ns);
            self.a.handle_timeout(self.now_ns, &mut self.memory[0]);
            self.b.handle_timeout(self.now_ns, &mut self.memory[1]);
        }
    }
}

fn drain(pair: &mut QueuePair, now_ns: u64, memory: &Memory) -> Vec<Packet> {
    let mut packets = Vec::new();
    while let Some(packet) = pair.poll_ack().or_else(|| pair.poll_data(now_ns, memory)) {
        packets.push(packet);
    }
    packets
}

pub(crate) fn completions(pair: &mut QueuePair) -> Vec<Completion> {
    std::iter::from_fn(|| pair.poll_completion()).collect()
}

pub(crate) fn psns(packets: &[Packet]) -> Vec<u32> {
    packets.iter().map(|packet| packet.header.bth.psn).collect()
}

/// Returns a message whose bytes depend on the seed.
pub(crate) fn message(seed: usize, bytes: usize) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((at * 7 + at / 256 + seed * 31) % 251).unwrap();
    (0..bytes).map(byte).collect()
}

pub(crate) fn data(bytes: Vec<u8>) -> Payload {
    Payload::Bytes(bytes.into())
}

pub(crate) fn place(offset: u64) -> Remote {
    Remote {
        rkey: RKEY,
        addr: ADDR + offset,
    }
}

pub(crate) fn write(offset: u64, bytes: Vec<u8>, imm: Option<u32>) -> Request {
    Request::Write {
        data: data(bytes),
        to: place(offset),
        imm,
    }
}

pub(crate) fn send(bytes: Vec<u8>) -> Request {
    Request::Send {
        data: data(bytes),
        imm: None,
    }
}

pub(crate) fn read(offset: u64, bytes: u32) -> Request {
    Request::Read {
        from: place(offset),
        bytes,
    }
}
