//! Identifies streams of packets, and keeps a bounded table of them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::RangeInclusive;

use crate::Side;
use crate::frame::View;
use crate::lru::LruList;
use crate::packets::Space;
use crate::shares::{Part, Shares, Source};

/// The part of all connections that one IP address can have while no other one has any.
const OF_HOST: Part = Part::new(1, 3);
/// The same for an Ethernet address, on the side of the NICs. All packets of the path come from one router.
const OF_STATION: Part = Part::new(2, 3);
/// The highest number of idle connections that are removed for one new connection. So a new connection
/// costs a constant time, whatever the table holds.
const MAX_REMOVED: usize = 2;

/// Identifies a stream: one direction and PSN space of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamKey {
    src: IpAddr,
    dst: IpAddr,
    vlans: u32,
    pub(crate) qpn: u32,
    pub(crate) space: Space,
}

impl StreamKey {
    /// The stream of a packet, or of a box message that travels in the direction of the stream.
    pub(crate) fn new(view: &View<'_>, qpn: u32, space: Space) -> Self {
        Self {
            src: view.src.ip(),
            dst: view.dst.ip(),
            vlans: view.vlans,
            qpn,
            space,
        }
    }

    /// The stream of the opposite direction. A report names the stream in this way.
    pub(crate) fn reversed(self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            ..self
        }
    }

    /// The keys of all streams of its connection in this direction.
    fn connection(self) -> RangeInclusive<Self> {
        let of = |space| Self { space, ..self };
        of(Space::Request)..=of(Space::Singles)
    }
}

/// Streams by key, of a limited number of connections. In one direction, a connection has a stream
/// for each PSN space that it uses: its requests, and its responses to requests of the other side.
#[derive(Debug)]
pub(crate) struct StreamTable<S> {
    entries: BTreeMap<StreamKey, Entry<S>>,
    /// The connections, by their last use.
    uses: LruList<Connection>,
    shares: Shares,
    idle_ns: u64,
}

#[derive(Debug)]
struct Entry<S> {
    /// The place of its connection in `uses`.
    place: usize,
    stream: S,
}

#[derive(Debug)]
struct Connection {
    /// The key of one of its streams.
    key: StreamKey,
    source: Source,
}

impl<S> StreamTable<S> {
    /// A table of up to `limit` connections from sources at one side of the box. Each source can have a
    /// share of them. When there is no room for a new one, connections that were not used for `idle_ns`
    /// make room.
    pub(crate) fn new(limit: usize, idle_ns: u64, from: Side) -> Self {
        let of_station = (from == Side::Near).then_some(OF_STATION);
        Self {
            entries: BTreeMap::new(),
            uses: LruList::default(),
            shares: Shares::new(limit, OF_HOST, of_station),
            idle_ns,
        }
    }

    /// Returns a stream, and records that it is used now.
    pub(crate) fn get(&mut self, now_ns: u64, key: &StreamKey) -> Option<&mut S> {
        let entry = self.entries.get_mut(key)?;
        self.uses.touch(entry.place, now_ns);
        Some(&mut entry.stream)
    }

    /// Returns a stream, without recording a use.
    pub(crate) fn peek(&mut self, key: &StreamKey) -> Option<&mut S> {
        self.entries.get_mut(key).map(|entry| &mut entry.stream)
    }

    /// Adds a stream, unless it needs another connection and there is no room for it. Returns the streams
    /// of idle connections that it removed to make room.
    pub(crate) fn insert(
        &mut self,
        now_ns: u64,
        key: StreamKey,
        source: Source,
        stream: S,
    ) -> Vec<(StreamKey, S)> {
        let mut removed = Vec::new();
        let known = self.entries.range(key.connection()).next();
        let place = if let Some((_, entry)) = known {
            entry.place
        } else {
            for _ in 0..MAX_REMOVED {
                if self.shares.allow(&source) || !self.remove_idle(now_ns, &mut removed) {
                    break;
                }
            }
            if !self.shares.allow(&source) {
                return removed;
            }
            self.shares.take(&source, 1);
            self.uses.push(now_ns, Connection { key, source })
        };
        self.entries.insert(key, Entry { place, stream });
        removed
    }

    /// Removes the connection that was used least recently, if it is idle. Returns whether it did.
    fn remove_idle(&mut self, now_ns: u64, removed: &mut Vec<(StreamKey, S)>) -> bool {
        let idle = |used_ns: u64| now_ns.saturating_sub(used_ns) >= self.idle_ns;
        let Some(connection) = self.uses.pop_if(idle) else {
            return false;
        };
        self.shares.give_back(&connection.source, 1);
        while let Some((key, _)) = self.entries.range(connection.key.connection()).next() {
            let key = *key;
            let entry = self.entries.remove(&key);
            removed.extend(entry.map(|entry| (key, entry.stream)));
        }
        true
    }
}

#[cfg(test)]
impl StreamKey {
    /// A stream from a host to itself.
    pub(crate) fn of(address: IpAddr, qpn: u32, space: Space) -> Self {
        Self {
            src: address,
            dst: address,
            vlans: 0,
            qpn,
            space,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn key(qpn: u32, space: Space) -> StreamKey {
        StreamKey::of(Ipv4Addr::LOCALHOST.into(), qpn, space)
    }

    /// Each connection from another host, so that shares do not matter.
    fn source(qpn: u32) -> Source {
        let number = u8::try_from(qpn % 256).unwrap();
        Source::numbered(number, number)
    }

    #[test]
    fn idle_connections_make_room_and_others_do_not() {
        let key = |qpn| key(qpn, Space::Request);
        let mut table = StreamTable::new(2, 100, Side::Near);
        assert!(table.insert(0, key(1), source(1), "a").is_empty());
        assert!(table.insert(0, key(2), source(2), "b").is_empty());
        assert!(table.insert(50, key(3), source(3), "c").is_empty());
        assert!(table.get(50, &key(3)).is_none() && table.get(60, &key(1)).is_some());
        let removed = table.insert(100, key(3), source(3), "c");
        assert_eq!(removed, [(key(2), "b")]);
        assert!(table.get(100, &key(3)).is_some());
        // The other one is idle from 160 on.
        assert!(table.insert(159, key(4), source(4), "d").is_empty());
        let removed = table.insert(160, key(4), source(4), "d");
        assert_eq!(removed, [(key(1), "a")]);
    }

    /// A connection that writes and answers READs takes one place, and leaves as a whole.
    #[test]
    fn the_limit_counts_connections_and_not_their_streams() {
        let mut table = StreamTable::new(2, 100, Side::Near);
        for qpn in [1, 2, 3] {
            table.insert(0, key(qpn, Space::Response), source(qpn), qpn);
            table.insert(0, key(qpn, Space::Request), source(qpn), 10 * qpn);
        }
        let mut known = |qpn, space| table.peek(&key(qpn, space)).is_some();
        for space in [Space::Request, Space::Response] {
            assert_eq!([1, 2, 3].map(|qpn| known(qpn, space)), [true, true, false]);
        }
        // One stream of a connection in use keeps the other one.
        assert!(table.get(50, &key(1, Space::Response)).is_some());
        let removed = table.insert(100, key(3, Space::Request), source(3), 30);
        assert_eq!(
            removed,
            [(key(2, Space::Request), 20), (key(2, Space::Response), 2)]
        );
        assert!(table.peek(&key(1, Space::Request)).is_some());
        let none = table.insert(100, key(4, Space::Request), source(4), 40);
        assert!(none.is_empty());
        assert!(table.peek(&key(4, Space::Request)).is_none());
    }

    /// A source that invents connections, at the rate at which idle ones end, costs a few steps for each,
    /// whatever the table holds. The table has 50,000 places: a scan would have as many steps.
    #[test]
    fn new_connections_take_a_few_steps_in_a_full_table() {
        let mut table = StreamTable::new(50_000, 10_000_000_000, Side::Far);
        let mut visited = 0;
        for qpn in 0..120_000u32 {
            // 6,000 in a second.
            let now_ns = u64::from(qpn) * 166_667;
            table.insert(now_ns, key(qpn, Space::Request), source(0), qpn);
            // A connection that is always in use.
            assert!(table.get(now_ns, &key(0, Space::Request)).is_some());
            let steps = table.uses.visited() - visited;
            assert!(steps <= MAX_REMOVED, "{steps} steps for connection {qpn}");
            visited += steps;
        }
        // Idle ones have made room for new ones.
        assert!(visited > 30_000, "{visited}");
        assert!(table.entries.len() <= 50_000);
    }

    /// Whatever a host invents, connections of other hosts find room.
    #[test]
    fn one_source_does_not_fill_the_table() {
        let mut table = StreamTable::new(2048, 10_000_000_000, Side::Near);
        for qpn in 0..5000 {
            table.insert(0, key(qpn, Space::Singles), Source::numbered(1, 1), ());
        }
        let theirs = table.entries.len();
        assert_eq!(theirs, 683, "a third");
        for qpn in 5000..5300 {
            table.insert(0, key(qpn, Space::Request), Source::numbered(1, 2), ());
        }
        for qpn in 6000..6300 {
            table.insert(0, key(qpn, Space::Request), Source::numbered(3, 3), ());
        }
        assert_eq!(table.entries.len(), theirs + 600);
    }
}
