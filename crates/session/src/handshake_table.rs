//! A bounded table of connections whose peers have not yet proven that they hold the key.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

/// The largest number of handshakes. If the table is full, a new connection replaces the oldest one.
/// So an honest peer loses its entry only if this many newer connections come during its few round
/// trips.
const MAX_HANDSHAKES: usize = 512;
/// The largest number of handshakes of one source. The senders of a site behind address translation are one
/// source.
const MAX_HANDSHAKES_OF_SOURCE: usize = 64;

/// A source: one IPv4 address, or one IPv6 network of 64 bits, which is the
/// minimum for one customer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    V4(Ipv4Addr),
    V6([u16; 4]),
}

impl Source {
    fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self::V4(ip),
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

/// Connections in the order of arrival, oldest first, within both limits.
pub(crate) struct HandshakeTable<T> {
    entries: VecDeque<(Source, T)>,
}

impl<T> Default for HandshakeTable<T> {
    fn default() -> Self {
        let entries = VecDeque::new();
        Self { entries }
    }
}

impl<T> HandshakeTable<T> {
    /// Adds a new connection. Returns the connection that it replaces: the oldest of the
    /// same source if that source has as many as it may, otherwise the oldest of all if the table is
    /// full.
    pub(crate) fn admit(&mut self, ip: IpAddr, newcomer: T) -> Option<T> {
        let source = Source::of(ip);
        let own = |(other, _): &(Source, T)| *other == source;
        let evicted =
            if self.entries.iter().filter(|entry| own(entry)).count() >= MAX_HANDSHAKES_OF_SOURCE {
                let oldest = self.entries.iter().position(own);
                oldest.and_then(|at| self.remove(at))
            } else if self.entries.len() >= MAX_HANDSHAKES {
                self.evict()
            } else {
                None
            };
        self.entries.push_back((source, newcomer));
        evicted
    }

    /// Removes the oldest of all.
    pub(crate) fn evict(&mut self) -> Option<T> {
        self.remove(0)
    }

    pub(crate) fn remove(&mut self, at: usize) -> Option<T> {
        self.entries.remove(at).map(|(_, item)| item)
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.entries.get_mut(at).map(|(_, item)| item)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(_, item)| item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn one_source_evicts_only_its_own() {
        let mut table = HandshakeTable::default();
        assert_eq!(table.admit(ip("192.0.2.1"), 1000), None);
        for number in 0..MAX_HANDSHAKES_OF_SOURCE {
            assert_eq!(table.admit(ip("192.0.2.7"), number), None);
        }
        for number in 0..3 * MAX_HANDSHAKES {
            let evicted = table.admit(ip("::ffff:192.0.2.7"), number + MAX_HANDSHAKES_OF_SOURCE);
            assert_eq!(evicted, Some(number));
        }
        assert_eq!(table.iter().next(), Some(&1000));
    }

    #[test]
    fn an_ipv6_network_is_one_source() {
        let mut table = HandshakeTable::default();
        for number in 0..MAX_HANDSHAKES_OF_SOURCE {
            let host = ip(&format!("2001:db8:1:2:{number:x}::1"));
            assert_eq!(table.admit(host, number), None);
        }
        assert_eq!(table.admit(ip("2001:db8:1:3::1"), 100), None);
        assert_eq!(table.admit(ip("2001:db8:1:2:ffff::1"), 101), Some(0));
    }

    #[test]
    fn the_oldest_of_all_leaves_a_full_table() {
        let mut table = HandshakeTable::default();
        let host = |number: usize| ip(&format!("10.0.{}.{}", number / 256, number % 256));
        for number in 0..MAX_HANDSHAKES {
            assert_eq!(table.admit(host(number), number), None);
        }
        for number in 0..MAX_HANDSHAKES {
            let evicted = table.admit(host(number + MAX_HANDSHAKES), number + MAX_HANDSHAKES);
            assert_eq!(evicted, Some(number));
        }
        assert_eq!(table.iter().count(), MAX_HANDSHAKES);
        assert_eq!(table.evict(), Some(MAX_HANDSHAKES));
    }
}
