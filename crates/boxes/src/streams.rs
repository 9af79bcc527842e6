//! Identifies streams of packets, and keeps a bounded table of them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

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
}

/// Streams by key, up to a limit.
#[derive(Debug)]
pub(crate) struct StreamTable<S> {
    entries: BTreeMap<StreamKey, Entry<S>>,
    limit: usize,
    idle_ns: u64,
    /// No stream can be idle before this time.
    next_idle_ns: u64,
}

#[derive(Debug)]
struct Entry<S> {
    used_ns: u64,
    stream: S,
}

impl<S> StreamTable<S> {
    /// A table of up to `limit` streams. When it is full, streams that were not used for `idle_ns`
    /// make room.
    pub(crate) fn new(limit: usize, idle_ns: u64) -> Self {
        Self {
            entries: BTreeMap::new(),
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

    /// Adds a stream unless the table is full. Returns the idle streams that it removed to make
    /// room.
    pub(crate) fn insert(&mut self, now_ns: u64, key: StreamKey, stream: S) -> Vec<(StreamKey, S)> {
        let mut removed = Vec::new();
        if self.entries.len() >= self.limit && now_ns >= self.next_idle_ns {
            let idle_ns = self.idle_ns;
            let is_idle = |entry: &Entry<S>| now_ns.saturating_sub(entry.used_ns) >= idle_ns;
            let idle = self.entries.iter().filter(|(_, entry)| is_idle(entry));
            let idle: Vec<_> = idle.map(|(key, _)| *key).collect();
            for key in idle {
                let entry = self.entries.remove(&key);
                removed.extend(entry.map(|entry| (key, entry.stream)));
            }
            let oldest = self.entries.values().map(|entry| entry.used_ns).min();
            self.next_idle_ns = oldest.unwrap_or(now_ns).saturating_add(idle_ns);
        }
        if self.entries.len() < self.limit {
            let used_ns = now_ns;
            self.entries.insert(key, Entry { used_ns, stream });
        }
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

    #[test]
    fn idle_streams_make_room_and_others_do_not() {
        let key = |qpn| StreamKey::of(Ipv4Addr::LOCALHOST.into(), qpn, Space::Request);
        let mut table = StreamTable::new(2, 100);
        assert!(table.insert(0, key(1), "a").is_empty());
        assert!(table.insert(0, key(2), "b").is_empty());
        assert!(table.insert(50, key(3), "c").is_empty());
        assert!(table.get(50, &key(3)).is_none() && table.get(60, &key(1)).is_some());
        assert_eq!(table.insert(100, key(3), "c"), [(key(2), "b")]);
        assert!(table.get(100, &key(3)).is_some());
    }
}
