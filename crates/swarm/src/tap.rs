//! The tap: sees all packets that hosts send, hashes them, and drops or holds them back according
//! to the plan.

mod meddling;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::Range;
use std::rc::Rc;

use farwrite::QpInfo;
use farwrite::fabric::sim::{Datagram, SimNetwork, Verdict};
use farwrite_wire::header::ICRC_BYTES;
use farwrite_wire::icrc::{Flow, Icrc};
use farwrite_wire::opcode::UC_SEND_ONLY;
use farwrite_wire::packet::Packet;

use crate::plan::{Fault, MessagePlan, Plan};
use farwrite_rng::{SplitMix, mix};
use meddling::is_route_packet;

/// Where a data packet has the number of the receiving queue pair, the address, and the immediate
/// (P2).
const QPN: Range<usize> = 5..8;
const ADDRESS: Range<usize> = 12..20;
const IMM_AT: usize = 28;
/// Bits of a TOS byte: congestion experienced (RFC 3168).
const CE: u8 = 3;

/// Identifies data packets to one generation of an end of a queue pair.
#[derive(Clone, Copy, Debug)]
struct Route {
    pair: usize,
    /// The end that sends them.
    from: usize,
    generation: u64,
}

/// A packet that must arrive late.
#[derive(Debug)]
struct Kept {
    pair: usize,
    from: usize,
    /// The packet arrives when the receive of this message is posted.
    due: u64,
    datagram: Datagram,
}

/// A packet that someone repeats.
#[derive(Debug)]
struct Captured {
    /// The fault that repeats it.
    fault: usize,
    /// No copy of it arrives once a receive of this message is posted.
    unless: u64,
    /// When its next copies arrive.
    due_ns: u64,
    datagram: Datagram,
}

pub(crate) struct Tap {
    plan: Plan,
    network: SimNetwork,
    /// Addresses of the hosts: their own, and those that the network sees.
    addresses: Vec<[IpAddr; 2]>,
    rng: SplitMix,
    hash: u64,
    routes: HashMap<(IpAddr, u32), Route>,
    /// Sends started, by queue pair and sending end.
    started: Vec<[u64; 2]>,
    /// When the last data packet of each message was sent, by queue pair, sending end and number.
    written: BTreeMap<(usize, usize, u64), u64>,
    /// Chunks of critical ranges that were sent, by queue pair, sending end and number.
    critical_sent: BTreeMap<(usize, usize, u64), BTreeSet<u32>>,
    /// Messages of which other chunks were sent before all critical ones.
    overtaken: BTreeSet<(usize, usize, u64)>,
    /// When each packet of streams that consist of writes left, by queue pair, sending end and
    /// number.
    left: BTreeMap<(usize, usize, u64), BTreeMap<u64, Vec<u64>>>,
    kept: Vec<Kept>,
    captured: Vec<Captured>,
    /// Control packets held back and forged packets, by the time of arrival, then by the order of
    /// sending.
    held: BTreeMap<(u64, u64), Datagram>,
    pub(crate) counts: TapCounts,
}

/// Counters of the tap, in packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TapCounts {
    pub(crate) sent: u64,
    pub(crate) controls_dropped: u64,
    pub(crate) controls_held: u64,
    pub(crate) kept_back: u64,
    pub(crate) injected: u64,
    pub(crate) injected_data: u64,
    pub(crate) replayed: u64,
    pub(crate) forged: u64,
    /// Packets whose bytes without a tag were changed.
    pub(crate) meddled: u64,
    pub(crate) routes_repeated: u64,
}

impl Tap {
    /// Installs a tap in a network. It stays until the network's tap is cleared.
    pub(crate) fn new(
        plan: &Plan,
        network: &SimNetwork,
        addresses: Vec<[IpAddr; 2]>,
    ) -> Rc<RefCell<Self>> {
        let tap = Rc::new(RefCell::new(Self {
            network: network.clone(),
            addresses,
            rng: SplitMix::new(plan.seed ^ 1),
            hash: 0,
            routes: HashMap::new(),
            started: vec![[0; 2]; plan.pairs.len()],
            written: BTreeMap::new(),
            critical_sent: BTreeMap::new(),
            overtaken: BTreeSet::new(),
            left: BTreeMap::new(),
            kept: Vec::new(),
            captured: Vec::new(),
            held: BTreeMap::new(),
            counts: TapCounts::default(),
            plan: plan.clone(),
        }));
        let state = Rc::clone(&tap);
        network.set_tap(move |datagram| state.borrow_mut().see(datagram));
        tap
    }

    /// Adds another event of the case to the hash.
    pub(crate) fn note(&mut self, number: u64) {
        self.hash = mix(self.hash ^ number).wrapping_add(1);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Registers the receiving end of one direction of a queue pair.
    pub(crate) fn learn(&mut self, pair: usize, from: usize, addr: IpAddr, info: &QpInfo) {
        for (generation, qpns) in (0..).zip(&info.data_qpns) {
            for &qpn in qpns {
                let route = Route {
                    pair,
                    from,
                    generation,
                };
                self.routes.insert((addr, qpn), route);
            }
        }
    }

    pub(crate) fn started(&mut self, pair: usize, from: usize) {
        self.started[pair][from] += 1;
    }

    /// When the last data packet of a message was sent, if one was.
    pub(crate) fn written_ns(&self, pair: usize, from: usize, message: u64) -> Option<u64> {
        self.written.get(&(pair, from, message)).copied()
    }

    /// Whether chunks of a message were sent before all its critical chunks had been.
    pub(crate) fn is_overtaken(&self, pair: usize, from: usize, message: u64) -> bool {
        self.overtaken.contains(&(pair, from, message))
    }

    /// When each packet of a message left, if it is a stream that consists of writes.
    pub(crate) fn left(&self, pair: usize, from: usize, message: u64) -> BTreeMap<u64, Vec<u64>> {
        let left = self.left.get(&(pair, from, message));
        left.cloned().unwrap_or_default()
    }

    /// Removes the packets that are due. `posted` returns the number of posted receives by queue
    /// pair and sending end.
    pub(crate) fn take_due(&mut self, posted: impl Fn(usize, usize) -> u64) -> Vec<Datagram> {
        if self.kept.is_empty() {
            return Vec::new();
        }
        self.take(|kept| kept.due < posted(kept.pair, kept.from))
    }

    /// Removes all packets that were held back.
    pub(crate) fn take_all(&mut self) -> Vec<Datagram> {
        self.take(|_| true)
    }

    fn take(&mut self, is_due: impl Fn(&Kept) -> bool) -> Vec<Datagram> {
        let kept = std::mem::take(&mut self.kept);
        let (due, kept) = kept.into_iter().partition(is_due);
        self.kept = kept;
        let due: Vec<Kept> = due;
        self.counts.injected += due.len() as u64;
        self.counts.injected_data += due.len() as u64;
        due.into_iter().map(|kept| kept.datagram).collect()
    }

    fn see(&mut self, datagram: &Datagram) -> Verdict {
        let now_ns = self.network.now_ns();
        self.counts.sent += 1;
        self.hash_datagram(now_ns, datagram);
        let verdict = match is_route_packet(datagram) {
            true => Verdict::Pass,
            false => self.see_packet(now_ns, datagram),
        };
        match verdict {
            Verdict::Pass => self.meddle(now_ns, datagram),
            other => other,
        }
    }

    fn see_packet(&mut self, now_ns: u64, datagram: &Datagram) -> Verdict {
        let packet = Packet::parse(&datagram.payload).expect("an endpoint sends whole packets");
        let bth = packet.bth();
        if bth.opcode == UC_SEND_ONLY {
            return self.see_control(now_ns, datagram);
        }
        let route = self.routes.get(&(datagram.dst.ip(), bth.dest_qp)).copied();
        let imm = packet.imm().expect("a write has an immediate");
        match route {
            Some(route) => self.see_data(now_ns, route, imm, datagram),
            None => Verdict::Pass,
        }
    }

    fn see_control(&mut self, now_ns: u64, datagram: &Datagram) -> Verdict {
        for fault in &self.plan.faults {
            let (Fault::ControlLoss {
                path,
                link,
                span,
                share,
            }
            | Fault::ControlLate {
                path,
                link,
                span,
                share,
                ..
            }) = fault
            else {
                continue;
            };
            let hosts = self.plan.paths[*path].hosts;
            let ends = [hosts[*link], hosts[1 - link]].map(|host| self.addresses[host][1]);
            let is_there = ends == [datagram.src.ip(), datagram.dst.ip()];
            if !is_there || !span.contains(now_ns) || !self.rng.chance(*share) {
                continue;
            }
            if let Fault::ControlLate { delay_ns, .. } = fault {
                let due = (now_ns + delay_ns, self.counts.sent);
                self.held.insert(due, datagram.clone());
                self.counts.controls_held += 1;
            } else {
                self.counts.controls_dropped += 1;
            }
            return Verdict::Drop;
        }
        Verdict::Pass
    }

    /// When the next held control packet arrives, or the next copies of a captured packet.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let held = self.held.first_key_value().map(|(&(due_ns, _), _)| due_ns);
        let copies = self.captured.iter().map(|captured| captured.due_ns);
        copies.chain(held).min()
    }

    /// Keeps the packet if someone repeats a packet of this queue pair. Its copies do not arrive before
    /// it can have arrived.
    fn capture(&mut self, now_ns: u64, route: Route, message: u64, datagram: &Datagram) {
        let Route { pair, from, .. } = route;
        for (index, fault) in self.plan.faults.iter().enumerate() {
            let Fault::Replay {
                pair: p,
                from: f,
                span,
                ..
            } = fault
            else {
                continue;
            };
            let is_here = (*p, *f) == (pair, from) && span.contains(now_ns);
            // A copy that arrives after a later write would undo it.
            let is_sealed = self.plan.is_sealed();
            let is_written = !self.plan_of(pair, from, message).write_limits_ns.is_empty();
            if !is_here
                || (is_written && !is_sealed)
                || self.captured.iter().any(|known| known.fault == index)
            {
                continue;
            }
            let links = &self.plan.paths[self.plan.pairs[pair].path].links;
            let delay_ns = u64::try_from(links[from].delay.as_nanos()).expect("short");
            let sdr = &self.plan.pairs[pair].options.sdr;
            self.captured.push(Captured {
                fault: index,
                unless: match is_sealed {
                    true => u64::MAX,
                    false => message + u64::from(sdr.slots) * u64::from(sdr.generations),
                },
                due_ns: now_ns + delay_ns,
                datagram: datagram.clone(),
            });
        }
    }

    /// Sends a changed copy of the packet, if someone forges packets of this queue pair. It overtakes
    /// the packet.
    fn forge(&mut self, now_ns: u64, route: Route, datagram: &Datagram) {
        let is_here = |fault: &Fault| match fault {
            Fault::Forgery {
                pair, from, span, ..
            } => (*pair, *from) == (route.pair, route.from) && span.contains(now_ns),
            _ => false,
        };
        let fault = self.plan.faults.iter().find(|fault| is_here(fault));
        let Some(&Fault::Forgery { share, .. }) = fault else {
            return;
        };
        if !self.rng.chance(share) {
            return;
        }
        let mut forged = datagram.clone();
        let body = forged.payload.len() - ICRC_BYTES;
        match self.rng.within(0..4) {
            // A bit of the immediate, the payload, the counter or the tag.
            0..2 => {
                // The tag does not cover padding, which nothing reads.
                let pad = usize::from(forged.payload[1] >> 4 & 3);
                let at = self.rng.within(IMM_AT as u64..(body - pad) as u64);
                let at = usize::try_from(at).expect("a packet");
                forged.payload[at] ^= 1 << self.rng.within(0..8);
            }
            // Another place in the buffer.
            2 => {
                let mtu = u64::from(self.plan.pairs[route.pair].options.sdr.mtu);
                let place = &mut forged.payload[ADDRESS];
                let address = u64::from_be_bytes(place.try_into().expect("8 bytes"));
                let moved = address.wrapping_add(self.rng.pick(&[mtu, mtu.wrapping_neg()]));
                forged.payload[ADDRESS].copy_from_slice(&moved.to_be_bytes());
            }
            // Back to its sender.
            _ => {
                let host = datagram.src.ip();
                let is_back = |(&(addr, qpn), back): (&(IpAddr, u32), &Route)| {
                    let is_back = (addr, back.pair, back.from)
                        == (host, route.pair, 1 - route.from)
                        && back.generation == route.generation;
                    is_back.then_some(qpn)
                };
                let back = self.routes.iter().filter_map(is_back).min();
                std::mem::swap(&mut forged.src, &mut forged.dst);
                if let Some(qpn) = back {
                    forged.payload[QPN].copy_from_slice(&qpn.to_be_bytes()[1..]);
                }
            }
        }
        let flow = Flow::new(forged.src, self.inside(forged.dst)).expect("as the packet's");
        let icrc = Icrc::new(&flow, forged.id, forged.payload.len());
        let icrc = icrc.update(&forged.payload[..body]).finish();
        forged.payload[body..].copy_from_slice(&icrc.to_le_bytes());
        let links = &self.plan.paths[self.plan.pairs[route.pair].path].links;
        let delay_ns = u64::try_from(links[route.from].delay.as_nanos()).expect("short");
        self.held
            .insert((now_ns + delay_ns / 2, self.counts.sent), forged);
        self.counts.forged += 1;
    }

    /// Returns the copies that arrive by `now_ns`. `posted` is as in [`Tap::take_due`].
    pub(crate) fn take_copies(
        &mut self,
        now_ns: u64,
        posted: impl Fn(usize, usize) -> u64,
    ) -> Vec<Datagram> {
        let mut copies = Vec::new();
        let faults = &self.plan.faults;
        self.captured.retain_mut(|captured| {
            let &Fault::Replay {
                pair,
                from,
                span,
                every_ns,
                copies: count,
                marked,
            } = &faults[captured.fault]
            else {
                return false;
            };
            if !span.contains(now_ns) || captured.unless < posted(pair, from) {
                return false;
            }
            if captured.due_ns <= now_ns {
                captured.due_ns = now_ns + every_ns;
                let mut copy = captured.datagram.clone();
                copy.tos |= if marked { CE } else { 0 };
                copies.extend((0..count).map(|_| copy.clone()));
            }
            true
        });
        self.counts.injected += copies.len() as u64;
        self.counts.replayed += copies.len() as u64;
        copies
    }

    /// Removes the held control packets that arrive by `now_ns`.
    pub(crate) fn take_held(&mut self, now_ns: u64) -> Vec<Datagram> {
        let later = self.held.split_off(&(now_ns.saturating_add(1), 0));
        let due = std::mem::replace(&mut self.held, later);
        self.counts.injected += due.len() as u64;
        due.into_values().collect()
    }

    fn see_data(&mut self, now_ns: u64, route: Route, imm: u32, datagram: &Datagram) -> Verdict {
        let Route { pair, from, .. } = route;
        let message = self.message(route, imm);
        self.written.insert((pair, from, message), now_ns);
        self.capture(now_ns, route, message, datagram);
        self.forge(now_ns, route, datagram);
        self.see_critical(route, imm, message);
        self.see_write(now_ns, route, imm, message);
        let is_here = |fault: &&Fault| {
            matches!(fault, Fault::Late { pair: p, from: f, span, .. }
                if *p == pair && *f == from && span.contains(now_ns))
        };
        let fault = self.plan.faults.iter().find(is_here);
        let Some(&Fault::Late {
            share, age, copies, ..
        }) = fault
        else {
            return Verdict::Pass;
        };
        if !self.rng.chance(share) {
            return Verdict::Pass;
        }
        let slots = u64::from(self.plan.pairs[pair].options.sdr.slots);
        self.kept.push(Kept {
            pair,
            from,
            due: message + age * slots,
            datagram: datagram.clone(),
        });
        if copies {
            return Verdict::Pass;
        }
        self.counts.kept_back += 1;
        Verdict::Drop
    }

    /// Notes whether the critical chunks of a message leave before the others (P5.9.6). Several
    /// channels have a queue each, so there the order in which packets leave is open.
    fn see_critical(&mut self, Route { pair, from, .. }: Route, imm: u32, message: u64) {
        let sdr = &self.plan.pairs[pair].options.sdr;
        let plan = self.plan_of(pair, from, message);
        if plan.critical.is_empty() || sdr.channels > 1 {
            return;
        }
        let chunk = self.packet(pair, imm) / sdr.packets_per_chunk;
        let critical = plan.critical_chunks(self.plan.pairs[pair].chunk_bytes());
        let critical: BTreeSet<u32> = critical
            .map(|chunk| u32::try_from(chunk).expect("short"))
            .collect();
        let name = (pair, from, message);
        let sent = self.critical_sent.entry(name).or_default();
        if critical.contains(&chunk) {
            sent.insert(chunk);
        } else if sent.len() < critical.len() {
            self.overtaken.insert(name);
        }
    }

    /// Notes when the packets of writes leave.
    fn see_write(&mut self, now_ns: u64, Route { pair, from, .. }: Route, imm: u32, message: u64) {
        if self.plan_of(pair, from, message).write_limits_ns.is_empty() {
            return;
        }
        let packet = u64::from(self.packet(pair, imm));
        let left = self.left.entry((pair, from, message)).or_default();
        left.entry(packet).or_default().push(now_ns);
    }

    fn plan_of(&self, pair: usize, from: usize, message: u64) -> &MessagePlan {
        let number = usize::try_from(message).expect("few messages");
        let index = self.plan.course(pair, from).nth(number);
        &self.plan.messages[index.expect("it was started")]
    }

    /// The number of a packet in its message.
    fn packet(&self, pair: usize, imm: u32) -> u32 {
        let split = &self.plan.pairs[pair].options.sdr.split;
        imm << split.id_bits >> split.id_bits >> split.user_bits
    }

    /// The message of a data packet: the newest started message with its slot and generation. Older
    /// messages with these ended before the newest was started.
    fn message(&self, route: Route, imm: u32) -> u64 {
        let sdr = &self.plan.pairs[route.pair].options.sdr;
        let (slots, generations) = (u64::from(sdr.slots), u64::from(sdr.generations));
        let id_shift = 32 - u32::from(sdr.split.id_bits);
        // The id of a parity message is the id of its message plus the number of slots.
        let slot = u64::from(imm >> id_shift) % slots;
        let first = route.generation * slots + slot;
        let started = self.started[route.pair][route.from];
        let rounds = (started - 1 - first) / (slots * generations);
        first + rounds * slots * generations
    }

    fn hash_datagram(&mut self, now_ns: u64, datagram: &Datagram) {
        self.note(now_ns);
        self.note(u64::from(datagram.src.port()) << 16 | u64::from(datagram.dst.port()));
        let mut words = datagram.payload.chunks_exact(8);
        let mut hash = self.hash;
        for word in &mut words {
            let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
            hash = (hash ^ word)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
        }
        for &byte in words.remainder() {
            hash = mix(hash ^ u64::from(byte));
        }
        self.hash = hash;
    }
}
