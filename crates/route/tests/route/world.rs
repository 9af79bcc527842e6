//! Two ends, each behind its own address translation, and a network that a test delivers by hand.

use std::net::SocketAddr;

use farwrite_route::{Addresses, Config, Role, Route, SizeSearch};

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
        let mut sent = Vec::new();
        while let Some(out) = self.initiator.poll_transmit(self.now) {
            let src = self.mapped;
            sent.push(Datagram {
                src,
                dst: out.to,
                bytes: out.bytes,
                at,
            });
        }
        while let Some(out) = self.responder.poll_transmit(self.now) {
            let src = public_responder();
            sent.push(Datagram {
                src,
                dst: out.to,
                bytes: out.bytes,
                at,
            });
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
