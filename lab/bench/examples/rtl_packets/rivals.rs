//! Packets for the receiving halves of Go-Back-N and IRN in `lab/rtl`, with what the queue pairs of Rust do.
//!
//! A requester of Rust sends WRITEs over a path that loses packets, doubles them and changes their order. With IRN,
//! each packet gets an address and a key of its own, as in the paper; Rust reads those of the first packet of a
//! message. `lab/rtl/sim/rivals.cpp` reads the file.

use std::collections::BTreeMap;
use std::io::{self, Write};

use farwrite_link::Rng;
use farwrite_net::Payload;
use farwrite_net::header::Roce;
use farwrite_rc::{
    Completion, Memory, Nak, Packet, QpConfig, QueuePair, Recovery, Remote, Request, Syndrome,
};
use farwrite_wire::header::{Bth, Reth};

use crate::rival_record::{
    ACK_REQUEST, ANSWERS, CREATE, FIRST, HAS_IMM, IS_ERROR, IS_IRN, IS_NAK, LAST, MEMORY, PACKET,
    Record,
};
use crate::{Region, SEQ_MASK, below, low};

const REGIONS: u32 = 32;
/// Of the receiver. The sender of IRN has more, so that some packets lie beyond it. That of Go-Back-N has less, since
/// each gap costs a window.
const WINDOW_PACKETS: u32 = 128;
const BEYOND_WINDOW_PACKETS: u32 = 150;
const SHORT_WINDOW_PACKETS: u32 = 10;
/// Of a connection, which may end earlier.
const MOST_PACKETS: u64 = 500;
const MOST_ROUNDS: u64 = 4 * MOST_PACKETS;
const MESSAGES: u64 = 100;
const TIMEOUT_NS: u64 = 1_000_000;
const WRITE_FIRST: u8 = 0x06;
const WRITE_ONLY: u8 = 0x0A;

struct Connection {
    rng: Rng,
    is_irn: bool,
    mtu_bytes: u32,
    requester: QueuePair,
    responder: QueuePair,
    memory: Memory,
    regions: Vec<Region>,
    now_ns: u64,
    way: Vec<Packet>,
    /// Where the payload of each packet goes, by PSN, and the bytes of its message.
    places: BTreeMap<u32, Reth>,
    /// The PSN of the last packet that began a message.
    began: u32,
    /// The next packet that an answer of IRN has named.
    expected: u32,
    posted: u64,
    acknowledged: u64,
}

/// Writes about this number of packets, in connections of both kinds.
pub(crate) fn write(seed: u64, packets: u64, out: &mut impl Write) -> io::Result<()> {
    let mut rng = Rng::new(seed);
    let regions: Vec<_> = (0..REGIONS)
        .map(|at| {
            let length = 1_000 + rng.below(3_000) as u64;
            let near_the_end = u64::MAX - length;
            let addr = if at == 0 {
                near_the_end
            } else {
                rng.bits() >> (1 + rng.below(40))
            };
            let key = low(rng.bits()) & !(REGIONS - 1) | at;
            Region { key, addr, length }
        })
        .collect();
    for value in [REGIONS, 0] {
        out.write_all(&value.to_le_bytes())?;
    }
    for region in &regions {
        out.write_all(&region.addr.to_le_bytes())?;
        out.write_all(&region.length.to_le_bytes())?;
        out.write_all(&u64::from(region.key).to_le_bytes())?;
    }
    let mut written = 0;
    for number in 0.. {
        if written >= packets {
            break;
        }
        let mut connection = Connection::new(Rng::new(rng.bits()), number % 2 == 1, &regions);
        written += connection.run(out)?;
    }
    out.flush()
}

impl Connection {
    fn new(mut rng: Rng, is_irn: bool, regions: &[Region]) -> Self {
        let mtu_bytes = 256 << rng.below(3);
        // Half of the numbers wrap soon.
        let psn = if rng.chance(0.5) {
            (1 << 24) - 1 - below(&mut rng, 100)
        } else {
            below(&mut rng, 1 << 24)
        };
        let recovery = if is_irn {
            Recovery::Irn {
                rto_low_ns: TIMEOUT_NS / 4,
                rto_low_packets: 3,
                goes_back: rng.chance(0.5),
            }
        } else {
            Recovery::GoBackN
        };
        let config = QpConfig {
            send_psn: psn,
            recv_psn: psn,
            mtu_bytes,
            ack_every_packets: 3,
            ack_timeout_ns: TIMEOUT_NS,
            retry_limit: None,
            recovery,
            ..QpConfig::new(1)
        };
        let pair = |window_packets| {
            let config = QpConfig {
                window_packets,
                ..config
            };
            QueuePair::new(config).expect("the settings are valid")
        };
        let mut responder = pair(WINDOW_PACKETS);
        // A forged packet may take one too.
        for id in 0..MESSAGES + MOST_PACKETS {
            responder.post_receive(id, 0).expect("it has not failed");
        }
        let mut memory = Memory::default();
        for region in regions {
            let bytes = vec![0; usize::try_from(region.length).unwrap_or(0)];
            let registered = memory.register(region.key, region.addr, bytes);
            registered.expect("the key is free, and the region is within the address space");
        }
        Self {
            rng,
            is_irn,
            mtu_bytes,
            requester: pair(if is_irn {
                BEYOND_WINDOW_PACKETS
            } else {
                SHORT_WINDOW_PACKETS
            }),
            responder,
            memory,
            regions: regions.to_vec(),
            now_ns: 0,
            way: Vec::new(),
            places: BTreeMap::new(),
            began: psn,
            expected: psn,
            posted: 0,
            acknowledged: 0,
        }
    }

    /// Sends messages until all are acknowledged, or the queue pair is broken, or there are enough packets. Returns the
    /// number of packets that have arrived.
    fn run(&mut self, out: &mut impl Write) -> io::Result<u64> {
        let create = Record {
            kind: CREATE,
            flags: if self.is_irn { IS_IRN } else { 0 },
            seq: self.began,
            mtu_log: self.mtu_bytes.trailing_zeros(),
            ..Record::default()
        };
        create.write_to(out)?;
        let (mut arrived, mut after_the_end) = (0, 0);
        for _ in 0..MOST_ROUNDS {
            if arrived == MOST_PACKETS || self.acknowledged == MESSAGES || after_the_end == 5 {
                break;
            }
            self.post();
            self.send();
            if self.way.is_empty() {
                self.now_ns += TIMEOUT_NS;
                self.requester.handle_timeout(self.now_ns, &mut self.memory);
            } else if self.rng.chance(0.6) {
                after_the_end += u64::from(self.responder.is_broken());
                self.deliver(out)?;
                arrived += 1;
            }
        }
        // What IRN has after a gap is in the memory of the hardware, and in that of Rust when the gap is closed.
        if !self.is_irn || self.acknowledged == MESSAGES {
            Record {
                kind: MEMORY,
                ..Record::default()
            }
            .write_to(out)?;
            for region in &self.regions {
                out.write_all(self.memory.bytes(region.key).unwrap_or_default())?;
            }
        }
        Ok(arrived)
    }

    fn post(&mut self) {
        // Each of those on the way has a region of its own: messages that overlap have no order with IRN.
        let is_free = self.posted < self.acknowledged + u64::from(REGIONS);
        if self.posted == MESSAGES || !is_free {
            return;
        }
        let turn = usize::try_from(self.posted).unwrap_or(0) % self.regions.len();
        let region = self.regions[turn];
        let most = 6 * self.mtu_bytes as usize;
        let length = usize::try_from(region.length).unwrap_or(0);
        let data: Vec<u8> = (0..self.rng.below(most.min(length) + 1))
            .map(|_| self.rng.bits().to_le_bytes()[0])
            .collect();
        let room = length - data.len();
        let request = Request::Write {
            to: Remote {
                rkey: region.key,
                addr: region.addr + self.rng.below(room + 1) as u64,
            },
            data: Payload::Bytes(data.into()),
            // Of IRN, the end of each message is seen.
            imm: (self.is_irn || self.rng.chance(0.7)).then(|| low(self.rng.bits())),
        };
        if self.requester.post(self.posted, request).is_ok() {
            self.posted += 1;
        }
    }

    fn send(&mut self) {
        let Some(packet) = self.requester.poll_data(self.now_ns, &self.memory) else {
            return;
        };
        self.remember(&packet);
        let copies = [1, 1, 1, 1, 1, 1, 2, 0][self.rng.below(8)];
        self.way.extend(vec![packet; copies]);
    }

    /// Remembers where the payload of a packet goes that is sent for the first time.
    fn remember(&mut self, packet: &Packet) {
        let psn = packet.header.bth.psn;
        if self.places.contains_key(&psn) {
            return;
        }
        let place = if let Some(reth) = packet.header.reth {
            self.began = psn;
            reth
        } else {
            let reth = self.places[&self.began];
            let before = u64::from(psn.wrapping_sub(self.began)) & SEQ_MASK;
            let offset = before * u64::from(self.mtu_bytes);
            Reth {
                remote_addr: reth.remote_addr.wrapping_add(offset),
                ..reth
            }
        };
        self.places.insert(psn, place);
    }

    /// A packet comes to its end, mostly the oldest one. A few are forged.
    fn deliver(&mut self, out: &mut impl Write) -> io::Result<()> {
        let at = if self.rng.chance(0.8) {
            0
        } else {
            self.rng.below(self.way.len())
        };
        let mut packet = self.way.remove(at);
        let place = if self.is_irn {
            if self.rng.chance(0.002) {
                packet = self.outside();
            }
            let known = self.places.get(&packet.header.bth.psn).copied();
            packet.header.reth.or(known)
        } else {
            if self.rng.chance(0.02) {
                self.forge(&mut packet);
            }
            packet.header.reth
        };
        self.arrive(&packet, place, out)
    }

    /// The expected packet of IRN, with a message of one packet that may not be written.
    fn outside(&mut self) -> Packet {
        let region = self.regions[self.rng.below(self.regions.len())];
        let bytes = 1 + below(&mut self.rng, self.mtu_bytes);
        let (rkey, beyond) = if self.rng.chance(0.5) {
            (region.key ^ (REGIONS << self.rng.below(27)), 0)
        } else {
            (region.key, 1 + self.rng.below(3) as u64)
        };
        let last = region.addr.wrapping_add(region.length - u64::from(bytes));
        let mut header = Roce::new(Bth::new(WRITE_ONLY, 1, self.expected));
        header.reth = Some(Reth {
            remote_addr: last.wrapping_add(beyond),
            rkey,
            dma_bytes: bytes,
        });
        let payload = Payload::Bytes(vec![1; bytes as usize].into());
        Packet { header, payload }
    }

    /// Changes one thing of a packet of Go-Back-N.
    fn forge(&mut self, packet: &mut Packet) {
        let near = |rng: &mut Rng| below(rng, 5).wrapping_sub(2);
        let rng = &mut self.rng;
        let header = &mut packet.header;
        match rng.below(6) {
            0 => {
                header.bth.psn = header.bth.psn.wrapping_add(near(rng)) & low(SEQ_MASK);
            }
            1 => {
                let length = packet.payload.carried_bytes().wrapping_add(near(rng));
                let length = length.min(self.mtu_bytes + 1) as usize;
                packet.payload = Payload::Bytes(vec![1; length].into());
            }
            2 => {
                let opcode = WRITE_FIRST + rng.below(6).to_le_bytes()[0];
                let has_reth = matches!(opcode, WRITE_FIRST | WRITE_ONLY..);
                let reth = header.reth.or(self.places.values().next().copied());
                header.bth.opcode = opcode;
                header.reth = reth.filter(|_| has_reth);
                header.imm = (opcode % 2 == 1 && opcode > 8).then(|| low(rng.bits()));
            }
            which => {
                if let Some(reth) = &mut header.reth {
                    match which {
                        3 => reth.rkey ^= 1 << rng.below(32),
                        4 => {
                            let region = self.regions[rng.below(self.regions.len())];
                            reth.rkey = region.key;
                            let end = region.addr.wrapping_add(region.length);
                            let start = end.wrapping_sub(reth.dma_bytes.into());
                            reth.remote_addr = start.wrapping_add(rng.below(3) as u64);
                        }
                        _ => reth.dma_bytes = reth.dma_bytes.wrapping_add(near(rng)),
                    }
                }
            }
        }
    }

    /// Writes a packet, and what the responder does with it.
    fn arrive(
        &mut self,
        packet: &Packet,
        place: Option<Reth>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        self.responder
            .handle_packet(self.now_ns, packet, &mut self.memory);
        let Payload::Bytes(payload) = &packet.payload else {
            unreachable!("all packets have bytes");
        };
        let bth = packet.header.bth;
        let begins = matches!(bth.opcode, WRITE_FIRST | WRITE_ONLY..);
        let ends = bth.opcode > WRITE_FIRST + 1;
        let flags = [
            (begins, FIRST),
            (ends, LAST),
            (bth.ack_request, ACK_REQUEST),
            (packet.header.imm.is_some(), HAS_IMM),
        ];
        let mut record = Record {
            kind: PACKET,
            flags: flags
                .iter()
                .fold(0, |all, (is, flag)| if *is { all | flag } else { all }),
            seq: bth.psn,
            addr: place.map_or(0, |reth| reth.remote_addr),
            rkey: place.map_or(0, |reth| reth.rkey),
            bytes: place.map_or(0, |reth| reth.dma_bytes),
            imm: packet.header.imm.unwrap_or(0),
            payload_bytes: packet.payload.carried_bytes(),
            ..Record::default()
        };
        self.answer(&mut record);
        while let Some(completion) = self.responder.poll_completion() {
            if let Completion::Written { imm, .. } = completion {
                record.ends += 1;
                record.end_imm = imm;
            }
        }
        record.write_to(out)?;
        out.write_all(payload)
    }

    /// What the responder answers. The requester gets most answers.
    fn answer(&mut self, record: &mut Record) {
        let Some(answer) = self.responder.poll_ack() else {
            return;
        };
        assert!(!self.responder.has_ack(), "a packet has one answer");
        let aeth = answer.header.aeth.expect("an answer has this header");
        let psn = answer.header.bth.psn;
        record.flags |= ANSWERS;
        record.psn = psn;
        record.msn = aeth.msn;
        record.after_gap = aeth.msn;
        self.expected = psn;
        match Syndrome::from_byte(aeth.syndrome) {
            Some(Syndrome::Ack) => self.expected = psn.wrapping_add(1) & low(SEQ_MASK),
            Some(Syndrome::Nak(Nak::Sequence)) => record.flags |= IS_NAK,
            Some(Syndrome::Nak(_)) => {
                record.flags |= IS_ERROR;
                return;
            }
            other => unreachable!("there is a receive for each message: {other:?}"),
        }
        if self.rng.chance(0.9) {
            self.requester
                .handle_packet(self.now_ns, &answer, &mut self.memory);
            while let Some(completion) = self.requester.poll_completion() {
                let is_good = matches!(completion, Completion::Acknowledged { .. });
                self.acknowledged += u64::from(is_good);
            }
        }
    }
}
