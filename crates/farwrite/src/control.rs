//! The control path of a queue pair: seals and opens control packets, and times the round trip.

use std::collections::VecDeque;

use farwrite_wire::control::{
    self, ACK_OVERHEAD_BYTES, Builder, Control, Draft, Echo, Header, ReplayWindow,
};

/// Most bytes of a control packet, whatever the MTU of the data (P4): enough for a report worth
/// having, one of RoCE's MTUs, and no more than passes any path (RFC 8200 section 5: 1280 bytes
/// with all headers).
pub(crate) const MTU: u32 = 1024;
/// Packets kept while the fabric is full; older ones are dropped, as a network would.
const MAX_WAITING: usize = 64;
/// Least room for a report that is worth a place in the packet under construction.
const MIN_REPORT_BYTES: usize = 256;

/// Keys, counters and timestamps of one queue pair's control packets (P4.1, P4.2).
pub(crate) struct ControlPath {
    /// Seals what goes to the peer; the peer made it.
    send_key: Option<[u8; 32]>,
    /// Opens what comes from the peer; made here.
    recv_key: [u8; 32],
    counter: u64,
    replay: ReplayWindow,
    /// The newest timestamp of the peer, and when it came.
    heard: Option<(u64, u64)>,
    builder: Builder,
    last_sent_ns: u64,
    /// When the peer was heard last, or spoken to first.
    silent_since_ns: Option<u64>,
    /// Packets not yet sent. They are sealed when they leave, since they carry that time.
    waiting: VecDeque<Draft>,
}

/// A packet that was opened.
pub(crate) struct Opened<'a> {
    /// Our timestamp that the peer had last, and how long it held it.
    pub(crate) echo: Option<Echo>,
    pub(crate) messages: control::Messages<'a>,
}

impl ControlPath {
    pub(crate) fn new(recv_key: [u8; 32]) -> Self {
        Self {
            send_key: None,
            recv_key,
            counter: 0,
            replay: ReplayWindow::default(),
            heard: None,
            builder: Builder::new(MTU as usize),
            last_sent_ns: 0,
            silent_since_ns: None,
            waiting: VecDeque::new(),
        }
    }

    pub(crate) fn recv_key(&self) -> [u8; 32] {
        self.recv_key
    }

    pub(crate) fn connect(&mut self, send_key: [u8; 32]) {
        self.send_key = Some(send_key);
    }

    /// Checks tag and counter, and takes the timestamps in. `None` for a packet that is not to be
    /// believed: forged, replayed or malformed.
    pub(crate) fn open<'a>(&mut self, now_ns: u64, bytes: &'a [u8]) -> Option<Opened<'a>> {
        let (header, messages) = control::open(&self.recv_key, bytes).ok()?;
        if !self.replay.accept(header.counter) {
            return None;
        }
        self.silent_since_ns = Some(now_ns);
        // An older packet that was overtaken must not move the echo back.
        if self
            .heard
            .is_none_or(|(newest, _)| header.timestamp_ns > newest)
        {
            self.heard = Some((header.timestamp_ns, now_ns));
        }
        Some(Opened {
            echo: header.echo,
            messages,
        })
    }

    /// Puts a message into the packet under construction, or into a new one.
    pub(crate) fn push(&mut self, message: &Control) {
        if self.builder.push(message) {
            return;
        }
        self.finish();
        let fits = self.builder.push(message);
        debug_assert!(fits, "a control message larger than a packet: {message:?}");
    }

    /// Bytes of bits or ranges that the next report may have. A packet without room worth having is
    /// ended: small pieces of a bitmap would take many packets to tell it.
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

    /// How long nothing had been heard when the last packet was sent.
    pub(crate) fn silence_ns(&self) -> u64 {
        let since_ns = self.silent_since_ns.unwrap_or(self.last_sent_ns);
        self.last_sent_ns.saturating_sub(since_ns)
    }

    /// Ends the packet under construction, which may be an empty one (a ping).
    pub(crate) fn finish(&mut self) {
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(self.builder.finish());
    }

    /// Whether the queue is so full that another packet might replace the oldest.
    pub(crate) fn is_crowded(&self) -> bool {
        self.waiting.len() >= MAX_WAITING / 2
    }

    /// Gives the memory of the empty queue back.
    pub(crate) fn shrink(&mut self) {
        self.waiting.shrink_to_fit();
    }

    /// Whether packets wait to be sent.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The oldest packet that waits, sealed for leaving now. `None` also where there is no peer.
    pub(crate) fn seal_next(&mut self, now_ns: u64) -> Option<&[u8]> {
        let key = self.send_key.as_ref()?;
        let draft = self.waiting.front_mut()?;
        self.counter += 1;
        let header = Header {
            counter: self.counter,
            timestamp_ns: now_ns,
            echo: self.heard.map(|(timestamp_ns, came_ns)| Echo {
                timestamp_ns,
                hold_ns: now_ns.saturating_sub(came_ns),
            }),
        };
        Some(draft.seal(&header, key))
    }

    /// The packet that was sealed last has left.
    pub(crate) fn sent(&mut self, now_ns: u64) {
        self.waiting.pop_front();
        self.last_sent_ns = now_ns;
        self.silent_since_ns.get_or_insert(now_ns);
    }
}
