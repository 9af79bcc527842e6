//! Shares: what one source can take of something that all sources use together.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use crate::frame::View;

/// An Ethernet address.
type Station = [u8; 6];

/// Where packets come from. A program without privileges can send UDP datagrams from any address of its
/// machine, and over IPv6 even from addresses that its machine does not have (`IPV6_FREEBIND`). It cannot
/// change the Ethernet address of its machine. So a source counts by both: by its IP address, because
/// many hosts can be behind one router, and by its Ethernet address, because a host can have many IP
/// addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    station: Station,
    host: Host,
}

/// A host: an IPv4 address, or an IPv6 network of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Host(u64);

impl Source {
    /// The source of a packet, or of a message of the other box about it.
    pub(crate) fn of(view: &View<'_>) -> Self {
        Self::new(view.station(), view.src.ip())
    }

    fn new(station: Station, address: IpAddr) -> Self {
        // The first 64 bits of an IPv6 address. IPv4 addresses are below all networks of unicast
        // addresses.
        let host = match address {
            IpAddr::V4(address) => u64::from(address.to_bits()),
            IpAddr::V6(address) => u64::try_from(address.to_bits() >> 64).unwrap_or(0),
        };
        Self {
            station,
            host: Host(host),
        }
    }
}

/// The part of a whole that one source can take while no other source uses any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    of: usize,
    whole: usize,
}

impl Part {
    /// `of / whole`. It must be below 1.
    pub(crate) const fn new(of: usize, whole: usize) -> Self {
        Self { of, whole }
    }

    /// Whether a source that uses `used` may use more of it while `free` are free. With a part of a/b, a
    /// source may use up to a/(b - a) times what is free (dynamic thresholds: Choudhury and Hahne,
    /// IEEE/ACM Transactions on Networking, 1998), so something is always left for a source that uses
    /// little.
    fn allows(self, used: usize, free: usize) -> bool {
        let rest = self.whole - self.of;
        used.saturating_mul(rest) < free.saturating_mul(self.of)
    }
}

/// Counts what each source uses. The number of entries is at most the number of things in use.
#[derive(Debug)]
pub(crate) struct Shares {
    limit: usize,
    used: usize,
    of_host: Part,
    /// `None` where all packets come from one router.
    of_station: Option<Part>,
    hosts: BTreeMap<Host, usize>,
    stations: BTreeMap<Station, usize>,
}

impl Shares {
    pub(crate) fn new(limit: usize, of_host: Part, of_station: Option<Part>) -> Self {
        Self {
            limit,
            used: 0,
            of_host,
            of_station,
            hosts: BTreeMap::new(),
            stations: BTreeMap::new(),
        }
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Whether a source may take one more.
    pub(crate) fn allow(&self, source: &Source) -> bool {
        let free = self.limit.saturating_sub(self.used);
        let used = |count: Option<&usize>| count.copied().unwrap_or(0);
        let host = used(self.hosts.get(&source.host));
        let station = used(self.stations.get(&source.station));
        self.of_host.allows(host, free)
            && self
                .of_station
                .is_none_or(|part| part.allows(station, free))
    }

    pub(crate) fn take(&mut self, source: &Source, count: usize) {
        self.used += count;
        *self.hosts.entry(source.host).or_default() += count;
        *self.stations.entry(source.station).or_default() += count;
    }

    /// Counts `count` less of a source that has at least as many.
    pub(crate) fn give_back(&mut self, source: &Source, count: usize) {
        self.used -= count;
        reduce(&mut self.hosts, source.host, count);
        reduce(&mut self.stations, source.station, count);
    }
}

/// Subtracts from a count, and removes it when it is 0.
fn reduce<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K, by: usize) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= by;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

#[cfg(test)]
impl Source {
    /// A source whose two addresses end with these numbers.
    pub(crate) fn numbered(station: u8, host: u8) -> Self {
        Self::new([2, 0, 0, 0, 0, station], IpAddr::from([192, 0, 2, host]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes as many as the shares allow.
    fn fill(shares: &mut Shares, sources: impl Fn(u8) -> Source) -> usize {
        let before = shares.used();
        for number in (0..=255).cycle().take(10_000) {
            if shares.allow(&sources(number)) {
                shares.take(&sources(number), 1);
            }
        }
        shares.used() - before
    }

    #[test]
    fn a_host_leaves_room_for_others_and_so_does_a_station_with_many_addresses() {
        let shares = || Shares::new(900, Part::new(1, 3), Some(Part::new(2, 3)));
        let mut one_host = shares();
        assert_eq!(fill(&mut one_host, |_| Source::numbered(1, 1)), 300);
        // Another host behind the same router, and one beside it.
        assert!(one_host.allow(&Source::numbered(1, 2)));
        assert_eq!(fill(&mut one_host, |_| Source::numbered(2, 2)), 200);
        let mut forger = shares();
        assert_eq!(fill(&mut forger, |host| Source::numbered(1, host)), 600);
        assert!(!forger.allow(&Source::numbered(1, 7)));
        assert!(forger.allow(&Source::numbered(2, 7)));
        forger.give_back(&Source::numbered(1, 7), 1);
        forger.give_back(&Source::numbered(1, 7), 1);
        assert!(forger.allow(&Source::numbered(1, 7)));
    }

    #[test]
    fn what_is_given_back_leaves_no_entry() {
        let mut shares = Shares::new(9, Part::new(4, 5), None);
        let source = Source::numbered(1, 1);
        shares.take(&source, 3);
        shares.give_back(&source, 1);
        shares.give_back(&source, 2);
        assert!(shares.hosts.is_empty() && shares.stations.is_empty());
        assert_eq!(shares.used(), 0);
    }

    #[test]
    fn ipv6_addresses_of_one_network_are_one_host() {
        let of = |text: &str| Source::new([0; 6], text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
