//! Options of connections.

use std::net::SocketAddr;
use std::time::Duration;

use farwrite::{QpOptions, RateControl};

use crate::purpose::Purpose;

/// How an end sets up and keeps its connections.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// The local address of [`connect`](crate::connect); `None`: any address, and a free port.
    pub bind: Option<SocketAddr>,
    /// What the connections of [`connect`](crate::connect) are for. The listener must serve it.
    pub purpose: Purpose,
    /// What a [`Listener`](crate::Listener) serves. It refuses connections for other purposes.
    pub serves: Vec<Purpose>,
    /// How long the lookup of a name may take, how long the listener may be silent while this end connects, and how
    /// long the search for the largest packets may take.
    pub connect_limit: Duration,
    /// How long this end asks again while the listener answers that it has no room, or verifies no more requests of
    /// this host at the moment. Zero: it asks a listener without room once.
    pub busy_limit: Duration,
    /// How long the peer may be silent before the connection ends: a machine that sleeps, or a cut path.
    /// Each end has a limit of its own.
    pub silence_limit: Duration,
    /// How fast packets are sent to the peer. It holds for all queue pairs of the connection.
    pub rate_control: RateControl,
    /// Whether the data packets of all queue pairs of the connection have no ICRC, if the peer wants that too
    /// ([`QpOptions::omit_icrc`]). A queue pair can also want it alone, by its own options.
    pub omit_icrc: bool,
    /// The largest MTU to try; `None`: jumbo frames. The MTU of a connection is what the path carries.
    pub largest_mtu: Option<u32>,
    /// Whether the queue pairs of a connection report events ([`farwrite::events`]).
    pub reports_events: bool,
    /// A queue pair that [`connect`](crate::connect) asks the peer for as early as possible, by its name and with its
    /// options: with the last packet of the handshake, if `largest_mtu` is 1024, and otherwise as soon as the MTU is
    /// known. The first [`Connection::open_queue_pair`](crate::Connection::open_queue_pair) of this name gets it, and
    /// saves a round trip. It must have the same options.
    pub first: Option<(String, QpOptions)>,
    /// The highest number of queue pairs of one connection. When the peer asks for more, its requests wait until one
    /// is closed. A queue pair that has ended and only answers late packets does not count
    /// ([`OpenedQueuePair::retire`](crate::OpenedQueuePair::retire)).
    pub max_queue_pairs: usize,
    /// The highest number of connections that wait for [`Listener::accept`](crate::Listener::accept), and a quarter of
    /// it for one peer (for one host, with a pre-shared key). More wait at their initiators, which ask again.
    pub backlog: usize,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            bind: None,
            purpose: Purpose::PROGRAM,
            serves: vec![Purpose::PROGRAM],
            connect_limit: Duration::from_secs(10),
            busy_limit: Duration::from_secs(10),
            silence_limit: Duration::from_secs(60),
            rate_control: RateControl::default(),
            omit_icrc: false,
            largest_mtu: None,
            reports_events: true,
            first: None,
            max_queue_pairs: 64,
            backlog: 256,
        }
    }
}
