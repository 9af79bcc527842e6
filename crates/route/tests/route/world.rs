//! Two ends, each behind its own address translation, and a network that a test delivers by hand.

use std::net::SocketAddr;

use farwrite_route::{Addresses, Config, Role, Route, SizeSearch};
use farwrite_wire::icrc::{self, Flow};

pub(crate) const MS: u64 = 1_000_000;
/// One-way delay.
pub(crate) const DELAY: u64 = 20 * MS;

pub(crate) fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// A datagram in flight, with its addresses between the two translators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) bytes: Vec<u8>,
    pub(crate) at: u64,
}

/// The two ends.
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) initiator: Route,
    pub(crate) responder: Route,
    /// Public address of the initiator. The translator chooses its port.
    pub(crate) mapped: SocketAddr,
    pub(crate) in_flight: Vec<Datagram>,
    /// The largest datagram that the network carries.
    pub(crate) carries: usize,
}

/// Returns the addresses of the two ends behind their translators.
pub(crate) fn inside() -> [SocketAddr; 2] {
    [addr("10.0.0.2:5000"), addr("10.9.9.9:4792")]
}

pub(crate) fn public_responder() -> SocketAddr {
    addr("198.51.100.7:4792")
}

impl World {
    pub(crate) fn new() -> Self {
        let [near, far] = inside();
        let (key_near, key_far) = ([1; 32], [2; 32]);
        let initiator = Config {
            role: Role::Initiator,
            number: 0,
            send_key: key_far.into(),
            send_index: 1,
            recv_key: key_near.into(),
            recv_index: 2,
            local: near,
            peer: public_responder(),
            search: Some(SizeSearch::new([1216, 1472, 4132, 8972])),
        };
        let responder = Config {
            role: Role::Responder,
            number: 0,
            send_key: key_near.into(),
            send_index: 2,
            recv_key: key_far.into(),
            recv_index: 1,
            local: far,
            // The initiator's own port, at the address of the channel.
            peer: addr("192.0.2.1:5000"),
            search: None,
        };
        Self {
            now: 0,
            initiator: Route::new(initiator, 0),
            responder: Route::new(responder, 0),
            mapped: addr("192.0.2.1:40001"),
            in_flight: Vec::new(),
            carries: 65_535,
        }
    }

    /// Collects the packets that both ends send. Returns them as the network sees them.
    pub(crate) fn poll(&mut self) -> Vec<Datagram> {
        let at = self.now + DELAY;
        let ends = [
            (&mut self.initiator, self.mapped),
            (&mut self.responder, public_responder()),
        ];
        let mut sent = Vec::new();
        for (end, src) in ends {
            let is_due = end.next_ns() <= self.now;
            while let Some(out) = end.poll_transmit(self.now) {
                assert!(is_due, "a packet leaves before the time of the next call");
                sent.push(Datagram {
                    src,
                    dst: out.to,
                    bytes: out.bytes,
                    at,
                });
            }
        }
        sent
    }

    /// Delivers a datagram to the end at its destination, if there is one.
    pub(crate) fn deliver(&mut self, datagram: &Datagram) {
        let [near, far] = inside();
        let Datagram {
            src, dst, bytes, ..
        } = datagram;
        // The end may refuse it.
        if *dst == public_responder() {
            let _ = self.responder.receive(self.now, *src, far, bytes);
        } else if *dst == self.mapped {
            let _ = self.initiator.receive(self.now, *src, near, bytes);
        }
    }

    /// Advances time, and delivers the datagrams for which `keep` returns `true`.
    pub(crate) fn run(&mut self, until: u64, mut keep: impl FnMut(&Datagram) -> bool) {
        while self.now < until {
            let sent = self.poll();
            let fits = |d: &Datagram| d.bytes.len() <= self.carries;
            self.in_flight.extend(sent.into_iter().filter(fits));
            self.now += MS;
            let due = |d: &mut Datagram| d.at <= self.now;
            let arrived: Vec<_> = self.in_flight.extract_if(.., due).collect();
            for datagram in arrived.iter().filter(|d| keep(d)) {
                self.deliver(datagram);
            }
        }
    }

    /// Lets the initiator send a packet of a queue pair. It arrives at once, if it verifies.
    pub(crate) fn send_data(&mut self) {
        self.initiator.note_sent(self.now);
        if self.routes() == self.right_routes() {
            self.responder.note_heard(self.now);
        }
    }

    /// Changes the trailer of a datagram as a relay does that puts ICRCs right.
    pub(crate) fn reseal(&self, datagram: &mut Datagram) {
        let [near, far] = inside();
        let (stated, seen) = match datagram.dst == public_responder() {
            true => ((near, public_responder()), (self.mapped, far)),
            false => ((far, self.mapped), (public_responder(), near)),
        };
        let flow = |(src, dst)| Flow::new(src, dst).expect("one family");
        let length = datagram.bytes.len();
        let trailer = icrc::reseal((&flow(stated), 0), (&flow(seen), 0), length, 0);
        datagram.bytes[length - 4..].copy_from_slice(&trailer.to_le_bytes());
    }

    /// Returns the expected routes of both ends.
    pub(crate) fn right_routes(&self) -> [Option<Addresses>; 2] {
        let [near, far] = inside();
        [
            Some(Addresses {
                peer: public_responder(),
                sealed_as: Some((self.mapped, far)),
            }),
            Some(Addresses {
                peer: self.mapped,
                sealed_as: Some((public_responder(), near)),
            }),
        ]
    }

    pub(crate) fn routes(&self) -> [Option<Addresses>; 2] {
        [self.initiator.addresses(), self.responder.addresses()]
    }
}

/// A packet of a queue pair on its way.
struct Sealed {
    to_responder: bool,
    sealed_as: Option<(SocketAddr, SocketAddr)>,
    at: u64,
}

/// The packets of queue pairs between two ends. A receiver verifies those that are sealed as it sees them.
#[derive(Default)]
pub(crate) struct Traffic {
    under_way: Vec<Sealed>,
    /// Packets that each end has verified: the initiator, the responder.
    pub(crate) verified: [u64; 2],
}

impl Traffic {
    /// Advances the world by one step, in which the ends for which `sends` is true send a packet each.
    /// `changes` may change route packets.
    pub(crate) fn step(
        &mut self,
        world: &mut World,
        sends: [bool; 2],
        mut changes: impl FnMut(&World, &mut Datagram),
    ) {
        let [near, far] = inside();
        let ends = [&mut world.initiator, &mut world.responder];
        for (end, to_responder) in ends.into_iter().zip([true, false]) {
            if let Some(addresses) = end.addresses()
                && sends[usize::from(!to_responder)]
            {
                end.note_sent(world.now);
                self.under_way.push(Sealed {
                    to_responder,
                    sealed_as: addresses.sealed_as,
                    at: world.now + DELAY,
                });
            }
        }
        let mut sent = world.poll();
        sent.iter_mut()
            .for_each(|datagram| changes(world, datagram));
        world.in_flight.extend(sent);
        world.now += 10 * MS;
        let now = world.now;
        let arrived: Vec<_> = world.in_flight.extract_if(.., |d| d.at <= now).collect();
        arrived.iter().for_each(|datagram| world.deliver(datagram));
        for packet in self.under_way.extract_if(.., |packet| packet.at <= now) {
            let (end, seen) = match packet.to_responder {
                true => (&mut world.responder, (world.mapped, far)),
                false => (&mut world.initiator, (public_responder(), near)),
            };
            if packet.sealed_as == Some(seen) {
                end.note_heard(now);
                self.verified[usize::from(packet.to_responder)] += 1;
            }
        }
    }
}
