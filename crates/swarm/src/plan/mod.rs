//! The plan of a case: a plain value with all posted messages and all faults.

mod draw;
mod reads;
pub(crate) mod show;

use farwrite::{CriticalRanges, Outcome, QpOptions, RateControl, SchemeName, Sealing};
use farwrite_link::LinkConfig;
use farwrite_wire::control::Terms;

/// A microsecond in nanoseconds.
pub(crate) const US: u64 = 1_000;
/// A millisecond in nanoseconds.
pub(crate) const MS: u64 = 1_000 * US;
/// A second in nanoseconds.
pub(crate) const SECOND: u64 = 1_000 * MS;

/// The plan of a case. Equal plans give equal runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of the faults of links, the keys, and the bytes of messages.
    pub seed: u64,
    /// Whether hosts have IPv6 addresses.
    pub ipv6: bool,
    /// Whether hosts are behind address translation. Then routes find the addresses of the peers (P6.2).
    pub translated: bool,
    /// How long all hosts take to code a group while they do other work, in nanoseconds. With 0, they
    /// code at once.
    pub coding_ns: u64,
    /// The paths between hosts.
    pub paths: Vec<PathPlan>,
    /// The queue pairs.
    pub pairs: Vec<PairPlan>,
    /// The messages. Those of one queue pair and direction are posted in this order.
    pub messages: Vec<MessagePlan>,
    /// The faults, in addition to the faults of links.
    pub faults: Vec<Fault>,
    /// When all faults end, in nanoseconds: links neither lose nor change packets from then on.
    pub heal_ns: u64,
    /// After `heal_ns`, and after each later post and outcome, the next post or outcome must follow
    /// within this time, in nanoseconds.
    pub patience_ns: u64,
}

/// A path between two hosts.
#[derive(Clone, Debug)]
pub struct PathPlan {
    /// Numbers of the hosts, counted from 0.
    pub hosts: [usize; 2],
    /// The link from the first host to the second, and the link back.
    pub links: [LinkConfig; 2],
    /// The rate control, which the queue pairs of the path share.
    pub rate_control: RateControl,
}

/// A queue pair between the two hosts of a path.
#[derive(Clone, Debug)]
pub struct PairPlan {
    /// Index of the path. End 0 of the queue pair is on the path's first host.
    pub path: usize,
    /// The options of both ends.
    pub options: QpOptions,
    /// When both ends create it, and end 0 connects it, in nanoseconds.
    pub opens_ns: u64,
    /// How much later end 1 connects it, in nanoseconds.
    pub lag_ns: u64,
    /// For each end, whether the messages that it sends answer reads of the other end.
    pub reads: [bool; 2],
}

/// A message: its send and its receive.
#[derive(Clone, Debug)]
pub struct MessagePlan {
    /// Index of the queue pair.
    pub pair: usize,
    /// The end that sends: 0 or 1.
    pub from: usize,
    /// Length in bytes.
    pub bytes: usize,
    /// Length of the posted buffer. The message fails if the buffer is shorter than the message.
    pub capacity: usize,
    /// How its losses are repaired.
    pub scheme: Repair,
    /// Its critical ranges. Only schemes that know critical ranges have some.
    pub critical: CriticalRanges,
    /// The user immediate.
    pub immediate: Option<u32>,
    /// Earliest time of the send, in nanoseconds. A full queue pair delays it.
    pub send_ns: u64,
    /// Earliest time at which its buffer is posted, in nanoseconds.
    pub recv_ns: u64,
    /// The terms of its receive.
    pub terms: Terms,
    /// Time from the post of the send to its deadline, in nanoseconds. A stream has no deadline.
    pub send_limit_ns: Option<u64>,
    /// Time from the post of the buffer to its deadline, in nanoseconds.
    pub recv_limit_ns: Option<u64>,
    /// For a stream that consists of writes, the time from the post of each to its deadline, in
    /// nanoseconds. Empty for others.
    pub write_limits_ns: Vec<Option<u64>>,
    /// What its users do while it is open.
    pub ending: Ending,
}

/// How the losses of a message are repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// By a scheme.
    Scheme(SchemeName),
    /// Not at all. The message is posted in one piece.
    Nothing,
    /// Not at all. The message is a stream of two runs of chunks, with the later chunks first.
    Stream,
}

/// What the users of a message do while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// They only wait.
    Natural,
    /// The sender cancels it this long after its post.
    Cancel {
        /// In nanoseconds.
        after_ns: u64,
    },
    /// The receiver completes it this long after its post. Without a scheme, the receiver uses the
    /// outcome that the bitmap shows instead of `outcome`.
    Complete {
        /// In nanoseconds.
        after_ns: u64,
        /// The outcome that the receiver reports to the sender.
        outcome: Outcome,
    },
}

/// A span of time in nanoseconds, without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First instant.
    pub from_ns: u64,
    /// First instant after it.
    pub until_ns: u64,
}

impl Span {
    pub(crate) fn contains(&self, now_ns: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&now_ns)
    }
}

/// What an attacker writes to the trailers of route packets (P6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trailers {
    /// Random bytes.
    Random,
    /// The difference that a relay would leave that puts ICRCs right for the translated addresses.
    Resealed,
    /// One or the other, drawn for each packet.
    Mixed,
}

/// A fault at a time.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Links of a path are down.
    Cut {
        /// Index of the path.
        path: usize,
        /// Whether the link from the first host is down, and the link back.
        ways: [bool; 2],
        /// When.
        span: Span,
    },
    /// A link loses control packets, but no other packets.
    ControlLoss {
        /// Index of the path.
        path: usize,
        /// Index of the link in the path.
        link: usize,
        /// When.
        span: Span,
        /// Probability that a control packet is lost.
        share: f64,
    },
    /// A link holds control packets back. They may arrive arbitrarily late (P4).
    ControlLate {
        /// Index of the path.
        path: usize,
        /// Index of the link in the path.
        link: usize,
        /// When they are sent.
        span: Span,
        /// Probability that a control packet is held back.
        share: f64,
        /// For how long, in nanoseconds.
        delay_ns: u64,
    },
    /// Data packets of a queue pair arrive when their slot has another message, but before the slot
    /// has the same generation again. Packets later than that may be mistaken for packets of the
    /// new message (P3.10).
    Late {
        /// Index of the queue pair.
        pair: usize,
        /// The end that sends them.
        from: usize,
        /// When they are sent.
        span: Span,
        /// Probability that a data packet is late.
        share: f64,
        /// Number of later messages in the same slot: at least 1, and less than the generations.
        age: u64,
        /// Whether only a copy is late.
        copies: bool,
    },
    /// Someone repeats one data packet of a queue pair, without a limit on the number of copies. If it
    /// is not sealed, only until the slot has the same generation again: later copies may be mistaken
    /// for packets of the new message (P3.10).
    Replay {
        /// Index of the queue pair.
        pair: usize,
        /// The end that sends the packet.
        from: usize,
        /// When copies arrive.
        span: Span,
        /// Time between two arrivals, in nanoseconds.
        every_ns: u64,
        /// Copies that arrive together.
        copies: u32,
        /// Whether they carry a congestion mark (ECN CE).
        marked: bool,
    },
    /// Someone on the path changes copies of sealed data packets of a queue pair, and sends copies back
    /// to their sender. The copies overtake the packets (P2.7).
    Forgery {
        /// Index of the queue pair.
        pair: usize,
        /// The end that sends the packets.
        from: usize,
        /// When they are sent.
        span: Span,
        /// Probability that a data packet gets such a copy.
        share: f64,
    },
    /// Someone who knows all bytes without a tag changes these on a path, in both directions, and leaves.
    /// The hosts are behind address translation, and no other fault lasts longer.
    Meddling {
        /// Index of the path.
        path: usize,
        /// When.
        span: Span,
        /// What it writes to the trailers of route packets.
        trailers: Trailers,
        /// Probability that it breaks the ICRC of a packet of a queue pair.
        icrc_share: f64,
        /// Probability that it sends a route packet a second time.
        repeat_share: f64,
    },
    /// A host does not poll its endpoint.
    Pause {
        /// Number of the host.
        host: usize,
        /// When.
        span: Span,
    },
    /// The fabric of a host accepts only a part of the packets.
    Full {
        /// Number of the host.
        host: usize,
        /// When.
        span: Span,
        /// Probability that a call is cut short.
        share: f64,
    },
    /// A host loses its endpoint and starts a new one at the same address. The other ends of its
    /// queue pairs do not notice this, and are destroyed some time later.
    Restart {
        /// Number of the host.
        host: usize,
        /// When, in nanoseconds.
        at_ns: u64,
        /// How long the other ends live on, in nanoseconds.
        grace_ns: u64,
    },
    /// An end destroys a queue pair. The other end does not notice this, and is destroyed some time
    /// later.
    Close {
        /// Index of the queue pair.
        pair: usize,
        /// The end that goes first.
        end: usize,
        /// When, in nanoseconds.
        at_ns: u64,
        /// How long the other end lives on, in nanoseconds.
        grace_ns: u64,
    },
}

impl PairPlan {
    /// Bytes of a full chunk.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        let sdr = &self.options.sdr;
        u64::from(sdr.mtu) * u64::from(sdr.packets_per_chunk)
    }
}

impl MessagePlan {
    /// The chunks that the critical ranges touch. Ranges that touch one chunk repeat it.
    pub(crate) fn critical_chunks(&self, chunk_bytes: u64) -> impl Iterator<Item = u64> + '_ {
        let ranges = self.critical.ranges();
        ranges.flat_map(move |range| range.start / chunk_bytes..range.end.div_ceil(chunk_bytes))
    }

    /// Whether it may end as partial only with all of its critical ranges (P5.9.8).
    pub(crate) fn is_exact(&self) -> bool {
        self.scheme == Repair::Scheme(SchemeName::BestEffortExact)
    }
}

impl Plan {
    /// Whether data packets are sealed.
    pub(crate) fn is_sealed(&self) -> bool {
        let mut pairs = self.pairs.iter();
        pairs.any(|pair| pair.options.sealing != Sealing::Off)
    }

    pub(crate) fn hosts(&self) -> usize {
        let hosts = self.paths.iter().flat_map(|path| path.hosts);
        hosts.max().map_or(0, |last| last + 1)
    }

    pub(crate) fn host(&self, pair: usize, end: usize) -> usize {
        self.paths[self.pairs[pair].path].hosts[end]
    }

    /// Indices of the messages of one direction, in their order.
    pub(crate) fn course(&self, pair: usize, from: usize) -> impl Iterator<Item = usize> + '_ {
        let belongs = move |message: &MessagePlan| message.pair == pair && message.from == from;
        let messages = self.messages.iter().enumerate();
        messages.filter_map(move |(index, message)| belongs(message).then_some(index))
    }
}
