//! All paths of an endpoint.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;

use farwrite_fabric::contract::Counters;
use farwrite_sdr::EndpointId;
use slab::Slab;

use super::controller;
use super::crediting::Pulls;
use super::line::Standing;
use super::peer::{Name, PeerPath};
use crate::error::Error;
use crate::options::{QpOptions, RateControl};

/// Returns the number of a path among the flows of the pacer of credit.
fn flow_of(path: usize) -> u32 {
    u32::try_from(path).expect("at most as many paths as queue pairs")
}

/// All paths of an endpoint. A path lives as long as it has queue pairs.
#[derive(Debug, Default)]
pub(crate) struct PeerPaths {
    paths: Slab<PeerPath>,
    by_name: HashMap<Name, usize>,
    /// Grants credit to all paths under EQDS. `None` while there are none.
    pulls: Option<Pulls>,
    /// Number of paths opened so far.
    opened: u64,
}

impl PeerPaths {
    /// Checks whether a queue pair with this rate control can join the path to a peer.
    ///
    /// # Errors
    /// [`Error::RateControl`] if the path has a different rate control, [`Error::LineRate`] if other
    /// paths have another line rate.
    pub(crate) fn check(
        &self,
        peer: EndpointId,
        address: SocketAddr,
        wanted: &RateControl,
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
        let path = number.map(|&number| &self.paths[number]);
        match path.map(|path| path.sending.choice()) {
            Some(present) if !present.is_like(wanted) => Err(Error::RateControl {
                present: Box::new(*present),
                wanted: Box::new(*wanted),
            }),
            _ => Ok(()),
        }
    }

    /// Adds a queue pair to the path to a peer. [`PeerPaths::check`] must allow this. If the queue
    /// pair is the first, its `options` become those of the path. Returns the number of the path.
    pub(crate) fn join(
        &mut self,
        peer: EndpointId,
        address: SocketAddr,
        options: &QpOptions,
        counters: &Counters,
    ) -> usize {
        let name = Name { peer, address };
        let (paths, opened) = (&mut self.paths, &mut self.opened);
        let pulls = &mut self.pulls;
        let number = *self.by_name.entry(name).or_insert_with(|| {
            *opened += 1;
            let path = PeerPath::new(name, *opened, options, counters);
            if let RateControl::Eqds(options) = &options.rate_control {
                let packet_bytes = path.sending.packet_bytes();
                let pulls = pulls.get_or_insert_with(|| Pulls::new(options, packet_bytes));
                pulls.paths += 1;
            }
            paths.insert(path)
        });
        self.paths[number].queue_pairs += 1;
        number
    }

    /// Renames a path after a queue pair of it has moved to another address of the peer, so that
    /// queue pairs which connect at the new address join this path. The name stays if another path
    /// has the new one, or if packets to the new address have headers of another length.
    pub(crate) fn follow(&mut self, number: usize, address: SocketAddr) {
        let path = &mut self.paths[number];
        let old = path.name;
        if old.address.is_ipv4() != address.is_ipv4() {
            return;
        }
        let name = Name { address, ..old };
        if let Entry::Vacant(entry) = self.by_name.entry(name) {
            entry.insert(number);
            path.name = name;
            self.by_name.remove(&old);
        }
    }

    /// Removes queue pair `index` from a path that it has joined. Returns whether the path was
    /// removed.
    pub(crate) fn leave(&mut self, number: usize, index: u32, standing: Standing) -> bool {
        let path = &mut self.paths[number];
        path.queue_pairs -= 1;
        if path.queue_pairs == 0 {
            let path = self.paths.remove(number);
            self.by_name.remove(&path.name);
            self.forget_flow(number, path.sending.choice());
            return true;
        }
        path.sending.leave(index, standing);
        path.reports.leave(index);
        path.crediting.leave(index);
        false
    }

    fn forget_flow(&mut self, number: usize, choice: &RateControl) {
        if let (Some(pulls), RateControl::Eqds(_)) = (&mut self.pulls, choice) {
            pulls.forget(flow_of(number));
            if pulls.paths == 0 {
                self.pulls = None;
            }
        }
    }

    /// Grants the credit that is due at `now_ns`, if path `number` has a credit to send.
    pub(crate) fn grant(&mut self, now_ns: u64, number: usize) {
        let Some(pulls) = &mut self.pulls else {
            return;
        };
        let Some(path) = self.paths.get_mut(number) else {
            return;
        };
        let waits = path.waits();
        pulls.charge(now_ns, path.crediting.take_control());
        if let Some(bytes) = path.crediting.take_ask() {
            let late_ns = waits.period_ns + controller::jitter_ns(&path.timing);
            pulls.ask(now_ns, flow_of(number), bytes, late_ns);
        }
        if !path.crediting.is_due(now_ns) {
            return;
        }
        while let Some((flow, bytes)) = pulls.poll(now_ns) {
            if let Some(path) = self.paths.get_mut(flow as usize) {
                path.crediting.grant(bytes);
            }
        }
        self.paths[number].crediting.put_off(now_ns, &waits);
    }

    /// Returns a path that has queue pairs.
    pub(crate) fn get(&self, number: usize) -> &PeerPath {
        &self.paths[number]
    }

    /// Returns a path that has queue pairs.
    pub(crate) fn get_mut(&mut self, number: usize) -> &mut PeerPath {
        &mut self.paths[number]
    }

    /// Returns a path if it still has queue pairs.
    pub(crate) fn live(&mut self, number: usize) -> Option<&mut PeerPath> {
        self.paths.get_mut(number)
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

    fn join(paths: &mut PeerPaths, id: u8, port: u16) -> usize {
        let options = QpOptions::default();
        let peer = EndpointId([id; 16]);
        paths.join(peer, address(port), &options, &Counters::default())
    }

    #[test]
    fn queue_pairs_to_one_peer_share_a_round_trip() {
        let mut paths = PeerPaths::default();
        let first = join(&mut paths, 1, 1);
        paths.get_mut(first).handle_echo(4_500, &ECHO);
        paths.get_mut(first).note_probe(4_000);
        paths.get_mut(first).note_probe(3_000);
        let second = join(&mut paths, 1, 1);
        let round_trip = paths.get_mut(second).round_trip();
        assert_eq!(round_trip.smoothed_ns, 3_000);
        assert!(round_trip.is_measured());
        assert_eq!(round_trip.probed_ns, 4_000);
    }

    #[test]
    fn another_address_or_instance_is_another_path() {
        let mut paths = PeerPaths::default();
        let names = [(1, 1), (1, 2), (2, 1)];
        let found: Vec<_> = names
            .iter()
            .map(|&(id, port)| join(&mut paths, id, port))
            .collect();
        assert!(found[0] != found[1] && found[0] != found[2] && found[1] != found[2]);
    }

    #[test]
    fn a_path_follows_the_address_of_its_peer() {
        let mut paths = PeerPaths::default();
        let [moved, other] = [join(&mut paths, 1, 1), join(&mut paths, 2, 2)];
        paths.follow(moved, address(3));
        assert_eq!(join(&mut paths, 1, 3), moved);
        // The old address is that of another path now.
        let at_old = join(&mut paths, 1, 1);
        assert!(at_old != moved && at_old != other);
        // Two paths never have the same name.
        paths.follow(at_old, address(3));
        assert_eq!(join(&mut paths, 1, 3), moved);
        assert_eq!(join(&mut paths, 1, 1), at_old);
        for _ in 0..3 {
            paths.leave(moved, 0, Standing::default());
        }
        assert_ne!(join(&mut paths, 1, 3), at_old);
    }

    #[test]
    fn a_path_is_forgotten_with_its_last_queue_pair() {
        let mut paths = PeerPaths::default();
        let path = join(&mut paths, 1, 1);
        assert_eq!(join(&mut paths, 1, 1), path);
        paths.get_mut(path).handle_echo(4_500, &ECHO);
        paths.leave(path, 0, Standing::default());
        assert!(paths.get_mut(path).round_trip().is_measured());
        paths.leave(path, 0, Standing::default());
        let path = join(&mut paths, 1, 1);
        assert!(!paths.get_mut(path).round_trip().is_measured());
    }
}
