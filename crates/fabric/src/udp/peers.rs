//! The connected sockets of a port: one for each peer, so that a peer's packets have their own
//! buffer.
//!
//! The kernel delivers a datagram to the socket that is connected to its source, and the datagrams
//! of strangers to the open socket, which is not connected. A flood from strangers then fills only
//! the buffer of the open socket. Connected sockets only receive: if they sent, their packets would
//! have counting IPv4 identifications, which the ICRC covers.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::config::SocketConfig;
use super::datagram::ReceivedBatch;
use super::readable::Readable;
use super::reserved_port::ReservedPort;
use super::socket::SharedSocket;
use super::{routing_table, sys};
use crate::contract::FabricError;
use crate::nic::{Ends, ROCE_PORT};
use crate::threads::lock;

/// Largest number of connected sockets of a port. Each costs one of the descriptors of the process,
/// of which systems usually allow 1024: 64 leave room for eight ports and for files. Linux before
/// 6.13 also compares each datagram with the sockets of its port one by one. Further peers share the
/// open socket.
const MOST: usize = 64;
/// Up to this number of connected sockets, a poll reads all of them, with one system call for each.
/// Of more sockets, it first asks which have datagrams. That is one more call, but silent sockets
/// cost none.
const FEW: usize = 8;

/// The peers of a port. The control object and the worker share this.
#[derive(Debug)]
pub(super) struct Peers {
    /// The socket that is not connected.
    open: Arc<SharedSocket>,
    /// Drops of the open socket before these peers used it: other fabrics may share it.
    first_drops: u64,
    config: SocketConfig,
    /// The port of the open socket, if this process holds it apart from the socket.
    held: Option<ReservedPort>,
    list: Mutex<List>,
    /// Grows when `list.sockets` changes: a worker then makes its copy again, with some system calls.
    version: AtomicU64,
    /// Whether packets of some peer may arrive through the open socket.
    shares: AtomicBool,
    /// Whether the owner awaits strangers, as a listener does.
    awaits_strangers: AtomicBool,
}

#[derive(Debug, Default)]
struct List {
    /// Number of queue pairs with each pair of ends.
    users: HashMap<Ends, usize>,
    sockets: Vec<(Ends, Arc<SharedSocket>)>,
    /// Drops of sockets that were closed.
    past_drops: u64,
    /// Drops of the open socket during past times in which every peer had its own socket.
    stranger_drops: u64,
    /// Drops of the open socket at the start of the current such time.
    strangers_since: Option<u64>,
}

impl List {
    /// Returns the ends of a peer that shares the open socket and could have a socket.
    fn without_socket(&self) -> Option<Ends> {
        if self.users.len() <= self.sockets.len() {
            return None;
        }
        let has_none = |ends: &Ends| self.sockets.iter().all(|(of, _)| of != ends);
        let mut all = self.users.keys().copied();
        all.find(|ends| may_connect(ends.peer) && has_none(ends))
    }
}

/// Whether packets from this peer arrive through a socket that is connected to it. RDMA NICs send
/// from many ports, so a connected socket would miss most of their packets.
fn may_connect(peer: SocketAddr) -> bool {
    peer.port() != ROCE_PORT
}

/// The ends, with IPv4 addresses as such.
fn canonical(ends: Ends) -> Ends {
    Ends {
        local: ends.local.to_canonical(),
        peer: routing_table::canonical(ends.peer),
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

impl Peers {
    pub(super) fn new(
        open: Arc<SharedSocket>,
        config: SocketConfig,
        held: Option<ReservedPort>,
    ) -> Self {
        Self {
            first_drops: open.drops.load(Ordering::Relaxed),
            open,
            config,
            held,
            list: Mutex::default(),
            version: AtomicU64::new(0),
            shares: AtomicBool::new(true),
            awaits_strangers: AtomicBool::new(false),
        }
    }

    /// Counts one more queue pair with these ends. The first one gets a connected
    /// socket. If that fails, the packets arrive through the open socket.
    pub(super) fn join(&self, ends: Ends) {
        let ends = canonical(ends);
        let mut list = lock(&self.list);
        let users = list.users.entry(ends).or_default();
        *users += 1;
        // Nothing changes with further queue pairs of a peer.
        if *users == 1 {
            self.give_socket(&mut list, ends);
            self.publish(&mut list);
        }
    }

    /// Connects a socket to a peer, if there is one left.
    fn give_socket(&self, list: &mut List, ends: Ends) {
        if may_connect(ends.peer)
            && list.sockets.len() < MOST
            && let Ok(socket) = self.connected(ends)
        {
            list.sockets.push((ends, Arc::new(socket)));
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Counts one queue pair less. With the last one, the connected socket is closed. A peer that
    /// shares the open socket then gets a socket.
    pub(super) fn leave(&self, ends: Ends) {
        let ends = canonical(ends);
        let mut list = lock(&self.list);
        let Some(users) = list.users.get_mut(&ends) else {
            return;
        };
        *users -= 1;
        if *users > 0 {
            return;
        }
        list.users.remove(&ends);
        if let Some(index) = list.sockets.iter().position(|(of, _)| *of == ends) {
            let (_, socket) = list.sockets.swap_remove(index);
            list.past_drops += socket.drops.load(Ordering::Relaxed);
            self.version.fetch_add(1, Ordering::Release);
            if let Some(next) = list.without_socket() {
                self.give_socket(&mut list, next);
            }
        }
        self.publish(&mut list);
    }

    /// Makes a socket at the port of the open socket that receives only from the peer, at the local address to which it
    /// sends.
    ///
    /// The port can be bound a second time only during this call, so that no other program can share
    /// it.
    fn connected(&self, ends: Ends) -> Result<SharedSocket, FabricError> {
        let (open, peer) = (&self.open, ends.peer);
        let share = |on: bool| {
            let fd = open.socket.as_fd();
            sys::set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, on.into())
        };
        let mut bind = open.local;
        // The system finds the interface of a link-local address, and the address with it.
        if bind.ip().is_unspecified() && !is_link_local(ends.local) {
            bind = SocketAddr::new(ends.local, bind.port());
        }
        let config = SocketConfig {
            bind,
            ..self.config
        };
        let make = || -> io::Result<_> {
            share(true)?;
            let made = SharedSocket::connect(&config, peer);
            share(false)?;
            Ok(made)
        };
        let made = match &self.held {
            Some(held) => held.share(make),
            None => make(),
        };
        let made = made.map_err(|source| FabricError::Io {
            what: format!("connecting a socket of UDP {} to {peer}", open.local),
            source,
        })?;
        Ok(made?)
    }

    /// How often ICMP has said that nobody is at the port of `peer`. Anyone can forge that.
    pub(super) fn refusals(&self, peer: SocketAddr) -> u64 {
        let peer = routing_table::canonical(peer);
        let list = lock(&self.list);
        let of_peer = list.sockets.iter().filter(|(of, _)| of.peer == peer);
        let refusals = of_peer.map(|(_, socket)| socket.refusals.load(Ordering::Relaxed));
        refusals.sum()
    }

    /// Whether packets of some peer, or of awaited strangers, may arrive through the open socket.
    pub(super) fn shares(&self) -> bool {
        self.shares.load(Ordering::Relaxed) || self.awaits_strangers()
    }

    pub(super) fn awaits_strangers(&self) -> bool {
        self.awaits_strangers.load(Ordering::Relaxed)
    }

    /// Whether datagrams come from a peer.
    pub(super) fn knows(&self, batch: &ReceivedBatch<'_>) -> bool {
        let ends = canonical(Ends {
            local: batch.dst.ip(),
            peer: batch.src,
        });
        lock(&self.list).users.contains_key(&ends)
    }

    /// Reads the open socket as often as those of peers from now on.
    pub(super) fn await_strangers(&self) {
        self.awaits_strangers.store(true, Ordering::Relaxed);
    }

    fn publish(&self, list: &mut List) {
        let shares = list.sockets.is_empty() || list.users.len() > list.sockets.len();
        let drops = self.open.drops.load(Ordering::Relaxed);
        if !shares {
            list.strangers_since.get_or_insert(drops);
        } else if let Some(since) = list.strangers_since.take() {
            list.stranger_drops += drops - since;
        }
        self.shares.store(shares, Ordering::Relaxed);
    }

    /// Datagrams dropped because a socket buffer was full: first those of peers, then those of
    /// strangers. While a peer shares the open socket, all drops of that socket count as drops of
    /// peers.
    pub(super) fn drops(&self) -> [u64; 2] {
        let list = lock(&self.list);
        let open = self.open.drops.load(Ordering::Relaxed);
        let since = list.strangers_since.map_or(0, |since| open - since);
        let strangers = list.stranger_drops + since;
        let sockets = list.sockets.iter();
        let connected: u64 = sockets.map(|(_, s)| s.drops.load(Ordering::Relaxed)).sum();
        let of_open = open - self.first_drops - strangers;
        [list.past_drops + connected + of_open, strangers]
    }
}

/// A worker's copy of the list of connected sockets.
#[derive(Debug)]
pub(super) struct KnownSockets {
    peers: Arc<Peers>,
    version: u64,
    pub(super) sockets: Vec<Arc<SharedSocket>>,
    /// Finds the sockets to read, if there are more than a few.
    pub(super) readable: Option<Readable>,
}

impl KnownSockets {
    pub(super) fn new(peers: Arc<Peers>) -> Self {
        Self {
            peers,
            version: 0,
            sockets: Vec::new(),
            readable: None,
        }
    }

    /// Whether the list has changed since the last [`KnownSockets::refresh`].
    pub(super) fn is_stale(&self) -> bool {
        self.peers.version.load(Ordering::Acquire) != self.version
    }

    /// Updates the copy. Costs one atomic load if nothing has changed.
    pub(super) fn refresh(&mut self) {
        if !self.is_stale() {
            return;
        }
        let list = lock(&self.peers.list);
        self.version = self.peers.version.load(Ordering::Acquire);
        self.sockets = list.sockets.iter().map(|(_, s)| Arc::clone(s)).collect();
        drop(list);
        // Without such a set, all sockets are read.
        self.readable = match self.sockets.len() {
            0..=FEW => None,
            _ => Readable::new(&self.sockets).ok(),
        };
    }

    /// Returns the sockets that may have datagrams, and whether there may be more of them.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(super) fn sockets_to_read(
        &mut self,
    ) -> Result<(bool, impl Iterator<Item = &Arc<SharedSocket>>), FabricError> {
        let more = self.readable.as_mut().map_or(Ok(false), Readable::look);
        let more = more.map_err(|source| FabricError::Io {
            what: "looking which sockets have datagrams".into(),
            source,
        })?;
        let found = self.readable.as_ref().map(Readable::indices);
        let all = self.readable.is_none().then_some(0..self.sockets.len());
        let indices = found.into_iter().flatten().chain(all.into_iter().flatten());
        Ok((more, indices.filter_map(|index| self.sockets.get(index))))
    }

    /// Whether packets of some peer may arrive through the open socket.
    pub(super) fn shares(&self) -> bool {
        self.peers.shares()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_a_shared_socket_count_from_the_first_use() {
        let addr = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = SocketConfig::new(addr);
        let socket = Arc::new(SharedSocket::bind(&config, None).expect("a socket"));
        socket.drops.store(5, Ordering::Relaxed);
        let peers = Peers::new(Arc::clone(&socket), config, None);
        assert_eq!(peers.drops(), [0, 0]);
        socket.drops.store(7, Ordering::Relaxed);
        assert_eq!(peers.drops(), [2, 0]);
        peers.join(Ends {
            local: addr.ip(),
            peer: SocketAddr::from(([127, 0, 0, 1], 9)),
        });
        socket.drops.store(10, Ordering::Relaxed);
        assert_eq!(peers.drops(), [2, 3]);
    }

    #[test]
    fn workers_look_again_only_when_the_sockets_have_changed() {
        let addr = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = SocketConfig::new(addr);
        let socket = Arc::new(SharedSocket::bind(&config, None).expect("a socket"));
        let peers = Arc::new(Peers::new(socket, config, None));
        let mut known = KnownSockets::new(Arc::clone(&peers));
        let [peer, nic] = [9, ROCE_PORT].map(|port| Ends {
            local: addr.ip(),
            peer: SocketAddr::from(([127, 0, 0, 1], port)),
        });
        let mut is_new = |change: fn(&Peers, Ends), ends| {
            change(&peers, ends);
            let is_stale = known.is_stale();
            known.refresh();
            is_stale
        };
        assert!(is_new(Peers::join, peer));
        assert!(!is_new(Peers::join, peer), "one more queue pair");
        assert!(!is_new(Peers::join, nic), "it shares the open socket");
        assert!(!is_new(Peers::leave, peer), "it has another queue pair");
        assert!(is_new(Peers::leave, peer));
    }
}
