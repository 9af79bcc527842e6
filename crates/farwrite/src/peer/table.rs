//! All peers of an endpoint.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;

use farwrite_fabric::contract::Counters;
use farwrite_sdr::EndpointId;
use slab::Slab;

use super::controller;
use super::credit_grants::CreditPacer;
use super::send_queue::PlaceInQueue;
use super::state::{Name, PeerState};
use crate::error::{Error, SealingError};
use crate::options::{QpOptions, RateControl};

/// Returns the number of a peer among the flows of the pacer of credit.
fn flow_of(peer: usize) -> u32 {
    u32::try_from(peer).expect("at most as many peers as queue pairs")
}

/// All peers of an endpoint. A peer lives as long as it has queue pairs.
#[derive(Debug, Default)]
pub(crate) struct PeerTable {
    peers: Slab<PeerState>,
    by_name: HashMap<Name, usize>,
    /// Grants credit to all peers under EQDS. `None` while there are none.
    pulls: Option<CreditPacer>,
    /// Number of peers so far.
    opened: u64,
}

impl PeerTable {
    /// Checks whether a queue pair with this rate control can join those to a peer.
    ///
    /// # Errors
    /// [`Error::RateControl`] if those have a different rate control, [`Error::Sealing`] if they are
    /// sealed and it is not, or the reverse, [`Error::LineRate`] if other peers have another line rate.
    pub(crate) fn check(
        &self,
        peer: EndpointId,
        address: SocketAddr,
        wanted: &RateControl,
        is_sealed: bool,
    ) -> Result<(), Error> {
        if let (Some(pulls), RateControl::Eqds(options)) = (&self.pulls, wanted)
            && pulls.line_rate_bps != options.line_rate_bps
        {
            return Err(Error::LineRate {
                present_bps: pulls.line_rate_bps,
                wanted_bps: options.line_rate_bps,
            });
        }
        let number = self.by_name.get(&Name { peer, address });
        let peer = number.map(|&number| &self.peers[number]);
        if let Some(peer) = peer
            && peer.is_sealed != is_sealed
        {
            let present = peer.is_sealed;
            return Err(SealingError::Mixed { present }.into());
        }
        match peer.map(|peer| &peer.sending.choice) {
            Some(present) if !present.is_like(wanted) => Err(Error::RateControl {
                present: Box::new(*present),
                wanted: Box::new(*wanted),
            }),
            _ => Ok(()),
        }
    }

    /// Adds a queue pair to a peer. [`PeerTable::check`] must allow this. If the queue
    /// pair is the first, its `options` apply to the peer. Returns the number of the peer.
    pub(crate) fn join(
        &mut self,
        peer: EndpointId,
        address: SocketAddr,
        options: &QpOptions,
        is_sealed: bool,
        counters: &Counters,
    ) -> usize {
        let name = Name { peer, address };
        let (peers, opened) = (&mut self.peers, &mut self.opened);
        let pulls = &mut self.pulls;
        let number = *self.by_name.entry(name).or_insert_with(|| {
            *opened += 1;
            let peer = PeerState::new(name, *opened, options, is_sealed, counters);
            if let RateControl::Eqds(options) = &options.rate_control {
                let packet_bytes = peer.sending.packet_bytes;
                let pulls = pulls.get_or_insert_with(|| CreditPacer::new(options, packet_bytes));
                pulls.peers += 1;
            }
            peers.insert(peer)
        });
        let peer = &mut self.peers[number];
        let packet_bytes = u64::from(options.sdr.mtu) + peer.overhead_bytes();
        peer.sending.carry(packet_bytes);
        peer.queue_pairs += 1;
        number
    }

    /// Renames a peer after a queue pair to it has moved to another address of the peer, so that
    /// queue pairs which connect at the new address join this peer. The name stays if another peer
    /// has the new one, or if packets to the new address have headers of another length.
    pub(crate) fn follow(&mut self, number: usize, address: SocketAddr) {
        let peer = &mut self.peers[number];
        let old = peer.name;
        if old.address.is_ipv4() != address.is_ipv4() {
            return;
        }
        let name = Name { address, ..old };
        if let Entry::Vacant(entry) = self.by_name.entry(name) {
            entry.insert(number);
            peer.name = name;
            self.by_name.remove(&old);
        }
    }

    /// Removes queue pair `index` from a peer that it has joined. Returns whether the peer was
    /// removed.
    pub(crate) fn leave(&mut self, number: usize, index: u32, place: PlaceInQueue) -> bool {
        let peer = &mut self.peers[number];
        peer.queue_pairs -= 1;
        if peer.queue_pairs == 0 {
            let peer = self.peers.remove(number);
            self.by_name.remove(&peer.name);
            self.forget_flow(number, &peer.sending.choice);
            return true;
        }
        peer.sending.leave(index, place);
        peer.reports.leave(index);
        peer.credit_grants.leave(index);
        false
    }

    fn forget_flow(&mut self, number: usize, choice: &RateControl) {
        if let (Some(pulls), RateControl::Eqds(_)) = (&mut self.pulls, choice) {
            pulls.forget(flow_of(number));
            if pulls.peers == 0 {
                self.pulls = None;
            }
        }
    }

    /// Grants the credit that is due at `now_ns`, if peer `number` has a credit to send.
    pub(crate) fn grant(&mut self, now_ns: u64, number: usize) {
        let Some(pulls) = &mut self.pulls else {
            return;
        };
        let Some(peer) = self.peers.get_mut(number) else {
            return;
        };
        let waits = peer.waits();
        pulls.charge(now_ns, peer.credit_grants.take_control());
        if let Some(bytes) = peer.credit_grants.take_ask() {
            let late_ns = waits.period_ns + controller::jitter_ns(&peer.timing);
            pulls.ask(now_ns, flow_of(number), bytes, late_ns);
        }
        if !peer.credit_grants.is_due(now_ns) {
            return;
        }
        while let Some((flow, bytes)) = pulls.poll(now_ns) {
            if let Some(peer) = self.peers.get_mut(flow as usize) {
                peer.credit_grants.grant(bytes);
            }
        }
        self.peers[number].credit_grants.put_off(now_ns, &waits);
    }

    /// Returns a peer that has queue pairs.
    pub(crate) fn get(&self, number: usize) -> &PeerState {
        &self.peers[number]
    }

    /// Returns a peer that has queue pairs.
    pub(crate) fn get_mut(&mut self, number: usize) -> &mut PeerState {
        &mut self.peers[number]
    }

    /// Returns a peer if it still has queue pairs.
    pub(crate) fn live(&mut self, number: usize) -> Option<&mut PeerState> {
        self.peers.get_mut(number)
    }
}

#[cfg(test)]
mod tests {
    use farwrite_wire::control::Echo;

    use super::*;

    const ECHO: Echo = Echo {
        timestamp_ns: 1_000,
        hold_ns: 500,
    };

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn join(peers: &mut PeerTable, id: u8, port: u16) -> usize {
        let options = QpOptions::default();
        let peer = EndpointId([id; 16]);
        peers.join(peer, address(port), &options, false, &Counters::default())
    }

    #[test]
    fn queue_pairs_to_one_peer_share_a_round_trip() {
        let mut peers = PeerTable::default();
        let first = join(&mut peers, 1, 1);
        peers.get_mut(first).handle_echo(4_500, &ECHO);
        peers.get_mut(first).note_probe(4_000);
        peers.get_mut(first).note_probe(3_000);
        let second = join(&mut peers, 1, 1);
        let round_trip = peers.get_mut(second).round_trip();
        assert_eq!(round_trip.smoothed_ns, 3_000);
        assert!(round_trip.is_measured());
        assert_eq!(round_trip.probed_ns, 4_000);
    }

    #[test]
    fn another_address_or_instance_is_another_peer() {
        let mut peers = PeerTable::default();
        let names = [(1, 1), (1, 2), (2, 1)];
        let found: Vec<_> = names
            .iter()
            .map(|&(id, port)| join(&mut peers, id, port))
            .collect();
        assert!(found[0] != found[1] && found[0] != found[2] && found[1] != found[2]);
    }

    #[test]
    fn a_peer_follows_its_address() {
        let mut peers = PeerTable::default();
        let [moved, other] = [join(&mut peers, 1, 1), join(&mut peers, 2, 2)];
        peers.follow(moved, address(3));
        assert_eq!(join(&mut peers, 1, 3), moved);
        // The old address is that of another peer now.
        let at_old = join(&mut peers, 1, 1);
        assert!(at_old != moved && at_old != other);
        // Two peers never have the same name.
        peers.follow(at_old, address(3));
        assert_eq!(join(&mut peers, 1, 3), moved);
        assert_eq!(join(&mut peers, 1, 1), at_old);
        for _ in 0..3 {
            peers.leave(moved, 0, PlaceInQueue::default());
        }
        assert_ne!(join(&mut peers, 1, 3), at_old);
    }

    #[test]
    fn a_peer_is_forgotten_with_its_last_queue_pair() {
        let mut peers = PeerTable::default();
        let peer = join(&mut peers, 1, 1);
        assert_eq!(join(&mut peers, 1, 1), peer);
        peers.get_mut(peer).handle_echo(4_500, &ECHO);
        peers.leave(peer, 0, PlaceInQueue::default());
        assert!(peers.get_mut(peer).round_trip().is_measured());
        peers.leave(peer, 0, PlaceInQueue::default());
        let peer = join(&mut peers, 1, 1);
        assert!(!peers.get_mut(peer).round_trip().is_measured());
    }
}
