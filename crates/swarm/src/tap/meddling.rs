//! An attacker on a path who changes the bytes that no tag covers: the trailers of route packets (P6.2) and
//! the ICRCs.

use std::net::SocketAddr;

use farwrite::fabric::sim::{Datagram, Verdict};
use farwrite_wire::header::ICRC_BYTES;
use farwrite_wire::icrc::{self, Flow};
use farwrite_wire::opcode::ROUTE_PACKET;

use super::Tap;
use crate::plan::{Fault, Trailers};

pub(super) fn is_route_packet(datagram: &Datagram) -> bool {
    datagram.payload.first() == Some(&ROUTE_PACKET)
}

impl Tap {
    /// The address that a host has itself, of one that the network sees.
    pub(super) fn inside(&self, mut addr: SocketAddr) -> SocketAddr {
        let mut hosts = self.addresses.iter();
        if let Some([inside, _]) = hosts.find(|[_, outside]| *outside == addr.ip()) {
            addr.set_ip(*inside);
        }
        addr
    }

    /// Replaces a packet that enters a path by a changed one, if someone meddles with packets there.
    pub(super) fn meddle(&mut self, now_ns: u64, datagram: &Datagram) -> Verdict {
        let ips = [datagram.src.ip(), datagram.dst.ip()];
        let is_here = |fault: &Fault| {
            let Fault::Meddling { path, span, .. } = fault else {
                return false;
            };
            let [a, b] = self.plan.paths[*path]
                .hosts
                .map(|host| self.addresses[host][1]);
            (ips == [a, b] || ips == [b, a]) && span.contains(now_ns)
        };
        let fault = self.plan.faults.iter().find(|fault| is_here(fault));
        let Some(&Fault::Meddling {
            path,
            trailers,
            icrc_share,
            repeat_share,
            ..
        }) = fault
        else {
            return Verdict::Pass;
        };
        let mut changed = datagram.clone();
        let is_route = is_route_packet(datagram);
        if is_route {
            let resealed = match trailers {
                Trailers::Random => false,
                Trailers::Resealed => true,
                Trailers::Mixed => self.rng.chance(0.5),
            };
            let bytes = match resealed {
                true => self.resealed(datagram),
                false => self.rng.next().to_le_bytes()[..ICRC_BYTES].to_vec(),
            };
            let at = changed.payload.len() - ICRC_BYTES;
            changed.payload[at..].copy_from_slice(&bytes);
        } else if self.rng.chance(icrc_share) {
            let at = changed.payload.len() - 1 - self.rng.index(ICRC_BYTES);
            changed.payload[at] ^= 1 << self.rng.within(0..8);
        } else {
            return Verdict::Pass;
        }
        let link = usize::from(ips[0] != self.addresses[self.plan.paths[path].hosts[0]][1]);
        let delay = self.plan.paths[path].links[link].delay;
        let due_ns = now_ns + u64::try_from(delay.as_nanos()).expect("short");
        // The copies of route packets follow them.
        if is_route && self.rng.chance(repeat_share) {
            self.held
                .insert((due_ns + 1, self.counts.sent), changed.clone());
            self.counts.routes_repeated += 1;
        }
        self.held.insert((due_ns, self.counts.sent), changed);
        self.counts.meddled += 1;
        Verdict::Drop
    }

    /// The trailer that a route packet would have behind a relay that puts ICRCs right.
    fn resealed(&self, datagram: &Datagram) -> Vec<u8> {
        let (src, dst) = (datagram.src, datagram.dst);
        let flow = |src, dst| Flow::new(src, dst).expect("as the packet's");
        let (stated, seen) = (flow(self.inside(src), dst), flow(src, self.inside(dst)));
        let trailer = icrc::reseal((&stated, 0), (&seen, 0), datagram.payload.len(), 0);
        trailer.to_le_bytes().to_vec()
    }
}
