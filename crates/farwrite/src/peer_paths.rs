//! The paths to peers: what all queue pairs between two endpoints have in common.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use farwrite_schemes::rtt::RttEstimator;
use farwrite_sdr::EndpointId;
use farwrite_wire::control::Echo;
use slab::Slab;

/// A path joins this endpoint to one other instance, at the address of its control packets.
///
/// The peer claims its id (P6.1). The address is part of the name so that a peer which learns the
/// id of another cannot put its round trips on that one's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Name {
    peer: EndpointId,
    address: SocketAddr,
}

/// The way to a peer.
#[derive(Debug)]
pub(crate) struct PeerPath {
    name: Name,
    rtt: RttEstimator,
    /// When a control packet left last that the peer is likely to echo.
    probed_ns: u64,
    queue_pairs: usize,
}

/// The round trip of a path, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    /// Smoothed; the guess of the first queue pair until one was measured.
    pub(crate) smoothed_ns: u64,
    /// Whether one was measured.
    pub(crate) is_measured: bool,
    /// When a control packet left last, on any queue pair, that the peer is likely to echo.
    pub(crate) probed_ns: u64,
}

impl RoundTrip {
    /// What is believed before anything was measured.
    pub(crate) fn guess(initial: Duration) -> Self {
        Self {
            smoothed_ns: RttEstimator::new(initial).smoothed_ns(),
            is_measured: false,
            probed_ns: 0,
        }
    }
}

impl PeerPath {
    /// The peer has echoed a timestamp of this end. An implausible echo changes nothing.
    pub(crate) fn handle_echo(&mut self, now_ns: u64, echo: &Echo) {
        let _ = self
            .rtt
            .handle_echo(now_ns, echo.timestamp_ns, echo.hold_ns);
    }

    /// A control packet left that the peer is likely to echo.
    pub(crate) fn note_probe(&mut self, left_ns: u64) {
        self.probed_ns = self.probed_ns.max(left_ns);
    }

    /// Its round trip.
    pub(crate) fn round_trip(&self) -> RoundTrip {
        RoundTrip {
            smoothed_ns: self.rtt.smoothed_ns(),
            is_measured: self.rtt.shortest_ns().is_some(),
            probed_ns: self.probed_ns,
        }
    }
}

/// All paths of an endpoint. A path lives as long as it has queue pairs.
#[derive(Debug, Default)]
pub(crate) struct PeerPaths {
    paths: Slab<PeerPath>,
    by_name: HashMap<Name, usize>,
}

impl PeerPaths {
    /// A queue pair joins the path to a peer; `initial` is the round trip that it assumes if it is
    /// the first. Returns the number of the path.
    pub(crate) fn join(
        &mut self,
        peer: EndpointId,
        address: SocketAddr,
        initial: Duration,
    ) -> usize {
        let name = Name { peer, address };
        let paths = &mut self.paths;
        let number = *self.by_name.entry(name).or_insert_with(|| {
            paths.insert(PeerPath {
                name,
                rtt: RttEstimator::new(initial),
                probed_ns: 0,
                queue_pairs: 0,
            })
        });
        self.paths[number].queue_pairs += 1;
        number
    }

    /// A queue pair leaves a path that it has joined.
    pub(crate) fn leave(&mut self, number: usize) {
        let path = &mut self.paths[number];
        path.queue_pairs -= 1;
        if path.queue_pairs == 0 {
            let path = self.paths.remove(number);
            self.by_name.remove(&path.name);
        }
    }

    /// A path that has queue pairs.
    pub(crate) fn get_mut(&mut self, number: usize) -> &mut PeerPath {
        &mut self.paths[number]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ECHO: Echo = Echo {
        timestamp_ns: 1_000,
        hold_ns: 500,
    };

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn queue_pairs_to_one_peer_share_a_round_trip() {
        let mut paths = PeerPaths::default();
        let (id, guess) = (EndpointId([1; 16]), Duration::from_millis(100));
        let first = paths.join(id, address(1), guess);
        paths.get_mut(first).handle_echo(4_500, &ECHO);
        paths.get_mut(first).note_probe(4_000);
        paths.get_mut(first).note_probe(3_000);
        let second = paths.join(id, address(1), guess);
        let round_trip = paths.get_mut(second).round_trip();
        assert_eq!(round_trip.smoothed_ns, 3_000);
        assert!(round_trip.is_measured);
        assert_eq!(round_trip.probed_ns, 4_000);
    }

    #[test]
    fn another_address_or_instance_is_another_path() {
        let mut paths = PeerPaths::default();
        let guess = Duration::from_millis(100);
        let names = [(1, 1), (1, 2), (2, 1)];
        let paths: Vec<_> = names
            .iter()
            .map(|&(id, port)| paths.join(EndpointId([id; 16]), address(port), guess))
            .collect();
        assert!(paths[0] != paths[1] && paths[0] != paths[2] && paths[1] != paths[2]);
    }

    #[test]
    fn a_path_is_forgotten_with_its_last_queue_pair() {
        let mut paths = PeerPaths::default();
        let (id, guess) = (EndpointId([1; 16]), Duration::from_millis(100));
        let path = paths.join(id, address(1), guess);
        assert_eq!(paths.join(id, address(1), guess), path);
        paths.get_mut(path).handle_echo(4_500, &ECHO);
        paths.leave(path);
        assert!(paths.get_mut(path).round_trip().is_measured);
        paths.leave(path);
        let path = paths.join(id, address(1), guess);
        assert!(!paths.get_mut(path).round_trip().is_measured);
    }
}
