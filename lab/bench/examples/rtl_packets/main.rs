//! `rtl_packets --packets N --seed S --out FILE --sealed FILE --rivals FILE`: packets and requests for the hardware
//! of `lab/rtl`, with what `farwrite_rc::xp` makes of each, the first of these packets with their ICRC, and packets
//! for the rivals of XP there.
//!
//! Queue pairs send to each other in pairs, and the hardware is all of them. The path between them loses packets,
//! doubles them and changes their order; a share of them is forged. `record.rs` has the form of the file.

mod pair;
mod record;
mod rival_record;
mod rivals;
mod sealed;
mod wire;

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;

use clap::Parser;
use farwrite_link::Rng;
use farwrite_net::Payload;
use farwrite_net::header::Roce;
use farwrite_rc::xp::{CompleteBy, Config, QueuePair, Write};
use farwrite_rc::{Memory, Packet, Remote};
use farwrite_wire::header::{Bth, Reth};

use crate::pair::Pair;
use crate::record::{Kind, Outcome, Record, SCANNED};

const PAIRS: u32 = 32;
const KEYS: u32 = 64;
const REGIONS: u32 = 24;
const LINE_BPS: u64 = 100_000_000_000;
const MOST_POSTED: usize = 8;
/// Packets on the way to a queue pair; further ones are lost.
const MOST_ON_THE_WAY: usize = 12;
/// The hardware's microseconds wrap after this one.
const LAST_US: u64 = u32::MAX as u64;
const SEQ_MASK: u64 = (1 << 24) - 1;
const NOTIFICATION: u8 = 0x81;
const MOST_SEALED: u64 = 20_000;
const RIVAL_PACKETS: u64 = 20_000;

/// What is written.
#[derive(Parser)]
struct Options {
    /// Packets that arrive.
    #[arg(long, default_value_t = 100_000)]
    packets: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The file; standard output without it.
    #[arg(long)]
    out: Option<PathBuf>,
    /// The file of whole packets with their ICRC.
    #[arg(long)]
    sealed: Option<PathBuf>,
    /// The file of packets for Go-Back-N and IRN.
    #[arg(long)]
    rivals: Option<PathBuf>,
}

/// The number that a message has in hardware.
pub(crate) fn number(base: u32, id: u64) -> u32 {
    let number = (u64::from(base) + id) & SEQ_MASK;
    u32::try_from(number).unwrap_or(0)
}

/// The low half.
pub(crate) fn low(value: u64) -> u32 {
    u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0)
}

/// A uniform number below `limit`.
pub(crate) fn below(rng: &mut Rng, limit: u32) -> u32 {
    u32::try_from(rng.below(limit as usize)).unwrap_or(0)
}

/// Memory that peers may write.
#[derive(Clone, Copy)]
struct Region {
    key: u32,
    addr: u64,
    length: u64,
}

struct World {
    rng: Rng,
    now_ns: u64,
    pairs: Vec<Pair>,
    /// Packets on the way to each queue pair, and whether a switch has marked them.
    on_the_way: Vec<Vec<(Packet, bool)>>,
    regions: Vec<Region>,
    memory: Memory,
    /// Where the last event happened: often the next one happens there too.
    last: usize,
    packets: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut memory = Memory::default();
        let regions: Vec<_> = (0..REGIONS)
            .map(|at| {
                // Keys of one entry of the table never meet.
                let key = (low(rng.bits()) & !(KEYS - 1)) | ((at * 5 + 3) % KEYS);
                let length = 1 + rng.below(40_000) as u64;
                // Some end where the address space ends.
                let addr = if rng.chance(0.2) {
                    u64::MAX - length
                } else {
                    rng.bits() >> (1 + rng.below(40))
                };
                let registered = memory.register_ghost(key, addr, length);
                registered.expect("the key is free, and the region is within the address space");
                Region { key, addr, length }
            })
            .collect();
        let (mut base, mut mtu_bytes) = (0, 0);
        let pairs = (0..PAIRS)
            .map(|qpn| {
                if qpn % 2 == 0 {
                    mtu_bytes = 256 << rng.below(5);
                    // Half of the numbers wrap soon.
                    let near = (1 << 24) - 1 - below(&mut rng, 40);
                    base = if rng.chance(0.5) {
                        near
                    } else {
                        below(&mut rng, 1 << 24)
                    };
                }
                let pair = QueuePair::new(&Config {
                    peer_qpn: qpn ^ 1,
                    mtu_bytes,
                    line_rate_bps: LINE_BPS,
                    max_requests: 64,
                    complete_by: CompleteBy::LastPacket,
                    credit: None,
                });
                Pair::new(qpn, base, mtu_bytes, pair.expect("the settings are valid"))
            })
            .collect();
        Self {
            rng,
            // Microseconds wrap within the first packets.
            now_ns: (LAST_US - 300) * 1_000,
            pairs,
            on_the_way: vec![Vec::new(); PAIRS as usize],
            regions,
            memory,
            last: 0,
            packets: 0,
        }
    }

    fn pass_time(&mut self) {
        let most_ns = match self.rng.below(10_000) {
            0 => 40_000_000_000,
            1..100 => 600_000,
            100..3_000 => 2_000,
            _ => 40,
        };
        self.now_ns += self.rng.below(most_ns) as u64;
    }

    fn deadline(&mut self) -> Option<u64> {
        let is_limited = self.rng.chance(0.3);
        is_limited.then(|| self.now_ns + self.rng.below(200_000) as u64)
    }

    /// The next events.
    fn step(&mut self) -> Vec<Record> {
        self.pass_time();
        if self.rng.chance(0.7) {
            self.last = self.rng.below(PAIRS as usize);
        }
        let at = self.last;
        let now_ns = self.now_ns;
        match self.rng.below(100) {
            0..50 => self.deliver(at),
            50..75 => self.send(at),
            75..86 if self.pairs[at].receives() < MOST_POSTED => {
                let deadline_ns = self.deadline();
                self.pairs[at].post_receive(now_ns, deadline_ns)
            }
            86..95 if self.may_post(at) => {
                let write = self.write(at);
                self.pairs[at].post_send(now_ns, write)
            }
            95 => self.pairs[at].scan(now_ns),
            96..98 => self.notify(at),
            98 => self.arrive(at, notification(self.pairs[at].qpn), false),
            _ => self.forged(at),
        }
    }

    /// Mostly a message has a receive: packets of others are dropped.
    fn may_post(&mut self, at: usize) -> bool {
        let has_receive = self.pairs[at].next_send < self.pairs[at ^ 1].next_receive;
        self.pairs[at].sends() < MOST_POSTED && (has_receive || self.rng.chance(0.01))
    }

    /// A message somewhere in a region, or a little beyond it.
    fn write(&mut self, at: usize) -> Write {
        let mtu_bytes = self.pairs[at].mtu_bytes as usize;
        let region = self.regions[self.rng.below(self.regions.len())];
        let bytes = self.rng.below(1 + 5 * mtu_bytes) as u64;
        let bytes = if self.rng.chance(0.9) {
            bytes.min(region.length)
        } else {
            bytes
        };
        let room = low(region.length.saturating_sub(bytes));
        let place = u64::from(below(&mut self.rng, room + 1));
        Write {
            id: 0,
            data: Payload::Ghost(low(bytes)),
            to: Remote {
                rkey: region.key,
                addr: region.addr.wrapping_add(place),
            },
            imm: low(self.rng.bits()),
            deadline_ns: self.deadline(),
        }
    }

    fn send(&mut self, at: usize) -> Vec<Record> {
        let (records, packet) = self.pairs[at].send(self.now_ns);
        if let Some(packet) = packet {
            let way = &mut self.on_the_way[at ^ 1];
            let copies = [1, 1, 1, 1, 1, 1, 2, 0][self.rng.below(8)];
            for _ in 0..copies {
                if way.len() < MOST_ON_THE_WAY {
                    way.push((packet.clone(), self.rng.chance(0.02)));
                }
            }
        }
        records
    }

    /// A packet comes to its end, mostly the oldest one.
    fn deliver(&mut self, at: usize) -> Vec<Record> {
        let waiting = self.on_the_way[at].len();
        if waiting == 0 {
            return self.send(at ^ 1);
        }
        let place = if self.rng.chance(0.8) {
            0
        } else {
            self.rng.below(waiting)
        };
        let (packet, is_marked) = self.on_the_way[at].remove(place);
        self.arrive(at, packet, is_marked)
    }

    fn arrive(&mut self, at: usize, packet: Packet, is_marked: bool) -> Vec<Record> {
        self.packets += 1;
        let pair = &mut self.pairs[at];
        let header = wire::roce(&packet, pair.qpn, pair.base);
        if self.rng.chance(0.01) {
            let fault = wire::FAULTS[self.rng.below(wire::FAULTS.len())];
            let (beats, bytes) =
                wire::beats(&mut self.rng, &packet, &header, is_marked, Some(fault));
            return vec![Record {
                beats,
                packet: bytes,
                outcome: Outcome::NoEvent,
                ..Record::new(Kind::Packet, 0, self.now_ns)
            }];
        }
        let beats = wire::beats(&mut self.rng, &packet, &header, is_marked, None);
        pair.arrive(self.now_ns, &packet, is_marked, beats, &mut self.memory)
    }

    /// A packet that no end has sent: any number, key, address and length, each mostly near one that is valid.
    fn forged(&mut self, at: usize) -> Vec<Record> {
        let region = self.regions[self.rng.below(self.regions.len())];
        let mtu_bytes = self.pairs[at].mtu_bytes;
        let near =
            |rng: &mut Rng, value: u64| value.wrapping_add(rng.below(5) as u64).wrapping_sub(2);
        let rng = &mut self.rng;
        let bytes = match rng.below(4) {
            0 => u64::from(mtu_bytes) - 2 + rng.below(5) as u64,
            1 => rng.below(6) as u64,
            _ => rng.below(mtu_bytes as usize) as u64,
        };
        let addr = match rng.below(4) {
            0 => near(rng, region.addr),
            1 => near(
                rng,
                region.addr.wrapping_add(region.length).wrapping_sub(bytes),
            ),
            2 => region.addr.wrapping_add(rng.below(100) as u64),
            _ => rng.bits(),
        };
        let rkey = if rng.chance(0.8) {
            region.key
        } else {
            region.key ^ (1 << rng.below(32))
        };
        let active = self.pairs[at].active_receive();
        let psn = match rng.below(8) {
            0 => rng.bits(),
            1 => active.wrapping_add((1 << 23) - 2 + rng.below(4) as u64),
            _ => active.wrapping_add(rng.below(12) as u64).wrapping_sub(2),
        } & SEQ_MASK;
        let opcode = match rng.below(10) {
            0 => 0x2C,
            1..6 => 0x2A,
            _ => 0x2B,
        };
        let dma_bytes = if rng.chance(0.8) {
            bytes + rng.below(9000) as u64
        } else {
            near(rng, bytes)
        };
        let mut header = Roce::new(Bth::new(opcode, self.pairs[at].qpn, low(psn)));
        // An opcode that XP does not have.
        if opcode != 0x2C {
            header.reth = Some(Reth {
                remote_addr: addr,
                rkey,
                dma_bytes: low(dma_bytes),
            });
        }
        header.imm = (opcode == 0x2B).then(|| low(self.rng.bits()));
        let payload = Payload::Ghost(low(bytes));
        self.arrive(at, Packet { header, payload }, false)
    }

    fn notify(&mut self, at: usize) -> Vec<Record> {
        let (records, packet) = self.pairs[at].notify(self.now_ns);
        if let Some(packet) = packet {
            self.on_the_way[at ^ 1].push((packet, false));
        }
        records
    }

    /// The scan of timers comes to all queue pairs.
    fn scan_all(&mut self) -> Vec<Record> {
        self.now_ns += 150_000;
        let (mut first, mut others) = (Vec::new(), Vec::new());
        for pair in &mut self.pairs {
            let mut records = pair.scan(self.now_ns).into_iter();
            first.extend(records.next().map(|record| Record {
                flags: record.flags | SCANNED,
                ..record
            }));
            others.extend(records);
        }
        first.extend(others);
        first
    }
}

/// A congestion notification for a queue pair (IBTA A17.9.3).
fn notification(qpn: u32) -> Packet {
    let bth = Bth {
        migrated: false,
        becn: true,
        ..Bth::new(NOTIFICATION, qpn, 0)
    };
    Packet {
        header: Roce::new(bth),
        payload: Payload::Ghost(16),
    }
}

fn run(options: &Options, out: &mut impl io::Write, sealed: &mut impl io::Write) -> io::Result<()> {
    let mut world = World::new(options.seed);
    // The packets of the other file do not depend on these draws.
    let mut rng = Rng::new(options.seed);
    let mut most_sealed = MOST_SEALED;
    for value in [
        PAIRS,
        KEYS,
        REGIONS,
        u32::try_from(LINE_BPS / 1_000).unwrap_or(u32::MAX),
    ] {
        out.write_all(&value.to_le_bytes())?;
    }
    for region in &world.regions {
        out.write_all(&region.key.to_le_bytes())?;
        out.write_all(&region.addr.to_le_bytes())?;
        out.write_all(&region.length.to_le_bytes())?;
    }
    let bases: Vec<_> = world.pairs.iter().map(|pair| pair.base).collect();
    let mut records: Vec<_> = world
        .pairs
        .iter()
        .map(|pair| pair.create(pair.qpn ^ 1))
        .collect();
    loop {
        for record in &records {
            record.write_to(bases[record.qpn as usize], out)?;
            if record.is_valid_packet() && most_sealed > 0 {
                most_sealed -= 1;
                sealed::write(&mut rng, &record.packet, sealed)?;
            }
        }
        if world.packets >= options.packets {
            break;
        }
        records = world.step();
    }
    for record in world.scan_all() {
        record.write_to(bases[record.qpn as usize], out)?;
    }
    out.flush()?;
    sealed.flush()
}

fn main() -> io::Result<()> {
    let options = Options::parse();
    let mut out = file(options.out.as_ref(), io::stdout())?;
    let mut sealed = file(options.sealed.as_ref(), io::sink())?;
    run(&options, &mut out, &mut sealed)?;
    let packets = options.packets.min(RIVAL_PACKETS);
    match &options.rivals {
        Some(path) => rivals::write(
            options.seed,
            packets,
            &mut BufWriter::new(File::create(path)?),
        ),
        None => Ok(()),
    }
}

/// A file, or what takes its place.
fn file(
    path: Option<&PathBuf>,
    other: impl io::Write + 'static,
) -> io::Result<BufWriter<Box<dyn io::Write>>> {
    Ok(BufWriter::new(match path {
        Some(path) => Box::new(File::create(path)?),
        None => Box::new(other),
    }))
}
