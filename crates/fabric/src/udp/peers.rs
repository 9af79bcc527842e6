//! The connected sockets of a port: one a peer, so that its packets have a buffer of their own.
//!
//! The kernel gives a datagram to the socket that is connected to its source, and the packets of
//! strangers to the one that is not connected. A flood of them then fills that one's buffer only.
//! Connected sockets receive and never send: their packets would have IPv4 identifications that
//! count on, and the ICRC covers those.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::config::SocketConfig;
use super::socket::Shared;
use super::{path, sys};
use crate::contract::FabricError;
use crate::nic::ROCE_PORT;

/// Most connected sockets of a port: each costs its worker a system call whenever it looks for
/// packets. Further peers share the socket that is not connected.
const MOST: usize = 8;

/// The peers of a port. The control object and the worker share it.
#[derive(Debug)]
pub(super) struct Peers {
    /// The socket that is not connected.
    open: Arc<Shared>,
    config: SocketConfig,
    list: Mutex<List>,
    version: AtomicU64,
    /// Whether the packets of some peer may come by the socket that is not connected.
    shares: AtomicBool,
}

#[derive(Debug, Default)]
struct List {
    /// Queue pairs that take packets from an address.
    users: HashMap<SocketAddr, usize>,
    sockets: Vec<(SocketAddr, Arc<Shared>)>,
    /// Drops of sockets that are gone.
    past_drops: u64,
    /// Drops of `open` while every peer had a socket of its own.
    stranger_drops: u64,
    /// Those of `open` in all when that last began to be so.
    strangers_since: Option<u64>,
}

impl Peers {
    pub(super) fn new(open: Arc<Shared>, config: SocketConfig) -> Self {
        Self {
            open,
            config,
            list: Mutex::default(),
            version: AtomicU64::new(0),
            shares: AtomicBool::new(true),
        }
    }

    /// Counts one more queue pair that takes packets from `peer`, and connects a socket for the
    /// first. Without a socket, the packets come by the one that is not connected.
    pub(super) fn join(&self, peer: SocketAddr) {
        let peer = path::canonical(peer);
        let mut list = self.lock();
        let users = list.users.entry(peer).or_default();
        *users += 1;
        // RDMA NICs send from many ports.
        let wants_socket = *users == 1 && peer.port() != ROCE_PORT;
        if wants_socket
            && list.sockets.len() < MOST
            && let Ok(socket) = connected(peer, &self.config, &self.open)
        {
            list.sockets.push((peer, Arc::new(socket)));
        }
        self.publish(&mut list);
    }

    /// One queue pair less.
    pub(super) fn leave(&self, peer: SocketAddr) {
        let peer = path::canonical(peer);
        let mut list = self.lock();
        let Some(users) = list.users.get_mut(&peer) else {
            return;
        };
        *users -= 1;
        if *users > 0 {
            return;
        }
        list.users.remove(&peer);
        if let Some(place) = list.sockets.iter().position(|(addr, _)| *addr == peer) {
            let (_, socket) = list.sockets.swap_remove(place);
            list.past_drops += socket.drops.load(Ordering::Relaxed);
        }
        self.publish(&mut list);
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
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Datagrams that found no room, of peers and of strangers. Where a peer shares the socket that
    /// is not connected, all of that one's count as the peer's.
    pub(super) fn drops(&self) -> [u64; 2] {
        let list = self.lock();
        let open = self.open.drops.load(Ordering::Relaxed);
        let since = list.strangers_since.map_or(0, |since| open - since);
        let strangers = list.stranger_drops + since;
        let sockets = list.sockets.iter();
        let connected: u64 = sockets.map(|(_, s)| s.drops.load(Ordering::Relaxed)).sum();
        [list.past_drops + connected + open - strangers, strangers]
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a worker knows of the connected sockets.
#[derive(Debug)]
pub(super) struct Known {
    peers: Arc<Peers>,
    version: u64,
    pub(super) sockets: Vec<Arc<Shared>>,
}

impl Known {
    pub(super) fn new(peers: Arc<Peers>) -> Self {
        Self {
            peers,
            version: 0,
            sockets: Vec::new(),
        }
    }

    /// Whether the list has changed since the last [`Known::refresh`].
    pub(super) fn is_stale(&self) -> bool {
        self.peers.version.load(Ordering::Acquire) != self.version
    }

    /// Takes in what has changed. Costs one load where nothing has.
    pub(super) fn refresh(&mut self) {
        if !self.is_stale() {
            return;
        }
        let list = self.peers.lock();
        self.version = self.peers.version.load(Ordering::Acquire);
        self.sockets = list.sockets.iter().map(|(_, s)| Arc::clone(s)).collect();
    }

    /// Whether the packets of some peer may come by the socket that is not connected.
    pub(super) fn shares(&self) -> bool {
        self.peers.shares.load(Ordering::Relaxed)
    }
}

/// A socket at the port of `open` that receives what `peer` sends.
///
/// Only while it is made can the port be bound a second time, so that no other program takes it.
fn connected(
    peer: SocketAddr,
    config: &SocketConfig,
    open: &Shared,
) -> Result<Shared, FabricError> {
    let share = |on: bool| {
        let fd = open.socket.as_fd();
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, on.into())
    };
    let failed = |source| FabricError::Io {
        what: format!("connecting a socket of UDP {} to {peer}", open.local),
        source,
    };
    share(true).map_err(failed)?;
    let config = SocketConfig {
        bind: open.local,
        ..*config
    };
    let made = Shared::connect(&config, peer);
    share(false).map_err(failed)?;
    Ok(made?)
}
