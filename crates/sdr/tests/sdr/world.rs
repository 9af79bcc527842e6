//! Two queue pairs, a lossy network between them, and memory behind root keys. This is a model of
//! an endpoint with the simplest scheme that repairs losses.

use std::collections::{BTreeMap, BTreeSet};

use farwrite_rng::SplitMix;
use farwrite_sdr::{
    Arrival, ChunkBitmap, Event, Offered, Place, QpConfig, RecvPlace, Refusal, SdrError, SdrQp,
    SendSpec, Terms,
};
use farwrite_wire::control::{Ack, Control, Outcome};

use crate::connected;
use crate::release::release;

pub(crate) const RTT_NS: u64 = 20_000_000;

/// The faults of the network, in percent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) loss: u64,
    pub(crate) duplicate: u64,
    /// Maximum extra delay.
    pub(crate) jitter_ns: u64,
    /// Between these two times, the network loses everything.
    pub(crate) dead_ns: (u64, u64),
    /// Whether late packets vanish (revoked keys) or complete (null keys).
    pub(crate) late_vanish: bool,
    /// The numbers of first offers, clearances and ends that are lost.
    pub(crate) lost: [u32; 3],
}

impl Faults {
    pub(crate) const NONE: Self = Self {
        loss: 0,
        duplicate: 0,
        jitter_ns: 0,
        dead_ns: (0, 0),
        late_vanish: false,
        lost: [0; 3],
    };
}

/// The course of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Sent and received whole.
    Plain,
    /// Sent without a length, which becomes known later.
    Stream,
    /// The receiver completes it when the first packet arrives.
    Early,
    /// The receiver completes it at once.
    Cancel,
    /// The sender withdraws it as soon as it may write.
    Withdraw,
    /// The buffer is too short.
    TooLong,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) plan: Plan,
    pub(crate) length: u64,
    pub(crate) immediate: Option<u32>,
    /// Whether the sender does not wait for the end of the receive.
    pub(crate) hasty: bool,
}

#[derive(Clone)]
struct Packet {
    generation: u8,
    address: u64,
    imm: u32,
    payload: Vec<u8>,
}

enum Item {
    ToReceiver(Control),
    ToSender(Control),
    Data(Packet),
}

struct UserSend {
    number: usize,
    acked: BTreeSet<u32>,
    resend_ns: u64,
    clear: bool,
    ended: bool,
}

struct Recv {
    bitmap: ChunkBitmap,
    place: RecvPlace,
    buffer: Vec<u8>,
    length: Option<u64>,
}

pub(crate) struct World {
    config: QpConfig,
    faults: Faults,
    random: SplitMix,
    now_ns: u64,
    messages: Vec<Message>,
    a: SdrQp,
    b: SdrQp,
    network: BTreeMap<(u64, u64), Item>,
    items: u64,
    sends: BTreeMap<u64, UserSend>,
    recvs: BTreeMap<u64, Recv>,
    started: usize,
    posted: usize,
    pub(crate) sender_outcomes: BTreeMap<u64, Outcome>,
    pub(crate) receiver_outcomes: BTreeMap<u64, Outcome>,
    pub(crate) late: u64,
    pub(crate) duplicates: u64,
    pub(crate) controls: u64,
    /// When the last message ended at the sender.
    pub(crate) over_ns: u64,
}

/// Returns byte `offset` of message `message`.
fn content(message: u64, offset: u64) -> u8 {
    (message.wrapping_mul(131) ^ offset.wrapping_mul(7) ^ (offset >> 8)).to_le_bytes()[0]
}

impl World {
    pub(crate) fn new(config: QpConfig, faults: Faults, seed: u64, messages: Vec<Message>) -> Self {
        Self {
            config,
            faults,
            random: SplitMix::new(seed),
            now_ns: 0,
            messages,
            a: connected(config),
            b: connected(config),
            network: BTreeMap::new(),
            items: 0,
            sends: BTreeMap::new(),
            recvs: BTreeMap::new(),
            started: 0,
            posted: 0,
            sender_outcomes: BTreeMap::new(),
            receiver_outcomes: BTreeMap::new(),
            late: 0,
            duplicates: 0,
            controls: 0,
            over_ns: 0,
        }
    }

    /// Runs until both ends are silent and the network is empty.
    pub(crate) fn run(&mut self) {
        for _ in 0..200_000 {
            self.act();
            let timers = [self.a.next_timeout(), self.b.next_timeout()];
            let resend = self.sends.values().filter(|s| s.clear).map(|s| s.resend_ns);
            let network = self.network.keys().next().map(|key| key.0);
            let next = timers
                .into_iter()
                .flatten()
                .chain(resend)
                .chain(network)
                .min();
            let Some(next_ns) = next else {
                assert_eq!(self.posted, self.messages.len());
                assert!(self.sends.is_empty() && self.recvs.is_empty());
                return;
            };
            self.now_ns = self.now_ns.max(next_ns);
            while let Some(entry) = self.network.first_entry() {
                if entry.key().0 > self.now_ns {
                    break;
                }
                let item = entry.remove();
                self.deliver(item);
            }
        }
        panic!(
            "not silent: {} of {} started, {} posted, at {} ns, timeouts {:?} {:?}, open sends {:?} recvs {:?}",
            self.started,
            self.messages.len(),
            self.posted,
            self.now_ns,
            self.a.next_timeout(),
            self.b.next_timeout(),
            self.sends.keys().collect::<Vec<_>>(),
            self.recvs.keys().collect::<Vec<_>>(),
        );
    }

    fn push(&mut self, item: impl Fn() -> Item) {
        self.controls += u64::from(!matches!(item(), Item::Data(_)));
        let copies = 1 + u64::from(self.random.percent(self.faults.duplicate));
        let kind = match item() {
            Item::ToReceiver(Control::Offer(_)) => Some(0),
            Item::ToSender(Control::ClearToSend(_)) => Some(1),
            Item::ToSender(Control::ReceiveComplete { .. }) => Some(2),
            _ => None,
        };
        if let Some(left @ 1..) = kind.map(|kind: usize| &mut self.faults.lost[kind]) {
            *left -= 1;
            return;
        }
        let (from_ns, until_ns) = self.faults.dead_ns;
        let dead = (from_ns..until_ns).contains(&self.now_ns);
        for _ in 0..copies {
            if !dead && !self.random.percent(self.faults.loss) {
                let at_ns = self.now_ns + RTT_NS / 2 + self.random.below(self.faults.jitter_ns);
                self.items += 1;
                self.network.insert((at_ns, self.items), item());
            }
        }
    }

    fn deliver(&mut self, item: Item) {
        match item {
            Item::ToSender(Control::Ack(ack)) => {
                self.a
                    .handle_control(self.now_ns, &Control::Ack(ack.clone()))
                    .unwrap();
                if let Some(send) = self.sends.get_mut(&ack.message) {
                    let bits = (0_u32..).zip(
                        ack.bits
                            .iter()
                            .flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1)),
                    );
                    send.acked.extend(bits.filter(|bit| bit.1).map(|bit| bit.0));
                }
            }
            Item::ToSender(control) => self.a.handle_control(self.now_ns, &control).unwrap(),
            Item::ToReceiver(control) => self.b.handle_control(self.now_ns, &control).unwrap(),
            Item::Data(packet) => self.place(&packet),
        }
    }

    /// Handles a packet like the receiving NIC and the worker behind it.
    fn place(&mut self, packet: &Packet) {
        let geometry = *self.b.geometry();
        let slot = packet.address / geometry.slot_bytes();
        let bound = self.recvs.values_mut().find(|recv| {
            u64::from(recv.place.slot) == slot && recv.place.generation == packet.generation
        });
        if let Some(recv) = bound {
            let offset = usize::try_from(packet.address % geometry.slot_bytes()).unwrap();
            let end = offset + packet.payload.len();
            recv.buffer[offset..end].copy_from_slice(&packet.payload);
        } else if self.faults.late_vanish {
            return;
        }
        let bytes = u32::try_from(packet.payload.len()).unwrap();
        match self
            .b
            .table()
            .handle_packet(packet.generation, packet.imm, bytes)
        {
            Arrival::New { .. } => {}
            Arrival::Duplicate { .. } => self.duplicates += 1,
            Arrival::Late { message } => {
                self.late += 1;
                self.b.handle_late(message);
            }
            // Packets without bytes are invalid until the offer arrives.
            Arrival::Invalid => assert_eq!(bytes, 0, "an honest packet is invalid"),
        }
    }

    fn act(&mut self) {
        self.receiver_events();
        self.sender_events();
        self.acknowledge();
        self.post_receives();
        self.start_sends();
        self.receiver_events();
        self.sender_events();
        self.transmit();
        while let Some(control) = self.a.poll_control(self.now_ns, RTT_NS) {
            self.push(|| Item::ToReceiver(control.clone()));
        }
        while let Some(control) = self.b.poll_control(self.now_ns, RTT_NS) {
            self.push(|| Item::ToSender(control.clone()));
        }
    }

    fn post_receives(&mut self) {
        while let Some(message) = self.messages.get(self.posted).copied() {
            let place = match self.b.next_recv() {
                Ok(place) => place,
                Err(SdrError::Retry(_)) => return,
                Err(other) => panic!("{other}"),
            };
            let short = u64::from(message.plan == Plan::TooLong);
            let length = message.length - short;
            let target = Place {
                rkey: u32::from(place.generation),
                base: self.b.geometry().slot_base(place.slot),
                length,
            };
            let bitmap = self.b.post_recv(place, target, Terms::default()).unwrap();
            assert_eq!(bitmap.count(), 0, "a fresh bitmap is empty");
            let recv = Recv {
                bitmap,
                place,
                buffer: vec![0xee; usize::try_from(length).unwrap()],
                length: None,
            };
            self.recvs.insert(place.message.data(), recv);
            assert_eq!(place.message, self.posted as u64);
            self.posted += 1;
            if message.plan == Plan::Cancel {
                self.complete(place.message.data(), Outcome::Failed);
            }
        }
    }

    fn start_sends(&mut self) {
        while let Some(message) = self.messages.get(self.started).copied() {
            let spec = SendSpec {
                length: (message.plan != Plan::Stream).then_some(message.length),
                immediate: message.immediate,
                ..SendSpec::default()
            };
            let number = match self.a.start_send(spec) {
                Ok(number) => number,
                Err(SdrError::Retry(_)) => return,
                Err(other) => panic!("{other}"),
            };
            let send = UserSend {
                number: self.started,
                acked: BTreeSet::new(),
                resend_ns: 0,
                clear: false,
                ended: message.plan != Plan::Stream,
            };
            self.sends.insert(number, send);
            self.started += 1;
        }
    }

    fn sender_events(&mut self) {
        while let Some(event) = self.a.poll_event() {
            match event {
                Event::ClearToSend { message } => {
                    let message = message.data();
                    let send = self.sends.get_mut(&message).unwrap();
                    send.clear = true;
                    send.resend_ns = self.now_ns;
                    if self.messages[send.number].plan == Plan::Withdraw {
                        self.close(message, Outcome::Failed);
                    }
                }
                Event::SendRefused { message, refusal } => {
                    let Refusal::TooLong { length, capacity } = refusal else {
                        panic!("{refusal}");
                    };
                    assert_eq!(length, capacity + 1);
                    self.close(message, Outcome::Failed);
                }
                Event::Closed { message, outcome } => {
                    self.sends.remove(&message).unwrap();
                    self.sender_outcomes.insert(message, outcome);
                    self.over_ns = self.now_ns;
                }
                other => panic!("{other:?} at the sender"),
            }
        }
        let geometry = *self.a.geometry();
        let acked = self.sends.iter().filter(|(_, send)| {
            let message = self.messages[send.number];
            let chunks = geometry.chunks(message.length, message.immediate.is_some());
            message.hasty && send.ended && send.acked.len() == chunks as usize
        });
        for message in acked.map(|(m, _)| *m).collect::<Vec<_>>() {
            self.close(message, Outcome::Whole);
        }
    }

    fn close(&mut self, message: u64, outcome: Outcome) {
        self.a.close_send(message, outcome);
        self.sends.remove(&message);
        self.sender_outcomes.insert(message, outcome);
        assert_eq!(self.a.writes(message, 0..1).count(), 0);
    }

    fn receiver_events(&mut self) {
        while let Some(event) = self.b.poll_event() {
            match event {
                Event::Offered(Offered {
                    message, length, ..
                }) => {
                    if let Some(recv) = self.recvs.get_mut(&message) {
                        recv.length = length;
                    }
                }
                Event::LengthKnown { message, length } => {
                    if let Some(recv) = self.recvs.get_mut(&message) {
                        recv.length = Some(length);
                    }
                }
                Event::Withdrawn { message, .. } | Event::Refused { message, .. } => {
                    if self.recvs.contains_key(&message) {
                        self.complete(message, Outcome::Failed);
                    }
                }
                other => panic!("{other:?} at the receiver"),
            }
        }
    }

    /// Acknowledges arrived chunks, and completes whole messages.
    fn acknowledge(&mut self) {
        let received = self.b.received();
        let mut arrived = BTreeSet::new();
        received.drain_arrivals(|message| {
            arrived.insert(message.data());
        });
        for message in arrived {
            let recv = &self.recvs[&message];
            let plan = self.messages[usize::try_from(message).unwrap()].plan;
            if plan == Plan::Early {
                self.complete(message, Outcome::Partial);
                continue;
            }
            let ack = Ack {
                message,
                cumulative: 0,
                seen: self.b.received().seen(message),
                window_start: 0,
                bits: recv.bitmap.to_bytes(),
            };
            // A scheme starts when the offer arrives.
            if recv.length.is_some() || plan == Plan::Stream {
                self.push(|| Item::ToSender(Control::Ack(ack.clone())));
            }
            if self.recvs[&message].bitmap.is_complete() {
                self.complete(message, Outcome::Whole);
            }
        }
    }

    fn complete(&mut self, message: u64, outcome: Outcome) {
        let recv = self.recvs.remove(&message).unwrap();
        let plan = self.messages[usize::try_from(message).unwrap()];
        if outcome == Outcome::Whole {
            let whole = (0..plan.length).map(|offset| content(message, offset));
            assert!(
                recv.buffer.into_iter().eq(whole),
                "message {message} is damaged"
            );
            assert_eq!(recv.bitmap.bytes(), plan.length);
            if let Some(immediate) = plan.immediate {
                assert_eq!(self.b.recv_immediate(message), Ok(immediate));
            }
        }
        self.b.complete_recv(message, outcome).unwrap();
        release(&mut self.b, message);
        self.receiver_outcomes.insert(message, outcome);
    }

    /// Sends every chunk that is not acknowledged, repeatedly.
    fn transmit(&mut self) {
        let mut packets = Vec::new();
        for (&message, send) in &mut self.sends {
            if !send.clear || send.resend_ns > self.now_ns {
                continue;
            }
            let plan = self.messages[send.number];
            if send.resend_ns == self.now_ns && send.ended || send.resend_ns < self.now_ns {
                send.resend_ns = self.now_ns + 2 * RTT_NS;
            }
            // Before its end, a stream has only full chunks.
            let full = plan.length / self.a.geometry().chunk_bytes();
            let chunks = if send.ended {
                self.a
                    .geometry()
                    .chunks(plan.length, plan.immediate.is_some())
            } else {
                u32::try_from(full).unwrap()
            };
            for chunk in (0..chunks).filter(|chunk| !send.acked.contains(chunk)) {
                for write in self.a.writes(message, chunk..chunk + 1) {
                    assert_eq!(write.rkey, u32::from(write.generation));
                    assert!(write.channel < self.config.channels);
                    let bytes = write.offset..write.offset + u64::from(write.bytes);
                    packets.push(Packet {
                        generation: write.generation,
                        address: write.remote_addr,
                        imm: write.imm,
                        payload: bytes.map(|offset| content(message, offset)).collect(),
                    });
                }
            }
            if !send.ended {
                send.ended = true;
                send.resend_ns = self.now_ns + RTT_NS;
                self.a.end_send(message, plan.length).unwrap();
            }
        }
        for packet in packets {
            self.push(|| Item::Data(packet.clone()));
        }
    }
}
