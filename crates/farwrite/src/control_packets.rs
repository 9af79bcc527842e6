//! The control side of a queue pair: it seals and opens control packets, and passes on
//! the timestamps from which the round trip is measured.

use std::collections::VecDeque;

use farwrite_wire::control::{
    self, ACK_OVERHEAD_BYTES, Builder, Control, Draft, Echo, Header, ReplayWindow,
};

/// Maximum size of a control packet in bytes, independent of the MTU of the data (P4). The value is
/// one of RoCE's MTUs. It leaves room for a useful report, and the packet fits every path (RFC 8200
/// section 5: 1280 bytes with all headers).
pub(crate) const MTU: u32 = 1024;
/// Maximum number of packets kept while the fabric is full. Older packets are dropped, as a network
/// would drop them.
const MAX_WAITING: usize = 64;
/// Minimum room for a report in the packet under construction. With less room, the report goes into
/// a new packet.
const MIN_REPORT_BYTES: usize = 256;

/// A peer has vanished only if it has left that many packets unanswered: this end may have slept after
/// fewer of them.
const MIN_UNANSWERED: u32 = 8;

/// Keys, counters and timestamps for the control packets of one queue pair (P4.1, P4.2).
pub(crate) struct ControlPackets {
    /// Seals packets to the peer. The peer generated this key.
    send_key: Option<[u8; 32]>,
    /// Opens packets from the peer. This end generated this key.
    pub(crate) recv_key: [u8; 32],
    /// Counter of the packet that left last.
    counter: u64,
    replay: ReplayWindow,
    newest: Option<Newest>,
    builder: Builder,
    last_sent_ns: u64,
    /// The time when the last packet from the peer arrived, or when the first packet was sent to
    /// it.
    silent_since_ns: Option<u64>,
    /// Packets sent since the last one from the peer, and when the first of them left.
    unanswered: (u32, u64),
    /// Packets not yet sent. Each is sealed when it leaves, because it carries its time of
    /// departure.
    waiting: VecDeque<Draft>,
}

/// The packet from the peer with the highest counter.
#[derive(Clone, Copy)]
struct Newest {
    counter: u64,
    timestamp_ns: u64,
    arrived_ns: u64,
}

/// A control packet after it was opened.
pub(crate) struct Opened<'a> {
    /// The newest of our timestamps that the peer received, and how long the peer held it.
    pub(crate) echo: Option<Echo>,
    pub(crate) messages: control::Messages<'a>,
}

impl ControlPackets {
    pub(crate) fn new(recv_key: [u8; 32]) -> Self {
        Self {
            send_key: None,
            recv_key,
            counter: 0,
            replay: ReplayWindow::default(),
            newest: None,
            builder: Builder::new(MTU as usize),
            last_sent_ns: 0,
            silent_since_ns: None,
            unanswered: (0, 0),
            waiting: VecDeque::new(),
        }
    }

    pub(crate) fn connect(&mut self, send_key: [u8; 32]) {
        self.send_key = Some(send_key);
    }

    /// Checks the tag and the counter, and stores the timestamps. Returns `None` for a packet that
    /// is forged, replayed or malformed.
    pub(crate) fn open<'a>(&mut self, now_ns: u64, bytes: &'a [u8]) -> Option<Opened<'a>> {
        let (header, messages) = control::open(&self.recv_key, bytes).ok()?;
        if !self.replay.accept(header.counter) {
            return None;
        }
        self.silent_since_ns = Some(now_ns);
        self.forget_unanswered();
        // An older packet that was overtaken must not set the echo back.
        if self
            .newest
            .is_none_or(|newest| header.counter > newest.counter)
        {
            self.newest = Some(Newest {
                counter: header.counter,
                timestamp_ns: header.timestamp_ns,
                arrived_ns: now_ns,
            });
        }
        Some(Opened {
            echo: header.echo,
            messages,
        })
    }

    /// Adds a message to the packet under construction, or to a new packet.
    pub(crate) fn push(&mut self, message: &Control) {
        if self.builder.push(message) {
            return;
        }
        self.finish();
        let fits = self.builder.push(message);
        debug_assert!(fits, "a control message larger than a packet: {message:?}");
    }

    /// Returns how many bytes of bits or ranges the next report may have. Ends the packet under
    /// construction if it has too little room: a bitmap cut into small pieces would take many
    /// packets.
    pub(crate) fn report_room(&mut self) -> usize {
        let room = |builder: &Builder| builder.remaining().saturating_sub(ACK_OVERHEAD_BYTES);
        if room(&self.builder) < MIN_REPORT_BYTES {
            self.finish();
        }
        room(&self.builder)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    pub(crate) fn last_sent_ns(&self) -> u64 {
        self.last_sent_ns
    }

    /// Returns how long the peer had been silent when the last packet was sent.
    pub(crate) fn silence_ns(&self) -> u64 {
        let since_ns = self.silent_since_ns.unwrap_or(self.last_sent_ns);
        self.last_sent_ns.saturating_sub(since_ns)
    }

    /// Counts again which packets the peer has not answered.
    pub(crate) fn forget_unanswered(&mut self) {
        self.unanswered = (0, 0);
    }

    /// Returns whether the peer has answered none of several packets, the first of which left at least
    /// `limit_ns` ago.
    pub(crate) fn is_unanswered(&self, now_ns: u64, limit_ns: u64) -> bool {
        let (count, since_ns) = self.unanswered;
        count >= MIN_UNANSWERED && now_ns.saturating_sub(since_ns) >= limit_ns
    }

    /// Ends the packet under construction. The packet may be empty (a ping).
    pub(crate) fn finish(&mut self) {
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(self.builder.finish());
    }

    /// Returns whether the queue is so full that another packet might replace the oldest.
    pub(crate) fn is_crowded(&self) -> bool {
        self.waiting.len() >= MAX_WAITING / 2
    }

    /// Frees the memory of the queue if it is empty.
    pub(crate) fn shrink(&mut self) {
        self.waiting.shrink_to_fit();
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Seals the oldest waiting packet with the current time. Returns `None` if no packet waits or
    /// no peer is connected.
    pub(crate) fn seal_next(&mut self, now_ns: u64) -> Option<&[u8]> {
        let key = self.send_key.as_ref()?;
        let draft = self.waiting.front_mut()?;
        let header = Header {
            counter: self.counter + 1,
            timestamp_ns: now_ns,
            echo: self.newest.map(|newest| Echo {
                timestamp_ns: newest.timestamp_ns,
                hold_ns: now_ns.saturating_sub(newest.arrived_ns),
            }),
        };
        Some(draft.seal(&header, key))
    }

    pub(crate) fn sent_packets(&self) -> u64 {
        self.counter
    }

    /// Records that the packet sealed last has left.
    pub(crate) fn sent(&mut self, now_ns: u64) {
        self.waiting.pop_front();
        self.counter += 1;
        self.last_sent_ns = now_ns;
        self.silent_since_ns.get_or_insert(now_ns);
        if self.unanswered.0 == 0 {
            self.unanswered.1 = now_ns;
        }
        self.unanswered.0 = self.unanswered.0.saturating_add(1);
    }
}
