//! Identifies streams of packets, and keeps a bounded table of them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::RangeInclusive;

use crate::frame::View;
use crate::packets::Space;

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
    connections: usize,
    /// Highest number of connections.
    limit: usize,
    idle_ns: u64,
    /// No connection can be idle before this time.
    next_idle_ns: u64,
}

#[derive(Debug)]
struct Entry<S> {
    used_ns: u64,
    stream: S,
}

impl<S> StreamTable<S> {
    /// A table of up to `limit` connections. When it is full, connections that were not used for
    /// `idle_ns` make room.
    pub(crate) fn new(limit: usize, idle_ns: u64) -> Self {
        Self {
            entries: BTreeMap::new(),
            connections: 0,
            limit,
            idle_ns,
            next_idle_ns: 0,
        }
    }

    /// Returns a stream, and records that it is used now.
    pub(crate) fn get(&mut self, now_ns: u64, key: &StreamKey) -> Option<&mut S> {
        let entry = self.entries.get_mut(key)?;
        entry.used_ns = now_ns;
        Some(&mut entry.stream)
    }

    /// Returns a stream, without recording a use.
    pub(crate) fn peek(&mut self, key: &StreamKey) -> Option<&mut S> {
        self.entries.get_mut(key).map(|entry| &mut entry.stream)
    }

    /// Adds a stream, unless it needs another connection and the table is full. Returns the streams
    /// of idle connections that it removed to make room.
    pub(crate) fn insert(&mut self, now_ns: u64, key: StreamKey, stream: S) -> Vec<(StreamKey, S)> {
        let full = self.connections >= self.limit && !self.knows_connection(key);
        let removed = if full && now_ns >= self.next_idle_ns {
            self.remove_idle(now_ns)
        } else {
            Vec::new()
        };
        let knows = self.knows_connection(key);
        if knows || self.connections < self.limit {
            self.connections += usize::from(!knows);
            let used_ns = now_ns;
            self.entries.insert(key, Entry { used_ns, stream });
        }
        removed
    }

    fn knows_connection(&self, key: StreamKey) -> bool {
        self.entries.range(key.connection()).next().is_some()
    }

    /// Removes the connections of which no stream was used for `idle_ns`.
    fn remove_idle(&mut self, now_ns: u64) -> Vec<(StreamKey, S)> {
        let (mut removed, mut oldest_ns) = (Vec::new(), now_ns);
        let keys: Vec<_> = self.entries.keys().copied().collect();
        for keys in keys.chunk_by(|a, b| a.connection() == b.connection()) {
            let used = keys.iter().map(|key| self.entries[key].used_ns);
            let used_ns = used.max().unwrap_or(now_ns);
            if now_ns.saturating_sub(used_ns) < self.idle_ns {
                oldest_ns = oldest_ns.min(used_ns);
                continue;
            }
            self.connections -= 1;
            for key in keys {
                let entry = self.entries.remove(key);
                removed.extend(entry.map(|entry| (*key, entry.stream)));
            }
        }
        self.next_idle_ns = oldest_ns.saturating_add(self.idle_ns);
        removed
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

    #[test]
    fn idle_connections_make_room_and_others_do_not() {
        let key = |qpn| key(qpn, Space::Request);
        let mut table = StreamTable::new(2, 100);
        assert!(table.insert(0, key(1), "a").is_empty());
        assert!(table.insert(0, key(2), "b").is_empty());
        assert!(table.insert(50, key(3), "c").is_empty());
        assert!(table.get(50, &key(3)).is_none() && table.get(60, &key(1)).is_some());
        assert_eq!(table.insert(100, key(3), "c"), [(key(2), "b")]);
        assert!(table.get(100, &key(3)).is_some());
        // The other one is idle from 160 on.
        assert!(table.insert(159, key(4), "d").is_empty());
        assert_eq!(table.insert(160, key(4), "d"), [(key(1), "a")]);
    }

    /// A connection that writes and answers READs takes one place, and leaves as a whole.
    #[test]
    fn the_limit_counts_connections_and_not_their_streams() {
        let mut table = StreamTable::new(2, 100);
        for qpn in [1, 2, 3] {
            table.insert(0, key(qpn, Space::Response), qpn);
            table.insert(0, key(qpn, Space::Request), 10 * qpn);
        }
        let mut known = |qpn, space| table.peek(&key(qpn, space)).is_some();
        for space in [Space::Request, Space::Response] {
            assert_eq!([1, 2, 3].map(|qpn| known(qpn, space)), [true, true, false]);
        }
        // One stream of a connection in use keeps the other one.
        assert!(table.get(50, &key(1, Space::Response)).is_some());
        let removed = table.insert(100, key(3, Space::Request), 30);
        assert_eq!(
            removed,
            [(key(2, Space::Request), 20), (key(2, Space::Response), 2)]
        );
        assert!(table.peek(&key(1, Space::Request)).is_some());
        assert!(table.insert(100, key(4, Space::Request), 40).is_empty());
        assert!(table.peek(&key(4, Space::Request)).is_none());
    }
}
