//! Places for connections whose peers have not yet proven that they hold the key.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

/// The total number of places. When none is free, a new connection replaces the oldest. So an
/// honest peer loses its place only to that many newer connections during its few round trips.
const PLACES: usize = 128;
/// The number of places for one source.
const PLACES_OF_SOURCE: usize = 8;

/// A source that shares places: one IPv4 address, or one IPv6 network of 64 bits, which is the
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
pub(crate) struct Places<T> {
    taken: VecDeque<(Source, T)>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        let taken = VecDeque::new();
        Self { taken }
    }
}

impl<T> Places<T> {
    /// Gives a new connection a place. Returns the connection that it replaces: the oldest of the
    /// same source if that source uses all its places, otherwise the oldest of all if no place is
    /// free.
    pub(crate) fn admit(&mut self, ip: IpAddr, newcomer: T) -> Option<T> {
        let source = Source::of(ip);
        let own = |(other, _): &(Source, T)| *other == source;
        let evicted = if self.taken.iter().filter(|place| own(place)).count() >= PLACES_OF_SOURCE {
            let oldest = self.taken.iter().position(own);
            oldest.and_then(|at| self.remove(at))
        } else if self.taken.len() >= PLACES {
            self.evict()
        } else {
            None
        };
        self.taken.push_back((source, newcomer));
        evicted
    }

    /// Removes the oldest of all.
    pub(crate) fn evict(&mut self) -> Option<T> {
        self.remove(0)
    }

    pub(crate) fn remove(&mut self, at: usize) -> Option<T> {
        self.taken.remove(at).map(|(_, item)| item)
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.taken.get_mut(at).map(|(_, item)| item)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.taken.iter().map(|(_, item)| item)
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
        let mut places = Places::default();
        assert_eq!(places.admit(ip("192.0.2.1"), 1000), None);
        for number in 0..PLACES_OF_SOURCE {
            assert_eq!(places.admit(ip("192.0.2.7"), number), None);
        }
        for number in 0..3 * PLACES {
            let evicted = places.admit(ip("::ffff:192.0.2.7"), number + PLACES_OF_SOURCE);
            assert_eq!(evicted, Some(number));
        }
        assert_eq!(places.iter().next(), Some(&1000));
    }

    #[test]
    fn an_ipv6_network_is_one_source() {
        let mut places = Places::default();
        for number in 0..PLACES_OF_SOURCE {
            let host = ip(&format!("2001:db8:1:2:{number:x}::1"));
            assert_eq!(places.admit(host, number), None);
        }
        assert_eq!(places.admit(ip("2001:db8:1:3::1"), 100), None);
        assert_eq!(places.admit(ip("2001:db8:1:2:ffff::1"), 101), Some(0));
    }

    #[test]
    fn the_oldest_of_all_leaves_when_no_place_is_free() {
        let mut places = Places::default();
        let host = |number: usize| ip(&format!("10.0.{}.{}", number / 256, number % 256));
        for number in 0..PLACES {
            assert_eq!(places.admit(host(number), number), None);
        }
        for number in 0..PLACES {
            let evicted = places.admit(host(number + PLACES), number + PLACES);
            assert_eq!(evicted, Some(number));
        }
        assert_eq!(places.iter().count(), PLACES);
        assert_eq!(places.evict(), Some(PLACES));
    }
}
